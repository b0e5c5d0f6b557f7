"""The interval in which an event may take place, as plain Python computes it from its date."""

from datetime import UTC, datetime, timedelta
from typing import Any

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from almanac.core.connections import parse
from tests.warehouse.answers.handmade import ZONES, declare_macros
from tests.warehouse.answers.plain.dating import dating
from warehouse.schema.tables import INTERNAL_SCHEMA

INSTANTS = st.one_of(
    st.datetimes(datetime(2016, 1, 1), datetime(2032, 1, 1)),  # noqa: DTZ001
    st.dates(datetime(2016, 1, 1).date(), datetime(2032, 1, 1).date()).map(  # noqa: DTZ001
        lambda day: datetime(day.year, day.month, day.day)  # noqa: DTZ001
    ),
).map(lambda instant: instant.replace(microsecond=0, tzinfo=UTC))
SQL = f"""
    SELECT
        exactness,
        {INTERNAL_SCHEMA}.earliest(starts, exactness, is_open) AS first,
        {INTERNAL_SCHEMA}.latest(starts, ends, exactness, first)
    FROM (
        SELECT
            *, {INTERNAL_SCHEMA}.date_precision(starts, kind, is_open) AS exactness
        FROM (
            SELECT
                $starts::TIMESTAMPTZ AS starts, $ends::TIMESTAMPTZ AS ends, $kind AS kind,
                $is_open::BOOLEAN AS is_open
        )
    )
"""


@pytest.fixture(scope="module", params=ZONES)
def connection(request: pytest.FixtureRequest) -> duckdb.DuckDBPyConnection:
    opened = duckdb.connect()
    declare_macros(opened)
    opened.execute("SET TimeZone = $zone", {"zone": request.param})
    return opened


