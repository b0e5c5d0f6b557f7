"""Pulls in landing and the warehouse: freshness of each feed, days without a pull.

It takes no lock, so that it can be read while a merge runs. Times are by the service's clock.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from typing import Final, Literal

import msgspec

from catalog.contract.constants import CANCELLATIONS_SINCE_DAYS
from catalog.contract.plans import PLANS, day_end
from resources.backfill.state import RequestedList
from resources.request_log import RefusedFeed
from resources.session import plan_lacks
from warehouse.history.warehouse_file import read_records
from warehouse.home import Home
from warehouse.landing.batches import FEEDS, Feed, Scope

DATED: Final = frozenset[Feed]({"export", "events"})
"""The feeds that show events of a range of dates."""
DAILY_FEEDS: Final = frozenset[Feed]({"export", "events", "cancellations", "coins", "categories"})
"""The feeds that are pulled every day. Deliveries and look-ups are not."""
INTERVAL: Final = timedelta(days=1)
STALE_AFTER: Final = 2 * INTERVAL
AHEAD_DAYS: Final = 6
"""A pull covers a day if it has all events up to this many days later, as the lowest plan shows."""
_LISTED_FOR: Final = timedelta(days=CANCELLATIONS_SINCE_DAYS)
_START_OF_TIME: Final = datetime(1, 1, 1, tzinfo=UTC)
_END_OF_TIME: Final = datetime(9999, 12, 31, tzinfo=UTC)


class BatchFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The facts of a batch for its health. `flagged` is the reason, None if it is not flagged."""

    batch_id: str
    feed: Feed
    plan: str
    scope: Scope
    observed_at: datetime
    content_at: datetime
    complete: bool
    attested: bool = False
    status: Literal["merged", "quarantined", "waiting"] = "waiting"
    rejected: int = 0
    flagged: str | None = None
    why_incomplete: str | None = None
    redacted: int = 0
    date_doubt: str | None = None

    @property
    def is_complete_pull(self) -> bool:
        """Whether it has all of its scope, and is not quarantined."""
        return self.complete and self.status != "quarantined"

    @property
    def is_of_now(self) -> bool:
        """Whether it covers the event dates at its own time; a backfill of the past does not."""
        lower, upper = self.scope.lower, self.scope.upper
        begins = lower is None or lower <= self.observed_at
        return begins and (upper is None or self.observed_at <= upper)

    def supersedes(self, other: "BatchFacts") -> bool:
        """Return whether it is a later complete pull of all of another batch's scope."""
        if not self.is_complete_pull or self.flagged or self.observed_at <= other.observed_at:
            return False
        dated = self.feed in DATED and other.feed in DATED
        return (dated or self.feed == other.feed) and self._covers(other.scope)

    def _covers(self, scope: Scope) -> bool:
        mine = self.scope
        return (
            mine.event_id == scope.event_id
            and (mine.coins is None or mine.coins == scope.coins)
            and (mine.categories is None or mine.categories == scope.categories)
            and (mine.lower is None or (scope.lower is not None and mine.lower <= scope.lower))
            and (mine.upper is None or (scope.upper is not None and scope.upper <= mine.upper))
        )


@dataclass(frozen=True, slots=True)
class RecentBatches:
    """The batches since a day, oldest first; `days` counts the days of merged ones.

    `first_day` is the day of the oldest batch of the home, at least the given day; None without a
    batch. `damaged` are waiting batches that can't be read.
    """

    batches: tuple[BatchFacts, ...]
    days: int
    pending: int
    first_day: date | None
    damaged: frozenset[str] = frozenset()

    def complete_pulls(self, *feeds: Feed) -> list[BatchFacts]:
        return [batch for batch in self.batches if batch.feed in feeds and batch.is_complete_pull]

    @property
    def plan(self) -> str | None:
        """The plan of the newest pulled batch; an import has the plan that the user named."""
        pulled = [batch for batch in self.batches if not batch.attested] or self.batches
        return pulled[-1].plan if pulled else None


def read_batches(home: Home, since: date, *, is_readable: bool = True) -> RecentBatches:
    """Return the batches observed from a day on; only waiting ones if the file can't be read.

    Raises:
        WarehouseError: the published file can't be read.
    """
    records = read_records(home.warehouse, since=since).values() if is_readable else ()
    merged = [msgspec.convert(record, BatchFacts) for record in records]
    pending = home.landing.pending()
    waiting, damaged = home.landing.readable(set(pending) - {batch.batch_id for batch in merged})
    batches = merged + [
        msgspec.convert(manifest, BatchFacts, from_attributes=True)
        for manifest in waiting
        if manifest.observed_at.astimezone(UTC).date() >= since
    ]
    first = min(home.landing.storage.folders("batches"), default=None)
    return RecentBatches(
        batches=tuple(sorted(batches, key=lambda batch: batch.observed_at)),
        days=len({batch.observed_at.date() for batch in merged}),
        pending=len(pending),
        damaged=frozenset(damaged),
        first_day=None if first is None else max(since, date.fromisoformat(first)),
    )


@dataclass(frozen=True, slots=True)
class FeedHealth:
    """The last pulls of a feed.

    `complete_at` is the last complete pull, which for event feeds includes today's dates;
    `interval_s` is None if no pull is expected, as for a feed that is not in the plan. `refused` is
    the reason why the service refused the feed to this plan.
    """

    feed: Feed
    batches: int
    observed_at: datetime | None
    complete_at: datetime | None
    age_s: float | None = None
    interval_s: int | None = None
    in_plan: bool = True
    stale_since: datetime | None = None
    refused: str = ""


