"""Instants and durations as people write them, read in one way.

Belongs here: reading an instant, a duration and a zone. Does not: columns of frames (frames).
An instant without a zone is of the zone that the database was opened with, which is UTC unless
another was named; it is never the zone of the machine, which would be look-ahead by some hours.
"""

import re
from contextlib import suppress
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from typing import TYPE_CHECKING, Any, Final, SupportsFloat
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from almanac.errors import InvalidArgument

if TYPE_CHECKING:
    import numpy as np

    Instant = datetime | date | np.datetime64 | str
    Duration = timedelta | np.timedelta64 | str
else:
    Instant = datetime | date | str
    """An instant as a caller may give it; a pandas Timestamp is a datetime. `datetime64`, too."""
    Duration = timedelta | str
    """A duration as a caller may give it: a timedelta, a `timedelta64`, or a text such as `30m`,
    `3d`, `1w 2d`."""

_UNITS: Final = {
    **dict.fromkeys(("s", "sec", "second", "seconds"), timedelta(seconds=1)),
    **dict.fromkeys(("m", "min", "minute", "minutes"), timedelta(minutes=1)),
    **dict.fromkeys(("h", "hour", "hours"), timedelta(hours=1)),
    **dict.fromkeys(("d", "day", "days"), timedelta(days=1)),
    **dict.fromkeys(("w", "week", "weeks"), timedelta(weeks=1)),
}
_PART: Final = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*", re.IGNORECASE)
_US: Final = timedelta(microseconds=1)
_LONGEST: Final = timedelta(days=365_000)
_DAYS: Final = {"today": 0, "yesterday": -1, "tomorrow": 1}


def zone(name: str | tzinfo) -> tzinfo:
    """Return a time zone by its IANA name. A zone of another library is taken by its name.

    Raises:
        InvalidArgument: there is no zone of this name, or it has none.
    """
    given, text = name, name
    if isinstance(name, tzinfo):
        # pytz's zones say `zone`; put into a datetime as they are, they are off by minutes.
        text = getattr(name, "key", None) or getattr(name, "zone", None) or str(name)
    if not isinstance(text, str) or text.upper() == "UTC":
        return UTC
    try:
        return ZoneInfo(text)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise InvalidArgument(
            f"tz={given!r}: no such time zone; use an IANA name such as 'Europe/Berlin'"
        ) from error


def instant(
    given: Instant, name: str, tz: tzinfo = UTC, *, now: datetime | None = None
) -> datetime:
    """Return an instant in UTC. One without a zone is of `tz`; a date is its first instant.

    Of two instants that a change of clocks gives the same name it is the first; one that is skipped
    is the last before.

    With `now`, the words `now`, `today`, `yesterday` and `tomorrow` are understood, too; the days
    are those of `tz`.

    Raises:
        InvalidArgument: it is no instant; the message names the argument.
    """
    moment: Any = plain_time(given)
    if isinstance(given, str):
        word = given.strip().lower()
        if now is not None and word == "now":
            return now.astimezone(UTC)
        if now is not None and word in _DAYS:
            day = now.astimezone(tz).date() + timedelta(days=_DAYS[word])
            return datetime.combine(day, time(), tz).astimezone(UTC)
        try:
            moment = datetime.fromisoformat(given.strip())
        except ValueError as error:
            words = "" if now is None else ", or now, today, yesterday or tomorrow"
            raise InvalidArgument(
                f"{name}={given!r} is no instant; expected ISO 8601, such as 2026-03-02 or "
                f"2026-03-02T12:00:00Z{words}"
            ) from error
    elif isinstance(moment, date) and not isinstance(moment, datetime):
        moment = datetime.combine(moment, time())
    if not isinstance(moment, datetime) or moment != moment:  # NaT is a datetime unequal to itself.
        raise InvalidArgument(
            f"{name}={given!r} is no instant; expected a datetime, a date, a datetime64 or ISO "
            "8601 text"
        )
    if hasattr(moment, "to_pydatetime"):
        moment = moment.to_pydatetime(warn=False)  # Versions are dated in microseconds.
    try:
        return _placed(moment, tz) if moment.tzinfo is None else moment.astimezone(UTC)
    except OverflowError as error:
        raise InvalidArgument(f"{name}={given!r} is not within the years 1 to 9999") from error


