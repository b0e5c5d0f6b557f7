"""`almanac run` as a program."""

import json
import os
import signal
import subprocess
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from application.cli.run import name_program
from application.daily_run import RunTime, plan_run_times
from catalog.sandbox.sandbox import Sandbox
from pipeline.instance import instance_of
from tests.hangs import HANGS_AFTER_S, wait_for, without_steps
from tests.test_cli import ALMANAC, environment
from warehouse.home import Home

NOW = datetime(2026, 3, 10, 9, 30, tzinfo=UTC)


def run(home: Path, *words: str, code: int = 0, **given: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [*ALMANAC, "run", *words],
        cwd=home.parent,
        env={**environment(home), "ALMANAC_COINS": "bitcoin,ethereum", **given},
        capture_output=True,
        text=True,
        timeout=HANGS_AFTER_S,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done


def run_json(home: Path, *words: str, **given: str) -> dict[str, Any]:
    done = run(home, "--json", *words, **given)
    assert without_steps(done.stderr) == ""
    assert done.stdout.count("\n") == 1
    summary: dict[str, Any] = json.loads(done.stdout)
    return summary


def test_a_run_pulls_today_from_a_service_and_a_used_up_quota_is_no_error(
    tmp_path: Path, almanac_sandbox: Sandbox
) -> None:
    key = almanac_sandbox.new_key("enterprise", monthly_quota=1)
    address = {"ALMANAC_BASE_URL": almanac_sandbox.base_url, "ALMANAC_API_KEY": key}
    given = {**address, "ALMANAC_MAX_CLOCK_SKEW_DAYS": "36500"}
    home = tmp_path / "home"
    # The one request of the quota is spent on asking for the usage.
    summary = run_json(home, "--days", "5", **given)
    assert summary["days"] == ["2026-03-02"]
    assert any("deferred" in note for note in summary["notes"])
    summary = run_json(home, **given)
    assert "quota" in summary["deferred"]
    assert summary["resume_at"].startswith("2026-04-01")


def test_errors_are_one_line(tmp_path: Path, almanac_sandbox: Sandbox) -> None:
    home = tmp_path / "home"
    lone = run(home, code=2, ALMANAC_BASE_URL="https://api.example.com")
    assert "ALMANAC_BASE_URL is set, but ALMANAC_API_KEY is not" in lone.stderr
    given = {"ALMANAC_BASE_URL": almanac_sandbox.base_url, "ALMANAC_API_KEY": "canary-9"}
    refused = run(home, code=1, **given)
    assert "Check the API key" in refused.stderr
    (home / "home.json").write_text('{"source": "https://other.example", "format": 1}')
    (home / "landing" / "batches" / "2026-03-01").mkdir(parents=True)
    other = run(home, code=1)
    assert "holds data of https://other.example" in other.stderr
    for done in (lone, refused, other):
        assert without_steps(done.stderr).count("\n") == 1
        assert "Traceback" not in done.stderr + done.stdout
        assert "canary-9" not in done.stderr


def test_ctrl_c_is_one_line_and_what_was_landed_stands(tmp_path: Path) -> None:
    home = tmp_path / "home"
    process = subprocess.Popen(
        [*ALMANAC, "run", "--days", "100"],
        cwd=tmp_path,
        env={**environment(home), "ALMANAC_COINS": "bitcoin,ethereum"},
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
    assert (process.returncode, output) == (130, "")
    # A busy machine shows what the command waits for before.
    assert errors.splitlines()[-1] == (
        "Interrupted. Landed data is kept; run `almanac run` again to resume."
    )
    assert Home(home).landing.batch_ids()
    with instance_of(Home(home)) as instance:
        (newest,) = instance.get_runs(limit=1)
    assert newest.status is dg.DagsterRunStatus.CANCELED


def test_an_empty_home_runs_the_days_before_today_with_polls_and_ends_now() -> None:
    found = plan_run_times(3, now=NOW, last_day=None)
    assert [f"{instant.at:%d %H:%M} {instant.kind}" for instant in found] == [
        *("08 06:00 day", "08 12:00 poll", "08 18:00 poll"),
        *("09 06:00 day", "09 12:00 poll", "09 18:00 poll"),
        "10 09:30 day",
    ]


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
    called, other = Path(".venv/bin/almanac"), Path("other/almanac")
    monkeypatch.chdir(tmp_path)
    for script in (called, other):
        script.parent.mkdir(parents=True)
        script.touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert name_program(str(called)) == ".venv/bin/almanac"
    assert name_program(str(tmp_path / called)) == str(tmp_path / called)
    monkeypatch.setenv("PATH", str(tmp_path / other.parent))
    assert name_program(str(called)) == ".venv/bin/almanac"
    # As a wrapper on the search path calls it.
    assert name_program(str(tmp_path / called)) == "almanac"
    monkeypatch.setenv("PATH", str(tmp_path / called.parent))
    assert name_program(str(called)) == "almanac"
    assert name_program("/somewhere/application/__main__.py") == "almanac"
