"""A small instance with runs of a home and of other code, made by real runs."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg

from pipeline.instance import instance_of
from pipeline.retention import OWNER_TAG, Pruned, prune_home
from pipeline.runs.place import REPOSITORY_TAG
from tests.pipeline.homes_in_days import settings_of
from warehouse.home import Home

LABEL = "almanac"
KEPT = {"keep_runs_days": 10, "keep_failed_runs_days": 20, "keep_runs": 300}
PARTS = dg.StaticPartitionsDefinition(["a", "b", "c"])
LATER = timedelta(days=15)
MUCH_LATER = timedelta(days=25)


class Failing(dg.Config):
    """Whether the asset fails."""

    fails: bool = False


@dg.asset(partitions_def=PARTS)
def landed(context: dg.AssetExecutionContext, config: Failing) -> dg.MaterializeResult[None]:
    if config.fails:
        raise dg.Failure("as asked", allow_retries=False)
    return dg.MaterializeResult(metadata={"run": context.run.run_id})


@dg.asset(deps=[landed])
def table(context: dg.AssetExecutionContext) -> dg.MaterializeResult[None]:
    return dg.MaterializeResult(
        metadata={"run": context.run.run_id}, data_version=dg.DataVersion(context.run.run_id)
    )


@dg.asset_check(asset=table)
def sound(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
    return dg.AssetCheckResult(passed=True, metadata={"run": context.run.run_id})


@dg.asset(deps=[table], automation_condition=dg.AutomationCondition.eager())
def company() -> None: ...


OURS = (landed.key, table.key)
DEFINITIONS = dg.Definitions(
    assets=[landed, table, company],
    asset_checks=[sound],
    jobs=[
        dg.define_asset_job("land", ["landed"], tags={OWNER_TAG: LABEL}),
        dg.define_asset_job("publish", ["table"], tags={OWNER_TAG: LABEL}),
        dg.define_asset_job("theirs", ["company"], tags={REPOSITORY_TAG: "__repository__@theirs"}),
    ],
    executor=dg.in_process_executor,
)


def run(instance: dg.DagsterInstance, job: str, part: str | None = None, **config: Any) -> str:
    """Execute a job, and return the id of its run; only one with `fails` may fail."""
    done = DEFINITIONS.resolve_job_def(job).execute_in_process(
        instance=instance,
        partition_key=part,
        raise_on_error=not config,
        run_config={
            "loggers": {"console": {"config": {"log_level": "CRITICAL"}}},
            **({"ops": {"landed": {"config": config}}} if config else {}),
        },
    )
    return done.run_id


def make_history(instance: dg.DagsterInstance) -> None:
    """Land each part twice, publish twice, fail once, and run a job of the company."""
    for _ in range(2):
        for part in PARTS.get_partition_keys():
            run(instance, "land", part)
        run(instance, "publish")
    run(instance, "land", "b", fails=True)
    run(instance, "theirs")
    run(instance, "theirs")


@contextmanager
def opened(home: Home) -> Iterator[dg.DagsterInstance]:
    with instance_of(home) as instance:
        yield instance


def pruned(
    home: Home, after: timedelta, *, dry_run: bool = False, **kept: int
) -> dict[str, Pruned]:
    """Prune at a time after now, and return the counts by kind."""
    settings = settings_of(home.root, **{**KEPT, **kept})
    with opened(home) as instance:
        found = prune_home(
            home, settings, datetime.now(UTC) + after, instance=instance, dry_run=dry_run
        )
    return {each.what: each for each in found}


@dataclass(frozen=True)
class Shown:
    """What the pages of assets show, and what conditions of downstream assets read."""

    partitions: dict[str, set[str]]
    latest: dict[str, Any]
    ids: dict[str, dict[str, int]]
    checks: dict[str, Any]
    versions: dict[str, Any]

    @classmethod
    def of(cls, instance: dg.DagsterInstance) -> "Shown":
        return cls._read(instance)

    @classmethod
    def _read(cls, instance: dg.DagsterInstance) -> "Shown":
        keys = (*OURS, company.key)
        storage = instance.event_log_storage
        check = dg.AssetCheckKey(table.key, "sound")
        result = storage.get_latest_asset_check_execution_by_key([check])[check]
        assert result.evaluation is not None
        latest = {
            f"{key.to_user_string()} {part or ''}": _metadata(instance, key, part)
            for key in keys
            for part in (None, *PARTS.get_partition_keys())
        }
        return cls(
            partitions={
                key.to_user_string(): instance.get_materialized_partitions(key) for key in keys
            },
            latest=latest,
            ids={
                key.to_user_string(): dict(
                    storage.get_latest_storage_id_by_partition(
                        key, dg.DagsterEventType.ASSET_MATERIALIZATION
                    )
                )
                for key in keys
            },
            checks={"sound": (result.run_id, result.status, dict(result.evaluation.metadata))},
            versions={
                key.to_user_string(): (
                    event.asset_materialization.tags
                    if (event := instance.get_latest_materialization_event(key)) is not None
                    and event.asset_materialization is not None
                    else None
                )
                for key in keys
            },
        )


def _metadata(instance: dg.DagsterInstance, key: dg.AssetKey, part: str | None) -> Any:
    found = instance.fetch_materializations(
        dg.AssetRecordsFilter(key, asset_partitions=None if part is None else [part]), limit=1
    )
    for record in found.records:
        event = record.asset_materialization
        return record.storage_id, None if event is None else dict(event.metadata)
    return None


def bytes_of(home: Home) -> int:
    return sum(path.stat().st_size for path in home.dagster.rglob("*") if path.is_file())


def run_databases(home: Home) -> set[str]:
    return {path.stem for path in (home.dagster / "history" / "runs").glob("*-*.db")}


def home_at(root: Path) -> Home:
    home = Home(root)
    home.claim("sandbox:1")
    return home
