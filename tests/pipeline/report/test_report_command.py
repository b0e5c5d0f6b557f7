"""`almanac report`, its page in the documentation, and the asset `daily_report`."""

import json
import re
import shlex
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster import build_sensor_context

from pipeline.automation.daily_report import NAME, decide_report
from pipeline.automation.run_decisions import JobHistory
from pipeline.build import build_definitions
from pipeline.instance import instance_of
from pipeline.report.report_file import DAILY, read_marks
from tests.pipeline.conftest import Almanac
from tests.pipeline.homes_in_days import QUIET, failure_of, settings_of
from tests.pipeline.report.reported_home import NOW, PULLS, ReportedHome, make_reported_home
from tests.pipeline.small_home import DAY

DOCS = Path(__file__).parents[3] / "docs" / "report.md"
COMMANDS = [
    line.partition(" #")[0].strip()
    for block in re.findall(r"```sh\n(.*?)```", DOCS.read_text(), re.DOTALL)
    for line in block.splitlines()
]


@pytest.fixture(scope="module")
def unchanged(tmp_path_factory: pytest.TempPathFactory) -> ReportedHome:
    return make_reported_home(tmp_path_factory.mktemp("unchanged") / "data")


@pytest.fixture
def reported(tmp_path: Path) -> ReportedHome:
    return make_reported_home(tmp_path / "data")


def test_report_writes_a_file_here_and_says_so(
    reported: ReportedHome, almanac: Almanac, tmp_path: Path
) -> None:
    done = almanac("report")
    (file,) = tmp_path.glob("report-*.html")
    assert done.stdout.startswith(f"Wrote {file.name} (")
    assert file.read_text().startswith("<!doctype html>")
    assert file.stat().st_mode & 0o077 == 0
    assert len(read_marks(reported.small.home)) == 1


def test_report_for_programs_has_path_and_numbers(
    reported: ReportedHome, almanac: Almanac, tmp_path: Path
) -> None:
    done = almanac(
        *("report", "-o", "a.md", "--since", PULLS[2].isoformat(), "--as-of", NOW.isoformat()),
        "--json",
    )
    found = json.loads(done.stdout)
    assert found["file"] == "a.md"
    assert found["bytes"] == (tmp_path / "a.md").stat().st_size
    assert found["coming"] == {"exact": 4, "estimated": 1, "in_progress": 0}
    assert found["changes"]["rescheduled"] == {"changes": 3, "events": 2}
    assert read_marks(reported.small.home) == {}


def test_report_on_standard_output_is_the_report_alone(
    reported: ReportedHome, almanac: Almanac, tmp_path: Path
) -> None:
    done = almanac("report", "--output", "-", "--format", "md", "--no-mark")
    assert done.stdout.startswith("# Crypto events: report of ")
    assert read_marks(reported.small.home) == {}
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (("--since", "soon"), 2, "--since 'soon': expected a form such as 2026-03-01"),
        (("--as-of", "2999-01-01"), 2, "--as-of '2999-01-01'"),
        (("--as-of", "2020-01-01"), 1, "before the first pull of events"),
        (("--as-of", "2026-03-10", "--mark"), 2, "a past report has no next one"),
        (("--plots", "x"), 2, "--plots needs --format md"),
        (("--coins", " , "), 2, "--coins is empty"),
        (("--coins", "nothing-like-it"), 2, "nothing-like-it"),
        (("--min-impact", "11"), 2, "expected a score from 0 to 10"),
        (("--output", "missing/report.html"), 1, "missing: No such file or directory"),
        (("--format", "md", "--plots", "/elsewhere"), 2, "expected a folder beside or below"),
    ],
    ids=lambda value: "_".join(value) if isinstance(value, tuple) else None,
)
def test_wrong_argument_is_one_line_and_changes_nothing(
    unchanged: ReportedHome, almanac: Almanac, words: tuple[str, ...], code: int, text: str
) -> None:
    done = almanac("report", *words, code=code, home=str(unchanged.file.parent))
    assert text in done.stderr
    assert done.stderr.count("\n") == 1
    assert read_marks(unchanged.small.home) == {}


def test_documentation_has_the_commands(
    reported: ReportedHome, almanac: Almanac, tmp_path: Path
) -> None:
    assert len(COMMANDS) >= 5
    for command in COMMANDS:
        program, *words = shlex.split(command)
        assert program == "almanac"
        # The home of this test is of March 2026.
        almanac(*(word.replace("2026-03-01", "2026-03-10") for word in words))
    for name in ("weekly.md", "mine.html", "past.html"):
        assert (tmp_path / name).stat().st_size > 1_000
    linked = re.findall(r"!\[.*?\]\(<(.*?)>\)", (tmp_path / "weekly.md").read_text())
    assert linked
    assert all((tmp_path / name).read_text().startswith("<svg") for name in linked)


