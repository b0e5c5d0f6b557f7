"""Progress: the phases of the work, and what it waits for, reported to those who listen.

Listeners hear the work of their context. A thread is heard if it runs in a copy of the context.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, NamedTuple

PhaseListener = Callable[[str, int, int | None], None]
"""Called with the name of a phase, the number of finished steps, and of all, None if unknown."""


class _Listener(NamedTuple):
    phase: PhaseListener
    wait: Callable[[str], None]


def _ignore(*_: object) -> None:
    pass


_listeners: Final[ContextVar[tuple[_Listener, ...]]] = ContextVar("progress", default=())


def phase(name: str, done: int = 0, total: int | None = None) -> None:
    """Report a phase, and how much of it is done."""
    for listener in _listeners.get():
        listener.phase(name, done, total)


def wait(text: str) -> None:
    """Report what is waited for, or another fact, as a sentence."""
    for listener in _listeners.get():
        listener.wait(text)


def hear_waits(wait: Callable[[str], None]) -> None:
    """Call a function, from now on, with each wait; once if called twice."""
    listener = _Listener(_ignore, wait)
    if listener not in _listeners.get():
        _listeners.set((*_listeners.get(), listener))


@contextmanager
def listening(
    *, phase: PhaseListener = _ignore, wait: Callable[[str], None] = _ignore
) -> Iterator[None]:
    """Within this context, call functions with what is reported."""
    token = _listeners.set((*_listeners.get(), _Listener(phase, wait)))
    try:
        yield
    finally:
        _listeners.reset(token)


def describe_phase(name: str, done: int, total: int | None) -> str:
    """Return a phase as text, such as `fold batches 1 of 3`."""
    of = "" if total is None else f" of {total:,}"
    return f"{name} {done:,}{of}" if done or of else name


@contextmanager
def describing(report: Callable[[str], None] | None) -> Iterator[None]:
    """Within this context, call a function, if there is one, with a line for each phase."""
    with listening(phase=lambda *phase: report and report(describe_phase(*phase))):
        yield
