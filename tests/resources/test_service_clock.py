"""The clock of a service: which Date is believed, and what is stored."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import pytest

from resources.service_clock import FILE, ServiceClock, service_time
from warehouse.files.storage import Storage

STARTS = datetime(2026, 3, 2, 12, tzinfo=UTC)
HOUR, DAY, MINUTE = timedelta(hours=1), timedelta(days=1), timedelta(minutes=1)


class Machine:
    """A machine whose clock is set, and processes on it with clocks of one service."""

    def __init__(self, root: Path) -> None:
        self.now = STARTS
        self.state = Storage(root)

    def clock(self) -> datetime:
        return self.now

    def process(self) -> ServiceClock:
        service_clock = ServiceClock(self.clock, state=self.state)
        service_clock.keep()
        return service_clock


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def dated(instant: datetime) -> list[str]:
    return [format_datetime(instant, usegmt=True)]


@pytest.mark.parametrize("hours", [-71, -3.5, 0, 3.5, 71])
def test_a_date_within_the_skew_is_believed_and_survives_the_process(
    machine: Machine, hours: float
) -> None:
    record = machine.process().record_response_date(dated(STARTS + hours * HOUR))
    assert (record.instant, record.doubt) == (STARTS + hours * HOUR, "")
    machine.now += HOUR
    assert machine.process().now() == STARTS + hours * HOUR + HOUR
    assert service_time(machine.state.root, machine.clock)() == machine.process().now()


@pytest.mark.parametrize(
    "wrong",
    [
        *("Fri, 31 Dec 9999 23:59:59 GMT", "Tue, 01 Jan 2030 00:00:00 GMT"),
        *("Mon, 01 Jan 0001 00:00:00 GMT", "Thu, 26 Feb 2026 12:00:00 GMT"),
        *("Fri, 31 Dec 9999 23:59:59 -1200", "Mon, 01 Jan 0100 00:00:00 GMT"),
    ],
)
@pytest.mark.parametrize("was_heard", [True, False])
def test_a_date_beyond_the_skew_is_noted_and_the_clock_as_known_is_used(
    machine: Machine, wrong: str, was_heard: bool
) -> None:
    if was_heard:
        machine.process().record_response_date(dated(STARTS + 30 * HOUR))
    for _ in range(3):
        machine.now += HOUR
        record = machine.process().record_response_date([wrong])
        assert record.instant == machine.now + (30 * HOUR if was_heard else 0 * HOUR)
        assert record.doubt


@pytest.mark.parametrize("dates", [[], [""], ["0"], ["-1"], ["yesterday"], ["\x00"]])
def test_without_a_date_the_last_offset_applies(machine: Machine, dates: list[str]) -> None:
    service_clock = machine.process()
    assert service_clock.record_response_date(dates).instant == STARTS
    service_clock.record_response_date(dated(STARTS + HOUR))
    machine.now += MINUTE
    record = service_clock.record_response_date(dates)
    assert record.instant == STARTS + HOUR + MINUTE
    assert "no Date" in record.doubt


def test_two_dates_that_differ_are_both_ignored(machine: Machine) -> None:
    service_clock = machine.process()
    assert service_clock.record_response_date(dated(STARTS + HOUR) + dated(STARTS + 2 * HOUR)).doubt
    assert service_clock.record_response_date(dated(STARTS + HOUR) * 2).instant == STARTS + HOUR
    zoneless = service_clock.record_response_date(["Mon, 02 Mar 2026 13:00:00"])
    assert zoneless.instant == STARTS + HOUR


def test_no_offset_is_stored_before_the_home_is_claimed(machine: Machine) -> None:
    service_clock = ServiceClock(machine.clock, state=machine.state)
    service_clock.record_response_date(dated(STARTS + HOUR))
    assert not machine.state.exists(FILE)
    service_clock.keep()
    assert machine.process().ahead == HOUR


@pytest.mark.parametrize(
    "kept",
    [
        *(b"", b"\x00", b"{", b"[]", b'{"ahead_s": 1e300, "heard_at": "2026-03-02T12:00:00Z"}'),
        *(b'{"ahead_s": 60}', b'{"ahead_s": 60, "heard_at": "2026-03-02T12:00:00"}'),
        b'{"ahead_s": "far", "heard_at": 9}',
    ],
)
def test_an_unreadable_clock_file_counts_as_no_offset(machine: Machine, kept: bytes) -> None:
    machine.state.put(FILE, kept)
    assert machine.process().heard is None
    assert machine.process().record_response_date(dated(STARTS + HOUR)).doubt == ""
    assert machine.process().ahead == HOUR


def test_a_service_whose_time_is_set_on_purpose_may_have_any_time(machine: Machine) -> None:
    service_clock = ServiceClock(machine.clock, state=machine.state, max_skew=None)
    for days in (-2_000, 2_000, 0):
        assert service_clock.record_response_date(dated(STARTS + days * DAY)).doubt == ""
        assert service_clock.now() == STARTS + days * DAY
    assert service_clock.record_response_date(["Fri, 31 Dec 9999 23:59:59 GMT"]).doubt
