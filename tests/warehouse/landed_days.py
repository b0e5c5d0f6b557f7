"""A home with one landed batch a day, each a list of one event."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.reading import ask
from tests.warehouse.normalise.catalog_bodies import json_event
from warehouse.home import Home
from warehouse.landing.batches import Manifest, Pull, Scope

FIRST = datetime(2026, 3, 29, 6, tzinfo=UTC)


def land(
    home: Home,
    day: int,
    *,
    plan: str = "enterprise",
    source: str = "s",
    body: bytes | None = None,
    **fields: Any,
) -> Manifest:
    """Land a list of one event, or another body, observed `day` days after the first day."""
    at = FIRST + timedelta(days=day)
    pull = Pull(
        feed="events",
        scope=Scope(),
        plan=plan,
        source=source,
        observed_at=at,
        content_at=at - timedelta(minutes=1),
        landed_at=at,
        requests=1,
    )
    if body is None:
        event: dict[str, Any] = {**json_event(), "id": f"event-{day}", **fields}
        body = json.dumps({"data": [event], "meta": {}}).encode()
    return home.landing.land(pull, [(body, None)])


def became(home: Home, batch: Manifest) -> tuple[str, str]:
    """Return the status of a batch in the warehouse, and the reason."""
    query = f"SELECT status, why FROM batches WHERE batch_id = '{batch.batch_id}'"
    ((status, why),) = ask(home, query)
    return status, why or ""


def history(home: Home) -> list[list[tuple[Any, ...]]]:
    """Return all versions, all events and the outcome of each batch."""
    tables = ("event_versions", "events", "batches")
    return [ask(home, f"SELECT * FROM {table} ORDER BY ALL") for table in tables]
