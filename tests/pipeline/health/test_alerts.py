"""Alerts: what is posted when, to a real receiver, by sensor, job and command line."""

import json
import logging
import shutil
import socket
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import dagster as dg
import pytest
from dagster import build_sensor_context
from pydantic import SecretStr

from assets.layout import Layout
from pipeline.automation.alerts import EVERY_S, alert_job, alert_sensors, decide_alert
from pipeline.automation.run_decisions import Decision, JobHistory
from pipeline.health.alerts import (
    AlertNotPosted,
    Alerts,
    Changes,
    Reported,
    changes,
    post,
    post_changes,
    posted_after,
)
from pipeline.health.records import Warned
from pipeline.instance import instance_of
from pipeline.settings import Settings, SettingsError, read_settings
from tests.pipeline.conftest import Almanac
from tests.pipeline.health.receiving import Receiver, receiving
from tests.pipeline.homes_in_days import QUIET
from tests.pipeline.small_home import DAY, NOW, SmallHome
from warehouse.history.merge import merge
from warehouse.home import Home

STALE = Warned("stale:coins", "coins: last pulled at long ago: almanac run", NOW - DAY)
DISK = Warned("disk", "The disk has 1.5 GB free: almanac prune")
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


class TestChanges:
    def test_a_warning_is_posted_when_it_begins_each_day_and_once_when_it_ends(
        self,
    ) -> None:
        before: dict[str, Reported] = {}
        messages = []
        for hour in range(0, 60, 6):
            now = NOW + timedelta(hours=hour)
            found = changes(before, [DISK] if 6 <= hour < 54 else [], now=now)
            if found:
                messages.append((hour, found.kinds))
            before = posted_after(before, found, now=now)
        assert messages == [(6, ("+disk",)), (30, ("+disk",)), (54, ("-disk",))]

    def test_a_posted_warning_has_a_since_even_if_the_warning_has_none(self) -> None:
        first = changes({}, [DISK, STALE], now=NOW)
        assert [warning.since for warning in first.begun] == [NOW, NOW - DAY]
        later = changes(posted_after({}, first, now=NOW), [DISK], now=NOW + DAY)
        assert [warning.since for warning in later.repeated] == [NOW]
        assert later.over == ("stale:coins",)

    def test_a_text_that_changes_is_no_new_warning(self) -> None:
        before = posted_after({}, changes({}, [DISK], now=NOW), now=NOW)
        assert not changes(before, [Warned("disk", "1.4 GB left")], now=NOW + timedelta(hours=1))

    def test_no_warning_ends_where_the_home_cannot_be_read(self) -> None:
        before = {"disk": Reported(since=NOW, at=NOW)}
        found = changes(before, [Warned("damaged", "unreadable")], now=NOW, is_all=False)
        assert found.kinds == ("+damaged",)
        assert posted_after(before, found, now=NOW).keys() == {"disk", "damaged"}


