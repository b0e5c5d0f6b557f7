"""Batches that exceed a limit, or fail unexpectedly, are quarantined; the others are merged."""

import gzip
import json
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest

from almanac.core.errors import WarehouseError
from almanac.reading.csv_file import RECORD_BYTES
from tests.hangs import HANGS_AFTER_S
from tests.reading import ask
from tests.warehouse.landed_days import became
from tests.warehouse.normalise.catalog_bodies import csv_body, json_event, plain
from warehouse.history import fold
from warehouse.history.merge import merge
from warehouse.home import Home
from warehouse.landing.batches import Feed, Manifest, Pull, Scope
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


def bomb(start: bytes, unpacked: int = 16 << 20) -> bytes:
    return gzip.compress(start + b"x" * unpacked, 9)


FULL = listed(event(id="good"))


def long_page() -> bytes:
    return b'{"data":[],"x":"' + b"x" * (70 << 20) + b'"}'


BOMBS: dict[str, tuple[Feed, Callable[[], bytes], str]] = {
    "an export": ("export", lambda: bomb(b"id,title\r\n"), "unpacks to over 200 times"),
    "a list": ("events", lambda: bomb(b'{"data":["'), "unpacks to over 200 times"),
    "coins": ("coins", lambda: bomb(b"["), "unpacks to over 200 times"),
    "a packed export": ("export", lambda: gzip.compress(bomb(b"id\r\n")), "has a NUL byte"),
    "many values": ("events", lambda: b"[" + b"{}," * ELEMENTS + b"{}]", "JSON of 4"),
    "many rows": ("events", lambda: b"[" + b"{}," * PAGE_ROWS + b"{}]", "a list of 100001 rows"),
    "a page of 70 MB": ("events", long_page, "a page of"),
    "JSON of 70 MB": ("export", long_page, "a page of"),
    "no row": ("events", lambda: b"[" + b"{}," * (PAGE_ROWS - 1) + b"{}]", "can't be read"),
    "brackets alone": ("coins", lambda: b"[" * (PAGE_BYTES // 2), "JSON of"),
    "a column for each value": ("export", lambda: b"c," * (KEYS + 9), "columns; expected at most"),
    "one line without an end": ("export", lambda: b"id,title," * 2_000_000, "line 1 has more"),
}
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


Merged = tuple[Home, dict[str, Manifest], int]
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
    """A home with batches beyond every limit, merged by another process, and the peak in bytes."""
    home = Home(tmp_path_factory.mktemp("limits") / "home")
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
    return home, batches, int(done.stdout)


def test_a_batch_beyond_a_limit_is_quarantined_with_its_reason(merged: Merged) -> None:
    home, batches, peak_bytes = merged
    found = dict(ask(home, "SELECT batch_id, why FROM batches WHERE status = 'quarantined'"))
    for name, (_, _, reason) in BOMBS.items():
        assert reason in found[batches[name].batch_id], name
    assert home.landing.pending() == []
    assert peak_bytes < MEMORY_BYTES


def test_a_row_beyond_a_limit_is_rejected_alone(merged: Merged) -> None:
    home, batches, _ = merged
    known = {event_id for (event_id,) in ask(home, "SELECT event_id FROM events")}
    reasons = ask(home, "SELECT batch_id, reason FROM rejects")
    for name, (_, expected) in WIDE.items():
        assert became(home, batches[name]) == ("merged", "")
        (reason,) = [why for batch_id, why in reasons if batch_id == batches[name].batch_id]
        assert expected in reason, name
        assert f"good {name}" in known


def test_a_bomb_among_deliveries_rejects_no_other_delivery(home: Home) -> None:
    batch = land(home, "deliveries", delivery(1), bomb(b"{"), delivery(2))
    (outcome,) = merge(home).outcomes
    assert (outcome.status, outcome.good, outcome.rejected) == ("merged", 2, 1)
    assert became(home, batch)[0] == "merged"
    ((reason,),) = ask(home, "SELECT reason FROM rejects")
    assert "200 times" in reason


def test_a_record_without_an_end_is_read_only_up_to_the_limit(home: Home) -> None:
    body = csv_body([plain(id="a"), plain(id="b")]) + b'c,"' + b"x" * RECORD_BYTES
    bad = land(home, "export", body)
    (outcome,) = merge(home).outcomes
    assert became(home, bad)[0] == "merged"
    assert (outcome.good, outcome.rejected) == (2, 1)


@pytest.mark.parametrize(
    ("failure", "raised"),
    [
        (duckdb.IOException("disk full"), duckdb.IOException),
        (OSError(28, "disk full"), OSError),
        (MemoryError(), WarehouseError),
    ],
)
def test_a_full_disk_or_memory_is_not_a_fault_of_the_current_batch(
    failure: Exception, raised: type[Exception], home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise failure

    batch = land(home, "events", FULL)
    with monkeypatch.context() as patched:
        patched.setattr(fold, "normalise", fail)
        with pytest.raises(raised):
            merge(home)
    merge(home)
    assert became(home, batch) == ("merged", "")


def test_too_little_memory_or_disk_stops_a_merge_and_sets_no_good_batch_aside(
    home: Home, monkeypatch: pytest.MonkeyPatch
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
            merge(home)
    merge(home)
    assert became(home, batch) == ("merged", "")
    assert ask(home, "SELECT count(*) FROM events") == [(3_000,)]
