"""Reads timestamps, durations and time zones that a user writes.

A timestamp without a zone is in the zone of the database: UTC, unless `open` names another. It is
never in the zone of the machine, which could be look-ahead of some hours. A zone abbreviation is
refused: `CST` is Chicago or China, 14 hours apart. The macro `_almanac.instant` has the same rules.
"""

import re
from contextlib import suppress
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from typing import TYPE_CHECKING, Any, Final, Literal, SupportsFloat, cast
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from almanac.core.errors import InvalidArgument

if TYPE_CHECKING:
    import numpy as np

    TimestampLike = datetime | date | np.datetime64 | str
    Duration = timedelta | np.timedelta64 | str
else:
    TimestampLike = datetime | date | str
    """The accepted types of a timestamp: datetime (as a pandas Timestamp is), date, `datetime64` or
    text."""
    Duration = timedelta | str
    """A duration as a caller may give it: a timedelta, a `timedelta64`, or a text such as `30m`,
    `3d`, `1w 2d`."""

TimeUnit = Literal["s", "ms", "us", "ns"]
"""The unit of a timestamp that is a number since 1970."""
_UNITS: Final = {
    **dict.fromkeys(("s", "sec", "second", "seconds"), timedelta(seconds=1)),
    **dict.fromkeys(("m", "min", "minute", "minutes"), timedelta(minutes=1)),
    **dict.fromkeys(("h", "hour", "hours"), timedelta(hours=1)),
    **dict.fromkeys(("d", "day", "days"), timedelta(days=1)),
    **dict.fromkeys(("w", "week", "weeks"), timedelta(weeks=1)),
}
_PART: Final = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", re.IGNORECASE)
_MONTHS_AND_YEARS: Final = re.compile(
    r"(?i:mos?|mons?|months?|q|qtrs?|quarters?|y|yrs?|years?)|A|[BCS]{0,2}M[ES]|B?[QAY][ES]"
)
_UTC_NAMES: Final = ("UTC", "GMT", "Z")
_IANA: Final = r"[A-Za-z][A-Za-z0-9_+-]*(?:/[A-Za-z0-9_+-]+)+"
_DAY_AND_TIME: Final = (
    r"(?P<day>\d{4}-?(?:\d\d-?\d\d|W\d\d(?:-?\d)?))"
    r"(?:(?:T|\s+)(?P<time>\d\d(?::?\d\d(?::?\d\d(?:[.,]\d+)?)?)?))?"
)
_TEXT: Final = re.compile(
    _DAY_AND_TIME + r"(?:\s*(?P<zone>Z|UTC|GMT|(?P<offset>[+-](?:0\d|1[0-5])(?::?[0-5]\d)?)|"
    f"{_IANA}))?",
    re.IGNORECASE | re.ASCII,
)
_OTHER_ZONE: Final = re.compile(
    _DAY_AND_TIME + r"\s*(?P<rest>[^\d\s].*)", re.IGNORECASE | re.DOTALL
)
_ABBREVIATED: Final = re.compile(
    _DAY_AND_TIME.removesuffix("?") + r"\s*\(?[A-Za-z][A-Za-z0-9_]*([+-][\d:]+)?\)?", re.ASCII
)
ZONES_READ: Final = "Z, UTC, GMT, an offset such as -06:00, or an IANA name such as America/Chicago"
US: Final = timedelta(microseconds=1)
ORIGIN: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST: Final = datetime.min.replace(tzinfo=UTC)
_LONGEST: Final = timedelta(days=365_000)
_LATEST: Final = datetime.fromisoformat("9999-12-30")
_DAYS: Final = {"today": 0, "yesterday": -1, "tomorrow": 1}


def utc_now() -> datetime:
    """Return the current time of this machine, in UTC."""
    return datetime.now(UTC)


def utc_text(instant: datetime) -> str:
    """Return a timestamp as ISO 8601 in UTC with a Z, to the microsecond if it has them."""
    return instant.astimezone(UTC).isoformat().replace("+00:00", "Z")


