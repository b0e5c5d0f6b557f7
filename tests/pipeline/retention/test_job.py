"""The job `prune` of a home: it runs by itself, at night, and leaves little."""

import json
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import dagster as dg

from pipeline.build import build_definitions
from pipeline.retention import OWNER_TAG
from pipeline.runs.store import RUNS
from tests.pipeline.conftest import Almanac
from tests.pipeline.homes_in_days import QUIET, settings_of
from tests.pipeline.retention.history import opened, run_databases
from tests.pipeline.small_home import SmallHome

NIGHT = datetime(2026, 3, 2, 3, 40, tzinfo=UTC)


def test_every_job_of_a_home_marks_its_runs(tmp_path: Path) -> None:
    definitions = build_definitions(
        settings_of(tmp_path / "home", name_prefix="north_", key_prefix=("north",))
    )
    jobs = [job for job in definitions.resolve_all_job_defs() if not job.name.startswith("__")]
    assert {"north_daily", "north_merge", "north_prune"} <= {job.name for job in jobs}
    assert {job.run_tags.get(OWNER_TAG) for job in jobs} == {"north/north_almanac"}


def test_prune_is_scheduled_every_night_whatever_becomes_of_the_daily_pull(tmp_path: Path) -> None:
    definitions = build_definitions(settings_of(tmp_path / "home"))
    schedule = definitions.resolve_schedule_def("prune_schedule")
    assert schedule.default_status is dg.DefaultScheduleStatus.RUNNING
    assert schedule.cron_schedule == "40 3 * * *"
    with dg.DagsterInstance.ephemeral() as instance:
        ticked = schedule.evaluate_tick(
            dg.build_schedule_context(instance, scheduled_execution_time=NIGHT)
        )
    assert len(ticked.run_requests or ()) == 1


def test_the_job_deletes_old_runs_and_leaves_a_light_run(tmp_path: Path) -> None:
    small = SmallHome(tmp_path / "home", keep_runs_days=10)
    later = datetime.now(UTC) + timedelta(days=11)
    definitions = build_definitions(small.settings, clock=lambda: later)
    job = definitions.resolve_job_def("prune")
    with opened(small.home) as instance:
        ids = [job.execute_in_process(instance=instance, run_config=QUIET).run_id for _ in range(4)]
        records = instance.get_run_records()
        ended = sum(record.dagster_run.status is dg.DagsterRunStatus.SUCCESS for record in records)
    # Each deletes the one before the last: the last is the newest of its job.
    assert {record.dagster_run.run_id for record in records} == set(ids[-2:])
    assert ended == 2
    assert run_databases(small.home) == set(ids[-2:])
    databases = small.home.dagster / "history" / "runs"
    assert (databases / f"{ids[-1]}.db").stat().st_size < 150_000


def test_almanac_prune_reports_what_it_deletes_of_the_instance(
    almanac: Almanac, tmp_path: Path
) -> None:
    small = SmallHome(tmp_path / "data")
    job = build_definitions(small.settings).resolve_job_def("prune")
    with opened(small.home) as instance:
        for _ in range(3):
            job.execute_in_process(instance=instance, run_config=QUIET)
    with closing(sqlite3.connect(small.home.dagster / RUNS)) as store, store:
        store.execute("UPDATE runs SET end_time = end_time - 40 * 86400")
    planned = json.loads(almanac("prune", "--json", "--dry-run").stdout)
    done = {kind["what"]: kind for kind in json.loads(almanac("prune", "--json").stdout)}
    assert {kind["what"]: kind for kind in planned} == done
    assert done["Dagster runs"]["count"] == 2
    assert done["Dagster runs"]["bytes"] > 200_000
    assert len(run_databases(small.home)) == 1
    almanac("prune", keep_runs_days="0", code=2)