def plain_time(given: Any) -> Any:
    """Return Python's form of a `datetime64` or `timedelta64` of NumPy, or of an Arrow scalar.

    Everything else is returned as it is. NaT, a time outside of Python's years, and a length in
    months, years or no unit are None.
    """
    if hasattr(given, "as_py"):
        given = given.as_py()
    kind = getattr(getattr(given, "dtype", None), "kind", "")
    if kind not in ("M", "m") or given.shape:
        return given
    if kind == "m" and given.dtype.str[3:] in ("", "[M]", "[Y]"):
        return None
    # In nanoseconds, and outside of Python's years, NumPy would return a number.
    found = given.astype(f"{kind}8[us]").item()
    return found if isinstance(found, date | timedelta) else None


def refuse_without_zone(given: Any, name: str, tz: tzinfo) -> None:
    """Refuse a value that SQL would read as an instant in UTC, where `tz` is another zone.

    Raises:
        InvalidArgument: it is, or contains, a date, or a datetime or text without a zone.
    """
    if str(tz) == "UTC":
        return
    # A datetime64 of NumPy has no zone, and as a Python value it may be a number.
    is_datetime64 = getattr(getattr(given, "dtype", None), "kind", "") == "M"
    if not is_datetime64 and hasattr(given, "tolist"):
        given = given.tolist()
    if isinstance(given, list | tuple | dict):
        for item in given.values() if isinstance(given, dict) else given:
            refuse_without_zone(item, name, tz)
        return
    moment = given
    if isinstance(given, str):
        with suppress(ValueError):
            moment = datetime.fromisoformat(given.strip())
    # NaT is a datetime unequal to itself.
    is_date = isinstance(moment, date) and moment == moment
    if is_datetime64 or (is_date and getattr(moment, "tzinfo", None) is None):
        raise InvalidArgument(
            f"{name}={given!r} has no zone. SQL reads it as UTC, and not as {tz}, the zone of the "
            "database. Give it one, such as 2026-03-02T12:00:00Z, or write it into the statement."
        )


def _placed(local: datetime, tz: tzinfo) -> datetime:
    """Return the instant, in UTC, at which the clocks of a zone show a time."""
    after = local.replace(tzinfo=tz, fold=0).astimezone(UTC)
    if after.astimezone(tz).replace(tzinfo=None, fold=0) == local.replace(fold=0):
        return after
    # No clock shows it: the change lies between the two readings of it.
    before = local.replace(tzinfo=tz, fold=1).astimezone(UTC)
    offset = before.astimezone(tz).utcoffset()
    while after - before > _US:
        middle = before + (after - before) // 2
        if middle.astimezone(tz).utcoffset() == offset:
            before = middle
        else:
            after = middle
    return before


def duration(given: Duration, name: str) -> timedelta:
    """Return a duration. A text is numbers with units: s, m (minutes), h, d, w.

    Raises:
        InvalidArgument: it is no duration, or negative, or longer than a thousand years.
    """
    try:
        length = plain_time(given)
        found = length if isinstance(length, timedelta) else _parsed(length)
    except OverflowError:
        found = timedelta.max
    if found is not None and found > _LONGEST:
        raise InvalidArgument(f"{name}={given!r} is longer than {_LONGEST.days:,} days")
    if found is None or found < timedelta(0):
        raise InvalidArgument(
            f"{name}={given!r} is no duration; expected a timedelta, or text such as '30m', '12h', "
            "'3d' or '1w 2d'"
        )
    return timedelta(days=found.days, seconds=found.seconds, microseconds=found.microseconds)


def _parsed(text: object) -> timedelta | None:
    if not isinstance(text, str) or not text.strip():
        return None
    total, position = timedelta(0), 0
    while position < len(text):
        part = _PART.match(text, position)
        if part is None or part[2].lower() not in _UNITS:
            return None
        total += float(part[1]) * _UNITS[part[2].lower()]
        position = part.end()
    return total


def number(given: SupportsFloat | None, name: str) -> float | None:
    """Return a number, or None where None was given.

    Raises:
        InvalidArgument: it is no number.
    """
    try:
        found = None if given is None else float(given)
    except (TypeError, ValueError):
        found = float("nan")
    if found is not None and found != found:
        raise InvalidArgument(f"{name}={given!r} is no number")
    return found
