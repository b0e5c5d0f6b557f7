"""One feed on one observed day: pulled if the day is today, else found in landing.

Belongs here: what becomes of such a look. Does not: how a feed is pulled (resources), how the
look is told (metadata.py).
"""

from dataclasses import dataclass
from datetime import date, datetime
from typing import Final

from catalog.contract.plans import PLANS
from resources.errors import Defer
from resources.feeds import Pulled, plan_lacks, pull
from resources.session import LazySession
from warehouse.landing.batches import Feed, Manifest
from warehouse.landing.landing import Landing

NEVER_PULLED: Final[frozenset[Feed]] = frozenset({"deliveries"})
"""What comes by itself, and is never pulled."""


class DayNotLanded(Exception):
    """A day of which nothing is in landing and nothing can come: the service gives today only."""


@dataclass(frozen=True, slots=True)
class FeedDay:
    """What there is of a feed on a day. `rows` None is not counted yet."""

    feed: Feed
    day: date
    outcome: str
    manifests: tuple[Manifest, ...] = ()
    rows: int | None = None
    requests: int = 0
    warnings: tuple[str, ...] = ()
    resume_at: datetime | None = None
    why_deferred: str = ""

    @property
    def bytes(self) -> int:
        return sum(manifest.bytes for manifest in self.manifests)


def pull_or_reuse(feed: Feed, day: date, session: LazySession, landing: Landing) -> FeedDay:
    """Pull a feed if the day is the service's, else reuse what was landed on it.

    Raises:
        CatalogError: the service could not be asked, and neither plan nor quota is why.
        DayNotLanded: a past day, or one to come, of which nothing is in landing.
    """
    if feed in NEVER_PULLED:
        return _reused(feed, day, landing)
    try:
        if session.is_today(day):
            return feed_day_of(pull(feed, session.service()), day)
    except Defer as error:
        return feed_day_of(Pulled(feed, why_nothing=f"deferred: {error}", deferred=error), day)
    if day > (today := session.today()):
        raise DayNotLanded(
            f"{day} has not begun for the service, whose day is {today}. No request was sent and "
            f"nothing was changed. Materialise {today}, or wait for that day."
        )
    return _reused(feed, day, landing)


def feed_day_of(pulled: Pulled, day: date) -> FeedDay:
    """Return what became of a pull as a look of a day."""
    outcome = pulled.why_nothing or "pulled"
    if pulled.landed and pulled.deferred is not None:
        outcome = f"pulled in part; the rest is deferred: {pulled.deferred}"
    return FeedDay(
        feed=pulled.feed,
        day=day,
        outcome=outcome,
        manifests=tuple(outcome.manifest for outcome in pulled.landed),
        rows=pulled.rows,
        requests=pulled.requests,
        warnings=tuple(warning for landed in pulled.landed for warning in landed.warnings),
        resume_at=None if pulled.deferred is None else pulled.deferred.resume_at,
        why_deferred="" if pulled.deferred is None else pulled.deferred.happened,
    )


def _reused(feed: Feed, day: date, landing: Landing) -> FeedDay:
    of_day = [landing.manifest(batch_id) for batch_id in landing.batch_ids(day=day)]
    found = tuple(batch for batch in of_day if batch.feed == feed)
    if found:
        claimed = [batch.rows_claimed for batch in found if batch.rows_claimed is not None]
        return FeedDay(
            feed, day, "reused from landing", found, rows=sum(claimed) if claimed else None
        )
    if feed in NEVER_PULLED:
        return FeedDay(feed, day, "none arrived", rows=0)
    plans = {batch.plan for batch in of_day}
    if plans and all(name in PLANS and plan_lacks(PLANS[name], feed) for name in plans):
        return FeedDay(feed, day, f"not in the plan {', '.join(sorted(plans))} of that day", rows=0)
    raise DayNotLanded(
        f"No {feed} batch was landed on {day}, and the service gives today's data only, so that "
        "day can't be pulled later. Nothing was changed. Materialise today's partition, or "
        "import an archived export with `almanac import`."
    )
