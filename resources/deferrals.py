"""Looks that the service, or the quota, put off: what, until when, and why.

    state/deferred/<work>-<feed>.json

Noted when it happens and forgotten when the same look succeeds. Backfills keep their own notes
(sweeps.py), which also say how far they came.
"""

from datetime import datetime

import msgspec

from resources.allowance import Work
from resources.errors import Defer
from warehouse.batches import Feed
from warehouse.storage import Storage

_FOLDER = "deferred"


class Deferral(msgspec.Struct, frozen=True, kw_only=True):
    """One look that was put off. Instants are aware UTC."""

    work: Work
    feed: Feed
    noted_at: datetime
    resume_at: datetime
    why: str


class Deferrals:
    """The notes of a home; `state` is its state folder."""

    def __init__(self, state: Storage) -> None:
        self._state = state

    def note(self, one: Deferral) -> None:
        """Note a look that was put off. Of the same look the newest note stands."""
        self._state.put(_name(one.work, one.feed), msgspec.json.encode(one))

    def done(self, work: Work, feed: Feed) -> None:
        """Forget a look that has succeeded."""
        self._state.path(_name(work, feed)).unlink(missing_ok=True)

    def settle(self, work: Work, now: datetime) -> None:
        """Forget the looks of a kind of work whose time has come: it goes on by its own plan."""
        for one in self.all():
            if one.work == work and one.resume_at <= now:
                self.done(work, one.feed)

    def all(self) -> list[Deferral]:
        """Return every look that is put off, the first to go on first; damaged notes are none."""
        found = []
        for name in self._state.names(_FOLDER):
            try:
                found.append(msgspec.json.decode(self._state.read(name), type=Deferral))
            except (msgspec.MsgspecError, FileNotFoundError):
                continue
        return sorted(found, key=lambda one: one.resume_at)


def deferral(work: Work, feed: Feed, error: Defer, now: datetime) -> Deferral:
    """Return the note of a look that an error put off."""
    return Deferral(
        work=work, feed=feed, noted_at=now, resume_at=error.resume_at, why=error.happened
    )


def _name(work: Work, feed: Feed) -> str:
    return f"{_FOLDER}/{work}-{feed}.json"
