"""Commands on a home: import, batches, merge, status, backfill, budget, rebuild and serve."""

import gzip
import hashlib
import json
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from catalog.sandbox.sandbox import Sandbox
from catalog.server.app import ServerOptions
from tests.almanac.publications import publish_two_events
from tests.application.mirror.replays import change_log, log_hash
from tests.pipeline.conftest import Almanac
from tests.test_cli import ALMANAC, environment
from tests.warehouse.landed_days import FIRST, land
from tests.warehouse.normalise.catalog_bodies import PLAIN, csv_body, plain, plains
from warehouse.history.merge import merge
from warehouse.home import Home

AT = ("--content-at", "2026-03-01T06:00:00Z")


@pytest.fixture
def page(tmp_path: Path) -> str:
    """A file that is no export: it can be landed, and a merge quarantines it."""
    file = tmp_path / "page.csv"
    file.write_text("<!DOCTYPE html><html><body>Sign in</body></html>")
    return str(file)


def test_an_import_whose_events_a_quote_would_hide_is_refused(
    almanac: Almanac, tmp_path: Path
) -> None:
    """The events between two quotes would be read as text of one title, and then be withdrawn."""
    lines = csv_body(plains(20), end="\n").splitlines(keepends=True)
    file = tmp_path / "export.csv"
    for closing, compress in ((None, bytes), (9, gzip.compress)):
        broken = list(lines)
        broken[5] = broken[5].replace(b",Mainnet", b',"Mainnet', 1)
        if closing is not None:
            broken[closing] = broken[closing].replace(b"launch,Goes", b'launch",Goes')
        file.write_bytes(compress(b"".join(broken)))
        done = almanac("import", str(file), *AT, code=2)
        assert "the first is row 5: line 6 opens a quote" in " ".join(done.stderr.split())
        assert "Nothing was landed" in " ".join(done.stderr.split())
        assert not (tmp_path / "data").exists()
    texts = [plain(id=f"e{number}", title='A, b,\n"c"\nd') for number in range(20)]
    file.write_bytes(gzip.compress(csv_body(texts)))
    almanac("import", str(file), *AT)
    almanac("merge")
    count = almanac("sql", "SELECT count(*) AS n FROM events", "-F", "json").stdout
    assert json.loads(count) == [{"n": 20}]


SAVED = csv_body(plains(12), delimiter=";")
CUT = SAVED[:-6]
REFUSED = {
    "the last line has no line end": CUT,
    "12 of 12 rows can't be read; the first is row 1: date: expected an instant of 1900 to 2200, "
    "got '31/12/2025'": SAVED.replace(b";2026-10-08T00:00:00Z;", b";31/12/2025;"),
    "1 of 12 rows can't be read; the first is row 1: a text is not UTF-8": SAVED.replace(
        b"Goes live", b"Geht gut f\xfcr", 1
    ),
    "the export is an Excel workbook": b"PK\x03\x04",
    "the export is an HTML page": b"<!doctype html>",
    "the export is an empty body": b"",
    "the export is a header without rows": SAVED.splitlines(keepends=True)[0],
    "no column id; its columns are Ereignis, slug": SAVED.replace(b"id;", b"Ereignis;", 1),
    "missing columns: impact; unknown columns: Wirkung": SAVED.replace(b"impact", b"Wirkung", 1),
    "the list is empty": b'{"data": []}',
    "the export is one page of a list": json.dumps(
        {"data": [PLAIN], "meta": {"cursor": "abc"}}
    ).encode(),
}


