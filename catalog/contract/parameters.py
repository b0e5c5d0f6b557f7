"""The list parameters with their types and bounds (interface section 4, decisions).

The query string is read strictly: a known parameter of the wrong form is an error, an unknown
parameter is ignored.
"""

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from typing import Literal, TypeVar
from urllib.parse import unquote_plus

from catalog.contract import constants
from catalog.contract.errors import InvalidParameter
from catalog.contract.plans import day_end

SortBy = Literal["date_asc", "impact_desc"]
SORT_BY: tuple[SortBy, ...] = ("date_asc", "impact_desc")
SortT = TypeVar("SortT", bound=str)

_INTEGER = re.compile(r"-?[0-9]{1,18}", re.ASCII)
_NUMBER = re.compile(r"-?[0-9]{1,18}(\.[0-9]{1,340})?([eE][+-]?[0-9]{1,3})?", re.ASCII)
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)
_INSTANT = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|[+-]00:00)", re.ASCII
)


@dataclass(frozen=True, slots=True)
class PageRequest:
    """The parameters of every paged list."""

    limit: int
    cursor: str | None


@dataclass(frozen=True, slots=True)
class CoinsRequest(PageRequest):
    q: str | None
    tracked: bool | None


@dataclass(frozen=True, slots=True)
class CancellationsRequest(PageRequest):
    since: datetime | None


@dataclass(frozen=True, slots=True)
class EventsRequest(PageRequest):
    """The events list and, with `limit` and `cursor` ignored, the export."""

    coins: tuple[str, ...] | None
    categories: tuple[str, ...] | None
    lower: datetime | None
    upper: datetime | None
    keyword: str | None
    impact_min: float | None
    sort_by: SortBy


class QueryReader:
    """Reads one query string; each method raises InvalidParameter naming the parameter."""

    def __init__(self, query: str, known: frozenset[str]) -> None:
        self._values: dict[str, str] = {}
        # As parse_qsl reads it, in a third of the time.
        for pair in query.split("&"):
            name, _, value = pair.partition("=")
            if "%" in pair or "+" in pair:
                name, value = unquote_plus(name), unquote_plus(value)
            if name not in known:
                continue
            if name in self._values:
                raise InvalidParameter(f"{name} was given more than once; give it once")
            self._values[name] = value

    def text(self, name: str, *, length_max: int) -> str | None:
        value = self._values.get(name)
        if value is not None and not 1 <= len(value) <= length_max:
            raise InvalidParameter(f"{name} must have 1 to {length_max} characters")
        return value

    def limit(self, *, maximum: int) -> int:
        value = self._values.get("limit")
        if value is None:
            return constants.LIMIT_DEFAULT
        if not _INTEGER.fullmatch(value) or not 1 <= int(value) <= maximum:
            raise InvalidParameter(f"limit must be an integer from 1 to {maximum}")
        return int(value)

    def boolean(self, name: str) -> bool | None:
        value = self._values.get(name)
        if value is None:
            return None
        if value not in ("true", "false"):
            raise InvalidParameter(f"{name} must be true or false")
        return value == "true"

    def number(self, name: str, *, minimum: float, maximum: float) -> float | None:
        value = self._values.get(name)
        if value is None:
            return None
        if not _NUMBER.fullmatch(value) or not minimum <= float(value) <= maximum:
            raise InvalidParameter(f"{name} must be a number from {minimum:g} to {maximum:g}")
        return float(value)

    def names(self, name: str, *, count_max: int) -> tuple[str, ...] | None:
        """Read comma-separated identifiers; an unknown one is allowed, an empty one is an error."""
        value = self._values.get(name)
        if value is None:
            return None
        names = tuple(dict.fromkeys(value.split(",")))
        if "" in names or value.count(",") >= count_max:
            raise InvalidParameter(f"{name} must be 1 to {count_max} values, comma-separated")
        return names

    def choice(self, name: str, choices: tuple[SortT, ...]) -> SortT:
        value = self._values.get(name, choices[0])
        for choice in choices:
            if value == choice:
                return choice
        raise InvalidParameter(f"{name} must be one of {', '.join(choices)}")

    def instant(self, name: str, *, end_of_day: bool = False) -> datetime | None:
        """Read `YYYY-MM-DD` or an RFC 3339 instant in UTC; `end_of_day` is for a date-only `to`."""
        value = self._values.get(name)
        if value is None:
            return None
        try:
            if _DATE.fullmatch(value):
                day = date.fromisoformat(value)
                return day_end(day) if end_of_day else datetime.combine(day, time(tzinfo=UTC))
            if _INSTANT.fullmatch(value):
                return datetime.fromisoformat(value.replace("-00:00", "+00:00")).astimezone(UTC)
        except ValueError:
            pass  # not a day of the calendar: the same error as for any wrong form
        raise InvalidParameter(f"{name} must be YYYY-MM-DD or an RFC 3339 instant in UTC")


_PAGE = frozenset({"limit", "cursor"})
COINS_PARAMETERS = _PAGE | {"q", "tracked"}
CANCELLATIONS_PARAMETERS = _PAGE | {"since"}
EVENTS_PARAMETERS = _PAGE | {
    *("coins", "categories", "from", "to", "keyword", "impactMin", "sortBy"),
}
EXPORT_PARAMETERS = EVENTS_PARAMETERS - _PAGE


def read_coins_request(query: str) -> CoinsRequest:
    """Read GET /v2/coins (interface 4.1)."""
    reader = QueryReader(query, COINS_PARAMETERS)
    return CoinsRequest(
        limit=reader.limit(maximum=constants.COINS_LIMIT_MAX),
        cursor=reader.text("cursor", length_max=constants.CURSOR_LENGTH_MAX),
        q=reader.text("q", length_max=constants.KEYWORD_LENGTH_MAX),
        tracked=reader.boolean("tracked"),
    )


def read_cancellations_request(query: str) -> CancellationsRequest:
    """Read GET /v2/events/cancellations (interface 4.5)."""
    reader = QueryReader(query, CANCELLATIONS_PARAMETERS)
    return CancellationsRequest(
        limit=reader.limit(maximum=constants.EVENTS_LIMIT_MAX),
        cursor=reader.text("cursor", length_max=constants.CURSOR_LENGTH_MAX),
        since=reader.instant("since"),
    )


def read_events_request(query: str) -> EventsRequest:
    """Read GET /v2/events (interface 4.3)."""
    return _read_events(QueryReader(query, EVENTS_PARAMETERS))


def read_export_request(query: str) -> EventsRequest:
    """Read the export: the filters of the events list; pagination is ignored (interface 4.8)."""
    return _read_events(QueryReader(query, EXPORT_PARAMETERS))


def _read_events(reader: QueryReader) -> EventsRequest:
    lower = reader.instant("from")
    upper = reader.instant("to", end_of_day=True)
    if lower is not None and upper is not None and lower > upper:
        raise InvalidParameter("from must not be after to")
    return EventsRequest(
        limit=reader.limit(maximum=constants.EVENTS_LIMIT_MAX),
        cursor=reader.text("cursor", length_max=constants.CURSOR_LENGTH_MAX),
        coins=reader.names("coins", count_max=constants.COIN_SLUGS_MAX),
        categories=reader.names("categories", count_max=constants.CATEGORY_IDS_MAX),
        lower=lower,
        upper=upper,
        keyword=reader.text("keyword", length_max=constants.KEYWORD_LENGTH_MAX),
        impact_min=reader.number(
            "impactMin", minimum=constants.IMPACT_MIN, maximum=constants.IMPACT_MAX
        ),
        sort_by=reader.choice("sortBy", SORT_BY),
    )
