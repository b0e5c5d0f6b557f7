"""The scope of a pull: from bounds to a scope, within the plan, and to requests.

A scope alone says what is requested, so that another process can resume a pull with the same
requests: whole days are requested as days, anything else as times. Times are aware UTC;
months begin on the first at 00:00.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from itertools import product
from typing import Final, Self

import msgspec

from catalog.contract import constants
from catalog.contract.plans import (
    END_OF_DAY,
    INSTANT_STEP,
    Plan,
    Window,
    day_end,
)
from resources.errors import PlanLacksAccess
from resources.http.paginator import (
    DateBound,
    DateRange,
    ListPart,
    bound_text,
    event_filters,
    split_names,
)
from warehouse.landing.batches import Feed, Scope

_FILTERS: Final = ("coins", "categories", "event_id")
_YEAR: Final = timedelta(days=365)
_OPEN_END_YEARS: Final = 10
"""How far from today a range without an end is split before the export is too slow for good."""


@dataclass(frozen=True, slots=True)
class PollWindow:
    """Event dates that are pulled as one list, both inclusive; `last` None is the plan's end."""

    first: date
    last: date | None

    def __str__(self) -> str:
        return f"from {self.first}" if self.last is None else f"{self.first} to {self.last}"

    def texts(self) -> list[str]:
        """Return its bounds as in the config of a run; without `last` there is one."""
        return [day.isoformat() for day in (self.first, self.last) if day is not None]

    @classmethod
    def of_texts(cls, first: str, last: str = "") -> Self:
        """Return the window with the given `texts`. Raises ValueError if one is not a date."""
        return cls(date.fromisoformat(first), date.fromisoformat(last) if last else None)


def definite_scope(
    lower: DateBound,
    upper: DateBound,
    *,
    usual: Window,
    coins: Sequence[str] | None,
    categories: Sequence[str] | None,
) -> Scope:
    """Return the scope of a request; an absent bound is that of `usual`, None if it has none.

    Raises:
        ValueError: a naive time, an empty filter, or a range that ends before it begins.
    """
    list(event_filters(coins, categories))
    scope = Scope(
        lower=usual.lower if lower is None else first_instant(lower),
        upper=usual.upper if upper is None else _last_instant(upper),
        coins=None if coins is None else tuple(sorted(set(coins))),
        categories=None if categories is None else tuple(sorted(set(categories))),
    )
    if scope.lower is not None and scope.upper is not None and scope.lower > scope.upper:
        raise ValueError(f"the range ends at {scope.upper}, before it begins at {scope.lower}")
    return scope


def covers(scope: Scope, wanted: Scope) -> bool:
    """Whether a scope has all of another one, of the same coins, categories and event."""
    return (
        all(getattr(scope, name) == getattr(wanted, name) for name in _FILTERS)
        and _is_from(scope.lower, wanted.lower)
        and _is_from(scope.since, wanted.since)
        and (scope.upper is None or (wanted.upper is not None and scope.upper >= wanted.upper))
    )


def _is_from(lower: datetime | None, wanted: datetime | None) -> bool:
    return lower is None or (wanted is not None and lower <= wanted)


def first_instant(bound: date | datetime) -> datetime:
    """Return the time a lower bound means. Raises ValueError for a naive one."""
    if isinstance(bound, datetime):
        bound_text(bound)
        return bound.astimezone(UTC)
    return datetime.combine(bound, time(tzinfo=UTC))


def _last_instant(bound: date | datetime) -> datetime:
    return first_instant(bound) if isinstance(bound, datetime) else day_end(bound)


def request_range(scope: Scope) -> DateRange:
    """Return the date range to request for a scope of events."""
    lower, upper = scope.lower, scope.upper
    from_: DateBound = lower
    to: DateBound = upper
    if lower is not None and lower.timetz() == time(tzinfo=UTC):
        from_ = lower.date()
    if upper is not None and upper.timetz() == END_OF_DAY:
        to = upper.date()
    return DateRange(from_, to)


def split_into_lists(feed: Feed, scope: Scope) -> tuple[ListPart, ...]:
    """Return the lists that together are a scope, in the order in which they are paged."""
    if feed == "events":
        span = request_range(scope)
        return tuple(
            ListPart(filter, span) for filter in event_filters(scope.coins, scope.categories)
        )
    if feed == "cancellations" and scope.since is not None:
        return (ListPart({"since": bound_text(scope.since)}),)
    return (ListPart(),)


def single_requests(scope: Scope) -> list[Scope]:
    """Return a scope as several, each with no more coins and categories than a request takes."""
    coins = split_names(scope.coins, constants.COIN_SLUGS_MAX)
    categories = split_names(scope.categories, constants.CATEGORY_IDS_MAX)
    return [
        msgspec.structs.replace(scope, coins=some_coins, categories=some_categories)
        for some_coins, some_categories in product(coins, categories)
    ]


def halves(scope: Scope, today: datetime) -> tuple[Scope, Scope] | None:
    """Return the two halves of a scope's dates, None if it can't be split further.

    A range without an end is split after today, then after each year.
    """
    if scope.upper is None:
        lower = scope.lower or today
        if lower > today + _OPEN_END_YEARS * _YEAR:
            return None
        last = day_end((today if lower < today else lower + _YEAR).date())
        first = msgspec.structs.replace(scope, upper=last)
        return first, msgspec.structs.replace(scope, lower=last + INSTANT_STEP)
    split_range = request_range(scope).halves()
    if split_range is None:
        return None
    first_half, second_half = (_with_span(scope, span) for span in split_range)
    # Requests are exact to the second; the scope covers all up to the next half.
    if second_half.lower is None or second_half.lower > scope.upper:
        return None
    return msgspec.structs.replace(first_half, upper=second_half.lower - INSTANT_STEP), second_half


def _with_span(scope: Scope, span: DateRange) -> Scope:
    return msgspec.structs.replace(
        scope,
        lower=None if span.lower is None else first_instant(span.lower),
        upper=None if span.upper is None else _last_instant(span.upper),
    )


def clip_to_plan(
    lower: date, upper: date, plan: Plan, window: Window
) -> tuple[datetime, datetime, list[str]]:
    """Return the bounds of the part of a range that the plan shows, and notes about the rest.

    Raises:
        PlanLacksAccess: the plan shows nothing of it.
    """
    first_shown = window.lower.date()
    horizon = None if window.upper is None else window.upper.date()
    is_after = horizon is not None and lower > horizon
    if upper < first_shown or is_after:
        shown = f"from {first_shown} on" if horizon is None else f"from {first_shown} to {horizon}"
        raise PlanLacksAccess(
            f"the plan {plan.name} shows events {shown}, and the range is {lower} to {upper}",
            next_step="Choose dates that it shows, or use a key of a higher plan",
        )
    notes = []
    if lower < first_shown:
        notes.append(f"the plan {plan.name} shows nothing before {first_shown}")
    if horizon is not None and upper > horizon:
        notes.append(f"the plan {plan.name} shows nothing after {horizon}")
        upper = horizon
    return first_instant(max(lower, first_shown)), day_end(upper), notes


def month_key(start: datetime | date) -> str:
    """Return a month as `YYYY-MM-01`, which is also its partition."""
    return f"{start:%Y-%m}-01"
