"""Clocks that are moved, and machines that restart: never over the limit, never stuck."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.sandbox.sandbox import Sandbox
from resources.errors import Defer, QuotaUnknown
from resources.http.client import CatalogClient
from resources.limits.allowance import Pace
from resources.limits.limiter import SharedLimiter
from resources.waits import Ambient
from tests.resources.limits.moved_clock import RESET, Machine, with_usage

PACE = Pace(2.0, 4)
HOUR = timedelta(hours=1)
HOUR_S = 3_600.0
REFILL_S = PACE.burst / PACE.rate_per_s
ENDS_AT = RESET - timedelta(minutes=30)
UNEVEN_S = 1.0
"""A monotonic clock that is behind by less is read as that of another processor."""


@pytest.fixture
def machine() -> Machine:
    return Machine(uptime_s=100_000.0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "key.ledger"


@pytest.fixture(scope="module")
def own_sandbox() -> Iterator[Sandbox]:
    with Sandbox(seed=1, now=ENDS_AT, export_interval_s=0) as sandbox:
        yield sandbox


class TestMonotonicClock:
    @pytest.mark.parametrize("back_s", [0.5, 2.0, 60.0, 899.0, HOUR_S, 99_000.0])
    def test_after_it_ran_backwards_a_wait_is_at_most_that_of_an_empty_bucket(
        self, path: Path, machine: Machine, back_s: float
    ) -> None:
        with_usage(machine.limiter(path, PACE)).acquire()
        machine.ns -= int(back_s * 1e9)
        before_s = machine.slept_s
        machine.limiter(path, PACE).acquire(for_usage=True)
        assert machine.slept_s - before_s <= REFILL_S + UNEVEN_S

    def test_after_it_ran_backwards_the_usage_is_requested(
        self, path: Path, machine: Machine
    ) -> None:
        with_usage(machine.limiter(path, PACE)).acquire()
        machine.ns -= int(HOUR_S * 1e9)
        with pytest.raises(QuotaUnknown):
            machine.limiter(path, PACE).acquire()

    def test_a_sleeping_process_whose_token_is_far_in_the_future_checks_again(
        self, path: Path, machine: Machine
    ) -> None:
        def restored_from_a_snapshot() -> None:
            machine.on_sleep = lambda: None
            machine.ns -= int(HOUR_S * 1e9)

        machine.on_sleep = restored_from_a_snapshot
        machine.limiter(path, PACE).acquire(for_usage=True)
        assert machine.slept_s <= REFILL_S + UNEVEN_S

    def test_a_hold_of_another_time_is_ignored(self, path: Path, machine: Machine) -> None:
        with_usage(machine.limiter(path, PACE)).on_rate_limited(1e9)
        machine.ns -= int(HOUR_S * 1e9)
        machine.limiter(path, PACE).acquire(for_usage=True)
        assert machine.slept_s <= REFILL_S + UNEVEN_S

    def test_without_a_boot_id_a_restarted_machine_is_not_stuck(
        self, path: Path, machine: Machine
    ) -> None:
        machine.boot = bytes(16)
        with_usage(machine.limiter(path, PACE)).acquire()
        machine.ns, before_s = 20 * 10**9, machine.slept_s
        machine.limiter(path, PACE).acquire(for_usage=True)
        assert machine.slept_s - before_s <= REFILL_S

    def test_after_it_ran_ahead_only_one_burst_is_sent(self, path: Path, machine: Machine) -> None:
        limiter = with_usage(machine.limiter(path, PACE))
        machine.ns += int(HOUR_S * 1e9)
        for _ in range(PACE.burst):
            limiter.acquire()
        assert machine.slept_s == 0
        limiter.acquire()
        assert machine.slept_s == pytest.approx(1 / PACE.rate_per_s, abs=0.001)

    @given(
        st.lists(
            st.tuples(st.floats(0, 3), st.sampled_from((0.0, 0.0, 0.3, 0.9, 1.5, 5.0, 700.0))),
            max_size=40,
        )
    )
    def test_a_clock_that_often_runs_backwards_does_not_exceed_the_limit_in_real_time(
        self, steps: list[tuple[float, float]]
    ) -> None:
        machine, sent_s, back_s = Machine(uptime_s=100_000.0), [], 0.0
        with TemporaryDirectory() as folder:
            limiter = with_usage(machine.limiter(Path(folder) / "key.ledger", PACE))
            for passes_s, jumps_s in steps:
                machine.ns += int((passes_s - jumps_s) * 1e9)
                back_s += jumps_s
                limiter.acquire(for_usage=True)
                sent_s.append(machine.ns / 1e9 + back_s)
            limiter.ledger.close()
        for place, began_s in enumerate(sent_s):
            for more, ended_s in enumerate(sent_s[place:]):
                assert more + 1 <= PACE.burst + (ended_s - began_s) * PACE.rate_per_s + 1e-3
        assert machine.slept_s <= len(steps) * (REFILL_S + UNEVEN_S)


class TestAnotherBoot:
    def test_a_sleeping_process_checks_again_and_requests_the_usage(
        self, path: Path, machine: Machine
    ) -> None:
        limiter = with_usage(machine.limiter(path, PACE))

        def started_anew() -> None:
            machine.on_sleep = lambda: None
            machine.boot, machine.ns = b"another boot".ljust(16, b"\0"), 10**9
            machine.limiter(path, PACE).acquire(for_usage=True)

        machine.on_sleep = started_anew
        with pytest.raises(QuotaUnknown):
            limiter.acquire()

    def test_a_sleeping_usage_request_takes_a_token_of_the_new_boot(
        self, path: Path, machine: Machine
    ) -> None:
        limiter = machine.limiter(path, PACE)
        grants_ns: list[int] = []

        def started_anew() -> None:
            machine.on_sleep = lambda: None
            machine.boot, machine.ns = b"another boot".ljust(16, b"\0"), 10**9
            machine.limiter(path, PACE).acquire(for_usage=True)
            grants_ns.append(machine.ns)

        machine.on_sleep = started_anew
        limiter.acquire(for_usage=True)
        # Both had an empty bucket before them.
        assert machine.ns - grants_ns[0] >= 1e9 / PACE.rate_per_s
        assert machine.ns <= 10e9

    @pytest.mark.parametrize("uptime_s", [20.0, 200_000.0])
    def test_the_bucket_is_empty_and_no_quota_is_known_until_the_usage_is_received(
        self, path: Path, machine: Machine, uptime_s: float
    ) -> None:
        with_usage(machine.limiter(path, PACE), used=40).acquire()
        machine.boot, machine.ns = b"another boot".ljust(16, b"\0"), int(uptime_s * 1e9)
        limiter, before_s = machine.limiter(path, PACE), machine.slept_s
        with pytest.raises(QuotaUnknown):
            limiter.acquire()
        limiter.acquire(for_usage=True)
        with_usage(limiter, used=42)
        for _ in range(2):
            limiter.acquire()
        assert limiter.ledger.peek().used == 44
        assert machine.slept_s - before_s >= 3 / PACE.rate_per_s


class TestWallClock:
    """The machine's clock is moved while the month of a real server ends."""

    QUOTA = 30

    @pytest.fixture
    def sandbox(self, own_sandbox: Sandbox) -> Sandbox:
        own_sandbox.set_clock(ENDS_AT)
        own_sandbox.forget_requests()
        return own_sandbox

    @pytest.fixture
    def connect(
        self, sandbox: Sandbox, path: Path, machine: Machine
    ) -> Iterator[Callable[..., CatalogClient]]:
        """Makes clients of one key for machines whose clocks are ahead of the service's."""
        key = sandbox.new_key("enterprise", monthly_quota=self.QUOTA, rate_per_s=1e5, burst=1_000)
        with ExitStack() as stack:

            def make(ahead: Callable[[], timedelta]) -> CatalogClient:
                def clock() -> datetime:
                    return sandbox.clock.now() + ahead()

                ledger = machine.limiter(path, Pace(1e5, 1_000)).ledger
                limiter = SharedLimiter(ledger, clock=clock, sleep=machine.sleep)
                ambient = Ambient(clock=clock, sleep=machine.sleep)
                client = CatalogClient(sandbox.base_url, key, limiter=limiter, ambient=ambient)
                limiter.request_account = client.usage
                return stack.enter_context(client)

            yield make

    @pytest.mark.parametrize("shift", [HOUR, -HOUR])
    def test_a_clock_moved_by_an_hour_still_uses_the_quota_exactly(
        self,
        sandbox: Sandbox,
        connect: Callable[..., CatalogClient],
        shift: timedelta,
    ) -> None:
        ahead = [timedelta(0)]
        client = connect(lambda: ahead[0])
        for _ in range(10):
            client.event("nothing")
        ahead[0] = shift
        with pytest.raises(Defer) as refused:
            for _ in range(self.QUOTA):
                client.event("nothing")
        assert {request.status for request in sandbox.requests} == {200, 404}
        assert len(sandbox.requests) == self.QUOTA
        late = refused.value.resume_at - shift - RESET
        assert timedelta(0) <= late <= (HOUR if shift < timedelta(0) else timedelta(0))

    @pytest.mark.parametrize("shift", [HOUR, -HOUR])
    def test_after_the_reset_work_resumes_even_with_a_wrong_clock(
        self,
        sandbox: Sandbox,
        connect: Callable[..., CatalogClient],
        shift: timedelta,
    ) -> None:
        ahead = [timedelta(0)]
        client = connect(lambda: ahead[0])
        client.event("nothing")
        ahead[0] = shift
        with pytest.raises(Defer):
            for _ in range(self.QUOTA):
                client.event("nothing")
        sandbox.set_clock(RESET + timedelta(seconds=1) + max(timedelta(0), -shift))
        sandbox.forget_requests()
        for _ in range(5):
            client.event("nothing")
        # The usage of the month is requested once.
        assert len(sandbox.requests) == 6
        assert {request.status for request in sandbox.requests} == {200, 404}
