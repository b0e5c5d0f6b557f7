"""The query of a list: parameters and dates, and how both are split into smaller parts."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from itertools import product
from typing import Final

from catalog.contract import constants

DateBound = date | datetime | None
"""A bound of a range of dates, inclusive: a day, an aware instant, or none."""
_LAST_SECOND_OF_DAY: Final = time(23, 59, 59, tzinfo=UTC)
_SECOND: Final = timedelta(seconds=1)


def bound_text(bound: date | datetime) -> str:
    """Return a bound as it is sent: `YYYY-MM-DD`, or RFC 3339 in UTC.

    Raises:
        ValueError: an instant without a zone, which could mean any of 26 hours.
    """
    if not isinstance(bound, datetime):
        return bound.isoformat()
    if bound.tzinfo is None:
        raise ValueError(f"{bound} has no zone; give an aware instant, or a date")
    return bound.astimezone(UTC).isoformat(timespec="auto").replace("+00:00", "Z")


@dataclass(frozen=True, slots=True)
class DateRange:
    """A range of event dates, both bounds inclusive; None leaves the bound to the service."""

    lower: DateBound = None
    upper: DateBound = None

    def params(self) -> dict[str, str]:
        bounds = (("from", self.lower), ("to", self.upper))
        return {name: bound_text(bound) for name, bound in bounds if bound is not None}

    def halves(self) -> tuple["DateRange", "DateRange"] | None:
        """Return the two halves, or None if it has an open end or can't be split further."""
        if self.lower is None or self.upper is None:
            return None
        if not isinstance(self.lower, datetime) and not isinstance(self.upper, datetime):
            return self._halves_by_day(self.lower, self.upper)
        lower, upper = _first_second(self.lower), _last_second(self.upper)
        middle = (lower + (upper - lower) / 2).replace(microsecond=0)
        if not lower <= middle < upper:
            return None
        return DateRange(self.lower, middle), DateRange(middle + _SECOND, self.upper)

    def _halves_by_day(self, lower: date, upper: date) -> tuple["DateRange", "DateRange"] | None:
        if lower < upper:
            middle = lower + (upper - lower) // 2
            return DateRange(lower, middle), DateRange(middle + timedelta(days=1), upper)
        if lower == upper:
            return DateRange(_first_second(lower), _last_second(upper)).halves()
        return None


def _first_second(bound: date | datetime) -> datetime:
    return bound if isinstance(bound, datetime) else datetime.combine(bound, time(tzinfo=UTC))


def _last_second(bound: date | datetime) -> datetime:
    return bound if isinstance(bound, datetime) else datetime.combine(bound, _LAST_SECOND_OF_DAY)


@dataclass(frozen=True, slots=True)
class ListPart:
    """One list to page through: its filters, its dates, and where to begin."""

    filters: Mapping[str, str] = field(default_factory=dict)
    span: DateRange = DateRange()
    cursor: str | None = None

    def params(self) -> dict[str, str]:
        return {**self.filters, **self.span.params()}


@dataclass(frozen=True, slots=True)
class Validators:
    """What an earlier answer is recognised by, as the service sent it: its ETag, else its date."""

    etag: str | None = None
    last_modified: str | None = None

    def headers(self) -> dict[str, str]:
        """Return the header by which the service can answer 304."""
        if self.etag is not None:
            return {"If-None-Match": self.etag}
        return {} if self.last_modified is None else {"If-Modified-Since": self.last_modified}


@dataclass(frozen=True, slots=True)
class ListQuery:
    """What a paginator requests. `key_fields` identify a row; `limit` None sends none.

    With `validators` a service may answer 304 to the first page, which raises NotModified.
    """

    path: str
    parts: tuple[ListPart, ...]
    key_fields: tuple[str, ...]
    limit: int | None
    validators: Validators = Validators()


def event_filters(
    coins: Sequence[str] | None = None,
    categories: Sequence[str] | None = None,
    *,
    keyword: str | None = None,
    impact_min: float | None = None,
    sort_by: str | None = None,
) -> Iterator[dict[str, str]]:
    """Yield the filters of one or more lists that together are what is requested.

    Coins and categories are split into batches, as large as the interface allows.

    Raises:
        ValueError: an empty sequence, which would filter out nothing; None means all.
    """
    rest = {
        "keyword": keyword,
        "impactMin": None if impact_min is None else f"{impact_min:g}",
        "sortBy": sort_by,
    }
    coin_batches = _batches("coins", coins, constants.COIN_SLUGS_MAX)
    category_batches = _batches("categories", categories, constants.CATEGORY_IDS_MAX)
    for coin_batch, category_batch in product(coin_batches, category_batches):
        named = {"coins": coin_batch, "categories": category_batch, **rest}
        yield {name: value for name, value in named.items() if value is not None}


def _batches(name: str, values: Sequence[str] | None, size: int) -> list[str | None]:
    if values is None:
        return [None]
    distinct = list(dict.fromkeys(values))
    if isinstance(values, str) or not distinct or not all(distinct):
        raise ValueError(f"{name} must be a sequence of identifiers, or None for all")
    return [",".join(distinct[at : at + size]) for at in range(0, len(distinct), size)]
