"""Alerts: what is posted when; and the sensor that posts them and reports asset checks."""

import json
import logging
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import dagster as dg
import pytest
from pydantic import SecretStr

from assets.layout import Layout
from pipeline.automation.health import health_sensor, write_run_note
from pipeline.build import build_definitions
from pipeline.health.facts import RunNote
from pipeline.health.notices import ALERTS, NotPosted, post_json, post_warnings
from pipeline.health.warnings import WARNINGS, read_health
from pipeline.instance import OWNER_TAG, open_instance
from pipeline.settings import SettingsError, read_settings
from tests.pipeline.conftest import Almanac
from tests.pipeline.health.receiving import Receiver, receiving
from tests.pipeline.run_records import report_daemon
from tests.pipeline.small_home import DAY, NOW, PULLED, SmallHome
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
        assert receiver.bodies[1] == {
            "text": f"Almanac, sandbox:1: {BOTH['stale']}.",
            "source": "sandbox:1",
            "at": "2026-03-05T12:00:00Z",
            "warnings": [{"kind": "stale", "text": BOTH["stale"]}],
            "resolved": [],
        }
        assert receiver.bodies[2]["text"] == "Almanac, sandbox:1: Resolved: stale."
        assert receiver.paths[0] == f"/hook?token={CANARY}"

    @pytest.mark.parametrize("status", [301, 500])
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
        (small.home.state / ALERTS).write_text('{"disk": 1}')
        assert post(small, DISK) == ("+disk",), "a damaged record"

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


class TestCommand:
    def test_status_posts_new_warnings_and_prints_them(
        self, almanac: Almanac, tmp_path: Path, receiver: Receiver
    ) -> None:
        small = SmallHome(tmp_path / "data")
        small.land(at=datetime.now(UTC) - 4 * DAY)
        merge(small.home)
        given = {"alert_url": receiver.url}
        receiver.status = 500
        done = almanac("status", "--alert", code=1, **given)
        assert "Batches to merge" in done.stdout
        assert done.stderr == (
            "almanac: The alert was not posted: the response was 500, expected 2xx. "
            "It will be retried.\n"
        )
        receiver.status = 204
        done = almanac("status", "--alert", **given)
        assert "Posted: +stale" in done.stdout
        assert CANARY not in done.output
        record = json.loads(almanac("status", "--alert", "--json", **given).stdout)
        assert record["posted"] == []
        assert len(receiver.bodies) == 1


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


TODAY = datetime.now(UTC)
LAYOUT = Layout(key_prefix=("almanac",))
MERGED = dg.AssetCheckKey(LAYOUT.key("health"), "batches")


@pytest.fixture
def late(tmp_path: Path) -> SmallHome:
    """A home with a batch that should have been merged an hour ago."""
    (tmp_path / "home").mkdir(mode=0o700)
    late = SmallHome(tmp_path / "home")
    late.land(*PULLED, at=TODAY - DAY)
    merge(late.home)
    late.land("coins", at=TODAY - timedelta(hours=2))
    return late


def tick(late: SmallHome, instance: dg.DagsterInstance) -> dg.SensorResult:
    """Evaluate the sensor, and store the events that it reports, as the daemon does."""
    sensor = health_sensor(LAYOUT, late.settings, late.home, lambda: TODAY)
    result = sensor(dg.build_sensor_context(instance=instance))
    assert isinstance(result, dg.SensorResult) and not result.run_requests
    for event in evaluations(result).values():
        instance.report_runless_asset_event(event)
    return result


def evaluations(result: dg.SensorResult) -> dict[str, dg.AssetCheckEvaluation]:
    return {
        event.check_name: event
        for event in result.asset_events
        if isinstance(event, dg.AssetCheckEvaluation) and event.partition is None
    }


def test_the_sensor_reports_and_posts_a_warning_when_it_begins_and_when_it_ends(
    late: SmallHome,
) -> None:
    def posted() -> str:
        return str(tick(late, instance).skip_reason)

    with receiving() as receiver, dg.DagsterInstance.ephemeral() as instance:
        first = tick(late, instance)
        assert "Warnings: batches. Next check in 60 s." in str(first.skip_reason)
        late.settings = late.settings.model_copy(update={"alert_url": SecretStr(receiver.url)})
        receiver.status = 500
        assert "the response was 500" in posted()
        receiver.status = 200
        assert ["Posted: +batches." in posted(), "Posted: nothing." in posted()] == [True, True]
        reported = evaluations(first)
        assert reported.keys() == WARNINGS.keys()
        assert [name for name, each in reported.items() if not each.passed] == ["batches"]
        assert "almanac merge" in str(reported["batches"].description)
        assert tick(late, instance).asset_events == []
        merge(late.home)
        assert [each.passed for each in evaluations(tick(late, instance)).values()] == [True]
        history = instance.event_log_storage.get_asset_check_execution_history(MERGED, limit=5)
        assert [record.status.value for record in history] == ["SUCCEEDED", "FAILED"]
        assert tick(late, instance).asset_events == []
        # A run evaluated the check while its own work still counted as failed.
        instance.report_runless_asset_event(reported["batches"])
        assert evaluations(tick(late, instance))["batches"].passed
    assert [body["resolved"] for body in receiver.bodies] == [[], ["batches"]]


def run_note(late: SmallHome, instance: dg.DagsterInstance) -> RunNote:
    write_run_note(late.home, LAYOUT, instance, datetime.now(UTC))
    found = read_health(late.settings, late.home, datetime.now(UTC)).runs
    assert found is not None
    return found


def test_a_failed_run_is_noted_until_the_same_partition_succeeds_and_so_is_the_daemon(
    late: SmallHome,
) -> None:
    def end(part: str, status: dg.DagsterRunStatus, owner: str = "almanac/almanac") -> None:
        tags = {OWNER_TAG: owner, "dagster/partition": part}
        run = dg.DagsterRun(job_name="almanac_daily", status=status, tags=tags)
        instance.run_storage.add_run(run)

    at = datetime.now(UTC) - timedelta(minutes=20)
    with open_instance(late.home) as instance:
        assert run_note(late, instance).daemon_at is None
        end("2026-03-01", dg.DagsterRunStatus.FAILURE)
        end("2026-03-02", dg.DagsterRunStatus.FAILURE, "another")
        (failed,) = run_note(late, instance).failed
        assert (failed.job, failed.part) == ("almanac_daily", "2026-03-01")
        end("2026-03-03", dg.DagsterRunStatus.SUCCESS)
        assert len(run_note(late, instance).failed) == 1
        end("2026-03-01", dg.DagsterRunStatus.SUCCESS)
        report_daemon(late.home, at)
        assert run_note(late, instance).failed == ()
        assert run_note(late, instance).daemon_at == at


def test_runs_of_the_jobs_do_not_evaluate_the_warnings(late: SmallHome) -> None:
    definitions = build_definitions(late.settings, layout=LAYOUT)
    for name in ("almanac_daily", "almanac_merge"):
        steps = {node.name for node in definitions.resolve_job_def(name).nodes}
        assert steps and "almanac_health" not in steps
