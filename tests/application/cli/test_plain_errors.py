"""Errors before a command can begin: one plain line and an exit code, no traceback."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from application.cli import merge_commands
from catalog.sandbox.sandbox import Sandbox
from tests.pipeline.conftest import Almanac
from tests.pipeline.small_home import SmallHome
from warehouse.errors import WarehouseError
from warehouse.history import merge as merging
from warehouse.home import Home

EVERY = [
    *(
        ("status",),
        ("sql", "SELECT 1"),
        ("audit", "x.csv"),
        ("changes",),
        ("merge",),
        ("replay",),
        ("verify",),
    ),
    *(("batches", "list"), ("batches", "list", "x"), ("batches", "release", "x")),
    ("batches", "dismiss", "x"),
    *(("inbox", "list"), ("inbox", "retry", "x")),
    *(("inbox", "dismiss", "x"), ("receive",)),
    *(
        ("import", "x.csv", "--content-at", "2026-01-01"),
        ("accounts", "keys", "list"),
        ("run",),
        ("ui",),
    ),
    ("daemon",),
    *(("watch", "--once"), ("report",)),
]
ON_A_HOME = [
    *(("sql", "SELECT 1"), ("changes",), ("merge",), ("replay",), ("verify",)),
    *(("batches", "list"), ("batches", "list", "x"), ("batches", "release", "x")),
    *(("batches", "dismiss", "x"), ("audit", "x.csv"), ("watch", "--once")),
    ("report",),
    *(("inbox", "list"), ("inbox", "retry", "x")),
    ("inbox", "dismiss", "x"),
]


@pytest.mark.parametrize("words", EVERY, ids=" ".join)
def test_a_setting_that_cannot_be_used_is_one_line_and_exit_code_2(
    almanac: Almanac, words: tuple[str, ...]
) -> None:
    done = almanac(*words, code=2, plan="foo")
    assert done.stderr.startswith("almanac: ALMANAC_PLAN: Input should be 'free'")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("key", ["canary\n7", "canary 7", "canäry"])
@pytest.mark.parametrize("words", [("run",), ("import", "x", "--content-at", "2026-01-01")])
def test_a_key_that_cannot_stand_in_a_header_is_one_line_that_does_not_show_it(
    almanac: Almanac, words: tuple[str, ...], key: str
) -> None:
    done = almanac(*words, code=2, base_url="https://api.example.com", api_key=key)
    assert done.stderr.startswith("almanac: ALMANAC_API_KEY: the API key is empty, or has spaces")
    assert "can" + key[3:] not in done.output
    assert "canary" not in done.output


def test_an_import_with_an_address_and_no_key_lands_nothing(
    almanac: Almanac, tmp_path: Path
) -> None:
    words = ("import", "x.csv", "--content-at", "2026-01-01")
    done = almanac(*words, code=2, base_url="https://api.example.com")
    assert "ALMANAC_BASE_URL is set, but ALMANAC_API_KEY is not" in done.stderr
    assert list(tmp_path.iterdir()) == []


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


def test_a_home_that_cannot_be_written_is_one_line_with_path_and_reason(
    almanac: Almanac, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Home(tmp_path / "data").claim("sandbox:1")

    def refused(home: Home) -> None:
        raise PermissionError(13, "Permission denied", str(home.state))

    monkeypatch.setattr(merge_commands.merging, "merge", refused)
    done = almanac("merge", code=1)
    assert "data/state: Permission denied" in done.stderr
    assert done.stderr.count("\n") == 1


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


def test_doctor_claims_no_home(almanac: Almanac, tmp_path: Path, almanac_sandbox: Sandbox) -> None:
    good = {"base_url": almanac_sandbox.base_url, "api_key": almanac_sandbox.keys["pro"]}
    found = checks(almanac, code=0, **good)
    assert found["clock"]["is_caution"], "that sandbox has a set time"
    assert found["key and plan"]["found"] == "pro"
    assert found["home writable"]["holds"]
    checks(almanac, code=1, base_url=almanac_sandbox.base_url + "/no", api_key="canary")
    assert list(tmp_path.iterdir()) == []


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


def test_a_run_that_was_never_answered_leaves_no_stamp(
    almanac: Almanac, tmp_path: Path, almanac_sandbox: Sandbox
) -> None:
    wrong = {"base_url": almanac_sandbox.base_url, "api_key": "canary"}
    done = almanac("run", code=1, **wrong)
    assert "Check the API key" in done.stderr
    assert Home(tmp_path / "data").stamp() is None


def test_a_home_in_which_nothing_was_landed_may_change_its_source(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.claim("https://mistyped.example")
    home.claim("https://api.example.com")
    stamp = home.stamp()
    assert stamp is not None
    assert stamp.source == "https://api.example.com"
    (tmp_path / "landing" / "batches" / "2026-03-01").mkdir(parents=True)
    with pytest.raises(WarehouseError, match=r"holds data of https://api"):
        home.claim("sandbox:1")
