"""The clock of a service, one for each source: the machine's, set by each `Date`; header dates.

    state/service_clock.json   the offset, and answers whose Date was not accepted

The `Date` of every response is recorded here, also of errors, retries and broken bodies. The offset
from the machine's clock is stored in the home, so it survives a broken body and a restart.

A `Date` is accepted if it is within a day of what this clock expects and within `max_skew` of the
machine's clock. If it is not accepted, the response gets the expected time. To correct a wrong
offset, AGREEING responses in a row that agree with each other are accepted, if two processes
received them or they span AGREEING_FOR, and they lie within `max_skew` of the machine's clock.
"""

import os
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from pathlib import Path
from threading import Lock
from typing import Final

import msgspec

from warehouse.files.storage import Storage

USEFUL: Final = frozenset(
    {
        *("date", "etag", "last-modified", "content-type", "content-length", "content-encoding"),
        *("content-disposition", "cache-control", "retry-after", "deprecation", "sunset"),
        *("x-request-id", "server"),
        *("x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"),
    }
)
RETRY_AFTER_CEILING_S: Final = 366 * 86_400.0
"""A longer wait is read as this, so that no arithmetic with times overflows."""
_SINCE = re.compile(r"@[0-9]{1,11}", re.ASCII)
_EPOCH: Final = range(10**9, 10**10)
"""Seconds since 1970, from the year 2001 on."""
_EPOCH_UNITS: Final = (1, 10**3, 10**6, 10**9)
"""Of a second: milliseconds, microseconds, nanoseconds."""
_ISO_DATE = re.compile(r"[0-9]{4}(-[0-9]{2}-[0-9]{2}|[0-9]{4}T)", re.ASCII)
_UTC = re.compile(r" ?(UTC|GMT)")
_SECONDS = re.compile(r"[0-9]{1,300}(\.[0-9]{0,300})?([eE]\+?[0-9]{1,3})?", re.ASCII)


