"""A service that answers 429 for a while to several processes with several threads each."""

import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import httpx
import msgspec
import pytest

from catalog.sandbox.control import SeenRequest
from catalog.sandbox.sandbox import Sandbox
from resources.limits.allowance import Pace, ReportedLimits
from resources.limits.ledger import Ledger
from resources.limits.shared_limiter import SharedLimiter
from tests.resources.limits import storming

RATE, BURST, QUOTA = 40.0, 5, 10_000
PROCESSES, THREADS, CALLS = 4, 8, 4
ALL_CALLS = PROCESSES * THREADS * CALLS
WAIT_S = 1.0
"""The wait in both storms: by Retry-After, and without one."""
STORM_S = 2.5
IN_PROGRESS_S = 0.4
"""How long after a 429 a request that was sent before it may still arrive."""
STUCK_S = 10.0


@pytest.fixture(scope="module")
def own_sandbox() -> Iterator[Sandbox]:
    """A sandbox whose clock runs, so it records when requests arrive."""
    with Sandbox(seed=1, export_interval_s=0) as sandbox:
        yield sandbox


@pytest.fixture
def sandbox(own_sandbox: Sandbox) -> Iterator[Sandbox]:
    own_sandbox.forget_requests()
    yield own_sandbox
    own_sandbox.faults.clear()


def wait_for_requests(sandbox: Sandbox, count: int) -> None:
    until = time.monotonic() + 30
    while len(sandbox.requests) < count and time.monotonic() < until:
        time.sleep(0.005)
    assert len(sandbox.requests) >= count


def rounds_of(refused: list[SeenRequest]) -> list[list[float]]:
    """Return when requests were refused, in seconds after the first, split at the long waits."""
    seconds = [(request.at - refused[0].at).total_seconds() for request in refused]
    rounds = [seconds[:1]]
    for before_s, after_s in pairwise(seconds):
        if after_s - before_s > WAIT_S / 2:
            rounds.append([])
        rounds[-1].append(after_s)
    return rounds


@pytest.mark.parametrize("storm", ["storm=1", pytest.param("storm=none", marks=pytest.mark.long)])
def test_during_a_storm_of_429s_every_process_waits_and_afterwards_all_resume(
    sandbox: Sandbox, tmp_path: Path, storm: str
) -> None:
    key = sandbox.new_key("enterprise", monthly_quota=QUOTA, rate_per_s=1e5, burst=10_000)
    path = tmp_path / "key.ledger"
    limiter = SharedLimiter(Ledger(path, Pace(RATE, BURST)), clock=lambda: datetime.now(UTC))
    month_ends = datetime.now(UTC) + timedelta(days=9)
    limiter.on_usage(ReportedLimits(QUOTA, 0, month_ends), sent_before=0)
    order = storming.Order(
        base_url=sandbox.base_url, key=key, ledger=str(path), rate_per_s=RATE, burst=BURST,
        processes=PROCESSES, threads=THREADS, calls=CALLS,
    )  # fmt: skip
    program = (sys.executable, "-m", "tests.resources.limits.storming")
    with subprocess.Popen(
        [*program, msgspec.json.encode(order).decode()], stdout=subprocess.PIPE
    ) as senders:
        wait_for_requests(sandbox, 20)
        sandbox.faults.set(storm)
        time.sleep(STORM_S)
        sandbox.faults.clear()
        over_at = time.time()
        output, _ = senders.communicate()
    reports = msgspec.json.decode(output, type=list[storming.Report])
    refused = sorted(request for request in sandbox.requests if request.status == 429)
    rounds = rounds_of(refused)

    assert [report.errors for report in reports] == [[]] * PROCESSES
    assert sum(report.answered for report in reports) == ALL_CALLS
    # Each wait ends with a burst, and as many may be sent before the next 429: never the rate.
    bound = (1 + int(STORM_S / WAIT_S)) * 2 * BURST
    assert len(refused) <= bound
    assert all(round_[-1] - round_[0] <= IN_PROGRESS_S for round_ in rounds)
    assert all(late[0] - early[-1] >= WAIT_S - 0.05 for early, late in pairwise(rounds))
    last_s = max(report.ended_at for report in reports) - over_at
    assert last_s <= WAIT_S + ALL_CALLS / RATE + STUCK_S
    usage = httpx.get(f"{sandbox.base_url}/v2/usage", headers={"x-api-key": key}).json()
    assert limiter.charged() == usage["used"] - 1 == ALL_CALLS
    sys.stdout.write(
        f"\n{storm}: {len(refused)} requests in {STORM_S} s of storm (bound {bound}), "
        f"rounds of {[len(round_) for round_ in rounds]}; all done {last_s:.2f} s after\n"
    )
