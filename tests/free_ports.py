"""Ports for programs that tests start, end and start again."""

import os
import socket
from typing import Final

_FIRST_PORT: Final = 20_000
_PORTS: Final = 6_000
_RESERVATIONS: Final[list[socket.socket]] = []


def free_port() -> int:
    """Return a free port that is reserved for this process until it ends.

    The port is below the range of outgoing connections: a client that calls a port of that range
    again and again gets it by chance, and so itself. The reservation is a bound socket: while a
    receiver is killed its own port is free, and another process of tests would take it.
    """
    for place in range(_PORTS):
        port = _FIRST_PORT + (os.getpid() + place) % _PORTS
        reservation = socket.socket()
        with socket.socket() as probe:
            try:
                reservation.bind(("127.0.0.1", port + _PORTS))
                probe.bind(("127.0.0.1", port))
            except OSError:
                reservation.close()
                continue
        _RESERVATIONS.append(reservation)
        return port
    raise AssertionError("no port is free")
