"""Generates the lives of a world in a separate process, the oldest months first.

It only saves time: the caller generates a month that has not arrived.
"""

import marshal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from struct import Struct
from threading import Thread
from typing import BinaryIO, Final

from catalog.sandbox.world.dates import month_of, seconds_of
from catalog.sandbox.world.lifecycle import Life, LifeEvent, collector_paused, generate_lives
from catalog.sandbox.world.roster import Roster

_ROOT: Final = Path(__file__).parents[2]
_PROGRAM: Final = (
    "import sys; sys.path.insert(0, sys.argv[1]); "
    "from catalog.sandbox.world_process import generate; "
    "generate(int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4]), sys.stdout.buffer)"
)
_HEAD: Final = Struct("<II")
"""Before each month: its number and how many bytes follow."""


class WorldProcess:
    """A process that generates the months of a world up to a time, from `start` to `stop`."""

    def __init__(self, seed: int, *, until: datetime, pace: float = 1.0) -> None:
        self._words = (str(seed), repr(pace), str(month_of(seconds_of(until))))
        self._generated: dict[int, bytes] = {}
        self._process: subprocess.Popen[bytes] | None = None
        self._reader: Thread | None = None

    def start(self) -> "WorldProcess":
        # Only the standard library and this package are needed: no site, no environment.
        command = [sys.executable, "-I", "-S", "-c", _PROGRAM, str(_ROOT), *self._words]
        with suppress(OSError):
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
            self._reader = Thread(target=self._read, name="almanac-world", daemon=True)
            self._reader.start()
        return self

    def stop(self) -> None:
        """End the process; the months it has generated can still be taken."""
        if self._process is None or self._reader is None:
            return
        self._process.kill()
        self._process.wait()
        self._reader.join()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def __enter__(self) -> "WorldProcess":
        return self.start()

    def __exit__(self, *raised: object) -> None:
        self.stop()

    @property
    def months(self) -> frozenset[int]:
        """The months that are generated and not taken yet."""
        return frozenset(self._generated)

    def take(self, month: int) -> Iterator[Life] | None:
        """Return the lives begun in a month, once; None when it is not generated yet.

        Take the newest month first: once it is generated the older ones are, too, so the process
        is ended.
        """
        histories = self._generated.pop(month, None)
        if histories is None:
            return None
        if self._process is not None:
            self._process.kill()
        return (Life(map(LifeEvent._make, moments)) for moments in marshal.loads(histories))

    def _read(self) -> None:
        assert self._process is not None and self._process.stdout is not None
        pipe = self._process.stdout
        while len(head := pipe.read(_HEAD.size)) == _HEAD.size:
            month, length = _HEAD.unpack(head)
            body = pipe.read(length)
            if len(body) == length:
                self._generated[month] = body


@collector_paused()
def generate(seed: int, pace: float, last_month: int, pipe: BinaryIO) -> None:
    """Write the lives of the months from the first to the last."""
    roster = Roster(seed)
    for month in range(last_month + 1):
        lives = [tuple(map(tuple, life)) for life in generate_lives(month, roster, pace)]
        # Far quicker than pickle; both ends are this interpreter.
        body = marshal.dumps(lives)
        pipe.write(_HEAD.pack(month, len(body)))
        pipe.write(body)
        pipe.flush()
