"""The polls between the daily pulls: an asset for each polled feed.

A run of the job `poll` pulls the due windows; a merge follows. The assets have no partitions, so
their plots show poll after poll. pipeline/polls.py decides which pulls
are due; pipeline/automation/sensors.py decides whether a run starts.
"""

from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final

import dagster as dg
from pydantic import Field

from almanac.core.errors import WarehouseError
from assets.layout import CATALOG_POOL, Layout, check_price, max_requests_field, step_failure
from assets.metadata import log_problems, pull_metadata
from resources.errors import CatalogError, Defer
from resources.request_log import DeferredPulls
from resources.scopes import PollWindow, count_pages, near_window
from resources.session import CatalogSession, FeedDay, LazySession, Poll, poll
from warehouse.batch_problems import list_landed_problems
from warehouse.home import Home
from warehouse.landing.batches import FORMAT, Feed
from warehouse.queries import Activity, read_activity

GROUP: Final = "landing"
NAME: Final = "polled_feeds"
_FEEDS: Final[Mapping[Feed, tuple[str, str]]] = {
    "events": ("polled_events", "The events lists that polls pulled between the daily pulls."),
    "cancellations": (
        "polled_cancellations",
        "The cancellations that polls pulled between the daily pulls.",
    ),
    "event": ("polled_look_ups", "The single look-ups of missing events by polls."),
}
"""The name and the description of the asset of each polled feed."""
POLLED: Final[Mapping[Feed, str]] = {feed: name for feed, (name, _) in _FEEDS.items()}


class PollConfig(dg.Config):
    """The pulls of a run. Of the selected assets, those without a pull here take their default."""

    windows: list[list[str]] = Field(
        default=[],
        description="First and last event date of each window; without a last date, up to the end "
        "of the plan. Default: yesterday to 90 days ahead.",
    )
    since: str = Field(
        default="", description="Cancellations since this timestamp; empty means 90 days ago."
    )
    event_ids: list[str] = Field(default=[], description="Events to look up by id.")
    max_requests: int = max_requests_field()


def polled_assets(layout: Layout) -> dg.AssetsDefinition:
    """Return the asset of each polled feed."""

    @dg.multi_asset(
        name=layout.name(NAME),
        specs=[
            dg.AssetSpec(
                layout.key(name),
                description=description,
                code_version=str(FORMAT),
                **layout.attributes(GROUP, {"json"}),
            )
            for feed, (name, description) in _FEEDS.items()
        ],
        can_subset=True,
        pool=layout.name(CATALOG_POOL),
        required_resource_keys=layout.names("home", "catalog_for_polls"),
    )
    def polled(
        context: dg.AssetExecutionContext, config: PollConfig
    ) -> Iterator[dg.MaterializeResult[None]]:
        selected = {layout.asset(key) for key in context.selected_asset_keys}
        feeds = {feed for feed, name in POLLED.items() if name in selected}
        catalog = layout.resource(context, "catalog_for_polls")
        home = layout.resource(context, "home")
        for pulled in poll_feeds(context, config, feeds, catalog, home):
            feeds.discard(pulled.feed)
            key = layout.key(POLLED[pulled.feed])
            metadata = pull_metadata(pulled, quota_left=catalog.quota_left)
            del metadata["dagster/partition_row_count"]  # It has no partitions.
            yield dg.MaterializeResult(asset_key=key, metadata=metadata)
        # Without a materialisation, Dagster would count all assets downstream as failed.
        for feed in feeds:
            is_idle = feed == "event" and not config.event_ids
            outcome = "no event to look up" if is_idle else "deferred: see the log of the run"
            yield dg.MaterializeResult(
                asset_key=layout.key(POLLED[feed]), metadata={"rows": 0, "outcome": outcome}
            )

    return polled


def poll_feeds(
    context: dg.AssetExecutionContext,
    config: PollConfig,
    feeds: Collection[Feed],
    catalog: LazySession,
    home: Home,
) -> Iterator[FeedDay]:
    """Pull some feeds and land the results; a deferral by the quota is recorded.

    Raises:
        dg.Failure: as `check_price`, or a pull failed for another reason than plan or quota.
    """
    deferrals = DeferredPulls(home.state_storage)
    try:
        service = catalog.service()
        what = _poll_of(config, feeds, service)
        activity = Activity()
        with suppress(WarehouseError):  # A poll needs no warehouse.
            activity = read_activity(home.warehouse, service.now())
        pages = sum(count_pages(activity.spans, window) for window in what.windows)
        price = pages + what.cancellations + len(what.event_ids)
        check_price(context, service, price, config.max_requests)
        for pulled in poll(service, what, deferrals):
            log_problems(context.log, list_landed_problems(pulled.manifests))
            yield pulled
    except Defer as error:
        deferrals.note("polls", "events", error, catalog.now())
        context.log.warning("Deferred before it started: %s", error)
    except (CatalogError, WarehouseError) as error:
        raise step_failure(error) from error


def _poll_of(config: PollConfig, feeds: Collection[Feed], service: CatalogSession) -> Poll:
    windows = tuple(PollWindow.from_texts(*texts) for texts in config.windows)
    near = near_window(service.plan, service.now())
    since = datetime.fromisoformat(config.since) if config.since else None
    return Poll(
        windows=(windows or (near,)) if "events" in feeds else (),
        cancellations="cancellations" in feeds,
        since=since and since.replace(tzinfo=since.tzinfo or UTC),
        event_ids=tuple(config.event_ids) if "event" in feeds else (),
    )


def poll_run_config(layout: Layout, config: PollConfig) -> dict[str, Any]:
    """Return the config of a run of these assets."""
    return {"ops": {layout.name(NAME): {"config": config.model_dump()}}}
