"""`events_as_of` returns what was known at an instant, and nothing that became known later."""

from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import duckdb
import pytest

from tests.almanac.publications import publish_by_hand
from tests.warehouse.answers.handmade import Known
from tests.warehouse.answers.seeded import day, seeded
from warehouse.queries import QueryRefused, connect, run_sql

VERSIONS = [
    seeded(0, 1, day(0)),
    seeded(0, 5, day(1), 2),
    seeded(0, 7, day(1), 3),
    seeded(1, 2, day(0)),
    seeded(1, 2, day(3), 2, status="cancelled", cancelled_at=day(3)),
    seeded(2, 5, day(3)),
]
PULLS = [day(0), day(1), day(3)]
CREATED, UPDATED = (datetime(2025, 12, number, tzinfo=UTC) for number in (2, 3))
CLAIMS = [
    Known(event_id="evt_1", version=-1, known_from=CREATED),
    seeded(1, 2, UPDATED, 0),
]
LAST = [("evt_0", 3), ("evt_1", 2), ("evt_2", 1)]


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("home") / "warehouse.duckdb"
    return publish_by_hand(path, VERSIONS, pulls=PULLS, claims=CLAIMS)


@pytest.fixture(scope="module")
def opened(warehouse: Path) -> Any:
    # Without limits, so that a test can set the time zone.
    shared = connect(warehouse, own_files=True)
    yield shared
    shared.close()


@pytest.fixture
def connection(opened: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyConnection:
    opened.execute("SET TimeZone = 'UTC'")
    return opened


def known(connection: duckdb.DuckDBPyConnection, asked: str) -> list[tuple[Any, ...]]:
    sql = f"SELECT event_id, version FROM events_as_of({asked}) ORDER BY ALL"
    return run_sql(connection, sql).rows


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ("'2026-03-01 06:00'", [("evt_0", 1), ("evt_1", 1)]),
        ("'2026-03-02 05:59:59.999999'", [("evt_0", 1), ("evt_1", 1)]),
        # Of two versions that became known at the same instant, the later one counts.
        ("'2026-03-02 06:00'", [("evt_0", 3), ("evt_1", 1)]),
        ("'2026-03-04 05:59'", [("evt_0", 3), ("evt_1", 1)]),
        ("'2026-03-04 06:00'", LAST),
        ("greatest(now(), TIMESTAMPTZ '2026-03-04 06:00Z')", LAST),
    ],
)
def test_a_version_is_known_from_its_instant_until_the_next(
    connection: duckdb.DuckDBPyConnection, asked: str, expected: list[tuple[Any, ...]]
) -> None:
    assert known(connection, asked) == expected


@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Pacific/Kiritimati"])
@pytest.mark.parametrize(
    "asked",
    [
        "'2026-03-02 06:00'",
        "'2026-03-02T06:00:00Z'",
        "'2026-03-02T08:00:00+02:00'",
        "'2026-03-02 01:00-05'",
        "'2026-03-02 06:00 UTC'",
        "TIMESTAMP '2026-03-02 06:00'",
        "TIMESTAMPTZ '2026-03-02 06:00:00+00'",
        "DATE '2026-03-03'",
        "'2026-03-03'",
    ],
)
def test_an_instant_without_a_zone_is_utc_whatever_the_zone_of_the_session(
    connection: duckdb.DuckDBPyConnection, asked: str, zone: str
) -> None:
    connection.execute("SET TimeZone = $zone", {"zone": zone})
    assert known(connection, asked) == [("evt_0", 3), ("evt_1", 1)]


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
@pytest.mark.parametrize(
    "asked",
    [
        "'2026-03-02 05:59:59'",
        "DATE '2026-03-02'",
        "'2026-03-02'",
        # After six in local time, before six in UTC.
        "'2026-03-02T07:59:59+02:00'",
        "'2026-03-02 07:59:59.999999+0200'",
        "'2026-03-02T06:59:59 Europe/Berlin'",
    ],
)
def test_neither_the_zone_of_the_session_nor_that_of_the_text_shows_anything_early(
    connection: duckdb.DuckDBPyConnection, asked: str, zone: str
) -> None:
    connection.execute("SET TimeZone = $zone", {"zone": zone})
    assert known(connection, asked) == [("evt_0", 1), ("evt_1", 1)]


