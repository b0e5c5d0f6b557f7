"""Wrong bodies between good days: the catalog is that of a home which got, in place of each, only
the rows that can be read.

tests/warehouse/normalise has each form of body and its counts, tests/hostile_service a service that
sends them.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.crashes.tables import Digests, published
from tests.warehouse.normalise.catalog_bodies import csv_body, json_event, page, plain
from tests.warehouse.normalise.test_export import BROKEN_ROWS, NO_CATALOG
from tests.warehouse.normalise.test_json import NO_LIST
from warehouse import queries
from warehouse.errors import LandingError
from warehouse.history.merge import merge
from warehouse.history.verify import verify
from warehouse.home import Home
from warehouse.landing.batches import Feed, Pull, Scope

DAY = timedelta(days=1)
STARTS = datetime(2026, 3, 1, 6, tzinfo=UTC)
WHOLE = Scope(lower=datetime(2017, 1, 1, tzinfo=UTC), upper=datetime(2030, 1, 1, tzinfo=UTC))
HTML = b"<html><body>login, please</body></html>"
ERROR = b'{"error":{"code":"forbidden","message":"not you"}}'
IDS = tuple(f"e{number:02}" for number in range(40))
Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Batch:
    """A batch, observed a minute after the one before. `whole` claims that no event is left out."""

    feed: Feed
    bodies: tuple[bytes, ...]
    whole: bool = True
    status: int = 200
    scope: Scope = WHOLE


@dataclass(frozen=True)
class Case:
    """A wrong batch, and the proper one in its place; None: it is quarantined."""

    wrong: Batch
    proper: Batch | None = None
    rejected: int = 0


def exported(number: int, ids: tuple[str, ...] = IDS) -> list[dict[str, str]]:
    """Return the rows of an export; a wrong row in their place makes the difference."""
    updated = f"{STARTS + DAY + timedelta(minutes=number):%Y-%m-%dT%H:%M:%SZ}"
    changed = {IDS[number % 40]: {"title": f"Title {number}", "updatedAt": updated}}
    return [plain(**({"id": event_id} | changed.get(event_id, {}))) for event_id in ids]


def listed(number: int) -> Rows:
    typed: dict[str, Any] = {"impact": 7.5, "isEstimated": False, "coins": [{"slug": "bitcoin"}]}
    typed |= {"categories": ["Release"]} | dict.fromkeys(
        ("lastVerifiedAt", "dateEnd", "snapshotUrl")
    )
    return [json_event(**row) | typed for row in exported(number)]


def export(rows: list[dict[str, str]], *, whole: bool = True) -> Batch:
    return Batch("export", (csv_body(rows),), whole)


def make_cases() -> Iterator[tuple[str, Case]]:
    """Yield each case with its name."""
    for name, body in NO_CATALOG.items():
        yield f"export: {name}", Case(Batch("export", (body,)))
    for body, reason in NO_LIST:
        yield f"list: {reason} {body[:9]!r}", Case(Batch("events", (body,)))
    for feed, status in (("categories", 200), ("coins", 200), ("event", 200), ("event", 404)):
        scope = Scope(event_id="e07") if feed == "event" else Scope()
        for body in (HTML, ERROR)[: 1 if status == 404 else 2]:
            wrong = Batch(feed, (body,), status=status, scope=scope)  # type: ignore[arg-type]
            yield f"{feed}: {status} {body[:9]!r}", Case(wrong)
    wrong = Batch("event", (b"{}",), status=500, scope=Scope(event_id="e07"))
    yield "event: 500", Case(wrong)
    number = 40
    for name, (row, _) in BROKEN_ROWS.items():
        rows, number = exported(number), number + 1
        wrong = Batch("export", (csv_body(rows) + row,))
        yield f"row: {name}", Case(wrong, export(rows, whole=False), rejected=1)
    for field, value in (
        *(("impact", "nan"), ("impact", "1e999"), ("date", "2026-02-30T00:00:00Z"), ("title", "")),
        *(("createdAt", "yesterday"), ("description", "be\0fore"), ("id", "")),
    ):
        rows, number = exported(number), number + 1
        place = (number + 3) % 40
        kept = [*rows[:place], *rows[place + 1 :]]
        rows[place][field] = value
        yield f"{field} {value!r}", Case(export(rows), export(kept, whole=False), rejected=1)
    rows, number = exported(number), number + 1
    for row in rows[:12]:
        row["date"] = "soon"
    yield "12 of 40 rows", Case(export(rows), rejected=12)
    rows, number = exported(number), number + 1
    cut = Batch("export", (csv_body(rows[:20]) + csv_body(rows[20:21]).split(b"\r\n")[1][:60],))
    yield "cut at half", Case(cut, export(rows[:20], whole=False), rejected=1)
    rows, number = exported(number), number + 1
    yield "half the rows", Case(export(rows[:20]), export(rows[:20], whole=False))
    rows, number = exported(number), number + 1
    yield "rows twice", Case(export([*rows, *rows[10:30]]), export(rows))
    rows, number = exported(number), number + 1
    gone = [name for name in rows[0] if name not in ("impact", "sourceUrl", "categories")]
    fewer = Batch("export", (csv_body(rows, columns=gone),))
    yield "columns left out", Case(fewer, export(rows))
    shown, number = listed(number), number + 1
    harms = ({"impact": float("inf")}, {"date": None}, {"title": "a\0b"}, {"id": {}}, {"coins": 7})
    odd: list[Any] = [*({**shown[0], "id": "x", **harm} for harm in harms), None, "row"]
    body = json.dumps({"data": [*shown, *odd]}).encode()
    proper = Batch("events", (page(*shown),), whole=False)
    yield "rows of a list", Case(replace(proper, bodies=(body,)), proper, rejected=len(odd))
    right = {"id": "e39x", "cancelledAt": "2026-03-02T06:00:00Z"}
    bad = ({"id": None}, {"id": "1" * 24, "cancelledAt": "never"}, "cancelled", [1])
    proper = Batch("cancellations", (page(right),), False, scope=Scope(since=STARTS))
    yield "cancellations", Case(replace(proper, bodies=(page(*bad, right),)), proper, rejected=4)
    at = "2026-03-02T07:00:00Z"
    (row,) = (row for row in listed(number) if row["id"] == "e05")
    sent = json.dumps({"id": "d1", "type": "event.updated", "createdAt": at, "data": row}).encode()
    proper = Batch("deliveries", (sent,), scope=Scope())
    strange = tuple(
        sent.replace(b"event.updated", kind) for kind in (b"event.sung", b"coin.x", b"")
    )
    yield "unknown deliveries", Case(replace(proper, bodies=(*strange, sent)), proper)
    garbage = (
        b"",
        HTML,
        b"null",
        b"[]",
        b"{}",
        sent[:-9],
        b"\xff\xfe\x00",
        sent.replace(b"07:", b"7"),
    )
    wrong = replace(proper, bodies=(*garbage, sent))
    yield "garbage deliveries", Case(wrong, proper, rejected=len(garbage))


CASES = dict(make_cases())


def land(home: Home, batch: Batch, at: datetime) -> str:
    pull = Pull(
        feed=batch.feed,
        scope=batch.scope,
        plan="elite",
        source="by hand",
        observed_at=at,
        content_at=at - timedelta(seconds=31),
        landed_at=at,
        requests=1,
        why_incomplete=None if batch.whole else "what is left of it",
    )
    received = at if batch.feed == "deliveries" else None
    bodies = [(body, received) for body in batch.bodies]
    return home.landing.land(pull, bodies, status=batch.status).batch_id


@dataclass
class Seen:
    """A home with all wrong batches, and its tables and those of the proper home on two days."""

    home: Home
    ids: dict[str, str]
    tables: list[tuple[Digests, Digests]]


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    root = tmp_path_factory.mktemp("hostile")
    homes = wrong, proper = Home(root / "wrong"), Home(root / "proper")
    found = Seen(wrong, {}, [])
    for home in homes:
        home.claim("by hand")
        land(home, export(exported(0)), STARTS)
    for number, (name, case) in enumerate(CASES.items()):
        at = STARTS + DAY + timedelta(minutes=number)
        found.ids[name] = land(wrong, case.wrong, at)
        if case.proper is not None:
            land(proper, case.proper, at)
    for later in (2, 3):
        found.tables.append((catalog(wrong), catalog(proper)))
        for home in homes:
            land(home, export(exported(later)), STARTS + later * DAY)
    return found


def catalog(home: Home) -> Digests:
    """Merge, and return the tables about the catalog."""
    merge(home)
    return published(
        home.warehouse, without=("batches", "rejects", "coverage"), columns={"batch_id"}
    )


@pytest.mark.parametrize("name", CASES)
def test_wrong_body_is_quarantined_or_its_wrong_rows_are_rejected(name: str, seen: Seen) -> None:
    query = "SELECT status, rejected FROM batches WHERE batch_id = $b"
    rejects = (
        "SELECT count(*) FROM rejects WHERE batch_id = $b AND reason <> '' AND raw IS NOT NULL"
    )
    with queries.connected(seen.home.warehouse) as connection:
        ((status, rejected),) = connection.execute(query, {"b": seen.ids[name]}).fetchall()
        ((kept,),) = connection.execute(rejects, {"b": seen.ids[name]}).fetchall()
    case = CASES[name]
    assert status == ("quarantined" if case.proper is None else "merged")
    assert rejected == kept
    assert case.proper is None or rejected == case.rejected


@pytest.mark.parametrize("day", [0, 1], ids=["after the wrong day", "after the next good one"])
def test_tables_equal_those_of_a_home_without_the_wrong_bodies(day: int, seen: Seen) -> None:
    wrong, proper = seen.tables[day]
    assert wrong == proper


def test_nothing_is_lost_and_a_replay_gives_the_same_tables(seen: Seen) -> None:
    assert {c.check: c.wrong for c in verify(seen.home, deep=True) if not c.holds} == {}
    assert set(seen.ids.values()) <= set(seen.home.landing.batch_ids())


def test_release_of_an_unknown_batch_is_an_error(seen: Seen) -> None:
    for name in ("20260101T000000Z-export-0123456789ab", "../../etc/passwd", ""):
        with pytest.raises(LandingError):
            seen.home.landing.release(name)


def test_events_whose_rows_are_unreadable_twice_are_not_withdrawn(tmp_path: Path) -> None:
    """A row without a readable id may be of any event, so absence proves nothing."""
    home = Home(tmp_path / "home")
    land(home, export(exported(0)), STARTS)
    for number, fields in enumerate((("date",), ("id", "slug", "sourceUrl")), 1):
        rows = exported(0)
        rows[9].update(dict.fromkeys(fields, ""))
        land(home, export(rows), STARTS + number * DAY)
        since = Scope(since=STARTS - DAY)
        at = STARTS + number * DAY + timedelta(minutes=5)
        land(home, Batch("cancellations", (page(),), scope=since), at)
    merge(home)
    with queries.connected(home.warehouse) as connection:
        query = "SELECT status, missing_since FROM events WHERE event_id = 'e09'"
        assert connection.execute(query).fetchall() == [("scheduled", None)]
