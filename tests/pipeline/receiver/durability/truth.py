"""Compares a warehouse with what the service says of events, without the code of the product.

Belongs here: the answers of `GET /v2/events/{id}` beside the rows of `events`. Does not: sending.
"""

import asyncio
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import httpx

from tests.hangs import HANGS_AFTER_S

TEXTS = {
    **{"slug": "slug", "title": "title", "description": "description"},
    **{"displayedDate": "displayed_date", "dateType": "date_type", "isEstimated": "is_estimated"},
    **{"impact": "impact", "impactSummary": "impact_summary"},
    **{"sourceUrl": "source_url", "snapshotUrl": "snapshot_url"},
}
INSTANTS = {
    **{"date": "date", "dateEnd": "date_end", "createdAt": "created_at", "updatedAt": "updated_at"},
}
"""`lastVerifiedAt` is not compared: push does not tell of verifications."""
MATERIAL = {
    *("date", "date_end", "date_type", "is_estimated", "impact", "description", "source_url"),
    *("status", "cancelled_at"),
}
"""Push tells of a change of these. Other fields may have changed since, in a later version."""
COLUMNS = (*TEXTS.values(), *INSTANTS.values(), "categories", "coins", "status", "cancelled_at")
GONE = {410: "cancelled", 404: "withdrawn"}
AT_ONCE = 16


def rows_of(warehouse: Path) -> dict[str, dict[str, Any]]:
    """Return the events of a warehouse by id."""
    with duckdb.connect(str(warehouse), read_only=True) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        found = connection.execute(f"SELECT event_id, {', '.join(COLUMNS)} FROM events").fetchall()
    return {event_id: dict(zip(COLUMNS, row, strict=True)) for event_id, *row in found}


def answers(base_url: str, key: str, ids: Iterable[str], at: datetime) -> dict[str, httpx.Response]:
    """Return what the service answers about each event at an instant."""
    return asyncio.run(_answers(base_url, key, list(ids), at))


async def _answers(
    base_url: str, key: str, ids: list[str], at: datetime
) -> dict[str, httpx.Response]:
    headers = {"x-api-key": key, "Sandbox-Now": at.isoformat()}
    found: dict[str, httpx.Response] = {}
    async with httpx.AsyncClient(
        base_url=base_url, headers=headers, timeout=HANGS_AFTER_S
    ) as client:

        async def ask() -> None:
            while ids:
                event_id = ids.pop()
                found[event_id] = await client.get(f"/v2/events/{event_id}")

        await asyncio.gather(*(ask() for _ in range(AT_ONCE)))
    return found


def differences(rows: dict[str, dict[str, Any]], found: dict[str, httpx.Response]) -> list[str]:
    """Return what differs, in words. Of a withdrawn event push tells nothing: only its row exists.

    Of an event whose version is older than the service's, the material fields are compared alone. A
    cancelled event keeps what was shown of it last, of which the service says no more.
    """
    wrong = [f"{event_id}: not asked" for event_id in rows.keys() - found.keys()]
    for event_id, answer in found.items():
        row = rows.get(event_id)
        if row is None:
            wrong.append(f"{event_id}: no row")
        elif answer.status_code == 200:
            stated = _expected(answer.json())
            if row["updated_at"] < stated["updated_at"]:
                stated = {name: stated[name] for name in MATERIAL}
            wrong += [
                f"{event_id}: {name} is {row[name]!r}, the service says {value!r}"
                for name, value in stated.items()
                if row[name] != value
            ]
        elif answer.status_code == 410:
            if row["status"] != "cancelled" or row["cancelled_at"] is None:
                wrong.append(f"{event_id}: {row['status']}, the service says cancelled")
        elif answer.status_code != 404:
            wrong.append(f"{event_id}: the service answered {answer.status_code}")
    return wrong


def _expected(event: dict[str, Any]) -> dict[str, Any]:
    return {
        **{column: event[name] for name, column in TEXTS.items()},
        **{column: _instant(event[name]) for name, column in INSTANTS.items()},
        "categories": sorted(event["categories"]),
        "coins": sorted(coin["slug"] for coin in event["coins"]),
        "status": "scheduled",
        "cancelled_at": None,
    }


def _instant(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text).astimezone(UTC)
