"""The arithmetic of a key's limits, against a simple model of a bucket and a counter."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resources.limits.allowance import (
    LONGEST_HOLD_S,
    UNKNOWN,
    UNLIMITED,
    Allowance,
    Pace,
    ReportedLimits,
    Share,
    charge,
    exhausted,
    hold,
    reconcile,
    refusal,
    reserve,
    unknown,
)

SECOND = 1_000_000_000
RESET = 2_000_000
KNOWN = Allowance(0, allowed=100, used=10, resets_at=RESET)
paces = st.builds(
    Pace, rate_per_s=st.sampled_from((0.3, 1.0, 3.0, 10.0, 25.0, 100.0)), burst=st.integers(1, 150)
)
gaps = st.lists(st.integers(0, 3 * SECOND), min_size=1, max_size=200)


def at(wall_s: int) -> datetime:
    return datetime.fromtimestamp(wall_s, UTC)


def sent(state: Allowance, pace: Pace, asked_ns: list[int]) -> list[int]:
    """Return when each request is sent that is requested at these instants."""
    leaving = []
    for now_ns in asked_ns:
        state, reserved = reserve(state, pace, now_ns)
        leaving.append(reserved.at_ns)
    return leaving


def running(gaps: list[int]) -> list[int]:
    instants, now_ns = [], 0
    for gap in gaps:
        now_ns += gap
        instants.append(now_ns)
    return instants


@given(paces, gaps)
def test_no_time_span_has_more_requests_than_burst_and_rate_allow(
    pace: Pace, gaps: list[int]
) -> None:
    leaving = sent(Allowance(0), pace, running(gaps))
    assert leaving == sorted(leaving)
    for first, began in enumerate(leaving):
        for last in range(first, len(leaving)):
            allowed = pace.burst + (leaving[last] - began) * pace.rate_per_s / SECOND
            assert last - first + 1 <= allowed + 1e-6


@given(paces, gaps)
def test_no_token_is_left_unused(pace: Pace, gaps: list[int]) -> None:
    """A simple bucket, in tokens, allows each request at the same time."""
    level, at_ns = float(pace.burst), 0
    for now_ns, leaves_ns in zip(
        running(gaps), sent(Allowance(0), pace, running(gaps)), strict=True
    ):
        level = min(pace.burst, level + max(0, now_ns - at_ns) / pace.bucket.interval)
        at_ns = max(at_ns, now_ns)
        if level < 1 - 1e-9:
            at_ns += round((1 - level) * pace.bucket.interval)
            level = 1.0
        level -= 1
        assert leaves_ns <= at_ns + 2


@given(paces)
def test_an_unknown_state_has_an_empty_bucket_and_no_quota(pace: Pace) -> None:
    state = unknown(pace, 5 * SECOND)
    _, reserved = reserve(state, pace, 5 * SECOND)
    assert reserved.at_ns == 5 * SECOND + pace.bucket.interval
    assert refusal(state, Share(), 0.0) == "unknown"


@given(paces, st.integers(0, 400), st.floats(0, 60))
def test_a_hold_cancels_all_reservations_and_releases_no_burst_of_waiters(
    pace: Pace, waiting: int, wait_s: float
) -> None:
    state = Allowance(0)
    for _ in range(waiting):
        state, reserved = reserve(state, pace, SECOND)
    state = hold(state, pace, SECOND, wait_s)
    reservations = []
    for _ in range(pace.burst + 20):
        state, reserved = reserve(state, pace, SECOND)
        reservations.append(reserved)
    assert {reservation.turn for reservation in reservations} == {1}
    over_ns = SECOND + int(wait_s * SECOND)
    assert min(reservation.at_ns for reservation in reservations) >= over_ns
    refilled = min(pace.burst, (over_ns - SECOND) / pace.bucket.interval)
    assert sum(reservation.at_ns <= over_ns for reservation in reservations) <= refilled + 1


@pytest.mark.parametrize("wait_s", [-5.0, 0.0, 1e9, float("inf")])
def test_an_impossible_wait_neither_shortens_a_hold_nor_lasts_forever(wait_s: float) -> None:
    pace = Pace(1.0, 4)
    state = hold(hold(Allowance(0), pace, 0, 30.0), pace, 0, wait_s)
    assert 30 * SECOND <= state.held_until_ns <= LONGEST_HOLD_S * SECOND


@pytest.mark.parametrize(
    ("state", "share", "wall_s", "why"),
    [
        (KNOWN, Share(), RESET - 1, None),
        (KNOWN, Share(), RESET, "unknown"),
        (replace(KNOWN, allowed=UNKNOWN), Share(), 0, "unknown"),
        (replace(KNOWN, allowed=UNLIMITED), Share(floor=20), 0, None),
        (replace(KNOWN, used=99), Share(), 0, None),
        (replace(KNOWN, used=100), Share(), 0, "spent"),
        (replace(KNOWN, used=79), Share("backfill", floor=20), 0, None),
        (replace(KNOWN, used=80), Share("backfill", floor=20), 0, "kept"),
        (replace(KNOWN, spent=(0, 4, 9)), Share("polls", cap=5), 0, None),
        (replace(KNOWN, spent=(0, 5, 0)), Share("polls", cap=5), 0, "capped"),
    ],
)
def test_a_request_is_refused_with_the_reason(
    state: Allowance, share: Share, wall_s: int, why: str | None
) -> None:
    assert refusal(state, share, wall_s) == why


def test_a_charge_counts_for_the_month_and_its_work_and_can_be_refunded() -> None:
    state = charge(charge(KNOWN, "polls", 3), "polls", -1)
    assert (state.used, state.spent) == (12, (0, 2, 0))


class TestReconcile:
    def test_the_first_account_is_adopted_with_the_requests_sent_since(self) -> None:
        state = reconcile(Allowance(0, used=7), ReportedLimits(100, 40, at(RESET)), charged_since=2)
        assert (state.allowed, state.used, state.resets_at) == (100, 42, RESET)

    def test_a_larger_count_than_ours_is_adopted_at_once(self) -> None:
        state = reconcile(KNOWN, ReportedLimits(100, 60, at(RESET)), charged_since=0)
        assert state.used == 60

    def test_a_smaller_count_than_ours_is_adopted_after_two_accounts(self) -> None:
        once = reconcile(KNOWN, ReportedLimits(100, 7, at(RESET)), charged_since=0)
        twice = reconcile(once, ReportedLimits(100, 8, at(RESET)), charged_since=0)
        assert (once.used, twice.used) == (10, 8)

    def test_requests_in_progress_during_the_count_are_not_refunded(self) -> None:
        """Five requests are in progress at each account, of 10 and then of 30 charged ones."""
        once = reconcile(KNOWN, ReportedLimits(100, 10, at(RESET)), charged_since=0)
        later = charge(once, "daily", 20)
        twice = reconcile(later, ReportedLimits(100, 25, at(RESET)), charged_since=0)
        assert twice.used == 30

    def test_a_new_month_begins_with_the_count_of_the_service(self) -> None:
        state = replace(KNOWN, spent=(5, 5, 0))
        begun = reconcile(state, ReportedLimits(100, 1, at(2 * RESET)), charged_since=0)
        assert (begun.used, begun.spent, begun.resets_at) == (1, (0, 0, 0), 2 * RESET)

    def test_a_key_without_a_quota_is_never_refused(self) -> None:
        state = reconcile(KNOWN, ReportedLimits(None, 9, at(RESET)), charged_since=0)
        assert refusal(charge(state, "daily", 10**9), Share(floor=5), 0.0) is None

    def test_a_service_that_reports_a_used_up_month_is_believed(self) -> None:
        assert refusal(exhausted(KNOWN), Share(), 0.0) == "spent"


def test_an_impossible_pace_is_refused() -> None:
    with pytest.raises(ValueError, match="rate > 0"):
        Pace(0.0, 5)
