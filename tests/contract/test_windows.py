"""The dates that a plan shows, and how a requested range is clamped to them."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.contract.plans import (
    ELITE,
    ENTERPRISE,
    FREE,
    INSTANT_STEP,
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
PLAN = st.sampled_from(list(PLANS.values()))
INSTANT = st.floats(1.52e9, 2.05e9).map(lambda epoch_s: datetime.fromtimestamp(epoch_s, tz=UTC))
"""From 2018 to 2034."""


@pytest.mark.parametrize(
    ("plan", "expected"),
    [
        (FREE, Window(TODAY, END_OF_FREE)),
        (STANDARD, Window(TODAY, datetime(2027, 1, 6, 23, 59, 59, 999_999, tzinfo=UTC))),
        (PRO, Window(datetime(2026, 9, 8, tzinfo=UTC), None)),
        (ELITE, Window(START_2017, None)),
        (ENTERPRISE, Window(START_2017, None)),
    ],
)
def test_window_of_each_plan(plan: Plan, expected: Window) -> None:
    assert plan_window(plan, NOW) == expected
    assert upcoming_window(plan, NOW) == Window(TODAY, expected.upper)


@given(plan=PLAN, now=INSTANT)
def test_windows_are_the_same_all_day_and_move_by_a_day_at_midnight(
    plan: Plan, now: datetime
) -> None:
    today, tomorrow = (plan_window(plan, now + timedelta(days=n)) for n in (0, 1))
    assert today == plan_window(plan, day_start(now)) == plan_window(plan, day_end(now.date()))
    assert tomorrow.lower - today.lower == timedelta(days=plan.past_days is not None)
    if today.upper is not None and tomorrow.upper is not None:
        assert tomorrow.upper - today.upper == timedelta(days=1)


ENDS_OF_TIME = [datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC)]
BOUND = st.none() | INSTANT | st.sampled_from(ENDS_OF_TIME)


@given(plan=PLAN, now=INSTANT, lower=BOUND, upper=BOUND, date=INSTANT)
def test_an_event_is_listed_iff_requested_and_inside_the_plan(
    plan: Plan, now: datetime, lower: datetime | None, upper: datetime | None, date: datetime
) -> None:
    usual = upcoming_window(plan, now)
    requested = Window(lower or usual.lower, upper or usual.upper)
    window = requested_window(plan, now, lower=lower, upper=upper)
    is_listed = requested.overlaps(date, None) and plan_window(plan, now).overlaps(date, None)
    assert window.overlaps(date, None) == is_listed
    assert not (window.empty and is_listed)
    assert requested_window(plan, now, lower=None, upper=None) == usual


def test_bounds_are_inclusive_and_any_day_of_several_counts() -> None:
    window = plan_window(FREE, NOW)
    assert window.overlaps(TODAY, None) and window.overlaps(END_OF_FREE, None)
    assert not window.overlaps(TODAY - INSTANT_STEP, None)
    assert not window.overlaps(END_OF_FREE + INSTANT_STEP, None)
    for first, last, is_inside in ((-3, -1, 0), (-3, 0, 1), (-3, 30, 1), (7, 30, 1), (8, 30, 0)):
        start, end = (TODAY + timedelta(days=n) for n in (first, last))
        assert window.overlaps(start, end) == bool(is_inside)
