"""How long it takes from the POST of a delivery to its row in the warehouse.

The sandbox's own sender posts one delivery at random moments. A thread looks at the published file
until it has the row. Belongs here: these seconds. Does not: who merges.
"""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from statistics import median, quantiles
from threading import Event, Thread

import almanac
from bench.push.deliveries import Deliveries
from bench.push.receiver import Receiver
from catalog.contract.constants import SIGNATURE_HEADER
from catalog.server.webhooks.delivery import Poster
from warehouse.home import Home

_LOOK_EVERY_S = 0.02


@dataclass(frozen=True, slots=True)
class Waits:
    """The seconds from POST to row, and from POST to acknowledgement."""

    seconds: tuple[float, ...]
    acknowledged_s: tuple[float, ...]

    def figures(self) -> dict[str, float]:
        return {
            "deliveries": len(self.seconds),
            "median_s": median(self.seconds),
            "p90_s": quantiles(self.seconds, n=10, method="inclusive")[-1],
            "max_s": max(self.seconds),
            "acknowledged_median_s": median(self.acknowledged_s),
            "acknowledged_max_s": max(self.acknowledged_s),
        }


@dataclass(slots=True)
class _Sent:
    """What was posted and is not seen yet, by the id of the event; and what was seen."""

    waiting: dict[str, float] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)


def waits(home: Home, to: Receiver, *, number: int, gap_max_s: float, give_up_s: float) -> Waits:
    """Post deliveries at random moments, up to `gap_max_s` apart, and wait for each row.

    Raises:
        SystemExit: a delivery was refused, or its row did not come within `give_up_s`.
    """
    sent, acknowledged, random = _Sent(), list[float](), Random(16)
    with _watching(home, sent):
        for delivery in Deliveries(to.path).prepared(number):
            time.sleep(random.uniform(0.0, gap_max_s))
            began = time.monotonic()
            sent.waiting[delivery.event_id] = began
            headers = {
                "Content-Type": "application/json",
                SIGNATURE_HEADER: delivery.signature,
            }
            outcome = asyncio.run(
                Poster().post(to.url, allow_private=True, body=delivery.body, headers=headers)
            )
            acknowledged.append(time.monotonic() - began)
            if not outcome.delivered:
                raise SystemExit(f"a delivery was not acknowledged: {outcome}")
        give_up_at = time.monotonic() + give_up_s
        while sent.waiting:
            if time.monotonic() > give_up_at:
                raise SystemExit(f"not in the warehouse after {give_up_s:g} s: {sent.waiting}")
            time.sleep(0.1)
    return Waits(tuple(sent.seconds), tuple(acknowledged))


@contextmanager
def _watching(home: Home, sent: _Sent) -> Iterator[None]:
    ended = Event()

    def watch() -> None:
        seen = -1
        while not ended.wait(_LOOK_EVERY_S):
            inode = home.warehouse.stat().st_ino
            if inode == seen:
                continue
            seen = inode
            _note_rows(home, sent)

    thread = Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _note_rows(home: Home, sent: _Sent) -> None:
    waiting = list(sent.waiting)
    if not waiting:
        return
    with almanac.open(home.root) as database:
        found = database.sql(
            "SELECT event_id FROM events WHERE event_id IN (SELECT unnest($ids))", ids=waiting
        )
    now = time.monotonic()
    for event_id in found.arrow()["event_id"].to_pylist():
        sent.seconds.append(now - sent.waiting.pop(event_id))
