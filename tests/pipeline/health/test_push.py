"""What `almanac status` shows and warns of push: silence, what push missed, and the inbox."""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from pydantic import SecretStr

from assets.layout import Layout
from pipeline.automation.health import health_checks
from pipeline.health.checks import read_health
from pipeline.health.facts import Health, HealthWarning
from resources.inbox import Inbox
from tests.pipeline.conftest import Almanac
from tests.pipeline.homes_in_days import QUIET
from tests.pipeline.small_home import DAY, NOW, SmallHome
from tests.resources.inbox.deliveries import delivery, event, store
from warehouse.files.locks import hold_lock
from warehouse.history.merge import merge
from warehouse.home import Home

HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)
PUSH_KINDS = {"push", "inbox"}


@pytest.fixture
def small(tmp_path: Path) -> SmallHome:
    """A home with secrets, which was pulled at NOW."""
    small = SmallHome(
        tmp_path / "home", webhook_secrets=SecretStr("a-secret-of-the-endpoint"), coins=()
    )
    small.land(at=NOW)
    return small


def health_at(small: SmallHome, now: datetime = NOW) -> Health:
    return read_health(small.settings, small.home, now)


def kinds(small: SmallHome, now: datetime = NOW) -> list[str]:
    found = [warning.kind for warning in health_at(small, now).warnings]
    return [kind for kind in found if kind in PUSH_KINDS]


def warned(small: SmallHome, kind: str, now: datetime = NOW) -> HealthWarning:
    (found,) = [warning for warning in health_at(small, now).warnings if warning.kind == kind]
    return found


@contextmanager
def receiver_runs(home: Home) -> Iterator[None]:
    with hold_lock(home.receiver_lock, "to receive"):
        yield


def missed(small: SmallHome, now: datetime) -> HealthWarning | None:
    """Return the warning of missed changes while the receiver runs."""
    with receiver_runs(small.home):
        found = health_at(small, now).warnings
    return next((warning for warning in found if warning.text.startswith("Push missed ")), None)


def missed_text(small: SmallHome, now: datetime) -> str:
    found = missed(small, now)
    assert found is not None
    return found.text


def land(home: Home, at: datetime) -> None:
    Inbox(home).land(lambda: at)


class TestSilence:
    def test_a_home_without_secrets_and_deliveries_has_no_push(self, tmp_path: Path) -> None:
        small = SmallHome(tmp_path / "home")
        small.land()
        assert health_at(small).push is None
        assert kinds(small) == []

    def test_secrets_without_a_receiver_are_warned_of_until_it_runs(self, small: SmallHome) -> None:
        assert "almanac receive does not run, and no delivery was received yet: start it" in (
            warned(small, "push").text
        )
        with receiver_runs(small.home):
            assert kinds(small) == []

    def test_a_receiver_that_is_started_again_at_once_is_not_warned_of(
        self, small: SmallHome
    ) -> None:
        now = datetime.now(UTC).replace(microsecond=0)
        store(small.home, now, delivery(1, at=now))
        land(small.home, now)
        assert kinds(small, now + 15 * MINUTE) == []
        found = warned(small, "push", now + 16 * MINUTE)
        assert f"does not run, and no delivery was received since {now:%Y-%m-%d}" in found.text
        assert found.since == now

    def test_push_that_nobody_has_set_up_any_more_is_warned_of_for_a_week(
        self, tmp_path: Path
    ) -> None:
        now = datetime.now(UTC) + HOUR
        small = SmallHome(tmp_path / "home")
        store(small.home, now - 6 * DAY, delivery(1, at=now))
        land(small.home, now - 6 * DAY)
        assert kinds(small, now) == ["push"]
        assert kinds(small, now + 2 * DAY) == []

    def test_a_sender_is_silent_after_the_limit_until_a_delivery_is_received(
        self, small: SmallHome
    ) -> None:
        store(small.home, NOW, delivery(1, at=NOW))
        land(small.home, NOW)
        with receiver_runs(small.home):
            assert kinds(small, NOW + DAY) == []
            found = warned(small, "push", NOW + DAY + MINUTE)
            assert found.since == NOW
            assert "runs, and no delivery was received since 2026-03-02 12:00 UTC" in found.text
            assert "the service has the endpoint enabled" in found.text
        small.settings.push_silence_h = 48
        with receiver_runs(small.home):
            assert kinds(small, NOW + DAY + MINUTE) == []
            assert kinds(small, NOW + 2 * DAY + MINUTE) == ["push"]
        store(small.home, NOW + 2 * DAY, delivery(2, at=NOW + 2 * DAY))
        land(small.home, NOW + 2 * DAY)
        with receiver_runs(small.home):
            assert kinds(small, NOW + 2 * DAY + MINUTE) == []

    def test_a_plan_without_push_is_named_as_the_reason(self, small: SmallHome) -> None:
        store(small.home, NOW, delivery(1, at=NOW))
        land(small.home, NOW)
        small.land(plan="pro", at=NOW + 2 * DAY)
        with receiver_runs(small.home):
            assert "the plan pro has no push" in warned(small, "push", NOW + 2 * DAY).text


