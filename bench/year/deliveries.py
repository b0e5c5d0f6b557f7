"""What the home of the year lands, at any time: small deliveries that the real merge folds.

A full catalog would take a day to merge for a year; what warnings depend on is when which feed
arrived, and whether it was merged and published. Belongs here: landing, merging, publishing. Does
not: what happens when (faults, simulation).
"""

import csv
import io
from datetime import datetime
from typing import Any, Final

import msgspec

from catalog.contract.records import EVENT_FIELDS
from warehouse.history.change_log import ChangeLog
from warehouse.history.merge import merge
from warehouse.home import Home
from warehouse.landing.batches import Feed, Manifest, Scope
from warehouse.landing.landing import Pull
from warehouse.publish.publish import publish

SOURCE: Final = "sandbox:1"
PLAN: Final = "elite"
_EVENT: Final = {
    "id": "e1",
    "slug": "mainnet-launch",
    "title": "Mainnet launch",
    "description": "Goes live",
    "displayedDate": "08 Oct",
    "date": "2036-10-08T00:00:00Z",
    "dateType": "date",
    "categories": "Mainnet",
    "coins": "bitcoin",
    "impact": "7.5",
    "impactSummary": "Large",
    "sourceUrl": "https://example.org/1",
    "isEstimated": "false",
    "createdAt": "2024-02-01T10:00:00Z",
    "updatedAt": "2024-02-02T10:00:00Z",
}
_COIN: Final = {"slug": "bitcoin", "symbol": "btc", "name": "Bitcoin"}


class Deliveries:
    """Deliveries of one event, which gets another title each time, to a home."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._landed = 0
        home.claim(SOURCE)

    def daily(self, at: datetime) -> None:
        """Land and merge a daily pull of every feed."""
        self.land_all(at)
        self.merge(at)

    def land_all(self, at: datetime) -> None:
        """Land a daily pull of every feed."""
        self._land("export", at, self._export())
        self.news(at)
        for feed in ("cancellations", "coins", "categories"):
            self._land(feed, at, b'{"data": [], "meta": {"total": 0}}')

    def news(self, at: datetime, *, why_incomplete: str | None = None) -> None:
        """Land a list of events with another title."""
        self._landed += 1
        event = {name: _EVENT.get(name) for name in EVENT_FIELDS} | {
            "title": f"Mainnet launch {self._landed}",
            "isEstimated": False,
            "impact": 7.5,
            "categories": ["Mainnet"],
            "coins": [_COIN],
        }
        body = msgspec.json.encode({"data": [event], "meta": {"total": 1}})
        self._land("events", at, body, why_incomplete=why_incomplete)

    def no_catalog(self, at: datetime) -> str:
        """Land and merge a page that is none of the catalog; return the id of its batch."""
        landed = self._land("coins", at, b"<html></html>")
        self.merge(at)
        return landed.batch_id

    def dismiss(self, batch_id: str) -> None:
        """Decide that a quarantined batch needs no warning."""
        self._home.landing.dismiss(batch_id)

    def merge(self, at: datetime) -> None:
        """Merge what waits, and publish it at a time."""
        home = self._home
        merge(home, publishing=False)
        with home.merge_lock():
            publish(
                home.lake,
                home.warehouse,
                chain=ChangeLog.of(home).days(),
                state_folder=home.state,
                now=lambda: at,
            )

    def _export(self) -> bytes:
        text = io.StringIO(newline="")
        rows = csv.DictWriter(text, EVENT_FIELDS, lineterminator="\r\n")
        rows.writeheader()
        rows.writerow({**_EVENT, "title": f"Mainnet launch {self._landed}"})
        return text.getvalue().encode()

    def _land(self, feed: Feed, at: datetime, body: bytes, **how: Any) -> Manifest:
        pull = Pull(
            feed=feed,
            scope=Scope(),
            plan=PLAN,
            source=SOURCE,
            observed_at=at,
            content_at=at,
            landed_at=at,
            requests=1,
            **how,
        )
        return self._home.landing.land(pull, [(body, None)])
