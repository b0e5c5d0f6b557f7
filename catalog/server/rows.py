"""Rows as a plan sees them, encoded; each made once while its view lives.

A view never changes, so a row made for it stays right. What is kept is rows and not answers:
paging, filters, totals and tags are worked out for every request.
"""

from collections import deque
from collections.abc import Iterable

import msgspec
from msgspec import Raw

from catalog.contract.plans import Plan
from catalog.contract.windows import Window
from catalog.server.gating import ViewNames, shown_coin, shown_event
from catalog.server.store import CatalogView, StoredCoin, StoredEvent

_VIEWS_KEPT = 4
_ROWS_KEPT = 100_000
"""Events of each plan; some 90 MB. When there are more, all are made anew."""

_encode = msgspec.json.Encoder().encode


class Rows:
    """The encoded rows of one view."""

    def __init__(self, view: CatalogView) -> None:
        self.view = view
        self._names = ViewNames(view, view.categories())
        self._events: dict[str, dict[str, Raw]] = {}
        self._coins: dict[tuple[str, Window], dict[str, Raw]] = {}

    def events(self, events: Iterable[StoredEvent], plan: Plan) -> tuple[Raw, ...]:
        known = self._events.setdefault(plan.name, {})
        if len(known) >= _ROWS_KEPT:
            known.clear()
        return tuple(
            [known.get(event.id) or self._make_event(event, plan, known) for event in events]
        )

    def coins(self, coins: Iterable[StoredCoin], plan: Plan, upcoming: Window) -> tuple[Raw, ...]:
        """Return the coins with the counters of their events in the window."""
        known = self._coins.setdefault((plan.name, upcoming), {})
        return tuple(
            [known.get(coin.slug) or self._make_coin(coin, plan, upcoming) for coin in coins]
        )

    def _make_event(self, event: StoredEvent, plan: Plan, known: dict[str, Raw]) -> Raw:
        row = known[event.id] = Raw(_encode(shown_event(event, plan, self._names)))
        return row

    def _make_coin(self, coin: StoredCoin, plan: Plan, upcoming: Window) -> Raw:
        row = Raw(_encode(shown_coin(coin, plan, self.view, upcoming)))
        self._coins[(plan.name, upcoming)][coin.slug] = row
        return row


class RowsOfViews:
    """The rows of the views that were last asked for; an older view is let go with its rows."""

    def __init__(self) -> None:
        self._kept: deque[Rows] = deque(maxlen=_VIEWS_KEPT)

    def of(self, view: CatalogView) -> Rows:
        for rows in self._kept:
            if rows.view is view:
                return rows
        rows = Rows(view)
        self._kept.appendleft(rows)
        return rows