class TestMissed:
    @staticmethod
    def pulled(small: SmallHome, at: datetime, *events: dict[str, Any]) -> None:
        """Pull a list of events at an instant, and merge it."""
        body = json.dumps({"data": events, "meta": {"total": len(events)}}).encode()
        small.land("events", at=at, body=body)
        merge(small.home)

    @pytest.fixture(scope="class")
    @classmethod
    def made(cls, tmp_path_factory: pytest.TempPathFactory) -> Path:
        """A home that knows one event, which was pulled at NOW; push began an hour later."""
        small = SmallHome(tmp_path_factory.mktemp("watched") / "home", coins=())
        cls.pulled(small, NOW, event(1, at=NOW - DAY))
        store(small.home, NOW + HOUR, delivery(99, at=NOW + HOUR))
        return small.home.root

    @pytest.fixture
    def watched(self, made: Path, tmp_path: Path) -> SmallHome:
        return SmallHome(shutil.copytree(made, tmp_path / "home"), coins=())

    def test_what_a_pull_finds_and_push_did_not_bring_is_named_until_it_is_delivered(
        self, watched: SmallHome
    ) -> None:
        changed, found = NOW + 2 * HOUR, NOW + 4 * HOUR
        moved = {"createdAt": "2026-03-01T12:00:00Z", "date": "2026-07-01T00:00:00Z"}
        first = event(1, at=changed, **moved)
        self.pulled(watched, found, first, event(2, at=changed))
        # A delivery of the event that is older than the change is no delivery of the change.
        store(watched.home, changed - 30 * MINUTE, delivery(1, at=changed - 30 * MINUTE))
        assert missed(watched, found + HOUR - MINUTE) is None, "a retry may bring it"
        now = found + HOUR
        warning = missed(watched, now)
        assert warning is not None and warning.since == found
        assert "Push missed 2 changes of the last 4 days" in warning.text
        assert "evt_1 (rescheduled, 2026-03-02 14:00 UTC)" in warning.text
        assert "evt_2 (created, 2026-03-02 14:00 UTC)" in warning.text
        push = health_at(watched, now).push
        assert push is not None and {change.feed for change in push.missed} == {"events"}
        # A retry brings one of them.
        store(watched.home, now, delivery(2, at=changed))
        text = missed_text(watched, now)
        assert "Push missed 1 change" in text and "evt_1" in text
        store(watched.home, now, delivery(3, kind="updated", at=changed, id="evt_1", **moved))
        assert missed(watched, now) is None

    def test_a_missed_change_is_forgotten_after_the_last_retry(self, watched: SmallHome) -> None:
        self.pulled(watched, NOW + 4 * HOUR, event(1, at=NOW - DAY), event(2, at=NOW + 2 * HOUR))
        for day in range(1, 5):
            store(watched.home, NOW + day * DAY, delivery(100 + day, at=NOW + day * DAY))
        assert missed(watched, NOW + 3 * DAY)
        assert missed(watched, NOW + 4 * DAY + 5 * HOUR) is None

    def test_what_changed_before_push_began_or_in_a_long_pause_is_not_missed(
        self, watched: SmallHome
    ) -> None:
        before, in_pause, back = NOW + 30 * MINUTE, NOW + 2 * DAY, NOW + 3 * DAY
        self.pulled(
            *(watched, NOW + 2 * HOUR),
            *(event(1, at=NOW - DAY), event(2, at=before)),
        )
        assert missed(watched, NOW + 4 * HOUR) is None
        self.pulled(
            *(watched, in_pause + HOUR),
            *(event(1, at=NOW - DAY), event(2, at=before), event(3, at=in_pause)),
        )
        assert missed(watched, in_pause + 3 * HOUR) is None, "push is silent"
        store(watched.home, back, delivery(4, at=back))
        assert missed(watched, back + HOUR) is None

    def test_what_push_does_not_report_is_not_missed(self, watched: SmallHome) -> None:
        # No material field, and an event that only became visible.
        first = event(1, at=NOW + 2 * HOUR, createdAt="2026-03-01T12:00:00Z", title="Another")
        self.pulled(watched, NOW + 4 * HOUR, first, event(2, at=NOW - 9 * DAY))
        assert missed(watched, NOW + 6 * HOUR) is None

    def cancelled(self, small: SmallHome, at: datetime) -> None:
        """Land and merge a list with the cancellation of event 1 at an instant."""
        row = {"id": "evt_1", "cancelledAt": at.isoformat()}
        body = json.dumps({"data": [row], "meta": {"total": 1}}).encode()
        small.land("cancellations", at=at + MINUTE, body=body)
        merge(small.home)

    def test_a_cancellation_that_was_listed_alone_is_named(self, watched: SmallHome) -> None:
        self.cancelled(watched, NOW + 2 * HOUR)
        text = missed_text(watched, NOW + 4 * HOUR)
        assert "evt_1 (cancelled, 2026-03-02 14:00 UTC)" in text
        store(watched.home, NOW + 4 * HOUR, delivery(1, kind="cancelled", at=NOW))
        assert missed(watched, NOW + 4 * HOUR) is None

    def test_an_event_that_is_back_is_not_missed(self, watched: SmallHome) -> None:
        self.cancelled(watched, NOW + 10 * MINUTE)
        back = {"createdAt": "2026-03-01T12:00:00Z", "date": "2026-07-01T00:00:00Z"}
        self.pulled(watched, NOW + 4 * HOUR, event(1, at=NOW + 2 * HOUR, **back))
        assert missed(watched, NOW + 6 * HOUR) is None


