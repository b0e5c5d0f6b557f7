"""A plain model of the interface: lists and loops, without any code of the server.

It has its own plans, windows, filters, order, gating and limits, so that the state machine compares
two implementations of the same rules.
"""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from catalog.server.store import StoredEvent

UPCOMING_DAYS = {"free": 7, "standard": 90}
PAST_DAYS = {"free": 0, "standard": 0, "pro": 30}
LAG_S = {"free": 86_400}
BANDS = ((7.5, "Critical"), (5.0, "High"), (2.5, "Mid"), (0.0, "Low"))
HIGH = ("elite", "enterprise")
TOP = ("first", "hundredth")
CATEGORY_NAMES = {"release": "Release", "airdrop": "Airdrop", "fork": "Hard Fork"}


def text(instant: datetime | None) -> str | None:
    return None if instant is None else f"{instant:%Y-%m-%dT%H:%M:%SZ}"


@dataclass
class Catalog:
    """The catalog at one time."""

    events: dict[str, StoredEvent] = field(default_factory=dict)
    cancelled: dict[str, datetime] = field(default_factory=dict)

    def copy(self) -> "Catalog":
        return Catalog(dict(self.events), dict(self.cancelled))


def bounds(plan: str, now: datetime) -> tuple[datetime, datetime | None]:
    today = now.replace(hour=0, minute=0, second=0, microsecond=0)
    first = datetime(2017, 1, 1, tzinfo=now.tzinfo)
    if plan in PAST_DAYS:
        first = today - timedelta(days=PAST_DAYS[plan])
    last = None
    if plan in UPCOMING_DAYS:
        last = today + timedelta(days=UPCOMING_DAYS[plan] + 1) - timedelta(microseconds=1)
    return first, last


def touches(event: StoredEvent, first: datetime, last: datetime | None) -> bool:
    end = event.date_end if event.date_end is not None else event.date
    return end >= first and (last is None or event.date <= last)


def covered(event: StoredEvent, plan: str) -> bool:
    return plan != "free" or any(slug in TOP for slug in event.coins)


def matches(event: StoredEvent, plan: str, now: datetime, filters: dict[str, Any]) -> bool:
    first, last = bounds(plan, now)
    today = now.replace(hour=0, minute=0, second=0, microsecond=0)
    requested_first = filters.get("from", today)
    requested_last = filters.get("to")
    if not touches(event, first, last):
        return False
    lower = max(first, requested_first)
    uppers = [bound for bound in (last, requested_last) if bound is not None]
    upper = min(uppers) if uppers else None
    if upper is not None and lower > upper:
        return False
    if not touches(event, lower, upper) or not covered(event, plan):
        return False
    if "coins" in filters and not set(filters["coins"]) & set(event.coins):
        return False
    if "categories" in filters and not set(filters["categories"]) & set(event.categories):
        return False
    if "impactMin" in filters and (event.impact is None or event.impact < filters["impactMin"]):
        return False
    if "keyword" in filters:
        where = [event.title] + ([] if plan == "free" else [event.description or ""])
        return any(filters["keyword"].lower() in place.lower() for place in where)
    return True


def listed(
    catalog: Catalog, plan: str, now: datetime, filters: dict[str, Any]
) -> list[StoredEvent]:
    found = [event for event in catalog.events.values() if matches(event, plan, now, filters)]
    if filters.get("sortBy") == "impact_desc":
        return sorted(found, key=lambda e: (e.impact is None, -(e.impact or 0.0), e.date, e.id))
    return sorted(found, key=lambda event: (event.date, event.id))


def refused(plan: str, filters: dict[str, Any]) -> bool:
    """Whether the plan lacks a filter."""
    if plan == "free" and "categories" in filters:
        return True
    by_impact = "impactMin" in filters or filters.get("sortBy") == "impact_desc"
    return by_impact and plan not in HIGH


def shown(event: StoredEvent, plan: str) -> dict[str, Any]:
    """Return the event in JSON form."""
    high = plan in ("pro", *HIGH)
    impact: Any = None
    if event.impact is not None and plan == "pro":
        impact = next(name for edge, name in BANDS if event.impact >= edge)
    elif event.impact is not None and plan in HIGH:
        impact = event.impact
    wire: dict[str, Any] = {
        "id": event.id,
        "slug": event.slug,
        "title": event.title,
        "description": None if plan == "free" else event.description,
        "displayedDate": event.displayed_date,
        "date": text(event.date),
        "dateEnd": text(event.date_end),
        "dateType": event.date_type,
        "isEstimated": event.is_estimated,
        "categories": [CATEGORY_NAMES[name] for name in event.categories],
        "coins": [{"slug": slug, "symbol": slug[:3], "name": slug.title()} for slug in event.coins],
        "impact": impact,
        "impactSummary": event.impact_summary if high else None,
        "sourceUrl": event.source_url if high else None,
        "snapshotUrl": event.snapshot_url if high else None,
        "lastVerifiedAt": text(event.last_verified_at) if high else None,
        "createdAt": text(event.created_at),
        "updatedAt": text(event.updated_at),
    }
    if plan == "free":
        del wire["categories"]
    return wire


def single(catalog: Catalog, plan: str, now: datetime, event_id: str) -> tuple[int, Any]:
    """Return the status and, for a 200, the body of GET /v2/events/{id}."""
    event = catalog.events.get(event_id)
    if event is None:
        return (410, None) if event_id in catalog.cancelled else (404, None)
    first, last = bounds(plan, now)
    if not touches(event, first, last) or not covered(event, plan):
        return 404, None
    return 200, shown(event, plan)


@dataclass
class PlainBucket:
    """Rate and burst, counted in fractions of a second that are exact for the tests' steps."""

    rate: int
    burst: int
    tokens: float
    quota: int | None
    used: int = 0

    def passed(self, seconds: float) -> None:
        self.tokens = min(self.burst, self.tokens + seconds * self.rate)

    def request(self) -> str:
        if self.quota is not None and self.used >= self.quota:
            return "quota_exceeded"
        if self.tokens < 1:
            return "rate_limit_exceeded"
        self.tokens -= 1
        self.used += 1
        return "ok"
