"""The clock of a service: which Date is accepted, what is stored, and how it recovers."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import pytest

from resources.service_clock import DATELESS, DATELESS_NOW, FILE, ServiceClock, service_time
from warehouse.files.storage import Storage

STARTS = datetime(2026, 3, 2, 12, tzinfo=UTC)
HOUR, DAY, MINUTE = timedelta(hours=1), timedelta(days=1), timedelta(minutes=1)


class Machine:
    """A machine whose clock is set by hand, and processes on it with clocks of one service."""

    def __init__(self, root: Path) -> None:
        self.now = STARTS
        self.state = Storage(root)
        self._processes = 0

    def clock(self) -> datetime:
        return self.now

    def process(self) -> ServiceClock:
        self._processes += 1
        service_clock = ServiceClock(self.clock, state=self.state, process=str(self._processes))
        service_clock.keep()
        return service_clock


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def dated(instant: datetime) -> list[str]:
    return [format_datetime(instant, usegmt=True)]


@pytest.mark.parametrize("hours", [-48, -3.5, 0, 3.5, 48])
def test_a_date_up_to_days_from_the_machine_is_accepted_and_survives_the_process(
    machine: Machine, hours: float
) -> None:
    record = machine.process().record_response_date(dated(STARTS + hours * HOUR))
    assert (record.instant, record.doubt) == (STARTS + hours * HOUR, "")
    machine.now += HOUR
    assert machine.process().now() == STARTS + hours * HOUR + HOUR
    assert service_time(machine.state.root, machine.clock)() == machine.process().now()


def test_the_service_time_follows_each_offset_that_another_process_stores(machine: Machine) -> None:
    service_now = service_time(machine.state.root, machine.clock)
    assert service_now() == STARTS
    for ahead in (HOUR, 2 * HOUR):
        machine.process().record_response_date(dated(STARTS + ahead))
        assert service_now() == STARTS + ahead
    machine.state.path(FILE).unlink()
    assert service_now() == STARTS


def test_no_offset_is_stored_before_the_home_is_claimed(machine: Machine) -> None:
    service_clock = ServiceClock(machine.clock, state=machine.state)
    service_clock.record_response_date(dated(STARTS + HOUR))
    assert not machine.state.exists(FILE)
    service_clock.keep()
    assert machine.process().offset == HOUR


def test_an_offset_that_hardly_changed_is_not_written(machine: Machine) -> None:
    service_clock = machine.process()
    service_clock.record_response_date(dated(STARTS))
    before = machine.state.path(FILE).stat().st_mtime_ns
    for number in range(20):
        machine.now += MINUTE
        service_clock.record_response_date(dated(machine.now + timedelta(seconds=number % 3)))
    assert machine.state.path(FILE).stat().st_mtime_ns == before


@pytest.mark.parametrize(
    "wrong",
    [
        *("Fri, 31 Dec 9999 23:59:59 GMT", "Tue, 01 Jan 2030 00:00:00 GMT"),
        *("Mon, 01 Jan 0001 00:00:00 GMT", "Thu, 26 Feb 2026 12:00:00 GMT"),
        *("Fri, 31 Dec 9999 23:59:59 -1200", "Mon, 01 Jan 0100 00:00:00 GMT"),
    ],
)
@pytest.mark.parametrize("was_heard", [True, False])
def test_an_answer_with_an_impossible_date_gets_the_expected_time(
    machine: Machine, wrong: str, was_heard: bool
) -> None:
    if was_heard:
        machine.process().record_response_date(dated(STARTS + 30 * HOUR))
    for _ in range(10):
        machine.now += HOUR
        record = machine.process().record_response_date([wrong])
        assert record.instant == machine.now + (30 * HOUR if was_heard else 0 * HOUR)
        assert record.doubt


def test_a_date_over_a_day_from_the_expected_time_is_not_accepted(machine: Machine) -> None:
    service_clock = machine.process()
    service_clock.record_response_date(dated(STARTS))
    assert service_clock.record_response_date(dated(STARTS + DAY)).doubt == ""
    assert "is ignored" in service_clock.record_response_date(dated(STARTS - 2 * MINUTE)).doubt


def test_dates_that_creep_ahead_are_accepted_only_up_to_days_from_the_machine(
    machine: Machine,
) -> None:
    service_clock = machine.process()
    records = [
        service_clock.record_response_date(dated(STARTS + number * 23 * HOUR))
        for number in range(1, 30)
    ]
    assert max(record.instant for record in records) <= STARTS + 3 * DAY


@pytest.mark.parametrize("dates", [[], [""], ["0"], ["-1"], ["yesterday"], ["\x00"]])
def test_without_a_date_the_last_offset_applies(machine: Machine, dates: list[str]) -> None:
    service_clock = machine.process()
    assert service_clock.record_response_date(dates) == type(
        service_clock.record_response_date(dates)
    )(STARTS, DATELESS)
    service_clock.record_response_date(dated(STARTS + HOUR))
    machine.now += MINUTE
    record = service_clock.record_response_date(dates)
    assert (record.instant, record.doubt) == (STARTS + HOUR + MINUTE, DATELESS_NOW)


def test_two_dates_that_differ_are_both_ignored(machine: Machine) -> None:
    service_clock = machine.process()
    assert service_clock.record_response_date(dated(STARTS + HOUR) + dated(STARTS + 2 * HOUR)).doubt
    assert service_clock.record_response_date(dated(STARTS + HOUR) * 2).instant == STARTS + HOUR


def test_a_date_without_a_zone_is_utc(machine: Machine) -> None:
    assert (
        machine.process().record_response_date(["Mon, 02 Mar 2026 13:00:00"]).instant
        == STARTS + HOUR
    )


def test_answers_that_agree_in_two_processes_are_accepted(machine: Machine) -> None:
    """The machine's clock was two days ahead and is corrected: the stored offset is wrong."""
    machine.process().record_response_date(dated(STARTS - 2 * DAY))
    right = STARTS
    first, second = machine.process(), machine.process()
    assert first.record_response_date(dated(right)).doubt
    assert first.record_response_date(dated(right)).doubt
    assert second.record_response_date(dated(right)).doubt == ""
    assert machine.process().now() == right
    # A process that was open all the time reads the stored offset before it doubts.
    assert first.record_response_date(dated(right)).doubt == ""


