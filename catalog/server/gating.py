"""Shows a stored record as a plan allows: fields, bands, counters (interface 8.3).

A view never changes, so a row encoded for a plan is valid for the life of its view, and is cached.
Only rows are cached, not answers: paging, filters, totals and tags are computed for every request.
"""

import weakref
from collections import deque
from collections.abc import Iterable, Sequence
from datetime import datetime

from msgspec import UNSET, UnsetType

from catalog.contract.errors import PlanRequired
from catalog.contract.parameters import EventsRequest
from catalog.contract.plans import (
    LEAST_PLAN_FOR_FILTER,
    PLANS,
    ImpactView,
    Plan,
    Window,
    impact_band,
    plan_window,
    requested_window,
)
from catalog.contract.records import CancelledEvent, Coin, Event, EventCoin
from catalog.server.exchange import EncodedJson
from catalog.server.store import (
    CatalogChange,
    CatalogView,
    CoinQuery,
    EventQuery,
    StoredCategory,
    StoredCoin,
    StoredEvent,
)


class ViewNames:
    """Names from a view, each looked up once."""

    def __init__(self, view: CatalogView, categories: Sequence[StoredCategory]) -> None:
        self.view = view
        self._categories = {category.id: category.name for category in categories}
        self._coins: dict[str, EventCoin] = {}

    def linked_coin(self, slug: str) -> EventCoin:
        linked = self._coins.get(slug)
        if linked is None:
            coin = self.view.coin(slug)
            # An event may have a coin that is no longer listed; the slug still identifies it.
            linked = (
                EventCoin(slug=slug, symbol="", name=slug)
                if coin is None
                else EventCoin(slug=slug, symbol=coin.symbol, name=coin.name)
            )
            self._coins[slug] = linked
        return linked

    def category_name(self, category_id: str) -> str:
        return self._categories.get(category_id, category_id)


def shown_event(event: StoredEvent, plan: Plan, names: ViewNames) -> Event:
    """Return the event as the plan shows it: hidden fields are null, Free has no `categories`."""
    shows = plan.event_fields
    categories: tuple[str, ...] | UnsetType | None = UNSET
    if "categories" in shows:
        known = event.categories
        categories = None if known is None else tuple([names.category_name(id_) for id_ in known])
    return Event(
        id=event.id,
        slug=event.slug,
        title=event.title,
        description=event.description if "description" in shows else None,
        displayed_date=event.displayed_date,
        date=event.date,
        date_end=event.date_end,
        date_type=event.date_type,
        is_estimated=event.is_estimated,
        categories=categories,
        coins=tuple([names.linked_coin(slug) for slug in event.coins]),
        impact=_shown_impact(event, plan),
        impact_summary=event.impact_summary if "impactSummary" in shows else None,
        source_url=event.source_url if "sourceUrl" in shows else None,
        snapshot_url=event.snapshot_url if "snapshotUrl" in shows else None,
        last_verified_at=event.last_verified_at if "lastVerifiedAt" in shows else None,
        created_at=event.created_at,
        updated_at=event.updated_at,
    )


def shown_change(change: CatalogChange, plan: Plan, names: ViewNames) -> Event:
    """Return the `data` of a delivery; a cancellation also has its instant."""
    event = shown_event(change.event, plan, names)
    if change.cancelled_at is None:
        return event
    fields = {name: getattr(event, name) for name in Event.__struct_fields__}
    return CancelledEvent(**fields, cancelled_at=change.cancelled_at)


def shown_coin(coin: StoredCoin, plan: Plan, view: CatalogView, upcoming: Window) -> Coin:
    """Return the coin with the counters of its events in the plan's upcoming window."""
    counters = view.counters(coin.slug, upcoming, coverage_top=plan.coverage_top)
    return Coin(
        slug=coin.slug,
        symbol=coin.symbol,
        name=coin.name,
        rank=coin.rank,
        tracked=coin.tracked,
        icon_url=coin.icon_url,
        upcoming_count=counters.upcoming,
        major_count=counters.major if plan.score_counters else None,
        peak_impact=counters.peak_impact if plan.score_counters else None,
    )


def event_query(request: EventsRequest, plan: Plan, now: datetime) -> EventQuery:
    """Return the query for the store.

    Raises:
        PlanRequired: a filter that the plan does not have.
    """
    _require("categories", plan, requested=request.categories is not None)
    _require("impactMin", plan, requested=request.impact_min is not None)
    _require("sortBy=impact_desc", plan, requested=request.sort_by == "impact_desc")
    return EventQuery(
        window=requested_window(plan, now, lower=request.lower, upper=request.upper),
        coins=None if request.coins is None else frozenset(request.coins),
        categories=None if request.categories is None else frozenset(request.categories),
        keyword=None if request.keyword is None else request.keyword.casefold(),
        keyword_in_description=plan.shows("description"),
        impact_min=request.impact_min,
        coverage_top=plan.coverage_top,
        order=request.sort_by,
    )