def reports_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*.html"))


def materialise(
    made: ReportedHome, instance: dg.DagsterInstance, now: datetime
) -> dg.ExecuteInProcessResult:
    definitions = build_definitions(made.small.settings, clock=lambda: now)
    return definitions.resolve_job_def("report").execute_in_process(
        instance=instance, run_config=QUIET, raise_on_error=False
    )


def test_asset_writes_reports_that_follow_each_other_and_keeps_the_newest(tmp_path: Path) -> None:
    home = tmp_path / "data"
    made = make_reported_home(home, report_dir=home / "reports", keep_reports=2)
    (home / "reports").mkdir()
    (home / "reports" / "notes.html").write_text("mine")
    with instance_of(made.small.home) as instance:
        for n, days in enumerate((17, 19, 21)):
            made.publish(days=days)
            done = materialise(made, instance, NOW + timedelta(minutes=n))
            assert done.success
        event = instance.get_latest_materialization_event(dg.AssetKey(NAME))
        assert event is not None
        assert event.asset_materialization is not None
        metadata = {
            name: value.value for name, value in event.asset_materialization.metadata.items()
        }
    newest = "almanac-report-20260318T120200Z.html"
    assert reports_in(home / "reports") == [
        "almanac-report-20260318T120100Z.html",
        newest,
        "notes.html",
    ]
    assert metadata["file"] == f"reports/{newest}"
    assert metadata["bytes"] == (home / "reports" / newest).stat().st_size
    assert metadata["since"] == PULLS[18].timestamp()
    assert metadata["changes"] == 2
    assert "Most important" in str(metadata["preview"])
    assert str(tmp_path) not in repr(metadata)
    assert read_marks(made.small.home).keys() == {DAILY}


def test_folder_that_cannot_be_written_fails_the_asset_and_moves_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    made = make_reported_home(tmp_path / "data", report_dir=tmp_path / "file")
    with instance_of(made.small.home) as instance:
        done = materialise(made, instance, NOW)
    assert not done.success
    assert "File exists" in failure_of(done)
    assert read_marks(made.small.home) == {}


def test_there_is_no_asset_job_or_sensor_without_the_setting(tmp_path: Path) -> None:
    definitions = build_definitions(settings_of(tmp_path))
    repository = definitions.get_repository_def()
    assert dg.AssetKey(NAME) not in repository.asset_graph.get_all_asset_keys()
    assert "report" not in {job.name for job in repository.get_all_jobs()}
    assert "report" not in {sensor.name for sensor in repository.sensor_defs}


def test_sensor_waits_for_the_daily_run(tmp_path: Path) -> None:
    made = make_reported_home(tmp_path / "data", report_dir=tmp_path / "reports")
    definitions = build_definitions(made.small.settings, clock=lambda: NOW)
    sensor = definitions.resolve_sensor_def("report")
    with (
        instance_of(made.small.home) as instance,
        build_sensor_context(instance=instance) as context,
    ):
        result = sensor.evaluate_tick(context)
    assert result.run_requests == []
    assert result.skip_message == "No daily run has ended yet."


LAST = NOW - DAY


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"pulled_at": None}, "No daily run has ended yet."),
        ({"pulled_at": LAST}, "is newer than the daily run."),
        ({"last": NOW - timedelta(hours=19)}, "The next report is due at"),
        ({"merging": True}, "A run is in progress"),
        ({"history": JobHistory(NOW - timedelta(minutes=20), 1)}, "The next attempt is at 12:10"),
    ],
    ids=["no_pull", "reported", "early", "merging", "failed"],
)
def test_report_waits_with_a_reason(given: dict[str, Any], reason: str) -> None:
    values: dict[str, Any] = {
        "last": LAST,
        "pulled_at": NOW - timedelta(minutes=1),
        "history": JobHistory(),
    }
    values |= {"merging": False, **given}
    decision = decide_report(
        *(values["last"], values["pulled_at"], values["history"]),
        now=NOW,
        merging=values["merging"],
    )
    assert decision.request is None
    assert reason in decision.reason


def test_report_that_failed_is_requested_again_under_another_key() -> None:
    pulled_at = NOW - timedelta(hours=2)
    histories = (JobHistory(), JobHistory(NOW - timedelta(hours=1), 1))
    requests = [
        decide_report(LAST, pulled_at, history, now=NOW, merging=False).request
        for history in histories
    ]
    keys = {request.run_key for request in requests if request is not None}
    assert len(keys) == 2
