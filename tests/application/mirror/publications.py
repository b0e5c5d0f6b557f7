"""A home that is published again and again, and an independent record of what each added."""

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.history.stories.handmade import HandmadeHome, event
from tests.reading import reading
from warehouse.history.merge import rebuild

STARTS = datetime(2026, 3, 2, 6, tzinfo=UTC)
DAY = timedelta(days=1)
Version = tuple[Any, ...]
"""Event, `known_from` in microseconds, status and title. Each change has another title."""


class Publications:
    """Publishes a home in several ways. Each change has a title of its own."""

    def __init__(self, home: HandmadeHome) -> None:
        self.home = home
        home.home.claim("by hand")
        self.added: list[Counter[Version]] = []
        """What each publication added to the one before."""
        self.published = Counter[Version]()

    def publish(self, kind: str = "poll") -> None:
        number = len(self.added)
        at = STARTS + number * DAY
        # These were received or exported before the last poll, and become known after it.
        if kind in ("late delivery", "late export"):
            at -= timedelta(hours=30)
        updated = f"{at - timedelta(minutes=2):%Y-%m-%dT%H:%M:%SZ}"
        rows = [
            event(name, title=f"title {number} {name}", updatedAt=updated)
            for name in "abc"[number % 2 :]
        ]
        when = f"{at:%Y-%m-%d %H:%M:%S}"
        if kind == "poll":
            self.home.listed(when, *rows, why_incomplete="cut")
        elif kind == "late export":
            self.home.export(when, *rows)
        elif kind == "late delivery":
            self.home.deliveries((when, updated, rows[0]))
        else:
            rebuild(self.home.home)
        self.home.merge()
        before, self.published = self.published, versions_in(self.home)
        self.added.append(self.published - before)


def versions_in(home: HandmadeHome) -> Counter[Version]:
    with reading(home.home) as connection:
        query = "SELECT event_id, epoch_us(known_from), status, title FROM event_versions"
        return Counter(connection.execute(query).fetchall())


def version_of(change: dict[str, Any]) -> Version:
    """Return a change of the interface as `versions_in` returns a version."""
    known_from = datetime.fromisoformat(change["knownFrom"])
    micros = (known_from - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    return change["id"], micros, change["status"], change["event"]["title"]
