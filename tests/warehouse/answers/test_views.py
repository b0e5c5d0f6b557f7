"""The views never show an estimated date as a date, nor an absent event as upcoming."""

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pytest

from tests.almanac.publications import NamedCoin, publish_by_hand
from tests.warehouse.answers.handmade import declare_macros
from tests.warehouse.answers.seeded import day, seeded
from warehouse.queries import connect
from warehouse.schema import ddl
from warehouse.schema.views import VIEWS

MOVED: dict[str, Any] = {"change_kinds": ("rescheduled",), "changed_fields": ("date",)}
VERSIONS = [
    *(seeded(event, seed, day(0)) for event, seed in enumerate((1, 2, 3, 5))),
    *(seeded(event, seed, day(1), 2, **MOVED) for event, seed in enumerate((2, 3, 6))),
    seeded(3, 5, day(2), 2, change_kinds=("cancelled",), status="cancelled", cancelled_at=day(2)),
]
COINS = [NamedCoin("coin-0", "C0", "Coin 0", 1), NamedCoin("coin-1", "C1", "Coin 1", 2)]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("home") / "warehouse.duckdb"
    return publish_by_hand(path, VERSIONS, pulls=[day(0), day(1), day(2)], coins=COINS)


@pytest.fixture
def connection(home: Path) -> Any:
    opened = connect(home)
    yield opened
    opened.close()


def rows(connection: duckdb.DuckDBPyConnection, sql: str) -> list[tuple[Any, ...]]:
    return connection.sql(sql).fetchall()


COPIED = (
    *("event_coins", "event_categories", "event_versions"),
    *("coins", "coverage", "cancellations"),
)


def put_in_the_future(connection: duckdb.DuckDBPyConnection) -> None:
    """Make the views again over copies of the tables in which events are a hundred years later."""
    connection.execute("USE memory")
    connection.execute(
        "CREATE TABLE events AS SELECT * REPLACE ("
        "date + INTERVAL 100 YEAR AS date, date_end + INTERVAL 100 YEAR AS date_end"
        f") FROM {_alias(connection)}.events"
    )
    declare_macros(connection)
    date_again(connection)
    for table in COPIED:
        connection.execute(f"CREATE TABLE {table} AS FROM {_alias(connection)}.{table}")
    for view in VIEWS:
        connection.execute(ddl.create_view(view))


def date_again(connection: duckdb.DuckDBPyConnection) -> None:
    """Set what follows from the dates of events."""
    connection.execute(
        "UPDATE events SET date_precision = _almanac.date_precision(date, date_type, is_estimated)"
    )
    connection.execute(
        "UPDATE events SET earliest = _almanac.earliest(date, date_precision, is_estimated), "
        "latest = _almanac.latest("
        "date, date_end, date_precision, "
        "_almanac.earliest(date, date_precision, is_estimated))"
    )


def _alias(connection: duckdb.DuckDBPyConnection) -> str:
    sql = "SELECT database_name FROM duckdb_databases() WHERE path IS NOT NULL"
    return str(rows(connection, sql)[0][0])


def test_an_estimated_event_is_upcoming_without_a_date(
    connection: duckdb.DuckDBPyConnection,
) -> None:
    put_in_the_future(connection)
    found = rows(
        connection,
        "SELECT event_id, displayed_date, date_exact, days_until IS NULL, is_estimated "
        "FROM upcoming_events ORDER BY event_id",
    )
    assert found == [
        ("evt_0", "day 2", datetime(2126, 6, 10, tzinfo=UTC), False, False),
        ("evt_1", "day 3", None, True, True),
        ("evt_2", "day 6", None, True, True),
    ]


