"""Batches with fields that the product does not declare, landed, merged and reported as JSON.

`python -m tests.warehouse.schema.new_field_story HOME STEP…` runs with the first `warehouse` on the
path: test_new_field.py provides one that declares the fields. Steps: a number lands and merges the
batch of that day, `verify` verifies, `report` prints the published data.
"""

import csv
import io
import json
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from tests.warehouse.normalise.catalog_bodies import PLAIN, json_event
from warehouse.history.merge import merge
from warehouse.history.verify import verify
from warehouse.home import Home
from warehouse.landing.batches import Feed, Pull, Scope
from warehouse.queries import connected
from warehouse.schema.dictionary import markdown

FIRST: Final = datetime(2026, 3, 1, 6, tzinfo=UTC)
NEW: Final = {
    "xVenue": "Lisbon",
    "xDoorsAt": "2026-10-08T18:00:00Z",
    "xIsOnline": "false",
    "xSeats": "900",
}
PORTO: Final = {**NEW, "xVenue": "Porto"}
HALF: Final = {**PORTO, "xIsOnline": True, "xDoorsAt": "2026-10-08T19:00:00Z"}
QUERIES: Final = {
    "versions": """
        SELECT event_id, version, change_kinds, changed_fields, x_venue, x_doors_at::VARCHAR,
            x_is_online, x_seats, 'x_venue' IN unknown_fields
        FROM event_versions WHERE version > 0 ORDER BY ALL
    """,
    "events": """
        SELECT event_id, x_venue, x_seats, 'x_venue' IN unknown_fields FROM events ORDER BY event_id
    """,
    "extra": "SELECT event_id, extra::VARCHAR FROM events WHERE extra IS NOT NULL",
    "first_day": """
        SELECT event_id, x_venue FROM events_as_of('2026-03-01 12:00') ORDER BY event_id
    """,
    "third_day": """
        SELECT event_id, x_venue FROM events_as_of('2026-03-03 12:00') ORDER BY event_id
    """,
    "rejects": "SELECT reason, raw FROM rejects ORDER BY reason",
    "columns": """
        SELECT table_name, comment FROM duckdb_columns()
        WHERE column_name = 'x_venue' AND database_name = current_database() ORDER BY table_name
    """,
}


def land(home: Home, day: int) -> None:
    """Land the batch of a day: an export, a list, a list whose plan hides the fields, a list with
    missing and invalid fields, a list of a new and a known event."""
    match day:
        case 0:
            _land(home, day, "export", _csv({"id": "a", **NEW}, {"id": "b", **NEW}))
        case 1:
            _land(home, day, "events", _json({"id": "a", **PORTO}, {"id": "b", **NEW}))
        case 2:
            hidden = ({"id": "a", **NEW}, {"id": "c", **NEW})
            _land(home, day, "events", _json(*hidden), plan="standard")
        case 3:
            bad = {"id": "e", **NEW, "xDoorsAt": "at seven", "xIsOnline": "perhaps"}
            _land(home, day, "events", _json({"id": "d"}, {"id": "a", **HALF}, bad))
        case _:
            _land(
                home, day, "events", _json({"id": "c", **NEW}, {"id": "a", **HALF, "xSeats": "1"})
            )


def report(home: Home) -> dict[str, Any]:
    with connected(home.warehouse) as connection:
        rows = {name: connection.execute(query).fetchall() for name, query in QUERIES.items()}
    return {**rows, "dictionary": [line for line in markdown().splitlines() if "`x_venue`" in line]}


def extra_of(home: Home) -> list[tuple[Any, ...]]:
    with connected(home.warehouse) as connection:
        return connection.execute(QUERIES["extra"]).fetchall()


def _land(home: Home, day: int, feed: Feed, body: bytes, plan: str = "elite") -> None:
    at = FIRST + timedelta(days=day)
    pull = Pull(
        feed=feed,
        scope=Scope(),
        plan=plan,
        source="s",
        observed_at=at,
        content_at=at - timedelta(minutes=1),
        landed_at=at,
        requests=1,
    )
    home.landing.land(pull, [(body, None)])
    home.rebuild_stamp()


def _csv(*rows: dict[str, str]) -> bytes:
    out = io.StringIO(newline="")
    writer = csv.DictWriter(out, [*PLAIN, *NEW])
    writer.writeheader()
    writer.writerows([{**PLAIN, **row} for row in rows])
    return out.getvalue().encode()


def _json(*rows: dict[str, Any]) -> bytes:
    return json.dumps({"data": [{**json_event(), **row} for row in rows], "meta": {}}).encode()


def main() -> None:
    home = Home(Path(sys.argv[1]))
    for step in sys.argv[2:]:
        match step:
            case "verify":
                _say([wrong for found in verify(home, deep=True) for wrong in found.wrong])
            case "report":
                _say(report(home))
            case day:
                land(home, int(day))
                merge(home)


def _say(value: Any) -> None:
    sys.stdout.write(f"{json.dumps(value)}\n")


if __name__ == "__main__":
    main()
