"""Errors before a command can begin: one plain line and an exit code, no traceback."""

import json
import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from almanac.core.timestamps import utc_now
from catalog.sandbox.sandbox import Sandbox
from tests.pipeline.conftest import Almanac
from tests.pipeline.run_records import report_daemon
from tests.pipeline.small_home import SmallHome
from warehouse.history import merge as merging
from warehouse.home import Home

ON_A_HOME = [
    *(("sql", "SELECT 1"), ("changes",), ("merge",), ("rebuild",), ("verify",)),
    *(("batches", "list"), ("batches", "list", "x"), ("batches", "release", "x")),
    *(("batches", "dismiss", "x"), ("audit", "x.csv"), ("changes", "--follow", "--once")),
    ("report",),
    *(("inbox", "list"), ("inbox", "retry", "x")),
    ("inbox", "dismiss", "x"),
]
EVERY = [
    *(*ON_A_HOME, ("status",), ("receive",), ("serve", "keys", "list"), ("run",), ("ui",)),
    *(("import", "x.csv", "--content-at", "2026-01-01"), ("daemon",)),
]


@pytest.mark.parametrize("words", EVERY, ids=" ".join)
def test_a_setting_that_cannot_be_used_is_one_line_and_exit_code_2(
    almanac: Almanac, words: tuple[str, ...]
) -> None:
    done = almanac(*words, code=2, plan="foo")
    assert done.stderr.startswith("almanac: ALMANAC_PLAN: Input should be 'free'")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("key", ["canary\n7", "canary 7", "canäry"])
def test_a_key_that_cannot_stand_in_a_header_is_one_line_that_does_not_show_it(
    almanac: Almanac, key: str
) -> None:
    done = almanac("run", code=2, base_url="https://api.example.com", api_key=key)
    assert done.stderr.startswith("almanac: ALMANAC_API_KEY: the API key is empty, or has spaces")
    assert "can" + key[3:] not in done.output
    assert "canary" not in done.output


@pytest.mark.parametrize("words", [*ON_A_HOME, ("status",), ("run",)], ids=" ".join)
def test_a_home_that_is_a_file_is_one_line_that_names_it(
    almanac: Almanac, tmp_path: Path, words: tuple[str, ...]
) -> None:
    home = tmp_path / "home"
    home.write_text("mine")
    done = almanac(*words, code=1, home=str(home))
    assert f"{home} is a file" in done.stderr
    assert done.stderr.count("\n") == 1
    assert home.read_text() == "mine"


@pytest.mark.parametrize("words", ON_A_HOME, ids=" ".join)
def test_a_command_without_a_home_fails_and_makes_none(
    almanac: Almanac, tmp_path: Path, words: tuple[str, ...]
) -> None:
    home = tmp_path / "mistyped"
    done = almanac(*words, code=1, home=str(home))
    assert f"there is no home at {home}" in done.stderr
    assert "almanac run" in done.stderr
    assert "ALMANAC_HOME" in done.stderr
    assert not home.exists()


def checks(almanac: Almanac, *, code: int, **given: str) -> dict[str, dict[str, Any]]:
    done = almanac("doctor", "--json", code=code, **given)
    return {check["what"]: check for check in json.loads(done.stdout)}


def test_doctor_changes_no_file_of_a_home(
    almanac: Almanac, tmp_path: Path, almanac_sandbox: Sandbox
) -> None:
    """Its reading of the usage would be shown by `status`, as if data had been pulled then."""
    good = {"base_url": almanac_sandbox.base_url, "api_key": almanac_sandbox.keys["pro"]}
    small = SmallHome(tmp_path / "data", almanac_sandbox.base_url)
    small.land()
    merging.merge(small.home)
    before = contents(small.home.root)
    found = checks(almanac, code=0, **good)
    assert found["key and plan"]["found"] == "pro"
    assert contents(small.home.root) == before


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_doctor_lists_a_home_that_cannot_be_written_among_its_checks(
    almanac: Almanac, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, almanac_sandbox: Sandbox
) -> None:
    good = {"base_url": almanac_sandbox.base_url, "api_key": almanac_sandbox.keys["pro"]}
    home = tmp_path / "home"
    home.write_text("mine")
    found = checks(almanac, code=1, home=str(home), **good)
    assert not found["home writable"]["holds"]
    assert f"{home} is a file" in found["home writable"]["found"]
    assert found["reach"]["holds"]
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    found = checks(almanac, code=1, home=str(tmp_path / "other"), **good)
    assert "this user can't write to" in found["home writable"]["found"]
    other = tmp_path / "another account's"
    other.mkdir()
    (other / "body").touch()
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != other / "body")
    found = checks(almanac, code=1, home=str(other), **good)
    assert f"can't read {other / 'body'}" in found["home writable"]["found"]


@pytest.fixture
def unmonitored(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


def test_a_home_without_a_daemon_is_not_well(unmonitored: Home, almanac: Almanac) -> None:
    done = almanac("daemon", "--check", home=str(unmonitored.root), code=1)
    assert "No daemon has reported on this home" in done.stderr
    assert not unmonitored.dagster.exists()


def test_a_daemon_is_well_while_it_reports(unmonitored: Home, almanac: Almanac) -> None:
    report_daemon(unmonitored, utc_now() - timedelta(days=1))
    done = almanac("daemon", "--check", home=str(unmonitored.root), code=1)
    assert "The daemon last reported 86" in done.stderr
    report_daemon(unmonitored, utc_now())
    assert "is well" in almanac("daemon", "--check", home=str(unmonitored.root)).output
    done = almanac("daemon", "--check", "--json", home=str(unmonitored.root))
    assert json.loads(done.output)["well"] is True


UNUSABLE = {"plan": "foo"}
"""A setting with which the command ends before it starts anything."""


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_a_ui_that_others_reach_is_warned_of(almanac: Almanac, host: str) -> None:
    done = almanac("ui", "--host", host, "--port", "39171", code=2, **UNUSABLE)
    assert f"the UI needs no password, and other machines reach it on {host}" in done.stderr
    done = almanac("ui", "--host", host, "--port", "39171", "--read-only", code=2, **UNUSABLE)
    assert "almanac: warning" not in done.stderr
