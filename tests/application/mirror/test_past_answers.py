"""Answers at past times equal an independent model: plain lists of the rows of the tables."""

import csv
import io
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import duckdb
import httpx
import pytest

from tests.application.mirror.filled_home import NOW, STARTS, mirroring
from warehouse.home import Home

Row = dict[str, Any]
MICROSECOND = timedelta(microseconds=1)
EVENT = {
    **{name: name for name in ("slug", "title", "description", "categories", "impact")},
    "id": "event_id",
    "displayedDate": "displayed_date",
    "date": "date",
    "dateEnd": "date_end",
    "dateType": "date_type",
    "isEstimated": "is_estimated",
    "impactSummary": "impact_summary",
    "sourceUrl": "source_url",
    "snapshotUrl": "snapshot_url",
    "lastVerifiedAt": "last_verified_at",
    "createdAt": "created_at",
    "updatedAt": "updated_at",
}
"""The columns of the fields of an event, without its coins."""


class Past:
    """The catalog as known at a time, from all rows of the tables."""

    def __init__(self, tables: dict[str, list[Row]], ts: datetime) -> None:
        self.ts = ts
        self.versions = [row for row in tables["event_versions"] if row["known_from"] <= ts]
        known = {row["event_id"]: row for row in self.versions}
        self.events = {
            event_id: row
            for event_id, row in known.items()
            if row["status"] == "scheduled" and row["date"] is not None
        }
        self.cancelled = {
            event_id: (row["cancelled_at"], row["known_from"])
            for event_id, row in known.items()
            if row["status"] == "cancelled"
        }
        self.cancelled |= {
            row["event_id"]: (row["cancelled_at"], row["first_seen_at"])
            for row in tables["cancellations"]
            if row["first_seen_at"] <= ts and row["event_id"] not in known
        }
        self.ranks: dict[str, int | None] = {
            slug: None for row in self.versions for slug in row["coins"] or ()
        }
        for row in tables["coin_snapshots"]:
            if row["observed_at"] <= ts:
                self.ranks[row["coin"]] = row["rank"]

    def listed(self, lower: datetime) -> list[Row]:
        found = [row for row in self.events.values() if (row["date_end"] or row["date"]) >= lower]
        return sorted(found, key=lambda row: (row["date"], row["event_id"]))

    def cancellations(self, since: datetime) -> list[Row]:
        found = sorted(
            (at, event_id)
            for event_id, (at, known) in self.cancelled.items()
            if max(at, known) >= since
        )
        return [{"id": event_id, "cancelledAt": _text(at)} for at, event_id in found]


def _text(value: Any) -> Any:
    return f"{value:%Y-%m-%dT%H:%M:%SZ}" if isinstance(value, datetime) else value


def _shown(row: Row) -> Row:
    return {name: _text(row[column]) for name, column in EVENT.items()}


def _plain(event: Row) -> Row:
    return {name: event[name] for name in EVENT}


@pytest.fixture(scope="module")
def tables(filled_home: Home) -> dict[str, list[Row]]:
    found = {}
    with duckdb.connect(str(filled_home.warehouse), read_only=True) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for table, order in (
            ("event_versions", "known_from, event_id, version"),
            ("coin_snapshots", "observed_at"),
            ("cancellations", "event_id"),
        ):
            cursor = connection.execute(f"FROM {table} ORDER BY {order}")
            names = [column[0] for column in cursor.description or ()]
            found[table] = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
    return found


@pytest.fixture(scope="module")
def client(filled_home: Home, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    with mirroring(filled_home, tmp_path_factory.mktemp("mirror")) as (_, client):
        yield client


def read_all(client: httpx.Client, path: str, ts: datetime, **parameters: Any) -> list[Row]:
    """Follow the cursors to the end; each page has the same total."""
    rows: list[Row] = []
    asked = {"limit": 100, "as_of": f"{ts.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%fZ}", **parameters}
    while True:
        answer = client.get(path, params=asked)
        assert answer.status_code == 200, answer.text
        page = answer.json()
        rows += page["data"]
        if page["meta"]["cursor"] is None or not page["data"]:
            return rows
        asked["cursor"] = page["meta"]["cursor"]
        asked.pop("since", None)


def read_export(client: httpx.Client, ts: datetime) -> list[tuple[str, str]]:
    """Return id and score of each event of the export."""
    at = {"as_of": f"{ts.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%fZ}"}
    answer = client.get("/v2/events/export", params=at)
    return [(row["id"], row["impact"]) for row in csv.DictReader(io.StringIO(answer.text))]


def random_times(random: Random, versions: list[Row], count: int) -> list[datetime]:
    """Return times at, just before and just after changes, and any others."""
    changed = [row["known_from"] for row in versions]
    found = [STARTS, NOW]
    while len(found) < count:
        at = random.choice(changed)
        anywhere = STARTS + random.randrange(int((NOW - STARTS) / MICROSECOND)) * MICROSECOND
        found.append(random.choice([at, at - MICROSECOND, at + MICROSECOND, anywhere]))
    return [max(at, STARTS) for at in found]


@pytest.mark.parametrize(
    "count", [pytest.param(8, id="some"), pytest.param(100, id="many", marks=pytest.mark.long)]
)
def test_every_route_shows_what_was_known_then(
    count: int, client: httpx.Client, tables: dict[str, list[Row]]
) -> None:
    random = Random(count)
    for ts in random_times(random, tables["event_versions"], count):
        past = Past(tables, ts)
        lower = ts.replace(hour=0, minute=0, second=0, microsecond=0)
        found = read_all(client, "/v2/events", ts)
        assert [*map(_plain, found)] == [*map(_shown, past.listed(lower))], ts
        exported = read_export(client, ts)
        everything = past.listed(datetime.min.replace(tzinfo=UTC))
        scores = ["" if row["impact"] is None else str(row["impact"]) for row in everything]
        expected = [(row["event_id"], score) for row, score in zip(everything, scores, strict=True)]
        assert exported == expected, ts
        since = ts.replace(microsecond=0) - timedelta(hours=random.randrange(90))
        cancellations = read_all(client, "/v2/events/cancellations", ts, since=_text(since))
        assert cancellations == past.cancellations(since), ts
        coins = read_all(client, "/v2/coins", ts)
        assert {row["slug"]: row["rank"] for row in coins} == past.ranks, ts
        changes = read_all(client, "/v2/events/changes", ts)
        assert [(row["id"], row["version"]) for row in changes] == [
            (row["event_id"], row["version"]) for row in past.versions
        ]
        for row in random.sample(tables["event_versions"], 8):
            check_event(client, past, row["event_id"])


def check_event(client: httpx.Client, past: Past, event_id: str) -> None:
    """Compare a single event and its history, also of an event that is not known yet."""
    at = {"as_of": f"{past.ts.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%fZ}"}
    answer = client.get(f"/v2/events/{event_id}", params=at)
    if event_id in past.events:
        assert _plain(answer.json()) == _shown(past.events[event_id])
    else:
        assert answer.status_code == (410 if event_id in past.cancelled else 404)
    versions = [row for row in past.versions if row["event_id"] == event_id]
    answer = client.get(f"/v2/events/{event_id}/history", params=at)
    assert answer.status_code == (200 if versions else 404)
    for shown, row in zip(answer.json().get("data", ()), versions, strict=True):
        assert (shown["version"], shown["status"]) == (row["version"], row["status"])
        assert shown["kinds"] == row["change_kinds"]
        ended = row["known_to"] is not None and row["known_to"] <= past.ts
        assert (shown["knownTo"] is not None) == ended
        assert shown["event"] is None or _plain(shown["event"]) == _shown(row)
