"""Looks that the service, or the quota, put off: what, until when, and why.

    state/deferred/<work>-<feed>.json

Noted when it happens and forgotten when the same look succeeds. Backfills keep their own notes
(state.py), which also say how far they came.
"""

from datetime import datetime

import msgspec

from resources.errors import Defer
from resources.limits.allowance import Work
from warehouse.files.notes import put_note, read_notes
from warehouse.files.storage import Storage
from warehouse.landing.batches import Feed

_FOLDER = "deferred"


class DeferredPull(msgspec.Struct, frozen=True, kw_only=True):
    """One look that was put off. Instants are aware UTC."""

    work: Work
    feed: Feed
    noted_at: datetime
    resume_at: datetime
    why: str


class DeferredPulls:
    """The notes of a home; `state` is its state folder."""

    def __init__(self, state: Storage) -> None:
        self._state = state

    def note(self, deferred: DeferredPull) -> None:
        """Note a look that was put off. Of the same look the newest note stands."""
        put_note(self._state, _name(deferred.work, deferred.feed), deferred)

    def done(self, work: Work, feed: Feed) -> None:
        """Forget a look that has succeeded."""
        self._state.remove(_name(work, feed))

    def settle(self, work: Work, now: datetime) -> None:
        """Forget the looks of a kind of work whose time has come: it goes on by its own plan."""
        for deferred in self.all():
            if deferred.work == work and deferred.resume_at <= now:
                self.done(work, deferred.feed)

    def all(self) -> list[DeferredPull]:
        """Return every look that is put off, the first to go on first; damaged notes are none."""
        found = read_notes(self._state, _FOLDER, DeferredPull, _wrong)
        return sorted(found, key=lambda deferred: deferred.resume_at)


def deferred_pull(work: Work, feed: Feed, error: Defer, now: datetime) -> DeferredPull:
    """Return the note of a look that an error put off."""
    return DeferredPull(
        work=work, feed=feed, noted_at=now, resume_at=error.resume_at, why=error.happened
    )


def _wrong(name: str, note: DeferredPull) -> str:
    # Under another name it would never be forgotten.
    return "" if name == _name(note.work, note.feed) else "it belongs to another pull"


def _name(work: Work, feed: Feed) -> str:
    return f"{_FOLDER}/{work}-{feed}.json"
