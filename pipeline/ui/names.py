"""Names and addresses that the programs share. This module imports no Dagster."""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from ipaddress import ip_address
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import msgspec

from pipeline.runs.place import LOCATION as LOCATION
from warehouse.home import Home

__all__ = [
    "CODE_SERVER",
    "DAEMON",
    "LOCATION",
    "MODULE",
    "WEBSERVER",
    "PagesAddress",
    "lock_of",
    "socket_path",
]

DAEMON: Final = "dagster-daemon"
CODE_SERVER: Final = "dagster-code-server"
WEBSERVER: Final = "dagster-webserver"
MODULE: Final = "pipeline.definitions"
_SOCKET: Final = "code-server.socket"
_SOCKET_PATH_MAX: Final = 100
"""Linux allows 107 bytes for the path of a socket, macOS 103."""
_PREFIX: Final = "almanac-"
_SHORT_FOLDER: Final = Path("/tmp")


class PagesAddress(msgspec.Struct, frozen=True, kw_only=True):
    """Where the pages are served, under which names, and whether they can change anything."""

    host: str
    port: int
    path_prefix: str = ""
    known_as: Sequence[str] = ()
    read_only: bool = False

    @property
    def url(self) -> str:
        """The address of the pages; an IPv6 host is in brackets."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}{self.path_prefix}"

    @property
    def is_local(self) -> bool:
        """Whether only programs of this machine reach the pages."""
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


def lock_of(home: Home, name: str) -> Path:
    """Return the path of the lock that a program of a home holds while it lives."""
    return home.dagster.resolve() / f"{name}.lock"


@contextmanager
def socket_path(home: Home) -> Iterator[Path]:
    """Yield the path of the code server's socket: in the home, or in a temporary folder.

    The home is the better place, since the path is part of what Dagster records of a run, but its
    path may be too long for a socket; so may that of the folder for temporary files.
    """
    path = home.dagster.resolve() / _SOCKET
    if _fits(path):
        yield path
        return
    usual = Path(tempfile.gettempdir())
    parent = usual if _fits(usual / f"{_PREFIX}12345678" / _SOCKET) else _SHORT_FOLDER
    with TemporaryDirectory(prefix=_PREFIX, dir=parent) as folder:
        yield Path(folder) / _SOCKET


def _fits(path: Path) -> bool:
    return len(str(path).encode()) <= _SOCKET_PATH_MAX