def useful_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers to keep with a body, names in lower case."""
    return {name.lower(): value for name, value in headers.items() if name.lower() in USEFUL}


def read_http_date(text: str | None) -> datetime | None:
    """Return an HTTP date as aware UTC; None if it is absent or not a date."""
    if not text:
        return None
    try:
        read = parsedate_to_datetime(text)
        return read.replace(tzinfo=UTC) if read.tzinfo is None else read.astimezone(UTC)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


def _read_iso(text: str) -> datetime | None:
    """Return an ISO 8601 timestamp as aware UTC; None if it is none."""
    text = text.upper()
    if not _ISO_DATE.match(text):
        return None
    try:
        read = datetime.fromisoformat(_UTC.sub("Z", text))
        return read.replace(tzinfo=UTC) if read.tzinfo is None else read.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def read_deprecation(text: str | None) -> datetime | None:
    """Return the time in `Deprecation` (RFC 9745: @ and seconds; before it, an HTTP date)."""
    if text and _SINCE.fullmatch(text.strip()):
        return datetime.fromtimestamp(int(text.strip()[1:]), UTC)
    return read_http_date(text)


def retry_after_s(text: str | None, *, now: datetime) -> float | None:
    """Return how long the service requests to wait, in seconds (interface section 7).

    Seconds, HTTP dates, ISO 8601 timestamps (in UTC unless they have a zone), and the time since
    1970 in seconds, milli-, micro- or nanoseconds are read, also in quotes. A past time is 0.0;
    absent, negative or none of these is None, since a header that can't be read must not end a
    retry. Never over RETRY_AFTER_CEILING_S. `now` is the service's time.
    """
    if text is None:
        return None
    text = text.strip().strip('"').strip()
    if _SECONDS.fullmatch(text):
        wait_s = _until_epoch_s(float(text), now)
    elif (until := _read_iso(text) or read_http_date(text)) is not None:
        wait_s = (until - now).total_seconds()
    else:
        return None
    return min(max(0.0, wait_s), RETRY_AFTER_CEILING_S)


def _until_epoch_s(number: float, now: datetime) -> float:
    """Return the seconds until a time since 1970 of any unit; other numbers are seconds."""
    for per_second in _EPOCH_UNITS:
        if _EPOCH.start <= number / per_second < _EPOCH.stop:
            return number / per_second - now.timestamp()
    return number


FILE: Final = "service_clock.json"
MAX_SKEW: Final = timedelta(days=3)
MAX_STEP: Final = timedelta(days=1)
"""How far a Date may lie from the time that this clock expects."""
AGREEING: Final = 3
AGREEING_FOR: Final = timedelta(minutes=5)
NOTABLE: Final = timedelta(minutes=2)
"""The offset from which on it is reported to the user."""
_ALIKE: Final = timedelta(minutes=2)
_MOVED: Final = timedelta(seconds=5)
_KEPT_FOR: Final = timedelta(hours=1)
_YEARS: Final = range(1970, 2200)
"""Dates of other years are always wrong, and arithmetic with them may overflow."""
DATELESS: Final = "the service sent no Date: times are by the machine's clock"
DATELESS_NOW: Final = "the service sent no Date: times follow its clock as known before"
_PROCESS: Final = f"{os.getpid()}-{secrets.token_hex(4)}"


@dataclass(frozen=True, slots=True)
class AnswerDate:
    """The time of a response; `doubt` is why it is not its Date, empty if it is."""

    instant: datetime
    doubt: str = ""


class DoubtedDates(msgspec.Struct, frozen=True, kw_only=True):
    """Responses in a row that agree and were not accepted: how far they are ahead, since when."""

    ahead_s: float
    first_at: datetime
    answers: int
    processes: tuple[str, ...]


class SavedClock(msgspec.Struct, frozen=True, kw_only=True):
    """The state in the home: `ahead_s` is the service's time less the machine's, in seconds.

    `heard_at` is by the machine's clock. Both are None until a Date is accepted.
    """

    ahead_s: float | None = None
    heard_at: datetime | None = None
    doubted: DoubtedDates | None = None


class ServiceClock:
    """The time of a service. Thread-safe; `clock` is the machine's, aware UTC.

    `state` is the home's state folder with the offset; None stores nothing. Nothing is written
    before `keep` is called. With `max_skew` None any Date is accepted, for a service whose
    time is set on purpose; with one above MAX_SKEW the time may also jump.
    """

    def __init__(
        self,
        clock: Callable[[], datetime],
        *,
        state: Storage | None = None,
        max_skew: timedelta | None = MAX_SKEW,
        process: str = _PROCESS,
    ) -> None:
        self._clock = clock
        self._state = state
        self._max_skew = max_skew
        self._process = process
        self._may_store = False
        self._lock = Lock()
        self._stored = self._saved = SavedClock() if state is None else read_saved_clock(state)

    @property
    def offset(self) -> timedelta | None:
        """How far the service is ahead of the machine; None until a Date is accepted."""
        seconds = self._saved.ahead_s
        return None if seconds is None else timedelta(seconds=seconds)

    @property
    def heard_at(self) -> datetime | None:
        """When the offset was last recorded, by the machine's clock."""
        return self._saved.heard_at

    @property
    def ahead(self) -> timedelta:
        """The offset; 0 until a Date is accepted."""
        return self.offset or timedelta(0)

    def now(self) -> datetime:
        """Return the service's time; the machine's until a Date is accepted."""
        return (self._clock() + self.ahead).astimezone(UTC)

    def keep(self) -> None:
        """Store the offset in the home, now and from now on."""
        with self._lock:
            self._may_store = True
            self._store()

    def record_response_date(self, dates: Sequence[str]) -> AnswerDate:
        """Record the `Date` headers of one response, and return the time of the response."""
        with self._lock:
            machine = self._clock().astimezone(UTC)
            read = {read_http_date(text) for text in dates}
            date = read.pop() if len(read) == 1 else None
            if date is None:
                doubt = DATELESS if self.offset is None else DATELESS_NOW
                if len(read) > 1:
                    doubt = "the service sent several Dates: all of them are ignored"
                return AnswerDate(self.now(), doubt)
            if date.year not in _YEARS:
                return AnswerDate(self.now(), self._doubt_of(date))
            ahead = date - machine
            if not self._is_plausible(ahead):
                self._reload()
            if self._is_plausible(ahead) or self._is_confirmed(ahead, machine):
                self._saved = SavedClock(ahead_s=ahead.total_seconds(), heard_at=machine)
                self._store()
                return AnswerDate(date)
            self._store()
            return AnswerDate(self.now(), self._doubt_of(date))

    def _is_plausible(self, ahead: timedelta) -> bool:
        if self._max_skew is None:
            return True
        may_jump = self.offset is None or self._max_skew > MAX_SKEW
        is_near = may_jump or abs(ahead - self.ahead) <= MAX_STEP
        return is_near and abs(ahead) <= self._max_skew

    def _is_confirmed(self, ahead: timedelta, machine: datetime) -> bool:
        """Record a response that was not accepted; whether enough responses agree with it."""
        if self._max_skew is None or abs(ahead) > self._max_skew:
            return False
        before = self._saved.doubted
        seconds = ahead.total_seconds()
        if before is None or abs(before.ahead_s - seconds) > _ALIKE.total_seconds():
            before = DoubtedDates(ahead_s=seconds, first_at=machine, answers=0, processes=())
        doubted = msgspec.structs.replace(
            before,
            answers=before.answers + 1,
            processes=tuple(sorted({*before.processes, self._process})),
        )
        self._saved = msgspec.structs.replace(self._saved, doubted=doubted)
        lasting = len(doubted.processes) > 1 or machine - doubted.first_at >= AGREEING_FOR
        return doubted.answers >= AGREEING and lasting

    def _reload(self) -> None:
        """Read what other processes have recorded in the meantime."""
        if self._state is not None:
            found = read_saved_clock(self._state)
            if found != SavedClock():
                self._saved = self._stored = found

    def _store(self) -> None:
        if self._state is None or not self._may_store or not self._has_changed():
            return
        # On a full disk landing fails anyway; the offset is written again with the next answer.
        with suppress(OSError):
            self._state.put(FILE, msgspec.json.encode(self._saved))
            self._stored = self._saved

    def _has_changed(self) -> bool:
        new, old = self._saved, self._stored
        if new.doubted != old.doubted or old.ahead_s is None or old.heard_at is None:
            return new != old
        assert new.ahead_s is not None and new.heard_at is not None
        moved = abs(new.ahead_s - old.ahead_s) > _MOVED.total_seconds()
        return moved or abs(new.heard_at - old.heard_at) > _KEPT_FOR

    def _doubt_of(self, date: datetime) -> str:
        whose = "the machine's clock" if self.offset is None else "its clock as known before"
        return (
            f"the service's Date {date:%Y-%m-%d %H:%M:%S} is ignored: {whose} shows "
            f"{self.now():%Y-%m-%d %H:%M:%S}, which is used"
        )


