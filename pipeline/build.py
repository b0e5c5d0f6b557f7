"""Builds the Dagster definitions and resources from settings.

Nothing is opened here: the first asset of a run that needs the service opens the session.
Resources are plain objects, so that none of their values is in a config, page or log.
"""

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any

import dagster as dg

from assets.calendar import landed_calendar
from assets.changes import event_changes
from assets.checks import published_checks
from assets.landed import LANDED
from assets.published import published_tables
from pipeline.automation.alerts import alert_sensors
from pipeline.automation.digests import digest_sensors
from pipeline.automation.jobs import calendar_job, daily_job, daily_schedule, merge_job
from pipeline.automation.polls import poll_job, polls
from pipeline.automation.resume import cancellations, quota
from pipeline.automation.unmerged import unmerged_batches
from pipeline.polling.inputs import PollFacts
from pipeline.runs.presence import announce
from pipeline.session import home_of, open_service
from pipeline.settings import Settings
from resources.http.retries import utc_now
from resources.limits.allowance import Work
from resources.service_clock import MAX_SKEW, ServiceClock, service_time
from resources.session import NEAR_DAYS, LazySession
from warehouse.files.storage import Storage
from warehouse.home import Home


def build_definitions(
    settings: Settings, *, clock: Callable[[], datetime] = utc_now, **overrides: Any
) -> dg.Definitions:
    """Return all definitions. `overrides` replace resources by name."""
    home = home_of(settings)
    service_now = service_time(home.state, clock)
    return dg.Definitions(
        assets=[*LANDED, landed_calendar, event_changes, published_tables],
        asset_checks=[published_checks],
        jobs=[daily_job, poll_job, calendar_job, merge_job],
        schedules=[daily_schedule(clock, service_now)],
        sensors=[
            unmerged_batches(home, clock),
            polls(PollFacts(settings, home), clock),
            cancellations(home, clock, service_now),
            quota(home, clock, service_now),
            *alert_sensors(settings, home, clock),
            *digest_sensors(settings, home, clock),
        ],
        resources=build_resources(settings, clock=clock, **overrides),
        executor=dg.in_process_executor,
    )


def build_resources(
    settings: Settings, *, clock: Callable[[], datetime], **overrides: Any
) -> Mapping[str, Any]:
    """Return the resources by name.

    Raises:
        ValueError: an override names an unknown resource.
    """
    resources: dict[str, Any] = {
        "home": dg.ResourceDefinition(_home(settings)),
        "catalog": dg.ResourceDefinition(_session(settings, clock, "daily")),
        "catalog_for_polls": dg.ResourceDefinition(_session(settings, clock, "polls")),
        "catalog_for_backfills": dg.ResourceDefinition(_session(settings, clock, "backfill")),
    }
    unknown = overrides.keys() - resources.keys()
    if unknown:
        raise ValueError(
            f"there is no resource {min(unknown)!r}; expected one of {', '.join(resources)}"
        )
    return {**resources, **overrides}


def _home(settings: Settings) -> Callable[..., Iterator[Any]]:
    def home(context: dg.InitResourceContext) -> Iterator[Home]:
        found = home_of(settings)
        if context.run is not None:
            announce(found, context.run.run_id)
        yield found

    return home


def _session(
    settings: Settings, clock: Callable[[], datetime], work: Work
) -> Callable[..., Iterator[Any]]:
    def catalog(context: dg.InitResourceContext) -> Iterator[LazySession]:
        service_clock = ServiceClock(clock, state=Storage(settings.home / "state"))
        # Without a Date of the service so far, its day may be any within the accepted skew.
        is_known = service_clock.offset is not None or settings.base_url is None
        near_days = NEAR_DAYS if is_known else MAX_SKEW.days
        with LazySession(
            lambda: open_service(settings, work=work), clock=service_clock.now, near_days=near_days
        ) as session:
            yield session

    return catalog
