"""`events_as_of` returns what was known at an instant, and nothing that became known later."""

from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import duckdb
import pytest

from almanac.core.errors import QueryRefused
from almanac.reading.attached_file import connect, run_sql
from tests.almanac.publications import publish_by_hand
from tests.warehouse.answers.handmade import Known
from tests.warehouse.answers.seeded import day, seeded

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


def test_a_time_without_a_zone_is_utc_in_any_session(connection: duckdb.DuckDBPyConnection) -> None:
    known_then, known_before = [("evt_0", 3), ("evt_1", 1)], [("evt_0", 1), ("evt_1", 1)]
    for zone in ("UTC", "America/New_York", "Pacific/Kiritimati"):
        connection.execute("SET TimeZone = $zone", {"zone": zone})
        for asked in (
            "'2026-03-02 06:00'",
            "'2026-03-02T06:00:00Z'",
            "'2026-03-02T08:00:00+02:00'",
            "'2026-03-02 01:00-05'",
            "'2026-03-02 06:00 UTC'",
            "TIMESTAMP '2026-03-02 06:00'",
            "TIMESTAMPTZ '2026-03-02 06:00:00+00'",
            "DATE '2026-03-03'",
            "'2026-03-03'",
        ):
            assert known(connection, asked) == known_then, (asked, zone)
        for asked in (
            "'2026-03-02 05:59:59'",
            "DATE '2026-03-02'",
            "'2026-03-02'",
            # After six in local time, before six in UTC.
            "'2026-03-02T07:59:59+02:00'",
            "'2026-03-02 07:59:59.999999+0200'",
            "'2026-03-02T06:59:59 Europe/Berlin'",
        ):
            assert known(connection, asked) == known_before, (asked, zone)


def test_the_time_may_be_bound_as_any_value_of_time(connection: duckdb.DuckDBPyConnection) -> None:
    for at in (
        "2026-03-02 06:00",
        date(2026, 3, 3),
        datetime(2026, 3, 2, 6),  # noqa: DTZ001
        datetime(2026, 3, 2, 6, tzinfo=UTC),
        datetime(2026, 3, 2, 8, tzinfo=timezone(timedelta(hours=2))),
    ):
        rows = connection.execute("SELECT version FROM events_as_of($at) ORDER BY 1", {"at": at})
        assert rows.fetchall() == [(1,), (3,)], at


CALLERS = (
    "SELECT count(*) FROM {}",
    "SELECT * FROM {} WHERE last_pull_at IS NOT NULL LIMIT 1",
    "SELECT * FROM {} WHERE slug = 'nothing'",
    "SELECT 1 FROM {} WHERE latest > '2206-01-01' AND impact IS NULL",
    "SELECT 1 FROM {} WHERE date IS NULL AND version > 99",
    "SELECT 1 FROM {} WHERE latest > '2206-01-01' AND missing_since IS NULL",
    "SELECT * FROM events SEMI JOIN {} USING (event_id)",
    "SELECT 1 WHERE EXISTS (FROM {})",
)


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ("'2026-03-01 05:59'", r"before the first observation at 2026-03-01T06:00:00Z.*claimed"),
        ("'2206-03-02'", r"is still to come: .*the last pull was at 2026-03-04T06:00:00Z"),
        ("'2206-03-02', basis := 'claimed'", r"is still to come: .* 2026-03-04T06:00:00Z"),
        ("now() + INTERVAL 1 SECOND", "is still to come"),
        ("'2026-03-02', basis := 'guessed'", "expected 'observed' or 'claimed'"),
        ("'2026-03-02', basis := NULL", "basis is NULL"),
        ("NULL", "the timestamp is NULL"),
        ("'2026-13-45'", "is not a timestamp"),
    ],
)
def test_a_time_without_an_answer_is_an_error_that_names_the_reason(
    connection: duckdb.DuckDBPyConnection, asked: str, why: str
) -> None:
    for caller in CALLERS:
        with pytest.raises(QueryRefused, match=why):
            run_sql(connection, caller.format(f"events_as_of({asked})"))


def test_each_answer_says_when_events_were_last_pulled(
    connection: duckdb.DuckDBPyConnection,
) -> None:
    for asked, last_pull in (
        ("'2026-03-01 06:00'", day(0)),
        ("'2026-03-02 05:59:59'", day(0)),
        # Nothing was pulled on the third day.
        ("'2026-03-04 05:59:59'", day(1)),
        ("'2026-03-03', basis := 'claimed'", day(1)),
        ("'2025-12-02', basis := 'claimed'", None),
        ("greatest(now(), TIMESTAMPTZ '2026-03-04 06:00Z')", day(3)),
    ):
        sql = f"SELECT DISTINCT last_pull_at FROM events_as_of({asked})"
        assert run_sql(connection, sql).rows == [(last_pull,)], asked


def test_a_time_after_now_has_an_answer_if_the_service_is_ahead(tmp_path: Path) -> None:
    last = datetime(2126, 3, 4, 6, tzinfo=UTC)
    ahead = publish_by_hand(tmp_path / "ahead.duckdb", [seeded(0, 1, last)], pulls=[last])
    opened = connect(ahead)
    assert known(opened, "'2126-03-04 06:00'") == [("evt_0", 1)]
    with pytest.raises(QueryRefused, match="still to come"):
        known(opened, "'2126-03-04 06:00:01'")
    opened.close()


def test_claims_end_at_the_first_observation(connection: duckdb.DuckDBPyConnection) -> None:
    assert known(connection, "'2025-12-02', basis := 'claimed'") == [("evt_1", -1)]
    assert known(connection, "'2025-12-01 23:59', basis := 'claimed'") == []
    assert known(connection, "'2026-03-01 05:59:59', basis := 'claimed'") == [("evt_1", 0)]
    both = [("evt_0", 1), ("evt_1", 1)]
    assert known(connection, "'2026-03-01 06:00', basis := 'claimed'") == both


def test_events_as_of_has_the_last_change_known_then(connection: duckdb.DuckDBPyConnection) -> None:
    first = datetime(2026, 3, 1, 6, tzinfo=UTC)
    sql = "SELECT first_seen_at, changed_at, status FROM events_as_of({}) WHERE event_id = 'evt_1'"
    claimed = run_sql(connection, sql.format("'2026-01-01', basis := 'claimed'")).rows
    assert claimed == [(None, datetime(2025, 12, 3, tzinfo=UTC), "scheduled")]
    assert run_sql(connection, sql.format("'2026-03-02'")).rows == [(first, first, "scheduled")]
    cancelled = first + timedelta(days=3)
    assert run_sql(connection, sql.format("'2026-03-04 06:00'")).rows == [
        (first, cancelled, "cancelled")
    ]


def test_events_as_of_now_match_the_events(connection: duckdb.DuckDBPyConnection) -> None:
    now = "SELECT * EXCLUDE (last_pull_at) FROM events_as_of('2026-03-04 06:00')"
    events = "SELECT * EXCLUDE (last_seen_at, content_at) FROM events"
    shown = "* EXCLUDE (last_verified_at, updated_at, extra)"
    for left, right in ((now, events), (events, now)):
        sql = f"(SELECT {shown} FROM ({left})) EXCEPT (SELECT {shown} FROM ({right}))"
        assert run_sql(connection, sql).rows == []