def test_answers_that_agree_for_minutes_in_one_process_are_accepted(machine: Machine) -> None:
    service_clock = machine.process()
    service_clock.record_response_date(dated(STARTS - 2 * DAY))
    doubts = []
    for _ in range(8):
        doubts.append(bool(service_clock.record_response_date(dated(machine.now)).doubt))
        machine.now += MINUTE
    assert doubts == [True] * 5 + [False] * 3


def test_wrong_answers_between_right_ones_do_not_add_up(machine: Machine) -> None:
    machine.process().record_response_date(dated(STARTS))
    for _ in range(20):
        machine.now += MINUTE
        assert machine.process().record_response_date(dated(machine.now + 2 * DAY)).doubt
        assert not machine.process().record_response_date(dated(machine.now)).doubt


def test_wrong_answers_that_disagree_do_not_add_up(machine: Machine) -> None:
    machine.process().record_response_date(dated(STARTS))
    for number in range(20):
        machine.now += MINUTE
        assert (
            machine.process()
            .record_response_date(dated(machine.now + 2 * DAY + number % 2 * HOUR))
            .doubt
        )


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
    assert machine.process().offset is None
    assert machine.process().now() == STARTS
    assert machine.process().record_response_date(dated(STARTS + HOUR)).doubt == ""
    assert machine.process().offset == HOUR


def test_a_service_whose_time_is_set_on_purpose_may_have_any_time(machine: Machine) -> None:
    service_clock = ServiceClock(machine.clock, state=machine.state, max_skew=3_650 * DAY)
    for days in (-2_000, 2_000, 0, -48):
        assert service_clock.record_response_date(dated(STARTS + days * DAY)).doubt == ""
        assert service_clock.now() == STARTS + days * DAY
    assert service_clock.record_response_date(["Fri, 31 Dec 9999 23:59:59 GMT"]).doubt
