"""A service that answers 429 for a while to several processes with several threads each."""

import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import msgspec
import pytest

from catalog.sandbox.sandbox import Sandbox
from resources.limits.allowance import Pace, ReportedLimits
from resources.limits.ledger import Ledger
from resources.limits.limiter import SharedLimiter
from tests.hangs import HANGS_AFTER_S, wait_for
from tests.resources.limits import storming
from tests.resources.limits.storming import Refused

RATE, BURST, QUOTA = 40.0, 5, 10_000
PROCESSES, THREADS, CALLS = 4, 8, 4
ALL_CALLS = PROCESSES * THREADS * CALLS
WAIT_S = 1.0
"""The wait in both storms: by Retry-After, and without one."""
WAIT_NS = int(WAIT_S * 1e9)
STORM_S = 2.5


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


def allowed_during_a_wait(allowed_ns: list[int], refused: list[Refused]) -> list[int]:
    """Return when requests were allowed after a 429 that every process could know of, too early."""
    return [
        at_ns
        for at_ns in allowed_ns
        if any(known.after_ns <= at_ns < known.before_ns + WAIT_NS for known in refused)
    ]


def above_the_rate(tokens_ns: list[int]) -> list[tuple[int, int]]:
    """Return the spans, in ns, that have more tokens than a burst and the rate give."""
    in_order = sorted(tokens_ns)
    return [
        (first_ns, last_ns)
        for start, first_ns in enumerate(in_order)
        for count, last_ns in enumerate(in_order[start:], 1)
        if count > BURST + RATE * (last_ns - first_ns + 1) / 1e9
    ]


def rounds_of(refused: list[Refused]) -> list[int]:
    """Return how many requests were refused between two waits of all processes."""
    rounds = list[int]()
    known_ns = 0
    for request in sorted(refused, key=lambda request: request.allowed_ns):
        if request.allowed_ns >= known_ns:
            rounds.append(0)
            known_ns = min(r.after_ns for r in refused if r.allowed_ns >= request.allowed_ns)
        rounds[-1] += 1
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
        wait_for(lambda: len(sandbox.requests) >= 20)
        began = time.monotonic()
        sandbox.faults.set(storm)
        time.sleep(STORM_S)
        sandbox.faults.clear()
        storm_s = time.monotonic() - began
        output, _ = senders.communicate()
    reports = msgspec.json.decode(output, type=list[storming.Report])
    allowed_ns = [at_ns for report in reports for at_ns in report.allowed_ns]
    tokens_ns = [at_ns for report in reports for at_ns in report.tokens_ns]
    refused = [request for report in reports for request in report.refused]
    rounds = rounds_of(refused)

    assert [report.errors for report in reports] == [[]] * PROCESSES
    assert sum(report.answered for report in reports) == ALL_CALLS
    assert len(refused) == sum(request.status == 429 for request in sandbox.requests) > 0
    assert len(allowed_ns) == ALL_CALLS + len(refused)
    # How many are sent before the first 429 is known depends on the speed of the answers; that none
    # is sent after it, and none above the rate, does not.
    assert allowed_during_a_wait(allowed_ns, refused) == []
    assert above_the_rate(tokens_ns) == []
    assert len(rounds) <= 1 + storm_s / WAIT_S
    usage = httpx.get(
        f"{sandbox.base_url}/v2/usage", headers={"x-api-key": key}, timeout=HANGS_AFTER_S
    ).json()
    assert limiter.ledger.peek().used == usage["used"] - 1 == ALL_CALLS
    sys.stdout.write(
        f"\n{storm}: {len(refused)} refused in {storm_s:.2f} s of storm, in rounds of {rounds}\n"
    )
