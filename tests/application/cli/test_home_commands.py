"""Commands on a home: import, batches, merge and status."""

import gzip
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from catalog.sandbox.sandbox import Sandbox
from catalog.server.app import ServerOptions
from tests.pipeline.conftest import Almanac
from tests.warehouse.normalise.catalog_bodies import csv_body, plain, plains
from warehouse.home import Home

AT = ("--content-at", "2026-03-01T06:00:00Z")


@pytest.fixture
def page(tmp_path: Path) -> str:
    """A file that is no export: it can be landed, and a merge quarantines it."""
    file = tmp_path / "page.csv"
    file.write_text("<!DOCTYPE html><html><body>Sign in</body></html>")
    return str(file)


def landed(almanac: Almanac, page: str) -> str:
    return str(json.loads(almanac("import", page, *AT, "--json").stdout)["batch_id"])


@pytest.mark.parametrize("compress", [bytes, gzip.compress])
def test_an_import_whose_events_a_quote_would_hide_is_refused(
    almanac: Almanac, tmp_path: Path, compress: Callable[[bytes], bytes]
) -> None:
    """The events between two quotes would be read as text of one title, and then be withdrawn."""
    lines = csv_body(plains(20), end="\n").splitlines(keepends=True)
    file = tmp_path / "export.csv"
    for closing in (None, 9):
        broken = list(lines)
        broken[5] = broken[5].replace(b",Mainnet", b',"Mainnet', 1)
        if closing is not None:
            broken[closing] = broken[closing].replace(b"launch,Goes", b'launch",Goes')
        file.write_bytes(compress(b"".join(broken)))
        done = almanac("import", str(file), *AT, code=2)
        assert "export.csv: line 6 opens a quote" in " ".join(done.stderr.split())
        assert "Nothing was landed" in " ".join(done.stderr.split())
        assert not (tmp_path / "data").exists()
    texts = [plain(id=f"e{number}", title='A, b,\n"c"\nd') for number in range(20)]
    file.write_bytes(compress(csv_body(texts)))
    almanac("import", str(file), *AT)
    almanac("merge")
    count = almanac("sql", "SELECT count(*) AS n FROM events", "-F", "json").stdout
    assert json.loads(count) == [{"n": 20}]


def test_an_import_that_covers_from_after_to_is_refused(
    almanac: Almanac, tmp_path: Path, page: str
) -> None:
    words = ("--covers-from", "2026-12-31", "--covers-to", "2026-01-01")
    done = almanac("import", page, *AT, *words, code=2)
    assert "--covers-from 2026-12-31 is after --covers-to 2026-01-01" in done.stderr
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    "words",
    [
        ("--content-at", "0001-01-01"),
        ("--content-at", "9999-12-31T23:00:00-05:00"),
        (*AT, "--observed-at", "0001-01-01T00:00:00+05:00"),
        (*AT, "--covers-from", "0001-01-01", "--covers-to", "2026-01-01"),
    ],
)
def test_an_import_of_a_time_far_off_is_refused_before_anything_is_landed(
    almanac: Almanac, tmp_path: Path, page: str, words: tuple[str, ...]
) -> None:
    done = almanac("import", page, *words, code=2)
    assert "a year from 1970 to 2200" in " ".join(done.stderr.split())
    assert not (tmp_path / "data").exists()


def test_an_import_of_a_file_that_is_not_there_leaves_no_home(
    almanac: Almanac, tmp_path: Path
) -> None:
    almanac("import", "nowhere.csv", *AT, code=1)
    assert not (tmp_path / "data" / "home.json").exists()


def test_an_import_reports_a_file_that_was_already_landed(
    almanac: Almanac, tmp_path: Path, page: str
) -> None:
    assert "Landed as" in almanac("import", page, *AT).stdout
    second = almanac("import", page, *AT)
    assert "Already landed as 20260301T060000Z-export-" in second.stdout
    assert json.loads(almanac("import", page, *AT, "--json").stdout)["already_landed"] is True
    assert len(Home(tmp_path / "data").landing.batch_ids()) == 1


