"""Edges of the macros that answer as of a time."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path
from typing import Any

import duckdb
import pytest

from almanac.core.errors import QueryRefused
from almanac.reading.attached_file import connect, run_sql
from tests.almanac.publications import NamedCoin, publish_by_hand
from tests.warehouse.answers.handmade import Absence, declare_macros
from tests.warehouse.answers.seeded import day, seeded
from warehouse.schema import ddl
from warehouse.schema.tables import COINS
from warehouse.schema.views import COINS_AS_OF, EVENTS_AS_OF, VIEWS

VERSIONS = [
    seeded(0, 1, day(0)),
    seeded(0, 2, day(1), 2, change_kinds=("rescheduled",), changed_fields=("date",)),
    seeded(1, 2, day(0)),
    seeded(2, 5, day(1)),
    seeded(2, 5, day(3), 2, change_kinds=("cancelled",), status="cancelled", cancelled_at=day(3)),
]
ABSENCES = [Absence("evt_1", day(2), day(2)), Absence("evt_1", day(3), None)]
PULLS = [*map(day, range(4)), day(164)]
NAMED = [NamedCoin(f"coin-{number}", f"C{number}", f"Coin {number}") for number in range(3)]
RANKED = [("coin-0", 1, 0), ("coin-1", 2, 0), ("coin-2", 3, 0), ("coin-0", 0, 2)]
"""Coins with a rank and the day on which it was observed."""
TAKE_A_TIME = [
    *("events_as_of", "upcoming_as_of", "coins_as_of", "event_coins_as_of", "universe"),
    *("changes_since", "coverage_at"),
]


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("home") / "warehouse.duckdb"
    publish_by_hand(path, VERSIONS, pulls=PULLS, absences=ABSENCES, coins=NAMED)
    with duckdb.connect(str(path)) as connection:
        connection.execute("INSERT INTO batches SELECT * REPLACE ('coins' AS feed) FROM batches")
        for coin, rank, number in RANKED:
            connection.execute(
                "INSERT INTO coin_snapshots BY NAME SELECT $coin AS coin, $rank AS rank, "
                "$at::TIMESTAMPTZ AS observed_at, $at::DATE AS observed_date",
                {"coin": coin, "rank": rank, "at": day(number)},
            )
    return path


@pytest.fixture(scope="module")
def connection(warehouse: Path) -> Iterator[Any]:
    opened = connect(warehouse, own_files=True)
    # The answers are the same as in UTC.
    opened.execute("SET TimeZone = 'Pacific/Kiritimati'")
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def limited(warehouse: Path) -> Iterator[Any]:
    """A connection as that of a user's query."""
    opened = connect(warehouse)
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def nothing_pulled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A connection to a warehouse in which no pull was merged yet."""
    path = tmp_path_factory.mktemp("empty") / "warehouse.duckdb"
    opened = connect(publish_by_hand(path, VERSIONS, pulls=PULLS, at=day(-1)))
    yield opened
    opened.close()


def rows(connection: duckdb.DuckDBPyConnection, sql: str) -> list[tuple[Any, ...]]:
    return run_sql(connection, sql).rows


def test_a_time_without_an_answer_is_always_an_error(limited: duckdb.DuckDBPyConnection) -> None:
    for macro, (at, why) in product(
        TAKE_A_TIME,
        (
            ("'2026-03-01 05:59:59'", "before the first observation at 2026-03-01T06:00:00Z"),
            ("'2206-03-01'", r"still to come: .*the last pull was at 2026-08-12T06:00:00Z"),
            ("NULL", "the timestamp is NULL"),
        ),
    ):
        column = {"coins_as_of": "coin", "universe": "coin", "coverage_at": "feed"}.get(
            macro, "event_id"
        )
        for caller in ("FROM {}", "SELECT 1 FROM {} WHERE {} IS NULL LIMIT 1"):
            with pytest.raises(QueryRefused, match=why):
                rows(limited, caller.format(f"{macro}({at})", column))


def test_no_condition_of_the_caller_skips_the_check(limited: duckdb.DuckDBPyConnection) -> None:
    states = product((column.name for column in EVENTS_AS_OF.columns), ("NULL", "NOT NULL"))
    conditions = [
        *(f"{name} IS {state}" for name, state in states),
        *("event_id = 'x'", "event_id IN ('x', 'y')", "status = 'scheduled'", "version = 900"),
        *("impact > 5", "date > TIMESTAMPTZ '2020-01-01 00:00:00Z'", "list_contains(coins, 'x')"),
    ]
    for column in COINS_AS_OF.columns:
        for state in ("NULL", "NOT NULL"):
            with pytest.raises(QueryRefused, match=r"coins_as_of: "):
                rows(limited, f"FROM coins_as_of('2026-03-01') WHERE {column.name} IS {state}")
    arguments = ("'2026-03-01'", "NULL", "'x'", "now(), basis := 'x'", "NULL, 'claimed'")
    for number, condition in enumerate(conditions):
        asked = f"events_as_of({arguments[number % len(arguments)]}) WHERE {condition}"
        with pytest.raises(QueryRefused, match=r"events_as_of: "):
            rows(limited, f"SELECT count(*) FROM {asked}")


def test_any_time_is_an_error_before_a_pull(nothing_pulled: duckdb.DuckDBPyConnection) -> None:
    for macro in TAKE_A_TIME:
        with pytest.raises(QueryRefused, match=r"no pull of (events|coins) was merged yet"):
            rows(nothing_pulled, f"FROM {macro}('2026-03-02')")


def test_upcoming_as_of_ends_with_the_event_day(connection: duckdb.DuckDBPyConnection) -> None:
    for at, upcoming in (
        ("2026-03-01 06:00", ["evt_0", "evt_1"]),
        # The second event is missing from six on the third day until six on the fourth.
        ("2026-03-03 05:59:59", ["evt_0", "evt_1", "evt_2"]),
        ("2026-03-03 06:00", ["evt_0", "evt_2"]),
        ("2026-03-04 05:59:59", ["evt_0", "evt_2"]),
        # It is shown again, and the third is cancelled.
        ("2026-03-04 06:00", ["evt_0", "evt_1"]),
        # Both are on 10 June, a day.
        ("2026-06-10 23:59:59.999999", ["evt_0", "evt_1"]),
        ("2026-06-11 00:00:00", []),
    ):
        found = rows(connection, f"SELECT event_id FROM upcoming_as_of('{at}') ORDER BY 1")
        assert [event_id for (event_id,) in found] == upcoming, at
    for at, days in (("2026-06-10 23:59:59", 0.0), ("2026-06-09 23:59:59", 1.0)):
        sql = f"SELECT DISTINCT days_until, date_exact FROM upcoming_as_of('{at}')"
        assert rows(connection, sql) == [(days, datetime(2026, 6, 10, tzinfo=UTC))]


def test_the_date_of_an_event_is_that_known_then(connection: duckdb.DuckDBPyConnection) -> None:
    sql = "SELECT date_exact FROM upcoming_as_of('{}') WHERE event_id = 'evt_0'"
    may_21, june_10 = datetime(2026, 5, 21, tzinfo=UTC), datetime(2026, 6, 10, tzinfo=UTC)
    assert rows(connection, sql.format("2026-03-02 05:59:59")) == [(may_21,)]
    assert rows(connection, sql.format("2026-03-02 06:00")) == [(june_10,)]


def test_a_coin_has_the_rank_of_the_last_pull(connection: duckdb.DuckDBPyConnection) -> None:
    sql = (
        "SELECT coin, name, rank, day(observed_at AT TIME ZONE 'UTC') "
        "FROM coins_as_of('{}') ORDER BY 1"
    )
    first = [("coin-0", "Coin 0", 1, 1), ("coin-1", "Coin 1", 2, 1), ("coin-2", "Coin 2", 3, 1)]
    assert rows(connection, sql.format("2026-03-01 06:00")) == first
    assert rows(connection, sql.format("2026-03-03 05:59")) == first
    # Only the first coin was observed on the third day. The others have no rank then.
    third = [
        ("coin-0", "Coin 0", 0, 3),
        ("coin-1", "Coin 1", None, 1),
        ("coin-2", "Coin 2", None, 1),
    ]
    assert rows(connection, sql.format("2026-03-03 06:00")) == third


def test_coins_of_an_event_have_the_ranks_of_then(connection: duckdb.DuckDBPyConnection) -> None:
    sql = "SELECT coin, name, rank FROM event_coins_as_of('{}') WHERE event_id = 'evt_0' ORDER BY 1"
    before = [("coin-0", "Coin 0", 1), ("coin-5", "coin-5", None)]
    assert rows(connection, sql.format("2026-03-02 05:59")) == before
    assert rows(connection, sql.format("2026-03-02 06:00")) == [("coin-0", "Coin 0", 1)]
    assert rows(connection, sql.format("2026-03-03 06:00")) == [("coin-0", "Coin 0", 0)]


def test_known_before_gives_what_was_known_a_time_before_the_last_known_date(
    connection: duckdb.DuckDBPyConnection,
) -> None:
    first, second = [("evt_0", 1, 10), ("evt_1", 1, 10)], [("evt_0", 2, 10), ("evt_1", 1, 10)]
    for lead, known in (
        ("INTERVAL 1 DAY", second),
        # On 2 March at 6:00 the date of the first became known.
        ("INTERVAL '99 days 18 hours'", second),
        ("INTERVAL '99 days 18 hours 1 second'", first),
        # Three months before 10 June are 10 March, in UTC.
        ("'3 months'", second),
        # Before the first pull nothing was known.
        ("INTERVAL '100 days 18 hours'", first),
        ("INTERVAL '100 days 18 hours 1 second'", []),
        # A time still to come.
        ("INTERVAL '-200 years'", []),
    ):
        sql = "SELECT event_id, version, day(date_final AT TIME ZONE 'UTC') "
        sql += f"FROM known_before({lead}) WHERE event_id <> 'evt_2' ORDER BY 1"
        assert rows(connection, sql) == known, lead
    with pytest.raises(QueryRefused, match="the interval is NULL"):
        rows(connection, "FROM known_before(NULL)")


def test_known_before_says_what_was_missing_then(connection: duckdb.DuckDBPyConnection) -> None:
    # 3 March, 12:00.
    sql = (
        "SELECT event_id, missing_since, last_pull_at, known_at "
        "FROM known_before(INTERVAL '98 days 12 hours') WHERE event_id <> 'evt_2' ORDER BY 1"
    )
    third = datetime(2026, 3, 3, 6, tzinfo=UTC)
    at = third + timedelta(hours=6)
    assert rows(connection, sql) == [("evt_0", None, third, at), ("evt_1", third, third, at)]


def test_changes_since_an_instant_have_both_values(connection: duckdb.DuckDBPyConnection) -> None:
    sql = (
        "SELECT event_id, version, kind, old_value, new_value FROM changes_since('{}') ORDER BY ALL"
    )
    cancelled = ("evt_2", 2, "cancelled", "scheduled", "cancelled")
    moved = ("evt_0", 2, "rescheduled", "day 1 2026", "day 2 2026")
    created = ("evt_2", 1, "created", None, None)
    assert rows(connection, sql.format("2026-03-02 05:59:59")) == [moved, created, cancelled]
    # What became known at the instant itself is not after it.
    assert rows(connection, sql.format("2026-03-02 06:00")) == [cancelled]
    assert rows(connection, sql.format("2026-03-04 06:00")) == []


def test_each_view_of_an_attached_file_has_an_answer_by_its_full_name(warehouse: Path) -> None:
    with duckdb.connect() as session:
        session.execute(f"ATTACH '{warehouse}' AS published (READ_ONLY)")
        for view in VIEWS:
            session.execute(f"SELECT count(*) FROM published.{view.name}").fetchall()


WINDOWS = [
    # A window that moves with the day, three fixed months, another plan, another filter.
    *[("events", "elite", f"2026-03-0{day}", f"2026-04-0{day}", None, day) for day in (1, 2, 3)],
    *[("events", "elite", f"2026-0{month}-01", None, None, 1) for month in (5, 6)],
    ("events", "elite", "2026-05-01", None, None, 3),
    ("events", "pro", "2026-03-01", "2026-04-01", None, 1),
    ("events", "elite", "2026-03-01", "2026-04-01", ["btc"], 1),
    ("cancellations", "elite", None, None, None, 1),
    ("cancellations", "elite", None, None, None, 2),
]


def test_a_window_that_moves_with_the_day_and_a_fixed_one_have_a_row_each(warehouse: Path) -> None:
    with duckdb.connect() as session:
        session.execute("SET TimeZone = 'Pacific/Kiritimati'")
        session.execute(f"ATTACH '{warehouse}' AS published (READ_ONLY)")
        session.execute("CREATE TABLE coverage AS FROM published.coverage LIMIT 0")
        declare_macros(session)
        session.execute("CREATE TABLE _almanac.first_look AS FROM published._almanac.first_look")
        for number, (feed, plan, lower, upper, coins, on) in enumerate(WINDOWS):
            bounds = [text and f"{text}T00:00:00Z" for text in (lower, upper)]
            values = [str(number), feed, plan, *bounds, coins, f"2026-03-0{on}T06:00:00Z"]
            session.execute(
                "INSERT INTO coverage (batch_id, feed, plan, lower, upper, coins, observed_at) "
                "VALUES (?, ?, ?, ?, ?, ?, ?)",
                values,
            )
        session.execute(ddl.create_macro("coverage_at"))
        for at, expected in (("2026-03-04", "245679"), ("2026-03-02", "034678")):
            sql = f"SELECT batch_id FROM coverage_at('{at}') ORDER BY batch_id"
            found = session.execute(sql).fetchall()
            assert "".join(batch_id for (batch_id,) in found) == expected


def test_a_coin_is_found_by_slug_symbol_name_and_prefix_in_this_order() -> None:
    with duckdb.connect() as session:
        session.execute(ddl.create(COINS))
        declare_macros(session)
        for row in [
            *[("eth", "zzz", "Not Ethereum", None), ("ethereum", "eth", "Ethereum", 2)],
            *[("bridged", "ETH", "Bridged", 90), ("other", "oth", "ETH", 5)],
            *[("ethena", "ena", "Ethena", 30), ("under_score", "u%s", "Under", 7)],
        ]:
            session.execute("INSERT INTO coins (slug, symbol, name, rank) VALUES (?, ?, ?, ?)", row)
        session.execute(ddl.create_macro("coin_lookup"))

        def found(text: str | None) -> list[tuple[Any, ...]]:
            sql = "SELECT coin, matched_by FROM coin_lookup($text)"
            return session.execute(sql, {"text": text}).fetchall()

        assert found(" eth") == [
            *[("eth", "slug"), ("ethereum", "symbol"), ("bridged", "symbol"), ("other", "name")],
            ("ethena", "prefix"),
        ]
        assert [coin for coin, _ in found("ETHE")] == ["ethereum", "ethena"]
        assert found("u%") == [("under_score", "prefix")]
        for unknown in ("%", "", None, "nothing"):
            with pytest.raises(duckdb.InvalidInputException, match="no coin has a slug"):
                found(unknown)
