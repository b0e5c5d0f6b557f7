"""The rows of a small lake: their Parquet schemas, and content generated from a seed."""

import hashlib
from collections.abc import Iterable
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

from warehouse.schema.columns import ALL, CONTENT, FIELDS, Column, mask

CREATED = datetime(2025, 12, 1, tzinfo=UTC)
FIRST_DATE = datetime(2026, 5, 1, tzinfo=UTC)
Row = dict[str, Any]

UNCOMPARED = [column for column in FIELDS if column.change is None]
COMPARED = [column for column in CONTENT if column not in UNCOMPARED]


def _columns(columns: Iterable[Column]) -> str:
    return ", ".join(f"{column.name} {column.type}" for column in columns)


_CONTENT = f"{_columns(CONTENT)}, known BIGINT, extra VARCHAR"
_SEEN = (
    "last_seen_at TIMESTAMPTZ, missing_since TIMESTAMPTZ, content_at TIMESTAMPTZ, "
    "content_md5 VARCHAR"
)
SHAPES = {
    "changes": (
        "event_id VARCHAR, version INTEGER, known_from TIMESTAMPTZ, known_basis VARCHAR, "
        "change_kinds VARCHAR[], changed_fields VARCHAR[], batch_id VARCHAR, feed VARCHAR, "
        f"plan VARCHAR, content_at TIMESTAMPTZ, {_CONTENT}"
    ),
    "events": (
        f"event_id VARCHAR, {_CONTENT}, first_seen_at TIMESTAMPTZ, last_seen_at TIMESTAMPTZ, "
        "missing_since TIMESTAMPTZ, changed_at TIMESTAMPTZ, content_at TIMESTAMPTZ, "
        "version INTEGER, content_md5 VARCHAR"
    ),
    "seen": f"event_id VARCHAR, known BIGINT, {_columns(UNCOMPARED)}, extra VARCHAR, {_SEEN}",
    **dict.fromkeys(
        ("content", "content_changes"),
        f"event_id VARCHAR, {_columns(COMPARED)}, first_seen_at TIMESTAMPTZ, "
        "changed_at TIMESTAMPTZ, version INTEGER",
    ),
    "coins": (
        "slug VARCHAR, symbol VARCHAR, name VARCHAR, rank INTEGER, tracked BOOLEAN, "
        "icon_url VARCHAR, upcoming_count INTEGER, major_count INTEGER, peak_impact DOUBLE, "
        "first_seen_at TIMESTAMPTZ, last_seen_at TIMESTAMPTZ, missing_since TIMESTAMPTZ, "
        "content_at TIMESTAMPTZ"
    ),
    "categories": "id VARCHAR, name VARCHAR, first_seen_at TIMESTAMPTZ, last_seen_at TIMESTAMPTZ",
    "cancellations": (
        "event_id VARCHAR, cancelled_at TIMESTAMPTZ, first_seen_at TIMESTAMPTZ, "
        "last_seen_at TIMESTAMPTZ, batch_id VARCHAR"
    ),
    "labels": "slug VARCHAR, symbol VARCHAR, name VARCHAR",
    "snapshots": (
        "slug VARCHAR, rank INTEGER, tracked BOOLEAN, upcoming_count INTEGER, "
        "major_count INTEGER, peak_impact DOUBLE, observed_at TIMESTAMPTZ, batch_id VARCHAR"
    ),
    "absences": (
        "event_id VARCHAR, changed_at TIMESTAMPTZ, missing_since TIMESTAMPTZ, batch_id VARCHAR, "
        "place INTEGER"
    ),
    "rejects": "batch_id VARCHAR, position BIGINT, reason VARCHAR, raw VARCHAR",
}


def observation_time(day: date, hour: int = 6) -> datetime:
    return datetime.combine(day, time(hour), UTC)


def content_of(event: int, seed: int, at: datetime) -> Row:
    hidden = mask("impact", "impact_band") if seed % 4 == 3 else 0
    return {
        "slug": f"event-{event}",
        "title": f"title {seed}",
        "displayed_date": f"day {seed}",
        "date": None if seed % 11 == 10 else FIRST_DATE + timedelta(days=20 * (seed % 7)),
        "date_type": "date",
        "is_estimated": seed % 3 == 0,
        "categories": ["listing", "other"][: seed % 3],
        "coins": [f"coin-{event % 4}", f"coin-{4 + seed % 2}"][: 1 + seed % 2],
        "impact": None if hidden else float(seed % 10),
        "last_verified_at": at,
        "created_at": CREATED + timedelta(days=event),
        "updated_at": at,
        "status": "scheduled",
        "known": ALL & ~hidden,
        "extra": '{"new": 1}' if seed % 5 == 0 else None,
    }


def batch_id_of(day: date, feed: str) -> str:
    return f"{day:%Y%m%d}T060000Z-{feed}-{hashlib.sha256(feed.encode()).hexdigest()[:12]}"


def batch_record(day: date, feed: str, good: int, rejected: int, coins: list[str] | None) -> Row:
    at = observation_time(day).isoformat()
    return {
        "batch_id": batch_id_of(day, feed),
        "feed": feed,
        "status": "merged",
        "why": None,
        "flagged": None,
        "released": False,
        **{"arrived": good + rejected, "good": good, "rejected": rejected, "duplicates": 0},
        **{"ignored": 0, "stale": 0, "missing": 0, "versions": good, "changes": {}, "notes": []},
        **{"observed_at": at, "content_at": at, "landed_at": at, "plan": "elite"},
        **{"complete": True, "why_incomplete": None, "requests": 1, "rows_claimed": None},
        "bytes": 1000,
        "scope": {
            "lower": "2017-01-01T00:00:00+00:00",
            "upper": None,
            "since": None,
            "coins": coins,
            "categories": None,
            "event_id": None,
        },
    }