class TestInbox:
    def test_rejected_deliveries_wait_until_a_person_settled_them(self, small: SmallHome) -> None:
        store(small.home, NOW, b"[]", b"no json", delivery(1, at=NOW))
        land(small.home, NOW)
        names = Inbox(small.home).names("rejected")
        with receiver_runs(small.home):
            found = warned(small, "inbox")
            assert found.since == NOW
            assert f"2 deliveries in the inbox can't be applied; the newest is {names[-1]}" in (
                found.text
            )
            Inbox(small.home).dismiss(names)
            assert kinds(small) == []

    def test_deliveries_that_nobody_lands_are_warned_of_after_an_hour(
        self, small: SmallHome
    ) -> None:
        store(small.home, NOW, delivery(1, at=NOW))
        store(small.home, NOW + MINUTE, delivery(2, at=NOW))
        with receiver_runs(small.home):
            assert kinds(small, NOW + HOUR) == []
            found = warned(small, "inbox", NOW + HOUR + MINUTE)
            assert "2 deliveries wait in the inbox since 2026-03-02 12:00 UTC" in found.text
            land(small.home, NOW + HOUR)
            assert kinds(small, NOW + HOUR + MINUTE) == []


class TestShown:
    def test_status_shows_what_is_received_as_text_and_as_json(
        self, almanac: Almanac, tmp_path: Path
    ) -> None:
        now = datetime.now(UTC)
        home = SmallHome(tmp_path / "data").home
        store(home, now, delivery(1, at=now), b"[]")
        with receiver_runs(home):
            shown = " ".join(almanac("status").stdout.split())
            found = json.loads(almanac("status", "--json").stdout)["push"]
        assert f"last delivery (UTC) {now:%Y-%m-%d %H:%M}; the receiver has run since " in shown
        assert "2 wait to be landed; 0 rejected" in shown
        assert (found["is_running"], found["waiting"], found["rejected"]) == (True, 2, [])
        land(home, now)
        shown = " ".join(almanac("status").stdout.split())
        assert "the receiver does not run" in shown and "0 wait to be landed; 1 rejected" in shown

    def test_a_home_without_push_has_no_line_about_it(
        self, almanac: Almanac, tmp_path: Path
    ) -> None:
        SmallHome(tmp_path / "data").land()
        assert "Push" not in almanac("status").stdout
        assert json.loads(almanac("status", "--json").stdout)["push"] is None

    def test_the_warnings_are_a_check_on_dagsters_pages(self, small: SmallHome) -> None:
        store(small.home, NOW, b"[]")
        land(small.home, NOW)
        check = health_checks(Layout(), small.settings, small.home, lambda: NOW)
        found = dg.Definitions(asset_checks=[check]).resolve_implicit_global_asset_job_def()
        result = found.execute_in_process(run_config=QUIET)
        shown = {each.check_name: each for each in result.get_asset_check_evaluations()}["push"]
        text = str(shown.metadata["what to do"].value)
        assert not shown.passed and "inbox: 1 delivery in the inbox" in text
