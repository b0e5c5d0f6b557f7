"""Deliveries as a customer's endpoint would receive them: most at once, some late or twice."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any
from zlib import crc32

from tests.history.model.observations import SeenObservation
from tests.sandbox.true_world import Change, TrueEvent, World
from warehouse.landing.batches import Manifest, Pull, Scope

DELIVERED_SHARE = 0.45
"""The share of changes that are delivered; only pulls show the others."""
REPEATED_SHARE = 0.12
Post = tuple[Pull, list[tuple[bytes, datetime]], list[SeenObservation]]
"""A batch to land: the pull, its bodies with their receipts, its observations."""
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
class _PendingDelivery:
    event_id: str
    change_at: datetime
    received_at: datetime


class DeliveryReceiver:
    """Records changes and yields them in batches, each of receipts of one UTC day."""

    def __init__(self, world: World, source: str) -> None:
        self._world = world
        self._source = source
        self._waiting: list[_PendingDelivery] = []
        self._recorded_until: datetime | None = None

    def record_changes(self, now: datetime) -> None:
        """Record the changes since the last call, of the last eight hours at most."""
        since = max(self._recorded_until or now - _BACK, now - _BACK)
        self._recorded_until = now
        for change in self._world.changes(since, now):
            if _chance(
                "heard", change.event_id, change.at
            ) < DELIVERED_SHARE and self._is_delivered(change):
                self._waiting += _deliveries_of(change)

    def record_change(self, change: Change) -> None:
        """Record one change at once; it may be recorded again later."""
        received_at = change.at + timedelta(seconds=2)
        self._waiting.append(_PendingDelivery(change.event_id, change.at, received_at))

    def record_cancelled_late(self, since: datetime, now: datetime) -> None:
        """Record now, over some hours, how events were before they were cancelled."""
        for number, change in enumerate(self._world.changes(since, now)):
            before = self._world.history(change.event_id, change.at)[-2:]
            if "cancelled" in change.kinds and before[0].status == "scheduled":
                received_at = now + timedelta(minutes=7 * number % 600, seconds=number)
                delivery = _PendingDelivery(change.event_id, before[0].known_from, received_at)
                self._waiting.append(delivery)

    def collect(self, now: datetime) -> Iterator[Post]:
        """Yield the deliveries received until now as batches, the bodies in no order."""
        received = [delivery for delivery in self._waiting if delivery.received_at <= now]
        self._waiting = [delivery for delivery in self._waiting if delivery.received_at > now]
        received.sort(key=lambda delivery: delivery.received_at)
        for _, deliveries in groupby(received, key=lambda delivery: delivery.received_at.date()):
            yield self._batch(list(deliveries), now)

    def _batch(self, deliveries: list[_PendingDelivery], now: datetime) -> Post:
        last = deliveries[-1].received_at
        deliveries.sort(key=lambda delivery: _chance(delivery.event_id, delivery.received_at))
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
        observations = [
            SeenObservation(
                kind="deliveries",
                observed_at=delivery.received_at,
                plan=_PLAN,
                batch_id="",
                event_id=delivery.event_id,
                change_at=delivery.change_at,
                place=place,
            )
            for place, delivery in enumerate(deliveries)
        ]
        return (
            pull,
            [(self._body(delivery), delivery.received_at) for delivery in deliveries],
            observations,
        )

    def _is_delivered(self, change: Change) -> bool:
        status = self._world.status_at(change.event_id, change.at)
        return status != "withdrawn" and set(change.kinds) != {"verified"}

    def _body(self, delivery: _PendingDelivery) -> bytes:
        version = self._world.history(delivery.event_id, delivery.change_at)[-1]
        kind, data = "updated", self._data(version.event, delivery.change_at)
        if version.status == "cancelled":
            kind = "cancelled"
            data["cancelledAt"] = _text(delivery.change_at)
        elif "created" in version.kinds:
            kind = "created"
        body = {
            "id": f"evt_{delivery.event_id[:12]}_{delivery.change_at:%Y%m%d%H%M%S}",
            "type": f"event.{kind}",
            "createdAt": _text(delivery.change_at),
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


def with_batch(manifest: Manifest, observation: SeenObservation) -> SeenObservation:
    """Return a delivery's observation with the batch that has it."""
    return replace(observation, batch_id=manifest.batch_id)


def _deliveries_of(change: Change) -> list[_PendingDelivery]:
    """Return the delivery of a change, for some changes twice."""
    late = _chance("late", change.event_id, change.at)
    wait = timedelta(seconds=3)
    if late < 0.06:
        wait = timedelta(hours=20 + 400 * late)
    elif late < 0.3:
        wait = timedelta(minutes=5 + 2_000 * (late - 0.06))
    wait -= timedelta(microseconds=wait.microseconds)
    delivery = _PendingDelivery(change.event_id, change.at, change.at + wait)
    repeat = _chance("again", change.event_id, change.at)
    if repeat >= REPEATED_SHARE:
        return [delivery]
    second = delivery.received_at + timedelta(minutes=1 + int(2_000 * repeat))
    return [delivery, replace(delivery, received_at=second)]


def _plain(value: Any) -> Any:
    return _text(value) if isinstance(value, datetime) else value


def _text(instant: datetime) -> str:
    return f"{instant:%Y-%m-%dT%H:%M:%SZ}"


def _chance(*parts: object) -> float:
    return crc32("/".join(map(str, parts)).encode()) / 2**32
