"""The freshness of each feed: when it was last pulled, and when it should have been.

It is read only from landing and the change log, from merged and waiting batches, so that it can be
reported while a merge runs.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Final, Literal

import msgspec

from catalog.contract.plans import PLANS, day_end, day_start
from resources.request_log import RefusedFeed
from resources.session import plan_lacks
from warehouse.history.change_log import ChangeLog, read_records
from warehouse.home import Home
from warehouse.landing.batches import FEEDS, Feed, Scope

DATED: Final = frozenset[Feed]({"export", "events"})
"""The feeds that show events of a range of dates."""


class Seen(msgspec.Struct, frozen=True, kw_only=True):
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

    def supersedes(self, other: "Seen") -> bool:
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

    @property
    def is_of_now(self) -> bool:
        """Whether it covers the event dates at its own time; a backfill of the past does not."""
        lower, upper = self.scope.lower, self.scope.upper
        begins = lower is None or lower <= self.observed_at
        return begins and (upper is None or self.observed_at <= upper)


@dataclass(frozen=True, slots=True)
class SeenBatches:
    """The batches since a day, oldest first; `days` counts their files in the change log.

    `first_day` is the day of the oldest batch of the home, at least the given day; None without a
    batch.
    """

    batches: tuple[Seen, ...]
    days: int
    pending: int
    first_day: date | None
    damaged: frozenset[str] = frozenset()
    """Waiting batches that can't be read."""

    def complete_pulls(self, *feeds: Feed) -> list[Seen]:
        return [batch for batch in self.batches if batch.feed in feeds and batch.is_complete_pull]

    @property
    def plan(self) -> str | None:
        """The plan of the newest pulled batch; an import has the plan that the user named."""
        pulled = [batch for batch in self.batches if not batch.attested] or self.batches
        return pulled[-1].plan if pulled else None


def seen_since(home: Home, since: date) -> SeenBatches:
    """Return the batches observed from a day on.

    Raises:
        LakeDamaged: a file of the change log can't be read.
    """
    log = ChangeLog.of(home)
    days = [day_file for day_file in log.days() if day_file.day >= since]
    merged = [msgspec.convert(record, Seen) for record in read_records(days)]
    pending = home.landing.pending()
    waiting, damaged = _waiting(home, set(pending) - {batch.batch_id for batch in merged}, since)
    batches = sorted([*merged, *waiting], key=lambda batch: batch.observed_at)
    first = min(home.landing.storage.folders("batches"), default=None)
    return SeenBatches(
        batches=tuple(batches),
        days=len(days),
        pending=len(pending),
        damaged=damaged,
        first_day=None if first is None else max(since, date.fromisoformat(first)),
    )


def bounds_of(day: date) -> tuple[datetime, datetime]:
    """Return the first and the last instant of a day."""
    last = day_end(day)
    return day_start(last), last


def _waiting(
    home: Home, batch_ids: Iterable[str], since: date
) -> tuple[list[Seen], frozenset[str]]:
    """Return the waiting batches since a day, and the ids of those that can't be read."""
    manifests, damaged = home.landing.readable(batch_ids)
    found = [
        msgspec.convert(manifest, Seen, from_attributes=True)
        for manifest in manifests
        if manifest.observed_at.astimezone(UTC).date() >= since
    ]
    return found, frozenset(damaged)


DAILY: Final = timedelta(days=1)
INTERVALS: Final[dict[Feed, timedelta]] = {
    feed: DAILY for feed in ("export", "events", "cancellations", "coins", "categories")
}
"""The longest interval between pulls of a feed. Deliveries and look-ups have none."""
STALE_AFTER: Final = 2
"""The number of intervals without a complete pull after which a feed is stale."""


@dataclass(frozen=True, slots=True)
class FeedHealth:
    """The last pulls of a feed. Instants are UTC.

    `complete_at` is the last complete pull, which for event feeds includes today's dates;
    `interval_s` is None if no pull is expected, as for a feed that is not in the plan.
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
    """The service's refusal of the feed to this plan; empty if it did not refuse it."""


def freshness(
    seen: SeenBatches,
    plan_name: str | None,
    now: datetime,
    refused: Mapping[Feed, RefusedFeed] | None = None,
) -> list[FeedHealth]:
    """Return the freshness of every feed; one not in the plan, or refused to it, is not stale."""
    why = {
        feed: note.why for feed, note in (refused or {}).items() if plan_name in (None, note.plan)
    }
    return [_feed(feed, seen, plan_name, now, why.get(feed, "")) for feed in FEEDS]


def _feed(
    feed: Feed, seen: SeenBatches, plan_name: str | None, now: datetime, refused: str
) -> FeedHealth:
    batches = [batch for batch in seen.batches if batch.feed == feed]
    observed_at = max((batch.observed_at for batch in batches), default=None)
    complete_at = max((batch.observed_at for batch in batches if _counts(batch)), default=None)
    plan = PLANS.get(plan_name or "")
    in_plan = plan is None or not plan_lacks(plan, feed)
    expected = plan is not None and in_plan and not refused
    interval = INTERVALS.get(feed) if expected else None
    # Before its first pull, the interval starts on the day on which the home was first used.
    since = complete_at
    if since is None and seen.first_day is not None:
        since = datetime.combine(seen.first_day, time(tzinfo=UTC))
    stale_at = None if interval is None or since is None else since + STALE_AFTER * interval
    return FeedHealth(
        feed=feed,
        batches=len(batches),
        observed_at=observed_at,
        complete_at=complete_at,
        age_s=None if observed_at is None else max(0.0, (now - observed_at).total_seconds()),
        interval_s=None if interval is None else round(interval.total_seconds()),
        in_plan=in_plan,
        stale_since=stale_at if stale_at is not None and stale_at < now else None,
        refused=refused,
    )


def _counts(batch: Seen) -> bool:
    return batch.is_complete_pull and (batch.feed not in DATED or batch.is_of_now)
