"""The table of poll intervals: budget, reserve, push, and what is due."""

from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from catalog.contract.plans import ELITE, ENTERPRISE, FREE, PRO, STANDARD, Plan
from pipeline.polls import (
    CANCELLATIONS,
    INTERVALS,
    MISSING,
    Month,
    PollInputs,
    PollPlan,
    band_windows,
    find_last_pulls,
    plan_polls,
)
from resources.scopes import PollWindow
from tests.pipeline.small_home import SmallHome
from warehouse.landing.batches import Scope

NOW = datetime(2026, 3, 10, 7, tzinfo=UTC)
RESET = datetime(2026, 4, 1, tzinfo=UTC)
DAY = timedelta(days=1)
HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)
SPANS = [(NOW.date() + distance * DAY, None, 12) for distance in range(-5, 200)]


def inputs(plan: Plan = STANDARD, **given_: Any) -> PollInputs:
    quota = given_.pop("quota", plan.monthly_quota)
    month = Month(
        quota,
        given_.pop("used", 0),
        RESET,
        given_.pop("reserve", (quota or 0) // 5),
        given_.pop("daily_requests", 40),
    )
    base = PollInputs(plan, NOW, month, SPANS, dict.fromkeys(INTERVALS, NOW - DAY))
    return replace(base, **given_)


def intervals(plan: PollPlan) -> dict[str, timedelta]:
    return {row.name: row.interval for row in plan.rows}


@dataclass
class SimulatedMonth:
    """A home that polls when its plan says so, with daily pulls, on a clock that jumps."""

    inputs: PollInputs
    random: Random
    polled: int = 0
    daily: int = 0
    last_at: datetime = NOW

    def run(self) -> None:
        now = self.inputs.now
        daily_at = datetime.combine(now.date() + DAY, datetime.min.time(), UTC) + 20 * MINUTE
        while now < RESET:
            plan = plan_polls(replace(self.inputs, now=now))
            assert plan.next_at > now
            if plan.requests:
                # A window may have grown by a page since its events were counted.
                grown = sum(self.random.random() < 0.2 for _ in plan.due.windows)
                self.polled += self._pay(plan.requests + grown)
                self._see(plan, now)
                self.last_at = now
            now = min(plan.next_at, daily_at)
            if now == daily_at < RESET:
                self.daily += self._pay(self.inputs.month.daily_requests)
                self._see(None, now)
                daily_at += DAY

    def _pay(self, requests: int) -> int:
        month = self.inputs.month
        self.inputs = replace(self.inputs, month=replace(month, used=month.used + requests))
        return requests

    def _see(self, plan: PollPlan | None, now: datetime) -> None:
        windows = band_windows(self.inputs.plan, now.date())
        names = [*windows, CANCELLATIONS]
        if plan is not None:
            names = [name for name, window in windows.items() if window in plan.due.windows]
            names += [CANCELLATIONS] * plan.due.cancellations
            names += [MISSING] * bool(plan.due.event_ids)
        pulls = {**self.inputs.last_pulls, **dict.fromkeys(names, now)}
        self.inputs = replace(self.inputs, last_pulls=pulls)


@given(
    plan=st.sampled_from([FREE, STANDARD, PRO, ELITE]),
    quota=st.integers(0, 60_000),
    used_share=st.floats(0, 1.1),
    missing=st.integers(0, 30),
    least=st.sampled_from([0, 900, 5_000]),
    seed=st.integers(0, 9),
)
@example(plan=ELITE, quota=3_000_000, used_share=0.0, missing=30, least=900, seed=1)
@example(plan=STANDARD, quota=4_000, used_share=0.0, missing=0, least=0, seed=1)
def test_a_month_never_goes_over_its_budget_and_keeps_the_reserve(
    plan: Plan, quota: int, used_share: float, missing: int, least: int, seed: int
) -> None:
    given_ = inputs(
        plan,
        quota=quota,
        used=int(quota * used_share),
        missing=[str(number) for number in range(missing)],
        least_interval=timedelta(seconds=least),
    )
    budget = given_.month.for_polls(NOW)
    month = SimulatedMonth(given_, Random(seed))
    month.run()
    assert month.polled <= budget
    if month.polled:
        assert month.inputs.month.used <= quota - given_.month.reserve
    assert month.daily == given_.month.for_daily(NOW), "polls leave the daily pulls their requests"


def test_a_tight_budget_is_used_and_lasts_to_the_reset() -> None:
    given_ = inputs(STANDARD, quota=9_000)
    month = SimulatedMonth(given_, Random(1))
    month.run()
    assert month.polled > 0.8 * given_.month.for_polls(NOW)
    assert month.last_at > RESET - DAY / 2


@given(quota=st.integers(1, 2_000_000), plan=st.sampled_from([STANDARD, PRO, ELITE]))
def test_all_intervals_are_stretched_by_one_factor(quota: int, plan: Plan) -> None:
    given_ = inputs(plan, quota=quota)
    found = plan_polls(given_)
    factor = found.factor or 1.0
    for name, interval in intervals(found).items():
        expected = given_.least_interval * INTERVALS[name] * factor
        assert abs(interval - expected) < timedelta(milliseconds=1)
    assert factor >= 1
    if found.factor is not None:
        days = (RESET - NOW) / DAY
        assert sum(row.per_day for row in found.rows) * days <= given_.month.for_polls(NOW) * 1.001


def test_no_poll_is_due_until_the_reset_once_the_budget_is_used_up() -> None:
    used_up = plan_polls(inputs(STANDARD, used=30_000 - 6_000))
    assert (used_up.requests, used_up.factor, used_up.next_at) == (0, None, RESET)
    none = plan_polls(inputs(FREE))
    assert (none.requests, none.next_at) == (0, RESET), "free has only the daily pull"
    assert plan_polls(inputs(ENTERPRISE)).factor == 1, "no quota, so nothing is stretched"


def test_a_window_that_may_have_grown_beyond_the_budget_is_not_due() -> None:
    last_hour = RESET - HOUR
    for left, is_due in ((1, False), (2, True)):
        found = plan_polls(
            inputs(
                STANDARD, now=last_hour, used=24_000 - left, last_pulls={CANCELLATIONS: last_hour}
            )
        )
        assert bool(found.due.windows) == is_due, "one page, and perhaps another"


def test_a_band_is_due_when_its_last_pull_is_an_interval_old() -> None:
    last = {"next 7 days": NOW - 15 * MINUTE, "next 90 days": NOW - 29 * MINUTE, CANCELLATIONS: NOW}
    found = plan_polls(inputs(STANDARD, last_pulls=last))
    assert found.due.windows == (PollWindow(date(2026, 3, 10), date(2026, 3, 17)),)
    assert not found.due.cancellations
    assert found.next_at == NOW + MINUTE
    assert found.requests == 1, "8 days of 12 events are one page"


def test_cancellations_are_requested_since_the_last_pull() -> None:
    last = {**dict.fromkeys(INTERVALS, NOW), CANCELLATIONS: NOW - HOUR}
    due = plan_polls(inputs(STANDARD, last_pulls=last)).due
    assert (due.windows, due.cancellations) == ((), True)
    assert due.since == NOW - HOUR - 6 * MINUTE
    assert plan_polls(inputs(STANDARD, last_pulls={})).due.since is None
    # Missing events are looked up a few at a time, where a 404 is proof.
    ids = [str(number) for number in range(9)]
    assert plan_polls(inputs(PRO, missing=ids)).due.event_ids == ("0", "1", "2", "3", "4")
    assert plan_polls(inputs(STANDARD, missing=ids)).due.event_ids == ()


@pytest.mark.parametrize("quota", [3_000_000, 8_000])
def test_push_lengthens_every_interval_and_never_shortens_one(quota: int) -> None:
    alone = intervals(plan_polls(inputs(ELITE, quota=quota)))
    pushed = inputs(ELITE, quota=quota, push_until=NOW, push_interval=2 * HOUR)
    assert pushed.push_is_on
    found = intervals(plan_polls(pushed))
    assert all(found[name] >= max(2 * HOUR, alone[name]) for name in alone)
    slow = replace(pushed, least_interval=2 * HOUR)
    assert intervals(plan_polls(slow))["later dates"] >= 16 * HOUR
    silent = replace(pushed, push_until=NOW - MINUTE)
    assert intervals(plan_polls(silent)) == alone


def test_a_list_counts_from_its_pull_and_an_export_from_its_snapshot(tmp_path: Path) -> None:
    small = SmallHome(tmp_path)
    whole = Scope(lower=datetime(2017, 1, 1, tzinfo=UTC))
    near = Scope(lower=NOW - 10 * DAY, upper=NOW + 8 * DAY)
    batches = [
        *small.land("export", at=NOW - 3 * HOUR, scope=whole),
        *small.land("events", at=NOW - 2 * HOUR, scope=near),
        *small.land("events", at=NOW - HOUR, scope=near, why_incomplete="a page is missing"),
        *small.land("cancellations", at=NOW),
    ]
    assert find_last_pulls(batches, ELITE) == {
        "next 7 days": NOW - 2 * HOUR,
        "next 90 days": NOW - 3 * HOUR,
        "later dates": NOW - 3 * HOUR,
        CANCELLATIONS: NOW,
    }
    assert find_last_pulls(batches, FREE).keys() == {"next 7 days", CANCELLATIONS}
