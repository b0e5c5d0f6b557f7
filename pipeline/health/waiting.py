"""Work that waits: batches not merged, and days of the lake not published.

Batches that bring nothing new wait for the next merge by design, so they count only after a day
and more. Belongs here: what waits, since when. Does not: the words of its warnings (stuck). It is
read from landing, the change log and the published file, and takes no lock.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Final

import duckdb

from warehouse.files.locks import holder, is_held
from warehouse.history.change_log import ChangeLog, DayFile, read_records
from warehouse.home import Home
from warehouse.landing.batches import Manifest
from warehouse.news import quiet_batches
from warehouse.publish.published_file import PublishedFile, published_batches, read_published

STUCK_AFTER: Final = timedelta(hours=1)
"""Merges are requested within a minute and take seconds."""
WITHOUT_NEWS_STUCK_AFTER: Final = timedelta(hours=26)
"""The daily pull merges batches that bring nothing new."""


@dataclass(frozen=True, slots=True)
class Unmerged:
    """Batches that have waited for too long. `since` is when the first of them was landed."""

    batches: list[str] = field(default_factory=list)
    since: datetime | None = None
    merging: str = ""
    """The process that merges now, empty if none does."""


@dataclass(frozen=True, slots=True)
class Unpublished:
    """What the published file lacks of the lake, for too long. `versions` are those of new batches.

    `why` says why the published file can't be read; empty if it can.
    """

    days: list[date] = field(default_factory=list)
    versions: int = 0
    since: datetime | None = None
    why: str = ""


def find_unmerged(home: Home, now: datetime) -> Unmerged:
    """Return the batches that have waited for a merge for too long.

    `now` is by the machine's clock, as the time of landing is. Batches whose manifest can't be read
    are not counted: they are warned of as damaged.

    Raises:
        LakeDamaged: a file of the change log can't be read.
    """
    waiting = {
        batch.batch_id: at
        for batch in _marked(home)
        if now - batch.landed_at > STUCK_AFTER
        and (at := _waits_since(home, batch)) is not None
        and now - at > STUCK_AFTER
    }
    quiet = quiet_batches(home, waiting)
    late = [
        batch
        for batch, at in waiting.items()
        if batch not in quiet or now - at > WITHOUT_NEWS_STUCK_AFTER
    ]
    if not late:
        return Unmerged()
    return Unmerged(late, min(waiting[batch] for batch in late), _merging(home))


def _marked(home: Home) -> list[Manifest]:
    return home.landing.readable(home.landing.pending())[0]


def _waits_since(home: Home, batch: Manifest) -> datetime | None:
    """Return since when a marked batch waits, None if it took effect and only its marker is left.

    A batch that was merged and then released, or no longer, waits since it was marked again.
    """
    landing = home.landing
    record = ChangeLog.of(home).records_on(batch.observed_at.date()).get(batch.batch_id)
    if record is None:
        return batch.landed_at
    if record["released"] == (batch.batch_id in landing.released()):
        return None
    marker = landing.storage.path(f"pending/{batch.batch_id}.json")
    try:
        return datetime.fromtimestamp(marker.stat().st_mtime, UTC)
    except FileNotFoundError:
        return None  # It was merged just now.


def _merging(home: Home) -> str:
    lock = home.state / "merge.lock"
    return str(holder(lock) or "another process") if is_held(lock) else ""


def find_unpublished(
    home: Home, days: Sequence[DayFile], published: PublishedFile | None, why: str, now: datetime
) -> Unpublished | None:
    """Return what the published file has lacked for too long, None if it lacks nothing.

    `days` are those of the change log, `why` the reason why the published file can't be read, empty
    if it can.

    Raises:
        LakeDamaged: a file of the change log can't be read.
    """
    if why:
        return Unpublished(why=why)
    chain = {} if published is None else published.days
    differing = [day for day in days if chain.get(day.day) != day.sha256]
    removed = chain.keys() - {day.day for day in days}
    if not differing and not removed:
        return None
    seen = _published_of(home, published, [day.day for day in differing])
    lacking = [record for record in read_records(differing) if record["batch_id"] not in seen]
    since = _since(published, differing, [_instant(record["landed_at"]) for record in lacking])
    if now - since <= STUCK_AFTER or _is_just_merging(home, now):
        return None
    return Unpublished(
        days=sorted({*removed, *(day.day for day in differing)}),
        versions=sum(record["versions"] for record in lacking),
        since=since,
    )


def _published_of(
    home: Home, published: PublishedFile | None, days: Collection[date]
) -> frozenset[str]:
    return frozenset() if published is None else published_batches(home.warehouse, days)


def _since(
    published: PublishedFile | None, differing: Sequence[DayFile], landed_at: Sequence[datetime]
) -> datetime:
    """Return when the lake got ahead of the published file, at the earliest.

    A publication has all of the lake. A day's file is written again by each merge, so its time
    counts only where no batch is new, as after days were folded again.
    """
    written = (datetime.fromtimestamp(day.indexed.modified_ns / 1e9, UTC) for day in differing)
    since = min(landed_at or written, default=None)
    known = [at for at in (since, None if published is None else published.at) if at is not None]
    return max(known, default=datetime.max.replace(tzinfo=UTC))


def _is_just_merging(home: Home, now: datetime) -> bool:
    """Whether a process merges that began a short time ago: it publishes at its end."""
    lock = home.state / "merge.lock"
    found = holder(lock)
    return is_held(lock) and (found is None or now - found.since <= STUCK_AFTER)


def _instant(text: str) -> datetime:
    return datetime.fromisoformat(text)


def published_of(home: Home) -> tuple[PublishedFile | None, str]:
    """Return what the published file says of itself, and why it can't be read or an empty text."""
    try:
        return read_published(home.warehouse), ""
    except (duckdb.Error, OSError) as error:
        # Not its text: it names folders of this machine.
        return None, type(error).__name__
