"""What a command does while it waits is shown, as plain lines where there is no terminal."""

import io
import re
from pathlib import Path

import pytest

from almanac import console
from tests.application.cli.test_budget import given as given
from tests.application.cli.test_budget import record_of
from tests.hangs import wait_for
from tests.pipeline.conftest import Almanac
from tests.test_cli import on_terminal


def test_steps_are_plain_lines_with_their_seconds_where_there_is_no_terminal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written = console.PlainConsole(file=io.StringIO(), width=80)
    monkeypatch.setattr(console, "warnings", written)
    monkeypatch.setattr(console, "_FIRST_LINE_S", 0.1)
    monkeypatch.setattr(console, "_NEXT_LINES_S", 0.1)

    def lines() -> list[str]:
        return written.file.getvalue().splitlines()  # type: ignore[attr-defined, no-any-return]

    with console.show_steps("Looking ...") as step:
        wait_for(lines)
        step("Finding [1] ...")
        wait_for(lambda: "Finding" in lines()[-1])
    assert re.fullmatch(r"Looking \.\.\. \(\d+ s\)", lines()[0])
    assert re.fullmatch(r"Finding \[1\] \.\.\. \(\d+ s\)", lines()[-1])


def test_a_short_step_prints_nothing_where_there_is_no_terminal(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with console.show_steps("Looking ..."):
        pass
    assert capfd.readouterr() == ("", "")


def test_steps_are_shown_on_a_terminal(tmp_path: Path) -> None:
    shown = on_terminal(tmp_path, "doctor", term="xterm")
    assert "Checked: " in shown


def test_budget_and_status_say_the_same_reset(almanac: Almanac, given: dict[str, str]) -> None:
    almanac("run", "--json", coins="dogecoin", **given)
    month = record_of(almanac("budget", "--json", coins="dogecoin", **given))["month"]
    quota = record_of(almanac("status", "--json", coins="dogecoin", **given))["quota"]
    assert month["resets_at"][:16] == quota["reset_at"][:16]
    assert month["used"] == quota["used"]
