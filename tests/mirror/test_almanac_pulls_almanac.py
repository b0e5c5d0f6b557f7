"""A home that is filled through the mirror in replay has the history of its source.

By design, these differ:

- The times of pulls, and so `known_from` of what is only pulled: it is in the next pull.
- Pulled without webhooks, a version that was replaced before the next pull is never seen.
- Webhooks report no withdrawal, and no change of only the slug, title, type of date, coins,
  categories, summary or picture. These are pulled.
- The service's `updatedAt` and `lastVerifiedAt` alone make no version, so a replay shows those of
  the version. `events` of the source may have newer ones.
- The versions before the start are one version, the state at the start.
- An event that is only missing is still shown: it is not known to be withdrawn.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

import duckdb
import pytest

from pipeline.mirror.replay_store import ReplayStore
from tests.history.stories.disk import without_syncs
from tests.mirror.pulled_homes import (
    MIRROR_LAG,
    Span,
    fill_from_replay,
    fill_from_sandbox,
)
from warehouse.home import Home
from warehouse.schema.columns import CONTENT

DAY = Span(datetime(2017, 6, 7, 1, tzinfo=UTC), days=1, step=timedelta(hours=6))
WEEK = Span(datetime(2018, 12, 7, 1, tzinfo=UTC), days=7, step=timedelta(hours=3))
SECOND = timedelta(seconds=1)
_CONTENT = ", ".join(column.name for column in CONTENT)
_CURRENT = ", ".join(
    column.name for column in CONTENT if column.name not in {"last_verified_at", "updated_at"}
)


@dataclass(frozen=True)
class Pair:
    """The replayed home, the home that was filled from it, and when this one was pulled."""

    span: Span
    source: Home
    filled: Home
    pulled_at: list[datetime]
    is_pushed: bool

    @property
    def start(self) -> datetime:
        return self.span.start + MIRROR_LAG

    def rows(self, query: str, **values: Any) -> list[tuple[Any, ...]]:
        """Return the rows of a query over both homes, `source` and `filled`."""
        with duckdb.connect() as connection:
            connection.execute("SET TimeZone = 'UTC'")
            for name, home in (("source", self.source), ("filled", self.filled)):
                connection.execute(f"ATTACH '{home.warehouse}' AS {name} (READ_ONLY)")
            return connection.execute(query, values).fetchall()

    def next_pull(self, at: datetime) -> datetime:
        """Return when the filled home was pulled first, at or after a time."""
        return self.pulled_at[bisect_left(self.pulled_at, at)]

    def differences(self, query: str, **values: Any) -> list[tuple[Any, ...]]:
        """Return the rows that a query, in which `HOME` is the home, has for only one of both."""
        one, other = (query.replace("HOME", name) for name in ("source", "filled"))
        return self.rows(
            f"(({one}) EXCEPT ALL ({other})) UNION ALL (({other}) EXCEPT ALL ({one}))", **values
        )

    def later_versions(self, home: str, columns: str) -> dict[str, list[tuple[Any, ...]]]:
        """Return the versions since the start, by event, in their order."""
        found = defaultdict[str, list[tuple[Any, ...]]](list)
        for event_id, *row in self.rows(
            f"SELECT event_id, {columns} FROM {home}.event_versions "
            "WHERE known_from > $start ORDER BY event_id, version",
            start=self.start,
        ):
            found[event_id].append(tuple(row))
        return found


CASES = [
    pytest.param((DAY, False), id="day"),
    pytest.param((WEEK, False), id="week-without-webhooks", marks=pytest.mark.long),
]


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Span], Home]:
    @cache
    def fill(span: Span) -> Home:
        return fill_from_sandbox(tmp_path_factory.mktemp("source"), span)

    return fill


@pytest.fixture(scope="module", params=CASES)
def pair(
    request: pytest.FixtureRequest,
    sources: Callable[[Span], Home],
    tmp_path_factory: pytest.TempPathFactory,
) -> Pair:
    span, is_pushed = request.param
    with without_syncs():
        source = sources(span)
        daemon = fill_from_replay(
            tmp_path_factory.mktemp("filled"), source, span, is_pushed=is_pushed
        )
    return Pair(span, source, daemon.home, daemon.pulled_at, is_pushed)


def test_every_row_was_read_and_none_was_taken_for_an_older_one(pair: Pair) -> None:
    found = pair.rows(
        "SELECT feed, status, sum(rejected), sum(ignored), count(flagged), "
        "sum(stale) FILTER (WHERE feed = 'deliveries') "
        "FROM filled.batches GROUP BY ALL"
    )
    feeds = {"export", "events", "event", "cancellations", "coins", "categories"}
    assert {row[0] for row in found} == feeds | ({"deliveries"} if pair.is_pushed else set())
    assert {row[1:5] for row in found} == {("merged", 0, 0, 0)}
    assert {row[5] for row in found} <= {None, 0}


def test_the_first_version_is_the_state_at_the_start(pair: Pair) -> None:
    known = "known_from <= $start AND (known_to > $start OR known_to IS NULL)"
    columns = f"event_id, {_CONTENT}, unknown_fields"
    found = pair.differences(
        f"SELECT {columns} FROM HOME.event_versions WHERE {known}", start=pair.start
    )
    assert found == []


def test_pushed_and_pulled_no_version_differs(pair: Pair) -> None:
    """Content, order, kinds of change and changed fields."""
    if not pair.is_pushed:
        pytest.skip("without webhooks, a version between two pulls is not seen")
    columns = f"{_CONTENT}, unknown_fields, change_kinds, changed_fields"
    found = pair.differences(
        f"SELECT event_id, row_number() OVER (PARTITION BY event_id ORDER BY version), {columns} "
        "FROM HOME.event_versions WHERE known_from > $start",
        start=pair.start,
    )
    assert found == []
    assert len(pair.later_versions("filled", "version")) > 10


def test_versions_are_in_order_and_those_not_seen_were_replaced_before_the_next_pull(
    pair: Pair,
) -> None:
    columns = f"known_from, known_to, {_CONTENT}"
    filled = pair.later_versions("filled", columns)
    for event_id, versions in pair.later_versions("source", columns).items():
        rest = filled.pop(event_id, [])
        for at, until, *content in versions:
            if rest and rest[0][2:] == tuple(content):
                del rest[0]
            else:
                assert until is not None and until <= pair.next_pull(at), (event_id, at)
        assert rest == [], event_id
    assert filled == {}


def test_a_version_is_known_in_the_next_pull_and_if_pushed_within_a_second(pair: Pair) -> None:
    columns = f"known_from, {_CONTENT}"
    known = pair.later_versions("source", columns)
    told = set[tuple[str, datetime]]()
    if pair.is_pushed:
        store = ReplayStore(pair.source.warehouse, pair.start, pair.span.until)
        changes = store.changes(pair.start, pair.span.until)
        told = {(change.event.id, change.at) for change in changes}
        assert len(told) > 10
    for event_id, versions in pair.later_versions("filled", columns).items():
        rest = iter(known[event_id])
        for known_from, *content in versions:
            at = next(at for at, *other in rest if other == content)
            until = at + SECOND if (event_id, at) in told else pair.next_pull(at)
            assert at <= known_from <= until, (event_id, at)


def test_the_other_tables_are_those_of_the_source(pair: Pair) -> None:
    for query in (
        f"SELECT event_id, {_CURRENT} FROM HOME.events",
        "SELECT event_id, cancelled_at FROM HOME.cancellations",
        "SELECT id, name FROM HOME.categories",
        "SELECT slug, symbol, name, icon_url, rank, tracked FROM HOME.coins",
        "SELECT coin, observed_at::DATE, rank, tracked FROM HOME.coin_snapshots",
    ):
        assert pair.differences(query) == [], query
