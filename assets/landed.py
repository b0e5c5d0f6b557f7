"""The landed batches of each feed by observed day, as received: one asset for each feed.

Today's partition pulls. A past day is read from the stored batches without a request, since the
service sends only today's data.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import date
from typing import Final

import dagster as dg

from almanac.core import progress
from almanac.core.errors import WarehouseError
from almanac.core.timestamps import utc_now
from assets.layout import (
    CATALOG_POOL,
    INBOX_POOL,
    Layout,
    day_asset,
    day_check,
    list_run_days,
    record_days,
    step_failure,
)
from assets.metadata import (
    Metadata,
    check_days,
    evaluate_day,
    log_problems,
    pull_metadata,
)
from resources.errors import CatalogError
from resources.feed_day import (
    FROM_INBOX,
    NEVER_PULLED,
    USUAL,
    find_shortfall,
    note_outcome,
    pull_or_reuse,
)
from resources.request_log import read_push_plan
from resources.session import FeedDay, LazySession
from warehouse.batch_problems import list_landed_problems
from warehouse.home import Home
from warehouse.landing.batches import FORMAT, Feed
from warehouse.landing.inbox import Inbox

GROUP: Final = "landing"
COMPLETE_DAY: Final = "complete_day"


def land(
    feed: Feed,
    context: dg.AssetExecutionContext,
    catalog: LazySession,
    home: Home,
    check: dg.AssetCheckSpec,
) -> dg.MaterializeResult[None]:
    """Pull or reuse a feed on every day of the run; each day has its own metadata and check.

    Raises:
        dg.Failure: a pull failed, or a day has not begun. The days before it stay recorded.
    """
    metadata_of_days: dict[date, Metadata] = {}
    shortfalls: dict[date, str | None] = {}
    days = list_run_days(context)
    arrived = _land_inbox(context, catalog, home, days) if feed in NEVER_PULLED else {}
    for day in days:
        try:
            with progress.listening(wait=context.log.info):
                feed_day = pull_or_reuse(feed, day, catalog, home.landing)
        except (CatalogError, WarehouseError) as error:
            record_days(context, metadata_of_days)
            for done, shortfall in shortfalls.items():
                context.log_event(evaluate_day(check, done, shortfall))
            raise step_failure(error) from error
        note_outcome(feed_day, catalog, home.state_storage)
        log_problems(context.log, list_landed_problems(feed_day.manifests))
        if feed_day.outcome not in USUAL:
            context.log.info("%s, %s: %s", feed, day, feed_day.outcome)
        metadata_of_days[day] = _metadata_of(feed_day, catalog, arrived)
        if feed not in NEVER_PULLED:
            shortfalls[day] = find_shortfall(feed_day, home)
    for day, metadata in metadata_of_days.items():
        context.add_asset_metadata(metadata, partition_key=day.isoformat())
    checks = [check_days(context, check, shortfalls)] if shortfalls else []
    return dg.MaterializeResult(check_results=checks)


def _land_inbox(
    context: dg.AssetExecutionContext, catalog: LazySession, home: Home, days: list[date]
) -> Mapping[date, int]:
    """Land the deliveries that wait, if today is among the days; return their number by day.

    A delivery belongs to its day of receipt. Days outside the run are recorded too.
    """
    if catalog.today() not in days:
        return {}
    try:
        arrived = Counter[date]()
        for manifest in Inbox(home, read_push_plan(home.state)).land(utc_now):
            arrived[manifest.observed_at.date()] += len(manifest.pages)
        context.log.info("Landed %d deliveries of the inbox", arrived.total())
        others = {
            day: pull_or_reuse("deliveries", day, catalog, home.landing)
            for day in sorted(arrived.keys() - set(days))
        }
    except (WarehouseError, OSError) as error:
        raise step_failure(error) from error
    record_days(
        context, {day: _metadata_of(found, catalog, arrived) for day, found in others.items()}
    )
    return arrived


def _metadata_of(feed_day: FeedDay, catalog: LazySession, arrived: Mapping[date, int]) -> Metadata:
    """Return the metadata of a feed on a day; `arrived` are the deliveries landed by this run."""
    if feed_day.day not in arrived:
        return pull_metadata(feed_day, quota_left=catalog.quota_left)
    found = pull_metadata(replace(feed_day, outcome=FROM_INBOX), quota_left=catalog.quota_left)
    return {**found, "deliveries landed": arrived[feed_day.day]}


_FEEDS: Final[dict[Feed, tuple[str, str]]] = {
    "export": (
        "csv",
        "The whole catalog, as the service exports it once a day. On a plan without the "
        "export nothing is pulled; the materialisation shows that.",
    ),
    "events": (
        "json",
        "The events list: yesterday to 90 days ahead if the export has the rest, otherwise "
        "all dates that the plan shows.",
    ),
    "cancellations": (
        "json",
        "The cancellations of the last 90 days. Lists and exports omit cancelled events, "
        "so only this feed tells cancelled events from removed ones.",
    ),
    "categories": (
        "json",
        "The editorial categories. If the service refuses them (403), the other feeds go "
        "on without; the materialisation and `almanac status` show that.",
    ),
    "coins": ("json", "All coins with their rank and counters."),
    "deliveries": (
        "webhook",
        "The webhook deliveries that arrived on the day: `almanac receive` stores them in the "
        "inbox, and today's partition lands those that wait there. It is empty if no webhook "
        "receiver is set up, or none arrived on the day.",
    ),
}
"""The kind and the description of the asset of each feed, in the order of a run: the most valuable
first, since the quota may end."""
LANDED: Final = tuple(f"landed_{feed}" for feed in _FEEDS)


def name_asset(feed: Feed) -> str:
    """Return the name of the asset of a landed feed, without prefix."""
    return f"landed_{feed}"


def landed_assets(layout: Layout) -> list[dg.AssetsDefinition]:
    """Return an asset for each feed."""
    return [
        _landed(layout, feed, kind, description) for feed, (kind, description) in _FEEDS.items()
    ]


def _landed(layout: Layout, feed: Feed, kind: str, description: str) -> dg.AssetsDefinition:
    is_pulled = feed not in NEVER_PULLED
    check = day_check(
        layout,
        name_asset(feed),
        COMPLETE_DAY,
        "A complete pull was landed on the day, with at least half the rows of the day before. "
        "Passes if the plan lacks the feed.",
    )

    @day_asset(
        layout,
        name_asset(feed),
        group=GROUP,
        kinds={kind},
        pool=CATALOG_POOL if is_pulled else INBOX_POOL,
        description=description,
        code_version=str(FORMAT),
        op_tags={"dagster/priority": str(-LANDED.index(name_asset(feed)))},
        retry_policy=layout.retry_policy,
        check_specs=[check] if is_pulled else None,
    )
    def landed(context: dg.AssetExecutionContext) -> Iterator[dg.MaterializeResult[None]]:
        catalog, home = layout.resource(context, "catalog"), layout.resource(context, "home")
        try:
            yield land(feed, context, catalog, home, check)
        except dg.Failure:
            raise
        except Exception as error:  # Despite the retry policy, if waiting can't end it.
            raise step_failure(error) from error

    return landed
