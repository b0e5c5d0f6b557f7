"""Where the changes come from. Each source calls the same strategy in the same way.

`poll` works with the service, the sandbox and the mirror; `follow` with the mirror and its replay;
`recorded` needs no server.
"""

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

import httpx
from strategy import Decision, KnownEvent, StepAside

import almanac

Sleep = Callable[[float], None]


def poll(
    client: httpx.Client, strategy: StepAside, *, every_s: float, sleep: Sleep = time.sleep
) -> Iterator[Decision]:
    """Ask for the whole list again and again: all that the interface of the service offers."""
    known: dict[str, KnownEvent] | None = None
    while True:
        at, rows = _all_pages(client, {"limit": 100})
        listed = {row["id"]: _sent(row) for row in rows}
        if known is None:
            yield from strategy.begin(at, listed.values())
        else:
            gone = {event_id: _over(known[event_id]) for event_id in known.keys() - listed.keys()}
            for event_id, event in sorted({**listed, **gone}.items()):
                if event != known.get(event_id):
                    yield from strategy.on_change(at, event)
        known = listed
        sleep(every_s)


def follow(
    client: httpx.Client,
    strategy: StepAside,
    since: datetime,
    *,
    every_s: float = 1.0,
    is_over: Callable[[], bool] = lambda: False,
    sleep: Sleep = time.sleep,
) -> Iterator[Decision]:
    """Read the changes of a mirror, each once and in order, until `is_over` at their end."""
    start = f"{since.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%fZ}"
    _, rows = _all_pages(client, {"limit": 100, "as_of": start})
    yield from strategy.begin(since, map(_sent, rows))
    query = {"limit": "100", "since": start}
    while True:
        ends = is_over()
        page = _get(client, "/v2/events/changes", query).json()
        for change in page["data"]:
            at = datetime.fromisoformat(change["knownFrom"])
            if change["event"] is not None:
                scheduled = change["status"] == "scheduled"
                yield from strategy.on_change(at, _sent(change["event"], scheduled=scheduled))
        query = {"limit": "100", "cursor": page["meta"]["cursor"]}
        if not page["data"]:
            if ends:
                return
            sleep(every_s)


def recorded(
    home: str | Path, strategy: StepAside, since: datetime, until: datetime | None = None
) -> Iterator[Decision]:
    """Read the same changes from a home."""
    midnight = since.replace(hour=0, minute=0, second=0, microsecond=0)
    with almanac.open(home) as db, db.replay(since, until) as changes:
        upcoming = [
            _stored(row)
            for row in changes.catalog.values()
            if row["date"] is not None and (row["date_end"] or row["date"]) >= midnight
        ]
        yield from strategy.begin(since, [event for event in upcoming if event.is_scheduled])
        for change in changes:
            yield from strategy.on_change(change.known_from, _stored(change.event))


def _all_pages(client: httpx.Client, query: dict[str, Any]) -> tuple[datetime, list[Any]]:
    answer = _get(client, "/v2/events", query)
    at, page = parsedate_to_datetime(answer.headers["date"]), answer.json()
    rows = page["data"]
    while page["meta"]["cursor"] is not None:
        page = _get(client, "/v2/events", {**query, "cursor": page["meta"]["cursor"]}).json()
        rows += page["data"]
    return at, rows


def _get(client: httpx.Client, path: str, query: dict[str, Any]) -> httpx.Response:
    return client.get(path, params=query).raise_for_status()


def _sent(row: dict[str, Any], *, scheduled: bool = True) -> KnownEvent:
    coins = tuple(coin["slug"] for coin in row["coins"])
    impact = row["impact"] if isinstance(row["impact"], float | int) else None
    date = datetime.fromisoformat(row["date"])
    return KnownEvent(row["id"], row["title"], date, coins, impact, scheduled)


def _stored(row: Any) -> KnownEvent:
    coins, scheduled = tuple(row["coins"] or ()), row["status"] == "scheduled"
    return KnownEvent(row["event_id"], row["title"], row["date"], coins, row["impact"], scheduled)


def _over(event: KnownEvent) -> KnownEvent:
    """Return an event that the list no longer shows: cancelled, withdrawn or past."""
    return KnownEvent(event.id, event.title, event.date, event.coins, event.impact, False)
