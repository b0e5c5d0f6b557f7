"""The query of a list: dates, and the parts into which it splits. Sends no request."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from itertools import product
from typing import Final

from catalog.contract import constants

DateBound = date | datetime | None
"""A bound of a range of dates, inclusive: a day, an aware time, or none."""
_LAST_SECOND_OF_DAY: Final = time(23, 59, 59, tzinfo=UTC)
_SECOND: Final = timedelta(seconds=1)


def bound_text(bound: date | datetime) -> str:
    """Return a bound as it is sent: `YYYY-MM-DD`, or RFC 3339 in UTC.

    Raises:
        ValueError: a time without a zone, which could mean any of 26 hours.
    """
    if not isinstance(bound, datetime):
        return bound.isoformat()
    if bound.tzinfo is None:
        raise ValueError(f"{bound} has no zone; give an aware time, or a date")
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


def event_filters(
    coins: Sequence[str] | None = None,
    categories: Sequence[str] | None = None,
) -> Iterator[dict[str, str]]:
    """Yield the filters of one or more lists that together are what is requested.

    Coins and categories are split into batches, as large as the interface allows.

    Raises:
        ValueError: an empty sequence, which would filter out nothing; None means all.
    """
    for name, values in (("coins", coins), ("categories", categories)):
        if isinstance(values, str) or (values is not None and not (values and all(values))):
            raise ValueError(f"{name} must be a sequence of identifiers, or None for all")
    coin_batches = split_names(coins, constants.COIN_SLUGS_MAX)
    category_batches = split_names(categories, constants.CATEGORY_IDS_MAX)
    for coin_batch, category_batch in product(coin_batches, category_batches):
        named = {"coins": coin_batch, "categories": category_batch}
        yield {name: ",".join(batch) for name, batch in named.items() if batch is not None}


def split_names(values: Sequence[str] | None, size: int) -> list[tuple[str, ...] | None]:
    """Return a filter in batches that one request can take; None means no filter."""
    if values is None:
        return [None]
    distinct = tuple(dict.fromkeys(values))
    return [distinct[at : at + size] for at in range(0, len(distinct), size)]
