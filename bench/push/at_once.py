"""Many deliveries at one moment, each over a connection of its own, by one thread and epoll.

Cheaper than the load generator's connections, which would take the processor from what is measured.
Belongs here: the sockets and their times. Does not: what is sent.
"""

import gc
import select
import socket
import time
from collections.abc import Sequence

from bench.server.load import LoadError, Times

_DRAIN_S = 30.0
_ANSWER_BYTES = 4_096


def own_connections(port: int, requests: Sequence[bytes], *, expected: int) -> Times:
    """Open a connection for each request at one moment, and send each as soon as it can be sent.

    A time begins at that moment, and ends with the head of the answer.

    Raises:
        LoadError: an answer had another status, or a connection was closed without one.
    """
    gc.collect()
    gc.disable()
    sockets = dict[int, tuple[socket.socket, bytes]]()
    try:
        with select.epoll() as poll:
            return _send_all(poll, sockets, port, requests, f"HTTP/1.1 {expected} ".encode())
    finally:
        gc.enable()
        for opened, _ in sockets.values():
            opened.close()


def _send_all(
    poll: select.epoll,
    sockets: dict[int, tuple[socket.socket, bytes]],
    port: int,
    requests: Sequence[bytes],
    expected: bytes,
) -> Times:
    seconds, began = list[float](), time.perf_counter()
    for request in requests:
        opened = socket.socket()
        opened.setblocking(False)
        opened.connect_ex(("127.0.0.1", port))
        sockets[opened.fileno()] = opened, request
        poll.register(opened, select.EPOLLOUT)
    while len(seconds) < len(requests):
        ready = poll.poll(_DRAIN_S)
        if not ready:
            raise LoadError(f"{len(requests) - len(seconds)} requests had no answer in time")
        for number, event in ready:
            opened, request = sockets[number]
            if event & select.EPOLLOUT:
                # A whole request fits into the empty buffer of a socket.
                opened.sendall(request)
                poll.modify(number, select.EPOLLIN)
                continue
            answer = opened.recv(_ANSWER_BYTES)
            if not answer.startswith(expected):
                raise LoadError(f"{answer[:40]!r} instead of {expected!r}")
            seconds.append(time.perf_counter() - began)
            poll.unregister(number)
    return Times(seconds, time.perf_counter() - began, 0)
