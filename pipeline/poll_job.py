"""The job of a poll: it looks at what it is told to, and records it with the feeds of the day."""

from collections.abc import Sequence
from datetime import date, datetime
from typing import Final

import dagster as dg
from pydantic import Field

from assets.days import CATALOG_POOL
from assets.told import log_problems, told_pull
from pipeline.poll_plan import CancellationsPull, EventsPull, Pull
from resources.daily_pulls import Pulled
from resources.deferrals import Deferrals, deferral
from resources.errors import CatalogError, Defer
from resources.polls import Poll, poll
from resources.service import ServiceDoor
from warehouse.batch_problems import problems_of_landed
from warehouse.batches import Feed
from warehouse.errors import WarehouseError
from warehouse.home import Home
from warehouse.storage import Storage

POLL: Final = "poll"
OP: Final = "look_again"
_ASSETS: Final[dict[Feed, str]] = {
    "events": "landed_events",
    "cancellations": "landed_cancellations",
}
"""Single look-ups have no asset of their own; their batches are in landing like all others."""


class PollConfig(dg.Config):
    """What to look at."""

    windows: list[list[str]] = Field(
        default=[],
        description="First and last event date of each; a missing last one is the plan's end.",
    )
    cancellations: bool = Field(default=False, description="Whether to look at them.")
    since: str = Field(
        default="", description="Cancellations since this instant; empty is 90 days ago."
    )
    event_ids: list[str] = Field(default=[], description="Events to look up one by one.")
    as_daily: bool = Field(
        default=False, description="Whether it is paid for as a daily look, reserve included."
    )


def config_of(due: Sequence[Pull], *, as_daily: bool = False) -> dict[str, object]:
    """Return the config of a run that does what is due."""
    windows: list[list[str]] = []
    event_ids: list[str] = []
    cancellations, since = False, ""
    for pull in due:
        if isinstance(pull, EventsPull):
            bounds = (pull.window.first, pull.window.last)
            windows.append([day.isoformat() for day in bounds if day is not None])
        elif isinstance(pull, CancellationsPull):
            cancellations, since = True, "" if pull.since is None else pull.since.isoformat()
        else:
            event_ids += pull.event_ids
    config = {
        "windows": windows,
        "cancellations": cancellations,
        "since": since,
        "event_ids": event_ids,
        "as_daily": as_daily,
    }
    return {"ops": {OP: {"config": config}}}


@dg.op(name=OP, pool=CATALOG_POOL, out=dg.Out(dg.Nothing))
def look_again(
    context: dg.OpExecutionContext,
    config: PollConfig,
    catalog: dg.ResourceParam[ServiceDoor],
    catalog_for_polls: dg.ResourceParam[ServiceDoor],
    home: dg.ResourceParam[Home],
) -> None:
    """Look at what is asked for, and land it."""
    deferrals = Deferrals(Storage(home.state))
    door = catalog if config.as_daily else catalog_for_polls
    try:
        service = door.service()
        deferrals.settle("polls", service.now())
        for pulled in poll(service, _read(config)):
            _tell(context, pulled, service.today(), home, door.quota_left)
            if pulled.deferred is None:
                deferrals.done("polls", pulled.feed)
            else:
                deferrals.note(deferral("polls", pulled.feed, pulled.deferred, service.now()))
    except Defer as error:
        deferrals.note(deferral("polls", "events", error, door.now()))
        context.log.warning("Deferred before it began: %s", error)
    except (CatalogError, WarehouseError) as error:
        raise dg.Failure(str(error), allow_retries=False) from error


@dg.job(
    name=POLL,
    executor_def=dg.in_process_executor,
    description="Look again at what changes within a day: windows of event dates, cancellations, "
    "vanished events. `almanac budget` shows when and why.",
)
def poll_job() -> None:
    look_again()


def _read(config: PollConfig) -> Poll:
    return Poll(
        windows=tuple(_window(*window) for window in config.windows),
        cancellations=config.cancellations,
        since=datetime.fromisoformat(config.since) if config.since else None,
        event_ids=tuple(config.event_ids),
    )


def _window(first: str, last: str = "") -> tuple[date, date | None]:
    return date.fromisoformat(first), date.fromisoformat(last) if last else None


def _tell(
    context: dg.OpExecutionContext,
    pulled: Pulled,
    today: date,
    home: Home,
    quota_left: int | None,
) -> None:
    log_problems(context.log, problems_of_landed(one.manifest for one in pulled.landed))
    told = told_pull(pulled, home.landing, day=today, quota_left=quota_left)
    asset = _ASSETS.get(pulled.feed)
    if asset is None or not pulled.landed:
        context.log.info(
            "%s: %s requests, %s", pulled.feed, pulled.requests, pulled.nothing_because or "landed"
        )
        return
    context.log_event(dg.AssetMaterialization(asset, partition=today.isoformat(), metadata=told))
