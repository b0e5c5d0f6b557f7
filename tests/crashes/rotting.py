"""A small home with a file of every kind."""

import json
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path

from tests.history.stories.handmade import DAY, HOUR, SOURCE, STARTS, Content, HandmadeBatch, land
from warehouse.history.merge import merge
from warehouse.home import Home
from warehouse.landing.batches import Feed, Pull, Scope
from warehouse.landing.landing import Landing

_CONTENTS = [
    Content(0, "Launch", 1, False, 6.0, ("bitcoin",)),
    Content(1, "Halving", 5, True, None, ("bitcoin", "ethereum")),
    Content(2, " Launch ", 60, False, 1.5, ("ethereum",)),
]
_UNREADABLE = {"title": "no id"}


def make_home(root: Path) -> Home:
    """Make a home with two merged days and a pending batch: most feeds, rejects, snapshots,
    cancellations, a backfill, a released batch and a quarantined one."""
    home = Home(root)
    home.claim(SOURCE)
    all_contents = tuple(enumerate(_CONTENTS))
    _land(home, "export", 6, all_contents)
    _land(home, "coins", 7)
    _land(home, "cancellations", 8, all_contents[:1])
    released_id = _list(home, STARTS + 9 * HOUR, [_UNREADABLE] * 12)
    merge(home)
    home.landing.release(released_id)
    merge(home)
    _land(home, "coins", 31)
    land_change(home, 32)
    _list(home, STARTS + 33 * HOUR, [_UNREADABLE])
    _list(home, STARTS + 34 * HOUR, [_UNREADABLE] * 12)
    _list(home, STARTS + 35 * HOUR, [], lower=STARTS - 400 * DAY, upper=STARTS - 370 * DAY)
    merge(home)
    land_look_up(home, 50)
    logs = home.state / "requests"
    logs.mkdir(parents=True)
    line = {"at": STARTS.isoformat(), "path": "/v2/events", "status": 200, "attempt": 1}
    (logs / "2021-03-01.jsonl").write_text(json.dumps(line) + "\n")
    return home


def land_look_up(home: Home, hour: int) -> None:
    """Land a look-up of one event, which is merged by the next merge."""
    _land(home, "event", hour, ((2, _CONTENTS[1]),))


def land_change(home: Home, hour: int) -> None:
    """Land a delivery with another title of an event."""
    changed = Content(3, f"Halved {hour}", 6, False, 2.0, ("bitcoin",))
    _land(home, "deliveries", hour, ((1, changed),))


def _land(home: Home, feed: Feed, hour: int, shown: tuple[tuple[int, Content], ...] = ()) -> None:
    land(HandmadeBatch(feed, hour, 1, "elite", shown, True, (-30, 90), 200), home.landing, hour)


def _list(
    home: Home,
    at: datetime,
    rows: list[dict[str, str]],
    *,
    lower: datetime | None = None,
    upper: datetime | None = None,
) -> str:
    """Land a list of rows; return the batch's id."""
    pull = Pull(
        feed="events",
        scope=Scope(lower=lower or at, upper=upper or at + DAY),
        plan="elite",
        source=SOURCE,
        observed_at=at,
        content_at=at,
        landed_at=at,
        requests=1,
        why_incomplete=None if lower else "cut short",
    )
    body = json.dumps({"data": rows, "meta": {"total": len(rows)}}).encode()
    return home.landing.land(pull, [(body, None)]).batch_id


def land_again(source: Landing, target: Landing, batch_ids: Iterable[str]) -> None:
    """Land some batches of one landing in another, as their pulls did."""
    for batch_id in batch_ids:
        manifest = source.manifest(batch_id)
        pull = Pull(**{name: getattr(manifest, name) for name in Pull.__struct_fields__})
        target.land(pull, [(body, page.received_at) for page, body in source.pages(manifest)])


def landing_of(root: Path) -> Landing:
    return Landing(root / "landing")