def service_time(state: Path, clock: Callable[[], datetime]) -> Callable[[], datetime]:
    """Return a function that returns the service's time, by the offset in a home at the call.

    `state` is the home's state folder, `clock` the machine's. No request is made. For any thread.
    """
    storage = Storage(state)
    read: tuple[tuple[int, int] | None, ServiceClock] | None = None

    def now() -> datetime:
        nonlocal read
        # The file is replaced, never changed; a receiver asks for the time thousands of times.
        try:
            stat = storage.path(FILE).stat()
            mark = (stat.st_ino, stat.st_mtime_ns)
        except OSError:
            mark = None
        if (known := read) is None or known[0] != mark:
            read = known = mark, ServiceClock(clock, state=storage)
        return known[1].now()

    return now


def read_saved_clock(state: Storage) -> SavedClock:
    """Return the clock's state in a home; an empty one if it can't be read or is impossible."""
    try:
        found = msgspec.json.decode(state.read(FILE), type=SavedClock)
        if found.ahead_s is not None and abs(found.ahead_s) > len(_YEARS) * 366 * 86_400:
            return SavedClock()
        aware = [found.heard_at, None if found.doubted is None else found.doubted.first_at]
        if any(at is not None and at.tzinfo is None for at in aware):
            return SavedClock()
    except (OSError, ValueError, RecursionError):
        return SavedClock()
    return found if (found.ahead_s is None) == (found.heard_at is None) else SavedClock()