@pytest.mark.parametrize(
    "at",
    [
        "2026-03-02 06:00",
        date(2026, 3, 3),
        datetime(2026, 3, 2, 6),  # noqa: DTZ001
        datetime(2026, 3, 2, 6, tzinfo=UTC),
        datetime(2026, 3, 2, 8, tzinfo=timezone(timedelta(hours=2))),
    ],
)
def test_the_instant_may_be_bound_as_any_value_of_time(
    connection: duckdb.DuckDBPyConnection, at: object
) -> None:
    rows = connection.execute("SELECT version FROM events_as_of($at) ORDER BY 1", {"at": at})
    assert rows.fetchall() == [(1,), (3,)]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM events_as_of('2026-03-01 05:59')",
        "SELECT count(*) FROM events_as_of('1999-01-01')",
        "SELECT * FROM events_as_of('1999-01-01') WHERE missing_since IS NOT NULL",
        "SELECT * FROM events_as_of('1999-01-01') WHERE last_pull_at IS NOT NULL",
        "SELECT * FROM events_as_of('1999-01-01') WHERE slug = 'nothing'",
        "SELECT * FROM events_as_of('1999-01-01') WHERE impact > 1000",
        "SELECT * FROM events_as_of('1999-01-01') WHERE latest > '2206-01-01'",
        "SELECT 1 FROM events_as_of('1999-01-01') WHERE latest > '2206-01-01' AND impact IS NULL",
        "SELECT 1 FROM events_as_of('1999-01-01') WHERE date IS NULL AND version > 99",
        "SELECT 1 FROM events_as_of('1999-01-01') "
        "WHERE latest > '2206-01-01' AND missing_since IS NULL",
        "SELECT * FROM events_as_of('1999-01-01') LIMIT 1",
        "SELECT * FROM events SEMI JOIN events_as_of('1999-01-01') USING (event_id)",
        "SELECT 1 WHERE EXISTS (FROM events_as_of('1999-01-01'))",
    ],
)
def test_an_instant_before_the_first_observation_is_an_error_that_names_the_claimed_basis(
    connection: duckdb.DuckDBPyConnection, sql: str
) -> None:
    with pytest.raises(
        QueryRefused, match=r"before the first observation at 2026-03-01T06:00:00Z.*claimed"
    ):
        run_sql(connection, sql)


@pytest.mark.parametrize(
    ("asked", "last_pull"),
    [
        ("'2026-03-01 06:00'", datetime(2026, 3, 1, 6, tzinfo=UTC)),
        ("'2026-03-02 05:59:59'", datetime(2026, 3, 1, 6, tzinfo=UTC)),
        # Nothing was pulled on the third day.
        ("'2026-03-04 05:59:59'", datetime(2026, 3, 2, 6, tzinfo=UTC)),
        ("'2026-03-03', basis := 'claimed'", datetime(2026, 3, 2, 6, tzinfo=UTC)),
        ("'2025-12-02', basis := 'claimed'", None),
        ("greatest(now(), TIMESTAMPTZ '2026-03-04 06:00Z')", datetime(2026, 3, 4, 6, tzinfo=UTC)),
    ],
)
def test_each_answer_says_when_events_were_last_pulled(
    connection: duckdb.DuckDBPyConnection, asked: str, last_pull: datetime | None
) -> None:
    sql = f"SELECT DISTINCT last_pull_at FROM events_as_of({asked})"
    assert run_sql(connection, sql).rows == [(last_pull,)]


@pytest.mark.parametrize("basis", ["", ", basis := 'claimed'"])
@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM events_as_of('2206-03-02'{})",
        "SELECT count(*) FROM events_as_of(now() + INTERVAL 1 SECOND{})",
        "SELECT * FROM events_as_of('2206-03-02'{}) WHERE slug = 'nothing'",
        "SELECT * FROM events_as_of('2206-03-02'{}) WHERE last_pull_at IS NOT NULL LIMIT 1",
        "SELECT * FROM events SEMI JOIN events_as_of('2206-03-02'{}) USING (event_id)",
    ],
)
def test_an_instant_still_to_come_is_an_error_that_names_the_time_and_the_last_pull(
    connection: duckdb.DuckDBPyConnection, sql: str, basis: str
) -> None:
    with pytest.raises(
        QueryRefused, match=r"is still to come: .*the last pull was at 2026-03-04T06:00:00Z"
    ):
        run_sql(connection, sql.format(basis))


