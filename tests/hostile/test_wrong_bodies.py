"""Wrong bodies between good days: the catalog is that of a home which got, in place of each, only
the rows that can be read.

tests/warehouse/normalise has each form of body and its counts, tests/hostile_service a service that
sends them.
"""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from tests.crashes.tables import Digests, published
from tests.reading import reading
from tests.warehouse.normalise.catalog_bodies import csv_body, json_event, page, plain
from warehouse.history.merge import merge
from warehouse.history.verify import verify
from warehouse.home import Home
from warehouse.landing.batches import Feed, Pull, Scope

DAY = timedelta(days=1)
STARTS = datetime(2026, 3, 1, 6, tzinfo=UTC)
WHOLE = Scope(lower=datetime(2017, 1, 1, tzinfo=UTC), upper=datetime(2030, 1, 1, tzinfo=UTC))
HTML = b"<html><body>login, please</body></html>"
IDS = tuple(f"e{number:02}" for number in range(40))
Rows = list[dict[str, Any]]


class Batch(NamedTuple):
    """`whole` claims that no event is left out."""

    feed: Feed
    bodies: tuple[bytes, ...]
    whole: bool = True
    scope: Scope = WHOLE


def exported(number: int) -> Rows:
    """Return the rows of an export; the title of one event is by the number."""
    updated = f"{STARTS + DAY + timedelta(minutes=number):%Y-%m-%dT%H:%M:%SZ}"
    changed = {IDS[number % 40]: {"title": f"Title {number}", "updatedAt": updated}}
    return [plain(**({"id": event_id} | changed.get(event_id, {}))) for event_id in IDS]


def export(rows: Rows, *, whole: bool = True) -> Batch:
    return Batch("export", (csv_body(rows),), whole)


def wrong_and_proper() -> list[tuple[Batch, Batch | None]]:
    """Return wrong batches, and the proper one in place of each; None: it is quarantined."""
    feeds: tuple[Feed, ...] = ("export", "events", "categories", "coins", "event")
    found: list[tuple[Batch, Batch | None]] = [
        (Batch(feed, (HTML,), scope=Scope(event_id="e07") if feed == "event" else WHOLE), None)
        for feed in feeds
    ]
    for number, (field, value) in enumerate(
        (("impact", "nan"), ("date", "2026-02-30T00:00:00Z"), ("title", ""), ("id", "")), 40
    ):
        rows = exported(number)
        kept = [*rows[:9], *rows[10:]]
        rows[9][field] = value
        found.append((export(rows), export(kept, whole=False)))
    rows = exported(45)
    found.append((export([{**row, "date": "soon"} for row in rows[:12]] + rows[12:]), None))
    cut = csv_body(rows[:20]) + csv_body(rows[20:21]).split(b"\r\n")[1][:60]
    found.append((Batch("export", (cut,)), export(rows[:20], whole=False)))
    found.append((export([*rows, *rows[10:30]]), export(rows)))
    typed: dict[str, Any] = {"impact": 7.5, "isEstimated": False, "coins": [{"slug": "bitcoin"}]}
    typed |= {"categories": ["Release"], "lastVerifiedAt": None, "dateEnd": None}
    listed = [json_event(**row) | typed for row in exported(46)]
    harms = ({"impact": float("inf")}, {"date": None}, {"title": "a\0b"}, {"id": {}}, {"coins": 7})
    odd: list[Any] = [*({**listed[0], "id": "x", **harm} for harm in harms), None, "row"]
    body = json.dumps({"data": [*listed, *odd]}).encode()
    found.append((Batch("events", (body,), False), Batch("events", (page(*listed),), False)))
    at = "2026-03-02T07:00:00Z"
    sent = {"id": "d1", "type": "event.updated", "createdAt": at, "data": listed[5]}
    delivery = json.dumps(sent).encode()
    garbage = (b"", HTML, b"null", b"{}", delivery[:-9], b"\xff\xfe\x00")
    garbage += (delivery.replace(b"event.updated", b"event.sung"),)
    proper = Batch("deliveries", (delivery,), scope=Scope())
    found.append((proper._replace(bodies=(*garbage, delivery)), proper))
    return found


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
        why_incomplete=None if batch.whole else "which part is missing",
    )
    received = at if batch.feed == "deliveries" else None
    return home.landing.land(pull, [(body, received) for body in batch.bodies]).batch_id


def merged_catalog(home: Home) -> Digests:
    """Merge, and return the tables about the catalog."""
    merge(home)
    without = ("batches", "rejects", "coverage")
    return published(home.warehouse, without=without, columns={"batch_id"})


def test_the_catalog_equals_that_of_a_home_without_the_wrong_bodies_and_rows(
    tmp_path: Path,
) -> None:
    homes = wrong_home, proper_home = Home(tmp_path / "wrong"), Home(tmp_path / "proper")
    quarantined: set[str] = set()
    for home in homes:
        home.claim("by hand")
        land(home, export(exported(0)), STARTS)
    for number, (wrong, proper) in enumerate(wrong_and_proper()):
        at = STARTS + DAY + timedelta(minutes=number)
        batch_id = land(wrong_home, wrong, at)
        if proper is None:
            quarantined.add(batch_id)
        else:
            land(proper_home, proper, at)
    assert merged_catalog(wrong_home) == merged_catalog(proper_home)
    for home in homes:
        land(home, export(exported(2)), STARTS + 2 * DAY)
    assert merged_catalog(wrong_home) == merged_catalog(proper_home)
    with reading(wrong_home) as connection:
        batches = connection.execute("SELECT batch_id FROM batches WHERE status = 'quarantined'")
        assert {batch_id for (batch_id,) in batches.fetchall()} == quarantined
    assert {c.check: c.wrong for c in verify(wrong_home) if not c.holds} == {}


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
    with reading(home) as connection:
        query = "SELECT status, missing_since FROM events WHERE event_id = 'e09'"
        assert connection.execute(query).fetchall() == [("scheduled", None)]
