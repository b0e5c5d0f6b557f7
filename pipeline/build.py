"""Builds the Dagster definitions and resources from settings.

Nothing is opened here: the first asset of a run that needs the service opens the session.
Resources are plain objects, so that none of their values is in a config, page or log.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, date, datetime, time, timedelta
from functools import partial
from typing import Any, Final

import dagster as dg

from assets.calendar import landed_calendar
from assets.changes import event_changes
from assets.landed import landed_assets
from assets.layout import Layout
from assets.polled import polled_assets
from assets.published import published_tables
from pipeline.automation.alerts import alert_sensors
from pipeline.automation.digests import digest_sensors
from pipeline.automation.health import health_check, health_sensor
from pipeline.automation.jobs import Jobs, daily_schedule
from pipeline.automation.merges import deliveries, unmerged_batches
from pipeline.automation.pulls import cancellations, first_pull, polls, quota, was_day_pulled
from pipeline.automation.retention import prune_job, prune_schedule
from pipeline.configuration.deployment import EVERYTHING_ON, NOTHING_ON
from pipeline.home_location import locate_home
from pipeline.polling.facts import PollFacts
from pipeline.runs.presence import announce
from pipeline.session import open_service
from pipeline.settings import Settings, SettingsError
from resources.limits.allowance import Work
from resources.service_clock import MAX_SKEW, NOTABLE, ServiceClock, service_time
from resources.session import NEAR_DAYS, LazySession
from warehouse.clock import utc_now
from warehouse.files.storage import Storage
from warehouse.home import Home

_EXECUTORS: Final = {
    "in_process": dg.in_process_executor,
    "multiprocess": dg.multiprocess_executor,
    "deployment": None,
}


def build_definitions(
    settings: Settings,
    *,
    clock: Callable[[], datetime] = utc_now,
    layout: Layout | None = None,
    **overrides: Any,
) -> dg.Definitions:
    """Return all definitions. `overrides` replace resources by their own name.

    Without a `layout`, it is the one of the settings and of what is landed so far.
    """
    home = locate_home(settings)
    service_now = service_time(home.state, clock)
    layout = layout or layout_of(settings, home, service_now())
    jobs = Jobs.of(layout)
    pruning = prune_job(layout, settings, clock)
    schedules = [
        daily_schedule(layout, clock, service_now, partial(was_day_pulled, home)),
        prune_schedule(layout, pruning),
    ]
    sensors = [
        first_pull(layout, home, clock, service_now),
        unmerged_batches(layout, home, clock),
        deliveries(
            layout,
            home,
            clock,
            service_now,
            timedelta(seconds=settings.push_merge_interval_s),
        ),
        polls(layout, PollFacts(settings, home), clock),
        cancellations(layout, home, clock, service_now),
        quota(layout, jobs, home, clock, service_now),
        *alert_sensors(layout, settings, home, clock),
        *digest_sensors(layout, settings, home, clock),
    ]
    names = {schedule.name for schedule in schedules} | {sensor.name for sensor in sensors}
    sensors.append(health_sensor(layout, settings, home, clock, names))
    _check_automation(settings, {*names, sensors[-1].name})
    return dg.Definitions(
        assets=[
            *landed_assets(layout),
            polled_assets(layout),
            landed_calendar(layout),
            event_changes(layout),
            published_tables(layout),
        ],
        asset_checks=[health_check(layout, settings, home, clock)],
        jobs=[jobs.daily, jobs.poll, jobs.deliveries, jobs.calendar, jobs.merge, pruning],
        schedules=schedules,
        sensors=sensors,
        resources=build_resources(layout, settings, clock=clock, **overrides),
        executor=layout.executor,
    )


def _check_automation(settings: Settings, names: Iterable[str]) -> None:
    known = {name.removeprefix(settings.name_prefix) for name in names}
    unknown = set(settings.automation) - known - {EVERYTHING_ON, NOTHING_ON}
    if unknown:
        raise SettingsError(
            f"ALMANAC_AUTOMATION: there is no schedule or sensor {min(unknown)!r}; expected "
            f"{EVERYTHING_ON}, {NOTHING_ON}, or some of {', '.join(sorted(known))}."
        )


def layout_of(
    settings: Settings, home: Home, service_now: datetime, *, first_day: date | None = None
) -> Layout:
    """Return where the definitions of a home stand, with its landed days.

    The days from `first_day` on are still to be pulled, and always those from the service's today
    on. Dagster counts partitions by this machine's clock, so days to come are counted from that.
    """
    now, today = utc_now(), service_now.date()
    machine_today = now.date()
    # Without a Date of the service so far, its day may be any within the accepted skew.
    offset = ServiceClock(utc_now, state=Storage(home.state)).offset
    slack = MAX_SKEW.days if settings.base_url is not None and offset is None else 0
    landed = home.landing.days()
    pulled_from = min(first_day or today, today - timedelta(days=slack))
    first = min([pulled_from, *landed[:1]])
    not_landed = tuple(sorted(set(_days(first, pulled_from)) - set(landed)))
    # The definitions may stay loaded until the machine's day ends; then it is later at the service.
    day_ends = datetime.combine(machine_today + timedelta(days=1), time(), UTC) - NOTABLE
    latest = (day_ends + (service_now - now)).date()
    last = max(today + timedelta(days=slack), machine_today, latest)
    to_come = _days(machine_today, last + timedelta(days=1))
    return Layout(
        key_prefix=settings.key_prefix,
        group_prefix=settings.group_prefix,
        name_prefix=settings.name_prefix,
        first_day=first,
        days_to_come=sum(day not in not_landed for day in to_come),
        not_landed=not_landed,
        executor=_EXECUTORS[settings.executor],
        is_on=settings.is_on,
    )


def _days(first: date, end: date) -> list[date]:
    """Return the days from the first to before the end."""
    return [first + timedelta(days=number) for number in range((end - first).days)]


def build_resources(
    layout: Layout, settings: Settings, *, clock: Callable[[], datetime], **overrides: Any
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
    return {layout.name(name): value for name, value in {**resources, **overrides}.items()}


def _home(settings: Settings) -> Callable[..., Iterator[Any]]:
    def home(context: dg.InitResourceContext) -> Iterator[Home]:
        found = locate_home(settings)
        # With another executor this is the process of a step, and the run outlives it.
        if context.run is not None and settings.executor == "in_process":
            announce(found, context.run.run_id)
        yield found

    return home


def _session(
    settings: Settings, clock: Callable[[], datetime], work: Work
) -> Callable[..., Iterator[Any]]:
    """Return the function of a resource."""

    def catalog(context: dg.InitResourceContext) -> Iterator[LazySession]:
        service_clock = ServiceClock(clock, state=Storage(settings.home / "state"))
        # Without a Date of the service so far, its day may be any within the accepted skew.
        is_known = service_clock.offset is not None or settings.base_url is None
        near_days = NEAR_DAYS if is_known else MAX_SKEW.days
        opening = partial(open_service, settings, work=work)
        with LazySession(opening, clock=service_clock.now, near_days=near_days) as session:
            yield session

    return catalog
