"""What an observation of the sandbox's catalog shows, from its truth and the published rules alone.

A second form of the plans, windows, freshness and fields of the interface. It uses
nothing of contract, server or warehouse, whose errors would be repeated here. Times are UTC; bounds
are inclusive.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from typing import Any

from tests.sandbox.true_world import TrueEvent, World

Content = dict[str, Any]
"""The fields that are known, by column; a field that is not known has no key."""

CONTENT_FIELDS = (
    *("slug", "title", "description", "displayed_date", "date", "date_end", "date_type"),
    *("is_estimated", "categories", "coins", "impact", "impact_band", "impact_summary"),
    *("source_url", "snapshot_url", "last_verified_at", "created_at", "updated_at"),
)
RANK = {"export": 0, "events": 1, "event": 2, "cancellations": 3, "deliveries": 4, "coins": 5}
CATALOG_STARTS = datetime(2017, 1, 1, tzinfo=UTC)
_LAST_MOMENT = time(23, 59, 59, 999_999, tzinfo=UTC)
_BANDS = ((2.5, "Low"), (5.0, "Mid"), (7.5, "High"), (float("inf"), "Critical"))
_SCORES = {"impact", "impact_band"}
_PROOF = {"impact_summary", "source_url", "snapshot_url", "last_verified_at"}


@dataclass(frozen=True, slots=True)
class PlanRules:
    """A line of interface 8.3; None is no bound."""

    ahead_days: int | None
    back_days: int | None
    top: int | None
    lag: timedelta
    hides: frozenset[str]
    banded: bool = False

    @property
    def shows_all_upcoming(self) -> bool:
        return self.ahead_days is None and self.top is None


_FREE = _SCORES | _PROOF | {"description", "categories"}
_MINUTE = timedelta(minutes=1)
PLAN_RULES = {
    "free": PlanRules(7, 0, 100, timedelta(hours=24), frozenset(_FREE)),
    "standard": PlanRules(90, 0, None, _MINUTE, frozenset(_SCORES | _PROOF)),
    "pro": PlanRules(None, 30, None, _MINUTE, frozenset({"impact"}), banded=True),
    "elite": PlanRules(None, None, None, _MINUTE, frozenset()),
    "enterprise": PlanRules(None, None, None, _MINUTE, frozenset()),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenObservation:
    """One observation. A delivery is an observation of its own; `observed_at` is its receipt.

    `change_at` is the instant of the change that a delivery reports, `place` its position in its
    batch; `first_rows` the number of rows that arrived of an interrupted pull.
    """

    kind: str
    observed_at: datetime
    plan: str
    batch_id: str
    complete: bool = True
    lower: datetime | None = None
    upper: datetime | None = None
    coins: frozenset[str] | None = None
    categories: frozenset[str] | None = None
    event_id: str | None = None
    since: datetime | None = None
    rows_claimed: int | None = None
    first_rows: int | None = None
    change_at: datetime | None = None
    place: int = 0

    @property
    def rules(self) -> PlanRules:
        return PLAN_RULES[self.plan]

    @property
    def content_at(self) -> datetime:
        """Return the instant at which its content was true."""
        if self.change_at is not None:
            return self.change_at
        if self.kind == "export":
            return _snapshot_at(self.observed_at)
        return self.observed_at - self.rules.lag

    @property
    def fold_key(self) -> tuple[datetime, datetime, int, str, int]:
        return self.observed_at, self.content_at, RANK[self.kind], self.batch_id, self.place

    def visible_scope(self) -> "VisibleScope":
        """Return the dates that the plan showed both when observed and at content_at."""
        bounds = [(self.lower, self.upper)]
        bounds += [find_plan_window(self.rules, at) for at in (self.content_at, self.observed_at)]
        lower = max(bound for bound, _ in bounds if bound is not None)
        return VisibleScope(
            lower, min((bound for _, bound in bounds if bound is not None), default=None)
        )


@dataclass(frozen=True, slots=True)
class VisibleScope:
    """A range of event dates."""

    lower: datetime
    upper: datetime | None

    def holds(self, date: datetime) -> bool:
        return self.lower <= date and (self.upper is None or date <= self.upper)


@dataclass(frozen=True, slots=True)
class Row:
    """One event as an observation showed it."""

    event_id: str
    content: Content
    status: str = "scheduled"
    cancelled_at: datetime | None = None


def find_plan_window(rules: PlanRules, instant: datetime) -> tuple[datetime, datetime | None]:
    today = instant.replace(hour=0, minute=0, second=0, microsecond=0)
    lower = CATALOG_STARTS if rules.back_days is None else today - timedelta(rules.back_days)
    if rules.ahead_days is None:
        return lower, None
    last_day = (today + timedelta(rules.ahead_days)).date()
    return lower, datetime.combine(last_day, _LAST_MOMENT)


def impact_band(score: float | None) -> str | None:
    return None if score is None else next(name for edge, name in _BANDS if score < edge)


class Showing:
    """What observations show of one world; lists are cached."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._lists: dict[SeenObservation, list[Row]] = {}
        self._names = {category.id: category.name for category in world.categories}

    def category_names(self, ids: frozenset[str]) -> frozenset[str]:
        return frozenset(self._names.get(category, category) for category in ids)

    def rows(self, observation: SeenObservation) -> list[Row]:
        """Return the events of a list or export that arrived, by date and id."""
        if observation not in self._lists:
            self._lists[observation] = self._rows(observation)
        return self._lists[observation]

    def looked_up(self, observation: SeenObservation) -> Row | datetime | None:
        """Return the event, when it was cancelled (410), or None (404)."""
        assert observation.event_id is not None
        event = self.world.event_at(observation.event_id, observation.content_at)
        if event is None:
            return self.world.cancelled_at(observation.event_id, observation.content_at)
        lower, upper = find_plan_window(observation.rules, observation.observed_at)
        if (event.date_end or event.date) < lower or (upper is not None and event.date > upper):
            return None
        top = observation.rules.top
        if top is not None and not self.top(observation, top).intersection(event.coins):
            return None
        return self._row(event, observation)

    def cancellations(self, observation: SeenObservation) -> Iterator[tuple[datetime, str]]:
        """Yield the instant and id of each cancelled event, oldest first."""
        for cancelled_at, event_id in self.world.cancellations_at(observation.content_at):
            if observation.since is None or cancelled_at >= observation.since:
                yield cancelled_at, event_id

    def delivered(self, observation: SeenObservation) -> Row:
        assert observation.event_id is not None
        version = self.world.history(observation.event_id, observation.content_at)[-1]
        assert version.known_from == observation.content_at, "a delivery reports a change"
        cancelled = version.status == "cancelled"
        content = self._content(version.event, observation.rules)
        cancelled_at = observation.content_at if cancelled else None
        return Row(observation.event_id, content, version.status, cancelled_at)

    def top(self, observation: SeenObservation, count: int = 100) -> frozenset[str]:
        """Return the coins of the highest ranks at the content time."""
        coins = self.world.coins_at(observation.content_at)
        return frozenset(c.slug for c in coins if c.rank is not None and c.rank <= count)

    def _rows(self, observation: SeenObservation) -> list[Row]:
        lower, upper = find_plan_window(observation.rules, observation.observed_at)
        lower = max(lower, observation.lower or lower)
        uppers = [bound for bound in (upper, observation.upper) if bound is not None]
        upper = min(uppers, default=None)
        top = (
            None if observation.rules.top is None else self.top(observation, observation.rules.top)
        )
        found = [
            event
            for event in self.world.events_at(observation.content_at).values()
            if (event.date_end or event.date) >= lower
            and (upper is None or event.date <= upper)
            and (observation.coins is None or observation.coins.intersection(event.coins))
            and (
                observation.categories is None
                or observation.categories.intersection(event.categories)
            )
            and (top is None or top.intersection(event.coins))
        ]
        found.sort(key=lambda event: (event.date, event.id))
        return [self._row(event, observation) for event in found[: observation.first_rows]]

    def _row(self, event: TrueEvent, observation: SeenObservation) -> Row:
        return Row(event.id, self._content(event, observation.rules))

    def _content(self, event: TrueEvent, rules: PlanRules) -> Content:
        whole: Content = {name: _plain(getattr(event, name, None)) for name in CONTENT_FIELDS}
        whole["categories"] = sorted({self._names[category] for category in event.categories})
        whole["coins"] = sorted(set(event.coins))
        whole["impact_band"] = impact_band(event.impact)
        # An absent score is shown as an absent band, so an absent score is known.
        hidden = rules.hides - {"impact"} if rules.banded and event.impact is None else rules.hides
        return {name: value for name, value in whole.items() if name not in hidden}


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return value.replace("\r\n", "\n").strip() or None
    return value


def _snapshot_at(observed_at: datetime) -> datetime:
    """Return 00:05 of the day, or of the day before if that snapshot is not published yet."""
    out = observed_at - timedelta(minutes=6)
    return out.replace(hour=0, minute=5, second=0, microsecond=0)
