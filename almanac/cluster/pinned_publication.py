"""A publication that all worker processes of a job read, whatever is published meanwhile.

The driver copies the published file, since the next publication may write to it. A worker checks
that its file has the same publication, and keeps it open for its next tasks.
"""

import os
import shutil
from dataclasses import dataclass
from datetime import datetime, tzinfo
from pathlib import Path
from typing import Final

from almanac.database import Database, open_database
from almanac.errors import InvalidArgument, WarehouseError
from almanac.reader import CoinTexts, Reader, find_file
from almanac.reading.named_sql import NamedStatements
from almanac.reading.query_limits import QueryLimits
from almanac.reading.temporary import own_folder

LIMITS: Final = QueryLimits(memory_bytes=500_000_000, threads=1)
"""Of a worker process, which runs one task at a time."""
_SQL: Final = NamedStatements(__package__)
_TRIES: Final = 5


@dataclass(frozen=True, slots=True)
class PinnedPublication:
    """A publication: its id, its size, and how to read it. A pickle of it is small.

    Attributes:
        name: of the copy, without a folder; the same publication has the same name.
        now: the time of the call, by the clock of the database. A worker's clock does not count.
    """

    id: str
    size: int
    name: str
    tz: tzinfo
    coins_are: CoinTexts
    now: datetime

    def open(self, file: Path) -> Database:
        """Return the database of this process; the last one is kept open.

        Raises:
            WarehouseError: the file is missing, or has another publication.
        """
        key = (str(file), self)
        if key not in _open:
            for database in _open.values():
                database.close()
            _open.clear()
            _open[key] = self._open(file)
        return _open[key]

    def _open(self, file: Path) -> Database:
        if not file.is_file():
            raise WarehouseError(
                f"this worker has no file {file}; expected publication {self.id}. No row was "
                "computed. The file must be sent to each worker, or be on a disk that all share."
            )
        options = {"tz": self.tz, "limits": LIMITS, "coins_are": self.coins_are}
        database = open_database(file, follow=False, clock=lambda: self.now, **options)  # type: ignore[arg-type]
        found, size = read_publication_id(database.reader), file.stat().st_size
        if (found, size) != (self.id, self.size):
            database.close()
            raise WarehouseError(
                f"{file} on this worker has publication {found} ({size:,} bytes); expected "
                f"{self.id} ({self.size:,} bytes). No row was computed. Another publication "
                "replaced it: run the job again, or let the driver send the file."
            )
        return database


_open: Final[dict[tuple[str, PinnedPublication], Database]] = {}


def read_publication_id(reader: Reader) -> str:
    """Return the id of the publication that a reader reads."""
    (row,) = reader.rows(_SQL["publication_id"])
    return str(row["id"])


def pin_publication(home: str | Path | Database) -> tuple[PinnedPublication, Path]:
    """Copy the newest publication; return it and the copy, which is removed with this process.

    Raises:
        WarehouseError: there is no published file, or it can't be copied.
        InvalidArgument: the database keeps an older publication, whose file is gone.
    """
    if isinstance(home, Database):
        reader = home.reader
        file, tz, coins_are, now = reader.file, reader.tz, reader.coins_are, reader.now()
    else:
        file = find_file(home)
        with open_database(file) as database:
            reader = database.reader
            tz, coins_are, now = reader.tz, reader.coins_are, reader.now()
    copy = _copy_file(file)
    with open_database(copy, follow=False) as database:
        found = read_publication_id(database.reader)
    if isinstance(home, Database) and home.reader.keeps_publication:
        kept = read_publication_id(home.reader)
        if kept != found:
            raise InvalidArgument(
                f"the database was opened with follow=False and keeps publication {kept}, but "
                f"{file} has {found} now. Nothing was computed. Open the database again."
            )
    size = copy.stat().st_size
    return PinnedPublication(found, size, copy.name, tz, coins_are, now), copy


def _copy_file(file: Path) -> Path:
    """Copy a published file, unless it was copied before."""
    try:
        for _ in range(_TRIES):
            with file.open("rb") as source:
                before = os.fstat(source.fileno())
                mark = (before.st_ino, before.st_mtime_ns, before.st_size)
                copy = own_folder() / f"almanac-{'-'.join(map(str, mark))}.duckdb"
                if copy.exists():
                    return copy
                unfinished = copy.with_suffix(".unfinished")
                with unfinished.open("wb") as target:
                    shutil.copyfileobj(source, target, 1 << 22)
                after = os.fstat(source.fileno())
                if mark == (after.st_ino, after.st_mtime_ns, after.st_size):
                    unfinished.rename(copy)
                    return copy
    except OSError as error:
        raise WarehouseError(
            f"{file} can't be copied for the workers: {error}. Nothing was computed; TMPDIR may "
            "name a folder with more space."
        ) from error
    raise WarehouseError(f"{file} changed during each of {_TRIES} copies. Nothing was computed.")
