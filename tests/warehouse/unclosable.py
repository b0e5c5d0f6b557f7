"""Connections that do not close, which happens in DuckDB 2.0 after an interrupted COPY.

`python -m tests.warehouse.unclosable GRACE_S …` runs `almanac …` with such connections.
"""

import ctypes
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import duckdb

from almanac.reading import attached_file, row_files
from tests.hangs import HANGS_AFTER_S


class Unclosable:
    """A connection whose `close` blocks until it is released; a test must not wait for it."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self.released = threading.Event()
        self.interrupts = 0
        self.interrupted_closing = False
        self.is_closed = False
        self._closing = False
        self._connection = connection

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def interrupt(self) -> None:
        self.interrupts += 1
        self.interrupted_closing = self.interrupted_closing or self._closing
        self._connection.interrupt()

    def close(self) -> None:
        self._closing = True
        self.released.wait(HANGS_AFTER_S)
        self._connection.close()
        self.is_closed = True


class Deadlocked(Unclosable):
    """A connection whose `close` blocks outside of Python, where no signal handler runs."""

    def close(self) -> None:
        mutex = ctypes.create_string_buffer(128)
        lock = ctypes.CDLL(None).pthread_mutex_lock
        lock(mutex)
        lock(mutex)


def opening(
    kind: type[Unclosable], opened: list[Unclosable]
) -> Callable[..., duckdb.DuckDBPyConnection]:
    """Return a replacement of `open_published` that returns connections of this kind."""
    usual = attached_file.open_published

    def open_one(*arguments: Any) -> Any:
        opened.append(kind(usual(*arguments)))
        return opened[-1]

    return open_one


def main() -> None:
    # Imported here since Dagster takes long to import.
    from almanac import command_line, commands

    grace_s = float(sys.argv.pop(1))
    choose = commands._choose_limits
    setattr(commands, "_choose_limits", lambda *given: replace(choose(*given), grace_s=grace_s))  # noqa: B010
    opened = opening(Deadlocked, [])
    for module in (attached_file, row_files):
        setattr(module, "open_published", opened)  # noqa: B010
    command_line.main()


if __name__ == "__main__":
    main()