def read_zone(name: str | tzinfo) -> tzinfo:
    """Return a time zone: UTC, or an IANA name such as `Europe/Berlin`.

    A zone of another library is taken by its name. An abbreviation is refused, even if it is an
    IANA name such as `EST` or `CET`: it may mean another zone to its author.
    """
    given, text = name, name
    if isinstance(name, tzinfo):
        # pytz's zones say `zone`; put into a datetime as they are, they are off by minutes.
        text = getattr(name, "key", None) or getattr(name, "zone", None) or str(name)
    if not isinstance(text, str) or text.strip().upper() in _UTC_NAMES:
        return UTC
    if found := _zone_named(text.strip()):
        return found
    raise InvalidArgument(
        f"tz={given!r}: no such time zone, or an abbreviation, which may mean several; use UTC or "
        "an IANA name with its region, such as 'America/Chicago'"
    )


def _zone_named(text: str) -> tzinfo | None:
    """Return the zone with this IANA name, None if there is none or it has no region."""
    if not re.fullmatch(_IANA, text):
        return None
    try:
        return ZoneInfo(text)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None


def read_timestamp(
    given: TimestampLike, name: str, tz: tzinfo = UTC, *, now: datetime | None = None
) -> datetime:
    """Return a timestamp in UTC. One without a zone is of `tz`; a date is its first timestamp.

    At a change of clocks, a repeated local time is the first of the two, and a skipped one is the
    last before.

    With `now`, the words `now`, `today`, `yesterday` and `tomorrow` are understood, too; the days
    are those of `tz`.
    """
    try:
        moment = _read(given, name, tz, now)
        return _to_utc(moment, tz) if moment.tzinfo is None else moment.astimezone(UTC)
    except InvalidArgument:
        raise
    except (OverflowError, ValueError) as error:
        raise InvalidArgument(f"{name}={given!r} is not within the years 1 to 9999") from error


def read_past_time(
    given: TimestampLike | Duration, name: str, tz: tzinfo = UTC, *, now: datetime
) -> datetime:
    """Return a timestamp. An age, such as `24h`, `7d` or a timedelta, is so long before now."""
    age: Any = to_python_time(given)
    if isinstance(age, str):
        age = age.strip().removeprefix("-").removesuffix(" ago")
    if isinstance(age, str | timedelta):
        with suppress(InvalidArgument):
            return subtract_time(now, read_duration(age, name))
    try:
        return read_timestamp(cast(TimestampLike, given), name, tz, now=now)
    except InvalidArgument as error:
        raise InvalidArgument(f"{error}; an age, such as 7d, is read, too") from error


def subtract_time(moment: datetime, by: timedelta) -> datetime:
    """Return a timestamp before another in UTC, or the first of the calendar."""
    return moment - by if moment - _FIRST > by else _FIRST


def read_calendar_time(
    given: TimestampLike, name: str, tz: tzinfo, *, now: datetime | None = None
) -> datetime:
    """Return a timestamp to compare with dates of the calendar, which have no zone: UTC days.

    One without a zone, such as a date, is what the calendar shows, whatever `tz`. One with a zone
    is the timestamp itself.
    """
    at = read_timestamp(given, name, tz, now=now)
    moment = _read(given, name, tz, now)
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else at


def include_day(
    given: TimestampLike, name: str, tz: tzinfo, *, now: datetime | None = None
) -> TimestampLike:
    """Return the exclusive end for a last bound: after a day without a time comes the next day.

    A bound with a time is returned as it is.
    """
    plain = to_python_time(given)
    is_day = isinstance(plain, date) and not isinstance(plain, datetime)
    is_day |= str(getattr(given, "dtype", "")) == "datetime64[D]"
    if isinstance(given, str):
        found = _TEXT.fullmatch(given.strip())
        is_day = given.strip().lower() in _DAYS or (found is not None and not found["time"])
    # The last day of the calendar has no next one.
    return min(_read(given, name, tz, now), _LATEST) + timedelta(days=1) if is_day else given


