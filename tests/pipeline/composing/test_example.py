"""The example project: a table downstream of Almanac, and with dbt and SQLMesh."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import duckdb
import pytest

from pipeline.build import build_definitions
from tests.pipeline.homes_in_days import settings_of
from tests.pipeline.small_home import NOW, SmallHome
from tests.warehouse.normalise.catalog_bodies import json_event
from warehouse.clock import utc_now
from warehouse.history.merge import merge

PROJECT = Path(__file__).parents[3] / "examples/company"
PREFIX = {"key_prefix": ("almanac",), "group_prefix": "almanac_", "name_prefix": "almanac_"}


@pytest.fixture
def company(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.syspath_prepend(str(PROJECT))
    import company.assets

    yield company.assets
    for name in [name for name in sys.modules if name.partition(".")[0] == "company"]:
        del sys.modules[name]


def event(**given: Any) -> dict[str, Any]:
    return {**json_event(), **given}


def land(small: SmallHome, minutes: int, *events: dict[str, Any]) -> None:
    body = json.dumps({"data": events, "meta": {}}).encode()
    small.land("events", at=NOW + timedelta(minutes=minutes), body=body)


def test_its_table_follows_the_events_and_is_made(tmp_path: Path, company: Any) -> None:
    small = SmallHome(tmp_path / "home")
    (tmp_path / "company").mkdir()
    land(small, 0, event(title="Mainnet"))
    merge(small.home)
    theirs = dg.Definitions(
        assets=[company.week_ahead],
        resources={
            "warehouse": company.Warehouse(home=str(small.home.root)),
            "company_data": company.CompanyData(folder=str(tmp_path / "company")),
        },
        executor=dg.in_process_executor,
    )
    settings = settings_of(small.home.root, **PREFIX, executor="deployment")
    both = dg.Definitions.merge(build_definitions(settings), theirs)
    (table,) = company.week_ahead.keys
    node = both.resolve_asset_graph().get(table)
    assert node.automation_condition is not None
    assert {key.path[0] for key in node.parent_keys} == {"almanac"}
    with dg.DagsterInstance.ephemeral() as instance:
        job = theirs.resolve_implicit_global_asset_job_def()
        assert job.execute_in_process(instance=instance).success
    with duckdb.connect(str(tmp_path / "company/company.duckdb"), read_only=True) as made:
        assert made.sql("FROM week_ahead").columns


ROOT = PROJECT.parents[1]


def installed(folder: Path) -> Path:
    """Return the programs of an environment with the project and all that it can use."""
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    wanted = (str(ROOT), "dagster>=1.13,<1.14", "dagster-dg-cli>=1.13,<1.14")
    models = ("dbt-core>=1.11,<1.12", "dbt-duckdb>=1.10", "sqlmesh>=0.236")
    subprocess.run([folder / "bin/pip", "install", "-q", *wanted, *models], check=True)
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
    settings = {"ALMANAC_HOME": str(small.home.root), "COMPANY_DATA": str(data)}
    for _ in range(2):  # The second finds the tables of the first.
        done = subprocess.run(
            [programs / "dg", "launch", "--assets", "week_ahead,moved_events,busy_days"],
            cwd=PROJECT,
            env={**os.environ, **settings, "DAGSTER_HOME": ""},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr
    with duckdb.connect(str(data / "company.duckdb"), read_only=True) as made:
        moved = made.sql("SELECT date_then, date_now FROM moved_events").fetchall()
        assert moved == [("1 Feb", "in three days")]
        assert made.sql("SELECT events FROM reports.busy_days").fetchall() == [(1,)]
        assert made.sql("SELECT coins_linked FROM week_ahead").fetchall() == [(1,)]
