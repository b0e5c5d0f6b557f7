"""What a plan sees of a stored record: fields, bands, counters (interface 8.3)."""

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from msgspec import UNSET, UnsetType

from catalog.contract.errors import PlanRequired
from catalog.contract.parameters import EventsRequest
from catalog.contract.plans import LEAST_PLAN_FOR_FILTER, ImpactView, Plan, impact_band
from catalog.contract.records import CancelledEvent, Coin, Event, EventCoin
from catalog.contract.windows import Window, plan_window, requested_window
from catalog.server.store import (
    CatalogChange,
    CatalogView,
    CoinQuery,
    EventQuery,
    StoredCategory,
    StoredCoin,
    StoredEvent,
)


class Names(Protocol):
    """Where the shown form of a coin slug or a category id is looked up."""

    def linked_coin(self, slug: str) -> EventCoin: ...

    def category_name(self, category_id: str) -> str: ...


class ViewNames:
    """Names out of a view, each looked up once."""

    def __init__(self, view: CatalogView, categories: Sequence[StoredCategory]) -> None:
        self.view = view
        self._categories = {category.id: category.name for category in categories}
        self._coins: dict[str, EventCoin] = {}

    def linked_coin(self, slug: str) -> EventCoin:
        linked = self._coins.get(slug)
        if linked is None:
            coin = self.view.coin(slug)
            # An event may outlive the listing of its coin; the slug still identifies it.
            linked = (
                EventCoin(slug=slug, symbol="", name=slug)
                if coin is None
                else EventCoin(slug=slug, symbol=coin.symbol, name=coin.name)
            )
            self._coins[slug] = linked
        return linked

    def category_name(self, category_id: str) -> str:
        return self._categories.get(category_id, category_id)


def shown_event(event: StoredEvent, plan: Plan, names: Names) -> Event:
    """Return the event as the plan shows it: hidden fields null, on Free no `categories` key."""
    shows = plan.event_fields
    categories: tuple[str, ...] | UnsetType = UNSET
    if "categories" in shows:
        categories = tuple([names.category_name(name) for name in event.categories])
    proof = "sourceUrl" in shows
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
        impact=_shown_impact(event.impact, plan),
        impact_summary=event.impact_summary if proof else None,
        source_url=event.source_url if proof else None,
        snapshot_url=event.snapshot_url if proof else None,
        last_verified_at=event.last_verified_at if proof else None,
        created_at=event.created_at,
        updated_at=event.updated_at,
    )


def shown_change(change: CatalogChange, plan: Plan, names: Names) -> Event:
    """Return the `data` of a delivery; a cancellation also says when."""
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
    """Return what the store is asked for.

    Raises:
        PlanRequired: a filter that the plan does not have.
    """
    _require("categories", plan, asked=request.categories is not None)
    _require("impactMin", plan, asked=request.impact_min is not None)
    _require("sortBy=impact_desc", plan, asked=request.sort_by == "impact_desc")
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
    """Whether the single event lies in the plan's whole window and coverage."""
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


def _shown_impact(impact: float | None, plan: Plan) -> float | str | None:
    if impact is None or plan.impact is ImpactView.NONE:
        return None
    return impact_band(impact) if plan.impact is ImpactView.BANDED else impact


def _require(filter_name: str, plan: Plan, *, asked: bool) -> None:
    least = LEAST_PLAN_FOR_FILTER[filter_name]
    if asked and not plan.reaches(least):
        raise PlanRequired(f"{filter_name} needs the plan {least.name.title()} or above")
