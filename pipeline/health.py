"""The health of a home: what was looked at when, what waits, and what is wrong.

Read from landing and the change log alone, so that it can be told while a merge runs.
"""

import shutil
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

import msgspec

from warehouse.batches import FEEDS
from warehouse.change_log import ChangeLog
from warehouse.home import Home

DAILY = timedelta(days=1)
LOOKED_BACK_DAYS = 100
"""Cancellations are listed for 90 days: one that was not looked at for longer is lost."""
WARN_CANCELLATIONS = timedelta(days=30)
LEAST_FREE_BYTES = 2_000_000_000


@dataclass(frozen=True, slots=True)
class FeedHealth:
    """When a feed was looked at last. Instants are UTC."""

    feed: str
    batches: int
    observed_at: datetime | None
    complete_at: datetime | None


@dataclass(slots=True)
class Health:
    """What there is to say of a home; `warnings` are what a person should act on."""

    source: str | None
    feeds: list[FeedHealth] = field(default_factory=list)
    days: int = 0
    pending: int = 0
    quarantined: list[str] = field(default_factory=list)
    flagged: list[str] = field(default_factory=list)
    rejected: int = 0
    bytes: dict[str, int] = field(default_factory=dict)
    free_bytes: int = 0
    published_at: datetime | None = None
    quota: dict[str, object] | None = None
    warnings: list[str] = field(default_factory=list)


def health_of(home: Home, now: datetime) -> Health:
    """Return the health of a home, looking back a hundred days.

    Raises:
        WarehouseError: the stamp or a file of the change log can't be read.
    """
    stamp = home.stamp()
    health = Health(source=None if stamp is None else stamp.source)
    since = (now - timedelta(days=LOOKED_BACK_DAYS)).date()
    days = [
        day
        for day in ChangeLog(home.lake, home.state / "change_log.json").days()
        if day.day >= since
    ]
    records = [record for day in days for record in day.batches().values()]
    health.days = len(days)
    health.pending = len(home.landing.pending())
    for record in records:
        health.rejected += record["rejected"]
        if record["status"] == "quarantined":
            health.quarantined.append(record["batch_id"])
        if record["flagged"]:
            health.flagged.append(record["batch_id"])
    health.feeds = [_feed(feed, records) for feed in FEEDS]
    health.bytes = {part: _size(home.root / part) for part in ("landing", "lake", "dagster")}
    if home.warehouse.exists():
        stat = home.warehouse.stat()
        health.bytes["warehouse.duckdb"] = stat.st_size
        health.published_at = datetime.fromtimestamp(stat.st_mtime, tz=now.tzinfo)
    if home.root.exists():
        health.free_bytes = shutil.disk_usage(home.root).free
    health.quota = _last_usage(home.state / "usage.jsonl")
    health.warnings = _warnings(health, now)
    return health


def _feed(feed: str, records: list[dict[str, object]]) -> FeedHealth:
    looks = [record for record in records if record["feed"] == feed]
    times = [datetime.fromisoformat(str(record["observed_at"])) for record in looks]
    complete = [
        datetime.fromisoformat(str(record["observed_at"]))
        for record in looks
        if record["complete"] and record["status"] == "merged"
    ]
    return FeedHealth(feed, len(looks), max(times, default=None), max(complete, default=None))


def _warnings(health: Health, now: datetime) -> list[str]:
    if health.source is None:
        return []
    found: list[str] = []
    by_feed = {one.feed: one for one in health.feeds}
    events = [by_feed[feed].complete_at for feed in ("export", "events")]
    last = max((at for at in events if at is not None), default=None)
    if last is None:
        found.append("No complete look at events yet: almanac run")
    elif now - last > 2 * DAILY:
        found.append(f"Events were last looked at {last:%Y-%m-%d %H:%M} UTC: almanac run")
    cancelled = by_feed["cancellations"].complete_at
    if cancelled is None or now - cancelled > WARN_CANCELLATIONS:
        found.append(
            "Cancellations were not looked at for 30 days; after 90 some are lost: almanac run"
        )
    if health.quarantined:
        found.append(f"{len(health.quarantined)} batches are quarantined: almanac batches list")
    if health.free_bytes < LEAST_FREE_BYTES:
        found.append(f"The disk has {health.free_bytes / 1e9:.1f} GB left: almanac prune")
    return found


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _last_usage(path: Path) -> dict[str, object] | None:
    """Return the last read-out of the quota; a line cut off by a crash is passed over."""
    try:
        lines = path.read_bytes().splitlines()
    except FileNotFoundError:
        return None
    for line in reversed(lines):
        try:
            found: dict[str, object] = msgspec.json.decode(line, type=dict[str, object])
        except msgspec.MsgspecError:
            continue
        return found
    return None