def _read(given: TimestampLike, name: str, tz: tzinfo, now: datetime | None) -> datetime:
    """Return a timestamp as it is given: without a zone if it names none."""
    moment: Any = to_python_time(given)
    if isinstance(given, str):
        word = given.strip().lower()
        if now is not None and word == "now":
            return now.astimezone(UTC)
        if now is not None and word in _DAYS:
            return datetime.combine(now.astimezone(tz).date() + timedelta(_DAYS[word]), time())
        try:
            moment, own_zone = _parse_timestamp(given.strip())
        except ValueError as error:
            words = "" if now is None else ", or now, today, yesterday or tomorrow"
            raise InvalidArgument(
                f"{name}={given!r} is not a timestamp; expected ISO 8601, such as 2026-03-02 or "
                f"2026-03-02T12:00:00Z{words}{_reason(given)}"
            ) from error
        return moment if own_zone is None else _to_utc(moment, own_zone)
    if isinstance(moment, date) and not isinstance(moment, datetime):
        moment = datetime.combine(moment, time())
    if not isinstance(moment, datetime) or moment != moment:  # NaT is a datetime unequal to itself.
        raise InvalidArgument(
            f"{name}={given!r} is not a timestamp; expected a datetime, date, datetime64 or ISO "
            "8601 text"
        )
    # Versions are dated in microseconds.
    read: datetime = (
        moment.to_pydatetime(warn=False) if hasattr(moment, "to_pydatetime") else moment
    )
    return read


