"""Progress of a merge: its phase, and how many steps of the phase are done. A command shows it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

OnPhase = Callable[[str, int, int], None]
"""Called with the name of the phase, the steps done, and all its steps."""
Step = Callable[[str], None]
"""Called at each step of a merge with its name."""
_listeners: Final[list[OnPhase]] = []


@contextmanager
def listening(on_phase: OnPhase) -> Iterator[None]:
    """Report the phases of this process to a function inside this context."""
    _listeners.append(on_phase)
    try:
        yield
    finally:
        _listeners.remove(on_phase)


def report_phase(name: str, done: int, total: int) -> None:
    for on_phase in tuple(_listeners):
        on_phase(name, done, total)
