"""Batches that exceed a limit, or fail unexpectedly, are quarantined; the others are merged."""

import gzip
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest

from almanac.reading.csv_file import RECORD_BYTES
from tests.hangs import HANGS_AFTER_S
from tests.warehouse.normalise.catalog_bodies import PLAIN, csv_body, json_event, plain
from warehouse import queries
from warehouse.errors import WarehouseError
from warehouse.history import fold
from warehouse.history.merge import merge, replay
from warehouse.home import Home
from warehouse.landing.batches import Feed, Manifest, Pull, Scope
from warehouse.landing.landing import import_export
from warehouse.size_limits import COINS, DEPTH, ELEMENTS, KEYS, PAGE_BYTES, PAGE_ROWS

AT = datetime(2026, 3, 2, 6, tzinfo=UTC)
ROOT = Path(__file__).parents[3]
MEMORY_BYTES = 1 << 30


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


def land(home: Home, feed: Feed, *bodies: bytes, minute: int = 0) -> Manifest:
    at = AT + timedelta(minutes=minute)
    pull = Pull(
        feed=feed,
        scope=Scope(),
        plan="enterprise",
        source="s",
        observed_at=at,
        content_at=at - timedelta(minutes=1),
        landed_at=at,
        requests=1,
    )
    received = at if feed == "deliveries" else None
    return home.landing.land(pull, [(body, received) for body in bodies])


def listed(*rows: Any) -> bytes:
    return json.dumps({"data": list(rows), "meta": {}}).encode()


def event(**fields: Any) -> dict[str, Any]:
    made: dict[str, Any] = {**json_event(), **fields}
    return made


def delivery(number: int) -> bytes:
    body = {"type": "event.updated", "createdAt": "2026-03-02T05:00:00Z"}
    return json.dumps({**body, "data": event(id=f"delivered-{number}")}).encode()


def ask(home: Home, query: str) -> list[tuple[Any, ...]]:
    with queries.connected(home.warehouse) as connection:
        return connection.execute(query).fetchall()


def became(home: Home, manifest: Manifest) -> tuple[str, str]:
    query = f"SELECT status, why FROM batches WHERE batch_id = '{manifest.batch_id}'"
    ((status, why),) = ask(home, query)
    return status, why or ""


def bomb(start: bytes, unpacked: int = 48 << 20) -> bytes:
    return gzip.compress(start + b"x" * unpacked, 9)


