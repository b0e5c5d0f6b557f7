"""Gaps in coverage: days without a complete pull of events, and lost cancellations.

The service gives today's data only, and cancellations for 90 days, so only an archived export can
fill a gap. Pure functions from batches to gaps.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Final

from catalog.contract.constants import CANCELLATIONS_SINCE_DAYS
from pipeline.health.freshness import Seen, SeenBatches, bounds_of
from resources.backfill.state import RequestedList
from warehouse.history.fold import END_OF_TIME
from warehouse.landing.batches import Scope

AHEAD_DAYS: Final = 6
"""A pull covers a day if it has all events up to this many days later, as the lowest plan shows."""
LISTED_FOR: Final = timedelta(days=CANCELLATIONS_SINCE_DAYS)
_DAY: Final = timedelta(days=1)
_START_OF_TIME: Final = datetime(1, 1, 1, tzinfo=UTC)
_Spans = list[tuple[datetime, datetime]]


@dataclass(frozen=True, slots=True)
class Gap:
    """Successive days, both ends inclusive."""

    first: date
    last: date

    @property
    def days(self) -> int:
        return (self.last - self.first).days + 1

    def __str__(self) -> str:
        return f"{self.first}" if self.first == self.last else f"{self.first} to {self.last}"


@dataclass(frozen=True, slots=True)
class Coverage:
    """The gaps since a day; `since` None means that nothing was ever pulled."""

    since: date | None = None
    days_unseen: int = 0
    unseen: list[Gap] = field(default_factory=list)
    cancellations_lost: list[Gap] = field(default_factory=list)


def coverage(seen: SeenBatches, now: datetime) -> Coverage:
    """Return the gaps from the first day to yesterday; today is not over."""
    first = seen.first_day
    if first is None:
        return Coverage()
    begun = first + _DAY if _is_backfilled(seen, first) else first
    unseen = _unseen(seen.complete_pulls("export", "events"), begun, now.date() - _DAY)
    lost = lost_cancellations(seen.complete_pulls("cancellations"), bounds_of(first)[0], now)
    return Coverage(first, len(unseen), _runs(unseen), lost)


def _is_backfilled(seen: SeenBatches, day: date) -> bool:
    """Return whether the pulls of a day left out the near events, as in a home that was begun by a
    backfill after the time of the daily pull."""
    requested = [
        batch
        for batch in seen.batches
        if batch.feed in ("export", "events") and batch.observed_at.date() == day
    ]
    near = bounds_of(day + AHEAD_DAYS * _DAY)[1]
    covers_near = any(
        request.scope.upper is None or request.scope.upper >= near for request in requested
    )
    return bool(requested) and not (covers_near and any(request.is_of_now for request in requested))


def _unseen(complete_pulls: Iterable[Seen], first: date, last: date) -> list[date]:
    by_day: dict[date, list[Seen]] = {}
    for pull in complete_pulls:
        by_day.setdefault(pull.observed_at.date(), []).append(pull)
    days = [first + number * _DAY for number in range((last - first).days + 1)]
    return [day for day in days if not _is_seen(day, by_day.get(day, []))]


def _is_seen(day: date, complete_pulls: list[Seen]) -> bool:
    """Return whether the pulls of a day with one filter cover its near events without a gap."""
    spans: dict[object, _Spans] = {}
    for pull in complete_pulls:
        scope = pull.scope
        span = (scope.lower or _START_OF_TIME, scope.upper or END_OF_TIME)
        spans.setdefault((scope.coins, scope.categories), []).append(span)
    lower, upper = bounds_of(day)[0], bounds_of(day + AHEAD_DAYS * _DAY)[1]
    return any(not _missing_spans(filter_spans, lower, upper) for filter_spans in spans.values())


def lost_cancellations(complete_pulls: Iterable[Seen], since: datetime, now: datetime) -> list[Gap]:
    """Return the times of cancellations that no pull has, and that the service no longer lists."""
    spans = [
        (pull.scope.since or pull.observed_at - LISTED_FOR, pull.content_at)
        for pull in complete_pulls
    ]
    lost = _missing_spans(spans, since, now - LISTED_FOR)
    return [Gap(lower.date(), upper.date()) for lower, upper in lost]


def _missing_spans(spans: _Spans, lower: datetime, upper: datetime) -> _Spans:
    found: _Spans = []
    for gap in RequestedList(Scope(), tuple(spans)).missing_scopes(lower, upper):
        assert gap.lower is not None and gap.upper is not None
        found.append((gap.lower, gap.upper))
    return found


def _runs(days: Iterable[date]) -> list[Gap]:
    runs: list[Gap] = []
    for day in days:
        if runs and runs[-1].last == day - _DAY:
            runs[-1] = Gap(runs[-1].first, day)
        else:
            runs.append(Gap(day, day))
    return runs
