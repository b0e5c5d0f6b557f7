"""Replays of a home, and the change log as SQL shows it."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx

from application.web.mirror.mirror import CONTROL_PATH, Mirror
from application.web.mirror.replay import Replay
from tests.hangs import HANGS_AFTER_S
from tests.reading import reading
from warehouse.home import Home

CHANGES = "/v2/events/changes"


@contextmanager
def replaying(
    home: Home,
    state_dir: Path,
    start: datetime,
    until: datetime | None = None,
    *,
    paused: bool = True,
    speed: float = 1.0,
    **options: Any,
) -> Iterator[tuple[Replay, httpx.Client]]:
    """Yield a replay, by default paused at its start, and a client of it."""
    replay = Replay(home.warehouse, start, until, speed=speed)
    with (
        Mirror(home.warehouse, state_dir=state_dir, replay=replay, **options) as mirror,
        httpx.Client(base_url=mirror.base_url, verify=False, timeout=HANGS_AFTER_S) as client,
    ):
        replay.clock.change(running=not paused)
        yield replay, client


def order(client: httpx.Client, **fields: object) -> dict[str, Any]:
    """Send an order to the clock, and return its state."""
    answer = client.put(CONTROL_PATH, json=fields)
    assert answer.status_code == 200, answer.text
    state: dict[str, Any] = answer.json()
    return state


def change_log(home: Home, start: datetime, until: datetime) -> list[tuple[str, int, str]]:
    """Return event, version and time of what became known after a time, until another."""
    with reading(home) as connection:
        return connection.execute(
            "SELECT event_id, version, strftime(known_from, '%Y-%m-%dT%H:%M:%S.%fZ') "
            "FROM event_versions WHERE known_from > $start AND known_from <= $until "
            "ORDER BY known_from, event_id, version",
            {"start": start, "until": until},
        ).fetchall()


def log_hash(log: list[tuple[str, int, str]]) -> str:
    text = "".join(f"{event_id} {version} {at}\n" for event_id, version, at in log)
    return hashlib.sha256(text.encode()).hexdigest()


def read_changes(client: httpx.Client, **parameters: Any) -> list[dict[str, Any]]:
    """Return all changes that are known now, page by page."""
    found: list[dict[str, Any]] = []
    page = client.get(CHANGES, params={"limit": 100, **parameters}).json()
    while page["data"]:
        found += page["data"]
        page = client.get(CHANGES, params={"limit": 100, "cursor": page["meta"]["cursor"]}).json()
    return found
