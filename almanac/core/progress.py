"""Progress of a merge: its phase, and how many steps of the phase are done. A command shows it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

ProgressListener = Callable[[str, int, int], None]
"""Called with the name of the phase, the number of finished steps, and the number of all steps."""
Step = Callable[[str], None]
"""Called at each step of a merge with its name."""
_listeners: Final[list[ProgressListener]] = []


@contextmanager
def show_progress(on_phase: ProgressListener) -> Iterator[None]:
    """Within this context, report the phases of merges to a function."""
    _listeners.append(on_phase)
    try:
        yield
    finally:
        _listeners.remove(on_phase)


def report_progress(name: str, done: int, total: int) -> None:
    for on_phase in tuple(_listeners):
        on_phase(name, done, total)
