"""The planner of polls as a pure function. How good its plans are is measured in bench/polling."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from catalog.contract.constants import EVENTS_LIMIT_MAX
from catalog.contract.plans import ELITE, ENTERPRISE, FREE, PRO, STANDARD, Plan
from pipeline.polling.planner import (
    CancellationsPull,
    EventsPull,
    LookUps,
    Month,
    PlannerInputs,
    PollPlan,
    ReceivedPush,
    ScheduleRow,
    due_at,
    plan_polls,
)
from pipeline.polling.poll_windows import (
    BANDS,
    NO_CHANGE_COUNTS,
    Calendar,
    ChangeCounts,
    ChangeRates,
    count_events,
    estimate_rates,
    find_band,
)
from resources.ingest.scopes import PollWindow

NOW = datetime(2026, 3, 10, 7, tzinfo=UTC)
RESET = datetime(2026, 4, 1, tzinfo=UTC)
DAY = timedelta(days=1)
MINUTE = timedelta(minutes=1)


def calendar(per_date: Callable[[int], int], *, days: int = 120) -> Calendar:
    """Return a calendar with so many events on each date, by distance from NOW."""
    today = NOW.date()
    return Calendar(
        {today + distance * DAY: per_date(distance) for distance in range(-40, days)}, {}
    )


EVEN = calendar(lambda distance: 12)


def inputs(plan: Plan = STANDARD, **given_: Any) -> PlannerInputs:
    quota = given_.pop("quota", plan.monthly_quota)
    used = given_.pop("used", 0)
    reserve = given_.pop("reserve", (quota or 0) // 5)
    cap = given_.pop("cap", None)
    base = PlannerInputs(
        plan=plan,
        now=NOW,
        month=Month(quota, used, RESET, reserve, cap, daily_requests=40),
        calendar=EVEN,
        last_pulls=pulled_at(NOW - timedelta(hours=6)),
        cancellations_pulled_at=NOW - timedelta(hours=6),
    )
    return replace(base, **given_)


def pulled_at(at: datetime) -> dict[date, datetime]:
    return {NOW.date() + distance * DAY: at for distance in range(-60, 900)}


def windows(rows: Sequence[ScheduleRow]) -> list[ScheduleRow]:
    return [row for row in rows if row.window is not None]


def requests(plan: PollPlan) -> int:
    return sum(pull.requests for pull in plan.due)


@dataclass
class Home:
    """A home that executes its plan, on a clock that jumps to the next due time."""

    inputs: PlannerInputs
    daily: bool = True
    pulls: list[tuple[datetime, object]] = field(default_factory=list)
    most_used: int = 0

    def run_until(self, end: datetime) -> None:
        now = self.inputs.now
        while now < end:
            plan = plan_polls(replace(self.inputs, now=now))
            for pull in plan.due:
                self.pulls.append((now, pull))
                self._pay(pull.requests)
                if isinstance(pull, EventsPull):
                    self._pull(pull.window, now)
                elif isinstance(pull, CancellationsPull):
                    self.inputs = replace(self.inputs, cancellations_pulled_at=now)
                else:
                    left = [
                        event_id
                        for event_id in self.inputs.missing
                        if event_id not in pull.event_ids
                    ]
                    self.inputs = replace(self.inputs, missing=tuple(left))
            assert plan.next_at > now
            daily_at = datetime.combine(now.date(), datetime.min.time(), UTC) + 20 * MINUTE
            daily_at += DAY * (daily_at <= now)
            if self.daily and daily_at <= min(plan.next_at, end):
                now = daily_at
                self._pay(self.inputs.month.daily_requests)
                self._pull(PollWindow(now.date() - 40 * DAY, None), now)
                self.inputs = replace(self.inputs, cancellations_pulled_at=now)
            else:
                now = plan.next_at

    def _pay(self, count: int) -> None:
        month = self.inputs.month
        cap = None if month.cap is None else month.cap - count
        self.inputs = replace(self.inputs, month=replace(month, used=month.used + count, cap=cap))
        self.most_used = max(self.most_used, month.used + count)

    def _pull(self, window: PollWindow, now: datetime) -> None:
        last = window.last or now.date() + 900 * DAY
        days = (last - window.first).days + 1
        pulled = {window.first + at * DAY: now for at in range(days)}
        self.inputs = replace(self.inputs, last_pulls={**self.inputs.last_pulls, **pulled})


def test_near_events_are_polled_more_often_than_far_ones() -> None:
    rows = windows(plan_polls(inputs(least_interval=timedelta(0))).schedule)
    tomorrow = next(row for row in rows if covers(row, NOW.date() + DAY))
    furthest = next(row for row in rows if covers(row, NOW.date() + 89 * DAY))
    assert tomorrow.interval < furthest.interval


def covers(row: ScheduleRow | EventsPull, day: date) -> bool:
    window = row.window
    return (
        window is not None and window.first <= day and (window.last is None or day <= window.last)
    )


def test_everything_that_the_plan_shows_is_in_a_window() -> None:
    for plan, first, last in (
        (FREE, 0, 7),
        (STANDARD, 0, 90),
        (PRO, -30, 119),
        (ELITE, -30, 119),
        (ENTERPRISE, -30, 119),
    ):
        rows = plan_polls(inputs(plan)).schedule
        for distance in range(first, last + 1):
            assert any(covers(row, NOW.date() + distance * DAY) for row in rows), (plan, distance)


def test_the_last_window_of_a_plan_without_horizon_has_no_end() -> None:
    assert windows(plan_polls(inputs(PRO)).schedule)[-1].window.last is None  # type: ignore[union-attr]


def test_windows_fill_their_pages() -> None:
    rows = windows(plan_polls(inputs(least_interval=timedelta(0))).schedule)
    for row in rows:
        assert row.window is not None
        held = ((row.window.last or NOW.date()) - row.window.first).days * 12 + 12
        assert held % 100 >= 70 or held < 100


def test_budget_beyond_the_least_interval_of_all_windows_is_spare() -> None:
    plan = plan_polls(inputs(PRO, least_interval=60 * MINUTE))
    assert {row.interval for row in plan.schedule} == {60 * MINUTE}
    assert plan.spare is not None and plan.spare > 0


def test_a_least_interval_of_nothing_leaves_only_the_freshness_of_the_service() -> None:
    plan = plan_polls(inputs(ENTERPRISE, quota=None, least_interval=timedelta(0)))
    assert min(row.interval for row in plan.schedule) == MINUTE
    free = inputs(replace(ENTERPRISE, freshness_s=0), quota=None, least_interval=timedelta(0))
    assert min(row.interval for row in plan_polls(free).schedule) < MINUTE


def test_without_a_quota_nothing_is_projected() -> None:
    plan = plan_polls(inputs(ENTERPRISE, quota=None))
    assert plan.projected_at_reset is None
    assert plan.spare is None


def test_a_smaller_quota_makes_polls_rarer() -> None:
    spends = [
        plan_polls(inputs(quota=quota, least_interval=timedelta(0))).per_day
        for quota in (3_000, 10_000, 30_000, 100_000)
    ]
    assert spends == sorted(spends)
    assert spends[0] < spends[-1]


def test_quota_left_late_in_the_month_is_spent() -> None:
    early = plan_polls(inputs(least_interval=timedelta(0)))
    late = replace(inputs(least_interval=timedelta(0)), now=RESET - 2 * DAY)
    late = replace(late, last_pulls=pulled_at(late.now), cancellations_pulled_at=late.now)
    assert plan_polls(late).per_day > 5 * early.per_day


def test_no_pull_is_due_until_the_reset_once_the_quota_is_used_up() -> None:
    for used in (24_000, 29_999, 30_000):
        plan = plan_polls(inputs(used=used, last_pulls={}))
        assert plan.due == ()
        assert plan.next_at == RESET
        assert plan.per_day == 0
        assert all("until the reset" in row.why for row in plan.schedule)


def test_polls_leave_the_requests_of_the_daily_jobs_until_the_reset() -> None:
    for_daily = 21 * 40  # from 11 to 31 March
    assert plan_polls(inputs(quota=for_daily, reserve=0, last_pulls={})).due == ()
    assert plan_polls(inputs(quota=for_daily + 100, reserve=0, last_pulls={})).due != ()


def test_polls_have_the_whole_quota_after_the_reset() -> None:
    after = replace(inputs(used=30_000), now=RESET + DAY)
    assert plan_polls(after).due


def test_a_cap_for_polls_holds_beside_the_quota() -> None:
    assert plan_polls(inputs(cap=0, last_pulls={})).due == ()
    assert plan_polls(inputs(cap=100, least_interval=timedelta(0))).per_day < 100 / 21


def test_a_fresh_home_pulls_each_feed_once() -> None:
    plan = plan_polls(inputs(last_pulls={}, cancellations_pulled_at=None))
    assert [type(pull) for pull in plan.due] == [CancellationsPull, EventsPull]
    assert plan.due[0] == CancellationsPull(since=None)
    assert plan.due[1].window == PollWindow(NOW.date(), NOW.date() + 90 * DAY)  # type: ignore[union-attr]


def test_cancellations_are_requested_from_shortly_before_the_last_pull() -> None:
    pulled = NOW - timedelta(hours=6)
    (pull,) = [pull for pull in plan_polls(inputs()).due if isinstance(pull, CancellationsPull)]
    assert pull.since is not None
    assert timedelta(minutes=1) < pulled - pull.since < timedelta(minutes=30)
    assert pull.requests == 1


def test_missing_events_are_looked_up_only_on_plans_without_a_horizon() -> None:
    for plan in (FREE, STANDARD):
        assert not [
            pull for pull in plan_polls(inputs(plan, missing=("a",))).due if is_look_up(pull)
        ]
    for plan in (PRO, ELITE, ENTERPRISE):
        (pull,) = [
            pull for pull in plan_polls(inputs(plan, missing=("a",))).due if is_look_up(pull)
        ]
        assert pull == LookUps(("a",))


def is_look_up(pull: object) -> bool:
    return isinstance(pull, LookUps)


def test_missing_events_take_a_bounded_share_oldest_first() -> None:
    ids = tuple(str(number) for number in range(100_000))
    first = plan_polls(inputs(PRO, missing=ids)).due[0]
    assert isinstance(first, LookUps)
    assert first.event_ids == ids[: len(first.event_ids)]
    assert len(first.event_ids) <= 0.03 * 240_000 / 21
    after = inputs(PRO, missing=ids, looked_up_today=len(first.event_ids))
    assert not any(is_look_up(pull) for pull in plan_polls(after).due)


def push(
    at: datetime = NOW, *, silent_after: timedelta = 30 * DAY, hours: float = 6
) -> ReceivedPush:
    return ReceivedPush(at, silent_after, timedelta(hours=hours))


def test_with_push_on_the_same_dates_are_polled_only_once_in_the_push_interval() -> None:
    home = Home(inputs(ELITE, push=push()))
    home.run_until(NOW + 3 * DAY)
    for distance in (0, 3, 20, 80):
        day = NOW.date() + distance * DAY
        at = [at for at, pull in home.pulls if isinstance(pull, EventsPull) and covers(pull, day)]
        assert len(at) >= 3
        assert min(later - earlier for earlier, later in pairwise(at)) >= timedelta(hours=6)
    rare = Home(inputs(ELITE, push=push(hours=48)))
    rare.run_until(NOW + 3 * DAY)
    assert rare.pulls == []


def test_push_polls_as_often_as_without_it_where_its_interval_is_shorter() -> None:
    without = plan_polls(inputs(ELITE))
    assert plan_polls(inputs(ELITE, push=push(hours=0))).due == without.due
    assert (
        plan_polls(inputs(FREE, push=push(hours=0))).schedule == plan_polls(inputs(FREE)).schedule
    )


def test_push_that_falls_silent_returns_to_the_ordinary_schedule_and_the_reason_says_so() -> None:
    on = inputs(ELITE, push=push(NOW - DAY, silent_after=DAY))
    silent = replace(on, now=NOW + MINUTE)
    ordinary = plan_polls(replace(silent, push=None))
    found = plan_polls(silent)
    assert (found.due, found.per_day) == (ordinary.due, ordinary.per_day)
    assert plan_polls(on).per_day < ordinary.per_day / 2
    assert all(row.why.startswith("push brings the changes; ") for row in plan_polls(on).schedule)
    whole = [row.why for row in found.schedule if "changes most" not in row.why]
    assert whole and all(why.startswith("push is silent; as often as ") for why in whole)
    assert not any("push" in row.why for row in ordinary.schedule)


def test_missing_events_are_looked_up_at_once_with_push_on() -> None:
    quiet = inputs(ELITE, push=push(), last_pulls=pulled_at(NOW), missing=("a", "b"))
    assert plan_polls(replace(quiet, cancellations_pulled_at=NOW)).due == (LookUps(("a", "b")),)


def test_a_plan_without_push_is_polled_whatever_was_received() -> None:
    assert plan_polls(inputs(PRO, push=push())) == plan_polls(inputs(PRO))


def test_free_is_pulled_once_a_day() -> None:
    with_job = Home(inputs(FREE))
    with_job.run_until(NOW + 3 * DAY)
    assert with_job.pulls == []
    alone = Home(inputs(FREE, least_interval=timedelta(0)), daily=False)
    alone.run_until(NOW + 6 * DAY)
    at = [at for at, pull in alone.pulls if isinstance(pull, EventsPull)]
    assert len(at) == 6
    assert min(later - earlier for earlier, later in pairwise(at)) >= DAY


def test_polls_divide_the_time_between_two_daily_jobs_evenly() -> None:
    done = datetime(2026, 3, 10, 0, 20, tzinfo=UTC)
    at, found = done, []
    for _ in range(3):
        at = due_at(at, timedelta(hours=6), timedelta(0))
        found.append((at - done) / timedelta(hours=1))
    assert found == pytest.approx([6, 12, 18])
    assert due_at(at, timedelta(hours=6), timedelta(0)) == done + DAY + 40 * MINUTE


def test_each_row_of_the_schedule_has_a_reason() -> None:
    for plan in (FREE, STANDARD, PRO, ELITE):
        for received in (None, push(), push(NOW - 90 * DAY)):
            for row in plan_polls(inputs(plan, push=received)).schedule:
                assert row.why and len(row.why) < 100
                assert row.unit


def test_rates_of_a_fresh_home_are_the_priors_and_fall_with_distance() -> None:
    fresh = estimate_rates(NO_CHANGE_COUNTS)
    assert fresh.on_date(1, 15) > fresh.on_date(10, 15) > fresh.on_date(80, 15)


def test_rates_follow_what_was_seen() -> None:
    many = (100_000.0,) * len(BANDS)
    seen = estimate_rates(ChangeCounts(many, many, many, many, 1_000.0, 100.0))
    assert seen.announced == pytest.approx((1.0,) * len(BANDS), rel=0.2)
    assert seen.cancelled == pytest.approx(10.0, rel=0.1)


def test_every_distance_has_a_band() -> None:
    assert [find_band(distance) for distance in (-99, -30, -1, 0, 3, 999)] == [0, 0, 1, 2, 4, 12]


def test_an_event_of_several_days_is_counted_at_its_begin_and_on_later_days() -> None:
    first = date(2026, 3, 1)
    found = count_events([(first, None), (first, first + 2 * DAY), (first + DAY, first + DAY)])
    assert found.begins == {first: 2, first + DAY: 1}
    assert found.runs_on == {first + DAY: 1, first + 2 * DAY: 1}


PLANS = st.sampled_from([FREE, STANDARD, PRO, ELITE])
COUNTS = st.lists(st.integers(0, 250), min_size=1, max_size=120)


@settings(max_examples=25, deadline=None)
@given(
    plan=PLANS,
    counts=COUNTS,
    days=st.floats(0.01, 3),
    used=st.floats(0, 1),
    reserve=st.floats(0, 1),
    least=st.sampled_from([15, 120]),
    missing=st.integers(0, 40),
    push_hours=st.sampled_from([None, 1, 6, 30]),
)
def test_use_until_the_reset_never_passes_the_quota_less_the_reserve(
    plan: Plan,
    counts: list[int],
    days: float,
    used: float,
    reserve: float,
    least: int,
    missing: int,
    push_hours: int | None,
) -> None:
    quota = (plan.monthly_quota or 0) // 40
    now = RESET - days * DAY
    begins = {now.date() + at * DAY: count for at, count in enumerate(counts)}
    home = Home(
        replace(
            inputs(plan, least_interval=least * MINUTE, missing=tuple(map(str, range(missing)))),
            now=now,
            month=Month(quota, int(used * quota), RESET, int(reserve * quota), None, 5),
            calendar=Calendar(begins, {}),
            last_pulls={},
            # It falls silent on the way, in long runs.
            push=None if push_hours is None else push(now, silent_after=DAY, hours=push_hours),
        ),
        daily=False,
    )
    before = home.inputs.month.used
    projected = plan_polls(home.inputs).projected_at_reset
    home.run_until(RESET)
    bound = max(before, quota - int(reserve * quota))
    assert home.most_used <= bound
    assert projected is not None and projected <= bound + home.inputs.month.for_daily(now)


@settings(max_examples=25, deadline=None)
@given(
    counts=COUNTS,
    used=st.floats(0, 0.7),
    hours=st.integers(2, 30),
    push_hours=st.sampled_from([0, 6]),
)
def test_no_poll_begins_or_ends_with_a_date_pulled_within_the_least_interval(
    counts: list[int], used: float, hours: int, push_hours: int
) -> None:
    begins = {NOW.date() + at * DAY: count for at, count in enumerate(counts)}
    home = Home(
        inputs(
            ELITE,
            quota=30_000,
            used=int(30_000 * used),
            calendar=Calendar(begins, {}),
            push=push(hours=push_hours) if push_hours else None,
        )
    )
    least = home.inputs.least()
    home.run_until(NOW + timedelta(hours=hours))
    seen: dict[date, datetime] = {}
    for at, pull in home.pulls:
        if isinstance(pull, EventsPull) and pull.window.last is not None:
            first, last = pull.window.first, pull.window.last
            # Dates between the edges may have been pulled just before, if the cut moved, as at
            # midnight. To leave them out would split the window and cost one more page.
            for edge in (first, last):
                # The whole is pulled a little early along with its core.
                assert at - seen.get(edge, NOW - DAY) >= 0.6 * least
            seen |= {first + number * DAY: at for number in range((last - first).days + 1)}


ROWS_A_DATE = 95


@settings(max_examples=25, deadline=None)
@given(falls=st.lists(st.floats(0.2, 1), min_size=len(BANDS), max_size=len(BANDS)))
@example(falls=[1.0] * 4 + [0.25] + [1.0] * (len(BANDS) - 5))
def test_near_dates_are_polled_no_less_than_far_ones_where_rates_fall_and_costs_are_equal(
    falls: list[float],
) -> None:
    edited, rate = [], 0.2
    for band, fall in enumerate(falls):
        rate *= fall if BANDS[band] > 1 else 1
        edited.append(rate)
    found = ChangeRates((0.0,) * len(BANDS), tuple(edited), 1.0)
    # Each date all but fills a page, so that every window costs nearly the same for what it holds:
    # one of many dates fills its pages, and is pulled oftener by the root of what it saves.
    full = calendar(lambda distance: ROWS_A_DATE)
    cheaper = (EVENTS_LIMIT_MAX / ROWS_A_DATE) ** 0.5
    rows = plan_polls(
        inputs(PRO, quota=600_000, calendar=full, rates=found, least_interval=timedelta(0))
    ).schedule
    nearest = min(row.interval for row in rows if covers(row, NOW.date() + 2 * DAY))
    for distance in (20, 60, 110):
        far = min(row.interval for row in rows if covers(row, NOW.date() + distance * DAY))
        assert nearest <= far * cheaper * 1.02


@settings(max_examples=20, deadline=None)
@given(plan=PLANS, counts=COUNTS, used=st.integers(0, 30_000))
def test_the_same_knowledge_gives_the_same_plan(plan: Plan, counts: list[int], used: int) -> None:
    def plan_now() -> PollPlan:
        begins = {NOW.date() + at * DAY: count for at, count in enumerate(counts)}
        return plan_polls(inputs(plan, used=used, calendar=Calendar(begins, {})))

    assert plan_now() == plan_now()
