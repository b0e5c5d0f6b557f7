"""One feed on one observed day: pulled if the day is today, else reused from landing.

`note_outcome` records why it is not whole, `find_shortfall` compares it with the day before.
"""

from datetime import date, timedelta
from typing import Final

from almanac.core.errors import WarehouseError
from almanac.core.text import plain_line
from catalog.contract.plans import PLANS
from resources.errors import Defer
from resources.request_log import DeferredPulls, RefusedFeed, read_refused_feeds
from resources.session import (
    NOT_IN_PLAN,
    SAME_SNAPSHOT,
    FeedDay,
    LazySession,
    make_feed_day,
    plan_lacks,
    pull,
)
from warehouse.files.documents import put_note
from warehouse.files.storage import Storage
from warehouse.home import Home
from warehouse.landing.batches import Feed, parse_feed
from warehouse.landing.landing import Landing

NEVER_PULLED: Final[frozenset[Feed]] = frozenset({"deliveries"})
"""Feeds that the service pushes."""
NONE_ARRIVED: Final = "none arrived"
FROM_INBOX: Final = "landed from the inbox"
NOT_OBSERVED: Final = "not observed"
"""The outcome of a past day on which nothing was pulled."""
WHY_EMPTY: Final = {
    NONE_ARRIVED: "No webhook delivery arrived on that day: none was sent, or no receiver is set "
    "up (`almanac receive`). Nothing is missing, since the pulls have the same changes.",
    NOT_OBSERVED: "Nothing was pulled on that day, and the service gives today's data only. "
    "`almanac import` lands an archived export.",
}
"""Why a day with such an outcome has no rows."""
USUAL: Final = frozenset({"pulled", SAME_SNAPSHOT, "reused from landing", NONE_ARRIVED, FROM_INBOX})
"""Outcomes that need no message."""
_CHANCE: Final = 10
"""A decrease by so many rows is chance, even if it is more than half."""


def pull_or_reuse(feed: Feed, day: date, session: LazySession, landing: Landing) -> FeedDay:
    """Pull a feed if the day is the service's current day; otherwise reuse its stored batches.

    A past day without a batch of the feed has no rows, and its outcome gives the reason.

    Raises:
        CatalogError: the pull failed, for another reason than plan or quota.
        WarehouseError: the day has not begun for the service.
    """
    if feed in NEVER_PULLED:
        return _reused(feed, day, landing)
    try:
        if session.is_today(day):
            return pull(feed, session.service())
    except Defer as error:
        return make_feed_day(feed, day, deferred=error)
    if day > (today := session.today()):
        raise WarehouseError(
            f"{day} has not begun for the service, whose day is {today}. No request was sent and "
            f"nothing was changed. Materialise {today}, or wait for that day."
        )
    return _reused(feed, day, landing)


def _reused(feed: Feed, day: date, landing: Landing) -> FeedDay:
    """Return a `FeedDay` from the batches that were landed on the day."""
    of_day = [landing.manifest(batch_id) for batch_id in landing.batch_ids(day=day)]
    found = tuple(batch for batch in of_day if batch.feed == feed)
    if found:
        claimed = [batch.rows_claimed for batch in found if batch.rows_claimed is not None]
        return FeedDay(
            feed, day, "reused from landing", found, rows=sum(claimed) if claimed else None
        )
    if feed in NEVER_PULLED:
        return FeedDay(feed, day, NONE_ARRIVED, rows=0)
    plans = {batch.plan for batch in of_day}
    if plans and all(name in PLANS and plan_lacks(PLANS[name], feed) for name in plans):
        return FeedDay(feed, day, f"{NOT_IN_PLAN} {', '.join(sorted(plans))} of that day", rows=0)
    if of_day:
        return FeedDay(feed, day, "not received on that day; the other feeds were", rows=0)
    return FeedDay(feed, day, NOT_OBSERVED, rows=0)


def note_outcome(feed_day: FeedDay, session: LazySession, state: Storage) -> None:
    """Note a deferred pull and a refused feed; remove the notes once the feed is received."""
    feed, deferrals = feed_day.feed, DeferredPulls(state)
    if feed_day.deferred is not None:
        deferrals.note("daily", feed, feed_day.deferred, session.now())
    elif feed_day.requests or not feed_day.manifests:
        # Pulled, or no longer in the plan: nothing is left to resume.
        deferrals.done("daily", feed)
        deferrals.done("polls", feed)
    if feed_day.refused:
        plan, now = session.service().plan.name, session.now()
        note = RefusedFeed(feed=feed, plan=plan, noted_at=now, why=feed_day.refused)
        put_note(state, note.name, note)
    elif feed_day.requests:
        state.remove(f"refused/{feed}.json")


def find_shortfall(feed_day: FeedDay, home: Home) -> str | None:
    """Return why a feed has no complete pull of a day, or far fewer rows than the day before."""
    feed, day = feed_day.feed, feed_day.day
    rows, before = (
        _count_rows(home.landing, feed, day - timedelta(days=number)) for number in (0, 1)
    )
    is_lacking = feed_day.outcome.startswith(NOT_IN_PLAN)
    if rows is None and not is_lacking and feed not in read_refused_feeds(home.state_storage):
        return f"No complete pull: {plain_line(feed_day.outcome)}"
    if rows is not None and before is not None and 0 <= rows < before - max(rows, _CHANCE):
        return f"{rows:,} rows, {before:,} the day before"
    return None


def _count_rows(landing: Landing, feed: Feed, day: date) -> int | None:
    """Return the announced rows of the widest complete pull of a day, -1 if they are not known.

    None without such a pull.
    """
    ids = (batch_id for batch_id in landing.batch_ids(day=day) if parse_feed(batch_id) == feed)
    complete = (batch for batch in landing.readable(ids)[0] if batch.complete)
    counts = (-1 if batch.rows_claimed is None else batch.rows_claimed for batch in complete)
    return max(counts, default=None)
