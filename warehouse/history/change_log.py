"""The change log, one Parquet file per day with the versions that began on it; the lake's files.

    lake/event_changes/observed_date=YYYY-MM-DD/changes.parquet
    lake/head.json    the newest day of the change log, and the sha256 of its file

Each day's file records the batches that were folded into it, the sha256 of the day's other files,
and the sha256 of the file of the day before. A batch takes effect when its day's file is renamed
into place; a broken chain is detected.
"""

import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import date, datetime
from functools import cached_property
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final, Literal

import duckdb
import msgspec

from warehouse.errors import LakeDamaged
from warehouse.files import lake_paths
from warehouse.files.documents import find_damage, format_document, hash_file, read_sealed, seal
from warehouse.files.storage import Storage
from warehouse.home import Home
from warehouse.landing.batches import Feed
from warehouse.publish import lake_files
from warehouse.schema.columns import GROUPS
from warehouse.sql import Statements, literal, open_for_footers

_SQL = Statements(__package__, GROUPS)

FORMAT = 1
NORMALISER = 6
"""Increased when the same bytes would give another history; days with an older one are refolded."""
NEWEST_KEPT: Final = 7
_SELF_HASHED: Final = {lake_paths.HEAD, lake_paths.EVENTS_HASHES, lake_paths.EVENTS_MARKER}
"""Files of a lake that contain their own hash, or need none."""


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """The place of a day's file in the chain."""

    day: str
    previous: str | None
    """The sha256 of the file of the day before, None for the first."""
    fold_id: str
    folded_to: tuple[str, str, int, str] | None
    """The fold key of the last observation."""
    checkpoint: str | None
    files: dict[str, str] = {}
    """The sha256 of the other files of the day, by their names in the lake. Days with another
    `normaliser` may lack it; they are refolded."""
    normaliser: int = NORMALISER
    format: int = FORMAT


