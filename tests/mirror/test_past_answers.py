"""Answers at random past times equal an independent formulation over the warehouse's macros."""

import csv
import io
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import duckdb
import httpx
import pytest

from catalog.contract.plans import PLANS
from catalog.server.state_dir import ServiceDir
from tests.mirror.filled_home import NOW, STARTS, mirroring
from tests.mirror.plain_past import PlainPast, Row
from tests.server.plain_model import text
from warehouse import queries
from warehouse.home import Home

SHOWN = ("free", "pro", "elite")
MICROSECOND = timedelta(microseconds=1)


class PastReader:
    """Reads a running mirror at a past time with the key of a plan."""

    def __init__(self, client: httpx.Client, key: str, plan: str, ts: datetime) -> None:
        self.plan = plan
        self._client = client
        self._headers = {"x-api-key": key}
        self._as_of = f"{ts:%Y-%m-%dT%H:%M:%S.%fZ}"

    def get(self, path: str, **parameters: Any) -> httpx.Response:
        query = {name: value for name, value in parameters.items() if value is not None}
        return self._client.get(path, params={**query, "as_of": self._as_of}, headers=self._headers)

    def rows(self, path: str, *, limit: int, **parameters: Any) -> list[Row]:
        """Follow the cursors to the end; each page has the same total."""
        rows: list[Row] = []
        totals, cursor = set(), None
        while True:
            answer = self.get(path, limit=limit, cursor=cursor, **parameters)
            assert answer.status_code == 200, answer.text
            rows += answer.json()["data"]
            meta = answer.json()["meta"]
            totals.add(meta["total"])
            cursor = meta["cursor"]
            if cursor is None:
                assert totals == {len(rows)}
                return rows

    def changes(self, *, limit: int, since: datetime | None) -> list[Row]:
        """Follow the cursors to the end, and return the changes without their own cursors."""
        rows: list[Row] = []
        answer = self.get("/v2/events/changes", limit=limit, since=text(since))
        while True:
            assert answer.status_code == 200, answer.text
            rows += answer.json()["data"]
            meta = answer.json()["meta"]
            if meta["total"] <= limit:
                return [{name: row[name] for name in row if name != "cursor"} for row in rows]
            answer = self.get("/v2/events/changes", limit=limit, cursor=meta["cursor"])


@pytest.fixture(scope="module")
def database(filled_home: Home) -> Iterator[duckdb.DuckDBPyConnection]:
    with queries.connected(filled_home.warehouse) as connection:
        yield connection


@pytest.fixture(scope="module")
def served(
    filled_home: Home, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[httpx.Client, dict[str, str]]]:
    """Yield a client of a mirror, and the key of each plan."""
    folder = tmp_path_factory.mktemp("mirror")
    book = ServiceDir(folder, wall=lambda: NOW).key_book()
    keys = {plan: book.create(plan, PLANS[plan])[0] for plan in SHOWN}
    with mirroring(filled_home, folder) as (_, client):
        yield client, keys


def some_filters(random: Random, past: PlainPast) -> Row:
    """Return a few filters, most of which match something."""
    day = past.now.replace(hour=0, minute=0, second=0, microsecond=0)
    of_one = random.choice([*past.events.values()])
    words = (of_one["title"] + " " + (of_one["description"] or "")).split()
    choices: Row = {
        "from": day - timedelta(days=random.randrange(-3, 10)),
        "to": day + timedelta(days=random.randrange(10, 20), seconds=random.randrange(86_400)),
        "coins": random.sample(sorted(past.coins), 9) + list(of_one["coins"]),
        "categories": random.sample(sorted(past.categories.values()), 3),
        "keyword": random.choice(words),
        "impactMin": random.choice([0, 2.5, 6.1, 7.5]),
        "sortBy": random.choice(["date_asc", "impact_desc"]),
    }
    return {name: choices[name] for name in random.sample(sorted(choices), random.randrange(4))}


def as_query(filters: Row) -> Row:
    return {
        name: text(value)
        if isinstance(value, datetime)
        else ",".join(value)
        if isinstance(value, list)
        else value
        for name, value in filters.items()
    }


def check_lists(reader: PastReader, past: PlainPast, random: Random) -> None:
    for filters in ({}, some_filters(random, past)):
        expected = past.events_list(reader.plan, filters)
        if expected is None:
            answer = reader.get("/v2/events", **as_query(filters))
            assert answer.json()["error"]["code"] == "tier_required"
            continue
        found = reader.rows("/v2/events", limit=random.choice([20, 50, 100]), **as_query(filters))
        assert found == [past.shown(row, reader.plan) for row in expected], filters


def check_export(reader: PastReader, past: PlainPast, random: Random) -> None:
    filters = some_filters(random, past)
    answer = reader.get("/v2/events/export", **as_query(filters))
    if reader.plan != "elite":
        assert answer.status_code == 403
        return
    rows = list(csv.DictReader(io.StringIO(answer.text, newline="")))
    assert rows == [exported(past.shown(row, "elite")) for row in past.export(filters)], filters


