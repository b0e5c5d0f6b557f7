"""Checkpoints: published files of earlier days, from which a merge refolds later ones.

    checkpoints/YYYY-MM-DD.duckdb    the file after the last batch of the newest day
    checkpoints/YYYY-MM-DD.packed    of an earlier day: the pages that differ from the next one's

A published file is never changed, so the newest checkpoint is another name of it (a hard link). The
last seven observed days and the first day of each month have a checkpoint.

A file of DuckDB changes in few pages from day to day. A packed checkpoint is a zstd stream: a head
(JSON, one line), then pages, each behind its place. The first of a month has all pages. The head
has the sha256 of the whole file. A damaged checkpoint is removed, and an earlier one is used.
"""

import io
import logging
import shutil
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import date
from itertools import count, pairwise
from pathlib import Path
from typing import BinaryIO, Final

import duckdb
import msgspec
import zstandard

from warehouse.errors import is_of_the_disk
from warehouse.files.documents import hash_file
from warehouse.files.storage import close_for_writing, link_file
from warehouse.history.warehouse_file import MergedBatch, PublishedFile, read_published
from warehouse.home import Home

_log = logging.getLogger(__name__)
_NEWEST_KEPT: Final = 7
_PAGE: Final = 4096
_PLACE: Final = 4
_LEVEL: Final = 3


class DamagedCheckpoint(Exception):
    """A packed checkpoint, or a file that it differs from, is damaged, missing or replaced."""


class _Head(msgspec.Struct, frozen=True, kw_only=True):
    """`after` is the day of the checkpoint that has the other pages; None if there are none."""

    after: date | None
    bytes: int
    sha256: str


def choose_days(days: Iterable[date]) -> set[date]:
    """Return the days whose checkpoints are kept: the newest seven, and the first of each month."""
    ordered = sorted(set(days))
    return {*ordered[-_NEWEST_KEPT:], *_first_of_months(ordered)}


def _first_of_months(ordered: list[date]) -> set[date]:
    return set({(day.year, day.month): day for day in reversed(ordered)}.values())


def list_days(home: Home) -> list[date]:
    found = set[date]()
    for path in home.checkpoints.root.glob("????-??-??.*"):
        with suppress(ValueError):
            found.add(date.fromisoformat(path.stem))
    return sorted(found)


def checkpoint_path(home: Home, day: date) -> Path:
    """Return the path of the whole file of a checkpoint."""
    return home.checkpoints.path(f"{day.isoformat()}.duckdb")


def packed_path(home: Home, day: date) -> Path:
    return home.checkpoints.path(f"{day.isoformat()}.packed")


def find_before(
    home: Home, day: date, merged: Mapping[str, MergedBatch]
) -> tuple[date, Path] | None:
    for earlier in reversed(list_days(home)):
        if earlier < day:
            try:
                path = restore(home, earlier)
                found = read_published(path)
            except (DamagedCheckpoint, duckdb.Error) as error:
                drop(home, earlier, str(error).splitlines()[0])
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


def drop(home: Home, day: date, why: str) -> None:
    """Remove a damaged checkpoint, and log it."""
    _log.warning(
        "The checkpoint of %s is damaged: it was removed, and an earlier one is used: %s", day, why
    )
    _remove(home, day)


def _remove(home: Home, day: date) -> None:
    for path in (packed_path(home, day), checkpoint_path(home, day)):
        home.checkpoints.remove(path.name)


def keep_only(home: Home, days: set[date]) -> None:
    for day in list_days(home):
        if day not in days:
            _restore_dependent(home, day)
            _remove(home, day)


def restore(home: Home, day: date) -> Path:
    """Return the whole file of a checkpoint, made again if it is packed.

    Raises:
        DamagedCheckpoint: it can't be made again.
    """
    path = checkpoint_path(home, day)
    if not path.is_file():
        with home.checkpoints.writing(path.name) as file:
            unpack(home, day, file)
            close_for_writing(file)
    return path


