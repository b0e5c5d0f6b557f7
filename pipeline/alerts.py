"""Which warnings are told to the address of the settings, and which were told already.

    state/alerts.json    {kind: {since, at}} of what was told and is not over

A warning is told when it begins, again after a day while it lasts, and once when it is over.
What was told is written after the receiver has accepted it, so that none is lost. The command
line and the daemon share the file; a lock keeps them from telling the same twice.
"""

import fcntl
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Final

import msgspec

from pipeline.health import health_of
from pipeline.health_record import Warned
from pipeline.settings import Settings
from warehouse.errors import WarehouseError
from warehouse.home import Home
from warehouse.notes import put_note, read_note
from warehouse.storage import Storage

TOLD_AGAIN: Final = timedelta(hours=24)
_FILE: Final = "alerts.json"
_LOCK: Final = "alerts.lock"
_Instant = Annotated[datetime, msgspec.Meta(tz=True)]


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """A warning that was told: since when it lasts, and when it was told last."""

    since: _Instant
    at: _Instant


Before = Mapping[str, Told]


@dataclass(frozen=True, slots=True)
class Found:
    """What is warned of in a home; `source` None is no home, of which nothing is told.

    `is_all` says that nothing else is: false for a home that can't be read.
    """

    source: str | None
    warnings: tuple[Warned, ...] = ()
    is_all: bool = True


@dataclass(frozen=True, slots=True)
class Changes:
    """What there is to tell: what began, what lasts and was told a day ago, what is over."""

    begun: tuple[Warned, ...] = ()
    again: tuple[Warned, ...] = ()
    over: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.begun or self.again or self.over)

    @property
    def warnings(self) -> tuple[Warned, ...]:
        return self.begun + self.again

    @property
    def kinds(self) -> tuple[str, ...]:
        """What is told, with a mark for what it says of each."""
        marked = (*(f"+{one.kind}" for one in self.warnings), *(f"-{kind}" for kind in self.over))
        return tuple(sorted(marked))


Post = Callable[[str, Changes, datetime], None]
"""Tells changes of a source; what it raises leaves them untold."""


def changes(
    before: Before, warnings: Sequence[Warned], *, now: datetime, is_all: bool = True
) -> Changes:
    """Return what there is to tell, beside what was told before; `since` is set, at least to now.

    Only where the warnings are all there are, one that is not among them is over.
    """
    begun, again = [], []
    for one in warnings:
        told = before.get(one.kind)
        if told is None:
            begun.append(_since(one, now))
        elif now - told.at >= TOLD_AGAIN:
            again.append(_since(one, told.since))
    kinds = {one.kind for one in warnings}
    over = tuple(kind for kind in before if is_all and kind not in kinds)
    return Changes(tuple(begun), tuple(again), over)


def after(before: Before, told: Changes, *, now: datetime) -> dict[str, Told]:
    """Return what is told once changes were."""
    lasting = {kind: one for kind, one in before.items() if kind not in told.over}
    for one in told.warnings:
        lasting[one.kind] = Told(since=one.since or now, at=now)
    return lasting


def find(settings: Settings, home: Home, now: datetime) -> Found:
    """Return what is warned of. A home that can't be read is itself a warning."""
    try:
        health = health_of(settings, home, now)
    except WarehouseError as error:
        # Not its text: it may name folders of this machine.
        text = f"The home can't be read ({type(error).__name__}): almanac status says why"
        return Found(settings.source, (Warned("damaged", text),), is_all=False)
    return Found(health.source, tuple(health.warnings))


class Alerts:
    """What was told of a home. `state` is its state folder."""

    def __init__(self, state: Path) -> None:
        self._state = state

    def before(self) -> Before:
        """Return what was told; a file that can't be read is nothing, and all is told anew."""
        return read_note(Storage(self._state), _FILE, dict[str, Told]) or {}

    def due(self, found: Found, *, now: datetime) -> Changes:
        """Return what there is to tell. Nothing is written."""
        return _changes(self.before(), found, now)

    def tell(self, found: Found, post: Post, *, now: datetime) -> Changes:
        """Tell what there is to tell, alone on the machine, and return it.

        Raises:
            whatever `post` does: nothing is then written, and the same is due again.
        """
        if found.source is None:
            return Changes()
        with self._alone():
            before = self.before()
            told = _changes(before, found, now)
            if told:
                post(found.source, told, now)
                lasting = after(before, told, now=now)
                put_note(Storage(self._state), _FILE, lasting)
        return told

    @contextmanager
    def _alone(self) -> Iterator[None]:
        self._state.mkdir(parents=True, exist_ok=True)
        with (self._state / _LOCK).open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def _changes(before: Before, found: Found, now: datetime) -> Changes:
    if found.source is None:
        return Changes()
    return changes(before, found.warnings, now=now, is_all=found.is_all)


def _since(one: Warned, otherwise: datetime) -> Warned:
    return Warned(one.kind, one.text, one.since or otherwise)