def coin_query(q: str | None, tracked: bool | None, plan: Plan) -> CoinQuery:
    return CoinQuery(
        q=None if q is None else q.casefold(), tracked=tracked, coverage_top=plan.coverage_top
    )


def event_visible(event: StoredEvent, plan: Plan, view: CatalogView, now: datetime) -> bool:
    """Whether the single event is in the plan's whole window and coverage."""
    if not plan_window(plan, now).overlaps(event.date, event.date_end):
        return False
    if plan.coverage_top is None:
        return True
    coins = (view.coin(slug) for slug in event.coins)
    return any(coin_covered(coin, plan) for coin in coins)


def coin_covered(coin: StoredCoin | None, plan: Plan) -> bool:
    """Whether the plan shows this coin."""
    if coin is None or plan.coverage_top is None:
        return coin is not None
    return coin.rank is not None and coin.rank <= plan.coverage_top


def require_coverage(coin: StoredCoin, plan: Plan) -> None:
    """Raise PlanRequired if the plan does not show this coin."""
    if not coin_covered(coin, plan):
        least = next(other for other in PLANS.values() if coin_covered(coin, other))
        raise PlanRequired(
            f"The plan {plan.name.title()} shows the top {plan.coverage_top} coins; this coin "
            f"needs the plan {least.name.title()} or above"
        )


def _shown_impact(event: StoredEvent, plan: Plan) -> float | str | None:
    if plan.impact is ImpactView.NONE:
        return None
    if event.impact is None:
        return event.impact_band
    return impact_band(event.impact) if plan.impact is ImpactView.BANDED else event.impact


def _require(filter_name: str, plan: Plan, *, requested: bool) -> None:
    least = LEAST_PLAN_FOR_FILTER[filter_name]
    if requested and not plan.is_at_least(least):
        raise PlanRequired(f"{filter_name} needs the plan {least.name.title()} or above")


_VIEWS_MAX = 4
_ROWS_MAX = 100_000
"""Events of each plan, about 90 MB. When there are more, all are encoded again."""


class RowCache:
    """The encoded rows of one view, which does not keep the view alive: it may be large."""

    def __init__(self, view: CatalogView) -> None:
        self._made_for = weakref.ref(view)
        self._view: CatalogView = weakref.proxy(view)
        self._names = ViewNames(self._view, view.categories())
        self._events: dict[str, dict[str, EncodedJson]] = {}
        self._coins: dict[tuple[str, Window], dict[str, EncodedJson]] = {}

    def is_of(self, view: CatalogView) -> bool:
        return self._made_for() is view

    def events(self, events: Iterable[StoredEvent], plan: Plan) -> list[EncodedJson]:
        known = self._events.setdefault(plan.name, {})
        if len(known) >= _ROWS_MAX:
            known.clear()
        return [known.get(event.id) or self._make_event(event, plan, known) for event in events]

    def coins(self, coins: Iterable[StoredCoin], plan: Plan, upcoming: Window) -> list[EncodedJson]:
        """Return the coins with the counters of their events in the window."""
        known = self._coins.setdefault((plan.name, upcoming), {})
        return [known.get(coin.slug) or self._make_coin(coin, plan, upcoming) for coin in coins]

    def _make_event(
        self, event: StoredEvent, plan: Plan, known: dict[str, EncodedJson]
    ) -> EncodedJson:
        row = known[event.id] = EncodedJson.of(shown_event(event, plan, self._names))
        return row

    def _make_coin(self, coin: StoredCoin, plan: Plan, upcoming: Window) -> EncodedJson:
        row = EncodedJson.of(shown_coin(coin, plan, self._view, upcoming))
        self._coins[(plan.name, upcoming)][coin.slug] = row
        return row


class ViewRows:
    """The rows of the most recently requested views; the rows of an older view are dropped."""

    def __init__(self) -> None:
        self._recent: deque[RowCache] = deque(maxlen=_VIEWS_MAX)

    def of(self, view: CatalogView) -> RowCache:
        for rows in self._recent:
            if rows.is_of(view):
                if rows is not self._recent[0]:
                    self._recent.remove(rows)
                    self._recent.appendleft(rows)
                return rows
        rows = RowCache(view)
        self._recent.appendleft(rows)
        return rows
