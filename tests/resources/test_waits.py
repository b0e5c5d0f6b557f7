"""Each noticeable wait is reported with its reason and its end."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest

from resources.errors import RetryLater
from resources.limits.allowance import Pace, ReportedLimits
from resources.limits.ledger import Ledger
from resources.limits.limiter import SharedLimiter
from resources.waits import Wait, listening
from tests.resources.fakes import FakeTime, answering, mocked
from tests.resources.limits.moved_clock import MARCH, Machine


def test_short_waits_are_reported_once_a_call_has_waited_for_two_seconds() -> None:
    fake = FakeTime(chance=1.0)
    waits: list[Wait] = []
    client = mocked(answering(httpx.Response(500)), ambient=fake.ambient())
    with listening(waits.append), pytest.raises(RetryLater):
        client.usage()
    assert [wait.seconds for wait in waits] == [2, 4, 8]
    assert "answered 500; then attempt 4 of 6" in waits[0].why
    assert waits[-1].ends_at == fake.clock()
    with listening(waits.append), pytest.raises(RetryLater):
        mocked(answering(httpx.Response(500))).usage()
    assert len(waits) == 3


def test_the_wait_for_the_export_interval_is_reported_with_its_end(tmp_path: Path) -> None:
    machine = Machine(MARCH)
    ledger = Ledger(tmp_path / "key.ledger", Pace(5.0, 10), now_ns=lambda: machine.ns)
    limiter = SharedLimiter(
        ledger, clock=lambda: machine.wall, sleep=machine.sleep, export_interval_s=60.0
    )
    limiter.on_usage(ReportedLimits(None, 0, datetime(2026, 4, 1, tzinfo=UTC)))
    limiter.acquire()
    limiter.acquire(for_export=True)
    waits: list[Wait] = []
    with listening(waits.append):
        limiter.acquire(for_export=True)
    (wait,) = waits
    assert "the interval between two exports" in wait.why
    assert abs(wait.ends_at - machine.wall) < timedelta(seconds=1)
    assert str(wait).startswith("Waiting 61 s, until 00:01:0")
