"""The interval in which an event may take place, in plain Python."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

DAY = timedelta(days=1)
EXACT = ("instant", "day")


def midnight(instant: datetime) -> datetime:
    return instant.replace(hour=0, minute=0, second=0, microsecond=0)


def end_after(instant: datetime) -> datetime:
    return instant + (DAY if instant == midnight(instant) else timedelta(seconds=1))


def period(kind: str, inside: datetime) -> tuple[datetime, datetime]:
    """Return the period that an instant lies in; the end is exclusive."""
    months = {"month": 1, "quarter": 3, "year": 12}[kind]
    first = (inside.month - 1) // months * months + 1
    starts = datetime(inside.year, first, 1, tzinfo=UTC)
    after = first - 1 + months
    return starts, datetime(inside.year + after // 12, after % 12 + 1, 1, tzinfo=UTC)


def dating(
    starts: datetime, ends: datetime | None, kind: str | None, *, is_open: bool | None
) -> tuple[str, datetime | None, datetime]:
    """Return the precision of a date, and the first and the last instant; the last is exclusive."""
    end = datetime.min.replace(tzinfo=UTC) if ends is None else end_after(ends)
    if kind in ("month", "quarter", "year"):
        # An estimated date is the end of its period, perhaps an exclusive one.
        inside = starts if is_open is False else starts - timedelta(microseconds=1)
        earliest, latest = period(kind, inside)
        return kind, earliest, max(latest, end)
    if is_open is not False:
        return "deadline", None, max(midnight(starts) + DAY, end)
    latest = max(end_after(starts), end)
    return ("day" if starts == midnight(starts) else "instant"), starts, latest


def days_until(starts: datetime, precision: str, since: datetime) -> float | None:
    if precision == "day":
        return float((starts.date() - since.date()).days)
    return (starts - since) / DAY if precision == "instant" else None


def dated(content: Mapping[str, Any]) -> tuple[str, datetime | None, datetime]:
    """Return the same of the content of an event."""
    dates = (content[name] for name in ("date", "date_end", "date_type"))
    return dating(*dates, is_open=content["is_estimated"])
