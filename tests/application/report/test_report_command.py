"""`almanac report` and its posts, the documentation, and the asset `daily_report`."""

import json
import re
import shlex
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import dagster as dg
import pytest
from dagster import build_sensor_context
from pydantic import SecretStr

from application.web.html_report import DAILY, DIGEST, post_digest, read_marks
from pipeline.automation.daily_report import NAME
from pipeline.build import build_definitions
from pipeline.health.notices import NotPosted
from pipeline.instance import instance_of
from tests.application.report.reported_home import NOW, PULLS, ReportedHome, make_reported_home
from tests.pipeline.conftest import Almanac
from tests.pipeline.health.receiving import Receiver, receiving
from tests.pipeline.homes_in_days import QUIET, settings_of
from tests.pipeline.small_home import DAY

DOCS = Path(__file__).parents[3] / "docs" / "report.md"
COMMANDS = [
    line.partition(" #")[0].strip()
    for block in re.findall(r"```sh\n(.*?)```", DOCS.read_text(), re.DOTALL)
    for line in block.splitlines()
]


@pytest.fixture
def reported(tmp_path: Path) -> ReportedHome:
    return make_reported_home(tmp_path / "data")


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as found:
        yield found


def test_report_writes_a_file_here_and_says_so(
    reported: ReportedHome, almanac: Almanac, tmp_path: Path
) -> None:
    done = almanac("report")
    (file,) = tmp_path.glob("report-*.html")
    assert done.stdout.startswith(f"Wrote {file.name} (")
    assert "changes from 2026-03-11 11:00 to 2026-03-18 11:00 UTC" in done.stdout
    assert file.read_text().startswith("<!doctype html>")
    assert read_marks(reported.small.home) == {}


def test_changes_alone_have_three_formats_and_follow_each_other(
    reported: ReportedHome, almanac: Almanac
) -> None:
    shown = almanac("report", "--since", PULLS[2].isoformat(), "--format", "markdown").stdout
    assert "### Cancelled (1)" in shown
    assert "text" in json.loads(almanac("report", "--format", "json").stdout)
    for _ in range(2):  # Without a new pull, the same period.
        message = json.loads(almanac("report", "--since-last", "--format", "slack").stdout)
        assert "1 cancelled, 2 rescheduled" in message["text"]
    almanac("report", "--since-last", "--coins", "bitcoin", "--format", "json")
    assert len(read_marks(reported.small.home)) == 2


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (("--since", "soon"), 2, "--since 'soon': expected a form such as 2026-03-01"),
        (("--as-of", "2999-01-01"), 2, "2999"),
        (("--as-of", "2020-01-01"), 1, "before the first pull of events"),
        (("--as-of", "2026-03-10", "--since-last"), 2, "can't be used with --since or --as-of"),
        (("--coins", " , "), 2, "--coins is empty"),
        (("--coins", "nothing-like-it"), 2, "nothing-like-it"),
        (("--category", "nothing-like-it"), 2, "nothing-like-it"),
        (("--min-impact", "11"), 2, "expected a score from 0 to 10"),
        (("--output", "missing/report.html"), 1, "missing: No such file or directory"),
        (("--post",), 2, "ALMANAC_DIGEST_URL"),
    ],
    ids=lambda value: "_".join(value) if isinstance(value, tuple) else None,
)
def test_wrong_argument_is_one_line_and_changes_nothing(
    reported: ReportedHome, almanac: Almanac, words: tuple[str, ...], code: int, text: str
) -> None:
    done = almanac("report", *words, code=code)
    assert text in done.stderr
    assert done.stderr.count("\n") == 1
    assert read_marks(reported.small.home) == {}


def test_documentation_has_the_commands(
    reported: ReportedHome, almanac: Almanac, tmp_path: Path, receiver: Receiver
) -> None:
    assert len(COMMANDS) >= 5
    for command in COMMANDS:
        program, *words = shlex.split(command)
        assert program == "almanac"
        # The home of this test is of March 2026.
        given = (word.replace("2026-03-01", "2026-03-10") for word in words)
        almanac(*given, digest_url=receiver.url)
    for name in ("mine.html", "past.html"):
        assert (tmp_path / name).stat().st_size > 1_000
    assert len(receiver.bodies) == 1