def test_an_instant_after_now_has_an_answer_if_the_service_is_ahead(tmp_path: Path) -> None:
    last = datetime(2126, 3, 4, 6, tzinfo=UTC)
    ahead = publish_by_hand(tmp_path / "ahead.duckdb", [seeded(0, 1, last)], pulls=[last])
    opened = connect(ahead)
    assert known(opened, "'2126-03-04 06:00'") == [("evt_0", 1)]
    with pytest.raises(QueryRefused, match="still to come"):
        known(opened, "'2126-03-04 06:00:01'")
    opened.close()


def test_the_claimed_basis_covers_earlier_times_and_ends_at_the_first_observation(
    connection: duckdb.DuckDBPyConnection,
) -> None:
    assert known(connection, "'2025-12-02', basis := 'claimed'") == [("evt_1", -1)]
    assert known(connection, "'2025-12-01 23:59', basis := 'claimed'") == []
    assert known(connection, "'2026-03-01 05:59:59', basis := 'claimed'") == [("evt_1", 0)]
    both = [("evt_0", 1), ("evt_1", 1)]
    assert known(connection, "'2026-03-01 06:00', basis := 'claimed'") == both


def test_events_as_of_has_the_first_sighting_and_the_last_change_known_then(
    connection: duckdb.DuckDBPyConnection,
) -> None:
    first = datetime(2026, 3, 1, 6, tzinfo=UTC)
    sql = "SELECT first_seen_at, changed_at, status FROM events_as_of({}) WHERE event_id = 'evt_1'"
    claimed = run_sql(connection, sql.format("'2026-01-01', basis := 'claimed'")).rows
    assert claimed == [(None, datetime(2025, 12, 3, tzinfo=UTC), "scheduled")]
    assert run_sql(connection, sql.format("'2026-03-02'")).rows == [(first, first, "scheduled")]
    cancelled = first + timedelta(days=3)
    assert run_sql(connection, sql.format("'2026-03-04 06:00'")).rows == [
        (first, cancelled, "cancelled")
    ]


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ("'2026-03-02', basis := 'guessed'", "expected 'observed' or 'claimed'"),
        ("'2026-03-02', basis := NULL", "basis is NULL"),
        ("NULL", "the timestamp is NULL"),
        ("'2026-13-45'", "is not a timestamp"),
    ],
)
def test_an_invalid_argument_is_an_error(
    connection: duckdb.DuckDBPyConnection, asked: str, why: str
) -> None:
    with pytest.raises(QueryRefused, match=why):
        known(connection, asked)


def test_every_instant_is_an_error_if_nothing_was_observed_yet(tmp_path: Path) -> None:
    path = tmp_path / "empty.duckdb"
    opened = connect(publish_by_hand(path, VERSIONS, pulls=PULLS, at=day(-1)))
    with pytest.raises(QueryRefused, match="no pull of events was merged yet"):
        known(opened, "'2026-03-02'")
    opened.close()


def test_events_as_of_exists_when_the_file_is_opened_directly(warehouse: Path) -> None:
    with duckdb.connect(str(warehouse), read_only=True) as connection:
        assert known(connection, "'2026-03-01 06:00'") == [("evt_0", 1), ("evt_1", 1)]


def test_events_as_of_now_match_the_events(connection: duckdb.DuckDBPyConnection) -> None:
    now = "SELECT * EXCLUDE (last_pull_at) FROM events_as_of('2026-03-04 06:00')"
    events = "SELECT * EXCLUDE (last_seen_at, content_at) FROM events"
    shown = "* EXCLUDE (last_verified_at, updated_at, extra)"
    for left, right in ((now, events), (events, now)):
        sql = f"(SELECT {shown} FROM ({left})) EXCEPT (SELECT {shown} FROM ({right}))"
        assert run_sql(connection, sql).rows == []
