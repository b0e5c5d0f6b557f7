"""Builds the Dagster definitions and resources from settings.

Nothing is opened here: the first asset of a run that needs the service opens the session. The
fields of a resource are shown in Dagster, so they never include the key.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import date, datetime, timedelta
from functools import partial
from typing import Any

import dagster as dg
from pydantic import Field

from almanac.core.timestamps import utc_now
from assets.event_changes import event_changes
from assets.landed import landed_assets
from assets.landed_calendar import landed_calendar
from assets.layout import CATALOG_POOL, EVERYTHING_ON, NOTHING_ON, Layout, without_beta_warnings
from assets.polled import polled_assets
from assets.published_tables import published_tables
from pipeline.automation.health import (
    health_asset,
    health_checks,
    health_sensor,
    process_tags,
)
from pipeline.automation.jobs import asset_jobs, daily_schedule, prune_schedule
from pipeline.automation.sensors import merges_sensor, polls_sensor, pulls_sensor, was_day_pulled
from pipeline.home_location import locate_home
from pipeline.service_session import open_service
from pipeline.settings import Settings, SettingsError
from resources.credentials import check_base_url
from resources.limits.ledger import Work
from resources.service_clock import MAX_SKEW, NOTABLE, ServiceClock, service_time
from resources.session import NEAR_DAYS, LazySession
from warehouse.files.storage import Storage
from warehouse.home import Home


def build_definitions(
    settings: Settings,
    *,
    clock: Callable[[], datetime] = utc_now,
    layout: Layout | None = None,
    **overrides: Any,
) -> dg.Definitions:
    """Return all definitions. `overrides` replace resources by their own name.

    Without a `layout`, it is made from the stored batches, without prefixes.
    """
    home = locate_home(settings)
    service_now = service_time(home.state, clock)
    layout = layout or make_layout(home, service_now())
    jobs = asset_jobs(layout, service_now().date())
    schedules = [
        daily_schedule(layout, clock, service_now, partial(was_day_pulled, home)),
        prune_schedule(layout, settings, clock),
    ]
    sensors = [
        pulls_sensor(layout, jobs, home, clock, service_now),
        merges_sensor(layout, jobs, home, clock, service_now),
        polls_sensor(layout, settings, home, clock),
    ]
    exports = []
    if settings.iceberg is not None:
        from assets.iceberg_tables import iceberg_sensor, iceberg_tables

        exports.append(iceberg_tables(layout, settings.iceberg))
        sensors.append(iceberg_sensor(layout))
    sensors.append(health_sensor(layout, settings, home, clock))
    _check_automation(
        layout, {*(each.name for each in schedules), *(each.name for each in sensors)}
    )
    with without_beta_warnings():
        assets = dg.with_source_code_references(
            [
                *landed_assets(layout),
                polled_assets(layout),
                landed_calendar(layout),
                event_changes(layout),
                published_tables(layout),
                *exports,
            ]
        )
    return dg.Definitions(
        assets=[*assets, health_asset(layout)],
        asset_checks=[health_checks(layout, settings, home, clock)],
        jobs=[*jobs.values()],
        schedules=schedules,
        sensors=sensors,
        resources=build_resources(layout, settings, clock=clock, **overrides),
        executor=layout.executor,
    )


def _check_automation(layout: Layout, names: Iterable[str]) -> None:
    known = {name.removeprefix(layout.name("")) for name in names}
    unknown = set(layout.automation) - known - {EVERYTHING_ON, NOTHING_ON}
    if unknown:
        raise SettingsError(
            f"AlmanacComponent.automation: there is no schedule or sensor {min(unknown)!r}; "
            f"expected {EVERYTHING_ON}, {NOTHING_ON}, or some of {', '.join(sorted(known))}."
        )


def make_layout(
    home: Home, service_now: datetime, first_day: date = date.max, **given: Any
) -> Layout:
    """Return the layout of a home with its days from the first landed one, and other fields.

    The days from `first_day` on have not been pulled yet.
    """
    given.setdefault("days_ahead", max(0, (service_now - utc_now() + NOTABLE) // timedelta(days=1)))
    return Layout(first_day=min([first_day, service_now.date(), *home.landing.days()[:1]]), **given)


def build_resources(
    layout: Layout, settings: Settings, *, clock: Callable[[], datetime], **overrides: Any
) -> Mapping[str, Any]:
    """Return the resources by name."""
    resources: dict[str, Any] = {
        "home": _home(layout, settings),
        "catalog": _catalog(layout, settings, clock, "daily"),
        "catalog_for_polls": _catalog(layout, settings, clock, "polls"),
        "catalog_for_backfills": _catalog(layout, settings, clock, "backfill"),
    }
    return {layout.name(name): value for name, value in {**resources, **overrides}.items()}


def _home(layout: Layout, settings: Settings) -> dg.ConfigurableResource[Home]:
    class HomeResource(dg.ConfigurableResource[Home]):
        """The home: the folder of landing and warehouse."""

        folder: str = Field(description="The setting ALMANAC_HOME.")

        def create_resource(self, context: dg.InitResourceContext) -> Home:
            # With another executor this is the process of a step, and the run outlives it.
            if context.run is not None and layout.executor is dg.in_process_executor:
                assert context.instance is not None
                run_id = context.run.run_id
                context.instance.add_run_tags(run_id, process_tags(run_id))
            return locate_home(settings)

    return HomeResource(folder=str(settings.home))


def _catalog(
    layout: Layout, settings: Settings, clock: Callable[[], datetime], work: Work
) -> dg.ConfigurableResource[LazySession]:
    opening = partial(open_service, settings, work=work)

    class CatalogResource(dg.ConfigurableResource[LazySession]):
        """A session with the service, opened when a step first needs it."""

        base_address: str = Field(description="The address of the service.")
        plan: str = Field(description="The plan of the key, if a setting gives it.")
        work: str = Field(description="The kind of work, which decides its share of the quota.")

        @contextmanager
        def yield_for_execution(self, context: dg.InitResourceContext) -> Iterator[LazySession]:
            assert context.instance is not None and context.log is not None
            limits = {limit.name for limit in context.instance.event_log_storage.get_pool_limits()}
            default = context.instance.get_concurrency_config().pool_config.default_pool_limit
            if (pool := layout.name(CATALOG_POOL)) not in limits and default is None:
                context.log.warning(
                    f"The pool {pool} has no limit, so two runs can pull at the same time. Set it "
                    "to 1 under Deployment > Concurrency, or for all pools in dagster.yaml."
                )
            service_clock = ServiceClock(clock, state=Storage(settings.home / "state"))
            # Without a Date of the service so far, its day may be any within the accepted skew.
            is_known = service_clock.heard is not None or settings.base_url is None
            near_days = NEAR_DAYS if is_known else MAX_SKEW.days
            with LazySession(opening, clock=service_clock.now, near_days=near_days) as session:
                yield session

    address = settings.base_url or "the embedded sandbox"
    try:
        address = address if settings.base_url is None else check_base_url(address)
    except ValueError:  # It may contain a password.
        address = "ALMANAC_BASE_URL can't be used: see `almanac doctor`"
    return CatalogResource(
        base_address=address,
        plan=settings.plan or "as the service reports it",
        work=work,
    )
