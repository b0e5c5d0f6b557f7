"""`almanac run` on a service: what one run shows and leaves, its errors, and Ctrl-C."""

import errno
import json
import os
import re
import signal
import subprocess
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path

import dagster as dg
import duckdb
import pytest

from almanac import console
from application.cli.application import APPLICATION
from application.cli.run_command import name_program
from application.daily_run import RunTime, find_last_day, find_missed_polls, plan_run_times
from assets.layout import step_failure
from catalog.sandbox.sandbox import Sandbox
from pipeline.automation import jobs
from pipeline.health.facts import RUN_NOTE, RunNote
from pipeline.instance import open_instance
from tests import in_process
from tests.hangs import HANGS_AFTER_S, wait_for
from tests.pipeline.conftest import Almanac, command_line_in
from tests.pipeline.small_home import SmallHome
from tests.test_cli import ALMANAC, environment
from warehouse.errors import DISK_ADVICE
from warehouse.files.documents import read_note
from warehouse.home import Home

NOW = datetime(2026, 3, 10, 9, 30, tzinfo=UTC)


def given_for(sandbox: Sandbox, **key: int) -> dict[str, str]:
    return {
        "base_url": sandbox.base_url,
        "api_key": sandbox.new_key("enterprise", **key),
        "plan": "elite",
        "coins": "bitcoin",
        "max_clock_skew_days": "3",
    }


@dataclass(frozen=True)
class FinishedRun:
    """A run, what it printed, and the settings for more commands on its home."""

    home: Home
    given: dict[str, str]
    today: date
    output: str
    progress: list[str]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory, almanac_sandbox: Sandbox) -> FinishedRun:
    """A run of a service whose date is months from the machine's, and whose coins are cut."""
    home, today = Home(tmp_path_factory.mktemp("ran") / "home"), datetime.now(UTC).date()
    logs = home.state / "requests"
    logs.mkdir(parents=True)
    for ago in (59, 61):
        (logs / f"{today - timedelta(days=ago)}.jsonl").touch()
    given = {**given_for(almanac_sandbox), "home": str(home.root)}
    almanac_sandbox.faults.set("shift_rows~/v2/coins")
    with pytest.MonkeyPatch.context() as patched:
        almanac = command_line_in(home.root.parent, tmp_path_factory.mktemp("machine"), patched)
        patched.setattr(in_process, "HANGS_AFTER_S", 0.02)  # The first line of progress.
        patched.setattr(console, "_NEXT_LINES_S", 0.02)
        done = almanac("run", "--days", "5", **given)
    almanac_sandbox.faults.clear()
    assert " s)\n" not in done.stdout
    return FinishedRun(home, given, today, done.output, done.stderr.splitlines())


def test_a_run_is_of_the_machines_day_and_says_so_where_the_services_date_is_implausible(
    ran: FinishedRun, almanac: Almanac
) -> None:
    assert ran.home.landing.days() == [ran.today]
    assert "Undated: " in ran.output
    (line,) = [line for line in ran.output.splitlines() if line.startswith("Partial: ")]
    assert re.search(r"\d{8}T\d{6}Z-coins-[0-9a-f]+: \S", line)
    found = json.loads(almanac("status", "--json", **ran.given).stdout)
    assert "batches" in {warning["kind"] for warning in found["warnings"]}
    batch_id = ran.home.landing.batch_ids()[0]
    assert "is ignored" in almanac("batches", "list", batch_id, **ran.given).output
    assert "sent no plausible Date" in almanac("doctor", code=1, **ran.given).output


def test_a_run_ends_with_the_next_commands(ran: FinishedRun) -> None:
    next_ones = ran.output.splitlines()[-3:]
    assert next_ones[0] == "Next: almanac serve   pages, calendar and API"
    assert [line.split()[:2] for line in next_ones[1:]] == [["almanac", "ui"], ["almanac", "sql"]]


def test_a_run_without_a_terminal_prints_its_progress_in_plain_lines(ran: FinishedRun) -> None:
    lines = [line for line in ran.progress if re.search(r"\.\.\. \(\d+ s\)$", line)]
    assert lines[0].startswith("Opening the home and the service ... ("), lines
    assert any(re.search(r"\d\d:\d\d, 1 of 1: coins \d", line) for line in lines), lines


