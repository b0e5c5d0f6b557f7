"""`almanac export` writes a calendar file, with the package alone."""

import json
import stat
import sys
from pathlib import Path

import icalendar
import pytest

from almanac import command_line, commands
from almanac.command_line import main
from tests.almanac.calendar.test_feed import COINS, DAY, NOW, PULLED
from tests.almanac.publications import publish_by_hand
from tests.in_process import own_process
from tests.warehouse.answers.handmade import Known

ALL = ("--from", "2026-01-01")
"""The clock of a command is the machine's."""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("home")
    versions = [
        Known(event_id="one", known_from=PULLED, date=NOW, coins=("bitcoin",), impact=8.0),
        Known(event_id="two", known_from=PULLED, date=NOW + DAY, coins=("ether",), impact=2.0),
        Known(event_id="open", known_from=PULLED, date=NOW + 9 * DAY, is_estimated=True),
    ]
    publish_by_hand(folder / "warehouse.duckdb", versions, pulls=[PULLED], coins=COINS)
    return folder


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> object:
    """Without the application."""
    monkeypatch.setattr(command_line, "load_extension", command_line.Extension)
    monkeypatch.setattr(commands, "load_extension", command_line.Extension)
    monkeypatch.setenv("COLUMNS", "200")
    with own_process():
        yield


def export(home: Path, *words: str) -> int:
    return main(["export", "--home", str(home), *ALL, *words])


def uids_in(file: Path) -> list[str]:
    events = icalendar.Calendar.from_ical(file.read_bytes()).walk("VEVENT")
    return [str(event["uid"]).partition("@")[0] for event in events]


def test_file_is_written_and_replaced(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "calendar.ics"
    file.write_text("before")
    assert export(home, "--output", str(file)) == 0
    assert uids_in(file) == ["one", "two"]
    assert "2 events in" in capsys.readouterr().out
    for words, uids in (
        (("--coins", "BTC/USDT"), ["one"]),
        (("--min-impact", "5"), ["one"]),
        (("--to", f"{NOW:%Y-%m-%d}"), ["one"]),
        (("--to", f"{NOW + DAY:%Y-%m-%d}"), ["one", "two"]),
        (("--estimated", "only"), ["open"]),
        (("--estimated", "include"), ["one", "two", "open"]),
    ):
        assert export(home, "-o", str(file), *words) == 0
        assert uids_in(file) == uids
    assert list(tmp_path.iterdir()) == [file]


def test_truncated_file_is_reported(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "calendar.ics"
    assert export(home, "-o", str(file), "--limit", "1", "--json") == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out) == {
        **{"file": str(file), "events": 1, "total": 2, "truncated": True}
    }
    assert "1 of 2 events" in printed.err
    assert uids_in(file) == ["one"]


def test_wrong_argument_leaves_the_file_as_it_was(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "calendar.ics"
    file.write_text("before")
    for words, message in (
        (("--coins", " "), "--coins is empty"),
        (("--from", "soon"), "from='soon' is not a timestamp"),
        (("--as-of", "2025-01-01"), "before the first pull"),
    ):
        assert export(home, "-o", str(file), *words) in (1, 2)
        assert message in capsys.readouterr().err
        assert file.read_text() == "before"
    assert export(home, "-o", str(tmp_path / "none" / "calendar.ics")) == 2
    assert "there is no folder" in capsys.readouterr().err


def test_missing_package_is_named(
    home: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "icalendar", None)
    assert export(home, "-o", str(tmp_path / "calendar.ics")) == 1
    assert "pip install 'crypto-almanac[calendar]'" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_file_has_the_permissions_of_other_files(home: Path, tmp_path: Path) -> None:
    """A web server reads it as another user."""
    plain, file = tmp_path / "plain", tmp_path / "calendar.ics"
    plain.touch()
    assert export(home, "-o", str(file)) == 0
    assert stat.S_IMODE(file.stat().st_mode) == stat.S_IMODE(plain.stat().st_mode)
