"""One limiter for every process of a machine: real files, real processes, real kills."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from threading import Thread

import pytest
from pydantic import SecretStr

from resources.errors import Defer, LedgerUnusable, QuotaUnknown, RateHeld
from resources.limits.allowance import Pace, ReportedLimits, Share
from resources.limits.ledger import Ledger, ledger_name
from resources.limits.limiter import SharedLimiter

NOW = datetime(2026, 3, 10, tzinfo=UTC)
RESET = datetime(2026, 4, 1, tzinfo=UTC)
FAR = datetime(2100, 1, 1, tzinfo=UTC)


class Clock:
    """Monotonic and wall time that advance only by a sleep."""

    def __init__(self) -> None:
        self.ns = 10**12
        self.wall = NOW

    def now_ns(self) -> int:
        return self.ns

    def sleep(self, seconds: float) -> None:
        self.ns += int(seconds * 1e9)
        self.wall += timedelta(seconds=seconds)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "limits" / "key.ledger"


def opened(
    path: Path, clock: Clock, share: Share | None = None, boot: bytes = b""
) -> SharedLimiter:
    ledger = Ledger(path, Pace(2.0, 4), now_ns=clock.now_ns, boot=lambda: boot.ljust(16, b"\0"))
    return SharedLimiter(ledger, share, clock=lambda: clock.wall, sleep=clock.sleep)


def with_usage(
    limiter: SharedLimiter, *, allowed: int | None = 1_000, used: int = 0
) -> SharedLimiter:
    limiter.on_usage(ReportedLimits(allowed, used, RESET), sent_before=limiter.sent())
    return limiter


def test_no_request_is_sent_before_the_usage_of_the_month_is_known(
    path: Path, clock: Clock
) -> None:
    limiter = opened(path, clock)
    with pytest.raises(QuotaUnknown):
        limiter.acquire()
    limiter.acquire(for_usage=True)
    with_usage(limiter, used=1).acquire()
    assert limiter.ledger.peek().used == 2


def test_an_unknown_bucket_is_empty(path: Path, clock: Clock) -> None:
    began = clock.ns
    opened(path, clock).acquire(for_usage=True)
    assert clock.ns - began == pytest.approx(0.5e9, rel=0.01)


def test_a_second_home_continues_with_the_allowance_of_the_first(path: Path, clock: Clock) -> None:
    first, second = opened(path, clock), opened(path, clock)
    with_usage(first)
    for limiter in (first, second, first, second):
        limiter.acquire()
    assert second.ledger.peek().used == 4


def test_a_429_in_one_process_makes_the_others_wait(path: Path, clock: Clock) -> None:
    first, second = opened(path, clock), opened(path, clock)
    with_usage(first).acquire()
    began = clock.ns
    first.on_rate_limited(30.0)
    second.acquire()
    assert clock.ns - began >= 30e9
    assert second.ledger.peek().used == 1


def test_a_sleeping_process_checks_again_when_another_gets_a_429(path: Path, clock: Clock) -> None:
    first, second = with_usage(opened(path, clock)), opened(path, clock)
    began = clock.ns

    def interrupted(seconds: float) -> None:
        clock.sleep(seconds)
        if clock.ns - began < 1e9:
            first.on_rate_limited(60.0)

    SharedLimiter(second.ledger, clock=lambda: clock.wall, sleep=interrupted).acquire()
    assert clock.ns - began >= 60e9


def test_with_no_wait_a_long_wait_is_an_error(path: Path, clock: Clock) -> None:
    limiter = with_usage(opened(path, clock))
    limiter.on_rate_limited(100.0)
    began = clock.ns

    def set_no_wait(seconds: float) -> None:
        clock.sleep(seconds)
        limiter.no_wait(on=True)

    limiter = SharedLimiter(limiter.ledger, clock=lambda: clock.wall, sleep=set_no_wait)
    with pytest.raises(RateHeld, match="which is too late") as raised:
        limiter.acquire()
    assert raised.value.attempts == 0
    assert clock.ns - began < 10e9
    assert limiter.ledger.peek().used == 0
    limiter.no_wait(on=False)


@pytest.mark.parametrize("damage", ["unlink", "empty", "cut", "other_bytes", "other_layout"])
def test_a_damaged_ledger_is_an_empty_bucket_and_no_quota(
    damage: str, path: Path, clock: Clock
) -> None:
    with_usage(opened(path, clock)).acquire()
    whole = path.read_bytes()
    if damage == "unlink":
        path.unlink()
    else:
        broken = {
            "empty": b"",
            "cut": whole[:-3],
            "other_bytes": whole[:20] + bytes([whole[20] ^ 1]) + whole[21:],
            "other_layout": b"another program's file" * 20,
        }
        path.write_bytes(broken[damage])
    with pytest.raises(QuotaUnknown):
        opened(path, clock).acquire()


def test_another_boot_is_an_empty_bucket_and_no_quota(path: Path, clock: Clock) -> None:
    with_usage(opened(path, clock, boot=b"before")).acquire()
    clock.ns = 5
    after = opened(path, clock, boot=b"after")
    with pytest.raises(QuotaUnknown):
        after.acquire()
    after.acquire(for_usage=True)
    assert clock.ns <= 6 * 10**8


def test_a_wall_clock_that_jumps_changes_no_rate(path: Path, clock: Clock) -> None:
    limiter = with_usage(opened(path, clock))
    began = clock.ns
    for jump in (timedelta(hours=1), timedelta(hours=-2)):
        clock.wall += jump
        limiter.acquire()
    limiter.acquire()
    assert clock.ns - began == pytest.approx(1.5e9, rel=0.01)


def test_a_used_up_quota_defers_to_its_reset_and_then_requests_the_usage(
    path: Path, clock: Clock
) -> None:
    limiter = with_usage(opened(path, clock), allowed=3, used=2)
    limiter.acquire()
    with pytest.raises(Defer) as refused:
        limiter.acquire()
    assert (refused.value.resume_at, refused.value.attempts) == (RESET, 0)
    clock.wall = RESET
    with pytest.raises(QuotaUnknown):
        limiter.acquire()


def test_a_reserve_limits_only_backfills(path: Path, clock: Clock) -> None:
    backfill = with_usage(opened(path, clock, Share("backfill", floor=20)), allowed=100, used=79)
    backfill.acquire()
    with pytest.raises(Defer, match="reserved for other work"):
        backfill.acquire()
    opened(path, clock).acquire()


def test_a_service_that_reports_a_used_up_quota_stops_every_process(
    path: Path, clock: Clock
) -> None:
    first, second = with_usage(opened(path, clock)), opened(path, clock)
    first.acquire()
    first.on_quota_exhausted()
    with pytest.raises(Defer, match="used up"):
        second.acquire()


def test_a_folder_that_cannot_be_written_is_an_error_with_a_next_step(
    tmp_path: Path, clock: Clock
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(LedgerUnusable, match="ALMANAC_STATE"):
        opened(tmp_path / "file" / "key.ledger", clock).acquire()


def test_the_name_of_a_ledger_reveals_no_key() -> None:
    canary = SecretStr("canary-5f7e")
    name = ledger_name("https://api.example", canary)
    assert "canary" not in name
    assert name == ledger_name("https://api.example", canary)
    assert name != ledger_name("https://api.example", SecretStr("canary-5f7f"))


def test_threads_of_one_limiter_share_its_rate(path: Path) -> None:
    ledger = Ledger(path, Pace(400.0, 1))
    limiter = SharedLimiter(ledger, clock=lambda: datetime.now(UTC))
    limiter.on_usage(ReportedLimits(None, 0, FAR), sent_before=0)
    began = time.monotonic()

    def acquire() -> None:
        for _ in range(20):
            limiter.acquire()

    threads = [Thread(target=acquire) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert limiter.ledger.peek().used == 80
    assert time.monotonic() - began >= 79 / 400


def test_a_forked_child_does_not_share_its_parents_lock(path: Path) -> None:
    limiter = SharedLimiter(Ledger(path, Pace(500.0, 500)), clock=lambda: datetime.now(UTC))
    limiter.on_usage(ReportedLimits(None, 0, FAR), sent_before=0)
    with limiter.ledger.locked():
        pass
    child = os.fork()
    if child == 0:
        for _ in range(50):
            limiter.acquire()
        os._exit(0)
    for _ in range(50):
        limiter.acquire()
    assert os.waitpid(child, 0)[1] == 0
    assert limiter.ledger.peek().used == 100


class TestProcesses:
    RATE, BURST, PROCESSES = 200.0, 10, 4

    @pytest.fixture
    def limiter(self, path: Path) -> Iterator[SharedLimiter]:
        ledger = Ledger(path, Pace(self.RATE, self.BURST))
        yield SharedLimiter(ledger, clock=lambda: datetime.now(UTC))
        ledger.close()

    def start(self, limiter: SharedLimiter, count: int) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [
                *(sys.executable, "-m", "tests.resources.limits.shared_sender"),
                *(str(limiter.ledger.path), str(self.RATE), str(self.BURST), str(count)),
            ],
            stdout=subprocess.PIPE,
            text=True,
        )

    def test_four_processes_keep_the_rate_and_stop_exactly_at_the_reserve(
        self, limiter: SharedLimiter
    ) -> None:
        limiter.on_usage(ReportedLimits(150, 0, FAR), sent_before=0)
        children = [self.start(limiter, 1_000) for _ in range(self.PROCESSES)]
        sent = sorted(int(line) for child in children for line in child.communicate()[0].split())
        assert len(sent) == 150
        for first in range(len(sent) - 60):
            span_s = (sent[first + 60] - sent[first]) / 1e9
            # A process suspended between its reservation and its note is late with one note.
            assert self.BURST + self.PROCESSES + span_s * self.RATE + 1 >= 61

    def test_killed_processes_neither_keep_the_lock_nor_refund_their_tokens(
        self, limiter: SharedLimiter
    ) -> None:
        limiter.on_usage(ReportedLimits(None, 0, FAR), sent_before=0)
        random, counted, began = Random(3), 0, time.monotonic()
        for _ in range(6):
            child = self.start(limiter, 100_000)
            assert child.stdout is not None
            child.stdout.readline()
            time.sleep(random.uniform(0, 0.05))
            child.send_signal(signal.SIGKILL)
            counted += 1 + len(child.communicate()[0].splitlines())
        assert counted <= limiter.ledger.peek().used <= counted + 6
        assert counted <= self.BURST + (time.monotonic() - began) * self.RATE + 1
        limiter.acquire()