def test_an_import_says_what_it_found_or_lands_a_file_that_the_merge_reads(
    almanac: Almanac, tmp_path: Path
) -> None:
    file = tmp_path / "export.csv"
    for reason, body in REFUSED.items():
        file.write_bytes(body)
        said = " ".join(almanac("import", str(file), *AT, code=2).stderr.split())
        assert reason in said
        assert "Expected a bulk export" in said
        assert not (tmp_path / "data").exists()
    file.write_bytes(CUT)
    assert json.loads(almanac("import", str(file), *AT, "--json", "--force").stdout)["why_forced"]
    file.write_bytes(b"sep=;\r\n" + SAVED)
    said = almanac("import", str(file), *AT).stdout
    assert "12 rows" in said
    assert "Note: fields separated by ';'" in said
    batch_id = Home(tmp_path / "data").landing.batch_ids()[-1]
    almanac("merge")
    query = f"SELECT arrived, rejected, status, source FROM batches WHERE batch_id = '{batch_id}'"
    assert json.loads(almanac("sql", query, "-F", "json").stdout) == [
        {"arrived": 12, "rejected": 0, "status": "merged", "source": "sandbox:1"}
    ]
    assert "\nSource: embedded sandbox, seed 1, pace 1\n" in almanac("status").stdout


def test_an_import_reads_columns_of_other_names_also_in_a_rebuild(
    almanac: Almanac, tmp_path: Path
) -> None:
    file = tmp_path / "export.csv"
    file.write_text("event,name,when,coin_slug\ne1,Launch,2026-06-01T00:00:00Z,bitcoin\n")
    assert "no column id" in almanac("import", str(file), *AT, code=2).stderr
    columns = "event=id,name=title,when=date,coin_slug=coins"
    almanac("import", str(file), *AT, "--columns", columns)
    for command in ("merge", "rebuild"):
        almanac(command)
        found = almanac("sql", "SELECT event_id, title, coins, extra FROM events", "-F", "json")
        expected = {"event_id": "e1", "title": "Launch", "coins": ["bitcoin"], "extra": None}
        assert json.loads(found.stdout) == [expected]
    wrong = almanac("import", str(file), *AT, "--columns", "name=titel", code=2)
    assert "expected COLUMN=FIELD" in wrong.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("--content-at", "0001-01-01"),
        ("--content-at", "9999-12-31T23:00:00-05:00"),
        (*AT, "--observed-at", "0001-01-01T00:00:00+05:00"),
        (*AT, "--from", "0001-01-01", "--to", "2026-01-01"),
    ],
)
def test_an_import_of_a_time_far_off_is_refused_before_anything_is_landed(
    almanac: Almanac, tmp_path: Path, page: str, words: tuple[str, ...]
) -> None:
    done = almanac("import", page, *words, code=2)
    said = " ".join(done.stderr.split())
    assert "a year from 1970 to 2200" in said or "not within the years 1 to 9999" in said
    assert not (tmp_path / "data").exists()


def test_an_import_reports_a_file_that_was_already_landed(
    almanac: Almanac, tmp_path: Path, page: str
) -> None:
    assert "Landed as" in almanac("import", page, *AT, "--force").stdout
    second = almanac("import", page, *AT, "--force")
    assert "Already landed as 20260301T060000Z-export-" in second.stdout
    again = almanac("import", page, *AT, "--force", "--json").stdout
    assert json.loads(again)["already_landed"] is True
    assert len(Home(tmp_path / "data").landing.batch_ids()) == 1


def test_a_quarantined_batch_is_no_error_of_merge_or_rebuild_but_of_status(
    almanac: Almanac, page: str
) -> None:
    yesterday = f"{datetime.now(UTC) - timedelta(days=1):%Y-%m-%d}"
    done = almanac("import", page, "--content-at", yesterday, "--force", "--json")
    batch_id = json.loads(done.stdout)["batch_id"]
    printed = almanac("batches", "list", "--status", "quarantined").stdout
    assert printed == "No batch of these days is quarantined; 1 in all.\n"
    done = almanac("batches", "list", "--status", "lost", code=2)
    assert "'lost' is not one of" in done.stderr
    assert json.loads(almanac("batches", "list", batch_id, "--json").stdout)["pages"] == 1
    for unknown in ("nonsense", "20260301T060000Z-export-000000000000"):
        done = almanac("batches", "list", unknown, code=1)
        assert "`almanac batches list` lists the batches" in done.stderr
    for words in (("merge",), ("rebuild",)):
        printed = almanac(*words).stdout
        assert f"Quarantined: {batch_id}" in printed
        assert "Leave it: it has no readable row" in printed
        assert "batches release" not in printed
    warned = almanac("status", "--exit-code", code=1).stdout
    assert "1 batch in quarantine" in warned
    hint = "batches list --status quarantined --days 100"
    assert hint in " ".join(warned.split())
    assert batch_id in almanac(*hint.split()).stdout


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


