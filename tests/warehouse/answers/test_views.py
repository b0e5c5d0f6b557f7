"""What the views show at a time, in any zone of the session; an estimated date is never a date."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from almanac.core.statements import statements_in
from tests.warehouse.answers.handmade import ZONES, Absence, Handmade, Known
from tests.warehouse.answers.seeded import day, seeded
from warehouse.schema import ddl
from warehouse.schema.views import MACROS, VIEWS

MOVED: dict[str, Any] = {"change_kinds": ("rescheduled",), "changed_fields": ("date",)}
UPDATED = day(1) - timedelta(minutes=3)
VERSIONS = [
    *(seeded(event, seed, day(0)) for event, seed in enumerate((1, 2, 3, 5))),
    seeded(0, 2, day(1), 2, **MOVED, updated_at=UPDATED),
    *(seeded(event, seed, day(1), 2, **MOVED) for event, seed in ((1, 3), (2, 6))),
    seeded(3, 5, day(2), 2, change_kinds=("cancelled",), status="cancelled", cancelled_at=day(1)),
    seeded(4, 8, day(0)),
]
SCHEDULED = [
    # A day, an instant, two days, an instant of the next day, a deadline, a quarter.
    ("day", "2026-06-10", None, False, "date", 2.0),
    ("noon", "2026-06-10 12:00", None, False, "date", 3.5),
    ("two-days", "2026-06-09", "2026-06-10", False, "date", None),
    ("next", "2026-06-11 00:00:01", None, False, "date", 9.0),
    ("deadline", "2026-06-10", None, True, "date", 5.0),
    ("quarter", "2026-06-30 23:59:59", None, False, "quarter", 5.0),
]
ALL = [name for name, *_ in SCHEDULED]


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.fixture(scope="module", params=ZONES)
def june(request: pytest.FixtureRequest) -> Iterator[Handmade]:
    """Scheduled events, and each again as cancelled and as missing."""
    versions = [
        Known(
            event_id=f"{name}{suffix}",
            known_from=day(0),
            status=status,
            date=utc(date),
            date_end=None if date_end is None else utc(date_end),
            is_estimated=is_estimated,
            date_type=date_type,
            impact=impact,
            coins=("btc",),
        )
        for name, date, date_end, is_estimated, date_type, impact in SCHEDULED
        for suffix, status in (("", "scheduled"), ("-off", "cancelled"), ("-lost", "scheduled"))
    ]
    absences = [Absence(f"{name}-lost", day(1), day(1)) for name in ALL]
    made = Handmade(versions, absences=absences, pulls=[day(0)], zone=request.param)
    yield made
    made.close()


@pytest.fixture(scope="module")
def march() -> Iterator[Handmade]:
    absences = [Absence("evt_4", day(2), day(1))]
    made = Handmade(VERSIONS, absences=absences, pulls=[day(0), day(1), day(2)])
    made.rows(
        "INSERT INTO coins BY NAME SELECT unnest(['coin-0', 'coin-1']) AS slug, "
        "unnest(['C0', 'C1']) AS symbol, unnest(['Coin 0', 'Coin 1']) AS name, "
        "unnest([1, 2]) AS rank"
    )
    made.rows(
        "INSERT INTO coin_snapshots BY NAME SELECT slug AS coin, $at AS observed_at FROM coins",
        {"at": day(0)},
    )
    made.rows(
        "INSERT INTO every.batches BY NAME SELECT $at AS observed_at, 'coins' AS feed, "
        "'merged' AS status",
        {"at": day(0)},
    )
    yield made
    made.rows("TRUNCATE coins")
    made.rows("TRUNCATE coin_snapshots")
    made.close()


def test_a_day_is_that_of_utc_and_has_every_exact_event_that_overlaps_it(june: Handmade) -> None:
    for now, expected in (
        ("2026-06-09 23:59:59", ["two-days"]),
        ("2026-06-10 00:00:00", ["day", "noon", "two-days"]),
        ("2026-06-10 23:59:59.999999", ["day", "noon", "two-days"]),
        ("2026-06-11 00:00:00", ["next"]),
    ):
        found = june.at(utc(now)).rows("SELECT event_id FROM today ORDER BY 1")
        assert [name for (name,) in found] == expected, now


def test_an_event_is_upcoming_until_the_end_of_its_instant_day_or_period(june: Handmade) -> None:
    for now, over in (
        ("2026-06-09 23:59:59.999999", []),
        ("2026-06-10 12:00:00.999999", []),
        ("2026-06-10 12:00:01", ["noon"]),
        ("2026-06-10 23:59:59.999999", ["noon"]),
        ("2026-06-11 00:00:00", ["day", "noon", "two-days", "deadline"]),
        ("2026-06-11 00:00:02", ["day", "noon", "two-days", "deadline", "next"]),
        ("2026-07-01 00:00:00", ALL),
    ):
        june.at(utc(now))
        for asked in ("upcoming_events", "upcoming_as_of(now())"):
            found = june.rows(f"SELECT event_id FROM {asked} ORDER BY 1")
            assert [name for (name,) in found] == sorted({*ALL} - {*over}), (asked, now)


def test_an_estimated_event_is_upcoming_without_a_date(march: Handmade) -> None:
    found = march.at(day(2)).rows(
        "SELECT event_id, displayed_date, date_exact, days_until, is_estimated "
        "FROM upcoming_events ORDER BY event_id"
    )
    assert found == [
        ("evt_0", "day 2", utc("2026-06-10"), 99.0, False),
        ("evt_1", "day 3", None, None, True),
        ("evt_2", "day 6", None, None, True),
    ]


def test_a_latency_is_from_the_time_that_the_service_names(march: Handmade) -> None:
    found = march.at(day(2)).rows(
        "SELECT event_id, version, kind, happened_at, latency_s FROM detection_latency "
        "WHERE event_id IN ('evt_0', 'evt_1', 'evt_3') ORDER BY event_id, version"
    )
    assert found == [
        ("evt_0", 1, "created", day(0), 0.0),
        # The second version of evt_1 names no time of its change.
        ("evt_1", 1, "created", day(0), 0.0),
        ("evt_3", 1, "created", day(0), 0.0),
        ("evt_3", 2, "cancelled", day(1), 86_400.0),
    ]
    known = Known(event_id="old", known_from=day(0), updated_at=day(0), change_kinds=("revealed",))
    later = {"event_id": "old", "version": 2, "known_from": day(1), "updated_at": UPDATED}
    made = Handmade([known, Known(**later, change_kinds=("revised",))], pulls=[day(0)])
    latencies = "SELECT version, kind, happened_at, latency_s FROM detection_latency"
    assert made.rows(latencies) == [(2, "updated", UPDATED, 180.0)]


@pytest.mark.parametrize("table", [*VIEWS, *MACROS], ids=lambda table: table.name)
def test_no_view_and_no_macro_follows_the_zone_of_the_session(march: Handmade, table: Any) -> None:
    values = {"ts": "'2026-03-02 12:30'", "lead": "INTERVAL '3 months 2 days'", "wanted": "'c'"}
    values |= {"cohort_from": "'2026-03-01 06:00'", "horizon": "INTERVAL '2 days'"}
    asked = table.name
    if table in MACROS:
        names = re.findall(r"[(,] ?([a-z]\w*)(?! :=)\b", table.call)
        asked = f"{table.name}({', '.join(values[name] for name in names)})"
    answers = []
    for zone in ZONES:
        march.rows("SET TimeZone = $zone", {"zone": zone})
        for now in ("2026-03-03 23:30", "2026-06-10 11:30"):
            answers.append(sorted(map(repr, in_utc(march.at(utc(now)).rows(f"FROM {asked}")))))
    march.rows("SET TimeZone = 'UTC'")
    assert answers[0] or answers[1] or asked == "event_claims"
    assert answers[::2] == answers[:1] * len(ZONES)
    assert answers[1::2] == answers[1:2] * len(ZONES)


def in_utc(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return [
        tuple(item.astimezone(UTC) if isinstance(item, datetime) else item for item in row)
        for row in rows
    ]


_OF_DAYS = r"::DATE\b|\bdate_trunc\(|\bdate_diff\(|INTERVAL \d+ (DAY|WEEK|MONTH|QUARTER|YEAR)"


def test_statements_convert_times_to_utc_before_they_take_days_of_them() -> None:
    for file in sorted((Path(ddl.__file__).parent / "views").glob("*.sql")):
        for name, whole in statements_in(file.read_text()):
            text = re.sub(r"--[^\n]*", "", whole)
            for found in re.finditer(_OF_DAYS, text):
                around = text[max(0, found.start() - 250) : found.end() + 250]
                assert "AT TIME ZONE 'UTC'" in around, f"{name}: {found[0]} follows the session"


def test_views_and_macros_call_no_function_that_older_readers_lack() -> None:
    # DuckDB 1.4 and 1.5 read the file; to them `if` is no function.
    for text in ddl.create_views():
        assert not re.search(r"\bif\s*\(", re.sub(r"--.*", "", text)), text
