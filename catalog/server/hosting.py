"""Serves an application on loopback or another address, in its own thread.

It uses Granian, which closes idle and unfinished connections within `HEADER_TIMEOUT_S` (measured).
The calling thread stays free, so Ctrl-C and tests work as usual.
"""

import asyncio
import logging
import socket
import threading
import time

from granian.constants import HTTPModes, Interfaces
from granian.http import HTTP1Settings
from granian.server.embed import Server
from starlette.types import ASGIApp

from catalog import ServerError

HEADER_TIMEOUT_S = 5.0
START_TIMEOUT_S = 30.0
_BUFFER_BYTES = 64 * 1024
_BACKLOG = 4_096
"""Connections that wait to be accepted; one more would be tried again after seconds."""


class HostedApp:
    """An application that listens on `host:port` from `start` to `stop`."""

    def __init__(self, app: ASGIApp, *, host: str = "127.0.0.1", port: int = 0) -> None:
        self._app = app
        self._host = host
        self.port = port
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="almanac-server", daemon=True)

    @property
    def base_url(self) -> str:
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self.port}"

    def start(self) -> "HostedApp":
        """Listen, and return when connections are answered.

        Raises:
            ServerError: the port is taken, or the application did not start in time.
        """
        self.port = free_port(self._host, self.port)
        self._thread.start()
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self._answers():
            if not self._thread.is_alive():
                raise ServerError(f"the server did not start: {self._failure}") from self._failure
            if time.monotonic() > deadline:
                raise ServerError(f"the server did not start within {START_TIMEOUT_S:g} s")
            time.sleep(0.005)
        return self

    def stop(self) -> None:
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._server.stop)
            self._thread.join(timeout=START_TIMEOUT_S)

    def __enter__(self) -> "HostedApp":
        return self.start()

    def __exit__(self, *raised: object) -> None:
        self.stop()

    def _answers(self) -> bool:
        try:
            socket.create_connection((self._host, self.port), timeout=START_TIMEOUT_S).close()
        except OSError:
            return False
        return True

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except Exception as error:
            logging.getLogger(__name__).exception("the server ended with an error")
            self._failure = error

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._server = Server(
            self._app,
            address=self._host,
            port=self.port,
            interface=Interfaces.ASGI,
            http=HTTPModes.http1,
            websockets=False,
            backlog=_BACKLOG,
            http1_settings=HTTP1Settings(
                header_read_timeout=int(HEADER_TIMEOUT_S * 1000), max_buffer_size=_BUFFER_BYTES
            ),
            log_enabled=False,
        )
        await self._server.serve()


def free_port(host: str, port: int) -> int:
    """Return a port that can be listened on; 0 means any free port.

    Raises:
        ServerError: the port is taken.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise ServerError(
                f"can't listen on {host} port {port}: {error.strerror}; port 0 is a free one"
            ) from error
        taken: int = probe.getsockname()[1]
        return taken