def test_a_deprecated_interface_is_shown_and_warned_of_before_its_end(almanac: Almanac) -> None:
    sunset = "Tue, 03 Apr 2018 00:00:00 GMT"
    options = ServerOptions(deprecation="@1767225600", sunset=sunset)
    with Sandbox(seed=1, now=datetime(2018, 3, 2, tzinfo=UTC), options=options) as sandbox:
        given = {"base_url": sandbox.base_url, "api_key": sandbox.keys["elite"]}
        almanac("backfill", "--from", "2018-03-01", "--to", "2018-03-02", code=2, **given)
        health = json.loads(almanac("status", "--json", **given).stdout)
        shown = almanac("status", **given).stdout
    warned = [warning["text"] for warning in health["warnings"] if "retires" in warning["text"]]
    assert "since 2026-01-01, ends " in shown
    (text,) = warned
    assert "on 2018-04-03" in text


COMMANDS = {
    "sql": ("sql", "SELECT 1 AS a", "--format", "json", "--output"),
    "export": ("export", "--output"),
    "report": ("report", "--output"),
    "audit": ("audit", "signals.csv", "--html"),
}
PARTS = (
    *("warehouse.duckdb", "home.json", "landing/batches/x.json", "landing/new"),
    *("parquet/events/x", "state/merge.lock", "landing/../warehouse.duckdb"),
    *("inbox/x", "checkpoints/x.duckdb", "dagster/dagster.yaml", ".next-warehouse.duckdb"),
    *("../link", "../folder/batches/x.json", "../hard"),
)


@pytest.fixture
def parts(tmp_path: Path) -> Path:
    root = tmp_path / "home"
    root.mkdir()
    publish_two_events(root)
    Home(root).claim("sandbox:1")
    for part in ("landing/batches/x.json", "parquet/events/x", "state/merge.lock"):
        (root / part).parent.mkdir(parents=True, exist_ok=True)
        (root / part).write_text("kept")
    for folder in ("inbox", "checkpoints", "dagster"):
        (root / folder).mkdir()
    (tmp_path / "link").symlink_to("home/warehouse.duckdb")
    (tmp_path / "folder").symlink_to("home/landing")
    (tmp_path / "hard").hardlink_to(root / "warehouse.duckdb")
    (tmp_path / "signals.csv").write_text("event_id,decided_at\n")
    return root


def read_all(root: Path) -> dict[str, str]:
    return {
        str(path): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(root.parent.rglob("*"))
        if path.is_file()
    }


@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_writes_to_a_part_of_a_home(almanac: Almanac, parts: Path, command: str) -> None:
    before = read_all(parts)
    for part in PARTS if command == "sql" else PARTS[:1]:
        done = almanac(*COMMANDS[command], str(parts / part), code=2, home=str(parts))
        assert "is a part of a home" in done.stderr, part
        assert read_all(parts) == before, part


@pytest.mark.parametrize("place", ["mine.json", "../mine.json"])
def test_a_file_of_the_user_is_replaced_also_in_the_folder_of_the_home(
    almanac: Almanac, parts: Path, place: str
) -> None:
    (parts / place).write_text("before")
    almanac(*COMMANDS["sql"], str(parts / place), home=str(parts))
    assert (parts / place).read_text() == '[\n\t{"a":1}\n]\n'


