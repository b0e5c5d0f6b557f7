"""A home to which looks are told one by one, at instants chosen to the second.

Belongs here: bodies and their landing, questions to what was published. Does not: what is right.
"""

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tests.history.telling import reading
from warehouse.batches import Feed, Scope
from warehouse.home import Home
from warehouse.landing import Pull
from warehouse.merge import merge

_WHOLE = Scope(lower=datetime(2017, 1, 1, tzinfo=UTC), upper=datetime(2030, 1, 1, tzinfo=UTC))
_LAG = timedelta(minutes=1)
_NOTHING: Mapping[str, Any] = {}


def at(text: str) -> datetime:
    """Return an instant of March 2026: `02 10:30` is the second, half past ten."""
    return datetime.strptime(f"2026-03-{text}", "%Y-%m-%d %H:%M").replace(tzinfo=UTC)


def event(event_id: str, **other: Any) -> dict[str, Any]:
    """Return an event as Elite shows it, never updated; what is given as `...` is absent."""
    told = {
        **{"id": event_id, "slug": event_id, "title": f"First {event_id}", "description": None},
        **{"displayedDate": "01 Jun 2026", "date": "2026-06-01T00:00:00Z", "dateEnd": None},
        **{"dateType": "date", "isEstimated": False, "categories": ["Listing"]},
        **{"coins": [{"slug": "bitcoin", "symbol": "BTC", "name": "Bitcoin"}], "impact": 5.0},
        **{"impactSummary": None, "sourceUrl": None, "snapshotUrl": None},
        **{"lastVerifiedAt": None, "createdAt": "2026-01-01T00:00:00Z"},
        **{"updatedAt": "2026-01-01T00:00:00Z", **other},
    }
    return {name: value for name, value in told.items() if value is not ...}


def coin(slug: str, **other: Any) -> dict[str, Any]:
    told = {"slug": slug, "symbol": slug[:3], "name": slug.title(), "rank": 1, "tracked": True}
    return {
        **told,
        "iconUrl": None,
        "upcomingCount": 1,
        "majorCount": 0,
        "peakImpact": 1.0,
        **other,
    }


class ByHand:
    """A home, told in any order; `merge` when it is to take effect."""

    def __init__(self, root: Path) -> None:
        self.home = Home(root)

    def merge(self) -> None:
        merge(self.home)

    def listed(self, when: str, *events: dict[str, Any], **how: Any) -> None:
        self._land("events", when, [(_page(*events), None)], **how)

    def listed_by_category(self, when: str, ids: tuple[str, ...], *events: dict[str, Any]) -> None:
        scope = Scope(lower=_WHOLE.lower, upper=_WHOLE.upper, categories=ids)
        self._land("events", when, [(_page(*events), None)], scope=scope)

    def export(self, when: str, *events: dict[str, Any]) -> None:
        self._land("export", when, [(_page(*events), None)])

    def categories(self, when: str, **names: str) -> None:
        """Tell the categories: ids (each begun by a `c`, which is cut) and names."""
        rows = [{"id": key.removeprefix("c"), "name": name} for key, name in names.items()]
        self._land("categories", when, [(_page(*rows), None)], scope=Scope())

    def coins(self, when: str, *coins: dict[str, Any], **how: Any) -> None:
        self._land("coins", when, [(_page(*coins), None)], scope=Scope(), **how)

    def cancellations(self, when: str, *, since: str = "01 00:00", **cancelled: str) -> None:
        rows = [{"id": event_id, "cancelledAt": told} for event_id, told in cancelled.items()]
        self._land("cancellations", when, [(_page(*rows), None)], scope=Scope(since=at(since)))

    def look_up(
        self, when: str, event_id: str, status: int, body: Mapping[str, Any] = _NOTHING, **how: Any
    ) -> None:
        told = json.dumps({"error": {"code": "gone", "message": "gone"}, **body}).encode()
        scope = Scope(event_id=event_id)
        self._land("event", when, [(told, None)], scope=scope, status=status, **how)

    def deliveries(self, *received: tuple[str, str, dict[str, Any]]) -> None:
        """Tell deliveries of one batch: when received, when created, the event."""
        bodies: list[tuple[bytes, datetime | None]] = []
        for when, created, one in received:
            kind = "event.cancelled" if "cancelledAt" in one else "event.updated"
            told = {"type": kind, "createdAt": created, "data": one}
            bodies.append((json.dumps(told).encode(), at(when)))
        self._land("deliveries", received[-1][0], bodies, scope=Scope(), true=received[0][0])

    def release_flagged(self) -> None:
        """Trust the batches that were flagged."""
        for (batch_id,) in self.rows("SELECT batch_id FROM batches WHERE flagged IS NOT NULL"):
            self.home.landing.release(batch_id)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        with reading(self.home) as connection:
            return connection.sql(query).fetchall()

    def versions(self, event_id: str, columns: str) -> list[tuple[Any, ...]]:
        """Return some columns of each observed version of an event."""
        return self.rows(
            f"SELECT {columns} FROM event_versions "
            f"WHERE event_id = '{event_id}' AND version > 0 ORDER BY version"
        )

    def _land(
        self,
        feed: Feed,
        when: str,
        bodies: list[tuple[bytes, datetime | None]],
        *,
        scope: Scope = _WHOLE,
        true: str | None = None,
        status: int = 200,
        why_incomplete: str | None = None,
        plan: str = "elite",
    ) -> None:
        pull = Pull(
            feed=feed,
            scope=scope,
            plan=plan,
            source="by hand",
            observed_at=at(when),
            content_at=at(when) - _LAG if true is None else at(true),
            landed_at=at(when),
            requests=1,
            why_incomplete=why_incomplete,
        )
        self.home.landing.land(pull, bodies, status=status)


def _page(*rows: dict[str, Any]) -> bytes:
    return json.dumps({"data": rows, "meta": {"total": len(rows)}}).encode()
