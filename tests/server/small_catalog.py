"""A hand-made catalog in the store, and the application over it."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import Any

from catalog.sandbox.history import insert, open_tables, release_versions
from catalog.sandbox.world.dates import DAY_S, to_seconds
from catalog.server.catalog_store import StoredEvent
from catalog.server.sql_store import SqlStore
from tests.server.bare_server import BareServer, bare_server, linked
from tests.server.bare_server import event as bare_event

TODAY = datetime(2026, 6, 15, tzinfo=UTC)
DAY = timedelta(days=1)
SECOND = timedelta(seconds=1)
FIRST = datetime(2016, 1, 1, tzinfo=UTC)
"""When the catalog begins."""
CATEGORIES = {"airdrop": "Airdrop", "fork": "Hard Fork", "release": "Release"}
COINS = (
    ("first", 1, True),
    ("hundredth", 100, True),
    ("next", 101, False),
    ("unranked", None, True),
)
"""Slug, rank, and whether it is tracked."""
CONTENT = [name for name in StoredEvent.__struct_fields__ if name not in ("id", "impact_band")]


def event(event_id: str, date: datetime = TODAY + DAY, **fields: Any) -> StoredEvent:
    """Return an event; `coins` are given by slug and `categories` by id."""
    fields = {"categories": ("release", "fork"), "coins": ("first", "hundredth"), **fields}
    fields["categories"] = tuple(CATEGORIES[name] for name in fields["categories"])
    fields["coins"] = tuple(map(linked, fields["coins"]))
    return bare_event(event_id, date, **fields)


@dataclass
class View:
    """What a list shows: the scheduled events, and the cancelled ones with their times."""

    events: dict[str, StoredEvent] = field(default_factory=dict)
    cancelled: dict[str, datetime] = field(default_factory=dict)


def view(
    events: Sequence[StoredEvent] = (), *, cancelled: Mapping[str, datetime] | None = None
) -> View:
    return View({event.id: event for event in events}, dict(cancelled or {}))


class TimedStore:
    """A view, and later ones, each valid from a time on, as the versions that they show."""

    def __init__(self, first: View, *later: tuple[datetime, View]) -> None:
        self.connection = open_tables()
        coins = [(slug, slug[:3], slug.title(), f"https://i.example/{slug}") for slug, *_ in COINS]
        names = ("slug", "symbol", "name", "icon_url")
        insert(
            self.connection, "insert_coins", [dict(zip(names, row, strict=True)) for row in coins]
        )
        categories = [{"id": id_, "name": name} for id_, name in CATEGORIES.items()]
        insert(self.connection, "insert_categories", categories)
        ranks = [dict(zip(("coin", "rank", "tracked"), row, strict=True)) for row in COINS]
        insert(self.connection, "insert_ranks", ranks, day=to_seconds(FIRST) // DAY_S)
        known, rows = View(), dict[str, list[dict[str, Any]]]()
        for at, found in ((FIRST, first), *later):
            for event_id in {*known.events, *known.cancelled, *found.events, *found.cancelled}:
                shown = found.events.get(event_id), found.cancelled.get(event_id)
                if shown != (known.events.get(event_id), known.cancelled.get(event_id)):
                    _add(rows.setdefault(event_id, []), at, event_id, *shown)
            known = found
        versions = [
            {
                name: to_seconds(value) if isinstance(value, datetime) else value
                for name, value in row.items()
            }
            for row in chain.from_iterable(rows.values())
        ]
        insert(self.connection, "add_waiting_versions", versions)
        release_versions(self.connection, to_seconds(datetime.max.replace(tzinfo=UTC)))
        self.sql = SqlStore(self.connection, identity="small", feed_id="small")


def _add(
    versions: list[dict[str, Any]],
    at: datetime,
    event_id: str,
    event: StoredEvent | None,
    cancelled_at: datetime | None,
) -> None:
    row: dict[str, Any] = dict.fromkeys(CONTENT)
    if versions:
        versions[-1]["known_to"] = at
        row |= versions[-1]
    if event is not None:
        row |= {name: getattr(event, name) for name in CONTENT}
        row["coins"] = [coin.slug for coin in event.coins]
    gone = "withdrawn" if cancelled_at is None else "cancelled"
    row |= {
        "event_id": event_id,
        "version": len(versions) + 1,
        "known_from": at,
        "known_to": None,
        "status": gone if event is None else "scheduled",
        "cancelled_at": cancelled_at,
        "change_kinds": ["revised"] if versions else ["created"],
    }
    before = versions[-1] if versions else row
    compared = [*CONTENT, "status", "cancelled_at"]
    row["changed_fields"] = [name for name in compared if row[name] != before[name]]
    versions.append(row)


class Service(BareServer):
    """The application over a small catalog, and a client of it."""

    def ids(self, path: str, key: str = "elite") -> list[str]:
        answer = self.get(path, key)
        assert answer.status_code == 200, answer.text
        return [row["id"] for row in answer.json()["data"]]

    def pages(self, path: str, key: str = "elite") -> list[dict[str, Any]]:
        """Follow the cursors to the end; return every page."""
        pages = [self.get(path, key).json()]
        while pages[-1]["meta"]["cursor"] is not None:
            pages.append(self.get(f"{path}&cursor={pages[-1]['meta']['cursor']}", key).json())
            assert len(pages) < 500, "the cursors never end"
        return pages


@contextmanager
def serving(store: TimedStore | View) -> Iterator[Service]:
    timed = store if isinstance(store, TimedStore) else TimedStore(store)
    with bare_server(store=timed.sql) as server:
        yield Service(server.client, timed, server.clock, server.usage)