def test_a_quarantined_batch_is_no_error_of_merge_or_replay_but_of_status(
    almanac: Almanac, page: str
) -> None:
    yesterday = f"{datetime.now(UTC) - timedelta(days=1):%Y-%m-%d}"
    done = almanac("import", page, "--content-at", yesterday, "--json")
    batch_id = json.loads(done.stdout)["batch_id"]
    for words in (("merge",), ("replay",)):
        printed = almanac(*words).stdout
        assert f"Quarantined: {batch_id}" in printed
        assert "Leave it: it has no readable row" in printed
        assert "batches release" not in printed
    warned = almanac("status", "--exit-code", code=1).stdout
    assert "1 batch in quarantine" in warned
    hint = "batches list --status quarantined --days 100"
    assert hint in " ".join(warned.split())
    assert batch_id in almanac(*hint.split()).stdout


def test_a_list_without_batches_of_a_status_says_so_and_refuses_other_words(
    almanac: Almanac, page: str
) -> None:
    landed(almanac, page)
    printed = almanac("batches", "list", "--status", "quarantined").stdout
    assert printed == "No batch of these days is quarantined; 1 in all.\n"
    done = almanac("batches", "list", "--status", "lost", code=2)
    assert "expected one of pending, merged, quarantined, damaged" in done.stderr


@pytest.mark.parametrize("room", ["keys", "endpoints"])
def test_a_list_makes_no_folder(almanac: Almanac, tmp_path: Path, room: str) -> None:
    assert f"No {room} yet" in almanac("accounts", room, "list").stdout
    assert json.loads(almanac("accounts", room, "list", "--json").stdout) == []
    assert list(tmp_path.iterdir()) == []


def test_a_batch_is_shown_as_lines_or_as_json(almanac: Almanac, page: str) -> None:
    batch_id = landed(almanac, page)
    lines = almanac("batches", "list", batch_id).stdout.splitlines()
    shown = dict(line.split(maxsplit=1) for line in lines)
    assert shown["batch_id"] == batch_id
    assert shown["outcome.status"] == "pending"
    assert shown["complete"] == "False"
    assert json.loads(almanac("batches", "list", batch_id, "--json").stdout)["pages"] == 1


def test_an_unknown_batch_names_the_command_that_lists_them(almanac: Almanac, page: str) -> None:
    landed(almanac, page)
    for batch_id in ("nonsense", "20260301T060000Z-export-000000000000"):
        done = almanac("batches", "list", batch_id, code=1)
        assert "`almanac batches list` lists the batches" in done.stderr


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ({"quota": 1000, "remaining": 900}, "900 of 1,000"),
        ({"quota": None, "remaining": None, "is_unlimited": True}, "no limit"),
        ({"quota": None, "remaining": 900, "is_unlimited": False}, "900 left"),
        ({"quota": None, "remaining": None, "is_unlimited": False}, "not reported"),
    ],
)
def test_status_shows_the_reported_quota_with_its_time(
    almanac: Almanac, tmp_path: Path, named: dict[str, object], message: str
) -> None:
    home = Home(tmp_path / "data")
    home.claim("sandbox:1")
    home.state.mkdir()
    line = {"at": "2026-03-01T06:07:08+00:00", **named}
    (home.state / "usage.jsonl").write_text(json.dumps(line) + "\n")
    assert f"{message}, as of 2026-03-01 06:07 UTC" in almanac("status").stdout


@pytest.mark.parametrize(
    ("headers", "since", "ends"),
    [
        (("@1767225600", "Tue, 01 Jan 2036 00:00:00 GMT"), "2026-01-01", None),
        (("@1767225600", "Wed, 01 Jan 2025 00:00:00 GMT"), "2026-01-01", "2025-01-01"),
        (("true", None), "-", None),
    ],
)
def test_a_deprecated_interface_is_shown_and_warned_of_before_its_end(
    headers: tuple[str, str | None], since: str, ends: str | None, almanac: Almanac
) -> None:
    deprecation, sunset = headers
    options = ServerOptions(deprecation=deprecation, sunset=sunset)
    with Sandbox(seed=1, options=options) as sandbox:
        given = {"base_url": sandbox.base_url, "api_key": sandbox.keys["elite"]}
        almanac("backfill", "--from", "2026-03-01", "--to", "2026-03-02", code=2, **given)
        health = json.loads(almanac("status", "--json", **given).stdout)
        shown = almanac("status", **given).stdout
    warned = [warning["text"] for warning in health["warnings"] if "retires" in warning["text"]]
    assert f"since {since}, ends " in shown
    assert len(warned) == (ends is not None)
    assert ends is None or f"on {ends}" in warned[0]
