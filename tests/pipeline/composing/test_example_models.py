"""The example project with dbt and SQLMesh, in an environment of its own."""

import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import duckdb
import pytest

from tests.pipeline.composing.test_example import PROJECT, event, land
from tests.pipeline.small_home import NOW, SmallHome
from warehouse.clock import utc_now
from warehouse.history.merge import merge

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
