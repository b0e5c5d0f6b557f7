"""`almanac daemon --check` says whether the daemon of a home is well, without starting anything."""

import json
import os
from datetime import timedelta
from pathlib import Path

import pytest

from pipeline.ui.alive import FILE, OLD_AFTER, faults_of, report_alive
from pipeline.ui.names import DAEMON, lock_of
from resources.http.retries import utc_now
from tests.pipeline.conftest import Almanac
from warehouse.files.locks import hold_lock
from warehouse.home import Home

NOW = utc_now()


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


def test_a_home_without_a_daemon_is_not_well(home: Home, almanac: Almanac) -> None:
    done = almanac("daemon", "--check", home=str(home.root), code=1)
    assert "No daemon runs on" in done.stderr


def test_a_daemon_that_reports_is_well(home: Home, almanac: Almanac) -> None:
    with hold_lock(lock_of(home, DAEMON), "to be the daemon"):
        report_alive(home, [], utc_now())
        assert "is well" in almanac("daemon", "--check", home=str(home.root)).output
        done = almanac("daemon", "--check", "--json", home=str(home.root))
    assert json.loads(done.output)["well"] is True


def test_what_the_daemon_reports_is_passed_on(home: Home, almanac: Almanac) -> None:
    with hold_lock(lock_of(home, DAEMON), "to be the daemon"):
        report_alive(home, ["SENSOR has not reported for 600 s."], utc_now())
        done = almanac("daemon", "--check", "--json", home=str(home.root), code=1)
    assert json.loads(done.output)["faults"] == ["SENSOR has not reported for 600 s."]


def test_a_report_of_an_ended_daemon_counts_for_nothing(home: Home) -> None:
    with hold_lock(lock_of(home, DAEMON), "to be the daemon"):
        report_alive(home, [], NOW)
    (fault,) = faults_of(home, NOW)
    assert fault.startswith("No daemon runs")


def test_a_report_of_an_earlier_process_counts_for_nothing(home: Home) -> None:
    with hold_lock(lock_of(home, DAEMON), "to be the daemon"):
        report_alive(home, [], NOW)
        path = home.dagster / FILE
        path.write_text(path.read_text().replace(f'"pid":{os.getpid()}', '"pid":1'))
        assert faults_of(home, NOW) == ["The daemon has started and has not reported yet."]


def test_a_daemon_that_stopped_reporting_is_not_well(home: Home) -> None:
    with hold_lock(lock_of(home, DAEMON), "to be the daemon"):
        report_alive(home, [], NOW)
        assert faults_of(home, NOW + OLD_AFTER) == []
        (fault,) = faults_of(home, NOW + OLD_AFTER + timedelta(seconds=1))
    assert "last reported at" in fault
