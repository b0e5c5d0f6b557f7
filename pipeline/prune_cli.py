"""`almanac prune`: take away what is no longer of use. Never landing, never history."""

import re
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Annotated, Final

import typer

from pipeline.console import Table, people, print_json
from pipeline.homes import home_there
from pipeline.options import JsonOption
from pipeline.run_store import STORES
from warehouse.attaching import left_links
from warehouse.home import Home
from warehouse.merge import ABANDONED_S
from warehouse.temporary import leftovers

_SET_ASIDE: Final = re.compile(r"\.(?:foreign|damaged)-(\d{8})T")
"""What has such a name says its day: when it was written last, or set aside."""


@dataclass(frozen=True, slots=True)
class Pruned:
    """One kind of thing that was taken away."""

    what: str
    count: int
    bytes: int


def prune(
    days: Annotated[int, typer.Option(min=1, help="Keep this many days of each.")] = 90,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Remove old logs, runs and files that were set aside, and what killed processes left."""
    home = home_there()
    before = datetime.now(UTC).date() - timedelta(days=days)
    with home.merge_lock():
        pruned = [
            _files("request logs", _old_logs(home, before), dry_run=dry_run),
            _files("unfinished files", _unfinished(home), dry_run=dry_run),
            _files("foreign .wal files", _foreign_logs(home, before), dry_run=dry_run),
            _files("damaged databases", _damaged(home, before), dry_run=dry_run),
        ]
    pruned.append(_files("temporary folders", leftovers(), dry_run=dry_run))
    pruned.append(_runs(home, before, dry_run=dry_run))
    if as_json:
        print_json([{"what": one.what, "count": one.count, "bytes": one.bytes} for one in pruned])
        return
    table = Table("What", "Count", "Bytes")
    for one in pruned:
        table.add_row(one.what, f"{one.count:,}", f"{one.bytes:,}")
    people.print(table)
    if dry_run:
        people.print("Nothing was removed.")


def _old_logs(home: Home, before: date) -> list[Path]:
    return [
        path
        for path in sorted((home.state / "requests").glob("*.jsonl"))
        if path.stem < before.isoformat()
    ]


def _unfinished(home: Home) -> list[Path]:
    """Return what writers left that were killed; the lock keeps those that live away.

    Not from landing, where pulls write without it: there only what is old.
    """
    left = [
        *home.root.glob(".unfinished-*"),
        *left_links(home.root),
        *home.lake.unfinished(),
        *home.landing.storage.unfinished(older_than_s=ABANDONED_S),
        *home.landing.never_landed(older_than_s=ABANDONED_S),
        *home.state.glob("almanac-verify-*"),
        *home.state.glob("spill/*"),
    ]
    return sorted(path for path in left if not _is_empty_spill(path))


def _is_empty_spill(path: Path) -> bool:
    return path.parent.name == "spill" and not any(one.is_file() for one in path.rglob("*"))


def _foreign_logs(home: Home, before: date) -> list[Path]:
    """Return what other programs wrote to published files, where it was written long ago."""
    return _old(home.root.glob(f"{home.warehouse.name}.wal.foreign-*"), before)


def _damaged(home: Home, before: date) -> list[Path]:
    """Return the Dagster databases that were set aside long ago, and what lay beside them."""
    folders = {(home.dagster / name).parent for name in STORES}
    return _old((path for one in folders for path in one.glob("*.damaged-*")), before)


def _old(paths: Iterable[Path], before: date) -> list[Path]:
    named = ((path, _SET_ASIDE.search(path.name)) for path in sorted(paths))
    return [path for path, day in named if day is not None and day[1] < f"{before:%Y%m%d}"]


def _files(what: str, paths: Iterable[Path], *, dry_run: bool) -> Pruned:
    count = size = 0
    for path in paths:
        count += 1
        inside = [path] if path.is_file() else [one for one in path.rglob("*") if one.is_file()]
        size += sum(one.stat().st_size for one in inside)
        if not dry_run:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    return Pruned(what, count, size)


def _runs(home: Home, before: date, *, dry_run: bool) -> Pruned:
    """Remove the records of finished runs from before a day."""
    if not home.dagster.exists():
        return Pruned("Dagster runs", 0, 0)
    # Here, since importing Dagster takes longer than most commands.
    from dagster import RunsFilter

    from pipeline.dagster_home import instance_of

    end = datetime(before.year, before.month, before.day, tzinfo=UTC)
    with instance_of(home) as instance:
        old = [
            record.dagster_run.run_id
            for record in instance.get_run_records(RunsFilter(created_before=end))
            if record.dagster_run.is_finished
        ]
        for run_id in [] if dry_run else old:
            instance.delete_run(run_id)
    return Pruned("Dagster runs", len(old), 0)
