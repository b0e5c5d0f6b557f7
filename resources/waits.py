"""Reports each noticeable wait to whoever shows it: why the client waits, and until when.

A command prints the waits on standard error. A run of Dagster logs them as events of the run
(`assets/landed.py`).
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

NOTICED_S: Final = 2.0
"""A call that waits for less time in total reports nothing."""


@dataclass(frozen=True, slots=True)
class Wait:
    """A wait in `seconds` until `ends_at`, aware UTC by the machine's clock."""

    seconds: float
    ends_at: datetime
    why: str

    def __str__(self) -> str:
        return f"Waiting {self.seconds:.0f} s, until {self.ends_at:%H:%M:%S} UTC: {self.why}."


OnWait = Callable[[Wait], None]
"""Called in the thread that is about to wait."""

_listeners: list[OnWait] = []


def listen(on_wait: OnWait) -> None:
    """Report all waits of this process to a function, from now on."""
    _listeners.append(on_wait)


@contextmanager
def listening(on_wait: OnWait) -> Iterator[None]:
    """Report the waits of this process to a function inside this context."""
    listen(on_wait)
    try:
        yield
    finally:
        _listeners.remove(on_wait)


def report_wait(seconds: float, why: str, *, now: datetime) -> None:
    """Report a wait that begins now."""
    wait = Wait(seconds, now + timedelta(seconds=seconds), why.rstrip("."))
    for on_wait in tuple(_listeners):
        on_wait(wait)
