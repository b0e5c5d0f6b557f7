"""What a query may use and touch: memory, threads, disk and time; no file, address or variable.

Belongs here: closing a connection, and stopping what runs on it. Does not: which statements are
asked (queries). Sizes are in bytes, times in seconds.
"""

import shutil
import tempfile
import threading
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import Any, Final

import duckdb

LEFT_FREE_BYTES: Final = 1_000_000_000
"""What answers and spilled rows leave free on a disk."""
_ANSWER_BYTES_MIN: Final = 64_000_000
"""An answer may be so large on any disk."""
_TICK_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class QueryLimits:
    """The most that one connection may use. `threads` None is as many as there are cores.

    Rows that memory does not hold are spilled to the disk, twice as much as memory at the most.
    `grace_s` is how long a query may take to end once it was stopped: some functions do not look.
    """

    memory_bytes: int = 2_000_000_000
    threads: int | None = None
    timeout_s: float = 300.0
    grace_s: float = 5.0


def restrict(
    connection: duckdb.DuckDBPyConnection, limits: QueryLimits, writable: Sequence[Path] = ()
) -> None:
    """Close a connection to files, addresses and Python's variables, but for `writable`.

    What is attached stays readable. It can't be undone, as no setting can be changed any more.
    """
    folder = Path(tempfile.gettempdir()).resolve() / f"almanac-spill-{uuid.uuid4().hex}"
    free = shutil.disk_usage(folder.parent).free - LEFT_FREE_BYTES
    spill_bytes = max(0, min(2 * limits.memory_bytes, free))
    settings: list[tuple[str, Any]] = [
        ("SET memory_limit = $value", f"{limits.memory_bytes}B"),
        ("SET temp_directory = $value", str(folder) if spill_bytes else ""),
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


class Watch:
    """Stops what a connection runs when its time is over, or its answer has no more room.

    Used as a context around it; `stopped` says why, None where it was not. A query that does not
    end even then goes on, unless `on_stuck` ends the process.
    """

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        limits: QueryLimits,
        *,
        answer: Path | None = None,
        on_stuck: Callable[[str], None] | None = None,
    ) -> None:
        self.stopped: str | None = None
        self._connection = connection
        self._limits = limits
        self._answer = answer
        self._on_stuck = on_stuck
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="query-watch", daemon=True)

    def __enter__(self) -> "Watch":
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._done.set()
        self._thread.join()

    def _run(self) -> None:
        began = monotonic()
        room = self._room()
        while not self._done.wait(_TICK_S):
            if monotonic() - began >= self._limits.timeout_s:
                timeout = f"{self._limits.timeout_s:g} s"
                self._stop(f"it took over {timeout} (ALMANAC_SQL_TIMEOUT_S)")
                return
            if self._size() > room:
                self._stop(f"its answer left less than {LEFT_FREE_BYTES:,} bytes free on the disk")
                return

    def _stop(self, why: str) -> None:
        self.stopped = why
        give_up_at = monotonic() + self._limits.grace_s
        # More than once: an interrupt between two statements is lost.
        while True:
            self._connection.interrupt()
            if self._done.wait(_TICK_S):
                return
            if self._on_stuck is not None and monotonic() >= give_up_at:
                if self._answer is not None:
                    self._answer.unlink(missing_ok=True)
                self._on_stuck(why)
                return

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
