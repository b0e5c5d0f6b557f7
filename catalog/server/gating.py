"""The limits of each plan: bounds of queries, and visible fields of records (interface 8)."""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from operator import attrgetter
from typing import Any, Final

from msgspec import UNSET, structs, to_builtins
from starlette.requests import Request

from catalog.contract.errors import InvalidParameter, PlanRequired
from catalog.contract.plans import (
    LEAST_PLAN_FOR_FILTER,
    PLANS,
    ImpactView,
    Plan,
    clamp_window,
    find_plan_window,
    impact_band,
)
from catalog.contract.records import EVENT_FIELDS, CancelledEvent, Coin, Event
from catalog.server.catalog_store import (
    EventQuery,
    StoredEvent,
    StoredVersion,
)
from catalog.server.sql_store import SqlStore

_FIELDS: Final = {field.name: field.encode_name for field in structs.fields(Event)}
_CHANGED: Final = {**_FIELDS, "impact_band": "impact"}
"""The names of the interface for the columns of an event."""
_HIDDEN: Final = {**dict.fromkeys(_FIELDS), "categories": UNSET}


@dataclass(frozen=True, slots=True)
class CatalogView:
    """The catalog that a request reads: the store, as of `ts`.

    `moment` is the time that the request names, or now. `ts` is that time less the plan's lag.
    """

    store: SqlStore
    plan: Plan
    ts: datetime
    moment: datetime
    as_of: datetime | None

    @classmethod
    def from_request(cls, request: Request) -> "CatalogView":
        state, app = request.state, request.app.state
        plan: Plan = state.grant.plan
        moment = state.as_of or state.now
        lag = timedelta(seconds=plan.freshness_s if app.lags else 0)
        return cls(app.store(state.now), plan, moment - lag, moment, state.as_of)

    def cursor_filters(self, *filters: Hashable) -> tuple[Hashable, ...]:
        """Return what a cursor is bound to."""
        return (*filters, self.plan.name, self.as_of)


def make_event_query(
    asked: Mapping[str, Any], view: CatalogView, *, earliest: datetime | None = None
) -> EventQuery:
    """Return the query for the parameters of a request. Without `from` it begins at `earliest`.

    Raises:
        InvalidParameter: the range ends before it begins.
        PlanRequired: a filter that the plan does not have.
    """
    plan, lower, upper = view.plan, asked["lower"], asked["upper"]
    if lower is not None and upper is not None and lower > upper:
        raise InvalidParameter("from must not be after to")
    _require("categories", plan, requested=asked["categories"] is not None)
    _require("impactMin", plan, requested=asked["impact_min"] is not None)
    _require("sortBy=impact_desc", plan, requested=asked["sort_by"] == "impact_desc")
    return EventQuery(
        ts=view.ts,
        window=clamp_window(plan, view.moment, lower=lower or earliest, upper=upper),
        coins=None if asked["coins"] is None else frozenset(asked["coins"]),
        categories=None if asked["categories"] is None else frozenset(asked["categories"]),
        keyword=None if asked["keyword"] is None else asked["keyword"].casefold(),
        keyword_in_description=plan.shows("description"),
        impact_min=asked["impact_min"],
        coverage_top=plan.coverage_top,
        order=asked["sort_by"],
    )


def is_event_visible(event: StoredEvent, view: CatalogView) -> bool:
    """Whether the single event is in the plan's whole window and coverage."""
    plan = view.plan
    if not find_plan_window(plan, view.moment).overlaps(event.date, event.date_end):
        return False
    if plan.coverage_top is None:
        return True
    ranks = view.store.ranks([coin.slug for coin in event.coins], view.ts)
    return any(_is_covered(rank, plan) for rank in ranks.values())


def require_coverage(coin: Coin, plan: Plan) -> None:
    """Raise PlanRequired if the plan does not show this coin."""
    if not _is_covered(coin.rank, plan):
        least = next(other for other in PLANS.values() if _is_covered(coin.rank, other))
        raise PlanRequired(
            f"The plan {plan.name.title()} shows the top {plan.coverage_top} coins; this coin "
            f"needs the plan {least.name.title()} or above"
        )


def _is_covered(rank: int | None, plan: Plan) -> bool:
    return plan.coverage_top is None or (rank is not None and rank <= plan.coverage_top)


def _require(filter_name: str, plan: Plan, *, requested: bool) -> None:
    least = LEAST_PLAN_FOR_FILTER[filter_name]
    if requested and not plan.is_at_least(least):
        raise PlanRequired(f"{filter_name} needs the plan {least.name.title()} or above")


def project_event(event: StoredEvent, plan: Plan) -> Event:
    """Return the event as the plan shows it: hidden fields are null, Free has no `categories`."""
    names, read = _shown_fields(plan)
    fields = dict(zip(names, read(event), strict=True))
    return Event(**{**_HIDDEN, **fields, "impact": _shown_impact(event, plan)})


@cache
def _shown_fields(plan: Plan) -> tuple[tuple[str, ...], Callable[[StoredEvent], tuple[Any, ...]]]:
    """Return the names of the fields that a plan shows, and a function that reads them."""
    names = tuple(name for name, field in _FIELDS.items() if plan.shows(field))
    return names, attrgetter(*names)


def name_changed_fields(version: StoredVersion, plan: Plan) -> tuple[str, ...]:
    """Return the names of the fields that changed, as far as the plan shows them."""
    changed = {_CHANGED.get(column) for column in version.changed}
    return tuple(name for name in EVENT_FIELDS if name in changed and plan.shows(name))


def project_previous(version: StoredVersion, plan: Plan) -> dict[str, Any] | None:
    """Return the values before the change of the fields that changed, and the status if it did."""
    before = version.previous
    if before is None:
        return None
    shown = {} if before.event is None else to_builtins(project_event(before.event, plan))
    found = {name: shown.get(name) for name in name_changed_fields(version, plan)}
    return found if before.status == version.status else {**found, "status": before.status}


def _shown_impact(event: StoredEvent, plan: Plan) -> float | str | None:
    if plan.impact is ImpactView.NONE:
        return None
    if event.impact is None:
        return event.impact_band
    return impact_band(event.impact) if plan.impact is ImpactView.BANDED else event.impact


def project_cancellation(event: StoredEvent, cancelled_at: datetime, plan: Plan) -> CancelledEvent:
    """Return the `data` of a delivery of a cancellation, which also has its time."""
    return CancelledEvent(**structs.asdict(project_event(event, plan)), cancelled_at=cancelled_at)


def project_coin(coin: Coin, plan: Plan) -> Coin:
    """Return the coin as the plan shows it."""
    if plan.score_counters:
        return coin
    return structs.replace(coin, major_count=None, peak_impact=None)