class _Record(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of a batch's record that code reads; a file without them is damaged."""

    batch_id: str
    feed: Feed
    status: Literal["merged", "quarantined"]
    released: bool
    arrived: int
    good: int
    rejected: int
    ignored: int
    plan: str
    observed_at: datetime
    content_at: datetime
    complete: bool
    why: str | None
    flagged: str | None
    why_incomplete: str | None


class _Account(Head, frozen=True, kw_only=True):
    batches: tuple[_Record, ...]


class IndexedFile(msgspec.Struct, frozen=True, kw_only=True):
    """A day's file when it was last read, so that an unchanged file is not read again."""

    stamp: tuple[int, int, int]
    """Size in bytes, time of modification in ns, inode."""
    sha256: str
    head: Head

    @property
    def modified_ns(self) -> int:
        return self.stamp[1]


class DayFile:
    """One day of the change log."""

    def __init__(
        self, day: date, path: Path, indexed: IndexedFile, text: str | None = None
    ) -> None:
        """`text` is the file's metadata, if it was read just now."""
        self.day = day
        self.path = path
        self.sha256 = indexed.sha256
        self.head = indexed.head
        self.indexed = indexed
        self._text = text

    @property
    def name(self) -> str:
        return lake_paths.changes_name(self.day)

    @cached_property
    def meta(self) -> dict[str, Any]:
        """The metadata of the file, with the records of its batches."""
        text = _read_account(self.path) if self._text is None else self._text
        return msgspec.json.decode(text, type=dict[str, Any])

    def batches(self) -> dict[str, dict[str, Any]]:
        """Return the records of the folded batches, by id."""
        return {batch["batch_id"]: batch for batch in self.meta["batches"]}


class ChangeLog:
    """The days of a lake. `index` is a cache file that saves reading; it may be deleted."""

    @classmethod
    def of(cls, home: Home) -> "ChangeLog":
        return cls(home.lake, home.state / "change_log.json")

    def __init__(self, lake: Storage, index: Path) -> None:
        self._lake = lake
        self._index = index

    def days(self, *, by_reading: bool = False) -> list[DayFile]:
        """Return all days, oldest first; `by_reading` does not trust the index.

        Raises:
            LakeDamaged: a file can't be read.
        """
        found, damaged = self.readable(by_reading=by_reading)
        if damaged:
            raise damaged[0]
        return found

    def readable(self, *, by_reading: bool = False) -> tuple[list[DayFile], list[LakeDamaged]]:
        """Return the readable days, oldest first, and the errors of the others."""
        known = {} if by_reading else self._read_index()
        found: list[DayFile] = []
        damaged: list[LakeDamaged] = []
        is_same = True
        for folder in self._lake.folders(lake_paths.EVENT_CHANGES):
            if (day := lake_paths.parse_day(folder)) is None:
                continue
            path = self._lake.path(lake_paths.changes_in(folder))
            entry = known.pop(folder, None)
            try:
                day_file = DayFile(day, path, *_index(path, entry))
            except FileNotFoundError:
                is_same = False
            except LakeDamaged as error:
                is_same = False
                damaged.append(error)
            else:
                is_same = is_same and day_file.indexed is entry
                found.append(day_file)
        if known or not is_same:
            self.write_index(found)
        return found, damaged

    def write_index(self, days: Iterable[DayFile]) -> None:
        """Write the index of some days, if the folder can be written: it only saves reading."""
        entries = {lake_paths.folder_of_day(day_file.day): day_file.indexed for day_file in days}
        with suppress(OSError):
            self._index.parent.mkdir(parents=True, exist_ok=True)
            Storage(self._index.parent).put(self._index.name, msgspec.json.encode(entries))

    def records_on(self, day: date) -> dict[str, dict[str, Any]]:
        """Return the records of the batches folded on a day, by id; none if it has no file.

        Raises:
            LakeDamaged: the file can't be read.
        """
        path = self._lake.path(lake_paths.changes_name(day))
        if not path.exists():
            return {}
        records = msgspec.json.decode(_read_account(path), type=dict[str, Any])["batches"]
        return {record["batch_id"]: record for record in records}

    def write(
        self, connection: duckdb.DuckDBPyConnection, head: Head, batches: list[dict[str, Any]]
    ) -> DayFile:
        """Write the file of a day, with the records of its batches: this is the commit."""
        day = date.fromisoformat(head.day)
        meta = {**msgspec.to_builtins(head), "batches": batches}
        with self._lake.writing(lake_paths.changes_name(day)) as staged:
            values = {"file": str(staged), "meta": msgspec.json.encode(meta).decode()}
            connection.execute(_SQL["write_day"], values)
        path = self._lake.path(lake_paths.changes_name(day))
        return DayFile(day, path, *_index(path, None))

    def remove(self, day: date) -> None:
        self._lake.remove_folder(lake_paths.day_folder(lake_paths.EVENT_CHANGES, day))

    def keep(self, days: set[date]) -> None:
        """Remove the folders of all other days, and any that no fold has made."""
        for folder in self._lake.folders(lake_paths.EVENT_CHANGES):
            if lake_paths.parse_day(folder) not in days:
                self._lake.remove_folder(f"{lake_paths.EVENT_CHANGES}/{folder}")

    def _read_index(self) -> dict[str, IndexedFile]:
        try:
            return msgspec.json.decode(self._index.read_bytes(), type=dict[str, IndexedFile])
        except (OSError, ValueError):
            return {}


def read_records(days: Iterable[DayFile]) -> list[dict[str, Any]]:
    """Return the records of the batches folded on some days.

    Raises:
        LakeDamaged: a file can't be read.
    """
    return [record for day_file in days for record in day_file.meta["batches"]]


def find_break(days: list[DayFile]) -> date | None:
    """Return the first day to be refolded: it has other rules, or the chain breaks there."""
    first = next(iter(find_older_days(days)), None)
    return min((day for day in (find_mismatch(days), first) if day is not None), default=None)


def find_older_days(days: Iterable[DayFile]) -> list[date]:
    """Return the days that another version folded by other rules, oldest first."""
    return [day_file.day for day_file in days if day_file.head.normaliser != NORMALISER]


def find_mismatch(days: list[DayFile]) -> date | None:
    """Return the first day whose file does not match the chain, None if all match.

    If a day records another hash than the previous file has, the previous file changed.
    """
    before: DayFile | None = None
    for day_file in days:
        if day_file.head.previous != (None if before is None else before.sha256):
            return day_file.day if before is None else before.day
        before = day_file
    return None


def day_before(days: list[DayFile], day: date) -> DayFile | None:
    """Return the last day before `day`, None if there is none."""
    return next((day_file for day_file in reversed(days) if day_file.day < day), None)


def _index(path: Path, known: IndexedFile | None) -> tuple[IndexedFile, str | None]:
    """Return the index entry of a file, and its metadata if it had to be read.

    Raises:
        FileNotFoundError: there is none.
        LakeDamaged: it can't be read.
    """
    try:
        stat = path.stat()
        stamp = (stat.st_size, stat.st_mtime_ns, stat.st_ino)
        if known is not None and known.stamp == stamp:
            return known, None
        sha256, text = hash_file(path), _read_account(path)
        head = msgspec.json.decode(text, type=Head)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise FileNotFoundError(path) from error
    except (OSError, ValueError) as error:
        raise _damaged(path, error) from error
    if lake_paths.DAY + head.day != path.parent.name:
        raise _damaged(path, f"it is the file of {head.day}")
    return IndexedFile(stamp=stamp, sha256=sha256, head=head), text


def _read_account(path: Path) -> str:
    """Return the metadata of a file, checked against its type."""
    try:
        with open_for_footers() as connection:
            rows = connection.execute(_SQL["read_day_metadata"], {"file": literal(path)}).fetchall()
        if len(rows) != 1:
            raise ValueError("it does not record what was folded into it")
        text = str(rows[0][0])
        msgspec.json.decode(text, type=_Account)
    except (ValueError, duckdb.Error) as error:
        raise _damaged(path, error) from error
    return text


def _damaged(path: Path, why: object) -> LakeDamaged:
    reason = why.strerror if isinstance(why, OSError) else why
    return LakeDamaged(
        f"{path.parent.name}/{path.name} of the change log can't be read: {reason}. Landing still "
        "has its batches: `almanac replay` rebuilds the lake."
    )


class LakeHead(msgspec.Struct, frozen=True, kw_only=True):
    """The end of the change log. It has the hash of the newest day, which no later file records."""

    day: date | None
    sha256: str | None
    unfinished_from: date | None
    """The first day that a fold in progress writes; None once it has written all days."""


def read_head(lake: Storage) -> LakeHead | None:
    """Return the head of a lake, None if none was written yet.

    Raises:
        LakeDamaged: it can't be read, or changed after it was written.
    """
    path = lake.path(lake_paths.HEAD)
    if not path.exists():
        return None
    try:
        return read_sealed(path.read_bytes(), LakeHead)
    except (OSError, ValueError) as error:
        raise LakeDamaged(
            f"{lake_paths.HEAD} of the lake can't be read: {error}. `almanac merge` makes it again."
        ) from error


def write_head(lake: Storage, newest: DayFile | None, *, unfinished_from: date | None) -> None:
    """Write which day is the newest. `unfinished_from`: a fold is about to write from that day."""
    day, sha256 = (None, None) if newest is None else (newest.day, newest.sha256)
    head = LakeHead(day=day, sha256=sha256, unfinished_from=unfinished_from)
    lake.put(lake_paths.HEAD, seal(format_document(head)))


def find_doubtful_day(lake: Storage, days: list[DayFile]) -> date | None:
    """Return the first day to refold according to the head, None if nothing changed.

    A day is returned if a fold was interrupted, or the newest day is not the one in the head.
    """
    newest = days[-1] if days else None
    try:
        head = read_head(lake)
    except LakeDamaged:
        head = None
    if head is None:
        return None if newest is None else newest.day
    if head.unfinished_from is not None:
        return head.unfinished_from
    if head.day is None or (newest is not None and newest.sha256 == head.sha256):
        return None
    return head.day if newest is None else min(head.day, newest.day)


def choose_checkpoints(days: list[date]) -> set[date]:
    """Return the days whose checkpoints are kept: the newest seven, and the last of each month."""
    newest = set(days[-NEWEST_KEPT:])
    return newest | {
        day
        for day, following in zip_longest(days, days[1:])
        if following is None or (following.year, following.month) != (day.year, day.month)
    }


def list_files(lake: Storage, days: list[DayFile]) -> dict[str, str | None]:
    """Return the files that a lake should have, with their sha256; None if it is not recorded.

    They are the files of the days of a change log, and the published events by month.

    Raises:
        LakeDamaged: the record of the events by month can't be read.
    """
    hashes: dict[str, str | None] = {}
    kept = choose_checkpoints([day_file.day for day_file in days])
    for day_file in days:
        hashes[day_file.name] = day_file.sha256
        hashes |= {
            name: sha256
            for name, sha256 in day_file.head.files.items()
            if day_file.day in kept or not name.startswith(f"{lake_paths.CHECKPOINTS}/")
        }
    unsettled = lake_files.unsettled_months(lake)
    hashes |= {
        lake_paths.month_name(month): sha256
        for month, sha256 in lake_files.read_hashes(lake).items()
        if month not in unsettled
    }
    names = map(lake_paths.month_name, unsettled)
    return hashes | {name: None for name in names if lake.exists(name)}


def find_changed_files(lake: Storage, hashes: Mapping[str, str | None]) -> Iterator[str]:
    """Yield a line for each file that is missing, changed, or does not belong to the lake."""
    there = {*_list_existing(lake)}
    for name in hashes:
        if name not in there:
            yield f"{name} is missing; `almanac replay` rebuilds it"
        elif (why := find_damage(lake, name, hashes)) is not None:
            yield f"{why}; `almanac replay` rebuilds it"
    for name in sorted(there - hashes.keys() - _SELF_HASHED):
        yield f"{name} does not belong to the lake; `almanac replay` removes it"


def is_whole(lake: Storage, day_file: DayFile) -> bool:
    """Whether the files of a day are unchanged, by hash: the index compares only size and times."""
    files = {day_file.name: day_file.sha256, **day_file.head.files}
    day = day_file.day
    names = (day_file.name, lake_paths.coins_name(day), lake_paths.absences_name(day))
    return not any(find_damage(lake, name, files) for name in names)


def read_released(home: Home) -> list[str]:
    """Return the ids of the batches that were folded as released."""
    days, _ = ChangeLog.of(home).readable()
    return [str(record["batch_id"]) for record in read_records(days) if record["released"]]


def remove_obstacles(home: Home) -> None:
    """Remove whatever blocks a path where a replay makes a folder or a file."""
    root = home.lake.root
    folders = [root / name for name in lake_paths.FOLDERS]
    for path in (root, *folders):
        if path.exists() and not path.is_dir():
            path.unlink()
    for path in (path for folder in folders if folder.is_dir() for path in folder.iterdir()):
        if not path.name.startswith("_") and not path.is_dir():
            path.unlink()
    if home.warehouse.is_dir():
        shutil.rmtree(home.warehouse)


def remove_surplus(home: Home) -> None:
    """Remove files that belong to no day of the lake, once all days were rebuilt."""
    belonging = _SELF_HASHED.union(list_files(home.lake, ChangeLog.of(home).days()))
    for name in _list_existing(home.lake):
        if name not in belonging:
            home.lake.remove(name)


def _list_existing(lake: Storage) -> list[str]:
    """Return the names of all finished files of a lake, and of folders in place of a file."""
    found: list[str] = []
    for path in sorted(lake.root.rglob("*")) if lake.root.is_dir() else ():
        parts = path.relative_to(lake.root).parts
        is_file = not path.is_dir() or (path.suffix and not any(path.iterdir()))
        if is_file and not any(part.startswith(".unfinished-") for part in parts):
            found.append("/".join(parts))
    return found
