"""Each noticeable wait is reported with its reason and its end."""

from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest

from resources.errors import RetryLater
from resources.limits.ledger import Pace, ReportedLimits
from resources.waits import listening
from tests.resources.fakes import FakeTime, answering, mocked
from tests.resources.limits.moved_clock import MARCH, Machine


def test_short_waits_are_reported_once_a_call_has_waited_for_two_seconds() -> None:
    fake = FakeTime(chance=1.0)
    waits: list[str] = []
    client = mocked(answering(httpx.Response(500)), ambient=fake.ambient())
    with listening(waits.append), pytest.raises(RetryLater):
        client.usage()
    assert [wait.split(",")[0] for wait in waits] == [f"Waiting {s} s" for s in (2, 4, 8)]
    assert "answered 500; then attempt 4 of 6" in waits[0]
    assert f"until {fake.clock():%H:%M:%S} UTC" in waits[-1]
    with listening(waits.append), pytest.raises(RetryLater):
        mocked(answering(httpx.Response(500))).usage()
    assert len(waits) == 3


def test_the_wait_for_the_export_interval_is_reported_with_its_end(tmp_path: Path) -> None:
    machine = Machine(MARCH)
    limiter = machine.limiter(tmp_path / "key.sqlite", Pace(5.0, 10), export_interval_s=60.0)
    limiter.on_usage(ReportedLimits(None, 0, datetime(2026, 4, 1, tzinfo=UTC)))
    limiter.acquire()
    limiter.acquire(for_export=True)
    waits: list[str] = []
    with listening(waits.append):
        limiter.acquire(for_export=True)
    (wait,) = waits
    assert wait.startswith("Waiting 61 s, until 00:01:0")
    assert "the interval between two exports" in wait
