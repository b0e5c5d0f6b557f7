"""What nobody looked at: days without a look at events, cancellations that are lost.

The service gives today only, and cancellations for 90 days: what was missed can't be caught up,
but by an archived export. Pure: looks go in, gaps come out.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Final

from catalog.contract.decisions import CANCELLATIONS_SINCE_DAYS
from pipeline.health.freshness import Seen, SeenBatches, bounds_of
from resources.backfill.state import RequestedList
from warehouse.history.watched import END_OF_TIME
from warehouse.landing.batches import Scope

AHEAD_DAYS: Final = 6
"""A look at a day has every event up to so many days on: what the least of plans shows."""
LISTED_FOR: Final = timedelta(days=CANCELLATIONS_SINCE_DAYS)
_DAY: Final = timedelta(days=1)
_START_OF_TIME: Final = datetime(1, 1, 1, tzinfo=UTC)
_Spans = list[tuple[datetime, datetime]]


@dataclass(frozen=True, slots=True)
class Gap:
    """A run of days, both inclusive."""

    first: date
    last: date

    @property
    def days(self) -> int:
        return (self.last - self.first).days + 1

    def __str__(self) -> str:
        return f"{self.first}" if self.first == self.last else f"{self.first} to {self.last}"


@dataclass(frozen=True, slots=True)
class Coverage:
    """What was missed since a day, None where nothing was ever looked at."""

    since: date | None = None
    days_unseen: int = 0
    unseen: list[Gap] = field(default_factory=list)
    cancellations_lost: list[Gap] = field(default_factory=list)


def coverage(seen: SeenBatches, now: datetime) -> Coverage:
    """Return what was missed between the first day and now; today is not over, and no gap yet."""
    first = seen.first_day
    if first is None:
        return Coverage()
    begun = first + _DAY if _is_backfilled(seen, first) else first
    unseen = _unseen(seen.complete_pulls("export", "events"), begun, now.date() - _DAY)
    lost = lost_cancellations(seen.complete_pulls("cancellations"), bounds_of(first)[0], now)
    return Coverage(first, len(unseen), _runs(unseen), lost)


def _is_backfilled(seen: SeenBatches, day: date) -> bool:
    """Whether events were asked for on a day, but not the near ones: as a home may be begun by a
    backfill, when the time of the day's look is over."""
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
    """Whether the looks of a day, through one filter, have its near events without a gap."""
    spans: dict[object, _Spans] = {}
    for pull in complete_pulls:
        scope = pull.scope
        span = (scope.lower or _START_OF_TIME, scope.upper or END_OF_TIME)
        spans.setdefault((scope.coins, scope.categories), []).append(span)
    lower, upper = bounds_of(day)[0], bounds_of(day + AHEAD_DAYS * _DAY)[1]
    return any(not _lacks(filter_spans, lower, upper) for filter_spans in spans.values())


def lost_cancellations(complete_pulls: Iterable[Seen], since: datetime, now: datetime) -> list[Gap]:
    """Return when cancellations were made that no look has, and that are listed no more."""
    spans = [
        (pull.scope.since or pull.observed_at - LISTED_FOR, pull.content_at)
        for pull in complete_pulls
    ]
    lost = _lacks(spans, since, now - LISTED_FOR)
    return [Gap(lower.date(), upper.date()) for lower, upper in lost]


def _lacks(spans: _Spans, lower: datetime, upper: datetime) -> _Spans:
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
