"""What the planner knows of push: the newest delivery in the inbox or in landing."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from pipeline.polls import PollInputs, plan_polls, read_poll_inputs
from resources.inbox import Inbox
from tests.pipeline.conftest import Almanac
from tests.pipeline.small_home import NOW, SmallHome
from tests.resources.inbox.deliveries import delivery, store
from warehouse.home import Home

HOUR = timedelta(hours=1)


@pytest.fixture
def small(tmp_path: Path) -> SmallHome:
    small = SmallHome(tmp_path / "home", plan="elite", push_poll_interval_s=7_200)
    small.land(at=NOW - HOUR)
    return small


def receive(home: Home, at: datetime, number: int = 1) -> None:
    store(home, at, delivery(number, at=at))


def inputs(small: SmallHome, now: datetime = NOW) -> PollInputs:
    found = read_poll_inputs(small.settings, small.home, now)
    assert found is not None
    return found


def least_interval(found: PollInputs) -> timedelta:
    return min(row.interval for row in plan_polls(found).rows)


def test_push_is_on_from_the_first_delivery_until_the_silence_limit(small: SmallHome) -> None:
    assert inputs(small).push_until is None
    receive(small.home, NOW)
    assert inputs(small).push_is_on
    assert least_interval(inputs(small)) == 2 * HOUR
    assert inputs(small, NOW + 24 * HOUR).push_is_on
    silent = inputs(small, NOW + 25 * HOUR)
    assert not silent.push_is_on and least_interval(silent) < HOUR
    receive(small.home, NOW + 26 * HOUR, 2)
    assert inputs(small, NOW + 26 * HOUR).push_is_on


def test_push_is_on_while_its_deliveries_are_in_landing_alone(small: SmallHome) -> None:
    receive(small.home, NOW)
    Inbox(small.home).land(lambda: NOW)
    assert inputs(small).push_is_on
    assert not inputs(small, NOW + 25 * HOUR).push_is_on


def test_the_budget_shows_whether_push_is_on(almanac: Almanac, tmp_path: Path) -> None:
    home = Home(tmp_path / "data")
    home.claim("sandbox:1")
    now = datetime.now(UTC)
    assert json.loads(almanac("budget", "--json", plan="elite").stdout)["push_until"] is None
    receive(home, now - 30 * HOUR)
    silent = almanac("budget", plan="elite").stdout
    assert "Push is silent since" in silent and "15 min" in silent
    receive(home, now - HOUR, 2)
    shown = almanac("budget", plan="elite").stdout
    assert "Push is received: intervals are at least 6.0 h" in shown
    found = json.loads(almanac("budget", "--json", plan="elite").stdout)
    assert (found["push_is_on"], found["schedule"][0]["interval_s"]) == (True, 21_600)