@pytest.mark.parametrize(
    "change",
    [
        "status = 'withdrawn'",
        "missing_since = now()",
        "date = now() - INTERVAL 2 SECOND",
        "date = now() - INTERVAL 9 DAY, date_end = now() - INTERVAL 2 SECOND",
        "date = date_trunc('day', now()) - INTERVAL 24 HOURS",
    ],
)
def test_withdrawn_missing_and_past_events_are_not_upcoming(
    connection: duckdb.DuckDBPyConnection, change: str
) -> None:
    put_in_the_future(connection)
    connection.execute(f"UPDATE events SET {change} WHERE event_id = 'evt_0'")
    date_again(connection)
    assert rows(connection, "SELECT count(*) FROM upcoming_events") == [(2,)]


def test_an_event_that_has_begun_is_upcoming_until_it_ends(
    connection: duckdb.DuckDBPyConnection,
) -> None:
    put_in_the_future(connection)
    connection.execute(
        "UPDATE events SET date = now() - INTERVAL 1 DAY, date_end = now() + INTERVAL 1 DAY"
    )
    date_again(connection)
    assert rows(connection, "SELECT count(*) FROM upcoming_events") == [(3,)]


def test_a_reschedule_has_both_dates_and_a_shift_between_dates_of_one_kind(
    connection: duckdb.DuckDBPyConnection,
) -> None:
    found = rows(
        connection,
        "SELECT event_id, version, known_from, old_displayed_date, new_displayed_date, "
        "old_date_exact, new_date_exact, shift_days FROM reschedules ORDER BY event_id",
    )
    at = datetime(2026, 3, 2, 6, tzinfo=UTC)
    may_21, june_10 = datetime(2026, 5, 21, tzinfo=UTC), datetime(2026, 6, 10, tzinfo=UTC)
    assert found == [
        ("evt_0", 2, at, "day 1", "day 2", may_21, june_10, 20.0),
        ("evt_1", 2, at, "day 2", "day 3", june_10, None, None),
        ("evt_2", 2, at, "day 3", "day 6", None, None, 60.0),
    ]


def test_categories_are_counted_with_their_cancellations(
    connection: duckdb.DuckDBPyConnection,
) -> None:
    sql = "SELECT category_id, category, events, watched, cancelled + cancelled_not_due FROM {} "
    assert rows(connection, sql.format("cancellation_stats") + "ORDER BY category") == [
        ("listing", "listing", 2, 2, 1),
        ("other", "other", 2, 2, 1),
    ]
    sql = "SELECT category, events, watched, rescheduled, mean_impact FROM category_stats"
    assert rows(connection, sql + " ORDER BY category") == [
        ("listing", 2, 2, 1, 3.5),
        ("other", 2, 2, 1, 3.5),
    ]


def test_the_calendar_of_a_coin_has_its_scheduled_events(
    connection: duckdb.DuckDBPyConnection,
) -> None:
    found = rows(
        connection,
        "SELECT coin, name, rank, event_id, displayed_date, date_exact, is_estimated "
        "FROM coin_calendar ORDER BY event_id, coin",
    )
    june_10 = datetime(2026, 6, 10, tzinfo=UTC)
    assert found == [
        ("coin-0", "Coin 0", 1, "evt_0", "day 2", june_10, False),
        ("coin-1", "Coin 1", 2, "evt_1", "day 3", None, True),
        ("coin-5", "coin-5", None, "evt_1", "day 3", None, True),
        ("coin-2", "coin-2", None, "evt_2", "day 6", None, True),
    ]


def test_lead_times_are_to_the_date_as_announced(
    connection: duckdb.DuckDBPyConnection,
) -> None:
    found = rows(
        connection,
        "SELECT event_id, basis, announced_displayed_date, lead_days "
        "FROM announcement_lead_times WHERE event_id = 'evt_0'",
    )
    # From 1 March to 21 May, though it was moved to 10 June.
    assert found == [("evt_0", "observed", "day 1 2026", 81.0)]


def test_views_and_macros_call_no_function_that_older_readers_lack() -> None:
    # DuckDB 1.4 and 1.5 read the file; to them `if` is no function.
    for text in ddl.create_views():
        assert not re.search(r"\bif\s*\(", re.sub(r"--.*", "", text)), text
