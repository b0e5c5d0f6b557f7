"""A home that is filled through the mirror in replay, with webhooks, has the history of its source.

By design, these differ: the times of what is only pulled, since webhooks do not report each change;
`updatedAt` and `lastVerifiedAt` alone make no version; the versions before the start are one.
"""

from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import duckdb
import pytest

from application.web.mirror.replay import Replay
from tests.application.mirror.pulled_homes import (
    Span,
    fill_from_replay,
    fill_from_sandbox,
    list_reported,
)
from tests.history.stories.disk import without_syncs
from warehouse.home import Home
from warehouse.schema.columns import CONTENT

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
DAY = Span(datetime(2017, 6, 7, 1, tzinfo=UTC), days=1, step=6 * HOUR, lag=3 * HOUR)
WEEK = Span(datetime(2018, 12, 7, 1, tzinfo=UTC), days=7, step=3 * HOUR, lag=20 * MINUTE)
SECOND = timedelta(seconds=1)
_CONTENT = ", ".join(column.name for column in CONTENT)
_CURRENT = ", ".join(
    column.name for column in CONTENT if column.name not in {"last_verified_at", "updated_at"}
)


@dataclass(frozen=True)
class Pair:
    """The replayed home, and the home that was filled from it."""

    span: Span
    source: Home
    filled: Home

    @property
    def start(self) -> datetime:
        return self.span.mirrored_from

    def rows(self, query: str, **values: Any) -> list[tuple[Any, ...]]:
        """Return the rows of a query over both homes, `source` and `filled`."""
        with duckdb.connect() as connection:
            connection.execute("SET TimeZone = 'UTC'")
            for name, home in (("source", self.source), ("filled", self.filled)):
                connection.execute(f"ATTACH '{home.warehouse}' AS {name} (READ_ONLY)")
            return connection.execute(query, values).fetchall()

    def differences(self, query: str, **values: Any) -> list[tuple[Any, ...]]:
        """Return the rows that a query, in which `HOME` is the home, has for only one of both."""
        source, filled = (query.replace("HOME", name) for name in ("source", "filled"))
        return self.rows(
            f"(({source}) EXCEPT ALL ({filled})) UNION ALL (({filled}) EXCEPT ALL ({source}))",
            **values,
        )


@pytest.fixture(
    scope="module",
    params=[pytest.param(DAY, id="day"), pytest.param(WEEK, id="week", marks=pytest.mark.long)],
)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    span: Span = request.param
    with without_syncs():
        source = fill_from_sandbox(tmp_path_factory.mktemp("source"), span)
        filled = fill_from_replay(tmp_path_factory.mktemp("filled"), source, span)
    return Pair(span, source, filled)


def test_every_row_was_read_and_none_was_taken_for_an_older_one(pair: Pair) -> None:
    found = pair.rows(
        "SELECT feed, status, sum(rejected), sum(ignored), count(flagged), "
        "sum(stale) FILTER (WHERE feed = 'deliveries') "
        "FROM filled.batches GROUP BY ALL"
    )
    feeds = {"export", "events", "event", "cancellations", "coins", "categories"}
    assert {row[0] for row in found} == feeds | {"deliveries"}
    assert {row[1:5] for row in found} == {("merged", 0, 0, 0)}
    assert {row[5] for row in found} <= {None, 0}


def test_the_first_version_is_the_state_at_the_start(pair: Pair) -> None:
    known = "known_from <= $start AND (known_to > $start OR known_to IS NULL)"
    columns = f"event_id, {_CONTENT}, unknown_fields"
    found = pair.differences(
        f"SELECT {columns} FROM HOME.event_versions WHERE {known}", start=pair.start
    )
    assert found == []


def test_no_version_differs(pair: Pair) -> None:
    """Content, order, kinds of change and changed fields."""
    found = pair.differences(
        "SELECT event_id, row_number() OVER (PARTITION BY event_id ORDER BY version), "
        f"{_CONTENT}, unknown_fields, change_kinds, changed_fields "
        "FROM HOME.event_versions WHERE known_from > $start",
        start=pair.start,
    )
    assert found == []


def test_each_reported_version_is_known_within_a_second(pair: Pair) -> None:
    with closing(Replay(pair.source.warehouse, pair.start, pair.span.until)) as replay:
        reported = set(list_reported(replay.store(), pair.span.until))
    numbered = (
        "SELECT event_id, row_number() OVER (PARTITION BY event_id ORDER BY version) AS n, "
        "known_from FROM {}.event_versions WHERE known_from > $start"
    )
    waits = [
        filled_at - at
        for event_id, at, filled_at in pair.rows(
            f"SELECT event_id, s.known_from, f.known_from FROM ({numbered.format('source')}) AS s "
            f"JOIN ({numbered.format('filled')}) AS f USING (event_id, n)",
            start=pair.start,
        )
        if (event_id, at) in reported
    ]
    assert len(waits) > 5
    assert all(timedelta() <= wait <= SECOND for wait in waits)


def test_the_other_tables_are_those_of_the_source(pair: Pair) -> None:
    known = "SELECT event_id FROM filled.events"
    for query in (
        f"SELECT event_id, {_CURRENT} FROM HOME.events WHERE event_id IN ({known})",
        "SELECT event_id, cancelled_at FROM HOME.cancellations",
        "SELECT id, name FROM HOME.categories",
        "SELECT slug, symbol, name, icon_url, rank, tracked FROM HOME.coins",
        "SELECT coin, observed_at::DATE, rank, tracked FROM HOME.coin_snapshots",
    ):
        assert pair.differences(query) == [], query
