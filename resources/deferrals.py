"""Pulls that did not happen: deferred by the service or the quota, or refused by the service.

    state/deferred/<work>-<feed>.json    what, until when, and why
    state/refused/<feed>.json            a feed that the plan or key may not read, and why

A note is written when a pull is deferred or refused, and removed when the same pull succeeds.
Backfills have notes of their own (backfill/state.py).
"""

from datetime import datetime, timedelta
from typing import Final

import msgspec

from resources.errors import CatalogError, Defer
from resources.limits.allowance import Work
from warehouse.files.documents import put_note, read_notes
from warehouse.files.storage import Storage
from warehouse.landing.batches import Feed

_FOLDER = "deferred"
_REFUSED = "refused"
FAILED_EXPORT_AGAIN_AFTER: Final = timedelta(hours=3)
"""The whole daily pull is repeated then, which costs requests."""


class DeferredPull(msgspec.Struct, frozen=True, kw_only=True):
    """One deferred pull. Instants are aware UTC."""

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
        """Write the note of a deferred pull; it replaces an earlier one of the same pull."""
        put_note(self._state, _name(deferred.work, deferred.feed), deferred)

    def done(self, work: Work, feed: Feed) -> None:
        """Remove the note of a pull that has succeeded."""
        self._state.remove(_name(work, feed))

    def settle(self, work: Work, now: datetime) -> None:
        """Remove the notes of a kind of work that are due: it resumes by its own plan."""
        for deferred in self.all():
            if deferred.work == work and deferred.resume_at <= now:
                self.done(work, deferred.feed)

    def all(self) -> list[DeferredPull]:
        """Return every deferred pull, the first to resume first; damaged notes are ignored."""
        found = read_notes(self._state, _FOLDER, DeferredPull, _wrong)
        return sorted(found, key=lambda deferred: deferred.resume_at)


class RefusedFeed(msgspec.Struct, frozen=True, kw_only=True):
    """A feed that the service refused to a plan. `noted_at` is aware UTC."""

    feed: Feed
    plan: str
    noted_at: datetime
    why: str


class RefusedFeeds:
    """The notes of a home; `state` is its state folder."""

    def __init__(self, state: Storage) -> None:
        self._state = state

    def note(self, refused: RefusedFeed) -> None:
        """Write the note of a refused feed; it replaces an earlier one."""
        put_note(self._state, f"{_REFUSED}/{refused.feed}.json", refused)

    def done(self, feed: Feed) -> None:
        """Remove the note of a feed that was received."""
        self._state.remove(f"{_REFUSED}/{feed}.json")

    def all(self) -> dict[Feed, RefusedFeed]:
        """Return the refused feeds; damaged notes are ignored."""
        found = read_notes(self._state, _REFUSED, RefusedFeed, _wrong_feed)
        return {refused.feed: refused for refused in found}


def _wrong_feed(name: str, note: RefusedFeed) -> str:
    return "" if name == f"{_REFUSED}/{note.feed}.json" else "it belongs to another feed"


def deferred_pull(work: Work, feed: Feed, error: Defer, now: datetime) -> DeferredPull:
    """Return the note of a pull that an error deferred."""
    return DeferredPull(
        work=work, feed=feed, noted_at=now, resume_at=error.resume_at, why=error.happened
    )


def failed_export(error: CatalogError, now: datetime) -> Defer:
    """Return the deferral of an export that failed on every attempt."""
    deferral = Defer(error.happened, resume_at=now + FAILED_EXPORT_AGAIN_AFTER, reason="failing")
    deferral.attempts = error.attempts
    deferral.left = error.left
    return deferral


def _wrong(name: str, note: DeferredPull) -> str:
    # Under another name it would never be removed.
    return "" if name == _name(note.work, note.feed) else "it belongs to another pull"


def _name(work: Work, feed: Feed) -> str:
    return f"{_FOLDER}/{work}-{feed}.json"