MONTHS = ("--from", "2026-01-01", "--to", "2026-03-31")


@pytest.fixture
def given(almanac_sandbox: Sandbox) -> dict[str, str]:
    """Settings of the sandbox, with a key of its own.

    The rate is Elite's: until the plan is known, a new machine waits as on Free.
    """
    key = almanac_sandbox.new_key("elite")
    return {"base_url": almanac_sandbox.base_url, "api_key": key, "rate_per_s": "25"}


def test_a_backfill_lands_merges_and_reports_its_requests(
    almanac: Almanac, given: dict[str, str]
) -> None:
    done = json.loads(
        almanac("backfill", *MONTHS, "--source", "list", "--yes", "--json", **given).stdout
    )
    assert done["months"] == ["2026-01-01", "2026-02-01", "2026-03-01"]
    assert done["by"] == "list"
    assert done["versions"] > 1_000
    assert done["requests"] <= done["prices"]["list"]
    assert (done["resume_at"], done["batches"]) == (None, 3)
    count = almanac("sql", "SELECT count(*) AS n FROM events", "--format", "json", **given)
    assert json.loads(count.stdout)[0]["n"] == done["versions"]


def test_the_price_is_shown_and_nothing_begins_without_a_yes(
    almanac: Almanac, given: dict[str, str], almanac_sandbox: Sandbox
) -> None:
    almanac_sandbox.forget_requests()
    done = almanac("backfill", *MONTHS, code=2, **given)
    assert "By the export: up to 2 requests (chosen)." in done.output
    assert "pass --yes to confirm" in done.output
    paths = [request.path for request in almanac_sandbox.requests]
    assert paths == ["/v2/usage", "/v2/events"], "the usage, and one request to count"


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("--from", "2026-03-01", "--to", "2026-01-01"), 2, "is before --from"),
        (("--from", "March"), 2, "expected ISO 8601, such as"),
        (("--from", "2140-01-01"), 2, "before it begins on 2140-01-01"),
        ((*MONTHS, "--source", "list", "--max-requests", "3", "--yes"), 2, "allows 3"),
    ],
)
def test_a_backfill_that_cannot_be_done_fails_in_one_line(
    words: tuple[str, ...], code: int, message: str, almanac: Almanac, given: dict[str, str]
) -> None:
    assert message in almanac("backfill", *words, code=code, **given).output


def test_the_price_is_a_record_without_a_yes(almanac: Almanac, given: dict[str, str]) -> None:
    done = json.loads(almanac("backfill", *MONTHS, "--json", code=2, **given).stdout)
    assert list(done["prices"]) == ["export", "list"]
    assert (done["by"], done["prices"]["export"], done["resumed"]) == ("export", 2, False)
    assert done["available"] < done["left"]


def test_the_budget_shows_the_table_its_cost_and_the_reset_without_a_request(
    almanac: Almanac, given: dict[str, str], almanac_sandbox: Sandbox
) -> None:
    almanac("backfill", *MONTHS, "--yes", "--json", **given)
    almanac_sandbox.forget_requests()
    done = json.loads(almanac("budget", "--json", **given).stdout)
    shown = almanac("budget", **given).output
    assert almanac_sandbox.requests == []
    assert done["plan"] == "elite"
    assert done["month"]["quota"] == 3_000_000
    assert 0 < done["month"]["used"] < 100
    assert done["projected_at_reset"] <= 3_000_000 - done["month"]["reserve"]
    assert done["factor"] == 1
    rows = {row["name"]: row for row in done["schedule"]}
    assert list(rows) == ["next 7 days", "next 90 days", "later dates", "cancellations"]
    assert [row["interval_s"] for row in rows.values()] == [900, 1_800, 7_200, 900]
    assert done["until_reset"] == pytest.approx(sum(r["until_reset"] for r in rows.values()), abs=9)
    quota = json.loads(almanac("status", "--json", **given).stdout)["quota"]
    assert done["month"]["resets_at"][:16] == quota["reset_at"][:16]
    assert done["month"]["used"] == quota["used"]
    for text in ("resets at", "next 90 days", "30 min", "projected use at reset"):
        assert text in shown


