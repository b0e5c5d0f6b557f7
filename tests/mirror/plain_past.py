"""The answers of a past time, from the macros of the warehouse and plain lists.

Nothing here uses the mirror or the server: the rows are those of `events_as_of`, `coins_as_of` and
`event_versions`, and the rules of the plans are those of the interface, written as comparisons.
"""

from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

import duckdb

from tests.server.plain_model import BANDS, bounds, refused, text

Row = dict[str, Any]
HIDDEN = {
    "free": {
        *("description", "categories", "impact", "impactSummary"),
        *("sourceUrl", "snapshotUrl", "lastVerifiedAt"),
    },
    "pro": set[str](),
    "elite": set[str](),
}
COLUMNS = {
    "id": "event_id",
    "slug": "slug",
    "title": "title",
    "description": "description",
    "displayedDate": "displayed_date",
    "date": "date",
    "dateEnd": "date_end",
    "dateType": "date_type",
    "isEstimated": "is_estimated",
    "categories": "categories",
    "coins": "coins",
    "impact": "impact",
    "impactSummary": "impact_summary",
    "sourceUrl": "source_url",
    "snapshotUrl": "snapshot_url",
    "lastVerifiedAt": "last_verified_at",
    "createdAt": "created_at",
    "updatedAt": "updated_at",
}
UNRANKED = 2**31


def read(connection: duckdb.DuckDBPyConnection, query: str, **values: Any) -> list[Row]:
    cursor = connection.execute(query, values)
    names = [column[0] for column in cursor.description or ()]
    return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


