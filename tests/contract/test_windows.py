"""The dates that a plan shows, and how a requested range is clamped to them."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.contract.plans import (
    ELITE,
    ENTERPRISE,
    FREE,
    PLANS,
    PRO,
    STANDARD,
    Plan,
    Window,
    day_end,
    day_start,
    plan_window,
    requested_window,
    upcoming_window,
)

NOW = datetime(2026, 10, 8, 15, 30, 12, 345_678, tzinfo=UTC)
TODAY = datetime(2026, 10, 8, tzinfo=UTC)
START_2017 = datetime(2017, 1, 1, tzinfo=UTC)
END_OF_FREE = datetime(2026, 10, 15, 23, 59, 59, 999_999, tzinfo=UTC)
END_OF_STANDARD = datetime(2027, 1, 6, 23, 59, 59, 999_999, tzinfo=UTC)

PLAN = st.sampled_from(list(PLANS.values()))
INSTANT = st.floats(1.42e9, 2.05e9).map(lambda epoch_s: datetime.fromtimestamp(epoch_s, tz=UTC))
"""From 2014 to 2034."""
NOWS = INSTANT.filter(lambda now: now.year >= 2018)
BOUND = st.none() | INSTANT


@pytest.mark.parametrize(
    ("plan", "expected"),
    [
        (FREE, Window(TODAY, END_OF_FREE)),
        (STANDARD, Window(TODAY, END_OF_STANDARD)),
        (PRO, Window(datetime(2026, 9, 8, tzinfo=UTC), None)),
        (ELITE, Window(START_2017, None)),
        (ENTERPRISE, Window(START_2017, None)),
    ],
)
def test_window_of_each_plan(plan: Plan, expected: Window) -> None:
    assert plan_window(plan, NOW) == expected


@pytest.mark.parametrize(
    ("plan", "upper"),
    [(FREE, END_OF_FREE), (STANDARD, END_OF_STANDARD), (PRO, None), (ELITE, None)],
)
def test_upcoming_is_from_today_to_the_horizon(plan: Plan, upper: datetime | None) -> None:
    assert upcoming_window(plan, NOW) == Window(TODAY, upper)


@given(plan=PLAN, now=NOWS)
def test_windows_are_the_same_all_day(plan: Plan, now: datetime) -> None:
    for window in (plan_window, upcoming_window):
        assert window(plan, now) == window(plan, day_start(now))
        assert window(plan, now) == window(plan, day_end(now.date()))


@given(plan=PLAN, now=NOWS)
def test_a_day_later_the_window_has_moved_by_a_day(plan: Plan, now: datetime) -> None:
    today, tomorrow = (plan_window(plan, now + timedelta(days=n)) for n in (0, 1))
    moves = plan.past_days is not None
    assert tomorrow.lower - today.lower == timedelta(days=1 if moves else 0)
    if today.upper is not None and tomorrow.upper is not None:
        assert tomorrow.upper - today.upper == timedelta(days=1)


@given(now=NOWS)
def test_a_higher_plan_shows_all_that_a_lower_one_shows(now: datetime) -> None:
    windows = [plan_window(plan, now) for plan in PLANS.values()]
    for lower, higher in pairwise(windows):
        assert higher.lower <= lower.lower
        assert higher.upper is None or (lower.upper is not None and higher.upper >= lower.upper)


@given(plan=PLAN, now=NOWS)
def test_without_bounds_the_range_is_the_upcoming_window(plan: Plan, now: datetime) -> None:
    assert requested_window(plan, now, lower=None, upper=None) == upcoming_window(plan, now)


@given(plan=PLAN, now=NOWS, lower=BOUND, upper=BOUND, date=INSTANT)
def test_an_event_is_listed_iff_requested_and_inside_the_plan(
    plan: Plan, now: datetime, lower: datetime | None, upper: datetime | None, date: datetime
) -> None:
    usual = upcoming_window(plan, now)
    requested = Window(lower or usual.lower, upper or usual.upper)
    listed = requested_window(plan, now, lower=lower, upper=upper).overlaps(date, None)
    assert listed == (
        requested.overlaps(date, None) and plan_window(plan, now).overlaps(date, None)
    )


@pytest.mark.parametrize(
    ("plan", "lower", "upper", "expected"),
    [
        (FREE, datetime(2020, 1, 1, tzinfo=UTC), None, Window(TODAY, END_OF_FREE)),
        (FREE, None, datetime(2040, 1, 1, tzinfo=UTC), Window(TODAY, END_OF_FREE)),
        (FREE, None, TODAY, Window(TODAY, TODAY)),
        (PRO, START_2017, None, Window(datetime(2026, 9, 8, tzinfo=UTC), None)),
        (
            ELITE,
            datetime(2001, 1, 1, tzinfo=UTC),
            datetime(2018, 1, 1, tzinfo=UTC),
            Window(START_2017, datetime(2018, 1, 1, tzinfo=UTC)),
        ),
    ],
)
def test_a_range_outside_the_plan_is_clamped_not_refused(
    plan: Plan, lower: datetime | None, upper: datetime | None, expected: Window
) -> None:
    assert requested_window(plan, NOW, lower=lower, upper=upper) == expected


@pytest.mark.parametrize(
    ("plan", "lower", "upper"),
    [
        (FREE, datetime(2026, 12, 1, tzinfo=UTC), None),
        (FREE, None, datetime(2026, 10, 7, tzinfo=UTC)),
        (STANDARD, START_2017, datetime(2018, 1, 1, tzinfo=UTC)),
        (ELITE, datetime(2010, 1, 1, tzinfo=UTC), datetime(2016, 12, 31, tzinfo=UTC)),
    ],
)
def test_a_range_completely_outside_the_plan_is_empty(
    plan: Plan, lower: datetime | None, upper: datetime | None
) -> None:
    assert requested_window(plan, NOW, lower=lower, upper=upper).empty


@given(lower=INSTANT, upper=INSTANT, start=INSTANT)
def test_an_empty_window_holds_no_event_of_one_date(
    lower: datetime, upper: datetime, start: datetime
) -> None:
    window = Window(lower, upper)
    assert not (window.empty and window.overlaps(start, None))


@pytest.mark.parametrize(
    ("days", "inside"),
    [
        ((-3, -1), False),
        ((-3, 0), True),
        ((-3, 30), True),
        ((2, 3), True),
        ((7, 30), True),
        ((8, 30), False),
    ],
)
def test_an_event_of_several_days_is_inside_when_any_day_is(
    days: tuple[int, int], inside: bool
) -> None:
    start, end = (TODAY + timedelta(days=n) for n in days)
    assert plan_window(FREE, NOW).overlaps(start, end) == inside


def test_bounds_are_inclusive() -> None:
    window = plan_window(FREE, NOW)
    tick = timedelta(microseconds=1)
    assert window.overlaps(TODAY, None)
    assert not window.overlaps(TODAY - tick, None)
    assert window.overlaps(END_OF_FREE, None)
    assert not window.overlaps(END_OF_FREE + tick, None)
    assert window.overlaps(TODAY - timedelta(days=9), TODAY)
