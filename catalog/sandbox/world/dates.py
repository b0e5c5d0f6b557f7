"""The time units of the synthetic catalog, and the date of an event with its displayed words.

Month 0 is October 2016, the first in which events are announced.
"""

from datetime import UTC, date, datetime, timedelta
from functools import cache
from typing import TypedDict

DAY_S = 86_400
END_OF_DAY_S = DAY_S - 1
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
NARROWER = {
    "year": ("year", "quarter", "month"),
    "quarter": ("quarter", "month"),
    "month": ("month",),
    "date": (),
}
PERIOD_DAYS = {"date": 20, "month": 30, "quarter": 91, "year": 365}

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_ORDINAL = _EPOCH.toordinal()
_SECOND = timedelta(seconds=1)


class Dating(TypedDict):
    """The fields that date an event; `date` and `date_end` in seconds since 1970."""

    date: int
    date_end: int | None
    date_type: str
    is_estimated: bool
    displayed_date: str


def to_seconds(instant: datetime) -> int:
    """Return the whole seconds since 1970, rounded down.

    Raises:
        ValueError: The time has no timezone.
    """
    if instant.tzinfo is None or instant.utcoffset() is None:
        raise ValueError(
            f"{instant!r} has no timezone; the catalog uses UTC only: pass an aware datetime, "
            "for example datetime(2026, 11, 1, tzinfo=UTC)"
        )
    return (instant - _EPOCH) // _SECOND


def day_number(year: int, month: int, day: int = 1) -> int:
    """Return the number of days from 1970-01-01."""
    return date(year, month, day).toordinal() - _EPOCH_ORDINAL


FIRST_EVENT_DAY = day_number(2017, 1)


@cache
def _civil(day: int) -> date:
    return date.fromordinal(day + _EPOCH_ORDINAL)


def find_month(seconds: int) -> int:
    """Return the number of the month a time lies in; negative before October 2016."""
    civil = _civil(seconds // DAY_S)
    return (civil.year - 2016) * 12 + civil.month - 10


def month_start_s(month: int) -> int:
    """Return the first second of a numbered month."""
    year, index = divmod(month + 9, 12)
    return day_number(2016 + year, index + 1) * DAY_S


@cache
def format_day(day: int) -> str:
    """Return a day as shown to people, for example `08 Oct`."""
    civil = _civil(day)
    return f"{civil.day:02d} {MONTHS[civil.month - 1]}"


@cache
def format_month(day: int) -> str:
    """Return the month of a day as shown to people, for example `Sep 2026`."""
    civil = _civil(day)
    return f"{MONTHS[civil.month - 1]} {civil.year}"


def make_exact_dating(at: int, span_days: int = 0) -> Dating:
    """Return the dating of an event at a time, `span_days` long (0: one date)."""
    words, end = format_day(at // DAY_S), None
    if span_days:
        end = at + span_days * DAY_S
        words = f"{words} → {format_day(end // DAY_S)}"
    return Dating(date=at, date_end=end, date_type="date", is_estimated=False, displayed_date=words)


def make_deadline_dating(at: int) -> Dating:
    """Return the dating of an event that is due by a time, for example `By 11 Oct`."""
    words = f"By {format_day(at // DAY_S)}"
    return _estimated(at, "date", words)


def _estimated(at: int, date_type: str, words: str) -> Dating:
    return Dating(
        date=at, date_end=None, date_type=date_type, is_estimated=True, displayed_date=words
    )


@cache
def _period(date_type: str, day: int) -> tuple[int, str]:
    civil = _civil(day)
    if date_type == "month":
        after, words = civil.month + 1, format_month(day)
    elif date_type == "quarter":
        quarter = (civil.month + 2) // 3
        after, words = quarter * 3 + 1, f"Q{quarter} {civil.year}"
    else:
        after, words = 13, str(civil.year)
    return day_number(civil.year + after // 13, (after - 1) % 12 + 1) - 1, words


def make_estimated_dating(date_type: str, day: int, last_day: int) -> Dating:
    """Return an estimated dating whose period holds `day` and ends by `last_day`.

    If a period ends too late, a shorter one is used. The date type `date` gives a deadline.
    """
    for period in NARROWER[date_type]:
        end, words = _period(period, day)
        if end <= last_day:
            return _estimated(end * DAY_S + END_OF_DAY_S, period, words)
    return make_deadline_dating(min(day, last_day) * DAY_S + END_OF_DAY_S)