FULL = listed(event(id="good"))
BOMBS: dict[str, tuple[Feed, Callable[[], bytes], str]] = {
    "an export": ("export", lambda: bomb(b"id,title\r\n"), "unpacks to over 200 times"),
    "a list": ("events", lambda: bomb(b'{"data":["'), "unpacks to over 200 times"),
    "coins": ("coins", lambda: bomb(b"["), "unpacks to over 200 times"),
    "an export in an export": (
        "export", lambda: gzip.compress(bomb(b"id\r\n")), "no column id"
    ),
    "millions of values": ("events", lambda: b"[" + b"{}," * ELEMENTS + b"{}]", "JSON of 4"),
    "a list too long": (
        "events", lambda: b"[" + b"{}," * PAGE_ROWS + b"{}]", "a list of 100001 rows"
    ),
    "a page of 70 MB": (
        "events", lambda: b'{"data":[],"x":"' + b"x" * (70 << 20) + b'"}', "a page of"
    ),
    "JSON of 70 MB": (
        "export", lambda: b'{"data":[],"x":"' + b"x" * (70 << 20) + b'"}', "a page of"
    ),
    "many rows of nothing": (
        "events", lambda: b"[" + b"{}," * (PAGE_ROWS - 1) + b"{}]", "can't be read"
    ),
    "brackets alone": ("coins", lambda: b"[" * (PAGE_BYTES // 2), "JSON of"),
    "a column for each value": (
        "export", lambda: b"c," * (KEYS + 9), "columns; expected at most"
    ),
    "one line without an end": ("export", lambda: b"id,title," * 2_000_000, "no column id"),
}  # fmt: skip
"""Bodies are made when they are landed: some take a second, or much memory."""


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


WIDE: dict[str, tuple[dict[str, Any], str]] = {
    "many fields": ({f"x{n}": 1 for n in range(KEYS + 1)}, "fields, got"),
    "many coins": ({"coins": [f"c{n}" for n in range(COINS + 1)]}, "coins: expected at most"),
    "many categories": ({"categories": ";" * (COINS + 1)}, "categories: expected at most"),
    "deep": ({"x": nested(DEPTH)}, "nested deeper than"),
    "long": ({"description": "x" * (17 << 20)}, "a row of"),
    "a long unknown field": ({"x": "x" * (17 << 20)}, "the unknown fields have"),
}


@dataclass(frozen=True)
class Merged:
    """A home with batches beyond every limit and a few good ones, merged by another process."""

    home: Home
    batches: dict[str, Manifest]
    peak_bytes: int
    became: dict[str, tuple[str, str]]
    """The status of each batch by its id, and why."""
    reasons: list[tuple[str, str]]
    """The id of the batch and the reason of each rejected row."""
    events: set[str]


_MERGE = """
import sys
from pathlib import Path
from warehouse.errors import WarehouseError
from warehouse.home import Home
from warehouse.history.merge import merge
from tests.memory import peak_bytes
merge(Home(Path(sys.argv[1])))
print(peak_bytes())
"""


@pytest.fixture(scope="module")
def merged(tmp_path_factory: pytest.TempPathFactory) -> Merged:
    home = Home(tmp_path_factory.mktemp("bounds") / "home")
    batches = {
        name: land(home, feed, make(), minute=minute)
        for minute, (name, (feed, make, _)) in enumerate(BOMBS.items())
    }
    for name, (fields, _) in WIDE.items():
        rows = listed(event(id=f"bad {name}", **fields), event(id=f"good {name}"))
        batches[name] = land(home, "events", rows, minute=len(batches))
    done = subprocess.run(
        [sys.executable, "-c", _MERGE, str(home.root)],
        cwd=ROOT,
        check=True,
        timeout=HANGS_AFTER_S,
        capture_output=True,
        text=True,
    )
    return Merged(
        home,
        batches,
        peak_bytes=int(done.stdout),
        became={
            batch_id: (status, why or "")
            for batch_id, status, why in ask(home, "SELECT batch_id, status, why FROM batches")
        },
        reasons=[(row[0], row[1]) for row in ask(home, "SELECT batch_id, reason FROM rejects")],
        events={event_id for (event_id,) in ask(home, "SELECT event_id FROM events")},
    )


@pytest.mark.parametrize("name", BOMBS)
def test_a_batch_beyond_a_limit_is_quarantined_with_its_reason(name: str, merged: Merged) -> None:
    status, why = merged.became[merged.batches[name].batch_id]
    assert status == "quarantined"
    assert BOMBS[name][2] in why


@pytest.mark.parametrize("name", WIDE)
def test_a_row_beyond_a_limit_is_rejected_alone(name: str, merged: Merged) -> None:
    batch_id = merged.batches[name].batch_id
    assert merged.became[batch_id] == ("merged", "")
    (reason,) = [reason for rejected, reason in merged.reasons if rejected == batch_id]
    assert WIDE[name][1] in reason
    assert f"good {name}" in merged.events


def test_no_batch_is_pending_after_bombs(merged: Merged) -> None:
    assert merged.home.landing.pending() == []
    assert merge(merged.home).outcomes == []


def test_no_bomb_takes_a_gigabyte(merged: Merged) -> None:
    assert merged.peak_bytes < MEMORY_BYTES


def test_a_bomb_among_deliveries_rejects_no_other_delivery(home: Home) -> None:
    batch = land(home, "deliveries", delivery(1), bomb(b"{"), delivery(2))
    (outcome,) = merge(home).outcomes
    assert (outcome.status, outcome.good, outcome.rejected) == ("merged", 2, 1)
    assert became(home, batch)[0] == "merged"
    ((reason,),) = ask(home, "SELECT reason FROM rejects")
    assert "200 times" in reason


def test_an_archive_that_is_a_bomb_is_quarantined(home: Home, tmp_path: Path) -> None:
    path = tmp_path / "export.csv.gz"
    path.write_bytes(bomb(b"id,title\r\n"))
    bad = import_export(
        home.landing, path, content_at=AT, plan="elite", source="s", now=AT + timedelta(days=1)
    )
    merge(home)
    assert became(home, bad)[0] == "quarantined"


def test_a_record_without_an_end_is_read_only_up_to_the_limit(home: Home) -> None:
    body = csv_body([plain(id="a"), plain(id="b")]) + b'c,"' + b"x" * RECORD_BYTES
    bad = land(home, "export", body)
    (outcome,) = merge(home).outcomes
    assert became(home, bad)[0] == "merged"
    assert (outcome.good, outcome.rejected) == (2, 1)


def test_a_column_whose_name_is_not_utf_8_stops_no_merge(home: Home) -> None:
    header, _, rows = csv_body([PLAIN]).partition(b"\r\n")
    land(home, "export", header + b",caf\xe9\r\n" + rows.rstrip(b"\r\n") + b",x\r\n")
    land(home, "events", listed(event(id="good")), b'{"error":"\\ud800"}', minute=1)
    merge(home)
    merge(home)
    assert home.landing.pending() == []


FAILURES = [duckdb.ConversionException("nobody foresaw this"), KeyError("nor this")]


@pytest.mark.parametrize("failure", FAILURES, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("where", ["normalise", "visible_scope"])
def test_a_failing_batch_is_quarantined_with_the_reason_and_merged_once_it_can_be_read(
    where: str, failure: Exception, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = [land(home, "events", listed(event(id=f"good-{n}")), minute=n) for n in (0, 2)]
    bad = land(home, "events", listed(event(id="bad")), minute=1)
    right = getattr(fold, where)

    def failing(*given: Any, **how: Any) -> Any:
        if bad in given:
            raise failure
        return right(*given, **how)

    with monkeypatch.context() as patched:
        patched.setattr(fold, where, failing)
        report = merge(home)
        assert [outcome.manifest.batch_id for outcome in report.outcomes] == [
            good[0].batch_id, bad.batch_id, good[1].batch_id
        ]  # fmt: skip
        assert merge(home).outcomes == []
    status, why = became(home, bad)
    assert status == "quarantined"
    assert type(failure).__name__ in why
    assert ask(home, "SELECT event_id FROM events ORDER BY 1") == [("good-0",), ("good-2",)]
    replay(home)
    assert len(ask(home, "SELECT event_id FROM events")) == 3


@pytest.mark.parametrize("failure", [duckdb.IOException("disk full"), OSError(28, "disk full")])
def test_a_full_disk_is_not_a_fault_of_the_current_batch(
    failure: Exception, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = land(home, "events", FULL)
    with monkeypatch.context() as patched:
        patched.setattr(fold, "normalise", lambda *given, **how: (_ for _ in ()).throw(failure))
        with pytest.raises(type(failure)):
            merge(home)
    merge(home)
    assert became(home, batch) == ("merged", "")


@pytest.mark.parametrize("command", [merge, replay], ids=["merge", "replay"])
def test_too_little_memory_or_disk_stops_a_merge_and_sets_no_good_batch_aside(
    command: Callable[[Home], object], home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = csv_body([plain(id=f"evt-{n}", description="LONG") for n in range(3_000)])
    batch = land(home, "export", short.replace(b"LONG", b"word " * 2_000))
    usual = Home.connect

    def confined(self: Home) -> Any:
        connection = usual(self)
        connection.execute("SET memory_limit = '20MB'")
        connection.execute("SET max_temp_directory_size = '1MB'")
        return connection

    with monkeypatch.context() as patched:
        patched.setattr(Home, "connect", confined)
        with pytest.raises(WarehouseError, match="not enough memory, or disk"):
            command(home)
    merge(home)
    assert became(home, batch) == ("merged", "")
    assert ask(home, "SELECT count(*) FROM events") == [(3_000,)]


def test_a_process_without_memory_sets_no_good_batch_aside(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = land(home, "events", FULL)
    with monkeypatch.context() as patched:
        patched.setattr(
            fold, "normalise", lambda *given, **how: (_ for _ in ()).throw(MemoryError())
        )
        with pytest.raises(WarehouseError, match=batch.batch_id):
            merge(home)
    merge(home)
    assert became(home, batch) == ("merged", "")
