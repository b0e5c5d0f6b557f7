"""A home that is published again and again, and an independent record of what each added."""

import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import duckdb

from tests.history.stories.handmade import HandmadeHome, event
from warehouse.history.merge import replay

STARTS = datetime(2026, 3, 2, tzinfo=UTC)
Version = tuple[Any, ...]
"""Event, `known_from` in microseconds, status and title. Each change has another title."""


class Publications:
    """Publishes a home in random ways. Each change has a title of its own."""

    def __init__(self, home: HandmadeHome, seed: int) -> None:
        self.home = home
        home.home.claim("by hand")
        self.added: list[Counter[Version]] = []
        """What each publication added to the one before."""
        self.published = Counter[Version]()
        self.batches = 0
        self._random = random.Random(seed)
        self._time = STARTS + timedelta(hours=6)

    def publish(self, *, replaying: bool = True) -> None:
        """Publish once more; without `replaying`, each publication adds versions."""
        kinds = ["poll", "poll", "late delivery", "import", "look-up"]
        kind = self._random.choice(kinds + ["replay"] * replaying) if self.batches else "poll"
        self._time += timedelta(minutes=self._random.randint(20, 900))
        getattr(self, "_" + kind.replace(" ", "_").replace("-", "_"))()
        self.batches += 1
        self.home.merge()
        self.note()

    def note(self) -> None:
        """Note what the published file adds to the one before."""
        before, self.published = self.published, versions_in(self.home)
        self.added.append(self.published - before)

    def _poll(self) -> None:
        ids = self._random.sample("abcdef", self._random.randint(1, 4))
        self.home.listed(_when(self._time), *map(self._event, ids), why_incomplete="cut")

    def _late_delivery(self) -> None:
        """Land deliveries that were received before the last poll, on any day."""
        last = max(STARTS, self._time - timedelta(hours=self._random.randint(1, 40)))
        # A batch has deliveries of one day.
        last = max(last, last.replace(hour=0, minute=7, second=0))
        pushed = [last - timedelta(minutes=n) for n in (7, 3, 0)]
        self.home.deliveries(
            *(
                (_when(at), f"{at:%Y-%m-%dT%H:%M:%SZ}", self._event("abc"[n], at))
                for n, at in enumerate(pushed)
            )
        )

    def _import(self) -> None:
        at = max(STARTS, self._time - timedelta(hours=self._random.randint(2, 60)))
        ids = self._random.sample("abcdef", 3)
        self.home.export(_when(at), *(self._event(each, at) for each in ids))

    def _look_up(self) -> None:
        self.home.look_up(_when(self._time), self._random.choice("abcdef"), 404)

    def _replay(self) -> None:
        replay(self.home.home)

    def _event(self, event_id: str, at: datetime | None = None) -> dict[str, Any]:
        updated = (at or self._time) - timedelta(minutes=2)
        return event(
            event_id,
            title=f"title {self.batches} {event_id}",
            updatedAt=f"{updated:%Y-%m-%dT%H:%M:%SZ}",
        )


def versions_in(home: HandmadeHome) -> Counter[Version]:
    with duckdb.connect(str(home.home.warehouse), read_only=True) as connection:
        query = "SELECT event_id, epoch_us(known_from), status, title FROM event_versions"
        return Counter(connection.execute(query).fetchall())


def version_of(change: dict[str, Any]) -> Version:
    """Return a change of the interface as `versions_in` returns a version."""
    known_from = datetime.fromisoformat(change["knownFrom"])
    micros = (known_from - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    return change["id"], micros, change["status"], change["event"]["title"]


def _when(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S}"
