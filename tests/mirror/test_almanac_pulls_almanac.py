"""A home that is filled through the mirror in replay has the history of its source.

By design, these differ:

- The times of pulls, and so `known_from` of what is only pulled: it is in the next pull, for past
  dates in the next export. A withdrawal that no look-up proves is in the second export without the
  event.
- Pulled without webhooks, a version that was replaced before the next pull is never seen, nor an
  event that was cancelled before a pull showed it: the interface lists only its id and time.
- Webhooks report no withdrawal, and no change of only the slug, title, type of date, coins,
  categories, summary or picture. These are pulled, if no other version replaced them before. (In
  the spans of these tests none was. With a lag of 90 minutes, the week has one.)
- The service's `updatedAt` and `lastVerifiedAt` alone make no version, so a replay shows those of
  the version. `events` of the source may have newer ones.
- An event is `revealed` and not `created` if the source knew it late, and the mirror was pulled
  before that: a complete pull after its creation did not show it.
- The versions before the start are one version, the state at the start.
- An event that is only missing is still shown: it is not known to be withdrawn.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

import duckdb
import pytest

from pipeline.mirror.replay_server import ReplayStore
from tests.history.stories.disk import without_syncs
from tests.mirror.pulled_homes import (
    Span,
    fill_from_replay,
    fill_from_sandbox,
)
from warehouse.home import Home
from warehouse.schema.columns import CONTENT, CONTENT_NAMED

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
DAY = Span(datetime(2017, 6, 7, 1, tzinfo=UTC), days=1, step=6 * HOUR, lag=3 * HOUR)
WEEK = Span(datetime(2018, 12, 7, 1, tzinfo=UTC), days=7, step=3 * HOUR, lag=20 * MINUTE)
UNPUSHED_DAY = replace(DAY, is_pushed=False)
SECOND = timedelta(seconds=1)
_CONTENT = ", ".join(column.name for column in CONTENT)
_DATE, _END, _STATUS = (list(CONTENT_NAMED).index(name) for name in ("date", "date_end", "status"))
_KINDS_OF_LATE_KNOWLEDGE = "array_to_string(change_kinds, ' ').replace('revealed', 'created')"
_CURRENT = ", ".join(
    column.name for column in CONTENT if column.name not in {"last_verified_at", "updated_at"}
)


@dataclass(frozen=True)
class Pair:
    """The replayed home, and the home that was filled from it, with the times of its pulls."""

    span: Span
    source: Home
    filled: Home
    pulled_at: list[datetime]
    exported_at: list[datetime]
    is_pushed: bool

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

    def reported(self) -> set[tuple[str, datetime]]:
        """Return the events and times of the changes that webhooks reported."""
        if not self.is_pushed:
            return set()
        store = ReplayStore(self.source.warehouse, self.start, self.span.until)
        changes = store.changes(self.start, self.span.until)
        return {(change.event.id, change.at) for change in changes}

    def pulled_by(self, at: datetime, *content: Any) -> datetime:
        """Return when pulls have shown a version that the source knew from a time on.

        It is the next pull, for dates before its day the next export, and for a withdrawal that no
        look-up proves the second export without the event.
        """
        exports = self.exported_at[bisect_left(self.exported_at, at) :]
        if content[_STATUS] == "withdrawn":
            return exports[:2][-1]
        pulled_at = self.pulled_at[bisect_left(self.pulled_at, at)]
        last = content[_END] or content[_DATE]
        return exports[0] if last.date() < pulled_at.date() - timedelta(days=1) else pulled_at

    def differences(self, query: str, **values: Any) -> list[tuple[Any, ...]]:
        """Return the rows that a query, in which `HOME` is the home, has for only one of both."""
        source, filled = (query.replace("HOME", name) for name in ("source", "filled"))
        return self.rows(
            f"(({source}) EXCEPT ALL ({filled})) UNION ALL (({filled}) EXCEPT ALL ({source}))",
            **values,
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
    pytest.param((DAY, True), id="day"),
    pytest.param((UNPUSHED_DAY, True), id="day-of-pulls", marks=pytest.mark.long),
    pytest.param((WEEK, True), id="week", marks=pytest.mark.long),
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
    return Pair(span, source, daemon.home, daemon.pulled_at, daemon.exported_at, is_pushed)


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
    kinds = "change_kinds" if pair.span.is_pushed else _KINDS_OF_LATE_KNOWLEDGE
    columns = f"{_CONTENT}, unknown_fields, {kinds}, changed_fields"
    found = pair.differences(
        f"SELECT event_id, row_number() OVER (PARTITION BY event_id ORDER BY version), {columns} "
        "FROM HOME.event_versions WHERE known_from > $start",
        start=pair.start,
    )
    assert found == []
    assert len(pair.later_versions("filled", "version")) > 5


def test_each_version_is_known_in_time_and_in_order(pair: Pair) -> None:
    """A version that never is was replaced before, or cancelled before a pull showed its event."""
    reported, columns = pair.reported(), f"known_from, known_to, {_CONTENT}"
    filled = pair.later_versions("filled", columns)
    seen = {event_id for (event_id,) in pair.rows("SELECT event_id FROM filled.events")}
    for event_id, versions in pair.later_versions("source", columns).items():
        rest = filled.pop(event_id, [])
        for at, until, *content in versions:
            known_by = at + SECOND if (event_id, at) in reported else pair.pulled_by(at, *content)
            if rest and rest[0][2:] == tuple(content):
                known_from = rest.pop(0)[0]
                assert at <= known_from <= known_by, (event_id, at)
            elif pair.is_pushed or event_id in seen:
                assert until is not None and until <= known_by, (event_id, at)
            else:
                assert versions[-1][2 + _STATUS] == "cancelled", event_id
        assert rest == [], event_id
    assert filled == {}


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
