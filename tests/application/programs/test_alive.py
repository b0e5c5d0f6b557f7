"""`almanac daemon --check` says whether the daemon of a home is well, without starting anything."""

import json
from datetime import timedelta
from pathlib import Path

import pytest

from tests.pipeline.conftest import Almanac
from tests.pipeline.run_records import report_daemon
from warehouse.clock import utc_now
from warehouse.home import Home


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


def test_a_home_without_a_daemon_is_not_well(home: Home, almanac: Almanac) -> None:
    done = almanac("daemon", "--check", home=str(home.root), code=1)
    assert "No daemon has reported on this home" in done.stderr
    assert not home.dagster.exists()


def test_a_daemon_that_reports_is_well(home: Home, almanac: Almanac) -> None:
    report_daemon(home, utc_now() - timedelta(seconds=100))
    assert "is well" in almanac("daemon", "--check", home=str(home.root)).output
    done = almanac("daemon", "--check", "--json", home=str(home.root))
    assert json.loads(done.output)["well"] is True


def test_a_daemon_that_stopped_reporting_is_not_well(home: Home, almanac: Almanac) -> None:
    report_daemon(home, utc_now() - timedelta(seconds=121))
    done = almanac("daemon", "--check", home=str(home.root), code=1)
    assert "The daemon last reported 12" in done.stderr


def test_records_that_cannot_be_read_are_reported(home: Home, almanac: Almanac) -> None:
    (home.dagster / "history").mkdir(parents=True)
    (home.dagster / "history/runs.db").write_bytes(b"no database" * 100)
    done = almanac("daemon", "--check", home=str(home.root), code=1)
    assert "Traceback" not in done.output + done.stderr
    assert str(home.dagster) in done.stderr