class PlainPast:
    """The catalog as known at a time."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, ts: datetime) -> None:
        self.now = ts
        known = read(connection, "FROM events_as_of($ts)", ts=ts)
        self.events = {
            row["event_id"]: row
            for row in known
            if row["status"] == "scheduled" and row["date"] is not None
        }
        self.cancelled: dict[str, datetime] = {
            row["event_id"]: row["cancelled_at"] for row in known if row["status"] == "cancelled"
        }
        cancelled_known: dict[str, datetime] = {}
        ids = {row["event_id"] for row in known}
        for row in read(connection, "FROM cancellations WHERE first_seen_at <= $ts", ts=ts):
            if row["event_id"] not in ids:
                self.cancelled[row["event_id"]] = row["cancelled_at"]
                cancelled_known[row["event_id"]] = row["first_seen_at"]
        self.versions = read(
            connection,
            "FROM event_versions WHERE known_from <= $ts ORDER BY known_from, event_id, version",
            ts=ts,
        )
        self.cancelled_known = cancelled_known | {
            row["event_id"]: row["known_from"] for row in self.versions
        }
        self.coins = self._coins(connection)
        self.categories = self._categories(connection)
        self._upcoming: dict[str, dict[str, list[Row]]] = {}
        """The events of a plan's default list by coin."""

    def _coins(self, connection: duckdb.DuckDBPyConnection) -> dict[str, Row]:
        ts = self.now
        pulled = "SELECT min(observed_at) AS at FROM batches WHERE feed = 'coins'"
        ((first,),) = connection.execute(pulled).fetchall()
        found = [] if ts < first else read(connection, "FROM coins_as_of($ts)", ts=ts)
        coins = {row["coin"]: row for row in found}
        # As documented: symbol, name and icon are the current ones.
        current = {row["slug"]: row for row in read(connection, "FROM coins")}
        linked = {row["coin"]: row for row in read(connection, "FROM event_coins")}
        for version in self.versions:
            for slug in version["coins"] or ():
                coins.setdefault(slug, {"coin": slug, "rank": None, "tracked": False})
        for slug, row in coins.items():
            # An export names a coin by its slug alone.
            named: Row = current.get(slug) or linked.get(slug) or {}
            row["symbol"], row["name"] = named.get("symbol") or "", named.get("name") or slug
            row["icon_url"] = named.get("icon_url") or ""
        return coins

    def _categories(self, connection: duckdb.DuckDBPyConnection) -> dict[str, str]:
        """Return the id of each name."""
        listed = read(connection, "FROM categories")
        named = {name for row in self.versions for name in row["categories"] or ()}
        found = {
            row["name"]: row["id"]
            for row in listed
            if row["first_seen_at"] <= self.now or row["name"] in named
        }
        assert named <= found.keys(), "the sandbox lists every category of an event"
        return found

    # What a plan shows

    def covers(self, row: Row, plan: str) -> bool:
        ranks = [self.coins[slug]["rank"] for slug in row["coins"] or ()]
        return plan != "free" or any(rank is not None and rank <= 100 for rank in ranks)

    def is_visible(self, row: Row, plan: str) -> bool:
        return overlaps(row, *bounds(plan, self.now)) and self.covers(row, plan)

    def shown(self, row: Row, plan: str) -> Row:
        event: Row = {name: row[column] for name, column in COLUMNS.items()}
        for name, value in event.items():
            if name in HIDDEN[plan]:
                event[name] = None
            elif isinstance(value, datetime):
                event[name] = text(value)
        if plan == "free":
            del event["categories"]
        event["coins"] = [
            {name: self.coins[slug][column] for name, column in (("slug", "coin"), *NAMES)}
            for slug in row["coins"] or ()
        ]
        if plan != "free" and row["impact"] is None:
            event["impact"] = row["impact_band"]
        elif plan == "pro":
            event["impact"] = next(name for edge, name in BANDS if row["impact"] >= edge)
        return event

    # Answers

    def events_list(self, plan: str, filters: Row) -> list[Row] | None:
        """Return the events in order, None if the plan lacks a filter."""
        if refused(plan, filters):
            return None
        first, last = bounds(plan, self.now)
        lower = max(first, filters.get("from", midnight(self.now)))
        uppers = [bound for bound in (last, filters.get("to")) if bound is not None]
        found = [
            row
            for row in self.events.values()
            if self.is_visible(row, plan)
            and overlaps(row, lower, min(uppers, default=None))
            and matches(row, plan, filters, self.categories)
        ]
        if filters.get("sortBy") == "impact_desc":
            order = [(row["impact"] is None, -(row["impact"] or 0.0)) for row in found]
        else:
            order = [(False, 0.0)] * len(found)
        keyed = sorted(
            (*key, row["date"], row["event_id"], place)
            for place, (key, row) in enumerate(zip(order, found, strict=True))
        )
        return [found[key[-1]] for key in keyed]

    def export(self, filters: Row) -> list[Row]:
        """Return the events of the export of Elite; without a range it is the whole window."""
        found = self.events_list("elite", {"from": bounds("elite", self.now)[0], **filters})
        assert found is not None
        return found

    def single(self, plan: str, event_id: str) -> tuple[int, Any]:
        row = self.events.get(event_id)
        if row is None:
            at = self.cancelled.get(event_id)
            return (404, None) if at is None else (410, text(at))
        if not self.is_visible(row, plan):
            return 404, None
        return 200, self.shown(row, plan)

    def cancellations(self, since: datetime | None) -> list[Row]:
        first = self.now - timedelta(days=90) if since is None else since
        found = sorted(
            (at, event_id)
            for event_id, at in self.cancelled.items()
            # A client that continues at its last request gets those that became known since.
            if max(at, self.cancelled_known[event_id]) >= first
        )
        return [{"id": event_id, "cancelledAt": text(at)} for at, event_id in found]

    def coins_list(self, plan: str, q: str | None) -> list[Row]:
        found = sorted(
            self.coins.values(),
            key=lambda row: (UNRANKED if row["rank"] is None else row["rank"], row["coin"]),
        )
        return [
            self.coin(plan, row)
            for row in found
            if (plan != "free" or (row["rank"] is not None and row["rank"] <= 100))
            and (q is None or q in row["name"].casefold() or q in row["symbol"].casefold())
        ]

    def coin(self, plan: str, row: Row) -> Row:
        if plan not in self._upcoming:
            by_coin = self._upcoming[plan] = defaultdict[str, list[Row]](list)
            for event in self.events_list(plan, {}) or ():
                for slug in event["coins"]:
                    by_coin[slug].append(event)
        upcoming = self._upcoming[plan].get(row["coin"], [])
        scores = [event["impact"] for event in upcoming if event["impact"] is not None]
        scored = plan != "free"
        return {
            "slug": row["coin"],
            **{name: row[name] for name, _ in NAMES},
            "rank": row["rank"],
            "tracked": row["tracked"],
            "iconUrl": row["icon_url"],
            "upcomingCount": len(upcoming),
            "majorCount": sum(score >= 7.5 for score in scores) if scored else None,
            "peakImpact": max(scores, default=None) if scored else None,
        }

    def history(self, plan: str, event_id: str) -> list[Row] | None:
        """Return the versions that the plan shows; None if it hides the event now."""
        versions = [row for row in self.versions if row["event_id"] == event_id]
        shown = [row for row in versions if self.shows_version(row, plan)]
        if not shown or shown[-1] is not versions[-1]:
            return None
        return [self.version(row, plan) for row in shown]

    def changes(self, plan: str, since: datetime | None) -> list[Row]:
        return [
            self.version(row, plan)
            for row in self.versions
            if (since is None or row["known_from"] > since) and self.shows_version(row, plan)
        ]

    def shows_version(self, row: Row, plan: str) -> bool:
        return row["date"] is None or self.is_visible(row, plan)

    def version(self, row: Row, plan: str) -> Row:
        known_to = row["known_to"]
        ended = known_to is not None and known_to <= self.now
        changed = {"impact" if name == "impact_band" else name for name in row["changed_fields"]}
        return {
            "id": row["event_id"],
            "version": row["version"],
            "knownFrom": text(row["known_from"]),
            "knownTo": text(known_to) if ended else None,
            "status": row["status"],
            "cancelledAt": text(row["cancelled_at"]),
            "kinds": [kind for kind in row["change_kinds"] if plan != "free" or kind != "rescored"],
            "changedFields": [
                name
                for name, column in COLUMNS.items()
                if column in changed and name not in HIDDEN[plan]
            ],
            "event": None if row["date"] is None else self.shown(row, plan),
        }


NAMES = (("symbol", "symbol"), ("name", "name"))


def midnight(instant: datetime) -> datetime:
    return instant.replace(hour=0, minute=0, second=0, microsecond=0)


def overlaps(row: Row, first: datetime, last: datetime | None) -> bool:
    end = row["date"] if row["date_end"] is None else row["date_end"]
    return end >= first and (last is None or row["date"] <= last)


def matches(row: Row, plan: str, filters: Row, categories: dict[str, str]) -> bool:
    if "coins" in filters and not set(filters["coins"]) & set(row["coins"]):
        return False
    if "categories" in filters:
        ids = {categories[name] for name in row["categories"]}
        if not ids & set(filters["categories"]):
            return False
    if "impactMin" in filters and (row["impact"] is None or row["impact"] < filters["impactMin"]):
        return False
    if "keyword" in filters:
        searched: Iterable[str | None] = (row["title"], row["description"])
        places = [place for place in searched if place is not None][: 1 if plan == "free" else 2]
        return any(filters["keyword"].casefold() in place.casefold() for place in places)
    return True
