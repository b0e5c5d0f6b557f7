"""What a query may use and touch: memory, threads, disk and time; no file, address or variable.

A connection is in one of two phases. While a statement runs, a `QueryWatch` may interrupt it; when
the watch is left, nobody interrupts it any more, and it may be closed. Belongs here: shutting a
connection off from the outside, and stopping what runs on it. Does not: which statements are
allowed (queries). Sizes are in bytes, times in seconds.
"""

import shutil
import tempfile
import threading
import uuid
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import Any, Final

import duckdb

from warehouse.files.temporary import own_folder

LEFT_FREE_BYTES: Final = 1_000_000_000
"""What answers and spilled rows leave free on a disk."""
_ANSWER_BYTES_MIN: Final = 64_000_000
"""An answer may be so large on any disk."""
_TICK_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class QueryLimits:
    """The most that one connection may use. `threads` None is as many as there are cores.

    Rows that memory does not hold are spilled to the disk, twice as much as memory at the most.
    `grace_s` is how long a query may take to end once it was stopped, since some functions do not
    look, and how long its connection may take to close.
    """

    memory_bytes: int = 2_000_000_000
    threads: int | None = None
    timeout_s: float = 300.0
    grace_s: float = 5.0


def _no_signals() -> AbstractContextManager[Callable[[], bool]]:
    return nullcontext(lambda: False)


@dataclass(frozen=True, slots=True)
class QueryHooks:
    """What the program that asks has to do with a query while it runs, where no Python does.

    `hold_signals` holds back the signals that end the program: it lends what says, to any thread,
    whether one came, and raises KeyboardInterrupt for it at its end. `on_stuck` ends the process
    when a query that was stopped does not end; it hears why, None where a signal came.
    """

    hold_signals: Callable[[], AbstractContextManager[Callable[[], bool]]] = _no_signals
    on_stuck: Callable[[str | None], None] | None = None


def restrict(
    connection: duckdb.DuckDBPyConnection, limits: QueryLimits, writable: Sequence[Path] = ()
) -> None:
    """Close a connection to files, addresses and Python's variables, but for `writable`.

    What is attached stays readable. It can't be undone, as no setting can be changed any more.
    """
    free = shutil.disk_usage(tempfile.gettempdir()).free - LEFT_FREE_BYTES
    spill_bytes = max(0, min(2 * limits.memory_bytes, free))
    # DuckDB makes it for the first rows that it spills, and removes it.
    spill = str(own_folder() / f"spill-{uuid.uuid4().hex}") if spill_bytes else ""
    settings: list[tuple[str, Any]] = [
        ("SET memory_limit = $value", f"{limits.memory_bytes}B"),
        ("SET temp_directory = $value", spill),
        ("SET autoload_known_extensions = $value", False),
        ("SET autoinstall_known_extensions = $value", False),
        ("SET allow_community_extensions = $value", False),
        ("SET allow_persistent_secrets = $value", False),
        ("SET python_enable_replacements = $value", False),
        ("SET allowed_paths = $value", [str(path) for path in writable]),
        ("SET enable_external_access = $value", False),
    ]
    if spill_bytes:
        settings.insert(2, ("SET max_temp_directory_size = $value", f"{spill_bytes}B"))
    if limits.threads is not None:
        settings.insert(0, ("SET threads = $value", limits.threads))
    for text, value in settings:
        connection.execute(text, {"value": value})
    connection.execute("SET lock_configuration = true")


class QueryWatch:
    """Stops what a connection runs when its time is over, its answer has no more room, or a
    signal came.

    Used as a context around it; `stopped` says why, None where it was not. A query that does not
    end even then goes on, unless the program's `on_stuck` ends the process. Once the context is
    left, the connection is not interrupted any more, and may be closed.
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
        self._limits = limits
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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._undo.__exit__(kind, error, trace)

    def _end(self) -> None:
        # Under the lock: even where a signal breaks off the join, no interrupt comes after it.
        with self._interrupting:
            self._done.set()
        self._thread.join()

    def _run(self) -> None:
        began = monotonic()
        room = self._room()
        while not self._done.wait(_TICK_S):
            if self._has_signal():
                self._stop(None)
                return
            if monotonic() - began >= self._limits.timeout_s:
                timeout = f"{self._limits.timeout_s:g} s"
                self._stop(f"it took longer than {timeout} (ALMANAC_SQL_TIMEOUT_S)")
                return
            if self._size() > room:
                self._stop(f"its result left less than {LEFT_FREE_BYTES:,} bytes free on the disk")
                return

    def _stop(self, why: str | None) -> None:
        self.stopped = why or "it was interrupted"
        stuck_at = monotonic() + self._limits.grace_s
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

    def _room(self) -> int:
        if self._answer is None:
            return 0
        free = shutil.disk_usage(self._answer.parent).free - LEFT_FREE_BYTES
        return max(free, _ANSWER_BYTES_MIN)

    def _size(self) -> int:
        try:
            return 0 if self._answer is None else self._answer.stat().st_size
        except FileNotFoundError:
            return 0  # Not begun.
