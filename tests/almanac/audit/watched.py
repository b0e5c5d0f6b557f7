"""A small published warehouse with one event for each kind of change, and the audit of single rows.

Belongs here: what was known when. Does not: what the audit is expected to say (test_verdicts).
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import almanac
from almanac.audit.report import Audit
from almanac.database import Database
from almanac.reading.query_limits import QueryLimits
from tests.almanac.publications import NamedCoin, publish_by_hand
from tests.warehouse.answers.handmade import Known


def at(day: int, hour: int = 0, minute: int = 0) -> datetime:
    return datetime(2026, 3, day, hour, minute, tzinfo=UTC)


PULLS = [*(at(day, 6) for day in range(1, 9)), at(8, 7)]
NOW = at(8, 12)
COINS = [
    NamedCoin("bitcoin", "BTC", "Bitcoin", 1),
    NamedCoin("first-sun", "SUN", "First Sun", 40),
    NamedCoin("other-sun", "SUN", "Other Sun", 90),
]
_BASE: dict[str, Any] = {
    "date": at(20, 14),
    "impact": 5.0,
    "coins": ("bitcoin",),
    "categories": ("Exchange Listing",),
    "created_at": at(1, 2),
    "known_from": at(1, 6),
}
_PERIOD: dict[str, Any] = {
    "date": datetime(2026, 3, 31, 23, 59, 59, tzinfo=UTC),
    "displayed_date": "Q1 2026",
    "date_type": "quarter",
    "is_estimated": True,
}


def _versions(event_id: str, *changes: Mapping[str, Any]) -> list[Known]:
    """Return the versions of an event: each change is of the version before it."""
    versions, content = [], dict(_BASE)
    for number, change in enumerate(changes, start=1):
        kinds = change.get("change_kinds", ("revealed",) if number == 1 else ("revised",))
        content |= change
        content["change_kinds"] = kinds
        versions.append(Known(event_id=event_id, version=number, **content))
    return versions


VERSIONS = [
    *_versions(
        "moved",
        {},
        {"known_from": at(3, 6), "date": at(22, 14)},
        {"known_from": at(5, 6), "date": at(24)},
    ),
    *_versions("new", {"known_from": at(3, 6), "created_at": at(3), "change_kinds": ("created",)}),
    *_versions("found", {"known_from": at(3, 6), "created_at": at(1)}),
    *_versions("dawn", {"known_from": at(1, 6), "created_at": None}),
    *_versions("scored", {}, {"known_from": at(4, 6), "impact": 8.25}),
    *_versions("off", {}, {"known_from": at(4, 6), "status": "cancelled"}),
    *_versions(
        "edited",
        {"title": "Tea\r\nparty"},
        {"known_from": at(4, 6), "title": "=Coffee", "categories": ("AMA", "Meetup")},
    ),
    *_versions(
        "period",
        _PERIOD,
        {
            "known_from": at(5, 6),
            "date": at(20, 14),
            "displayed_date": "20 Mar",
            "date_type": "date",
            "is_estimated": False,
        },
    ),
    *_versions(
        "settled",
        _PERIOD,
        {"known_from": at(4, 6), **{**_PERIOD, "date_type": "date", "is_estimated": False}},
    ),
    # A deadline, another one, and then the first as an exact date.
    *_versions(
        "wavering",
        _PERIOD,
        {"known_from": at(3, 6), "date": at(30)},
        {"known_from": at(5, 6), **_PERIOD, "date_type": "date", "is_estimated": False},
    ),
    *_versions(
        "back", {}, {"known_from": at(3, 6), "impact": 6.0}, {"known_from": at(5, 6), "impact": 5.0}
    ),
    *_versions("clocks", {}, {"known_from": at(8, 7), "impact": 6.0}),
    # Two changes at one instant: the first of them was known at no time.
    *_versions(
        "twice",
        {},
        {"known_from": at(4, 6), "impact": 6.0},
        {"known_from": at(4, 6), "impact": 7.0},
    ),
    *_versions(
        "hidden",
        {"date": at(27), "impact": None, "unknown_fields": ("impact",)},
        {"known_from": at(4, 6), "impact": 9.0, "unknown_fields": ()},
    ),
    *_versions("redated", {}, {"known_from": at(4, 6), "created_at": at(1, 1)}),
    *_versions("linked", {"date": at(25)}, {"known_from": at(4, 6), "coins": ("bitcoin", "terra")}),
]
CLAIMS = [
    Known(
        event_id="found",
        version=0,
        known_from=at(1),
        date=at(20, 14),
        impact=5.0,
        coins=("bitcoin",),
        created_at=at(1),
        change_kinds=("created",),
    )
]


def open_watched(path: Path, tz: str = "UTC") -> Database:
    """Publish the warehouse of this module and open it."""
    if not path.exists():
        publish_by_hand(path, VERSIONS, pulls=PULLS, claims=CLAIMS, coins=COINS, at=NOW)
    limits = QueryLimits(threads=1)  # The rows are few.
    return almanac.open(path, tz, clock=lambda: NOW, limits=limits)


def audit_row(db: Database, row: Mapping[str, Any], **options: Any) -> Audit:
    """Return the audit of one row."""
    return db.audit([dict(row)], **options)