def to_python_time(given: Any) -> Any:
    """Convert a `datetime64` or `timedelta64` of NumPy, or an Arrow scalar, to a Python value.

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


def to_python_number(given: Any) -> Any:
    """Convert a NumPy scalar that is not a time to a Python value; return other values
    unchanged."""
    kind = getattr(getattr(given, "dtype", None), "kind", "")
    is_scalar = kind in ("b", "i", "u", "f") and getattr(given, "shape", None) == ()
    return given.item() if is_scalar else given


def _parse_timestamp(text: str) -> tuple[datetime, tzinfo | None]:
    """Return the date and time of a text, without a zone, and the zone that it names."""
    found = _TEXT.fullmatch(text)
    # `fromisoformat` takes any character between date and time: 2026-03-02+05:00 would be 05:00.
    if found is None or (found["zone"] and not found["time"]):
        raise ValueError(text)
    local = datetime.fromisoformat(found["day"] + (f"T{found['time']}" if found["time"] else ""))
    if not found["zone"]:
        return local, None
    if found["offset"]:
        hours, minutes = found["offset"][1:3], found["offset"][3:].lstrip(":") or "0"
        offset = timedelta(hours=int(hours), minutes=int(minutes))
        return local, timezone(-offset if found["offset"][0] == "-" else offset)
    if found["zone"].upper() in _UTC_NAMES:
        return local, UTC
    if named := _zone_named(found["zone"]):
        return local, named
    raise ValueError(text)


def _reason(text: str) -> str:
    """Return the advice for a refused text that names a time zone."""
    found = _OTHER_ZONE.fullmatch(text.strip())
    if found is None:
        return ""
    return (
        f". It ends in {found['rest']!r}; a time may end in {ZONES_READ}. An abbreviation such "
        "as CST means several zones"
    )


def refuse_ambiguous_time(given: Any, name: str, tz: tzinfo = UTC) -> None:
    """Refuse a value that SQL would read as another timestamp than its author meant."""
    if isinstance(given, str) and _ABBREVIATED.fullmatch(given.strip()):
        with suppress(InvalidArgument):
            read_timestamp(given, name)
            return
        raise InvalidArgument(f"{name}={given!r}{_reason(given)}")
    # A datetime64 of NumPy has no zone, and as a Python value it may be a number.
    is_datetime64 = getattr(getattr(given, "dtype", None), "kind", "") == "M"
    if not is_datetime64 and hasattr(given, "tolist"):
        given = given.tolist()
    if isinstance(given, list | tuple | dict):
        for item in given.values() if isinstance(given, dict) else given:
            refuse_ambiguous_time(item, name, tz)
        return
    if str(tz) == "UTC":
        return
    moment = given
    if isinstance(given, str):
        with suppress(ValueError):
            local, own_zone = _parse_timestamp(given.strip())
            moment = local.replace(tzinfo=own_zone)
    # NaT is a datetime unequal to itself.
    is_date = isinstance(moment, date) and moment == moment
    if is_datetime64 or (is_date and getattr(moment, "tzinfo", None) is None):
        raise InvalidArgument(
            f"{name}={given!r} has no zone. SQL reads it as UTC, and not as {tz}, the zone of the "
            "database. Give it one, such as 2026-03-02T12:00:00Z, or write it into the statement."
        )


def _to_utc(local: datetime, tz: tzinfo) -> datetime:
    """Return the timestamp, in UTC, at which the clocks of a zone show a time."""
    after = local.replace(tzinfo=tz, fold=0).astimezone(UTC)
    if after.astimezone(tz).replace(tzinfo=None, fold=0) == local.replace(fold=0):
        return after
    # No clock shows it: the change lies between the two readings of it.
    before = local.replace(tzinfo=tz, fold=1).astimezone(UTC)
    offset = before.astimezone(tz).utcoffset()
    while after - before > US:
        middle = before + (after - before) // 2
        if middle.astimezone(tz).utcoffset() == offset:
            before = middle
        else:
            after = middle
    return before


def read_duration(given: Duration, name: str) -> timedelta:
    """Return a duration. A text is numbers with units: s, m (minutes), h, d, w.

    A unit that another tool takes for another length is refused: `M` is a month for pandas.
    """
    plain: Any = to_python_time(given)
    try:
        found = plain if isinstance(plain, timedelta) else _parse_duration(plain, name)
    except OverflowError:
        found = timedelta.max
    if found is not None and found > _LONGEST:
        raise InvalidArgument(f"{name}={given!r} is longer than {_LONGEST.days:,} days")
    if found is None or found < timedelta(0):
        raise InvalidArgument(
            f"{name}={given!r} is not a duration; expected a length of time such as '30m', '12h', "
            "'3d' or '1w 2d'"
        )
    return timedelta(days=found.days, seconds=found.seconds, microseconds=found.microseconds)


def _parse_duration(text: object, name: str) -> timedelta | None:
    if not isinstance(text, str) or not text.strip() or ":" in text:
        return None
    total, position = timedelta(0), 0
    while position < len(text):
        part = _PART.match(text, position)
        if part is None:
            return None
        if part[2] not in _UNITS and (advice := _advice(part[1], part[2])):
            raise InvalidArgument(f"{name}={text!r}: {advice}")
        unit = part[2] if part[2] in _UNITS else part[2].lower()
        if unit not in _UNITS or part[2] == "M":
            return None
        total += float(part[1]) * _UNITS[unit]
        position = part.end()
    return total


def _advice(count: str, unit: str) -> str:
    """Return why a unit is refused and what to write in its place; empty if it is not a unit."""
    if not unit:
        return f"{count} has no unit; write {count}min for minutes, or {count}s, {count}h, {count}d"
    if unit == "ms":
        return "milliseconds are not a unit here; write seconds, such as 0.5s"
    if unit == "M":
        return (
            f"the unit M is a month for some, and a minute for others; write {count}min for "
            "minutes. A month has no fixed length: write days, such as 30d"
        )
    if unit == "T":
        return f"the unit T has several meanings; write {count}min for minutes"
    if _MONTHS_AND_YEARS.fullmatch(unit):
        return f"the unit {unit} has no fixed length; write days, such as 30d, 91d or 365d"
    return ""


def read_number(given: SupportsFloat | None, name: str) -> float | None:
    """Return the value as a number; None stays None."""
    try:
        found = None if given is None else float(given)
    except (TypeError, ValueError):
        found = float("nan")
    if found is not None and found != found:
        raise InvalidArgument(f"{name}={given!r} is not a number")
    return found
