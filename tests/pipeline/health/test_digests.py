"""Digests that are posted: each change once, no day lost, by sensor, job and command line."""

import json
import logging
import traceback
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster import build_sensor_context
from pydantic import SecretStr

from assets.layout import Layout
from pipeline.automation.health import posting_sensors, why_digest_waits
from pipeline.health.notices import (
    DigestRecord,
    NotPosted,
    is_slack,
    make_digest_body,
    post_digest,
    read_last_digest,
)
from pipeline.instance import instance_of
from pipeline.settings import SettingsError
from tests.almanac.publications import publish_by_hand
from tests.pipeline.conftest import Almanac
from tests.pipeline.health.receiving import Receiver, receiving
from tests.pipeline.homes_in_days import QUIET
from tests.pipeline.small_home import DAY, NOW, SmallHome
from tests.warehouse.answers.handmade import Known
from warehouse.errors import WarehouseError

CANARY = "canary-hook-81c5"
FIRST = NOW - timedelta(days=3)
PULLS = [FIRST + DAY * n for n in range(4)]
VERSIONS = [
    Known(event_id="a", title="a", known_from=FIRST, date=NOW + DAY),
    *(
        Known(
            event_id="a",
            title="a",
            version=n + 1,
            known_from=at,
            date=NOW + DAY * (n + 1),
            displayed_date=f"day {n}",
            change_kinds=("rescheduled",),
        )
        for n, at in enumerate(PULLS)
        if n
    ),
]


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
def published(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """What was published after each pull."""
    folder = tmp_path_factory.mktemp("published")
    return [
        publish_by_hand(folder / f"{number}.duckdb", VERSIONS, pulls=PULLS, at=at)
        for number, at in enumerate(PULLS)
    ]


@pytest.fixture
def small(tmp_path: Path, receiver: Receiver) -> SmallHome:
    return SmallHome(tmp_path / "home", digest_url=SecretStr(receiver.url))


def publish(small: SmallHome, file: Path) -> None:
    small.home.warehouse.unlink(missing_ok=True)
    small.home.warehouse.hardlink_to(file)


def dates_in(bodies: list[dict[str, Any]]) -> list[list[str]]:
    return [[row["new_value"] for row in body["rows"]] for body in bodies]


def test_each_change_is_in_one_digest_and_a_missed_day_is_in_the_next(
    small: SmallHome, receiver: Receiver, published: list[Path]
) -> None:
    publish(small, published[1])
    assert post_digest(small.settings, small.home, PULLS[1] + timedelta(hours=1)) is not None
    assert post_digest(small.settings, small.home, PULLS[1] + timedelta(hours=2)) is None
    # Nothing is posted on the day of the third pull.
    publish(small, published[3])
    posted = post_digest(small.settings, small.home, NOW)
    assert posted == "2026-02-28 12:00 to 2026-03-02 12:00 UTC: 1 rescheduled"
    assert post_digest(small.settings, small.home, NOW + DAY) is None
    assert dates_in(receiver.bodies) == [["day 1 2026"], ["day 2 2026", "day 3 2026"]]
    assert read_last_digest(small.home) == DigestRecord(until=PULLS[3], at=NOW)


def test_the_body_says_what_it_covers_and_names_no_folder(
    small: SmallHome, receiver: Receiver, published: list[Path]
) -> None:
    publish(small, published[3])
    post_digest(small.settings, small.home, NOW)
    (body,) = receiver.bodies
    assert body["text"] == ("Almanac, 2026-03-01 12:00 to 2026-03-02 12:00 UTC: 1 rescheduled.")
    assert (body["since"], body["until"]) == ("2026-03-01T12:00:00Z", "2026-03-02T12:00:00Z")
    assert body["source"] == "sandbox:1"
    assert body["counts"] == {"rescheduled": {"changes": 1, "events": 1}}
    assert str(small.home.root) not in json.dumps(body)


@pytest.mark.parametrize("status", [301, 404, 500])
def test_a_digest_that_the_receiver_rejects_is_due_again(
    small: SmallHome, receiver: Receiver, published: list[Path], status: int
) -> None:
    publish(small, published[2])
    receiver.status = status
    with pytest.raises(NotPosted, match=f"the response was {status}, expected 2xx"):
        post_digest(small.settings, small.home, NOW)
    assert (len(receiver.paths), read_last_digest(small.home)) == (1, None)
    receiver.status = 200
    assert post_digest(small.settings, small.home, NOW) is not None
    assert dates_in(receiver.bodies) == [["day 2 2026"]]


def test_a_failure_names_no_address_and_refers_to_none(
    small: SmallHome, published: list[Path], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    publish(small, published[1])
    address = SecretStr(f"http://127.0.0.1:9/{CANARY}")
    settings = small.settings.model_copy(update={"digest_url": address})
    with pytest.raises(NotPosted, match="no response") as caught:
        post_digest(settings, small.home, NOW)
    assert (caught.value.__cause__, caught.value.__context__) == (None, None)
    assert CANARY not in str(caught.value) + caplog.text + repr(settings)


def test_a_damaged_record_begins_with_the_last_day(
    small: SmallHome, receiver: Receiver, published: list[Path]
) -> None:
    publish(small, published[3])
    post_digest(small.settings, small.home, NOW)
    (small.home.state / "digest.json").write_text("{}")
    assert post_digest(small.settings, small.home, NOW) is not None
    assert dates_in(receiver.bodies) == [["day 3 2026"]] * 2


def test_without_a_published_file_or_an_address_nothing_is_sent(
    small: SmallHome, receiver: Receiver, tmp_path: Path
) -> None:
    with pytest.raises(WarehouseError, match="there is no warehouse"):
        post_digest(small.settings, small.home, NOW)
    other = SmallHome(tmp_path / "other")
    with pytest.raises(SettingsError, match="ALMANAC_DIGEST_URL is not set"):
        post_digest(other.settings, other.home, NOW)
    assert receiver.paths == []


def test_a_webhook_of_slack_gets_a_message_of_its_form(
    small: SmallHome, published: list[Path]
) -> None:
    assert is_slack(SecretStr("https://hooks.slack.com/services/T0/B0/x"))
    assert not is_slack(SecretStr("https://hooks.slack.com.example/services/T0/B0/x"))
    publish(small, published[3])
    from almanac.digest import digest_of
    from almanac.reader import Reader

    reader = Reader(small.home.warehouse, clock=lambda: NOW)
    body = make_digest_body(digest_of(reader, since=FIRST), small.home, is_chat=True)
    reader.close()
    assert body.keys() == {"text", "blocks"}
    assert {part["type"] for part in body["blocks"]} == {"section", "context"}


def test_a_digest_is_due_once_a_day_after_the_daily_run() -> None:
    last = DigestRecord(until=NOW - DAY, at=NOW - DAY)
    lately = DigestRecord(until=NOW, at=NOW - timedelta(hours=19))
    pulled_at = NOW - timedelta(minutes=5)
    assert why_digest_waits(last, pulled_at, now=NOW, merging=False) == ""
    assert why_digest_waits(None, pulled_at, now=NOW, merging=False) == ""
    assert why_digest_waits(lately, pulled_at, now=NOW, merging=False) == (
        "The next digest is due at 2026-03-02 13:00 UTC."
    )
    before = NOW - DAY - timedelta(hours=1)
    assert "of 2026-03-01 12:00 UTC is newer" in why_digest_waits(
        last, before, now=NOW, merging=False
    )
    assert why_digest_waits(None, None, now=NOW, merging=False) == "No daily run has ended yet."
    assert "is not merged yet" in why_digest_waits(last, pulled_at, now=NOW, merging=True)


@dg.job(name="daily", executor_def=dg.in_process_executor)
def daily() -> None:
    """Stands for the job of this name: only that it has ended counts."""


def tick(small: SmallHome, instance: dg.DagsterInstance, now: datetime | None = None) -> str:
    """Evaluate the sensor of digests; return what it says."""
    at = now or datetime.now(UTC)
    (sensor,) = posting_sensors(Layout(), small.settings, small.home, lambda: at)
    result = sensor(build_sensor_context(instance=instance))
    assert isinstance(result, dg.SkipReason)
    return str(result.skip_message)


class TestSensor:
    def test_without_an_address_there_is_no_sensor(self, tmp_path: Path) -> None:
        small = SmallHome(tmp_path / "other")
        assert posting_sensors(Layout(), small.settings, small.home, lambda: NOW) == []

    def test_a_digest_waits_until_every_batch_is_merged(
        self, small: SmallHome, published: list[Path]
    ) -> None:
        publish(small, published[3])
        (batch,) = small.land("events")
        with instance_of(small.home) as instance:
            assert daily.execute_in_process(instance=instance, run_config=QUIET).success
            assert "a batch is not merged yet" in tick(small, instance)
            small.home.landing.clear_pending(batch.batch_id)
            assert tick(small, instance).startswith("Posted: 2026-03-01 12:00 to ")

    def test_a_receiver_that_is_down_fails_the_tick_and_gets_the_digest_later(
        self, small: SmallHome, receiver: Receiver, published: list[Path]
    ) -> None:
        publish(small, published[3])
        with instance_of(small.home) as instance:
            assert "No daily run has ended yet" in tick(small, instance)
            assert daily.execute_in_process(instance=instance, run_config=QUIET).success
            receiver.status = 503
            with pytest.raises(NotPosted, match="the response was 503, expected 2xx") as caught:
                tick(small, instance)
            assert CANARY not in "".join(traceback.format_exception(caught.value))
            receiver.status = 200
            later = datetime.now(UTC) + DAY
            assert tick(small, instance, later).startswith("Posted: 2026-")
            assert "is newer" in tick(small, instance, later)
        assert len(receiver.bodies) == 1
        for path in small.home.root.rglob("*"):
            assert path.is_dir() or CANARY.encode() not in path.read_bytes(), path


class TestCommand:
    def test_changes_are_printed_in_each_form(
        self, almanac: Almanac, tmp_path: Path, published: list[Path]
    ) -> None:
        small = SmallHome(tmp_path / "data")
        publish(small, published[3])
        shown = almanac("changes", "--since", "2026-02-27T12:00", "--kinds", "rescheduled").stdout
        assert "a: a day 2026 → day 1 2026 → day 2 2026 → day 3 2026, 3 days later" in shown
        for form in ("json", "slack"):
            found = almanac("changes", "--since", "2026-03-01", "-F", form).stdout
            assert "1 rescheduled" in json.loads(found)["text"]
        shown = almanac("changes", "--home", str(published[1]), "-F", "markdown").stdout
        assert "nothing changed" in shown
        assert "STALE" in shown
        wrong = almanac("changes", "--kinds", "moved", code=2)
        assert "almanac: kinds='moved'; expected cancelled" in wrong.stderr

    @pytest.mark.parametrize("option", ["--since", "--until", "--coins", "--kinds"])
    def test_an_empty_option_is_refused_and_not_taken_as_none_given(
        self, almanac: Almanac, tmp_path: Path, published: list[Path], option: str
    ) -> None:
        publish(SmallHome(tmp_path / "data"), published[3])
        assert "expected" in almanac("changes", option, "", code=2).stderr

    def test_post_posts_once_and_says_what(
        self, almanac: Almanac, tmp_path: Path, receiver: Receiver, published: list[Path]
    ) -> None:
        publish(SmallHome(tmp_path / "data"), published[3])
        first = almanac("digest", digest_url=receiver.url)
        assert first.stdout == (
            "Posted: 2026-03-01 12:00 to 2026-03-02 12:00 UTC: 1 rescheduled.\n"
        )
        second = almanac("digest", digest_url=receiver.url)
        assert second.stdout == "Nothing to post: no pull was published since the last digest.\n"
        assert len(receiver.bodies) == 1

    def test_a_post_that_is_refused_is_one_line_without_the_address(
        self, almanac: Almanac, tmp_path: Path, receiver: Receiver, published: list[Path]
    ) -> None:
        publish(SmallHome(tmp_path / "data"), published[3])
        receiver.status = 500
        failed = almanac("digest", code=1, digest_url=receiver.url)
        assert failed.stderr == (
            "almanac: The digest was not posted: the response was 500, expected 2xx. It will be "
            "retried.\n"
        )
        assert "ALMANAC_DIGEST_URL" in almanac("digest", code=2).stderr
