"""Deliveries as a customer's endpoint would receive them: most at once, some late, twice or astray.

Belongs here: bodies made from the truth, receipts, batches of one day. Does not: HTTP, signatures.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any
from zlib import crc32

from catalog.sandbox.world.records import Change, TrueEvent
from catalog.sandbox.world.world import World
from tests.history.model.observations import SeenObservation
from warehouse.landing.batches import Manifest, Scope
from warehouse.landing.landing import Pull

HEARD = 0.45
"""The share of changes that are delivered at all: the others are left to the looks."""
TWICE = 0.12
Post = tuple[Pull, list[tuple[bytes, datetime]], list[SeenObservation]]
"""A batch to land: what it is, its bodies with their receipts, the looks it stands for."""
_PLAN = "elite"
_BACK = timedelta(hours=8)
_WIRE = {
    **{"id": "id", "slug": "slug", "title": "title", "description": "description"},
    **{"displayedDate": "displayed_date", "date": "date", "dateEnd": "date_end"},
    **{"dateType": "date_type", "isEstimated": "is_estimated", "impact": "impact"},
    **{"impactSummary": "impact_summary", "sourceUrl": "source_url"},
    **{"snapshotUrl": "snapshot_url", "lastVerifiedAt": "last_verified_at"},
    **{"createdAt": "created_at", "updatedAt": "updated_at"},
}


@dataclass(frozen=True, slots=True)
class _Letter:
    event_id: str
    change_at: datetime
    received_at: datetime


class Postbox:
    """Hears of changes and hands them out in batches, each of receipts of one UTC day."""

    def __init__(self, world: World, source: str) -> None:
        self._world = world
        self._source = source
        self._waiting: list[_Letter] = []
        self._heard_until: datetime | None = None

    def hear(self, now: datetime) -> None:
        """Take in what changed since the last time, of the last eight hours at most."""
        since = max(self._heard_until or now - _BACK, now - _BACK)
        self._heard_until = now
        for change in self._world.changes(since, now):
            if _chance("heard", change.event_id, change.at) < HEARD and self._is_delivered(change):
                self._waiting += _letters(change)

    def hear_of(self, change: Change) -> None:
        """Take in one change at once, whether or not it is heard of again."""
        received_at = change.at + timedelta(seconds=2)
        self._waiting.append(_Letter(change.event_id, change.at, received_at))

    def tell_late_of_cancelled(self, since: datetime, now: datetime) -> None:
        """Hear only now what events were like before they were cancelled, over some hours."""
        for number, change in enumerate(self._world.changes(since, now)):
            before = self._world.history(change.event_id, change.at)[-2:]
            if "cancelled" in change.kinds and before[0].status == "scheduled":
                received_at = now + timedelta(minutes=7 * number % 600, seconds=number)
                letter = _Letter(change.event_id, before[0].known_from, received_at)
                self._waiting.append(letter)

    def collect(
        self, now: datetime
    ) -> Iterator[tuple[Pull, list[tuple[bytes, datetime]], list[SeenObservation]]]:
        """Give what was received until now as batches, the bodies in no order."""
        come = [letter for letter in self._waiting if letter.received_at <= now]
        self._waiting = [letter for letter in self._waiting if letter.received_at > now]
        come.sort(key=lambda delivery: delivery.received_at)
        for _, letters in groupby(come, key=lambda delivery: delivery.received_at.date()):
            yield self._batch(list(letters), now)

    def _batch(self, letters: list[_Letter], now: datetime) -> Post:
        last = letters[-1].received_at
        letters.sort(key=lambda version: _chance(version.event_id, version.received_at))
        pull = Pull(
            feed="deliveries",
            scope=Scope(),
            plan=_PLAN,
            source=self._source,
            observed_at=last,
            content_at=last,
            landed_at=now,
            requests=0,
        )
        looks = [
            SeenObservation(
                kind="deliveries",
                observed_at=letter.received_at,
                plan=_PLAN,
                batch_id="",
                event_id=letter.event_id,
                change_at=letter.change_at,
                place=place,
            )
            for place, letter in enumerate(letters)
        ]
        return pull, [(self._body(delivery), delivery.received_at) for delivery in letters], looks

    def _is_delivered(self, change: Change) -> bool:
        status = self._world.status_at(change.event_id, change.at)
        return status != "withdrawn" and set(change.kinds) != {"verified"}

    def _body(self, letter: _Letter) -> bytes:
        version = self._world.history(letter.event_id, letter.change_at)[-1]
        kind, data = "updated", self._data(version.event, letter.change_at)
        if version.status == "cancelled":
            kind = "cancelled"
            data["cancelledAt"] = _text(letter.change_at)
        elif "created" in version.kinds:
            kind = "created"
        body = {
            "id": f"evt_{letter.event_id[:12]}_{letter.change_at:%Y%m%d%H%M%S}",
            "type": f"event.{kind}",
            "createdAt": _text(letter.change_at),
            "data": data,
        }
        return json.dumps(body, ensure_ascii=False).encode()

    def _data(self, event: TrueEvent, at: datetime) -> dict[str, Any]:
        names = {category.id: category.name for category in self._world.categories}
        coins = {coin.slug: coin for coin in self._world.coins_at(at)}
        data = {name: _plain(getattr(event, of)) for name, of in _WIRE.items()}
        data["categories"] = [names[category] for category in event.categories]
        data["coins"] = [
            {"slug": slug, "symbol": coins[slug].symbol, "name": coins[slug].name}
            for slug in event.coins
        ]
        return data


def look_in(manifest: Manifest, look: SeenObservation) -> SeenObservation:
    """Return a delivery's look with the batch it came in."""
    return replace(look, batch_id=manifest.batch_id)


def _letters(change: Change) -> list[_Letter]:
    """Return a change's delivery, and for some a second one of the same."""
    late = _chance("late", change.event_id, change.at)
    wait = timedelta(seconds=3)
    if late < 0.06:
        wait = timedelta(hours=20 + 400 * late)
    elif late < 0.3:
        wait = timedelta(minutes=5 + 2_000 * (late - 0.06))
    wait -= timedelta(microseconds=wait.microseconds)
    letter = _Letter(change.event_id, change.at, change.at + wait)
    again = _chance("again", change.event_id, change.at)
    if again >= TWICE:
        return [letter]
    second = letter.received_at + timedelta(minutes=1 + int(2_000 * again))
    return [letter, replace(letter, received_at=second)]


def _plain(value: Any) -> Any:
    return _text(value) if isinstance(value, datetime) else value


def _text(instant: datetime) -> str:
    return f"{instant:%Y-%m-%dT%H:%M:%SZ}"


def _chance(*parts: object) -> float:
    return crc32("/".join(map(str, parts)).encode()) / 2**32
