"""The change log: one Parquet file for each day, with the versions that began on it.

    lake/event_changes/observed_date=YYYY-MM-DD/changes.parquet

Each file records the batches that were folded into it, and the hash of the previous file. A batch
takes effect when its day's file is renamed into place; a broken chain is detected.
"""

from collections.abc import Iterable
from contextlib import suppress
from datetime import date, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import duckdb
import msgspec

from warehouse.connections import open_for_footers
from warehouse.errors import LakeDamaged
from warehouse.files import lake_paths
from warehouse.files.hashes import sha256_of
from warehouse.files.storage import Storage
from warehouse.home import Home
from warehouse.landing.batches import Feed
from warehouse.schema.columns import GROUPS
from warehouse.sql import Statements, literal

_SQL = Statements(__package__, GROUPS)

FORMAT = 1
NORMALISER = 6
"""Increased when the same bytes would give another history; days with an older one are refolded."""


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """The place of a day's file in the chain."""

    day: str
    previous: str | None
    """The sha256 of the file of the day before, None for the first."""
    fold_id: str
    folded_to: tuple[str, str, int, str] | None
    """The fold key of the last observation."""
    checkpoint: str | None
    files: dict[str, str] | None = None
    """The sha256 of the other files of the day, by their names in the lake; None if an older
    Almanac wrote the day and did not record them."""
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

    size: int
    modified_ns: int
    inode: int
    sha256: str
    head: Head


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
        if self._text is not None:
            return msgspec.json.decode(self._text, type=dict[str, Any])
        return msgspec.json.decode(_read_account(self.path), type=dict[str, Any])

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
        for folder in self._lake.folders(lake_paths.EVENT_CHANGES):
            path = self._lake.path(lake_paths.changes_in(folder))
            try:
                if path.exists() and (day := lake_paths.day_of(folder)) is not None:
                    found.append(DayFile(day, path, *_indexed(path, known.get(folder))))
            except LakeDamaged as error:
                damaged.append(error)
        fresh = {lake_paths.folder_of_day(day_file.day): day_file.indexed for day_file in found}
        if fresh != known:
            # It only saves reading: who may not write here, or has a full disk, reads the files.
            with suppress(OSError):
                self._index.parent.mkdir(parents=True, exist_ok=True)
                Storage(self._index.parent).put(self._index.name, msgspec.json.encode(fresh))
        return found, damaged

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
        self,
        connection: duckdb.DuckDBPyConnection,
        head: Head,
        batches: list[dict[str, Any]],
    ) -> DayFile:
        """Write the file of a day, with the records of its batches: this is the commit."""
        day = date.fromisoformat(head.day)
        meta = {**msgspec.to_builtins(head), "batches": batches}
        with self._lake.writing(lake_paths.changes_name(day)) as staged:
            values = {"file": str(staged), "meta": msgspec.json.encode(meta).decode()}
            connection.execute(_SQL["write_day"], values)
        path = self._lake.path(lake_paths.changes_name(day))
        return DayFile(day, path, *_indexed(path, None))

    def remove(self, day: date) -> None:
        self._lake.remove_folder(lake_paths.day_folder(lake_paths.EVENT_CHANGES, day))

    def keep(self, days: set[date]) -> None:
        """Remove the folders of all other days, and any that no fold has made."""
        for folder in self._lake.folders(lake_paths.EVENT_CHANGES):
            if lake_paths.day_of(folder) not in days:
                self._lake.remove_folder(f"{lake_paths.EVENT_CHANGES}/{folder}")

    def _read_index(self) -> dict[str, IndexedFile]:
        try:
            return msgspec.json.decode(self._index.read_bytes(), type=dict[str, IndexedFile])
        except (OSError, ValueError):
            return {}


def records_of(days: Iterable[DayFile]) -> list[dict[str, Any]]:
    """Return the records of the batches folded on some days, read through one connection.

    Raises:
        LakeDamaged: a file can't be read.
    """
    texts = [_read_account(day_file.path) for day_file in days]
    return [
        record
        for text in texts
        for record in msgspec.json.decode(text, type=dict[str, Any])["batches"]
    ]


def first_break(days: list[DayFile]) -> date | None:
    """Return the first day to be refolded: it has other rules, or the chain breaks there."""
    first = next(iter(folded_by_other_rules(days)), None)
    return min((day for day in (first_mismatch(days), first) if day is not None), default=None)


def folded_by_other_rules(days: Iterable[DayFile]) -> list[date]:
    """Return the days that another version folded by other rules, oldest first."""
    return [day_file.day for day_file in days if day_file.head.normaliser != NORMALISER]


def first_mismatch(days: list[DayFile]) -> date | None:
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


def _indexed(path: Path, known: IndexedFile | None) -> tuple[IndexedFile, str | None]:
    """Return the index entry of a file, and its metadata if it had to be read."""
    try:
        stat = path.stat()
    except OSError as error:
        raise _damaged(path, error.strerror) from error
    if known is not None and (known.size, known.modified_ns, known.inode) == (
        stat.st_size,
        stat.st_mtime_ns,
        stat.st_ino,
    ):
        return known, None
    try:
        sha256 = sha256_of(path)
        text = _read_account(path)
        head = msgspec.json.decode(text, type=Head)
    except ValueError as error:
        raise _damaged(path, error) from error
    except OSError as error:
        raise _damaged(path, error.strerror) from error
    if lake_paths.DAY + head.day != path.parent.name:
        raise _damaged(path, f"it is the file of {head.day}")
    indexed = IndexedFile(
        size=stat.st_size,
        modified_ns=stat.st_mtime_ns,
        inode=stat.st_ino,
        sha256=sha256,
        head=head,
    )
    return indexed, text


def _read_account(path: Path) -> str:
    """Return the metadata of a file, checked against its type."""
    try:
        text = _read_meta(path)
        msgspec.json.decode(text, type=_Account)
    except ValueError as error:
        raise _damaged(path, error) from error
    return text


def _read_meta(path: Path) -> str:
    try:
        with open_for_footers() as connection:
            rows = connection.execute(_SQL["read_day_metadata"], {"file": literal(path)}).fetchall()
    except duckdb.Error as error:
        raise _damaged(path, error) from error
    if len(rows) != 1:
        raise _damaged(path, "it does not record what was folded into it")
    return str(rows[0][0])


def _damaged(path: Path, why: object) -> LakeDamaged:
    return LakeDamaged(
        f"{path.parent.name}/{path.name} of the change log can't be read: {why}. Landing still "
        "has its batches: `almanac replay` rebuilds the lake."
    )
