"""The history that a list of observations must have, by the rules of the design, in plain Python.

    oracle = Oracle(Showing(World(7, pace=8)))
    for observation in sorted(observations, key=lambda observation: observation.fold_key):
        oracle.fold(observation)
    oracle.versions()

It imports the sandbox's truth and nothing else of ours.
"""

from collections import Counter
from dataclasses import replace
from datetime import datetime, timedelta

from tests.history.model.observations import Content, Row, SeenObservation, Showing
from tests.history.model.scopes import Listed, Watch, passes
from tests.history.model.versions import (
    CANCELLED,
    SCHEDULED,
    WITHDRAWN,
    State,
    Version,
    changed_status,
    compared,
    in_order,
    merged,
)

ENOUGH = 0.98
"""The share of expected rows below which an export makes nothing newly missing."""
CREDIBLE = timedelta(days=1)
"""How long after its observation an instant of a row may be; a later one counts as unknown."""


class Oracle:
    """Folds observations, which must be in the order of their `fold_key`."""

    def __init__(self, showing: Showing) -> None:
        self.showing = showing
        self.events: dict[str, State] = {}
        self.tally: Counter[str] = Counter()
        self._waiting: dict[str, tuple[datetime, datetime]] = {}
        self._lists: list[Listed] = []
        self._watches: list[Watch] = []
        self._top: frozenset[str] | None = None
        self._number = 0

    def fold(self, observation: SeenObservation) -> None:
        self._number += 1
        if observation.kind in ("export", "events"):
            self._fold_list(observation)
        elif observation.kind == "event":
            self._fold_look_up(observation)
        elif observation.kind == "cancellations":
            self._fold_cancellations(observation)
        elif observation.kind == "deliveries":
            self._observe(self.showing.delivered(observation), observation)
        elif observation.kind == "coins" and observation.complete:
            self._top = self.showing.top(observation)

    def versions(self) -> list[Version]:
        """Return every version, those of an event in order, each ending when the next starts."""
        return [
            replace(version, known_to=following.known_from if following else None)
            for state in self.events.values()
            for version, following in zip(state.versions, [*state.versions[1:], None], strict=True)
        ]

    def _fold_list(self, observation: SeenObservation) -> None:
        rows, scope = self.showing.rows(observation), self._scope(observation)
        for row in rows:
            self._observe(row, observation)
        trusted = observation.complete and self._miss(scope, {row.event_id for row in rows})
        self._lists.append(replace(scope, trusted=trusted))

    def _scope(self, observation: SeenObservation) -> Listed:
        ids = observation.categories
        names = None if ids is None else self.showing.category_names(ids)
        return Listed(observation, observation.visible_scope(), names)

    def _is_expected(self, state: State, scope: Listed) -> bool:
        """Whether a scheduled event, as it is known, is one that an observation should show."""
        if state.status != SCHEDULED or not scope.covers(state.content):
            return False
        if scope.observation.rules.top is None:
            return True
        return self._top is not None and not self._top.isdisjoint(state.content["coins"])

    def _miss(self, scope: Listed, shown: set[str]) -> bool:
        """Make absent events missing; return whether the observation is not doubted."""
        observation = scope.observation
        absent = [
            state
            for event_id, state in self.events.items()
            if event_id not in shown
            and state.content_at < observation.content_at
            and self._is_expected(state, scope)
        ]
        repeated = [state for state in absent if state.was_doubted(observation.content_at)]
        new = [
            state
            for state in absent
            if state.missing_since is None and not state.was_doubted(observation.content_at)
        ]
        most = max(len(shown) + len(new), observation.rows_claimed or 0)
        is_doubted = observation.kind == "export" and len(shown) < ENOUGH * most
        if is_doubted:
            self.tally["flagged exports"] += 1
            for state in new:
                state.doubted_at = observation.content_at
        self.tally["absences that an export confirms"] += len(repeated)
        for state in repeated if is_doubted else absent:
            self._is_missing(state, observation)
            if observation.kind != "export" or not observation.rules.shows_all_upcoming:
                continue
            if self._absent_from_two_exports(state, observation):
                self._withdraw(state, observation, "exports")
            elif state.absent_from is None:
                state.absent_from = self._number, observation.content_at
        return not is_doubted

    def _is_missing(self, state: State, observation: SeenObservation) -> None:
        if state.missing_since is None:
            state.set_missing(observation, observation.observed_at)
            self.tally[f"missing from {observation.kind} of {observation.plan}"] += 1
        state.absent_at = max(state.absent_at or observation.content_at, observation.content_at)

    def _absent_from_two_exports(self, state: State, observation: SeenObservation) -> bool:
        """Whether an export of an earlier snapshot lacked it too, and the cancellations since
        it was last known were pulled in between."""
        if state.absent_from is None or state.absent_from[1] >= observation.content_at:
            return False
        watches = [watch for watch in self._watches if watch.number > state.absent_from[0]]
        watched = any(watch.since <= state.content_at for watch in watches)
        if not watched:
            self.tally["twice absent, not covered" + " far enough back" * bool(watches)] += 1
        return watched

    def _fold_look_up(self, observation: SeenObservation) -> None:
        assert observation.event_id is not None
        found = self.showing.looked_up(observation)
        if isinstance(found, Row):
            self._observe(found, observation)
        elif found is not None:
            self.tally["410"] += 1
            self._cancel(observation.event_id, found, observation, observation.content_at)
        elif observation.complete:
            self.tally["404"] += 1
            self._not_found(observation)

    def _not_found(self, observation: SeenObservation) -> None:
        assert observation.event_id is not None
        state = self.events.get(observation.event_id)
        scope = self._scope(observation)
        if state is None or not scope.covers(state.content):
            return
        if not observation.rules.shows_all_upcoming:
            if state.content_at < observation.content_at and self._is_expected(state, scope):
                self._is_missing(state, observation)
        elif observation.content_at < state.content_at:
            self.tally["stale 404"] += 1
        elif state.status == SCHEDULED:
            self._withdraw(state, observation, "404")
        elif state.status == WITHDRAWN:
            state.content_at = observation.content_at

    def _withdraw(self, state: State, observation: SeenObservation, why: str) -> None:
        self.tally[f"withdrawn by {why}"] += 1
        state.withdraw(observation)

    def _fold_cancellations(self, observation: SeenObservation) -> None:
        for cancelled_at, event_id in self.showing.cancellations(observation):
            true_at = min(cancelled_at, observation.observed_at)
            self._cancel(event_id, cancelled_at, observation, true_at)
        if observation.complete and observation.since is not None:
            since = observation.since
            for watch in reversed(self._watches):
                if since <= watch.content_at:
                    since = min(since, watch.since)
            self._watches.append(Watch(self._number, observation.content_at, since))

    def _cancel(
        self,
        event_id: str,
        cancelled_at: datetime,
        observation: SeenObservation,
        content_at: datetime,
    ) -> None:
        state = self.events.get(event_id)
        if state is None:
            waiting = self._waiting.get(event_id)
            if waiting is None or waiting[0] <= content_at:
                self._waiting[event_id] = content_at, cancelled_at
            return
        if content_at < state.shown_at:
            self.tally["stale cancellations"] += 1
            return
        self.tally["cancelled before withdrawn"] += content_at < state.content_at
        after = state.accept(content_at)
        state.set_missing(observation, None)
        changed = changed_status(state, CANCELLED, cancelled_at)
        if changed:
            self.tally["cancelled after withdrawn"] += state.status == WITHDRAWN
            state.status, state.cancelled_at = CANCELLED, cancelled_at
            state.add(observation, [CANCELLED], changed, after)

    def _observe(self, row: Row, observation: SeenObservation) -> None:
        state = self.events.get(row.event_id)
        if state is None:
            self._first(row, observation)
            return
        known_at = state.shown_at if row.status == CANCELLED else state.content_at
        older = observation.content_at < known_at
        updated_at, held = _updated(row.content, observation.observed_at), state.updated_at
        if older or (updated_at is not None and held is not None and updated_at < held):
            self.tally[f"stale {observation.kind}"] += 1
            return
        if row.status == CANCELLED or state.is_newer_than_absence(observation.content_at):
            self.tally["found again"] += state.missing_since is not None
            state.set_missing(observation, None)
            state.last_seen_at = observation.observed_at
        else:
            self.tally["shown before its absence"] += 1
        after, before = state.accept(observation.content_at), state.content
        state.content, state.updated_at = merged(before, row.content), updated_at
        kinds, changed = compared(before, state.content)
        moved = changed_status(state, row.status, row.cancelled_at)
        if moved:
            kinds.add("restored" if row.status == SCHEDULED else row.status)
        state.status, state.cancelled_at = row.status, row.cancelled_at
        if kinds:
            self.tally["scores unknown by their band"] += "impact" in before.keys() - state.content
            state.add(observation, in_order(kinds), changed | moved, after)

    def _first(self, row: Row, observation: SeenObservation) -> None:
        state = State(
            event_id=row.event_id,
            content=row.content,
            content_at=observation.content_at,
            shown_at=observation.content_at,
            first_seen_at=observation.observed_at,
            last_seen_at=observation.observed_at,
            status=row.status,
            cancelled_at=row.cancelled_at,
            updated_at=_updated(row.content, observation.observed_at),
        )
        waiting = self._waiting.pop(row.event_id, None)
        as_old = waiting is not None and waiting[0] == observation.content_at
        if waiting is not None and (
            waiting[0] > observation.content_at or (as_old and row.status == SCHEDULED)
        ):
            state.content_at, state.cancelled_at = waiting
            state.shown_at = state.content_at
            state.status = CANCELLED
            self.tally["cancellations that waited"] += 1
        self.events[row.event_id] = state
        state.claim(observation)
        first = "created" if self._was_watched(row, observation.observed_at) else "revealed"
        state.add(observation, [first, CANCELLED] if state.status == CANCELLED else [first])

    def _was_watched(self, row: Row, observed_at: datetime) -> bool:
        """Whether a pull before an event was created covers it, so that its absence was seen."""
        created_at, date = row.content["created_at"], row.content["date"]
        if created_at > observed_at + CREDIBLE:
            return False
        covering = [
            scope
            for scope in self._lists
            if scope.observation.content_at < created_at and scope.visible_scope.holds(date)
        ]
        watched = any(
            scope.trusted and scope.observation.rules.top is None and passes(scope.observation, row)
            for scope in covering
        )
        self.tally["first seen though half watched"] += bool(covering) and not watched
        return watched


def _updated(content: Content, observed_at: datetime) -> datetime | None:
    """Return when the content was last updated; None if the instant is not credible."""
    updated_at: datetime = content["updated_at"]
    return updated_at if updated_at <= observed_at + CREDIBLE else None
