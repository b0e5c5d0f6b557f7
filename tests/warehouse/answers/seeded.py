"""Versions whose content follows from a number, first known at six o'clock of a day.

Seed n dates an event 20 n days after 1 May 2026; seeds 0, 3 and 6 make the date estimated.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

from tests.warehouse.answers.handmade import Known


def day(number: int) -> datetime:
    """Return six o'clock, some days after 1 March 2026."""
    return datetime(2026, 3, 1, 6, tzinfo=UTC) + timedelta(days=number)


def seeded(event: int, seed: int, known_from: datetime, version: int = 1, **other: Any) -> Known:
    content: dict[str, Any] = {
        "event_id": f"evt_{event}",
        "version": version,
        "known_from": known_from,
        "change_kinds": ("created",) if version == 1 else ("revised",),
        "title": f"title {seed}",
        "displayed_date": f"day {seed}",
        "date": datetime(2026, 5, 1, tzinfo=UTC) + timedelta(days=20 * seed),
        "is_estimated": seed % 3 == 0,
        "categories": ("listing", "other")[: seed % 3],
        "coins": (f"coin-{event % 4}", f"coin-{4 + seed % 2}")[: 1 + seed % 2],
        "impact": float(seed),
        "created_at": known_from if version == 1 else None,
    }
    return Known(**content | other)
