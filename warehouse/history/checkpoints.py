"""Checkpoints: published files of earlier days, from which a merge refolds later ones.

    checkpoints/YYYY-MM-DD.duckdb    the file after the last batch of that day

A published file is never changed, so a checkpoint is another name of it (a hard link). The last
seven observed days and the first day of each month have a checkpoint.
"""

import logging
import mmap
import shutil
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import date
from itertools import pairwise
from pathlib import Path
from typing import Final

import duckdb

from warehouse.files.storage import close_for_writing, link_file
from warehouse.history import packed
from warehouse.history.packed import Unpackable
from warehouse.history.warehouse_file import MergedBatch, PublishedFile, read_published
from warehouse.home import Home

_log = logging.getLogger(__name__)
_NEWEST_KEPT: Final = 7
_ENDS: Final = (".duckdb", ".packed")


def choose_days(days: Iterable[date]) -> set[date]:
    """Return the days whose checkpoints are kept: the newest seven, and the first of each month."""
    ordered = sorted(set(days))
    return {*ordered[-_NEWEST_KEPT:], *_first_of_months(ordered).values()}


def _first_of_months(ordered: list[date]) -> dict[tuple[int, int], date]:
    return {(day.year, day.month): day for day in reversed(ordered)}


def list_days(home: Home) -> list[date]:
    found = list[date]()
    paths = [path for ends in _ENDS for path in home.checkpoints.root.glob(f"*{ends}")]
    for path in paths:
        with suppress(ValueError):
            found.append(date.fromisoformat(path.stem))
    return sorted(set(found))


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
                restore(home, earlier)
                found = read_published(path)
            except Unpackable as error:
                warn_of_damage(path, str(error))
                continue
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
            for ends in _ENDS:
                home.checkpoints.remove(f"{day.isoformat()}{ends}")


def restore(home: Home, day: date) -> None:
    """Make the file of a packed checkpoint again. Raises Unpackable."""
    path = checkpoint_path(home, day)
    if not path.is_file():
        data = _content(home, day)
        with home.checkpoints.writing(_name(day)) as file:
            file.write_bytes(data)
            close_for_writing(file)


def pack_older(home: Home) -> None:
    """Pack the checkpoints before the newest, each as its difference from the next."""
    days = list_days(home)
    firsts = set(_first_of_months(days).values())
    for day, after in reversed(list(pairwise(days))):
        path = checkpoint_path(home, day)
        if not path.is_file():
            continue
        name = None if day in firsts else after.isoformat()
        base: bytes | mmap.mmap = b"" if name is None else _mapped(home, after)
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as data:
            home.checkpoints.put(_packed_name(day), packed.pack(data, name, base))
        home.checkpoints.remove(_name(day))


def _mapped(home: Home, day: date) -> "bytes | mmap.mmap":
    path = checkpoint_path(home, day)
    if not path.is_file():
        return _content(home, day)
    with path.open("rb") as file:
        return mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)


def _content(home: Home, day: date) -> bytes:
    path = checkpoint_path(home, day)
    if path.is_file():
        return path.read_bytes()
    head, rest = packed.read_head(home.checkpoints.path(_packed_name(day)))
    base = b"" if head.after is None else _content(home, date.fromisoformat(head.after))
    return packed.unpack(head, rest, base)


def _packed_name(day: date) -> str:
    return f"{day.isoformat()}.packed"


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
