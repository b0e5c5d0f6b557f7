"""Checkpoints: published files of earlier days, from which a merge refolds later ones.

    checkpoints/YYYY-MM-DD.duckdb    the file after the last batch of that day

A published file is never changed, so a checkpoint is another name of it (a hard link). The last
seven observed days have one, and the first day of each month.
"""

import os
import shutil
import uuid
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import date
from pathlib import Path
from typing import Final

import duckdb

from warehouse.files.storage import close_for_writing, make_folders, sync
from warehouse.history.warehouse_file import MergedBatch, read_published
from warehouse.home import Home

_NEWEST_KEPT: Final = 7
_UNFINISHED: Final = ".unfinished-"


def choose_days(days: Iterable[date]) -> set[date]:
    """Return the days whose checkpoints are kept: the newest seven, and the first of each month."""
    ordered = sorted(set(days))
    of_months = {(day.year, day.month): day for day in reversed(ordered)}
    return {*ordered[-_NEWEST_KEPT:], *of_months.values()}


def list_days(home: Home) -> list[date]:
    """Return the days that have a checkpoint, oldest first."""
    found = list[date]()
    for path in home.checkpoints.glob("*.duckdb"):
        with suppress(ValueError):
            found.append(date.fromisoformat(path.stem))
    return sorted(found)


def path_of(home: Home, day: date) -> Path:
    return home.checkpoints / f"{day.isoformat()}.duckdb"


def find_before(
    home: Home, day: date, merged: Mapping[str, MergedBatch]
) -> tuple[date, Path] | None:
    """Return the newest checkpoint of an earlier day that can be read and has today's tables.

    It has the batches that were merged until its day: a merge that was killed after it published
    leaves a checkpoint that lacks some.
    """
    for earlier in reversed(list_days(home)):
        if earlier < day:
            path = path_of(home, earlier)
            until = {id_: each for id_, each in merged.items() if each.day <= earlier}
            with suppress(duckdb.Error):
                found = read_published(path)
                if found is not None and found.has_current_tables and found.batches == until:
                    return earlier, path
    return None


def keep(home: Home, days: set[date]) -> None:
    """Remove the checkpoints of all other days, and what a killed merge left."""
    _remove(home, (each for each in list_days(home) if each not in days))
    for path in home.checkpoints.glob(f"{_UNFINISHED}*"):
        path.unlink()


def _remove(home: Home, days: Iterable[date]) -> None:
    for day in days:
        path_of(home, day).unlink()


def copy_file(home: Home, source: Path, day: date) -> None:
    """Keep a copy of a file that will be changed."""
    make_folders(home.checkpoints)
    unfinished = home.checkpoints / f"{_UNFINISHED}{uuid.uuid4().hex}"
    shutil.copyfile(source, unfinished)
    close_for_writing(unfinished)
    sync(unfinished)
    _put(unfinished, path_of(home, day))


def link_published(home: Home, day: date) -> None:
    """Give the published file a second name; a copy where the disk has no hard links."""
    make_folders(home.checkpoints)
    unfinished = home.checkpoints / f"{_UNFINISHED}{uuid.uuid4().hex}"
    try:
        os.link(home.warehouse, unfinished)
    except OSError:
        copy_file(home, home.warehouse, day)
    else:
        _put(unfinished, path_of(home, day))


def _put(unfinished: Path, path: Path) -> None:
    unfinished.replace(path)
    sync(path.parent)
