"""The limiter: rate, quota, waits and exports, of several processes and with any clocks."""

from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from catalog.sandbox.sandbox import Sandbox
from catalog.server.middleware import TokenBucket
from resources.errors import Defer, QuotaUnknown
from resources.http.client import CatalogClient
from resources.http.retry import read_quota_headers
from resources.limits.decision import LONGEST_HOLD_S
from resources.limits.ledger import UNLIMITED, Pace, QuotaHeaders, ReportedLimits, next_reset
from resources.limits.limiter import JITTER_S, Limiter, Permit, usable_burst
from tests.resources.limits.moved_clock import RESET, Machine, with_usage

PACE = Pace(5.0, 10)
DAY_S = 86_400.0
LEFT_S = 22 * DAY_S
"""From the machine's time to the reset."""


@pytest.fixture
def machine() -> Machine:
    return Machine()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "key.sqlite"


@pytest.fixture
def limiter(machine: Machine, path: Path) -> Limiter:
    return with_usage(machine.limiter(path, PACE, export_interval_s=60.0))


def slept_s(machine: Machine, act: Callable[[], object]) -> float:
    began = machine.slept_s
    act()
    return machine.slept_s - began


class Key:
    """The service's bucket of a key, in nanoseconds, as the server has it."""

    def __init__(self, rate_per_s: float, burst: int) -> None:
        self.bucket = TokenBucket(-int(-1e9 // rate_per_s), burst)
        self._full_at = 0

    def refuses(self, arrivals_ns: list[int]) -> int:
        refused = 0
        for at_ns in sorted(arrivals_ns):
            full_at, valid_at = self.bucket.take(self._full_at, at_ns)
            if valid_at > at_ns:
                refused += 1
            else:
                self._full_at = full_at
        return refused


@given(
    plan=st.sampled_from([(1.0, 5), (3.0, 15), (10.0, 50), (25.0, 150)]),
    seed=st.integers(0, 2**32),
    pause_s=st.sampled_from([0.0, 0.05, 2.0, 60.0]),
)
@example(plan=(25.0, 150), seed=0, pause_s=0.0)
def test_the_service_refuses_nothing_and_the_rate_is_used(
    plan: tuple[float, int], seed: int, pause_s: float
) -> None:
    """Four processes; each request takes up to JITTER_S to arrive."""
    machine, chance, (rate, burst) = Machine(), Random(seed), plan
    pace, arrivals_ns, paused_s = Pace(rate, usable_burst(rate, burst)), list[int](), 0.0
    with TemporaryDirectory() as folder:
        processes = [machine.limiter(Path(folder) / "key", pace) for _ in range(4)]
        with_usage(processes[0], allowed=None)
        began_ns = machine.ns
        for _ in range(120):
            chance.choice(processes).acquire()
            arrivals_ns.append(machine.ns + int(chance.random() * JITTER_S * 1e9))
            if pause_s and chance.random() < 0.1:
                machine.sleep(pause_s)
                paused_s += pause_s
    assert Key(rate, burst).refuses(arrivals_ns) == 0
    busy_s = (machine.ns - began_ns) / 1e9 - paused_s
    assert busy_s * rate * 0.9 <= 120


@given(seed=st.integers(0, 2**32))
def test_no_clock_that_is_set_makes_a_token_appear(seed: int) -> None:
    """The wall clock jumps, the machine starts again, or a snapshot of it is restored."""
    machine, chance, real_s, sent = Machine(), Random(seed), 0.0, 0
    with TemporaryDirectory() as folder:
        limiter = with_usage(machine.limiter(Path(folder) / "key", PACE), allowed=None)
        for _ in range(60):
            step = chance.randrange(6)
            if step == 0:
                machine.wall += timedelta(days=chance.uniform(-40, 20))
                with limiter.ledger.locked() as state:
                    state.resets_at = int(machine.wall.timestamp()) + 10**6
            elif step == 1:
                machine.boot, machine.ns = str(chance.random()), int(chance.random() * 1e12)
                limiter = machine.limiter(Path(folder) / "key", PACE)
            elif step == 2:
                machine.ns -= int(chance.uniform(2, 500) * 1e9)
                machine.ns = max(0, machine.ns)
            real_s += slept_s(machine, limiter.acquire)
            sent += 1
    # After another boot or snapshot the bucket is empty, so each costs time and gains none.
    assert sent <= PACE.rate_per_s * (real_s + 0.01)


@pytest.mark.parametrize("boot", ["another boot", "one boot"])
def test_after_another_boot_or_an_earlier_time_no_token_is_left(
    machine: Machine, limiter: Limiter, path: Path, boot: str
) -> None:
    machine.ns += 10**12
    assert slept_s(machine, limiter.acquire) == 0
    machine.boot, machine.ns = boot, 10**9
    assert slept_s(machine, machine.limiter(path, PACE).acquire) == pytest.approx(0.2, abs=0.01)


def test_a_stated_pace_is_used_by_every_process_from_the_next_request_on(
    machine: Machine, limiter: Limiter
) -> None:
    stated = Limiter(
        limiter.ledger,
        lambda state: Pace(state.rate_per_s or 5.0, state.burst or 10),
        clock=lambda: machine.wall,
        sleep=machine.sleep,
    )
    machine.ns += 10**12
    for rate_per_s in (0.0, -1.0, float("nan"), None):
        stated.on_stated_pace(rate_per_s, 0)
    assert slept_s(machine, stated.acquire) == 0
    stated.on_stated_pace(2.0, 4)
    assert slept_s(machine, lambda: [stated.acquire() for _ in range(4)]) == 0
    assert slept_s(machine, stated.acquire) == pytest.approx(0.5, abs=0.01)


def test_a_429_makes_every_process_wait_also_those_that_sleep(
    machine: Machine, limiter: Limiter, path: Path
) -> None:
    other = machine.limiter(path, PACE)

    def refused() -> None:
        machine.on_sleep = lambda: None
        limiter.on_rate_limited(4.0)

    machine.on_sleep = refused
    assert slept_s(machine, other.acquire) == pytest.approx(4.0, abs=0.3)


def test_after_a_429_no_saved_tokens_are_left(machine: Machine, limiter: Limiter) -> None:
    machine.ns += 10**12
    limiter.on_rate_limited(None)
    assert slept_s(machine, limiter.acquire) == pytest.approx(1.0)
    assert slept_s(machine, lambda: [limiter.acquire() for _ in range(10)]) >= 1.0


def test_the_longer_of_two_waits_applies_and_none_lasts_longer_than_a_day(
    machine: Machine, limiter: Limiter
) -> None:
    for wait_s in (60.0, 0.0, -5.0):
        limiter.on_rate_limited(wait_s)
    assert slept_s(machine, limiter.acquire) == pytest.approx(60.0, abs=1)
    limiter.on_rate_limited(1e9)
    with pytest.raises(Defer, match="requested a wait") as deferred:
        limiter.acquire()
    assert deferred.value.attempts == 0
    assert deferred.value.resume_at - machine.wall == timedelta(seconds=LONGEST_HOLD_S)
    machine.ns += int(LONGEST_HOLD_S * 1e9)
    limiter.acquire()


def test_nothing_but_the_usage_is_requested_before_it_is_known(
    machine: Machine, path: Path
) -> None:
    limiter = machine.limiter(path, PACE)
    with pytest.raises(QuotaUnknown):
        limiter.acquire()

    def request() -> None:
        limiter.acquire(for_usage=True)
        with_usage(limiter, used=1)

    limiter.request_account = request
    limiter.acquire()
    assert limiter.left() == 998


@pytest.mark.parametrize(
    ("used", "reserve", "machine_quota", "why"),
    [
        (1_000, 0, None, "the monthly quota is used up: 1,000 of 1,000 requests"),
        (800, 200, None, r"reserved for daily pulls \(200 left\)"),
        (0, 0, 3, "this machine's share of the quota is used up: 3 of 3 requests"),
        (0, 1, 4, r"reserved for daily pulls \(1 left\)"),
        (799, 200, None, None),
        (0, 0, 4, None),
    ],
)
def test_a_request_is_refused_with_the_reason_until_the_reset(
    machine: Machine,
    path: Path,
    used: int,
    reserve: int,
    machine_quota: int | None,
    why: str | None,
) -> None:
    limiter = machine.limiter(
        path, PACE, reserve=lambda state: reserve, machine_quota=machine_quota
    )
    with_usage(limiter, used=used)
    with limiter.ledger.locked() as state:
        state.own = 3
    if why is None:
        limiter.acquire()
    else:
        with pytest.raises(Defer, match=why) as deferred:
            limiter.acquire()
        assert deferred.value.resume_at == RESET
        assert limiter.left(reserve=True) == 0
        limiter.acquire(for_usage=True)


def test_a_key_without_a_quota_is_never_refused(machine: Machine, path: Path) -> None:
    limiter = with_usage(machine.limiter(path, PACE), allowed=None, used=10**9)
    limiter.acquire()
    assert limiter.left() is limiter.left(reserve=True) is None


@given(st.integers(0, 2**32))
def test_in_any_order_no_answer_leaves_too_much_and_a_request_alone_settles_the_count(
    seed: int,
) -> None:
    """Requests overtake each other, some are lost, and another machine uses the key too."""
    machine, chance, at_service = Machine(), Random(seed), 0
    waiting: list[Permit] = []
    heard: list[tuple[Permit, int]] = []
    with TemporaryDirectory() as folder:
        limiter = with_usage(machine.limiter(Path(folder) / "key", Pace(1e4, 100)), 10_000)
        for _ in range(60):
            step = chance.choice(("send", "arrive", "answer", "lost", "other"))
            place = chance.randrange(6)
            if step == "send":
                waiting.append(limiter.acquire())
            elif step == "arrive" and place < len(waiting):
                at_service += 1
                heard.append((waiting.pop(place), at_service))
            elif step == "answer" and place < len(heard):
                permit, used = heard.pop(place)
                limiter.on_answer(permit, QuotaHeaders(10_000, 10_000 - used))
                ours = limiter.ledger.peek().used
                assert ours >= used + limiter.ledger.peek().own - permit.own
            elif step == "lost" and place < len(waiting):
                limiter.on_answer(waiting.pop(place), None)
            elif step == "other":
                at_service += 1
        machine.sleep(121)
        at_service += len(waiting)
        permit, at_service = limiter.acquire(), at_service + 1
        limiter.on_answer(permit, QuotaHeaders(10_000, 10_000 - at_service))
        assert limiter.ledger.peek().used == at_service


def test_a_smaller_count_is_not_adopted_while_other_requests_are_on_their_way(
    limiter: Limiter,
) -> None:
    for _ in range(3):
        limiter.acquire()
    limiter.on_answer(limiter.acquire(), QuotaHeaders(1_000, 999))
    assert limiter.ledger.peek().used == 4


def test_a_limit_that_resets_within_the_hour_is_not_of_the_month(limiter: Limiter) -> None:
    limiter.on_answer(limiter.acquire(), QuotaHeaders(25, 24, None, 1.0))
    assert (limiter.left(), limiter.ledger.peek().allowed) == (999, 1_000)


@pytest.mark.parametrize(
    ("reset", "resets_in_s"),
    [("90000", 90_000), ("1772539200", DAY_S), ("2026-03-03T12:00:00Z", DAY_S), ("soon", None)],
)
def test_the_reset_is_a_timestamp_or_seconds(reset: str, resets_in_s: float | None) -> None:
    stated = {"date": "Mon, 02 Mar 2026 12:00:00 GMT", "x-ratelimit-remaining": "7"}
    heard = read_quota_headers({**stated, "x-ratelimit-reset": reset})
    assert heard is not None
    assert (heard.remaining, heard.resets_in_s) == (7, resets_in_s)


@pytest.mark.parametrize("reset", ["0", "2026-03-01T12:00:00Z", "2031-01-01T00:00:00Z"])
def test_headers_with_a_reset_in_the_past_or_years_ahead_say_nothing(reset: str) -> None:
    stated = {"date": "Mon, 02 Mar 2026 12:00:00 GMT", "x-ratelimit-remaining": "7"}
    assert read_quota_headers({**stated, "x-ratelimit-reset": reset}) is None


def test_a_quota_stated_by_a_header_is_adopted(limiter: Limiter) -> None:
    with limiter.ledger.locked() as state:
        state.allowed = UNLIMITED
    limiter.on_answer(limiter.acquire(), QuotaHeaders(40, 30, None, LEFT_S))
    assert limiter.left() == 30


def test_a_refused_request_is_taken_back(limiter: Limiter) -> None:
    limiter.on_answer(limiter.acquire(), QuotaHeaders(1_000, 5, None, LEFT_S), counted=False)
    assert (limiter.left(), limiter.ledger.peek().own) == (1_000, 0)


def test_the_reset_is_learnt_from_whichever_was_heard_last(
    machine: Machine, limiter: Limiter
) -> None:
    limiter.on_answer(limiter.acquire(), QuotaHeaders(1_000, 998, None, LEFT_S + 3 * DAY_S))
    assert limiter.resets_in_s() == pytest.approx(LEFT_S + 3 * DAY_S, abs=2)
    with_usage(limiter, used=5)
    assert limiter.resets_in_s() == pytest.approx(LEFT_S, abs=2)
    assert limiter.ledger.peek().own == 1, "the month is not over"
    limiter.on_quota_exhausted(resets_in_s=DAY_S)
    with pytest.raises(Defer) as deferred:
        limiter.acquire()
    assert (deferred.value.resume_at - machine.wall).total_seconds() == pytest.approx(DAY_S, 2)


def test_a_new_month_begins_with_the_count_of_the_service(
    machine: Machine, limiter: Limiter
) -> None:
    for _ in range(3):
        limiter.acquire()
    machine.wall = RESET + timedelta(seconds=1)
    with pytest.raises(QuotaUnknown):
        limiter.acquire()
    limiter.acquire(for_usage=True)
    limiter.on_usage(ReportedLimits(1_000, 1, RESET + timedelta(days=30)))
    assert (limiter.ledger.peek().used, limiter.ledger.peek().own) == (1, 0)


def test_a_new_month_by_a_header_begins_a_new_count(machine: Machine, limiter: Limiter) -> None:
    for _ in range(3):
        limiter.acquire()
    machine.wall = RESET - timedelta(minutes=1)
    limiter.on_answer(limiter.acquire(), QuotaHeaders(1_000, 999, None, DAY_S * 31))
    assert (limiter.ledger.peek().used, limiter.ledger.peek().own) == (1, 0)


def test_a_late_answer_of_the_month_before_uses_up_nothing_of_the_new_one(
    machine: Machine, limiter: Limiter
) -> None:
    machine.wall = RESET - timedelta(seconds=1)
    late = limiter.acquire()
    machine.wall = RESET + timedelta(seconds=1)
    limiter.acquire(for_usage=True)
    limiter.on_usage(ReportedLimits(1_000, 1, RESET + timedelta(days=30)))
    limiter.on_answer(late, QuotaHeaders(1_000, 0))
    limiter.on_quota_exhausted(5.0, late)
    assert limiter.left() == 999


def test_a_service_without_usage_is_counted_here_and_corrected_by_headers(
    machine: Machine, path: Path
) -> None:
    limiter = machine.limiter(path, PACE)
    limiter.acquire(for_usage=True)
    limiter.count_here(1_000)
    assert (limiter.left(), limiter.ledger.peek().resets_at) == (999, RESET.timestamp())
    limiter.on_answer(limiter.acquire(), QuotaHeaders(1_000, 500))
    assert limiter.left() == 500
    machine.wall = RESET + timedelta(seconds=1)
    limiter.count_here(1_000)
    assert limiter.left() == 1_000


@pytest.mark.parametrize("days", [-40.0, 1 / 24, 40.0])
def test_a_clock_that_is_set_neither_adds_to_the_quota_nor_ends_the_work(
    machine: Machine, path: Path, almanac_sandbox: Sandbox, days: float
) -> None:
    """The service counts 30 requests; its clock and the machine's need not agree."""
    key = almanac_sandbox.new_key("enterprise", monthly_quota=30, rate_per_s=1e5, burst=1_000)
    limiter = machine.limiter(path, Pace(1e5, 1_000))
    machine.wall = almanac_sandbox.clock.now()
    almanac_sandbox.forget_requests()
    with CatalogClient(
        almanac_sandbox.base_url, key, limiter=limiter, timing=machine.timing()
    ) as client:
        limiter.request_account = client.usage
        for _ in range(10):
            client.event("nothing")
        machine.wall += timedelta(days=days)
        with pytest.raises(Defer):
            for _ in range(30):
                client.event("nothing")
    answered = [request for request in almanac_sandbox.requests if request.status != 429]
    assert len(answered) == 30
    assert len(almanac_sandbox.requests) <= 31


@pytest.mark.parametrize("states_usage", [False, True])
def test_a_clock_a_year_ahead_and_back_gives_no_request_of_the_month_back(
    machine: Machine, path: Path, states_usage: bool
) -> None:
    limiter = machine.limiter(path, PACE, machine_quota=40)
    counts: dict[datetime, int] = {}

    def request_account() -> None:
        reset = next_reset(machine.wall)
        if states_usage:
            limiter.on_usage(ReportedLimits(1_000, counts.get(reset, 0), reset))
        else:
            limiter.count_here(1_000)

    for days in (0, 365, -365):
        machine.wall += timedelta(days=days)
        if limiter.left() is None:
            request_account()
        for _ in range(10):
            limiter.acquire()
            counts[next_reset(machine.wall)] = counts.get(next_reset(machine.wall), 0) + 1
    state = limiter.ledger.peek()
    assert (state.used, state.own, limiter.left()) == (20, 20, 20)
    assert state.resets_at == RESET.timestamp()


def test_the_interval_holds_in_every_process_and_holds_back_nothing_else(
    machine: Machine, limiter: Limiter, path: Path
) -> None:
    other = machine.limiter(path, PACE, export_interval_s=60.0)
    limiter.acquire(for_export=True)
    assert slept_s(machine, other.acquire) < 1
    assert slept_s(machine, lambda: other.acquire(for_export=True)) == pytest.approx(61, abs=1)


@pytest.mark.parametrize(("asked_s", "held_s"), [(None, 1.0), (9.0, 9.0), (20.0, 0.0)])
def test_a_429_to_an_export_holds_back_the_rest_only_if_it_may_be_for_the_rate(
    machine: Machine, limiter: Limiter, asked_s: float | None, held_s: float
) -> None:
    began_s = machine.slept_s
    limiter.acquire(for_export=True)
    limiter.on_rate_limited(asked_s, for_export=True)
    assert slept_s(machine, limiter.acquire) == pytest.approx(held_s, abs=0.3)
    limiter.acquire(for_export=True)
    expected_s = 20 if asked_s == 20 else 61
    assert machine.slept_s - began_s == pytest.approx(expected_s, abs=1)