class TestPosting:
    def test_the_body_of_an_alert_has_a_summary_line_and_names_no_folder(
        self, small: SmallHome, receiver: Receiver
    ) -> None:
        changes = post_changes(small.settings, small.home, LATER)
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
        post_changes(small.settings, small.home, LATER)
        assert not post_changes(small.settings, small.home, LATER)
        small.land("coins", at=LATER)
        post_changes(small.settings, small.home, LATER + timedelta(minutes=5))
        assert not post_changes(small.settings, small.home, LATER + timedelta(minutes=10))
        assert [body["resolved"] for body in receiver.bodies] == [[], ["stale:coins"]]
        assert receiver.bodies[1]["text"] == "Almanac, sandbox:1: Resolved: stale:coins."

    @pytest.mark.parametrize("status", [301, 307, 404, 500])
    def test_a_warning_that_the_receiver_rejects_is_posted_again(
        self, small: SmallHome, receiver: Receiver, status: int
    ) -> None:
        receiver.status = status
        with pytest.raises(AlertNotPosted, match=f"the response was {status}, expected 2xx"):
            post_changes(small.settings, small.home, LATER)
        assert len(receiver.paths) == 1
        assert Alerts(small.home.state).posted() == {}
        receiver.status = 200
        assert post_changes(small.settings, small.home, LATER).kinds == ("+stale:coins",)

    def test_a_failure_names_no_address_and_refers_to_none(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.DEBUG)
        address = SecretStr(f"http://127.0.0.1:9/{CANARY}")
        with pytest.raises(AlertNotPosted, match="no answer") as caught:
            post(address, "sandbox:1", Changes(begun=(DISK,)), NOW)
        assert (caught.value.__cause__, caught.value.__context__) == (None, None)
        assert CANARY not in str(caught.value) + caplog.text

    def test_a_post_without_an_answer_fails_at_its_timeout(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            address = SecretStr(f"http://127.0.0.1:{silent.getsockname()[1]}/")
            with pytest.raises(AlertNotPosted, match="ReadTimeout"):
                post(address, "sandbox:1", Changes(begun=(DISK,)), NOW, timeout_s=0.1)

    def test_a_damaged_record_of_alerts_posts_every_warning_anew(
        self, small: SmallHome, receiver: Receiver
    ) -> None:
        post_changes(small.settings, small.home, LATER)
        (small.home.state / "alerts.json").write_text('{"stale:coins": {"since": 1}}')
        assert post_changes(small.settings, small.home, LATER).kinds == ("+stale:coins",)

    def test_an_unreadable_home_is_posted_and_resolves_no_other_warning(
        self, small: SmallHome, receiver: Receiver
    ) -> None:
        post_changes(small.settings, small.home, LATER)
        stamp = small.home.root / "home.json"
        whole = stamp.read_text()
        stamp.write_text("{")
        assert post_changes(small.settings, small.home, LATER).kinds == ("+damaged",)
        assert "(DamagedStamp)" in receiver.bodies[-1]["text"]
        stamp.write_text(whole)
        assert post_changes(small.settings, small.home, LATER).kinds == ("-damaged",)

    def test_no_alert_is_posted_without_a_home(
        self, small: SmallHome, receiver: Receiver, tmp_path: Path
    ) -> None:
        assert not post_changes(small.settings, Home(tmp_path / "none"), LATER)
        assert receiver.paths == []
        assert not (tmp_path / "none").exists()


def key_of(decision: Decision) -> str | None:
    return None if decision.request is None else decision.request.run_key


class TestDeciding:
    DUE = Changes(begun=(STALE,), over=("quota",))

    def test_the_run_key_of_an_alert_has_warnings_attempt_and_time(self) -> None:
        first = decide_alert(self.DUE, JobHistory(), now=NOW, running=None)
        second = decide_alert(
            self.DUE, JobHistory(NOW, 1), now=NOW + timedelta(hours=1), running=None
        )
        other = decide_alert(Changes(over=("quota",)), JobHistory(), now=NOW, running=None)
        keys = [key_of(decision) or "" for decision in (first, second, other)]
        assert [key.split("-")[1:] for key in keys] == [
            *(["1", "20260302T120000"], ["2", "20260302T130000"], ["1", "20260302T120000"]),
        ]
        assert keys[0][:12] == keys[1][:12] != keys[2][:12]

    def test_the_alert_sensor_gives_the_reason_for_no_run(self) -> None:
        nothing = decide_alert(Changes(), JobHistory(), now=NOW, running=None)
        waits = decide_alert(self.DUE, JobHistory(), now=NOW, running="0123456789")
        assert (nothing.request, waits.request) == (None, None)
        assert nothing.reason == "Nothing new to post. Next check in 5 min."
        assert "run 01234567 posts it" in waits.reason

    def test_the_wait_between_alert_runs_doubles_after_each_failure(self) -> None:
        waits = []
        for failures in (1, 2, 3, 8):
            last = JobHistory(NOW, failures)
            ticks = (NOW + timedelta(seconds=EVERY_S) * n for n in range(20))
            ticks_with_request = (
                at for at in ticks if decide_alert(self.DUE, last, now=at, running=None).request
            )
            waits.append(int((next(ticks_with_request) - NOW).total_seconds()) // 60)
        assert waits == [5, 10, 20, 60]
        early = decide_alert(self.DUE, JobHistory(NOW, 1), now=NOW, running=None)
        assert "the last 1 runs could not post it. The next run is at 12:05:00" in early.reason


class TestDaemon:
    def test_without_an_address_there_is_no_sensor(self, tmp_path: Path) -> None:
        small = SmallHome(tmp_path / "other")
        assert alert_sensors(Layout(), small.settings, small.home, lambda: NOW) == []

    def test_the_sensor_sends_nothing_and_the_run_it_requests_posts_once(
        self, small: SmallHome, receiver: Receiver
    ) -> None:
        with dg.DagsterInstance.ephemeral() as instance:
            assert isinstance(tick(small, instance, NOW), dg.SkipReason)
            ticks_with_request = tick(small, instance, LATER)
            assert isinstance(ticks_with_request, dg.RunRequest)
            assert receiver.paths == []
            result = run(small, instance, LATER)
            assert result.success
            assert isinstance(tick(small, instance, LATER), dg.SkipReason)
            assert run(small, instance, LATER).success
        assert len(receiver.bodies) == 1

    def test_a_receiver_that_is_down_fails_the_run_and_nothing_shows_the_address(
        self, small: SmallHome, receiver: Receiver
    ) -> None:
        receiver.status = 503
        with instance_of(small.home) as instance:
            result = run(small, instance, LATER)
            assert not result.success
            assert len(receiver.paths) == 4
            lines = [str(entry) for entry in instance.all_logs(result.run_id)]
            assert "the response was 503, expected 2xx" in "".join(lines)
            (kept,) = instance.get_runs()
            assert CANARY not in "".join(lines) + str(kept.run_config) + str(kept.tags)
            waiting = tick(small, instance, datetime.now(UTC))
            assert isinstance(waiting, dg.SkipReason)
            assert CANARY not in str(waiting)
            receiver.status = 200
            assert isinstance(tick(small, instance, datetime.now(UTC) + DAY), dg.RunRequest)
        for path in small.home.root.rglob("*"):
            assert path.is_dir() or CANARY.encode() not in path.read_bytes(), path
        assert CANARY not in repr(small.settings)


def definitions_of(small: SmallHome, now: datetime) -> dg.Definitions:
    return dg.Definitions(sensors=alert_sensors(Layout(), small.settings, small.home, lambda: now))


def tick(
    small: SmallHome, instance: dg.DagsterInstance, now: datetime
) -> dg.RunRequest | dg.SkipReason:
    """Return what one tick requests, or why it requests nothing."""
    definitions = definitions_of(small, now)
    definitions.resolve_job_def("alert")
    sensor = definitions.resolve_sensor_def("alerts")
    result = sensor(build_sensor_context(instance=instance, definitions=definitions))
    assert isinstance(result, dg.SensorResult)
    if result.skip_reason is not None:
        assert not result.run_requests
        return result.skip_reason
    (request,) = result.run_requests or []
    return request


def run(small: SmallHome, instance: dg.DagsterInstance, now: datetime) -> dg.ExecuteInProcessResult:
    job = alert_job(Layout(), small.settings, small.home, lambda: now, retry_wait_s=0.0)
    return job.execute_in_process(instance=instance, raise_on_error=False, run_config=QUIET)


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
        assert Settings(_env_file=None).alert_address() is None  # type: ignore[call-arg]


def of_file(file: Path) -> Settings:
    settings = Settings(_env_file=None, alert_url_file=file)  # type: ignore[call-arg]
    assert settings.alerts
    return settings
