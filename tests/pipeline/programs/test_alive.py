"""`almanac daemon --check` says whether the daemon of a home is well, without starting anything."""

import json
import sqlite3
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from pipeline.cli.ui import OLD_AFTER, find_fault, read_heartbeats
from pipeline.runs.store import RUNS
from tests.pipeline.conftest import Almanac
from warehouse.clock import utc_now
from warehouse.home import Home


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


def record_heartbeat(home: Home, at: datetime) -> None:
    """Record a heartbeat as Dagster's run storage does."""
    path = home.dagster / RUNS
    path.parent.mkdir(parents=True, exist_ok=True)
    with sqlite3.connect(path) as store:
        store.execute("CREATE TABLE IF NOT EXISTS daemon_heartbeats (daemon_type, timestamp)")
        values = "SENSOR", at.replace(tzinfo=None).isoformat(sep=" ")
        store.execute("INSERT INTO daemon_heartbeats VALUES (?, ?)", values)
    store.close()


def test_a_home_without_a_daemon_is_not_well(home: Home, almanac: Almanac) -> None:
    done = almanac("daemon", "--check", home=str(home.root), code=1)
    assert "No daemon has reported on this home" in done.stderr


def test_a_daemon_that_reports_is_well(home: Home, almanac: Almanac) -> None:
    record_heartbeat(home, utc_now())
    assert "is well" in almanac("daemon", "--check", home=str(home.root)).output
    done = almanac("daemon", "--check", "--json", home=str(home.root))
    assert json.loads(done.output)["well"] is True


def test_a_daemon_that_stopped_reporting_is_not_well(home: Home) -> None:
    last = utc_now()
    record_heartbeat(home, last)
    beats = read_heartbeats(home)
    assert find_fault(beats, last + OLD_AFTER) == ""
    fault = find_fault(beats, last + OLD_AFTER + timedelta(seconds=1))
    assert "last reported at" in fault


def test_records_that_cannot_be_read_are_reported(home: Home, almanac: Almanac) -> None:
    (home.dagster / RUNS).parent.mkdir(parents=True, exist_ok=True)
    (home.dagster / RUNS).write_bytes(b"no database" * 100)
    done = almanac("daemon", "--check", home=str(home.root), code=1)
    assert "Traceback" not in done.output + done.stderr
    assert RUNS in done.stderr
