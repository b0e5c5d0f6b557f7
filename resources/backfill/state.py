"""Backfills that are not complete: what they request, and what is missing of it.

    state/sweeps/<from>_<to>.json

The state of a backfill is stored before its first request and removed when all of it is landed.
The batches landed since it began show its progress, so nothing is requested twice.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal

import msgspec

from catalog.contract.plans import INSTANT_STEP
from resources.errors import BackfillInProgress
from resources.ingest.scopes import single_requests
from warehouse.files.documents import put_note, read_notes
from warehouse.files.locks import is_held, try_lock
from warehouse.files.storage import Storage, make_folders
from warehouse.landing.batches import Manifest, Scope
from warehouse.landing.landing import Landing

Source = Literal["list", "export"]
ABANDONED_AFTER: Final = timedelta(days=31)
"""A backfill that was not continued for so long starts over: what it has is out of date."""
_FOLDER = "sweeps"
_LOCK = "sweeps.lock"


class BackfillState(msgspec.Struct, frozen=True, kw_only=True):
    """A backfill in progress. Its scope has both bounds; times are aware UTC."""

    scope: Scope
    by: Source = "list"
    plan: str
    source: str
    """The base address or sandbox seed."""
    started_at: datetime
    resumed_at: datetime | None = msgspec.field(default=None, name="gone_on_at")
    """When it was last resumed; the file names it `gone_on_at`."""
    open_ended: bool = False
    """Whether no end was given: the end then follows from the day on which it began."""
    resume_at: datetime | None = None
    """When it may resume, if the service or the quota deferred it."""
    why: str = ""

    def is_abandoned(self, now: datetime) -> bool:
        """Whether it was left for too long to be resumed."""
        known = (self.started_at, self.resumed_at, self.resume_at)
        return now - max(at for at in known if at is not None) > ABANDONED_AFTER

    @property
    def name(self) -> str:
        lower, upper = _bounds(self.scope)
        return f"{_FOLDER}/{lower:%Y%m%d}_{upper:%Y%m%d}.json"

    def requests_same(self, other: "BackfillState") -> bool:
        """Whether source, plan and filters are the same."""
        own, other_scope = self.scope, other.scope
        return (self.plan, self.source, own.coins, own.categories) == (
            other.plan,
            other.source,
            other_scope.coins,
            other_scope.categories,
        )

    def holds(self, scope: Scope) -> bool:
        """Whether the dates of a scope with bounds lie in this scope."""
        (lower, upper), (first, last) = _bounds(self.scope), _bounds(scope)
        return lower <= first and last <= upper

    def overlaps(self, scope: Scope) -> bool:
        (lower, upper), (first, last) = _bounds(self.scope), _bounds(scope)
        return lower <= last and first <= upper


class BackfillStates:
    """The backfill states of a home. `state` is its state folder."""

    def __init__(self, state: Storage, landing: Landing) -> None:
        self._state = state
        self._landing = landing

    def open(self, now: datetime) -> list[BackfillState]:
        """Return the backfills that can be resumed, oldest first; unreadable files are ignored."""
        return [other for other in self._all() if not other.is_abandoned(now)]

    def _all(self) -> list[BackfillState]:
        found = read_notes(self._state, _FOLDER, BackfillState, _wrong)
        return sorted(found, key=lambda backfill: backfill.started_at)

    def open_for(self, requested: BackfillState) -> BackfillState:
        """Return the open backfill that contains this one, else this one."""
        for candidate in self.open(requested.started_at):
            if candidate.requests_same(requested) and candidate.holds(requested.scope):
                return candidate
        return requested

    def supersede(self, state: BackfillState) -> None:
        """Remove backfills of the same dates that can't be resumed: they have another source, plan
        or filter, or were left for too long."""
        for other in self._all():
            if (
                other.is_abandoned(state.started_at) or not other.requests_same(state)
            ) and other.overlaps(state.scope):
                self.end(other)

    def is_whole(self, state: BackfillState) -> bool:
        """Whether batches have all that a backfill requests."""
        lower, upper = _bounds(state.scope)
        return not any(
            requested.missing_scopes(lower, upper)
            for requested in requested_lists(state.scope, self.landed(state))
        )

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the home's backfills against other processes: two would pay for the same pages.

        Raises:
            BackfillInProgress: another process has the lock.
        """
        path = self._state.path(_LOCK)
        make_folders(path.parent)
        with path.open("a") as lock:
            if not try_lock(lock):
                raise BackfillInProgress(
                    "another process runs a backfill of this home, and both would pay for the "
                    "same pages. No request was sent"
                )
            yield

    def is_running(self) -> bool:
        """Whether a process runs a backfill of this home."""
        return is_held(self._state.path(_LOCK))

    def put(self, state: BackfillState) -> None:
        put_note(self._state, state.name, state)

    def end(self, state: BackfillState) -> None:
        self._state.remove(state.name)

    def landed(self, state: BackfillState) -> list[Manifest]:
        """Return the complete batches of events since a backfill began, of its plan and source."""
        found = []
        for day in self._landing.days(since=state.started_at.date()):
            # A manifest that can't be read counts as not pulled.
            manifests, _ = self._landing.readable(self._landing.batch_ids(day=day))
            found += [manifest for manifest in manifests if belongs_to(manifest, state)]
        return found


def _wrong(name: str, state: BackfillState) -> str:
    lower, upper = state.scope.lower, state.scope.upper
    if lower is None or upper is None or lower > upper:
        return "its dates have no bounds"
    # Under another name it would never be removed.
    return "" if name == state.name else "it belongs to another backfill"


def _bounds(scope: Scope) -> tuple[datetime, datetime]:
    assert scope.lower is not None and scope.upper is not None
    return scope.lower, scope.upper


def belongs_to(batch: Manifest, state: BackfillState) -> bool:
    """Whether a batch has a part of what a backfill requests.

    Also a batch that the merge will quarantine: a second request would pay for the same rows.
    """
    return (
        batch.feed in ("events", "export")
        and batch.complete
        and batch.observed_at >= state.started_at
        and (batch.plan, batch.source) == (state.plan, state.source)
    )


@dataclass(frozen=True, slots=True)
class RequestedList:
    """One list of a backfill: a part of its filters, and the spans of dates that are landed."""

    scope: Scope
    spans: tuple[tuple[datetime, datetime], ...] = ()

    def missing_scopes(self, lower: datetime, upper: datetime) -> list[Scope]:
        """Return the parts of an inclusive range that are not landed."""
        found, at = [], lower
        for first, last in sorted(self.spans):
            if first > upper:
                break
            if first > at:
                found.append((at, first - INSTANT_STEP))
            at = max(at, last + INSTANT_STEP)
        if at <= upper:
            found.append((at, upper))
        return [msgspec.structs.replace(self.scope, lower=begin, upper=end) for begin, end in found]

    def with_batch(self, batch: Manifest) -> "RequestedList":
        """Return this list with the dates that a batch has of it."""
        own, other_scope = self.scope, batch.scope
        same_filters = (other_scope.coins, other_scope.categories) in (
            (own.coins, own.categories),
            (None, None),
        )
        if not same_filters or other_scope.lower is None or other_scope.upper is None:
            return self
        return RequestedList(own, (*self.spans, (other_scope.lower, other_scope.upper)))


def requested_lists(scope: Scope, batches: Iterable[Manifest]) -> list[RequestedList]:
    """Return the lists that a scope takes, each with the dates that batches have of it."""
    found = [RequestedList(request) for request in single_requests(scope)]
    for batch in batches:
        found = [requested.with_batch(batch) for requested in found]
    return found
