"""Old files of a home outside landing and history: logs, what was set aside, what was left.

Also the bodies in the inbox that landing has. Landing and history are never deleted. This module
does not import Dagster.
"""

import re
import shutil
from collections.abc import Iterable
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Final

from almanac.reading.published import abandoned_links
from almanac.reading.temporary import leftovers
from pipeline.retention.lengths import Pruned, Retention
from pipeline.runs.store import STORES
from resources.inbox.inbox_file import InboxReader, InboxWriter, inbox_path
from resources.inbox.progress import read_progress
from warehouse.errors import LockHeld
from warehouse.history.merge import ABANDONED_S
from warehouse.home import Home

_SET_ASIDE: Final = re.compile(r"\.(?:foreign|damaged)-(\d{8})T")
"""The end of such a name has the day of the last write, or on which the file was set aside."""


def prune_files(
    home: Home, retention: Retention, now: datetime, *, dry_run: bool = False
) -> list[Pruned]:
    """Delete the old files of a home; return the counts by kind."""
    before = now.date() - timedelta(days=retention.request_logs_days)
    with home.merge_lock():
        pruned = [
            _files("request logs", _old_logs(home, before), dry_run=dry_run),
            _files("unfinished files", _unfinished(home), dry_run=dry_run),
            _files("foreign .wal files", _foreign_logs(home, before), dry_run=dry_run),
            _files("damaged databases", _damaged(home, before), dry_run=dry_run),
        ]
    return [*pruned, _files("temporary folders", leftovers(), dry_run=dry_run)]


def prune_deliveries(
    home: Home, retention: Retention, now: datetime, *, dry_run: bool = False
) -> list[Pruned]:
    """Clear the old bodies of landed deliveries; empty for a home without an inbox.

    A receiver that runs does it itself, and is left to it.

    Raises:
        InboxUnusable: a file of the inbox can't be used.
    """
    if not inbox_path(home).exists():
        return []
    before = now - timedelta(days=retention.deliveries_days)
    landed_to = read_progress(home).landed_to
    count, size = InboxReader(home).old_bodies(before=before, landed_to=landed_to)
    if count and not dry_run:
        try:
            with InboxWriter.open(home, lambda: now) as writer:
                while writer.clear_bodies(before=before, landed_to=landed_to):
                    pass
        except LockHeld:
            count = size = 0
    return [Pruned("bodies of landed deliveries", count, size)]


def _old_logs(home: Home, before: date) -> list[Path]:
    return [
        path
        for path in sorted((home.state / "requests").glob("*.jsonl"))
        if path.stem < before.isoformat()
    ]


def _unfinished(home: Home) -> list[Path]:
    """Return the files that killed writers left; the merge lock excludes living writers.

    Pulls write to landing without that lock, so from there only old files are returned.
    """
    left = [
        *home.root.glob(".unfinished-*"),
        *abandoned_links(home.root),
        *home.lake.unfinished(),
        *home.landing.storage.unfinished(older_than_s=ABANDONED_S),
        *home.landing.never_landed(older_than_s=ABANDONED_S),
        *home.state.glob("almanac-verify-*"),
        *home.state.glob("spill/*"),
    ]
    return sorted(path for path in left if not _is_empty_spill(path))


def _is_empty_spill(path: Path) -> bool:
    return path.parent.name == "spill" and not any(inner.is_file() for inner in path.rglob("*"))


def _foreign_logs(home: Home, before: date) -> list[Path]:
    """Return the old logs that other programs wrote beside published files."""
    return _old(home.root.glob(f"{home.warehouse.name}.wal.foreign-*"), before)


def _damaged(home: Home, before: date) -> list[Path]:
    """Return the Dagster databases that were set aside long ago, with their journals."""
    folders = {(home.dagster / name).parent for name in STORES}
    return _old((path for folder in folders for path in folder.glob("*.damaged-*")), before)


def _old(paths: Iterable[Path], before: date) -> list[Path]:
    named = ((path, _SET_ASIDE.search(path.name)) for path in sorted(paths))
    return [path for path, day in named if day is not None and day[1] < f"{before:%Y%m%d}"]


def _files(what: str, paths: Iterable[Path], *, dry_run: bool) -> Pruned:
    count = size = 0
    for path in paths:
        count += 1
        inside = (
            [path] if path.is_file() else [inner for inner in path.rglob("*") if inner.is_file()]
        )
        size += sum(file.stat().st_size for file in inside)
        if not dry_run:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    return Pruned(what, count, size)
