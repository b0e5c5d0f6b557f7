"""Alerts: what is posted when, to a real receiver, by sensor, job and command line."""

import json
import logging
import shutil
import socket
import traceback
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import dagster as dg
import pytest
from dagster import build_sensor_context
from pydantic import SecretStr

from assets.layout import Layout
from pipeline.automation.health import posting_sensors
from pipeline.health.facts import HealthWarning
from pipeline.health.notices import (
    NotPosted,
    PostedWarning,
    find_changes,
    post_json,
    post_warnings,
    read_posted_warnings,
    record_changes,
)
from pipeline.instance import instance_of
from pipeline.settings import Settings, SettingsError, read_settings
from tests.pipeline.conftest import Almanac
from tests.pipeline.health.receiving import Receiver, receiving
from tests.pipeline.small_home import DAY, NOW, SmallHome
from warehouse.history.merge import merge
from warehouse.home import Home

STALE = HealthWarning("stale:coins", "coins: last pulled at long ago: almanac run", NOW - DAY)
DISK = HealthWarning("disk", "The disk has 1.5 GB free: almanac prune")
CANARY = "canary-hook-81c5"


@pytest.fixture(scope="module")
def hook() -> Iterator[Receiver]:
    with receiving() as receiver:
        yield receiver


@pytest.fixture
def receiver(hook: Receiver) -> Receiver:
    hook.status = 204
    hook.bodies.clear()
    hook.paths.clear()
    return hook