def exported(event: Row) -> dict[str, str]:
    flat = event | {
        "coins": ";".join(coin["slug"] for coin in event["coins"]),
        "categories": ";".join(event["categories"] or ()),
        "isEstimated": json.dumps(event["isEstimated"]),
    }
    return {name: "" if value is None else str(value) for name, value in flat.items()}


def check_events(reader: PastReader, past: PlainPast, ids: list[str]) -> None:
    """Compare single events and their histories, also of events that are not known yet."""
    for event_id in ids:
        answer = reader.get(f"/v2/events/{event_id}")
        status, expected = past.single(reader.plan, event_id)
        assert answer.status_code == status, event_id
        if status == 410:
            assert answer.json()["cancelledAt"] == expected
        elif status == 200:
            assert answer.json() == expected
        answer = reader.get(f"/v2/events/{event_id}/history")
        versions = past.history(reader.plan, event_id)
        assert answer.status_code == (404 if versions is None else 200), event_id
        if versions is not None:
            assert answer.json()["data"] == versions
            assert answer.json()["meta"]["total"] == len(versions)


def check_coins(reader: PastReader, past: PlainPast, random: Random) -> None:
    expected = past.coins_list(reader.plan, None)
    assert reader.rows("/v2/coins", limit=200) == expected
    named = random.choice([*past.coins.values()])
    q = named["name"].casefold()[:3]
    assert reader.rows("/v2/coins", limit=50, q=q) == past.coins_list(reader.plan, q)
    answer = reader.get(f"/v2/coins/{named['coin']}")
    if answer.status_code == 200:
        assert answer.json() == past.coin(reader.plan, named)
    else:
        assert (reader.plan, answer.status_code) == ("free", 403)


def check_others(reader: PastReader, past: PlainPast, random: Random) -> None:
    recent = past.now.replace(microsecond=0) - timedelta(hours=random.randrange(90))
    since = random.choice([None, recent])
    found = reader.rows("/v2/events/cancellations", limit=9, since=text(since))
    assert found == past.cancellations(since)
    assert reader.changes(limit=100, since=since) == past.changes(reader.plan, since)
    categories = reader.rows("/v2/categories", limit=50)
    assert {row["name"]: row["id"] for row in categories} == past.categories
    usage = reader.get("/v2/usage").json()
    assert (usage["plan"], usage["limit"], usage["remaining"]) == (reader.plan, None, None)
    # The usage is that of the mirror, so of now.
    assert usage["period"]["start"] == "2026-02-01T00:00:00Z"
    assert usage["used"] >= 5


def random_times(random: Random, database: duckdb.DuckDBPyConnection, count: int) -> list[datetime]:
    """Return times at, just before and just after changes, and any others."""
    query = "SELECT DISTINCT known_from FROM event_versions ORDER BY ALL"
    changed = [at.astimezone(UTC) for (at,) in database.execute(query).fetchall()]
    found = [STARTS, NOW]
    while len(found) < count:
        at = random.choice(changed)
        span = (NOW - STARTS) / MICROSECOND
        anywhere = STARTS + random.randrange(int(span)) * MICROSECOND
        found.append(random.choice([at, at - MICROSECOND, at + MICROSECOND, anywhere]))
    return [max(at, STARTS) for at in found]


def chosen_ids(random: Random, database: duckdb.DuckDBPyConnection, count: int) -> list[str]:
    """Return events that changed, were cancelled or withdrawn, and one that nobody knows."""
    query = "SELECT event_id FROM event_versions GROUP BY event_id HAVING {} ORDER BY event_id"
    eventful = [
        database.execute(query.format(having)).fetchall()
        for having in ("max(version) > 1", "bool_or(status = 'cancelled')", "min(version) = 1")
    ]
    listed = "SELECT event_id FROM cancellations ORDER BY event_id"
    eventful.append(database.execute(listed).fetchall())
    return ["unknown", *(random.choice(random.choice(eventful))[0] for _ in range(count))]


@pytest.mark.parametrize(
    "count", [pytest.param(12, id="some"), pytest.param(200, id="many", marks=pytest.mark.long)]
)
def test_every_route_shows_what_was_known_then(
    count: int,
    served: tuple[httpx.Client, dict[str, str]],
    database: duckdb.DuckDBPyConnection,
) -> None:
    client, keys = served
    random = Random(count)
    for ts in random_times(random, database, count):
        past = PlainPast(database, ts)
        for plan in SHOWN:
            reader = PastReader(client, keys[plan], plan, ts)
            check_lists(reader, past, random)
            check_export(reader, past, random)
            check_events(reader, past, chosen_ids(random, database, 4))
            check_coins(reader, past, random)
            check_others(reader, past, random)
