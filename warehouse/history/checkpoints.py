"""Checkpoints: published files of earlier days, from which a merge refolds later ones.

    checkpoints/YYYY-MM-DD.duckdb    the file after the last batch of that day

A published file is never changed, so a checkpoint is another name of it (a hard link). The last
seven observed days and the first day of each month have a checkpoint.
"""

import logging
import shutil
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import date
from pathlib import Path
from typing import Final

import duckdb

from warehouse.files.storage import close_for_writing, link_file
from warehouse.history.warehouse_file import MergedBatch, PublishedFile, read_published
from warehouse.home import Home

_log = logging.getLogger(__name__)
_NEWEST_KEPT: Final = 7


def choose_days(days: Iterable[date]) -> set[date]:
    """Return the days whose checkpoints are kept: the newest seven, and the first of each month."""
    ordered = sorted(set(days))
    of_months = {(day.year, day.month): day for day in reversed(ordered)}
    return {*ordered[-_NEWEST_KEPT:], *of_months.values()}


def list_days(home: Home) -> list[date]:
    found = list[date]()
    for path in home.checkpoints.root.glob("*.duckdb"):
        with suppress(ValueError):
            found.append(date.fromisoformat(path.stem))
    return sorted(found)


def checkpoint_path(home: Home, day: date) -> Path:
    return home.checkpoints.path(_name(day))


def _name(day: date) -> str:
    return f"{day.isoformat()}.duckdb"


def find_before(
    home: Home, day: date, merged: Mapping[str, MergedBatch]
) -> tuple[date, Path] | None:
    for earlier in reversed(list_days(home)):
        if earlier < day:
            path = checkpoint_path(home, earlier)
            try:
                found = read_published(path)
            except duckdb.Error as error:
                warn_of_damage(path, str(error).splitlines()[0])
                continue
            if found is not None and is_base(found, earlier, merged):
                return earlier, path
    return None


def is_base(found: PublishedFile, day: date, merged: Mapping[str, MergedBatch]) -> bool:
    """Whether a merge can begin from the checkpoint of a day.

    It must have the current tables and all batches merged up to its day. A merge killed after
    publishing leaves a checkpoint without some batches.
    """
    until = {batch_id: batch for batch_id, batch in merged.items() if batch.day <= day}
    return found.has_current_tables and found.batches == until


def warn_of_damage(path: Path, why: str) -> None:
    _log.warning("The checkpoint %s is damaged, and an earlier one is used: %s", path.name, why)


def keep_only(home: Home, days: set[date]) -> None:
    for day in list_days(home):
        if day not in days:
            home.checkpoints.remove(_name(day))


def copy_file(home: Home, source: Path, day: date) -> None:
    with home.checkpoints.writing(_name(day)) as copy:
        shutil.copyfile(source, copy)
        close_for_writing(copy)


def link_published(home: Home, day: date) -> None:
    """Give the published file a second name; a copy where the disk has no hard links.

    Nothing is done if the checkpoint of the day is not older than the file.
    """
    path = checkpoint_path(home, day)
    if path.is_file() and path.stat().st_mtime_ns >= home.warehouse.stat().st_mtime_ns:
        return
    with home.checkpoints.writing(_name(day)) as link:
        link_file(home.warehouse, link)
