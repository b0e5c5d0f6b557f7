"""Deliveries as a service sends them, made by hand; the bodies in an inbox and in landing."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

from warehouse.home import Home
from warehouse.landing.inbox import Inbox, State

START = datetime(2026, 3, 1, 12, tzinfo=UTC)


class Clock:
    """A clock that a test sets."""

    def __init__(self, now: datetime = START) -> None:
        self.instant = now

    def now(self) -> datetime:
        return self.instant

    def advance(self, **by: float) -> None:
        self.instant += timedelta(**by)


def event(number: int, *, at: datetime = START, **changed: Any) -> dict[str, Any]:
    text = at.isoformat().replace("+00:00", "Z")
    return {
        **{"id": f"evt_{number}", "slug": f"event-{number}", "title": f"Event {number}"},
        **{"description": None, "displayedDate": "01 Jun 2026", "date": "2026-06-01T00:00:00Z"},
        **{"dateEnd": None, "dateType": "date", "isEstimated": False, "categories": ["Other"]},
        **{"coins": [{"slug": "bitcoin", "symbol": "btc", "name": "Bitcoin"}], "impact": 5.5},
        **{"impactSummary": None, "sourceUrl": None, "snapshotUrl": None},
        **{"lastVerifiedAt": None, "createdAt": text, "updatedAt": text},
        **changed,
    }


def delivery(number: int, *, kind: str = "created", at: datetime = START, **changed: Any) -> bytes:
    """Return the body of a delivery of one event, in the documented form."""
    body = {
        "id": f"evt_dlv_{number}",
        "type": f"events.{kind}",
        "apiVersion": "2025-10-01",
        "deliveredAt": at.isoformat(),
        "data": event(number, at=at, **changed),
    }
    return json.dumps(body).encode()


def store(home: Home, at: datetime, *bodies: bytes) -> None:
    """Store deliveries, each received a microsecond after the one before."""
    for number, body in enumerate(bodies):
        Inbox(home).store(body, at + number * timedelta(microseconds=1))


def bodies_in(home: Home, state: State = "waiting") -> list[bytes]:
    """Return the bodies in an inbox, in order of receipt."""
    inbox = Inbox(home)
    return [inbox.read(name, state).body for name in inbox.names(state)]


def landed_bodies(home: Home) -> dict[str, list[bytes]]:
    """Return the bodies of each batch of deliveries, by its id."""
    landing = home.landing
    return {
        batch_id: [body for _, body in landing.pages(landing.manifest(batch_id))]
        for batch_id in landing.batch_ids()
        if "-deliveries-" in batch_id
    }