def list_feeds(
    recent: RecentBatches,
    plan_name: str | None,
    now: datetime,
    refused: Mapping[Feed, RefusedFeed],
) -> list[FeedHealth]:
    """Return the freshness of every feed. A feed that the plan lacks or refuses is not stale."""
    why = {feed: note.why for feed, note in refused.items() if plan_name in (None, note.plan)}
    return [_feed(feed, recent, plan_name, now, why.get(feed, "")) for feed in FEEDS]


def _feed(
    feed: Feed, recent: RecentBatches, plan_name: str | None, now: datetime, refused: str
) -> FeedHealth:
    observed = [batch.observed_at for batch in recent.batches if batch.feed == feed]
    complete_at = max(
        (
            batch.observed_at
            for batch in recent.complete_pulls(feed)
            if feed not in DATED or batch.is_of_now
        ),
        default=None,
    )
    plan = PLANS.get(plan_name or "")
    in_plan = plan is None or not plan_lacks(plan, feed)
    expected = plan is not None and in_plan and not refused and feed in DAILY_FEEDS
    # Before its first pull, the interval starts on the day on which the home was first used.
    since = complete_at
    if since is None and recent.first_day is not None:
        since = _midnight(recent.first_day)
    is_stale = expected and since is not None and since + STALE_AFTER < now
    return FeedHealth(
        feed=feed,
        batches=len(observed),
        observed_at=max(observed, default=None),
        complete_at=complete_at,
        age_s=max(0.0, (now - max(observed)).total_seconds()) if observed else None,
        interval_s=round(INTERVAL.total_seconds()) if expected else None,
        in_plan=in_plan,
        stale_since=since + STALE_AFTER if is_stale and since is not None else None,
        refused=refused,
    )


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
    """The gaps since a day; `since` None means that nothing was ever pulled.

    The service gives today's data only, and cancellations for 90 days, so that only an archived
    export can fill a gap.
    """

    since: date | None = None
    days_unseen: int = 0
    unseen: list[Gap] = field(default_factory=list)
    cancellations_lost: list[Gap] = field(default_factory=list)


def find_coverage(recent: RecentBatches, now: datetime) -> Coverage:
    """Return the gaps from the first day to yesterday; today is not over."""
    first = recent.first_day
    if first is None:
        return Coverage()
    begun = first + timedelta(days=1) if _is_backfilled(recent, first) else first
    by_day: dict[date, list[BatchFacts]] = {}
    for pull in recent.complete_pulls(*DATED):
        by_day.setdefault(pull.observed_at.date(), []).append(pull)
    days = (begun + timedelta(days=number) for number in range((now.date() - begun).days))
    unseen = [day for day in days if not _is_seen(day, by_day.get(day, []))]
    lost = find_lost_cancellations(recent.complete_pulls("cancellations"), _midnight(first), now)
    return Coverage(first, len(unseen), _join_days(unseen), lost)


def _is_backfilled(recent: RecentBatches, day: date) -> bool:
    """Return whether the pulls of a day left out the near events.

    A home that was begun by a backfill after the time of the daily pull has such a first day.
    """
    requested = [
        batch for batch in recent.batches if batch.feed in DATED and batch.observed_at.date() == day
    ]
    near = day_end(day + timedelta(days=AHEAD_DAYS))
    covers_near = any(batch.scope.upper is None or batch.scope.upper >= near for batch in requested)
    return bool(requested) and not (covers_near and any(batch.is_of_now for batch in requested))


def _is_seen(day: date, complete_pulls: list[BatchFacts]) -> bool:
    """Return whether the pulls of a day with one filter cover its near events without a gap."""
    spans: dict[object, list[tuple[datetime, datetime]]] = {}
    for pull in complete_pulls:
        scope = pull.scope
        span = (scope.lower or _START_OF_TIME, scope.upper or _END_OF_TIME)
        spans.setdefault((scope.coins, scope.categories), []).append(span)
    lower, upper = _midnight(day), day_end(day + timedelta(days=AHEAD_DAYS))
    return any(not _missing_spans(of_filter, lower, upper) for of_filter in spans.values())


def find_lost_cancellations(
    complete_pulls: Iterable[BatchFacts], since: datetime, now: datetime
) -> list[Gap]:
    """Return the times of cancellations that no pull has, and that the service no longer lists."""
    spans = [
        (pull.scope.since or pull.observed_at - _LISTED_FOR, pull.content_at)
        for pull in complete_pulls
    ]
    lost = _missing_spans(spans, since, now - _LISTED_FOR)
    return [Gap(lower.date(), upper.date()) for lower, upper in lost]


def _missing_spans(
    spans: list[tuple[datetime, datetime]], lower: datetime, upper: datetime
) -> list[tuple[datetime, datetime]]:
    missing = RequestedList(Scope(), tuple(spans)).missing_scopes(lower, upper)
    return [(gap.lower, gap.upper) for gap in missing if gap.lower and gap.upper]


def _join_days(days: Iterable[date]) -> list[Gap]:
    gaps: list[Gap] = []
    for day in days:
        if gaps and gaps[-1].last == day - timedelta(days=1):
            gaps[-1] = Gap(gaps[-1].first, day)
        else:
            gaps.append(Gap(day, day))
    return gaps


def _midnight(day: date) -> datetime:
    return datetime.combine(day, time(tzinfo=UTC))
