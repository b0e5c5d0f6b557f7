"""Alerts: what is posted when, to a real receiver, by the sensor's function and the command."""

import json
import logging
import socket
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pydantic import SecretStr

from pipeline.health.notices import ALERTS, NotPosted, post_json, post_warnings
from pipeline.settings import SettingsError, read_settings
from tests.pipeline.conftest import Almanac
from tests.pipeline.health.receiving import Receiver, receiving
from tests.pipeline.small_home import DAY, NOW, SmallHome
from warehouse.history.merge import merge

CANARY = "canary-hook-81c5"
QUIET: dict[str, str | None] = {"stale": None, "disk": None, "damaged": None}
DISK = {**QUIET, "disk": "The disk has 1.5 GB free: free space on it"}
BOTH = {**DISK, "stale": "coins are stale: almanac run"}


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


@pytest.fixture
def small(tmp_path: Path, receiver: Receiver) -> SmallHome:
    return SmallHome(tmp_path / "home", alert_url=SecretStr(receiver.url))


def post(small: SmallHome, warnings: dict[str, str | None], days: int = 0) -> tuple[str, ...]:
    return post_warnings(small.settings, small.home, warnings, NOW + days * DAY)


class TestPosting:
    def test_a_warning_is_posted_once_when_it_begins_and_once_when_it_ends(
        self, small: SmallHome, receiver: Receiver
    ) -> None:
        found = (QUIET, DISK, DISK, BOTH, BOTH, DISK, QUIET, QUIET, DISK)
        posts = [" ".join(post(small, each, day)) for day, each in enumerate(found)]
        assert posts == ["", "+disk", "", "+stale", "", "-stale", "-disk", "", "+disk"]
        assert len(receiver.bodies) == 5

    def test_the_body_has_a_summary_line(self, small: SmallHome, receiver: Receiver) -> None:
        post(small, BOTH)
        post(small, QUIET)
        first, last = receiver.bodies
        assert first == {
            "text": f"Almanac, sandbox:1: {BOTH['stale']}. {BOTH['disk']}.",
            "source": "sandbox:1",
            "at": "2026-03-02T12:00:00Z",
            "warnings": [{"kind": kind, "text": BOTH[kind]} for kind in ("stale", "disk")],
            "resolved": [],
        }
        assert last["text"] == "Almanac, sandbox:1: Resolved: stale, disk."
        assert last["resolved"] == ["stale", "disk"]
        assert receiver.paths[0] == f"/hook?token={CANARY}"

    @pytest.mark.parametrize("status", [301, 307, 404, 500])
    def test_a_post_that_the_receiver_rejects_is_posted_by_the_next_call(
        self, small: SmallHome, receiver: Receiver, status: int
    ) -> None:
        for found, kind in ((DISK, "+disk"), (QUIET, "-disk")):
            receiver.status = status
            with pytest.raises(NotPosted, match=f"the response was {status}, expected 2xx"):
                post(small, found)
            receiver.status = 200
            assert post(small, found) == (kind,)
        assert len(receiver.paths) == 4

    def test_no_warning_ends_that_could_not_be_judged(
        self, small: SmallHome, receiver: Receiver
    ) -> None:
        post(small, BOTH)
        assert post(small, {"damaged": "The home can't be read"}) == ("+damaged",)
        assert post(small, BOTH) == ("-damaged",)

    def test_a_damaged_record_posts_every_warning_anew(
        self, small: SmallHome, receiver: Receiver
    ) -> None:
        post(small, DISK)
        (small.home.state / ALERTS).write_text('{"disk": 1}')
        assert post(small, DISK) == ("+disk",)

    def test_no_log_file_and_error_has_the_address(
        self, small: SmallHome, receiver: Receiver, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.DEBUG)
        with pytest.raises(NotPosted, match="The alert was not posted: ") as caught:
            post_json(SecretStr(f"http://127.0.0.1:9/{CANARY}"), {}, "The alert")
        assert (caught.value.__cause__, caught.value.__context__) == (None, None)
        post(small, DISK)
        receiver.status = 500
        with pytest.raises(NotPosted) as refused:
            post(small, QUIET)
        assert CANARY not in str(caught.value) + str(refused.value) + caplog.text
        for path in small.home.root.rglob("*"):
            assert path.is_dir() or CANARY.encode() not in path.read_bytes(), path
        assert CANARY not in repr(small.settings)

    def test_a_post_without_an_answer_fails_at_its_timeout(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            address = SecretStr(f"http://127.0.0.1:{silent.getsockname()[1]}/")
            with pytest.raises(NotPosted, match="ReadTimeout"):
                post_json(address, {}, "The alert", timeout_s=0.1)


class TestCommand:
    def test_status_posts_new_warnings_and_prints_them(
        self, almanac: Almanac, tmp_path: Path, receiver: Receiver
    ) -> None:
        small = SmallHome(tmp_path / "data")
        small.land(at=datetime.now(UTC) - 4 * DAY)
        merge(small.home)
        given = {"alert_url": receiver.url}
        done = almanac("status", "--alert", **given)
        assert "Posted: +stale" in done.stdout
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
