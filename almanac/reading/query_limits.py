"""Limits of a query: memory, threads, disk and time; no file, address or variable.

While a statement runs, a `QueryWatch` may interrupt it. After the watch has exited, nothing
interrupts the connection, and it may be closed.
"""

import os
import resource
import shutil
import sys
import tempfile
import threading
import uuid
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any, Final, NoReturn

import duckdb

from almanac.core.files import own_folder, remove_own_folders
from almanac.core.statements import Literal, literal, quoted

LEFT_FREE_BYTES: Final = 1_000_000_000
"""Disk space that results and spilled rows must leave free."""
_ANSWER_BYTES_MIN: Final = 64_000_000
"""A result of this size is always allowed, even on a small disk."""
_TICK_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class QueryLimits:
    """The most that one connection may use. If `threads` is None, there is one thread per core.

    Rows that do not fit into memory are spilled to disk, at most twice the memory. `grace_s` is the
    time that a stopped query has to end, since some functions do not check for an interrupt, and
    that its connection has to close. Errors state memory and time in the units of the options.
    """

    memory_bytes: int = 2_000_000_000
    threads: int | None = None
    timeout_s: float = 300.0
    grace_s: float = 5.0
    memory_name: str = "QueryLimits.memory_bytes"
    timeout_name: str = "QueryLimits.timeout_s"


@dataclass(frozen=True, slots=True)
class QueryHooks:
    """Hooks of the calling program while a query runs, when no Python code of it does.

    `hold_signals` delays the signals that end the program: it yields a function that any thread may
    call to see whether a signal arrived, and raises KeyboardInterrupt for it at its end. `on_stuck`
    ends the process if a stopped query does not end; it receives the reason, None for a signal.
    """

    hold_signals: Callable[[], AbstractContextManager[Callable[[], bool]]] = lambda: nullcontext(
        lambda: False
    )
    on_stuck: Callable[[str | None], None] | None = None


USUAL_LIMITS: Final = QueryLimits()
NO_HOOKS: Final = QueryHooks()


def restrict(
    connection: duckdb.DuckDBPyConnection, limits: QueryLimits, writable: Sequence[Path] = ()
) -> None:
    """Deny a connection files, addresses and Python variables, except the paths in `writable`.

    Attached files stay readable. This can't be undone, since no setting can be changed afterwards.
    """
    free = shutil.disk_usage(tempfile.gettempdir()).free - LEFT_FREE_BYTES
    spill_bytes = max(0, min(2 * limits.memory_bytes, free))
    # DuckDB makes the folder for the first spilled rows, and removes it.
    spill = str(own_folder() / f"spill-{uuid.uuid4().hex}") if spill_bytes else ""
    settings: list[tuple[str, Literal]] = [
        ("memory_limit", f"{limits.memory_bytes}B"),
        ("temp_directory", spill),
        ("autoload_known_extensions", False),
        ("autoinstall_known_extensions", False),
        ("allow_community_extensions", False),
        ("allow_persistent_secrets", False),
        ("python_enable_replacements", False),
        ("allowed_paths", [str(path) for path in writable]),
        ("enable_external_access", False),
    ]
    if spill_bytes:
        settings.insert(2, ("max_temp_directory_size", f"{spill_bytes}B"))
    if limits.threads is not None:
        settings.insert(0, ("threads", limits.threads))
    for name, value in settings:
        # Not bound: before DuckDB 2.0, the first value that is bound imports pandas.
        connection.execute("SET " + quoted(name) + " = " + literal(value))
    connection.execute("SET lock_configuration = true")


class QueryWatch:
    """Stops the query of a connection when its time is over, the disk has no space for its answer,
    or a signal arrived.

    Use it as a context around the query; `stopped` has the reason, None if it was not stopped. A
    query that still does not end continues, unless `on_stuck` of the program ends the process.
    After the context, the connection is not interrupted and may be closed.
    """

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        limits: QueryLimits,
        program: QueryHooks,
        *,
        answer: Path | None = None,
    ) -> None:
        self.stopped: str | None = None
        self._connection = connection
        self.limits = limits
        self._program = program
        self._answer = answer
        self._done = threading.Event()
        self._interrupting = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="query-watch", daemon=True)
        self._undo = ExitStack()

    def __enter__(self) -> "QueryWatch":
        with ExitStack() as undo:
            self._has_signal = undo.enter_context(self._program.hold_signals())
            self._thread.start()
            undo.callback(self._end)
            self._undo = undo.pop_all()
        return self

    def __exit__(self, *error: Any) -> None:
        self._undo.__exit__(*error)

    def _end(self) -> None:
        # Under the lock, so that no interrupt follows even if a signal ends the join early.
        with self._interrupting:
            self._done.set()
        self._thread.join()

    def _run(self) -> None:
        began = monotonic()
        room = 0
        if self._answer is not None:
            free = shutil.disk_usage(self._answer.parent).free - LEFT_FREE_BYTES
            room = max(free, _ANSWER_BYTES_MIN)
        while not self._done.wait(_TICK_S):
            if self._has_signal():
                self._stop(None)
                return
            if monotonic() - began >= self.limits.timeout_s:
                timeout = f"{self.limits.timeout_s:g} s"
                self._stop(f"it took longer than {timeout} ({self.limits.timeout_name})")
                return
            if self._size() > room:
                self._stop(f"its result left less than {LEFT_FREE_BYTES:,} bytes free on the disk")
                return

    def _stop(self, why: str | None) -> None:
        self.stopped = why or "it was interrupted"
        stuck_at = monotonic() + self.limits.grace_s
        # More than once: an interrupt between two statements is lost.
        while True:
            self._interrupt()
            if self._done.wait(_TICK_S):
                return
            if self._program.on_stuck is not None and monotonic() >= stuck_at:
                if self._answer is not None:
                    self._answer.unlink(missing_ok=True)
                self._program.on_stuck(None if self._has_signal() else why)
                return

    def _interrupt(self) -> None:
        with self._interrupting:
            if not self._done.is_set():
                self._connection.interrupt()

    def _size(self) -> int:
        try:
            return 0 if self._answer is None else self._answer.stat().st_size
        except FileNotFoundError:
            return 0  # The file does not exist yet.


PROGRAM_BYTES: Final = 1_000_000_000
"""Memory of the program in addition to twice the query's memory, since Python holds the rows
again."""
STACK_BYTES: Final = 64_000_000
"""Memory per thread; most of it is never used."""


def bound_memory(limits: QueryLimits) -> None:
    """Limit the memory of this process, for as long as it lives.

    Linux alone enforces it.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    stacks = (limits.threads or os.cpu_count() or 1) * STACK_BYTES
    bound = 2 * limits.memory_bytes + PROGRAM_BYTES + stacks
    lower = bound if hard == resource.RLIM_INFINITY else min(bound, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (lower, hard))


def end_process(message: str, code: int) -> NoReturn:
    remove_own_folders()
    sys.stderr.write(message)
    sys.stderr.flush()
    os._exit(code)