def test_a_run_deletes_old_request_logs_and_writes_the_note_of_failed_runs(
    ran: FinishedRun, almanac: Almanac
) -> None:
    logs = {path.stem for path in (ran.home.state / "requests").iterdir()}
    assert str(ran.today - timedelta(days=59)) in logs
    assert str(ran.today - timedelta(days=61)) not in logs
    note = read_note(ran.home.state_storage, RUN_NOTE, RunNote)
    assert note is not None and note.failed == () and note.daemon_at is None
    assert "Failed runs" in almanac("status", **ran.given).stdout
    assert not (ran.home.dagster / "storage").exists(), "the terminal is the command's own"


def test_a_quota_that_runs_out_is_no_error_and_lands_the_received_rows(
    almanac: Almanac, almanac_sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise PermissionError("it may not be deleted")

    monkeypatch.setattr(jobs, "prune_files", fail)
    given = {**given_for(almanac_sandbox, monthly_quota=7), "max_clock_skew_days": "36500"}
    almanac_sandbox.forget_requests()
    done = almanac("run", "--json", "--strict", code=1, page_size="2", **given)
    asked = [request.path.rpartition("/v2/")[2] for request in almanac_sandbox.requests]
    assert asked == ["usage", "events", "events/export", *["events"] * 4], "the best first"
    assert (
        "A day takes about 40 requests: export 2, events 16, cancellations 5, categories 1, coins "
        "16; 6 are left, so these are deferred in whole or in part: events, cancellations, "
        "categories, coins." in done.stderr
    )
    summary = json.loads(done.stdout)
    late = ("events", "cancellations", "categories", "coins")
    assert summary["deferred_pulls"] == [f"2026-03-02 landed_{feed}" for feed in late]
    assert summary["days"] == ["2026-03-02"]
    assert any("deferred" in note for note in summary["notes"])
    assert summary["rows"] > 0
    assert summary["quota_left"] == 0
    assert "Old files could not be deleted: it may not be deleted" in done.stderr
    summary = json.loads(almanac("run", "--json", **given).stdout)
    assert "quota" in summary["deferred"]
    assert summary["resume_at"].startswith("2026-04-01")


def test_errors_are_one_line(tmp_path: Path, almanac: Almanac, almanac_sandbox: Sandbox) -> None:
    home = tmp_path / "data"
    lone = almanac("run", code=2, base_url="https://api.example.com")
    assert "ALMANAC_BASE_URL is set, but ALMANAC_API_KEY is not" in lone.stderr
    refused = almanac("run", code=1, base_url=almanac_sandbox.base_url, api_key="canary-9")
    assert "Check the API key" in refused.stderr
    assert Home(home).stamp() is None, "a run that was never answered leaves no stamp"
    (home / "home.json").write_text('{"source": "https://other.example", "format": 1}')
    (home / "landing" / "batches" / "2026-03-01").mkdir(parents=True)
    other = almanac("run", code=1)
    assert "holds data of https://other.example" in other.stderr
    for done in (lone, refused, other):
        assert done.stderr.splitlines()[-1].startswith("almanac: ")
        assert "canary-9" not in done.stderr


def test_ctrl_c_is_one_line_and_what_was_landed_stands(
    tmp_path: Path, almanac_sandbox: Sandbox
) -> None:
    home = tmp_path / "home"
    given = {**given_for(almanac_sandbox), "max_clock_skew_days": "36500"}
    almanac_sandbox.faults.set("slow=0.5")
    process = subprocess.Popen(
        [*ALMANAC, "run"],
        cwd=tmp_path,
        env={
            **environment(home),
            **{f"ALMANAC_{name.upper()}": value for name, value in given.items()},
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        wait_for(lambda: Home(home).landing.batch_ids() or process.poll() is not None)
        # To all of its processes, as a terminal does.
        os.killpg(process.pid, signal.SIGINT)
        output, errors = process.communicate(timeout=HANGS_AFTER_S)
    finally:
        process.kill()
        process.wait()
        almanac_sandbox.faults.clear()
    assert (process.returncode, output) == (130, "")
    # A busy machine shows what the command waits for before.
    assert errors.splitlines()[-1] == (
        "Interrupted. Landed data is kept; run `almanac run` again to resume."
    )
    assert Home(home).landing.batch_ids()
    with open_instance(Home(home)) as instance:
        (newest,) = instance.get_runs(limit=1)
    assert newest.status is dg.DagsterRunStatus.CANCELED


def test_an_empty_home_runs_the_days_before_today_with_polls_and_ends_now() -> None:
    found = plan_run_times(3, now=NOW, last_day=None)
    assert [f"{instant.at:%d %H:%M} {instant.kind}" for instant in found] == [
        *("08 06:00 day", "08 12:00 poll", "08 18:00 poll"),
        *("09 06:00 day", "09 12:00 poll", "09 18:00 poll"),
        "10 09:30 day",
    ]


def test_a_day_that_failed_is_pulled_again_by_the_next_run(tmp_path: Path) -> None:
    small = SmallHome(tmp_path / "data")
    assert find_last_day(small.home) is None
    for feed in ("events", "cancellations", "coins"):
        small.land(feed)
    last = small.home.landing.days()[-1]
    assert find_last_day(small.home) == last - timedelta(days=1), "without its export"
    small.land("export")
    assert find_last_day(small.home) == last


def test_polls_of_a_day_that_a_killed_run_left_out_come_first(tmp_path: Path) -> None:
    small = SmallHome(tmp_path / "data")
    day, (morning, noon, evening) = NOW.date() - timedelta(days=2), (6, 12, 18)
    landed = {morning: ("export", "events", "cancellations", "coins"), noon: ("events",)}
    for hour, feeds in landed.items():
        for feed in feeds:
            small.land(feed, at=datetime.combine(day, time(hour, tzinfo=UTC)))
    missed = find_missed_polls(small.home, day)
    assert [each.hour for each in missed] == [noon, evening], "noon lacks the cancellations"
    for days, polls in ((3, 2), (1, 0)):
        found = plan_run_times(days, now=NOW, last_day=day, missed=missed)
        assert [each.at.date() for each in found].count(day) == polls
    for feed in ("events", "cancellations"):
        small.land(feed, at=datetime.combine(day, time(noon, tzinfo=UTC)))
    assert [each.hour for each in find_missed_polls(small.home, day)] == [evening]
    assert find_missed_polls(small.home, day + timedelta(days=1)) == []


@pytest.mark.parametrize("kind", [OSError, duckdb.IOException])
def test_a_full_disk_has_the_same_advice_in_each_command_and_in_dagster(kind: type) -> None:
    text = os.strerror(errno.ENOSPC)
    error = OSError(errno.ENOSPC, text) if kind is OSError else kind(text)
    advice = f"{text}. {DISK_ADVICE}"
    assert APPLICATION.explain(error) == (advice, 1)
    assert (step_failure(error).description or "").endswith(advice)
    assert "Check the free space" not in str(step_failure(OSError(errno.EACCES, "no")))


def test_a_run_resumes_on_the_day_after_the_last_one() -> None:
    def days(last_day: date) -> list[date]:
        return [
            instant.at.date()
            for instant in plan_run_times(7, now=NOW, last_day=last_day)
            if instant.kind == "day"
        ]

    today = NOW.date()
    assert days(today - timedelta(days=2)) == [today - timedelta(days=1), today]
    assert days(today) == [today]
    assert days(today + timedelta(days=5)) == [today]
    assert len(days(date(2020, 1, 1))) == 7
    assert plan_run_times(1, now=NOW, last_day=None) == [RunTime(NOW, "day")]


def test_hints_name_a_program_that_the_shell_finds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    called = Path(".venv/bin/almanac")
    monkeypatch.chdir(tmp_path)
    called.parent.mkdir(parents=True)
    called.touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert name_program(str(called)) == ".venv/bin/almanac"
    monkeypatch.setenv("PATH", str(tmp_path / called.parent))
    assert name_program(str(called)) == "almanac"
    assert name_program("/somewhere/application/__main__.py") == "almanac"