def _restore_dependent(home: Home, day: date) -> None:
    """Restore the checkpoint that differs from the one of a day, which is replaced or removed."""
    earlier = max((each for each in list_days(home) if each < day), default=day)
    with suppress(DamagedCheckpoint, FileNotFoundError, ValueError, zstandard.ZstdError):
        if _open(packed_path(home, earlier))[0].after == day:
            restore(home, earlier)


def pack_older(home: Home) -> None:
    """Pack the whole checkpoints before the newest, each as its difference from the next."""
    days, done = list_days(home), list[Path]()
    for day, after in reversed(list(pairwise(days))):
        path, base = checkpoint_path(home, day), checkpoint_path(home, after)
        is_first = day in _first_of_months(days)
        # The next one is packed already if a merge was killed: it stays whole until both are.
        if path.is_file() and (is_first or base.is_file()):
            with home.checkpoints.writing(packed_path(home, day).name) as file:
                _pack(path, None if is_first else after, base, file)
            done.append(path)
    for path in done:  # At the end: each of them is the base of another.
        home.checkpoints.remove(path.name)


def _pack(path: Path, after: date | None, base: Path, target: Path) -> None:
    head = _Head(after=after, bytes=path.stat().st_size, sha256=hash_file(path))
    compressor = zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True)
    with (
        path.open("rb") as file,
        base.open("rb") as other,
        target.open("wb") as opened,
        compressor.stream_writer(opened) as packed,
    ):
        packed.write(msgspec.json.encode(head) + b"\n")
        for place in count():
            page, there = file.read(_PAGE), other.read(_PAGE)
            if not page:
                break
            if after is None or page != there:
                packed.write(place.to_bytes(_PLACE, "little") + page)


def unpack(home: Home, day: date, target: Path) -> None:
    """Write the whole file of a checkpoint, packed or not, to a path.

    Raises:
        DamagedCheckpoint: it can't be made again.
    """
    path, packed = checkpoint_path(home, day), packed_path(home, day)
    if path.is_file():
        shutil.copyfile(path, target)
        return
    try:
        head, pages = _open(packed)
        if head.after is not None and head.after > day:  # Else the file is of another day.
            unpack(home, head.after, target)
        else:
            target.touch()
        with target.open("r+b") as file:
            while found := pages.read(_PLACE):
                if (place := int.from_bytes(found, "little") * _PAGE) >= head.bytes:
                    raise ValueError("it has a page behind its end")
                file.seek(place)
                file.write(pages.read(_PAGE))
            file.truncate(head.bytes)
        if hash_file(target) != head.sha256:
            raise ValueError("its pages, or the pages of the next one, were changed")
    except (OSError, ValueError, zstandard.ZstdError) as error:
        if is_of_the_disk(error):
            raise
        why = error.strerror if isinstance(error, OSError) else error
        raise DamagedCheckpoint(f"{packed.name} can't be read: {why}") from error


def _open(packed: Path) -> tuple[_Head, BinaryIO]:
    """Return the head of a packed checkpoint, and the stream of its pages."""
    data = zstandard.ZstdDecompressor().stream_reader(packed.read_bytes())
    stream = io.BufferedReader(data)
    return msgspec.json.decode(stream.readline(), type=_Head), stream


def copy_file(home: Home, source: Path, day: date) -> None:
    _restore_dependent(home, day)
    path = checkpoint_path(home, day)
    with home.checkpoints.writing(path.name) as copy:
        shutil.copyfile(source, copy)
        close_for_writing(copy)


def link_published(home: Home, day: date) -> None:
    """Give the published file a second name; a copy where the disk has no hard links.

    Nothing is done if the checkpoint of the day is not older than the file.
    """
    path = checkpoint_path(home, day)
    if path.is_file() and path.stat().st_mtime_ns >= home.warehouse.stat().st_mtime_ns:
        return
    _restore_dependent(home, day)
    with home.checkpoints.writing(path.name) as link:
        link_file(home.warehouse, link)
