"""The example project: it adopts Almanac, with tables of pandas, dbt and SQLMesh downstream."""

import json
import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import duckdb
import pytest

from almanac.core.timestamps import utc_now
from tests.pipeline.homes_in_days import QUIET
from tests.pipeline.small_home import NOW, SmallHome
from tests.warehouse.normalise.catalog_bodies import json_event
from warehouse.history.merge import merge

ROOT = Path(__file__).parents[3]
PROJECT = ROOT / "examples/company"


def event(**given: Any) -> dict[str, Any]:
    return {**json_event(), **given}


def land(small: SmallHome, minutes: int, *events: dict[str, Any]) -> None:
    body = json.dumps({"data": events, "meta": {}}).encode()
    small.land("events", at=NOW + timedelta(minutes=minutes), body=body)


def test_its_table_follows_the_events_and_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = SmallHome(tmp_path / "home")
    land(small, 0, event(title="Mainnet"))
    merge(small.home)
    for name, value in (
        ("ALMANAC_HOME", small.home.root),
        ("ALMANAC_STATE", tmp_path / "state"),
        ("COMPANY_DATA", tmp_path),
        ("DAGSTER_HOME", tmp_path),
    ):
        monkeypatch.setenv(name, str(value))
    monkeypatch.syspath_prepend(str(PROJECT))
    from company.definitions import company  # type: ignore[import-not-found]

    definitions, table = company(), dg.AssetKey("week_ahead")
    graph = definitions.resolve_asset_graph()
    assert graph.get(table).automation_condition is not None
    assert {graph.get(key).group_name for key in graph.get(table).parent_keys} == {
        "almanac_warehouse"
    }
    sensor = definitions.resolve_sensor_def("automation")
    assert sensor.default_status is dg.DefaultSensorStatus.RUNNING
    job = definitions.resolve_implicit_global_asset_job_def()
    with dg.DagsterInstance.ephemeral() as instance:
        done = job.execute_in_process(instance=instance, asset_selection=[table], run_config=QUIET)
        assert done.success
    with duckdb.connect(str(tmp_path / "company.duckdb"), read_only=True) as made:
        assert made.sql("FROM week_ahead").columns


def installed(folder: Path) -> Path:
    """Return the programs of an environment with dbt and SQLMesh."""
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    models = ("dbt-core>=1.11,<1.12", "dbt-duckdb>=1.10", "sqlmesh>=0.236")
    subprocess.run([folder / "bin/pip", "install", "-q", *models], check=True)
    return folder / "bin"


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_pandas_dbt_and_sqlmesh_read_the_attached_file(tmp_path: Path) -> None:
    programs = installed(tmp_path / "environment")
    small = SmallHome(tmp_path / "home")
    date = (utc_now() + timedelta(days=3)).strftime("%Y-%m-%dT00:00:00Z")
    shown = {"displayedDate": "1 Feb", "date": date}
    land(small, 0, event(**shown))
    late = event(**{**shown, "displayedDate": "in three days"})
    land(small, int((utc_now() - NOW) / timedelta(minutes=1)), late)
    merge(small.home)
    data = tmp_path / "company"
    data.mkdir()
    given = {
        "ALMANAC_HOME": small.home.root,
        "COMPANY_DATA": data,
        "COMPANY_PROGRAMS": programs,
        "DAGSTER_HOME": tmp_path,
        "PYTHONPATH": PROJECT,
    }
    words = ("asset", "materialize", "-m", "company.definitions", "--select")
    for _ in range(2):  # The second finds the tables of the first.
        done = subprocess.run(
            [sys.executable, "-m", "dagster", *words, "week_ahead,moved_events,busy_days"],
            cwd=PROJECT,
            env={**os.environ, **{name: str(value) for name, value in given.items()}},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr
    with duckdb.connect(str(data / "company.duckdb"), read_only=True) as made:
        moved = made.sql("SELECT date_then, date_now FROM moved_events").fetchall()
        assert moved == [("1 Feb", "in three days")]
        assert made.sql("SELECT events FROM reports.busy_days").fetchall() == [(1,)]
        assert made.sql("SELECT coins_linked FROM week_ahead").fetchall() == [(1,)]
