"""The scope of a pull: dates and filters, the requests for it, and their query.

A scope alone says what is requested, so that another process can resume a pull with the same
requests: whole days are requested as days, anything else as times. Times are aware UTC;
months begin on the first at 00:00.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from itertools import product
from typing import Final, Self

from msgspec.structs import replace

from catalog.contract import constants
from catalog.contract.plans import END_OF_DAY, INSTANT_STEP, Plan, Window, day_end, find_plan_window
from warehouse.landing.batches import Scope

NEAR_AFTER_DAYS: Final = 90
_FILTERS: Final = ("coins", "categories", "event_id")
_MIDNIGHT: Final = time(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class PollWindow:
    """A range of event dates that is pulled as one list, both inclusive. If `last` is None, the
    range ends with the plan."""

    first: date
    last: date | None

    def __str__(self) -> str:
        return f"from {self.first}" if self.last is None else f"{self.first} to {self.last}"

    def texts(self) -> list[str]:
        """Return the bounds in the form of a run's config: first and last day, or only the
        first."""
        return [day.isoformat() for day in (self.first, self.last) if day is not None]

    @classmethod
    def from_texts(cls, first: str, last: str = "") -> Self:
        """Return the window with the given `texts`. Raises ValueError if one is not a date."""
        return cls(date.fromisoformat(first), date.fromisoformat(last) if last else None)


def near_window(plan: Plan, now: datetime) -> PollWindow:
    """Return yesterday to 90 days ahead, as far as the plan shows them."""
    today, shown = now.date(), find_plan_window(plan, now)
    last = today + timedelta(days=NEAR_AFTER_DAYS)
    is_end = shown.upper is not None and shown.upper.date() <= last
    first = max(today - timedelta(days=1), shown.lower.date())
    return PollWindow(first, None if is_end else last)


def count_pages(spans: Iterable[tuple[date, date | None, int]], window: PollWindow) -> int:
    """Return the pages of a window's events; `spans` counts events by first and last date."""
    end = window.last or date.max
    rows = sum(n for first, last, n in spans if first <= end and (last or first) >= window.first)
    return rows // constants.EVENTS_LIMIT_MAX + 1


def make_scope(
    lower: date | None,
    upper: date | None,
    *,
    usual: Window,
    coins: Sequence[str] | None = None,
    categories: Sequence[str] | None = None,
) -> Scope:
    """Return the scope of some days. An absent bound is taken from `usual`.

    Raises:
        ValueError: it ends before it begins.
    """
    scope = Scope(
        lower=usual.lower if lower is None else find_day_start(lower),
        upper=usual.upper if upper is None else day_end(upper),
        coins=None if coins is None else tuple(sorted(set(coins))),
        categories=None if categories is None else tuple(sorted(set(categories))),
    )
    if scope.lower is not None and scope.upper is not None and scope.lower > scope.upper:
        raise ValueError(f"the range ends at {scope.upper}, before it begins at {scope.lower}")
    return scope


def covers(scope: Scope, wanted: Scope) -> bool:
    """Whether a scope contains another scope with the same coins, categories and event."""
    return (
        all(getattr(scope, name) == getattr(wanted, name) for name in _FILTERS)
        and _is_from(scope.lower, wanted.lower)
        and _is_from(scope.since, wanted.since)
        and (scope.upper is None or (wanted.upper is not None and scope.upper >= wanted.upper))
    )


def _is_from(lower: datetime | None, wanted: datetime | None) -> bool:
    return lower is None or (wanted is not None and lower <= wanted)


def find_day_start(day: date) -> datetime:
    return datetime.combine(day, _MIDNIGHT)


def make_query(scope: Scope) -> dict[str, str]:
    """Return the parameters that request a scope: days, or times to the second."""
    query = {}
    if scope.coins is not None:
        query["coins"] = ",".join(scope.coins)
    if scope.categories is not None:
        query["categories"] = ",".join(scope.categories)
    if scope.lower is not None:
        query["from"] = _text(scope.lower, _MIDNIGHT)
    if scope.upper is not None:
        query["to"] = _text(scope.upper, END_OF_DAY)
    if scope.since is not None:
        query["since"] = _text(scope.since)
    return query


def _text(instant: datetime, end_of_day: time | None = None) -> str:
    if instant.timetz() == end_of_day:
        return instant.date().isoformat()
    return instant.isoformat(timespec="seconds").replace("+00:00", "Z")


def split_filters(scope: Scope) -> list[Scope]:
    """Return a scope as several, each with no more coins and categories than a request takes."""
    coins = _split(scope.coins, constants.COIN_SLUGS_MAX)
    categories = _split(scope.categories, constants.CATEGORY_IDS_MAX)
    return [
        replace(scope, coins=some_coins, categories=some_categories)
        for some_coins, some_categories in product(coins, categories)
    ]


def _split(names: tuple[str, ...] | None, size: int) -> list[tuple[str, ...] | None]:
    if names is None:
        return [None]
    return [names[at : at + size] for at in range(0, len(names), size)]


def halve_dates(scope: Scope) -> tuple[Scope, Scope] | None:
    """Return the two halves of a scope's dates, whole days if it has several.

    None if it has an open end, or can't be split further: a request is exact to the second.
    """
    lower, upper = scope.lower, scope.upper
    if lower is None or upper is None:
        return None
    days = (upper.date() - lower.date()).days
    if days > 0 and lower.timetz() == _MIDNIGHT and upper.timetz() == END_OF_DAY:
        start = lower + timedelta(days=days // 2 + 1)
    else:
        start = (lower + (upper - lower) // 2).replace(microsecond=0) + timedelta(seconds=1)
    if not lower < start <= upper:
        return None
    return replace(scope, upper=start - INSTANT_STEP), replace(scope, lower=start)


def month_key(start: date) -> str:
    """Return a month as `YYYY-MM-01`, which is also its partition."""
    return f"{start:%Y-%m}-01"
