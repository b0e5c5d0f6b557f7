"""Each kind of move, and whom the shares count, on a few versions made by hand."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import duckdb
import pytest

from tests.warehouse.answers.handmade import ZONES, Absence, Handmade, Known

SEEN = datetime(2026, 3, 2, 6, tzinfo=UTC)
MOVED = SEEN + timedelta(days=2)
SHIFTS = "kind, least_shift_days, most_shift_days, shift_days"


def utc(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text).replace(tzinfo=UTC)


def dated(
    date: str | None, kind: str = "date", end: str | None = None, **others: Any
) -> dict[str, Any]:
    """Return the fields of a date; `deadline` and the periods are estimated."""
    return {
        "date": utc(date),
        "date_end": utc(end),
        "date_type": "date" if kind == "deadline" else kind,
        "is_estimated": kind != "date",
        **others,
    }


def moved(old: dict[str, Any], new: dict[str, Any]) -> Handmade:
    """Return a warehouse with one event, first seen on 2 March and moved on 4 March."""
    return Handmade(
        [
            Known(event_id="evt", known_from=SEEN, **old),
            Known(event_id="evt", version=2, known_from=MOVED, **new),
        ]
    )


MONTH, NEXT_MONTH = "2026-10-31 23:59:59 month", "2026-11-30 23:59:59 month"
QUARTER = "2026-12-31 23:59:59 quarter"
DEADLINE = "2026-10-11 23:59:59 deadline"
MOVES = [
    ("a day", "2026-10-05", "2026-10-08", "slipped", 3, 3, 3),
    ("a day to earlier", "2026-10-05", "2026-09-30", "pulled_in", -5, -5, -5),
    ("an instant", "2026-10-05 18:00", "2026-10-06 06:00", "slipped", 0.5, 0.5, 0.5),
    ("an instant of the day", "2026-10-05 18:00", "2026-10-05 06:00", "time_only", *(-0.5,) * 3),
    ("a time on the day", "2026-10-05", "2026-10-05 06:00", "refined", 0, 0, 0),
    ("a time no longer known", "2026-10-05 23:59:59", "2026-10-05", "loosened", 0, 0, 0),
    ("a time on another day", "2026-10-05", "2026-10-04 23:59:59", "pulled_in", -1, -1, -1),
    ("a month", MONTH, NEXT_MONTH, "slipped", 1, 60, 31),
    ("a quarter to earlier", QUARTER, "2026-09-30 23:59:59 quarter", "pulled_in", -183, -1, -92),
    ("another date in the month", MONTH, "2026-10-15 month", "time_only", -30, 30, 0),
    ("a day within the month", MONTH, "2026-10-31", "refined", 0, 30, None),
    ("a day after the month", MONTH, "2026-11-01", "slipped", 1, 31, None),
    ("a day before the month", MONTH, "2026-09-30", "pulled_in", -31, -1, None),
    ("the month of a quarter", QUARTER, "2026-12-31 23:59:59 month", "refined", -30, 91, None),
    ("a year", "2026-12-31 23:59 month", "2026-12-31 23:59 year", "loosened", -364, 30, None),
    # It had not begun on 4 March, when that became known.
    ("a deadline", DEADLINE, "2026-10-21 23:59:59 deadline", "slipped", -221, 231, 10),
    ("an earlier deadline", DEADLINE, "2026-10-01 23:59:59 deadline", "pulled_in", -221, 211, -10),
    ("one over", "2026-03-03 23:59 deadline", "2026-03-08 23:59 deadline", "slipped", 1, 5, 5),
    ("another time of its day", DEADLINE, "2026-10-11 deadline", "time_only", -221, 221, 0),
    ("a day before the deadline", DEADLINE, "2026-10-05", "refined", -6, 215, None),
    ("a day after the deadline", DEADLINE, "2026-10-12", "slipped", 1, 222, None),
    ("a deadline for a day", "2026-10-05", DEADLINE, "loosened", -215, 6, None),
    ("a deadline before", "2026-10-05", "2026-10-04 23:59 deadline", "pulled_in", -215, -1, None),
    ("a deadline within the month", MONTH, DEADLINE, "pulled_in", -241, 10, None),
    (
        "the end of days",
        "2026-10-05 to 2026-10-07",
        "2026-10-05 to 2026-10-09",
        "end_only",
        0,
        0,
        0,
    ),
    ("the end of a day", "2026-10-05", "2026-10-05 to 2026-10-09", "end_only", 0, 0, 0),
    ("days from the month", MONTH, "2026-10-31 to 2026-11-02", "refined", 0, 30, None),
    ("an instant of days", "2026-10-05 to 2026-10-09", "2026-10-07 12:00", "slipped", 2, 2, 2),
    ("a first date", "", "2026-10-05", "refined", None, None, None),
    ("a date withdrawn", "2026-10-05", "", "loosened", None, None, None),
]


def read_date(text: str) -> dict[str, Any]:
    """Return the fields of a date that is written with its kind, or with its last day."""
    date, _, end = text.partition(" to ")
    head, _, kind = date.rpartition(" ")
    if kind in ("month", "quarter", "year", "deadline"):
        return dated(head, kind)
    return dated(date or None, end=end or None)


@pytest.mark.parametrize("zone", ZONES)
def test_each_kind_of_move_has_its_name_and_the_days_it_may_be(zone: str) -> None:
    versions = [
        Known(event_id=name, version=number, known_from=at, **read_date(text))
        for name, old, new, *_ in MOVES
        for number, (at, text) in enumerate(((SEEN, old), (MOVED, new)), start=1)
    ]
    found = Handmade(versions, zone=zone).rows(f"SELECT event_id, {SHIFTS} FROM reschedules")
    assert {row[0]: row[1:] for row in found} == {
        name: tuple(expected) for name, _, _, *expected in MOVES
    }


def test_a_version_whose_date_stays_is_no_reschedule() -> None:
    same = dated("2026-10-05")
    other = {**same, "title": "other", "status": "cancelled"}
    assert moved(same, other).rows("FROM reschedules") == []
    closed = dated("2026-10-31 23:59:59", "month", is_estimated=False)
    assert moved(dated("2026-10-31 23:59:59", "month"), closed).rows("FROM reschedules") == []


def test_a_version_that_was_known_at_no_time_moves_nothing() -> None:
    """A batch of deliveries may bring several versions at one instant."""
    days = (("2026-10-05", SEEN), ("2026-10-09", MOVED), ("2026-10-07", MOVED))
    versions = [
        Known(event_id="evt", version=number, known_from=at, **dated(day))
        for number, (day, at) in enumerate(days, 1)
    ]
    asked = Handmade(versions)
    rows = asked.rows("SELECT version, kind, shift_days FROM reschedules")
    assert rows == [(3, "slipped", 2)]
    first = [
        replace(item, known_from=SEEN, status=status)
        for item, status in ((versions[0], "cancelled"), (versions[1], "scheduled"))
    ]
    watched = Handmade([replace(item, categories=("Release",)) for item in first])
    assert watched.rows("SELECT at_risk, rescheduled FROM category_stats") == [(1, 0)]


def test_a_date_that_becomes_known_is_no_reschedule_and_one_that_moves_beside_it_is() -> None:
    hidden = dated("2026-10-05", unknown_fields=("date_end",))
    shown = dated("2026-10-05", end="2026-10-07")
    assert moved(hidden, shown).rows("FROM reschedules") == []
    later = dated("2026-10-06", end="2026-10-07")
    assert moved(hidden, later).rows("SELECT kind FROM reschedules") == [("slipped",)]
    opened = dated("2026-10-05", "deadline", unknown_fields=("is_estimated",))
    assert moved(opened, dated("2026-10-05")).rows("FROM reschedules") == []


def test_a_reschedule_has_the_time_from_its_knowledge_to_the_old_date() -> None:
    cases: list[tuple[dict[str, Any], tuple[float | None, ...]]] = [
        (dated("2026-10-05"), (215, 215, 215)),
        (dated("2026-03-05 18:00"), (1.5, 1.5, 1.5)),
        (dated("2026-03-03"), (-1, -1, -1)),
        (dated("2026-03-31 23:59:59", "month"), (0, 27, None)),
        (dated("2026-12-31 23:59:59", "quarter"), (211, 302, None)),
        (dated("2026-10-11 23:59:59", "deadline"), (0, 221, None)),
        (dated("2026-02-28 23:59:59", "month"), (-4, -4, None)),
        (dated(None), (None, None, None)),
    ]
    versions = [
        Known(event_id=str(number), version=version, known_from=at, **fields)
        for number, (old, _) in enumerate(cases)
        for version, at, fields in ((1, SEEN, old), (2, MOVED, dated("2027-05-05")))
    ]
    sql = "SELECT least_lead_days, most_lead_days, lead_days FROM reschedules ORDER BY event_id"
    found = Handmade(versions, zone="Pacific/Kiritimati").rows(sql)
    assert found == [leads for _, leads in cases]


def test_a_reschedule_has_coins_categories_and_score_as_known_then() -> None:
    shown: tuple[dict[str, Any], ...] = (
        {"coins": ("a",), "categories": ("AMA",), "impact": 2.0, "impact_band": "Low"},
        {"coins": ("a", "b"), "categories": ("Fork",), "impact": 6.0, "impact_band": "High"},
        {"coins": (), "categories": ("Burn",), "impact": 9.0, "impact_band": "Critical"},
    )
    days = ("2026-10-05", "2026-10-08", "2026-10-08")
    versions = [
        Known(
            event_id="evt",
            version=place + 1,
            known_from=SEEN + place * (MOVED - SEEN),
            **dated(day, **more),
        )
        for place, (day, more) in enumerate(zip(days, shown, strict=True))
    ]
    sql = "SELECT coins, categories, impact, impact_band FROM reschedules"
    assert Handmade(versions).rows(sql) == [(["a", "b"], ["Fork"], 6.0, "High")]


def test_a_reschedule_shows_both_dates_in_full_and_only_exact_ones_as_instants() -> None:
    old = dated("2026-10-11 23:59:59", "deadline", displayed_date="By 11 Oct")
    new = dated("2026-10-05", displayed_date="05 Oct")
    found = moved(old, new).rows(
        "SELECT old_displayed_date, new_displayed_date, old_displayed_date_full, "
        "new_displayed_date_full, old_date_exact, new_date_exact, old_date_precision, "
        "new_date_precision, old_earliest, new_earliest, old_latest, new_latest FROM reschedules"
    )
    assert found == [
        (
            *("By 11 Oct", "05 Oct", "By 11 Oct 2026", "05 Oct 2026"),
            *(None, utc("2026-10-05"), "deadline", "day"),
            *(None, utc("2026-10-05"), utc("2026-10-12"), utc("2026-10-06")),
        )
    ]


COHORT = [
    # One that took place, and one that was cancelled, both due on the day after the first pull.
    Known(event_id="held", known_from=SEEN, impact=8.0, **dated("2026-03-03")),
    Known(event_id="cancelled", known_from=SEEN, **dated("2026-03-03")),
    # It is not over when its new date is due: by its first date it is.
    Known(event_id="late", known_from=SEEN, impact=2.0, **dated("2026-03-03")),
    Known(event_id="withdrawn", known_from=SEEN, **dated("2026-03-02 12:00")),
    Known(event_id="missing", known_from=SEEN, **dated("2026-03-02")),
    Known(event_id="early", known_from=SEEN, **dated("2026-09-30 23:59:59", "quarter")),
    Known(event_id="open", known_from=SEEN, **dated("2026-09-30 23:59:59", "quarter")),
    # Over when first seen, so it says nothing of how many were cancelled.
    Known(event_id="past", known_from=SEEN, **dated("2026-03-01")),
    Known(event_id="over", known_from=SEEN, **dated("2026-03-02 05:59:59")),
    Known(event_id="unseen", known_from=SEEN, status="cancelled", **dated("2026-03-03")),
    Known(event_id="undated", known_from=SEEN, **dated(None)),
]
LATER = [
    Known(event_id="late", version=2, known_from=MOVED, **dated("2026-10-05")),
    Known(event_id="past", version=2, known_from=MOVED, **dated("2026-02-05")),
    Known(event_id="early", version=2, known_from=MOVED, **dated("2026-09-05")),
    Known(event_id="early", version=3, known_from=MOVED, status="cancelled", **dated("2026-09-05")),
    *(
        Known(event_id=status, version=2, known_from=MOVED, status=status, **dated("2026-03-03"))
        for status in ("cancelled", "withdrawn")
    ),
]


@pytest.fixture(scope="module")
def cohort() -> Handmade:
    versions = [
        Known(**{**{name: getattr(item, name) for name in item.__slots__}, "categories": ("AMA",)})
        for item in (*COHORT, *LATER)
    ]
    pulls = [SEEN, SEEN + timedelta(hours=41), SEEN.replace(day=4, hour=0), MOVED]
    return Handmade(versions, absences=[Absence("missing", MOVED, MOVED)], pulls=pulls)


def test_the_share_of_cancelled_events_is_of_those_at_risk_until_due(cohort: Handmade) -> None:
    names = (
        "category_id, category, events, at_risk, due, cancelled, withdrawn, missing, share, "
        "cancelled_not_due, cancelled_not_at_risk, cancelled_unseen"
    )
    sql = f"SELECT {names} FROM cancellation_stats"
    counted = ("ama", "AMA", 11, 7, 5, 1, 1, 1, 0.2, 1, 1, 1)
    assert cohort.at(MOVED).rows(sql) == [counted]
    # An event is over at the end of its day. Until then three were open, and nothing was cancelled.
    over = cohort.at(SEEN.replace(day=4, hour=0))
    assert over.rows("SELECT due FROM cancellation_stats") == [(5,)]
    assert cohort.at(SEEN + timedelta(hours=41)).rows(sql) == [
        ("ama", "AMA", 11, 7, 2, 0, 0, 0, 0, 0, 1, 1)
    ]
    assert cohort.at(SEEN).rows("SELECT due, share FROM cancellation_stats") == [(0, None)]


def test_no_event_is_due_that_was_over_after_the_last_pull(cohort: Handmade) -> None:
    # The quarter of two events has ended by then, and one of them was cancelled.
    for later in (MOVED, MOVED + timedelta(days=365)):
        assert cohort.at(later).rows("SELECT due, cancelled FROM cancellation_stats") == [(5, 1)]
    unpulled = Handmade(
        [Known(event_id="a", known_from=SEEN, categories=("AMA",), **dated("2026-03-03"))]
    )
    assert unpulled.at(MOVED).rows("SELECT at_risk, due FROM cancellation_stats") == [(1, 0)]


def test_moves_of_a_category_are_of_the_events_at_risk(cohort: Handmade) -> None:
    names = (
        "events, upcoming, estimated, scored, mean_impact, at_risk, rescheduled, slipped, "
        "due, rescheduled_due, rescheduled_share"
    )
    sql = f"SELECT {names} FROM category_stats"
    # `past` moved too, and `withdrawn` with its status. `early` moved, and is not due yet.
    assert cohort.at(MOVED).rows(sql) == [(11, 2, 1, 1, 8.0, 7, 3, 2, 5, 2, 2 / 5)]
    (before,) = cohort.at(SEEN).rows("SELECT due, rescheduled_share FROM category_stats")
    assert before == (0, None)


def test_events_cancelled_and_never_seen_have_a_row_without_a_category(cohort: Handmade) -> None:
    cohort.at(MOVED)
    cohort.rows(
        "INSERT INTO state.cancellations_waiting BY NAME SELECT "
        "unnest(['cancelled', 'old', 'new']) AS event_id, "
        "$since::TIMESTAMPTZ + unnest([1, -1, 1]) * INTERVAL 1 HOUR AS cancelled_at, "
        "$since::TIMESTAMPTZ AS first_seen_at",
        {"since": SEEN},
    )
    names = "category, events, due, share, cancelled_not_at_risk, cancelled_unseen"
    found = cohort.rows(f"SELECT {names} FROM cancellation_stats WHERE category IS NULL")
    cohort.rows("TRUNCATE state.cancellations_waiting")
    assert found == [(None, 0, 0, None, 0, 1)]
    assert cohort.rows("SELECT category FROM cancellation_stats") == [("AMA",)]


OUTCOMES = "slipped, pulled_in, refined, loosened, cancelled, withdrawn, held"


@pytest.fixture(scope="module")
def rates() -> Handmade:
    day, soon, end = dated("2026-03-20"), SEEN + timedelta(days=1), SEEN + timedelta(days=2)
    moves: dict[str, list[tuple[datetime, dict[str, Any]]]] = {
        "slipped twice": [(soon, dated("2026-03-21")), (end, dated("2026-03-22"))],
        "back": [(soon, dated("2026-03-21")), (end, dated("2026-03-20"))],
        "refined": [(end, dated("2026-03-20 12:00"))],
        "loosened": [(end, dated("2026-03-31 23:59:59", "month"))],
        "longer": [(end, dated("2026-03-20", end="2026-03-22"))],
        "cancelled": [(end, {**day, "status": "cancelled"})],
        "restored": [(soon, {**day, "status": "withdrawn"}), (end, day)],
        # It slipped too late.
        "later": [(end + timedelta(seconds=1), dated("2026-03-21"))],
        "held": [],
        # At the instant of the cohort this was known.
        "replaced": [(SEEN, dated("2026-03-21"))],
    }
    versions = [
        Known(event_id=name, version=number, known_from=at, categories=("AMA",), **fields)
        for name, rest in moves.items()
        for number, (at, fields) in enumerate([(SEEN, day), *rest], start=1)
    ]
    # In no cohort: over, cancelled, missing, not yet seen, without a date.
    others = [
        Known(event_id="over", known_from=SEEN, **dated("2026-03-01")),
        Known(event_id="gone", known_from=SEEN, status="cancelled", **day),
        Known(event_id="missing", known_from=SEEN, **day),
        Known(event_id="new", known_from=SEEN + timedelta(seconds=1), **day),
        Known(event_id="undated", known_from=SEEN, **dated(None)),
    ]
    return Handmade(
        [*versions, *others],
        absences=[Absence("missing", SEEN, SEEN), Absence("missing", end, None)],
        pulls=[SEEN, end],
    )


def test_slip_rates_count_what_became_known_within_the_horizon(rates: Handmade) -> None:
    counts = ("8-30", "day", 10, 2, 1, 1, 1, 1, 1, 4, 0.2)
    for horizon in ("2", "'2'", "2.0", "INTERVAL 2 DAY", "INTERVAL 48 HOUR", "'2 days'"):
        rows = rates.rows(
            f"SELECT category, distance, date_precision, cohort, {OUTCOMES}, slipped_share "
            f"FROM slip_rates('2026-03-02 06:00', {horizon}) ORDER BY category NULLS FIRST"
        )
        assert rows == [(None, *counts), ("AMA", *counts)], horizon


def test_a_distance_is_in_whole_days_to_the_date_or_the_last_day_of_a_period() -> None:
    late = SEEN.replace(hour=23)
    distances = {-1: "0-7", 0: "0-7", 7: "0-7", 8: "8-30", 30: "8-30", 31: "31-90"}
    distances |= {90: "31-90", 91: "91-365", 365: "91-365", 366: "over 365"}
    versions = []
    for days in distances:
        day = (late + timedelta(days=days)).replace(hour=0)
        deadline = max(day, late.replace(hour=0)) + timedelta(hours=23, minutes=59, seconds=59)
        of_days: dict[str, Any] = {"known_from": SEEN, "categories": (f"in {days} days",)}
        versions += [
            Known(event_id=f"day {days}", date=day, date_end=day + timedelta(days=2), **of_days),
            Known(event_id=f"deadline {days}", is_estimated=True, date=deadline, **of_days),
        ]
    made = Handmade(versions, pulls=[SEEN, late + timedelta(days=1)])
    sql = "SELECT DISTINCT category, distance FROM slip_rates($at::TIMESTAMPTZ, 1) "
    found = made.rows(f"{sql} WHERE category IS NOT NULL", {"at": late})
    assert sorted(found) == sorted((f"in {days} days", name) for days, name in distances.items())


@pytest.mark.parametrize(
    ("call", "why"),
    [
        ("'2026-03-02 06:00', 3", "ends at 2026-03-05T06:00:00Z, after the last .* 2026-03-04T06"),
        ("'2026-03-02 06:00', '48 hours 1 second'", "was not observed to its end"),
        ("'2100-01-01', 1", "is still to come"),
        ("'2026-03-02 05:59:59', 1", "before the first observation at 2026-03-02T06"),
        ("NULL, 1", "the timestamp is NULL"),
        ("'2026-03-02 06:00', 0", "the horizon is 0; expected an interval or a number of days"),
        ("'2026-03-02 06:00', '-1 day'", "expected an interval or a number of days, above 0"),
        ("'2026-03-02 06:00', 'soon'", "the horizon is soon"),
        ("'2026-03-02 06:00', NULL", "the horizon is NULL"),
    ],
)
def test_a_horizon_that_was_not_observed_is_an_error_whatever_is_asked_of_the_rows(
    rates: Handmade, call: str, why: str
) -> None:
    for sql in (
        "SELECT count(*) FROM slip_rates({})",
        "SELECT 1 FROM slip_rates({}) LIMIT 1",
        "FROM slip_rates({}) WHERE category = 'nothing' AND date_precision = 'year'",
        "SELECT 1 WHERE EXISTS (FROM slip_rates({}))",
    ):
        with pytest.raises(duckdb.Error, match=f"slip_rates: .*{why}"):
            rates.rows(sql.format(call))


def test_no_cohort_was_observed_before_the_first_pull() -> None:
    made = Handmade([Known(event_id="evt", known_from=SEEN, **dated("2026-03-20"))])
    with pytest.raises(duckdb.Error, match="no pull of events was merged yet"):
        made.rows("FROM slip_rates('2026-03-02 06:00', 1)")
