"""The clock of a service: the machine's, corrected by each `Date`; and the dates in headers.

    state/service_clock.json   how far the service is ahead of the machine

The `Date` of every response is recorded here, also of errors, retries and broken bodies. A `Date`
within `max_skew` of the machine's clock is accepted. Any other `Date` is noted, and the machine's
time plus the last offset is used. The offset is stored in the home, so it survives a restart.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Annotated, Final

import msgspec

from warehouse.files.storage import Storage

RETRY_AFTER_CEILING_S: Final = 366 * 86_400.0
"""A longer wait is read as this, so that no arithmetic with times overflows."""
_ETAG: Final = re.compile(r'(W/)?"[!#-~]{0,200}"', re.ASCII)
_SECONDS: Final = re.compile(r"[0-9]+(\.[0-9]+)?", re.ASCII)
_SINCE: Final = re.compile(r"\s*@([0-9]{1,11})\s*", re.ASCII)


def read_etag(headers: Mapping[str, str]) -> str | None:
    """Return the ETag, None if it is absent or can't be sent back."""
    found = _ETAG.fullmatch(headers.get("etag", ""))
    return found and found[0]


def read_http_date(text: str | None) -> datetime | None:
    """Return an HTTP date as aware UTC; None if it is absent or not a date."""
    return _read(parsedate_to_datetime, text or "")


def read_deprecation(text: str | None) -> datetime | None:
    """Return the time in `Deprecation` (RFC 9745: @ and seconds; before it, an HTTP date)."""
    since = _SINCE.fullmatch(text or "")
    return datetime.fromtimestamp(int(since[1]), UTC) if since else read_http_date(text)


def retry_after_s(text: str | None, *, now: datetime) -> float | None:
    """Return how long the service requests to wait, in seconds (interface section 7).

    The header has seconds or an HTTP date (RFC 9110). A past time is 0.0; absent or neither is
    None, since a header that can't be read must not end a retry. `now` is the service's time.
    """
    text = (text or "").strip()
    if _SECONDS.fullmatch(text):
        return min(float(text), RETRY_AFTER_CEILING_S)
    until = read_http_date(text)
    if until is None:
        return None
    return min(max(0.0, (until - now).total_seconds()), RETRY_AFTER_CEILING_S)


def _read(parse: Callable[[str], datetime], text: str) -> datetime | None:
    try:
        read = parse(text)
        return read.replace(tzinfo=UTC) if read.tzinfo is None else read.astimezone(UTC)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


FILE: Final = "service_clock.json"
MAX_SKEW: Final = timedelta(days=3)
NOTABLE: Final = timedelta(minutes=2)
"""An offset of at least this size is reported to the user."""


@dataclass(frozen=True, slots=True)
class ResponseDate:
    """The time of a response. `doubt` is the reason if it is not the Date header; else empty."""

    instant: datetime
    doubt: str = ""


class SavedClock(msgspec.Struct, frozen=True):
    """The service's time minus the machine's time, and the machine's time when it was measured."""

    ahead_s: Annotated[float, msgspec.Meta(ge=-1e10, le=1e10)]
    heard_at: Annotated[datetime, msgspec.Meta(tz=True)]


class ServiceClock:
    """The time of a service; `clock` is the machine's, aware UTC.

    `state` is the home's state folder with the offset; None stores nothing. Nothing is written
    before `keep` is called. If `max_skew` is None, any Date is accepted.
    """

    def __init__(
        self,
        clock: Callable[[], datetime],
        *,
        state: Storage | None = None,
        max_skew: timedelta | None = MAX_SKEW,
    ) -> None:
        self._clock = clock
        self._state = state
        self._max_skew = timedelta(days=36_500) if max_skew is None else max_skew
        self._may_store = False
        self.heard = self._stored = None if state is None else read_saved_clock(state)

    @property
    def ahead(self) -> timedelta:
        """How far the service's clock is ahead of the machine's; 0 until a Date is accepted."""
        return timedelta(seconds=0.0 if self.heard is None else self.heard.ahead_s)

    def now(self) -> datetime:
        """Return the service's time; before the first accepted Date, the machine's time."""
        return (self._clock() + self.ahead).astimezone(UTC)

    def keep(self) -> None:
        """Store the offset in the home now, and after each later change."""
        self._may_store = True
        self._store()

    def record_response_date(self, dates: Sequence[str]) -> ResponseDate:
        """Record the `Date` headers of one response, and return the time of the response."""
        machine = self._clock().astimezone(UTC)
        read = {read_http_date(text) for text in dates}
        date = read.pop() if len(read) == 1 else None
        if date is None:
            return ResponseDate(self.now(), "the service sent no Date: times are by our clock")
        if abs(date - machine) > self._max_skew:
            doubt = f"the service's Date {date:%Y-%m-%d %H:%M:%S} is ignored: it is too far from "
            return ResponseDate(self.now(), f"{doubt}our clock, {machine:%Y-%m-%d %H:%M:%S}")
        self.heard = SavedClock((date - machine).total_seconds(), machine)
        self._store()
        return ResponseDate(date)

    def _store(self) -> None:
        """Store an offset that moved by seconds, or that was stored an hour ago."""
        new, old = self.heard, self._stored
        if self._state is None or not self._may_store or new is None or new == old:
            return
        is_old = old is None or abs(new.heard_at - old.heard_at) > timedelta(hours=1)
        if is_old or old is None or abs(new.ahead_s - old.ahead_s) > 5:
            # On a full disk landing fails anyway; the next response writes it again.
            with suppress(OSError):
                self._state.put(FILE, msgspec.json.encode(new))
                self._stored = new


def service_time(state: Path, clock: Callable[[], datetime]) -> Callable[[], datetime]:
    """Return a function that returns the service's time, by the offset in a state folder then."""
    return lambda: ServiceClock(clock, state=Storage(state)).now()


def read_saved_clock(state: Storage) -> SavedClock | None:
    """Return the offset in a home; None if there is none that can be read."""
    try:
        return msgspec.json.decode(state.read(FILE), type=SavedClock)
    except (OSError, ValueError, RecursionError):
        return None