def test_post_has_each_change_once_and_a_missed_day_is_in_the_next(
    tmp_path: Path, receiver: Receiver
) -> None:
    made = make_reported_home(tmp_path / "data", digest_url=SecretStr(receiver.url))
    small = made.small
    made.publish(days=19)
    assert post_digest(small.settings, small.home, PULLS[18]) == (
        "2026-03-09 11:00 to 2026-03-16 11:00 UTC: 1 cancelled, 1 created"
    )
    assert post_digest(small.settings, small.home, PULLS[18] + DAY) is None
    made.publish()
    receiver.status = 500
    with pytest.raises(NotPosted, match="the response was 500, expected 2xx") as caught:
        post_digest(small.settings, small.home, NOW)
    assert "canary" not in repr(caught.value)
    receiver.status = 204
    assert post_digest(small.settings, small.home, NOW) == (
        "2026-03-16 11:00 to 2026-03-18 11:00 UTC: 2 rescheduled"
    )
    moved = [[row["event_id"] for row in body["rows"]] for body in receiver.bodies]
    assert moved == [["dropped", "timed"], ["slips", "earlier"]]
    assert receiver.bodies[0]["source"] == "sandbox:1"
    assert str(small.home.root) not in json.dumps(receiver.bodies)


def test_post_by_command_is_one_line(
    reported: ReportedHome, almanac: Almanac, receiver: Receiver
) -> None:
    receiver.status = 500
    failed = almanac("report", "--post", code=1, digest_url=receiver.url)
    assert failed.stderr == (
        "almanac: The digest was not posted: the response was 500, expected 2xx. It will be "
        "retried.\n"
    )
    receiver.status = 204
    assert almanac("report", "--post", digest_url=receiver.url).stdout.startswith("Posted: 2026-")
    again = almanac("report", "--post", digest_url=receiver.url)
    assert again.stdout == "Nothing to post: nothing was published since the last post.\n"


def materialise(
    made: ReportedHome, instance: dg.DagsterInstance, now: datetime
) -> dg.ExecuteInProcessResult:
    definitions = build_definitions(made.small.settings, clock=lambda: now)
    return definitions.resolve_job_def("report").execute_in_process(
        instance=instance, run_config=QUIET, raise_on_error=False
    )


def test_asset_writes_and_posts_what_follows_and_keeps_the_newest(
    tmp_path: Path, receiver: Receiver
) -> None:
    folder = tmp_path / "reports"
    folder.mkdir()
    (folder / "notes.html").write_text("mine")
    for n in range(30):
        (folder / f"almanac-report-202501{n + 1:02}T000000Z.html").write_text("old")
    made = make_reported_home(
        tmp_path / "data", report_dir=folder, digest_url=SecretStr(receiver.url)
    )
    with instance_of(made.small.home) as instance:
        for days, status in ((17, 204), (21, 503), (21, 204)):
            made.publish(days=days)
            receiver.status = status
            done = materialise(made, instance, NOW + timedelta(minutes=days))
            assert done.success is (status == 204)
        event = instance.get_latest_materialization_event(dg.AssetKey(NAME))
    assert event is not None
    assert event.asset_materialization is not None
    metadata = {name: value.value for name, value in event.asset_materialization.metadata.items()}
    names = sorted(path.name for path in folder.iterdir())
    assert names[0] == "almanac-report-20250103T000000Z.html"
    assert names[-2:] == ["almanac-report-20260318T122100Z.html", "notes.html"]
    assert len(names) == 31
    assert metadata["file"] == names[-2]
    # The step that was repeated reports the same period, and posts it once.
    assert metadata["since"] == PULLS[16].timestamp()
    assert metadata["posted"] == "2026-03-14 11:00 to 2026-03-18 11:00 UTC: " + (
        "1 cancelled, 2 rescheduled"
    )
    assert str(tmp_path) not in repr(metadata)
    assert read_marks(made.small.home).keys() == {DAILY, DIGEST}
    assert len(receiver.bodies) == 2


def test_there_is_no_asset_job_or_sensor_without_the_settings(tmp_path: Path) -> None:
    repository = build_definitions(settings_of(tmp_path)).get_repository_def()
    assert dg.AssetKey(NAME) not in repository.asset_graph.get_all_asset_keys()
    assert "report" not in {job.name for job in repository.get_all_jobs()}
    assert "report" not in {sensor.name for sensor in repository.sensor_defs}


@dg.job(name="daily", executor_def=dg.in_process_executor)
def daily() -> None:
    """Stands for the job of this name: only that it succeeded counts."""


def test_sensor_requests_one_report_after_each_daily_run(tmp_path: Path) -> None:
    made = make_reported_home(tmp_path / "data", report_dir=tmp_path / "reports")
    repository = build_definitions(made.small.settings, clock=lambda: NOW).get_repository_def()
    sensor = repository.get_sensor_def("report")
    assert isinstance(sensor, dg.SensorDefinition)
    keys: list[list[str | None]] = []
    with instance_of(made.small.home) as instance:
        cursor = None
        for _ in range(3):
            with build_sensor_context(
                instance=instance, cursor=cursor, repository_def=repository
            ) as context:
                result = sensor.evaluate_tick(context)
            cursor = result.cursor
            keys.append([request.run_key for request in result.run_requests or ()])
            if len(keys) == 1:
                run = daily.execute_in_process(instance=instance, run_config=QUIET)
    assert keys == [[], [run.run_id], []]
