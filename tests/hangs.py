"""Waits of tests: each ends at its event, and the bound only ends a hang.

The bound says nothing of how fast something is: a machine that is shared can stall for minutes. No
test asserts that something takes less than a time. Speed is measured in `bench`. Belongs here too:
what a command shows on a slow machine alone.
"""

import re
import time
from collections.abc import Callable
from typing import Final, TypeVar

HANGS_AFTER_S: Final = 600.0
"""The bound after which a test takes a program, a request or a wait for a hang."""
_PAUSE_MAX_S: Final = 0.2
_STEP: Final = re.compile(r"^.+ \.\.\. \(\d+ s\)\n", re.MULTILINE)

Found = TypeVar("Found")


def wait_for(find: Callable[[], Found | None]) -> Found:
    """Call a function until its result is true, and return that.

    The pauses between the calls grow from 5 ms to 0.2 s.

    Raises:
        AssertionError: no result was true before `HANGS_AFTER_S`.
    """
    give_up_at, pause_s = time.monotonic() + HANGS_AFTER_S, 0.005
    while not (found := find()):
        assert time.monotonic() < give_up_at, "it did not happen in time"
        time.sleep(pause_s)
        pause_s = min(1.1 * pause_s, _PAUSE_MAX_S)
    return found


def without_steps(shown: str) -> str:
    """Return what a command showed, without the steps that it reports after ten seconds."""
    return _STEP.sub("", shown)