@pytest.fixture(scope="module")
def three_days(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """Return a home with a pull on 29, 30 and 31 March 2026, at 06:00."""
    home = Home(tmp_path_factory.mktemp("home"))
    home.claim("s")
    for day in range(3):
        land(home, day)
    merge(home)
    return home


@pytest.mark.parametrize(
    ("options", "code", "reason"),
    [
        ("--replay soon", 2, "--replay='soon' is not a timestamp"),
        ("--replay 2026-03-30 --until later", 2, "--until='later' is not a timestamp"),
        ("--replay 2026-03-30 --speed 0", 2, "--speed 0: expected a number above 0"),
        ("--replay 2026-03-30 --speed 1e308", 2, "and at most 1e+09"),
        ("--speed 3600", 2, "--until, --speed and --paused are for --replay TIME"),
        ("--base-path almanac", 2, "--base-path 'almanac': expected a path such as /almanac"),
        ("--prices no.csv", 2, "prices='no.csv': there is no such file"),
        ("--cors *", 2, "--cors: no page has the origin '*'; expected scheme and host"),
        (
            "--replay 2026-03-29T05:59:59Z",
            1,
            "there is no replay from 2026-03-29T05:59:59Z to 2026-03-31T06:00:00Z: history is from "
            "2026-03-29T06:00:00Z to 2026-03-31T06:00:00Z. Nothing was started.",
        ),
    ],
)
def test_a_wrong_replay_or_file_is_one_line(
    almanac: Almanac, three_days: Home, options: str, code: int, reason: str
) -> None:
    home = str(three_days.root)
    done = almanac("serve", "--port", "0", *options.split(), code=code, home=home)
    assert reason in done.stderr
    assert done.stderr.count("\n") == 1


def test_serve_and_sandbox_have_keys_of_their_own_in_the_home(
    almanac: Almanac, tmp_path: Path
) -> None:
    home = tmp_path / "mine"
    home.mkdir()
    (home / "warehouse.duckdb").touch()
    mirror = ("serve", "--home", str(home / "warehouse.duckdb"), "keys")
    assert almanac(*mirror, "list").stdout.startswith("No keys yet; `keys create NAME")
    assert list(home.iterdir()) == [home / "warehouse.duckdb"]
    almanac(*mirror, "create", "me", "--plan", "elite")
    assert (home / "state" / "mirror" / "keys.json").is_file()
    for server, accounts in (("serve", ["me"]), ("sandbox", [])):
        listed = almanac(server, "keys", "list", "--json", home=str(home)).stdout
        assert [row["account"] for row in json.loads(listed)] == accounts


def test_the_end_of_a_replay_is_printed_with_its_count_and_hash(
    three_days: Home, tmp_path: Path
) -> None:
    options = ("--replay", "2026-03-29T06:00:00Z", "--speed", "1e6", "--port", "0", "--json")
    place = ("--home", str(three_days.root), "--base-path", "/a/b.c", "--dir", str(tmp_path))
    process = subprocess.Popen(
        [*ALMANAC, "serve", *options, *place],
        env={**environment(tmp_path / "none"), "ALMANAC_STATE": str(tmp_path / "m")},
        stdout=subprocess.PIPE,
        text=True,
    )
    log = change_log(three_days, FIRST, FIRST.replace(day=31))
    assert process.stdout is not None
    try:
        assert json.loads(process.stdout.readline())["base_url"].endswith("/a/b.c")
        state = json.loads(process.stdout.readline())
        assert state["changes"] == {"known": 2, "total": 2, "sha256": log_hash(log)}
        assert state["ended"]
    finally:
        process.terminate()
        assert process.wait() == 130
