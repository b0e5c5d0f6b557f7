"""A ledger whose processes are killed: never over the limit, never stuck, never damaged."""

import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from resources.limits.allowance import Pace, ReportedLimits
from resources.limits.ledger import Ledger
from resources.limits.limiter import SharedLimiter
from tests.resources.limits import reserving
from tests.resources.limits.moved_clock import Machine, with_usage

FAR = datetime(2100, 1, 1, tzinfo=UTC)
PLENTY = 10**9
RATE, BURST, PROCESSES = 2_000.0, 20, 4


class Killed(BaseException):
    """Ends the process here, without cleaning up."""


class Run:
    """Processes that reserve from one ledger, and the result."""

    def __init__(self, folder: Path, *, allowed: int = PLENTY, **more: Any) -> None:
        order = reserving.Order(
            ledger=str(folder / "key.ledger"),
            notes=str(folder / "notes"),
            **{"rate_per_s": RATE, "burst": BURST, "processes": PROCESSES, **more},
        )
        ledger = Ledger(folder / "key.ledger", Pace(order.rate_per_s, order.burst))
        limiter = SharedLimiter(ledger, clock=lambda: datetime.now(UTC))
        limiter.on_usage(ReportedLimits(allowed, 0, FAR), sent_before=0)
        program = (sys.executable, "-m", "tests.resources.limits.reserving")
        ended = subprocess.run(
            [*program, msgspec.json.encode(order).decode()], stdout=subprocess.PIPE, check=True
        )
        self.order = order
        self.account = msgspec.json.decode(ended.stdout, type=reserving.Account)
        self.granted_ns = reserving.instants(folder / "notes")
        self.charged = limiter.ledger.peek().used
        ledger.close()

    def over(self) -> float:
        """Return by how much the fullest span of time was over usable burst + rate x time.

        A process suspended between its reservation and its note is late, once for each process:
        as many notes may fall together with the tokens that are due.
        """
        least, most = float("inf"), 0.0
        for place, instant_ns in enumerate(self.granted_ns):
            level = place - instant_ns * self.order.rate_per_s / 1e9
            least = min(least, level)
            most = max(most, level - least + 1)
        return most - self.order.burst - self.order.processes

    def say(self) -> None:
        sys.stdout.write(
            f"\n{self.account.kills} kills, {self.account.hits} with the lock held; "
            f"{len(self.granted_ns)} tokens noted, {self.charged} charged; fullest span "
            f"{self.over():+.2f} over its bound\n"
        )


@pytest.mark.parametrize(
    ("kills", "hits"), [(40, 2), pytest.param(1_000, 50, marks=pytest.mark.long)]
)
def test_kills_while_reserving_exceed_no_limit_block_no_process_and_damage_no_record(
    tmp_path: Path, kills: int, hits: int
) -> None:
    run = Run(tmp_path, kills=kills, hits=hits)
    run.say()
    account = run.account
    assert account.kills >= kills
    assert account.hits >= hits
    assert account.ledger_checks == account.kills + 1
    assert run.over() <= 0
    assert account.damaged == 0
    assert account.short == 0
    # The token of the survivor is charged and not noted.
    most = len(run.granted_ns) + account.kills + PROCESSES + 1
    assert len(run.granted_ns) < run.charged <= most


def test_processes_killed_while_waiting_delay_the_others_for_half_a_minute_at_most(
    tmp_path: Path,
) -> None:
    machine, path, pace = Machine(), tmp_path / "key.ledger", Pace(1.0, 4)
    with_usage(machine.limiter(path, pace))

    def die() -> None:
        raise Killed

    machine.on_sleep = die
    for _ in range(200):
        with pytest.raises(Killed):
            machine.limiter(path, pace).acquire()
    machine.on_sleep = lambda: None
    machine.limiter(path, pace).acquire()
    assert machine.slept_s <= 31


def test_eight_processes_stop_exactly_at_a_reserve_of_a_fifth(tmp_path: Path) -> None:
    # So fast that all of them request the last token at once.
    run = Run(tmp_path, allowed=2_500, processes=8, floor=500, rate_per_s=1e6, burst=1_000)
    assert len(run.granted_ns) == run.charged == 2_000
    assert (run.account.damaged, run.account.short) == (0, 0)


def test_kills_before_the_reserve_is_reached_lose_requests_and_gain_none(tmp_path: Path) -> None:
    run = Run(tmp_path, allowed=500, processes=8, floor=100, rate_per_s=5_000.0, kills=60)
    assert 400 - 60 <= len(run.granted_ns) <= run.charged
    assert run.charged == 400
