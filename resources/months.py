"""Calendar months as instants, aware UTC: they begin on the first at 00:00."""

from datetime import UTC, date, datetime

from catalog.contract.windows import day_start


def month_start(instant: datetime) -> datetime:
    return day_start(instant.astimezone(UTC)).replace(day=1)


def next_month(start: datetime) -> datetime:
    year, month = divmod(start.year * 12 + start.month, 12)
    return start.replace(year=year, month=month + 1)


def months_over(lower: datetime, upper: datetime) -> list[datetime]:
    """Return the beginnings of the months that a range touches, both bounds inclusive."""
    found, start = [], month_start(lower)
    while start <= upper:
        found.append(start)
        start = next_month(start)
    return found


def month_key(start: datetime | date) -> str:
    """Return a month as `YYYY-MM-01`, which is also its partition."""
    return f"{start:%Y-%m}-01"
