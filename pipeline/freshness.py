"""How fresh each feed is: when it was looked at last, and when it should have been."""

from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from typing import Final

from catalog.contract.plans import PLANS
from pipeline.seen_batches import DATED, Seen, SeenBatches
from resources.daily_pulls import lacks
from warehouse.batches import FEEDS, Feed

DAILY: Final = timedelta(days=1)
INTERVALS: Final[dict[Feed, timedelta]] = {
    feed: DAILY for feed in ("export", "events", "cancellations", "coins", "categories")
}
"""How often a feed is looked at, at least. Deliveries and single look-ups come as they come."""
STALE_AFTER: Final = 2
"""Intervals without a complete look after which a feed is stale."""


@dataclass(frozen=True, slots=True)
class FeedHealth:
    """When a feed was looked at last. Instants are UTC.

    `complete_at` is the last look at all of its scope, of event feeds at today's dates among
    others; `interval_s` is None where none is expected, as for a feed that is not in the plan.
    """

    feed: Feed
    batches: int
    observed_at: datetime | None
    complete_at: datetime | None
    age_s: float | None = None
    interval_s: int | None = None
    in_plan: bool = True
    stale_since: datetime | None = None


def freshness(seen: SeenBatches, plan_name: str | None, now: datetime) -> list[FeedHealth]:
    """Return the freshness of every feed; one that is not in the plan is not stale."""
    return [_feed(feed, seen, plan_name, now) for feed in FEEDS]


def _feed(feed: Feed, seen: SeenBatches, plan_name: str | None, now: datetime) -> FeedHealth:
    batches = [one for one in seen.batches if one.feed == feed]
    observed_at = max((one.observed_at for one in batches), default=None)
    complete_at = max((one.observed_at for one in batches if _counts(one)), default=None)
    plan = PLANS.get(plan_name or "")
    in_plan = plan is None or not lacks(plan, feed)
    interval = INTERVALS.get(feed) if plan is not None and in_plan else None
    # Until its first look, it counts from the day on which the home was first used.
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
    )


def _counts(one: Seen) -> bool:
    return one.is_look and (one.feed not in DATED or one.is_of_now)
