"""A small home for tests: some days of the embedded sandbox, limited to a few coins."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import dagster as dg
from pydantic import SecretStr

from application.daily_run import RunSummary, find_last_day, plan_run_times, run_days
from pipeline.build import build_definitions
from pipeline.service_session import OpenedSession, open_service
from pipeline.settings import Settings
from resources.session import LazySession
from warehouse.home import Home

NOW = datetime(2026, 3, 2, 9, tzinfo=UTC)
TODAY = NOW.date()
YESTERDAY = date(2026, 3, 1)
QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}


def settings_of(home: Path, **given: Any) -> Settings:
    given.setdefault("coins", ("bitcoin", "ethereum", "solana"))
    given.setdefault("state", home / "machine")
    return Settings(home=home, **given)


def address_of(base_url: str, key: str) -> dict[str, Any]:
    return {"base_url": base_url, "api_key": SecretStr(key)}


def run_sandbox_days(
    settings: Settings, instance: dg.DagsterInstance, *, days: int, now: datetime = NOW
) -> RunSummary:
    instants = plan_run_times(days, now=now, last_day=find_last_day(Home(settings.home)))
    with open_service(settings, now=instants[0].at) as service:
        return run_days(settings, service, instance, instants)


@contextmanager
def opened_session(settings: Settings, *, now: datetime = NOW) -> Iterator[tuple[LazySession, Any]]:
    with open_service(settings, now=now) as service:

        @contextmanager
        def open_session() -> Iterator[OpenedSession]:
            yield service

        with LazySession(open_session, clock=service.clock) as session:
            session.service()
            yield session, service


def run_assets(
    settings: Settings,
    instance: dg.DagsterInstance,
    *names: str,
    partition: date | None = None,
    span: tuple[date, date] | None = None,
    config: dict[str, Any] | None = None,
    **overrides: Any,
) -> dg.ExecuteInProcessResult:
    """Materialise some assets in this process, for a day, a span of days, or unpartitioned."""
    definitions = build_definitions(settings, **overrides)
    tags = {}
    if span is not None:
        tags["dagster/asset_partition_range_start"] = span[0].isoformat()
        tags["dagster/asset_partition_range_end"] = span[1].isoformat()
    return definitions.resolve_implicit_global_asset_job_def().execute_in_process(
        instance=instance,
        partition_key=None if partition is None else partition.isoformat(),
        asset_selection=[dg.AssetKey(name) for name in names],
        raise_on_error=False,
        run_config={**QUIET, "ops": {names[0]: {"config": config}}} if config else QUIET,
        tags=tags,
    )


def metadata_of(result: dg.ExecuteInProcessResult, asset: str, day: date) -> dict[str, Any]:
    found = [
        event.materialization
        for event in result.get_asset_materialization_events()
        if event.asset_key == dg.AssetKey(asset) and event.partition == day.isoformat()
    ]
    assert len(found) == 1, f"{asset} of {day} was recorded {len(found)} times"
    return {name: value.value for name, value in found[0].metadata.items()}


def failure_of(result: dg.ExecuteInProcessResult) -> str:
    (event,) = [event for event in result.all_events if event.is_step_failure]
    failure = event.step_failure_data.user_failure_data
    assert failure is not None, event.step_failure_data.error
    return str(failure.description)
