"""The history that a list of looks must have, by the rules of the design, in plain Python.

    oracle = Oracle(Showing(World(7, pace=8)))
    for look in sorted(looks, key=lambda look: look.fold_key):
        oracle.fold(look)
    oracle.versions()

Belongs here: the rules of the fold, from the design and not from the code. Does not: what a look
showed (looks). It imports the sandbox's truth and nothing else of ours. Instants are aware UTC.
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
"""The share of expected rows under which an export makes nothing missing."""
CREDIBLE = timedelta(days=1)
"""How long after it was observed an instant of a row may lie, before it is held to be unknown."""


class Oracle:
    """Folds looks, which must come in the order of their `fold_key`."""

    def __init__(self, showing: Showing) -> None:
        self.showing = showing
        self.events: dict[str, State] = {}
        self.tally: Counter[str] = Counter()
        self._waiting: dict[str, tuple[datetime, datetime]] = {}
        self._lists: list[Listed] = []
        self._watches: list[Watch] = []
        self._top: frozenset[str] | None = None
        self._number = 0

    def fold(self, look: SeenObservation) -> None:
        self._number += 1
        if look.kind in ("export", "events"):
            self._fold_list(look)
        elif look.kind == "event":
            self._fold_look_up(look)
        elif look.kind == "cancellations":
            self._fold_cancellations(look)
        elif look.kind == "deliveries":
            self._observe(self.showing.delivered(look), look)
        elif look.kind == "coins":
            # A partial look tells the ranks of what it shows, and nothing of the others.
            others = frozenset[str]() if look.complete else self._top or frozenset()
            self._top = self.showing.top(look) | others

    def versions(self) -> list[Version]:
        """Return every version, those of an event in order, each ending where the next begins."""
        return [
            replace(version, known_to=following.known_from if following else None)
            for state in self.events.values()
            for version, following in zip(state.versions, [*state.versions[1:], None], strict=True)
        ]

    def _fold_list(self, look: SeenObservation) -> None:
        rows, scope = self.showing.rows(look), self._scope(look)
        trusted = look.complete and not self._flagged(scope, len(rows))
        for row in rows:
            self._observe(row, look)
        if trusted:
            self._miss(scope, {row.event_id for row in rows})
        self._lists.append(replace(scope, trusted=trusted))

    def _scope(self, look: SeenObservation) -> Listed:
        ids = look.categories
        names = None if ids is None else self.showing.category_names(ids)
        return Listed(self._number, look, look.reach(), names)

    def _flagged(self, scope: Listed, rows: int) -> bool:
        """Whether an export brought too few of the rows that were known, or claimed, to come."""
        if scope.look.kind != "export":
            return False
        known = sum(self._is_due(state, scope) for state in self.events.values())
        flagged = rows < ENOUGH * max(known, scope.look.rows_claimed or 0)
        self.tally["flagged exports"] += flagged
        return flagged

    def _is_due(self, state: State, scope: Listed) -> bool:
        """Whether a scheduled event, as it is known, is one that a look should show."""
        if state.status != SCHEDULED or not scope.covers(state.content):
            return False
        if scope.look.rules.top is None:
            return True
        return self._top is not None and not self._top.isdisjoint(state.content["coins"])

    def _miss(self, scope: Listed, shown: set[str]) -> None:
        look = scope.look
        for event_id, state in self.events.items():
            lacking = event_id not in shown and state.content_at < look.content_at
            if not lacking or not self._is_due(state, scope):
                continue
            self._is_missing(state, look)
            if look.kind == "export" and self._gone_from_two_exports(state):
                self._withdraw(state, look, "exports")
            elif look.kind == "export":
                state.absent_from = self._number

    def _is_missing(self, state: State, look: SeenObservation) -> None:
        if state.missing_since is None:
            state.missing_since = look.observed_at
            self.tally[f"missing from {look.kind} of {look.plan}"] += 1

    def _gone_from_two_exports(self, state: State) -> bool:
        """Whether the export before, of those that cover it, lacked it too, and in between
        the cancellations since it was last known were looked at."""
        before = self._export_before(state.content)
        if before is None or state.absent_from != before:
            return False
        watches = [watch for watch in self._watches if watch.number > before]
        watched = any(watch.since <= state.content_at for watch in watches)
        if not watched:
            self.tally["twice absent, not looked at" + " far enough back" * bool(watches)] += 1
        return watched

    def _export_before(self, content: Content) -> int | None:
        for scope in reversed(self._lists):
            if scope.trusted and scope.look.kind == "export" and scope.covers(content):
                return scope.number
        return None

    def _fold_look_up(self, look: SeenObservation) -> None:
        assert look.event_id is not None
        found = self.showing.looked_up(look)
        if isinstance(found, Row):
            self._observe(found, look)
        elif found is not None:
            self.tally["410"] += 1
            self._cancel(look.event_id, found, look, look.content_at)
        elif look.complete:
            self.tally["404"] += 1
            self._not_found(look)

    def _not_found(self, look: SeenObservation) -> None:
        assert look.event_id is not None
        state = self.events.get(look.event_id)
        scope = self._scope(look)
        if state is None or not scope.covers(state.content):
            return
        if not look.rules.shows_all_upcoming:
            if state.content_at < look.content_at and self._is_due(state, scope):
                self._is_missing(state, look)
        elif look.content_at < state.content_at:
            self.tally["stale 404"] += 1
        elif state.status == SCHEDULED:
            self._withdraw(state, look, "404")
        elif state.status == WITHDRAWN:
            state.content_at = look.content_at

    def _withdraw(self, state: State, look: SeenObservation, why: str) -> None:
        self.tally[f"withdrawn by {why}"] += 1
        after = state.found(look.content_at)
        state.status = WITHDRAWN
        state.add(look, [WITHDRAWN], ["status"], after)

    def _fold_cancellations(self, look: SeenObservation) -> None:
        for cancelled_at, event_id in self.showing.cancellations(look):
            true_at = min(cancelled_at, look.observed_at)
            self._cancel(event_id, cancelled_at, look, true_at)
        if look.complete and look.since is not None:
            since = look.since
            for watch in reversed(self._watches):
                if since <= watch.content_at:
                    since = min(since, watch.since)
            self._watches.append(Watch(self._number, look.content_at, since))

    def _cancel(
        self, event_id: str, cancelled_at: datetime, look: SeenObservation, content_at: datetime
    ) -> None:
        state = self.events.get(event_id)
        if state is None:
            waiting = self._waiting.get(event_id)
            if waiting is None or waiting[0] <= content_at:
                self._waiting[event_id] = content_at, cancelled_at
            return
        if content_at < state.content_at:
            self.tally["stale cancellations"] += 1
            return
        after = state.found(content_at)
        changed = changed_status(state, CANCELLED, cancelled_at)
        if changed:
            self.tally["cancelled after withdrawn"] += state.status == WITHDRAWN
            state.status, state.cancelled_at = CANCELLED, cancelled_at
            state.add(look, [CANCELLED], changed, after)

    def _observe(self, row: Row, look: SeenObservation) -> None:
        state = self.events.get(row.event_id)
        if state is None:
            self._first(row, look)
            return
        older = look.content_at < state.content_at
        said, held = _updated(row.content, look.observed_at), state.updated_at
        if older or (said is not None and held is not None and said < held):
            self.tally[f"stale {look.kind}"] += 1
            return
        self.tally["found again"] += state.missing_since is not None
        after, before = state.found(look.content_at), state.content
        state.content, state.last_seen_at = merged(before, row.content), look.observed_at
        state.updated_at = said
        kinds, changed = compared(before, state.content)
        moved = changed_status(state, row.status, row.cancelled_at)
        if moved:
            kinds.add("restored" if row.status == SCHEDULED else row.status)
        state.status, state.cancelled_at = row.status, row.cancelled_at
        if kinds:
            self.tally["scores unknown by their band"] += "impact" in before.keys() - state.content
            state.add(look, in_order(kinds), changed | moved, after)

    def _first(self, row: Row, look: SeenObservation) -> None:
        state = State(
            event_id=row.event_id,
            content=row.content,
            content_at=look.content_at,
            first_seen_at=look.observed_at,
            last_seen_at=look.observed_at,
            status=row.status,
            cancelled_at=row.cancelled_at,
            updated_at=_updated(row.content, look.observed_at),
        )
        waiting = self._waiting.pop(row.event_id, None)
        as_old = waiting is not None and waiting[0] == look.content_at
        if waiting is not None and (
            waiting[0] > look.content_at or (as_old and row.status == SCHEDULED)
        ):
            state.content_at, state.cancelled_at = waiting
            state.status = CANCELLED
            self.tally["cancellations that waited"] += 1
        self.events[row.event_id] = state
        if row.content["created_at"] < look.observed_at:
            state.claim(look, row.content)
        first = "created" if self._was_watched(row, look.observed_at) else "revealed"
        state.add(look, [first, CANCELLED] if state.status == CANCELLED else [first])

    def _was_watched(self, row: Row, observed_at: datetime) -> bool:
        """Whether a look before an event was created would have shown it, had it been there."""
        created_at, date = row.content["created_at"], row.content["date"]
        if created_at > observed_at + CREDIBLE:
            return False
        reaching = [
            scope
            for scope in self._lists
            if scope.look.content_at < created_at and scope.reach.holds(date)
        ]
        watched = any(
            scope.trusted and scope.look.rules.top is None and passes(scope.look, row)
            for scope in reaching
        )
        self.tally["first seen though half watched"] += bool(reaching) and not watched
        return watched


def _updated(content: Content, observed_at: datetime) -> datetime | None:
    """Return when the content was last updated, as far as that can be."""
    said: datetime = content["updated_at"]
    return said if said <= observed_at + CREDIBLE else None
