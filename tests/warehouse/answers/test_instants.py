"""Edges of the macros that answer as of an instant."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest

from tests.almanac.publications import NamedCoin, publish_by_hand
from tests.warehouse.answers.handmade import Absence, declare_macros
from tests.warehouse.answers.seeded import day, seeded
from warehouse.queries import QueryRefused, connect, run_sql
from warehouse.schema import ddl
from warehouse.schema.tables import COINS
from warehouse.schema.views import EVENTS_AS_OF, MACROS

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
ZONES = ["UTC", "America/New_York", "Pacific/Kiritimati"]
TAKE_AN_INSTANT = [
    *("events_as_of", "upcoming_as_of", "coins_as_of", "event_coins_as_of"),
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


@pytest.fixture(scope="module", params=ZONES)
def connection(warehouse: Path, request: pytest.FixtureRequest) -> Iterator[Any]:
    opened = connect(warehouse, own_files=True)
    opened.execute("SET TimeZone = $zone", {"zone": request.param})
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


@pytest.mark.parametrize("macro", TAKE_AN_INSTANT)
@pytest.mark.parametrize(
    ("at", "why"),
    [
        ("'2026-03-01 05:59:59'", "before the first observation at 2026-03-01T06:00:00Z"),
        ("'2206-03-01'", r"still to come: .*the last pull was at 2026-08-12T06:00:00Z"),
        ("NULL", "the timestamp is NULL"),
    ],
)
@pytest.mark.parametrize("caller", ["FROM {}", "SELECT 1 FROM {} WHERE {} IS NULL LIMIT 1"])
def test_an_instant_without_an_answer_is_an_error_whatever_the_caller_selects(
    limited: duckdb.DuckDBPyConnection, macro: str, at: str, why: str, caller: str
) -> None:
    column = {"coins_as_of": "coin", "coverage_at": "feed"}.get(macro, "event_id")
    with pytest.raises(QueryRefused, match=why):
        rows(limited, caller.format(f"{macro}({at})", column))


@pytest.mark.parametrize(
    "condition",
    [
        *(
            f"{column.name} IS {state}"
            for column in EVENTS_AS_OF.columns
            for state in ("NULL", "NOT NULL")
        ),
        *("event_id = 'x'", "event_id IN ('x', 'y')", "status = 'scheduled'", "version = 900"),
        *("impact > 5", "date > TIMESTAMPTZ '2020-01-01 00:00:00Z'", "list_contains(coins, 'x')"),
    ],
)
def test_no_condition_of_the_caller_skips_the_check_of_events_as_of(
    limited: duckdb.DuckDBPyConnection, condition: str
) -> None:
    for parameters in ("'2026-03-01'", "NULL", "'x'", "now(), basis := 'x'", "NULL, 'claimed'"):
        with pytest.raises(QueryRefused, match=r"events_as_of: "):
            rows(limited, f"SELECT count(*) FROM events_as_of({parameters}) WHERE {condition}")


@pytest.mark.parametrize("macro", TAKE_AN_INSTANT)
def test_every_instant_is_an_error_if_nothing_was_pulled(
    nothing_pulled: duckdb.DuckDBPyConnection, macro: str
) -> None:
    with pytest.raises(QueryRefused, match=r"no pull of (events|coins) was merged yet"):
        rows(nothing_pulled, f"FROM {macro}('2026-03-02')")


@pytest.mark.parametrize(
    ("at", "upcoming"),
    [
        ("2026-03-01 06:00", ["evt_0", "evt_1"]),
        # The second event is missing from six on the third day until six on the fourth.
        ("2026-03-03 05:59:59", ["evt_0", "evt_1", "evt_2"]),
        ("2026-03-03 06:00", ["evt_0", "evt_2"]),
        ("2026-03-04 05:59:59", ["evt_0", "evt_2"]),
        # It is shown again, and the third is cancelled.
        ("2026-03-04 06:00", ["evt_0", "evt_1"]),
        # Both are on 10 June, a day.
        ("2026-06-09 23:59:59", ["evt_0", "evt_1"]),
        ("2026-06-10 00:00:00", ["evt_0", "evt_1"]),
        ("2026-06-10 23:59:59.999999", ["evt_0", "evt_1"]),
        ("2026-06-11 00:00:00", []),
    ],
)
def test_upcoming_as_of_ends_with_the_day_of_an_event(
    connection: duckdb.DuckDBPyConnection, at: str, upcoming: list[str]
) -> None:
    sql = f"SELECT event_id FROM upcoming_as_of('{at}') ORDER BY 1"
    assert [event_id for (event_id,) in rows(connection, sql)] == upcoming


@pytest.mark.parametrize(
    ("at", "days"),
    [("2026-06-10 23:59:59", 0.0), ("2026-06-09 23:59:59", 1.0), ("2026-06-09", 1.0)],
)
def test_days_until_a_day_are_days_of_utc_from_the_instant(
    connection: duckdb.DuckDBPyConnection, at: str, days: float
) -> None:
    sql = f"SELECT DISTINCT days_until, date_exact FROM upcoming_as_of('{at}')"
    ((found, date_exact),) = rows(connection, sql)
    assert found == days
    assert date_exact == datetime(2026, 6, 10, tzinfo=UTC)


def test_the_date_of_an_event_is_that_known_at_the_instant(
    connection: duckdb.DuckDBPyConnection,
) -> None:
    sql = "SELECT date_exact FROM upcoming_as_of('{}') WHERE event_id = 'evt_0'"
    may_21, june_10 = datetime(2026, 5, 21, tzinfo=UTC), datetime(2026, 6, 10, tzinfo=UTC)
    assert rows(connection, sql.format("2026-03-02 05:59:59")) == [(may_21,)]
    assert rows(connection, sql.format("2026-03-02 06:00")) == [(june_10,)]


def test_a_coin_has_the_rank_of_its_last_observation(connection: duckdb.DuckDBPyConnection) -> None:
    sql = (
        "SELECT coin, name, rank, day(observed_at AT TIME ZONE 'UTC') "
        "FROM coins_as_of('{}') ORDER BY 1"
    )
    first = [("coin-0", "Coin 0", 1, 1), ("coin-1", "Coin 1", 2, 1), ("coin-2", "Coin 2", 3, 1)]
    assert rows(connection, sql.format("2026-03-01 06:00")) == first
    assert rows(connection, sql.format("2026-03-03 05:59")) == first
    # Only the first coin was observed on the third day.
    third = [("coin-0", "Coin 0", 0, 3), *first[1:]]
    assert rows(connection, sql.format("2026-03-03 06:00")) == third


def test_the_coins_of_an_event_are_those_it_had_with_the_ranks_of_then(
    connection: duckdb.DuckDBPyConnection,
) -> None:
    sql = "SELECT coin, name, rank FROM event_coins_as_of('{}') WHERE event_id = 'evt_0' ORDER BY 1"
    before = [("coin-0", "Coin 0", 1), ("coin-5", "coin-5", None)]
    assert rows(connection, sql.format("2026-03-02 05:59")) == before
    assert rows(connection, sql.format("2026-03-02 06:00")) == [("coin-0", "Coin 0", 1)]
    assert rows(connection, sql.format("2026-03-03 06:00")) == [("coin-0", "Coin 0", 0)]


@pytest.mark.parametrize(
    ("lead", "known"),
    [
        ("INTERVAL 1 DAY", [("evt_0", 2, 10), ("evt_1", 1, 10)]),
        # On 2 March at 6:00 the date of the first became known.
        ("INTERVAL '99 days 18 hours'", [("evt_0", 2, 10), ("evt_1", 1, 10)]),
        ("INTERVAL '99 days 18 hours 1 second'", [("evt_0", 1, 10), ("evt_1", 1, 10)]),
        # Three months before 10 June are 10 March, in UTC.
        ("'3 months'", [("evt_0", 2, 10), ("evt_1", 1, 10)]),
        # Before the first pull nothing was known.
        ("INTERVAL '100 days 18 hours'", [("evt_0", 1, 10), ("evt_1", 1, 10)]),
        ("INTERVAL '100 days 18 hours 1 second'", []),
        # An instant still to come.
        ("INTERVAL '-200 years'", []),
    ],
)
def test_known_before_gives_what_was_known_a_time_before_the_last_known_date(
    connection: duckdb.DuckDBPyConnection, lead: str, known: list[tuple[Any, ...]]
) -> None:
    sql = (
        "SELECT event_id, version, day(date_final AT TIME ZONE 'UTC') "
        f"FROM known_before({lead}) WHERE event_id <> 'evt_2' ORDER BY 1"
    )
    assert rows(connection, sql) == known


def test_a_lead_of_null_is_an_error(connection: duckdb.DuckDBPyConnection) -> None:
    with pytest.raises(QueryRefused, match="the interval is NULL"):
        rows(connection, "FROM known_before(NULL)")


def test_known_before_says_what_was_missing_and_when_events_were_last_pulled(
    connection: duckdb.DuckDBPyConnection,
) -> None:
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


def test_coverage_at_an_instant_has_the_last_pull_of_the_same_window(
    connection: duckdb.DuckDBPyConnection,
) -> None:
    sql = "SELECT feed, age_hours FROM coverage_at('{}')"
    assert rows(connection, sql.format("2026-03-04 05:00")) == [("export", 23.0)]
    assert rows(connection, sql.format("2026-03-04 06:00")) == [("export", 0.0)]


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
        for number, (feed, plan, lower, upper, coins, day) in enumerate(WINDOWS):
            session.execute(
                "INSERT INTO coverage BY NAME SELECT $number AS batch_id, $feed AS feed, "
                "$plan AS plan, $lower::TIMESTAMP AT TIME ZONE 'UTC' AS lower, "
                "$upper::TIMESTAMP AT TIME ZONE 'UTC' AS upper, $coins::VARCHAR[] AS coins, "
                "make_timestamptz(2026, 3, $day, 6, 0, 0, 'UTC') AS observed_at",
                {
                    **{"number": str(number), "feed": feed, "plan": plan, "lower": lower},
                    **{"upper": upper, "coins": coins, "day": day},
                },
            )
        session.execute(ddl.create_macro("coverage_at"))
        sql = "SELECT batch_id::INTEGER FROM coverage_at('2026-03-04') ORDER BY 1"
        assert session.execute(sql).fetchall() == [(2,), (4,), (5,), (6,), (7,), (9,)]
        sql = "SELECT batch_id::INTEGER FROM coverage_at('2026-03-02') ORDER BY 1"
        assert session.execute(sql).fetchall() == [(0,), (3,), (4,), (6,), (7,), (8,)]


def test_a_coin_is_found_by_slug_symbol_name_and_prefix_in_this_order() -> None:
    with duckdb.connect() as session:
        session.execute(ddl.create(COINS))
        declare_macros(session)
        for slug, symbol, name, rank in [
            *[("eth", "zzz", "Not Ethereum", None), ("ethereum", "eth", "Ethereum", 2)],
            *[("bridged", "ETH", "Bridged", 90), ("other", "oth", "ETH", 5)],
            *[("ethena", "ena", "Ethena", 30), ("under_score", "u%s", "Under", 7)],
        ]:
            session.execute(
                "INSERT INTO coins BY NAME SELECT $slug AS slug, $symbol AS symbol, $name AS name, "
                "$rank AS rank",
                {"slug": slug, "symbol": symbol, "name": name, "rank": rank},
            )
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


def examples() -> list[str]:
    """Return the SQL of docs/querying.md: of its blocks and of its tables of questions."""
    page = (Path(__file__).parents[3] / "docs" / "querying.md").read_text()
    blocks = re.findall(r"^```sql\n(.+?)^```", page, re.MULTILINE | re.DOTALL)
    cells = re.findall(r"^\| .* \| `((?:FROM|SELECT) .+)` \|$", page, re.MULTILINE)
    assert len(cells) >= len(MACROS)
    return [*blocks, *cells]


ATTACHED = [sql for sql in examples() if re.search(r"ATTACH|\balmanac\.", sql)]
"""The examples of a connection of the reader's own, in the order of the page."""


@pytest.mark.parametrize("sql", [sql for sql in examples() if sql not in ATTACHED])
def test_examples_of_the_page_on_queries_run(limited: duckdb.DuckDBPyConnection, sql: str) -> None:
    run_sql(limited, sql)


def test_examples_with_an_attached_file_run_one_after_another(warehouse: Path) -> None:
    assert len(ATTACHED) == 2
    with duckdb.connect() as connection:
        for sql in ATTACHED:
            connection.execute(sql.replace("data/warehouse.duckdb", str(warehouse)))
        assert connection.execute("FROM memory.main.then_known").fetchall()