@given(
    starts=INSTANTS,
    length=st.none() | st.timedeltas(timedelta(0), timedelta(days=400)),
    kind=st.sampled_from(["date", "month", "quarter", "year", "Quarter", "season", None]),
    is_open=st.sampled_from([True, False, None]),
)
def test_the_interval_follows_from_the_date_in_any_zone_of_the_session(
    connection: duckdb.DuckDBPyConnection,
    starts: datetime,
    length: timedelta | None,
    kind: str | None,
    is_open: bool | None,
) -> None:
    ends = None if length is None else starts + timedelta(seconds=length // timedelta(seconds=1))
    values = {"starts": starts, "ends": ends, "kind": kind, "is_open": is_open}
    found = connection.execute(parse(SQL), values).fetchone()
    lower = None if kind is None else kind.lower()
    assert found == dating(starts, ends, lower, is_open=is_open)


@pytest.mark.parametrize(
    ("starts", "kind", "is_open", "expected"),
    [
        # An end of a period, inclusive or exclusive, and the first instant of one that is not open.
        ("2026-09-30 23:59:59", "quarter", True, ("2026-07-01", "2026-10-01")),
        ("2026-10-01", "quarter", True, ("2026-07-01", "2026-10-01")),
        ("2026-09-01", "month", False, ("2026-09-01", "2026-10-01")),
        ("2026-12-31", "year", True, ("2026-01-01", "2027-01-01")),
        # A deadline lasts until the end of its day, whatever its time.
        ("2026-10-11", "date", True, (None, "2026-10-12")),
        ("2026-10-11 12:00", "date", True, (None, "2026-10-12")),
        ("2026-10-11 23:59:59", "date", True, (None, "2026-10-12")),
        ("2026-10-11", "date", False, ("2026-10-11", "2026-10-12")),
        ("2026-10-11 12:00", "date", False, ("2026-10-11 12:00", "2026-10-11 12:00:01")),
    ],
)
def test_examples_of_periods_days_and_deadlines(
    connection: duckdb.DuckDBPyConnection,
    starts: str,
    kind: str,
    is_open: bool,
    expected: tuple[str | None, str],
) -> None:
    values = {"starts": _instant(starts), "ends": None, "kind": kind, "is_open": is_open}
    _, *found = connection.execute(SQL, values).fetchone() or ()
    assert found == [None if text is None else _instant(text) for text in expected]


LAST_SECOND = "2026-12-31 23:59:59"


@pytest.mark.parametrize(
    ("shown", "starts", "ends", "kind", "full"),
    [
        ("08 Oct", "2026-10-08", None, "", "08 Oct 2026"),
        ("By 11 Oct", "2026-10-11 23:59:59", None, "open", "By 11 Oct 2026"),
        ("30 Dec → 02 Jan", "2026-12-30", "2027-01-02", "", "30 Dec 2026 → 02 Jan 2027"),
        ("2026", LAST_SECOND, None, "year", "2026"),
        ("Block 20260", "2026-10-15", None, "", "Block 20260"),
        ("TBA", LAST_SECOND, None, "open", "TBA"),
        ("Q4", "2027-01-01", None, "quarter", "Q4 2026"),
        ("Soon", None, None, "", "Soon"),
        (None, None, None, "", None),
        (None, "2026-10-15", None, "", "15 Oct 2026"),
        ("", "2026-10-15 23:30:00", None, "", "15 Oct 2026"),
        (" \u200b\t\u00a0", "2026-10-15", "2026-10-15 08:00:00", "", "15 Oct 2026"),
        (None, "2026-12-30 21:00:00", "2027-01-02", "", "30 Dec 2026 → 02 Jan 2027"),
        (None, LAST_SECOND, None, "open", "By 31 Dec 2026"),
        (None, LAST_SECOND, None, "month", "Dec 2026"),
        (None, "2027-01-01", None, "quarter", "Q4 2026"),
        (None, LAST_SECOND, None, "year", "2026"),
        (None, "infinity", None, "", "infinity"),
    ],
)
def test_the_displayed_date_has_its_year_and_falls_back_to_the_date(
    connection: duckdb.DuckDBPyConnection,
    shown: str | None,
    starts: str | None,
    ends: str | None,
    kind: str,
    full: str | None,
) -> None:
    sql = f"""
        SELECT {INTERNAL_SCHEMA}.displayed_date_full(
            $shown, starts, $ends::TIMESTAMP AT TIME ZONE 'UTC', exactness,
            {INTERNAL_SCHEMA}.earliest(starts, exactness, $kind <> '')
        )
        FROM (
            SELECT
                $starts::TIMESTAMP AT TIME ZONE 'UTC' AS starts,
                {INTERNAL_SCHEMA}.date_precision(starts, $kind, $kind <> '') AS exactness
        )
    """
    values = {"shown": shown, "starts": starts, "ends": ends, "kind": kind}
    assert connection.execute(sql, values).fetchone() == (full,)


PERIODS = [
    # The text and the date exclude each other: the period of the text counts.
    ("Q4 2026", "2026-10-01", "quarter", True, "quarter", "2026-10-01", "2027-01-01"),
    ("Q4", "2026-10-01", "quarter", True, "quarter", "2026-10-01", "2027-01-01"),
    ("October 2026", "2026-09-30", "month", True, "month", "2026-10-01", "2026-11-01"),
    ("H1 2026", "2026-12-31", "quarter", True, "year", "2026-01-01", "2027-01-01"),
    ("2027", "2026-12-31", "year", True, "year", "2027-01-01", "2028-01-01"),
    ("Early 2027", "2026-12-31", "year", True, "year", "2027-01-01", "2028-01-01"),
    ("Oct → Nov 2026", "2026-09-30", "quarter", True, "quarter", "2026-10-01", "2027-01-01"),
    ("Q4 2026", "2026-06-30 23:59:59", "date", True, "quarter", "2026-10-01", "2027-01-01"),
    ("Nov 2026", "2026-10-05 12:00", "date", False, "month", "2026-11-01", "2026-12-01"),
    ("2027 to 2028", "2026-12-31", "year", True, "year", "2026-01-01", "2027-01-01"),
    # Both allow some time.
    ("Late Oct 2026", "2026-12-31", "quarter", True, "month", "2026-10-01", "2026-11-01"),
    ("Q4 2026", "2026-12-31", "year", True, "quarter", "2026-10-01", "2027-01-01"),
    ("Sep – Oct 2026", "2026-09-30", "quarter", True, "month", "2026-09-01", "2026-10-01"),
]
AGREEING = [
    ("Q3 2026", "2026-10-01", "quarter", True, "quarter", "2026-07-01", "2026-10-01"),
    ("2026", "2026-12-31", "quarter", True, "quarter", "2026-10-01", "2027-01-01"),
    ("H2 2026", "2026-12-31", "year", True, "year", "2026-01-01", "2027-01-01"),
    ("Sep 2026", "2026-09-30", "date", True, "deadline", None, "2026-10-01"),
    ("Oct 2026", "2026-10-05", "date", False, "day", "2026-10-05", "2026-10-06"),
    ("TBA", "2026-10-01", "quarter", True, "quarter", "2026-07-01", "2026-10-01"),
    ("Season 2026", "2026-10-01", "quarter", True, "quarter", "2026-07-01", "2026-10-01"),
]


@pytest.mark.parametrize(
    ("case", "is_doubted"), [(c, True) for c in PERIODS] + [(c, False) for c in AGREEING]
)
def test_a_displayed_period_that_contradicts_the_date_is_noted(
    connection: duckdb.DuckDBPyConnection, case: tuple[Any, ...], is_doubted: bool
) -> None:
    shown, starts, kind, is_open, *expected = case
    sql = f"""
        SELECT
            period IS NOT NULL,
            coalesce(period.exactness, stated),
            coalesce(period.first, first),
            {INTERNAL_SCHEMA}.latest(
                starts, NULL::TIMESTAMPTZ, coalesce(period.exactness, stated),
                coalesce(period.first, first)
            )
        FROM (
            SELECT
                *,
                {INTERNAL_SCHEMA}.earliest(starts, stated, $is_open) AS first,
                {INTERNAL_SCHEMA}.agreed_period(
                    $shown, starts, NULL::TIMESTAMPTZ, stated, first
                ) AS period
            FROM (
                SELECT *, {INTERNAL_SCHEMA}.date_precision(starts, $kind, $is_open) AS stated
                FROM (SELECT $starts::TIMESTAMPTZ AS starts)
            )
        )
    """
    values = {"starts": _instant(starts), "shown": shown, "kind": kind, "is_open": is_open}
    exactness, *bounds = expected
    instants = [None if text is None else _instant(text) for text in bounds]
    assert connection.execute(sql, values).fetchone() == (is_doubted, exactness, *instants)


def _instant(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)