@pytest.fixture(scope="module")
def merged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home whose coins, and nothing else, are stale in a day and an hour."""
    small = SmallHome(tmp_path_factory.mktemp("alerts") / "home")
    small.land("coins", "events", at=NOW - DAY)
    small.land("export", "events", "cancellations", "categories", at=NOW - timedelta(hours=1))
    merge(small.home)
    return small.home.root


@pytest.fixture
def small(merged: Path, tmp_path: Path, receiver: Receiver) -> SmallHome:
    """A copy of that home, with an address to post to."""
    shutil.copytree(merged, tmp_path / "home")
    return SmallHome(tmp_path / "home", alert_url=SecretStr(receiver.url))


LATER = NOW + DAY + timedelta(hours=1)


def post_over(present: Callable[[int], bool]) -> list[tuple[int, tuple[str, ...]]]:
    """Return the hours and kinds of the posts of three days with a warning at some hours."""
    posted: dict[str, PostedWarning] = {}
    posts = []
    for hour in range(0, 73, 3):
        now = NOW + timedelta(hours=hour)
        found = find_changes(posted, [DISK] if present(hour) else [], now=now)
        if found:
            posts.append((hour, found.kinds))
        posted = record_changes(posted, found, now=now)
    return posts


class TestChanges:
    def test_a_warning_is_posted_when_it_begins_each_day_and_when_it_ends(self) -> None:
        assert post_over(lambda hour: 6 <= hour < 54) == [
            *[(6, ("+disk",)), (30, ("+disk",)), (54, ("-disk",))]
        ]

    def test_a_warning_that_comes_and_goes_is_posted_once_a_day(self) -> None:
        assert post_over(lambda hour: hour % 6 < 3) == [
            *[(0, ("+disk",)), (3, ("-disk",)), (24, ("+disk",)), (27, ("-disk",))],
            *[(48, ("+disk",)), (51, ("-disk",)), (72, ("+disk",))],
        ]

    def test_a_posted_warning_has_a_since_even_if_the_warning_has_none(self) -> None:
        first = find_changes({}, [DISK, STALE], now=NOW)
        assert [warning.since for warning in first.warnings] == [NOW, NOW - DAY]
        posted = record_changes({}, first, now=NOW)
        later = find_changes(posted, [DISK], now=NOW + DAY)
        assert [warning.since for warning in later.warnings] == [NOW]
        assert later.over == ("stale:coins",)

    def test_no_warning_ends_where_the_home_cannot_be_read(self) -> None:
        before = {"disk": PostedWarning(since=NOW, at=NOW)}
        damaged = HealthWarning("damaged", "unreadable")
        found = find_changes(before, [damaged], now=NOW, is_all=False)
        assert found.kinds == ("+damaged",)
        assert record_changes(before, found, now=NOW).keys() == {"disk", "damaged"}


class TestPosting:
    def test_the_body_of_an_alert_has_a_summary_line_and_names_no_folder(
        self, small: SmallHome, receiver: Receiver
    ) -> None:
        changes = post_warnings(small.settings, small.home, LATER)
        assert changes.kinds == ("+stale:coins",)
        (body,) = receiver.bodies
        assert body.keys() == {"text", "source", "at", "warnings", "resolved"}
        assert body["text"].startswith("Almanac, sandbox:1: coins: last pulled at 2026-03-01")
        assert body["warnings"][0]["kind"] == "stale:coins"
        assert body["warnings"][0]["since"] == "2026-03-03T12:00:00Z"
        assert body["at"] == "2026-03-03T13:00:00Z"
        assert str(small.home.root) not in json.dumps(body)
        assert receiver.paths == [f"/hook?token={CANARY}"]

    def test_a_posted_warning_is_not_posted_again_and_its_end_is_posted(
        self, small: SmallHome, receiver: Receiver
    ) -> None:
        post_warnings(small.settings, small.home, LATER)
        assert not post_warnings(small.settings, small.home, LATER)
        small.land("coins", at=LATER)
        post_warnings(small.settings, small.home, LATER + timedelta(minutes=5))
        assert not post_warnings(small.settings, small.home, LATER + timedelta(minutes=10))
        assert [body["resolved"] for body in receiver.bodies] == [[], ["stale:coins"]]
        assert receiver.bodies[1]["text"] == "Almanac, sandbox:1: Resolved: stale:coins."

    @pytest.mark.parametrize("status", [301, 307, 404, 500])
    def test_a_warning_that_the_receiver_rejects_is_posted_again(
        self, small: SmallHome, receiver: Receiver, status: int
    ) -> None:
        receiver.status = status
        with pytest.raises(NotPosted, match=f"the response was {status}, expected 2xx"):
            post_warnings(small.settings, small.home, LATER)
        assert len(receiver.paths) == 1
        assert read_posted_warnings(small.home) == {}
        receiver.status = 200
        assert post_warnings(small.settings, small.home, LATER).kinds == ("+stale:coins",)

    def test_a_failure_names_no_address_and_refers_to_none(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.DEBUG)
        address = SecretStr(f"http://127.0.0.1:9/{CANARY}")
        with pytest.raises(NotPosted, match="no response") as caught:
            post_json(address, {}, "The alert")
        assert (caught.value.__cause__, caught.value.__context__) == (None, None)
        assert CANARY not in str(caught.value) + caplog.text

    def test_a_post_without_an_answer_fails_at_its_timeout(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            address = SecretStr(f"http://127.0.0.1:{silent.getsockname()[1]}/")
            with pytest.raises(NotPosted, match="ReadTimeout"):
                post_json(address, {}, "The alert", timeout_s=0.1)

    def test_a_damaged_record_of_alerts_posts_every_warning_anew(
        self, small: SmallHome, receiver: Receiver
    ) -> None:
        post_warnings(small.settings, small.home, LATER)
        (small.home.state / "alerts.json").write_text('{"stale:coins": {"since": 1}}')
        assert post_warnings(small.settings, small.home, LATER).kinds == ("+stale:coins",)

    def test_an_unreadable_home_is_posted_and_resolves_no_other_warning(
        self, small: SmallHome, receiver: Receiver
    ) -> None:
        post_warnings(small.settings, small.home, LATER)
        stamp = small.home.root / "home.json"
        whole = stamp.read_text()
        stamp.write_text("{")
        assert post_warnings(small.settings, small.home, LATER).kinds == ("+damaged",)
        assert "(HomeRefused)" in receiver.bodies[-1]["text"]
        stamp.write_text(whole)
        assert post_warnings(small.settings, small.home, LATER).kinds == ("-damaged",)

    def test_no_alert_is_posted_without_a_home(
        self, small: SmallHome, receiver: Receiver, tmp_path: Path
    ) -> None:
        assert not post_warnings(small.settings, Home(tmp_path / "none"), LATER)
        assert receiver.paths == []
        assert not (tmp_path / "none").exists()


def tick(small: SmallHome, instance: dg.DagsterInstance, now: datetime) -> str:
    """Evaluate the sensor of alerts; return what it says."""
    (sensor,) = posting_sensors(Layout(), small.settings, small.home, lambda: now)
    result = sensor(build_sensor_context(instance=instance))
    assert isinstance(result, dg.SkipReason)
    return str(result.skip_message)


class TestSensor:
    def test_without_an_address_there_is_no_sensor(self, tmp_path: Path) -> None:
        small = SmallHome(tmp_path / "other")
        assert posting_sensors(Layout(), small.settings, small.home, lambda: NOW) == []

    def test_it_posts_each_change_once_and_starts_no_run(
        self, small: SmallHome, receiver: Receiver
    ) -> None:
        with dg.DagsterInstance.ephemeral() as instance:
            assert tick(small, instance, NOW) == "Posted: nothing. Next check in 5 min."
            assert tick(small, instance, LATER).startswith("Posted: +stale:coins.")
            assert tick(small, instance, LATER).startswith("Posted: nothing.")
        assert len(receiver.bodies) == 1

    def test_a_receiver_that_is_down_fails_the_tick_and_nothing_shows_the_address(
        self, small: SmallHome, receiver: Receiver
    ) -> None:
        receiver.status = 503
        with instance_of(small.home) as instance:
            with pytest.raises(NotPosted, match="the response was 503, expected 2xx") as caught:
                tick(small, instance, LATER)
            assert len(receiver.paths) == 1
            assert CANARY not in "".join(traceback.format_exception(caught.value))
            receiver.status = 200
            assert "+stale:coins" in tick(small, instance, LATER)
        for path in small.home.root.rglob("*"):
            assert path.is_dir() or CANARY.encode() not in path.read_bytes(), path
        assert CANARY not in repr(small.settings)


class TestCommand:
    def test_status_posts_new_warnings_and_prints_them(
        self, almanac: Almanac, tmp_path: Path, receiver: Receiver
    ) -> None:
        small = SmallHome(tmp_path / "data")
        small.land(at=datetime.now(UTC) - 4 * DAY)
        given = {"alert_url": receiver.url}
        done = almanac("status", "--alert", **given)
        assert "Posted: +coverage +stale:cancellations" in done.stdout
        assert CANARY not in done.output
        record = json.loads(almanac("status", "--alert", "--json", **given).stdout)
        assert record["posted"] == []
        assert len(receiver.bodies) == 1

    def test_a_post_that_fails_ends_with_1_after_what_is_shown(
        self, almanac: Almanac, tmp_path: Path, receiver: Receiver
    ) -> None:
        SmallHome(tmp_path / "data")
        receiver.status = 500
        done = almanac("status", "--alert", code=1, alert_url=receiver.url)
        assert "No complete pull of events yet" in done.stdout
        assert done.stderr == (
            "almanac: The alert was not posted: the response was 500, expected 2xx. "
            "It will be retried.\n"
        )

    def test_without_an_address_it_is_a_wrong_setting(
        self, almanac: Almanac, tmp_path: Path
    ) -> None:
        assert "ALMANAC_ALERT_URL" in almanac("status", "--alert", code=2).stderr


class TestSetting:
    @pytest.fixture(autouse=True)
    def alone(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)

    @pytest.mark.parametrize(
        "address",
        [f"ftp://{CANARY}", CANARY, f"https:///{CANARY}", f"https://me:{CANARY}@example.com/"],
    )
    def test_an_address_that_cannot_be_used_is_refused_and_not_shown(
        self, monkeypatch: pytest.MonkeyPatch, address: str
    ) -> None:
        monkeypatch.setenv("ALMANAC_ALERT_URL", address)
        with pytest.raises(SettingsError, match="ALMANAC_ALERT_URL") as caught:
            read_settings()
        assert CANARY not in str(caught.value)

    def test_the_alert_address_may_be_in_a_file(self, tmp_path: Path) -> None:
        file = tmp_path / "hook"
        file.write_text(f"https://example.com/{CANARY}\n")
        address = of_file(file).alert_address()
        assert address is not None
        assert address.get_secret_value() == f"https://example.com/{CANARY}"
        file.write_text(CANARY)
        with pytest.raises(SettingsError, match="ALMANAC_ALERT_URL_FILE") as caught:
            of_file(file).alert_address()
        assert CANARY not in str(caught.value)
        assert Settings().alert_address() is None


def of_file(file: Path) -> Settings:
    settings = Settings(alert_url_file=file)
    assert settings.alerts
    return settings
