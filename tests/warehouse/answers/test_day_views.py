"""Edges of the views of now(): the UTC day, events of several days, clusters of a coin."""

from collections.abc import Iterator

import duckdb
import pytest

from tests.warehouse.answers.handmade import ZONES, declare_macros
from tests.warehouse.answers.plain.views import view_at
from warehouse.schema import ddl
from warehouse.schema.tables import EVENT_COINS, EVENTS
from warehouse.schema.views import CLUSTERS, TODAY, UNDER_WAY, UPCOMING_EVENTS

SCHEDULED = [
    # A day, an instant, two days, an instant of the next day, an estimated one, a quarter.
    ("day", "2026-06-10", None, False, "date", 2.0),
    ("noon", "2026-06-10 12:00", None, False, "date", 3.5),
    ("two-days", "2026-06-09", "2026-06-10", False, "date", None),
    ("next", "2026-06-11 00:00:01", None, False, "date", 9.0),
    ("deadline", "2026-06-10", None, True, "date", 5.0),
    ("quarter", "2026-06-30 23:59:59", None, False, "quarter", 5.0),
]


@pytest.fixture(scope="module", params=ZONES)
def connection(request: pytest.FixtureRequest) -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as opened:
        opened.execute("SET TimeZone = $zone", {"zone": request.param})
        declare_macros(opened)
        for table in (EVENTS, EVENT_COINS):
            opened.execute(ddl.create(table))
        for event_id, date, date_end, is_estimated, date_type, impact in SCHEDULED:
            for status, missing in (("scheduled", None), ("cancelled", None), ("scheduled", date)):
                suffix = "" if status == "scheduled" and missing is None else f"-{status}-{missing}"
                opened.execute(
                    "INSERT INTO events BY NAME SELECT $event_id AS event_id, $status AS status, "
                    "$missing::TIMESTAMP AT TIME ZONE 'UTC' AS missing_since, "
                    "$date::TIMESTAMP AT TIME ZONE 'UTC' AS date, "
                    "$date_end::TIMESTAMP AT TIME ZONE 'UTC' AS date_end, "
                    "$is_estimated AS is_estimated, $date_type AS date_type, $impact AS impact",
                    {
                        **{"event_id": event_id + suffix, "status": status, "missing": missing},
                        **{"date": date, "date_end": date_end, "is_estimated": is_estimated},
                        **{"date_type": date_type, "impact": impact},
                    },
                )
        opened.execute(
            "UPDATE events SET "
            "date_precision = _almanac.date_precision(date, date_type, is_estimated)"
        )
        opened.execute(
            "UPDATE events SET earliest = _almanac.earliest(date, date_precision, is_estimated), "
            "latest = _almanac.latest("
            "date, date_end, date_precision, "
            "_almanac.earliest(date, date_precision, is_estimated))"
        )
        opened.execute(
            "INSERT INTO event_coins SELECT event_id, 'btc', 'btc', 'Bitcoin' FROM events"
        )
        for view in (UPCOMING_EVENTS, TODAY, UNDER_WAY, CLUSTERS):
            opened.execute(ddl.create_view(view))
        yield opened


@pytest.mark.parametrize(
    ("view", "now", "expected"),
    [
        ("today", "2026-06-09 23:59:59", ["two-days"]),
        ("today", "2026-06-10 00:00:00", ["day", "noon", "two-days"]),
        ("today", "2026-06-10 23:59:59.999999", ["day", "noon", "two-days"]),
        ("today", "2026-06-11 00:00:00", ["next"]),
        ("under_way", "2026-06-08 23:59:59", []),
        ("under_way", "2026-06-09 00:00:00", ["two-days"]),
        ("under_way", "2026-06-10 00:00:00", ["day", "two-days"]),
        ("under_way", "2026-06-10 12:00:00", ["day", "noon", "two-days"]),
        ("under_way", "2026-06-10 12:00:01", ["day", "two-days"]),
        ("under_way", "2026-06-11 00:00:00", []),
    ],
)
def test_a_day_is_that_of_utc_and_has_every_exact_event_that_overlaps_it(
    connection: duckdb.DuckDBPyConnection, view: str, now: str, expected: list[str]
) -> None:
    sql = view_at(connection, view, "SELECT event_id")
    found = connection.execute(sql, {"now": f"{now}+00"}).fetchall()
    assert sorted(event_id for (event_id,) in found) == expected


def test_a_cluster_has_the_events_of_a_coin_that_begin_on_a_day_and_are_not_over(
    connection: duckdb.DuckDBPyConnection,
) -> None:
    sql = view_at(
        connection,
        "clusters",
        "SELECT coin, day::VARCHAR, events, sum_impact, max_impact, event_ids",
    )
    before = connection.execute(sql, {"now": "2026-06-01 00:00+00"}).fetchall()
    assert before == [("btc", "2026-06-10", 2, 5.5, 3.5, ["day", "noon"])]
    # At one only the day is left of it.
    assert connection.execute(sql, {"now": "2026-06-10 13:00+00"}).fetchall() == []
