"""The file `state/bucket.sqlite`: files of the index that this machine has, and how far it read.

It saves hashing every file. If it is lost, the next synchronisation compares all files again.
"""

import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from warehouse.errors import BucketUnusable
from warehouse.files.documents import hash_file
from warehouse.files.storage import make_folders
from warehouse.shared.database import statement
from warehouse.shared.file_index import SharedFile

FILE: Final = "bucket.sqlite"
_BUSY_TIMEOUT_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class LocalFile:
    """A file when this machine had it with this hash. `stat` tells whether it changed since."""

    sha256: str
    bytes: int
    stat: str


class LocalIndex:
    """The record of one home. Marks are the newest `seq` that was read or applied, by purpose."""

    def __init__(self, state: Path, root: Path) -> None:
        self._path = state / FILE
        self._root = root

    @property
    def exists(self) -> bool:
        return self._path.exists()

    @property
    def changed_at(self) -> datetime | None:
        """When the record was last written, None if there is none; UTC."""
        try:
            return datetime.fromtimestamp(self._path.stat().st_mtime, UTC)
        except FileNotFoundError:
            return None

    def marks(self) -> dict[str, int]:
        """Return the marks by name; none if there is no record yet."""
        if not self.exists:
            return {}
        return {str(name): int(value) for name, value in self._rows("read_marks", {})}

    def files(self, folder: str) -> dict[str, LocalFile]:
        """Return the recorded files whose names begin with `folder`."""
        if not self.exists:
            return {}
        values = {"folder": folder, "after": folder + "\U0010ffff"}
        return {
            str(name): LocalFile(sha256, size, stat)
            for name, sha256, size, stat in self._rows("list_local", values)
        }

    def record(
        self,
        files: Iterable[SharedFile] = (),
        removed: Iterable[str] = (),
        marks: Mapping[str, int] | None = None,
    ) -> None:
        """Record files that this machine has now, as the index has them, and marks."""
        rows = []
        for file in files:
            stat = read_stat(self._root / file.name)
            if stat is not None and file.sha256 is not None:
                row = {"name": file.name, "sha256": file.sha256, "bytes": file.bytes}
                rows.append(row | {"stat": stat})
        with closing(self._connect()) as connection, connection:
            connection.executemany(_sql("put_local"), rows)
            connection.executemany(_sql("remove_local"), [{"name": name} for name in removed])
            for name, value in (marks or {}).items():
                connection.execute(_sql("put_mark"), {"name": name, "value": value})

    def hash(self, name: str, known: Mapping[str, LocalFile]) -> tuple[str, int]:
        """Return sha256 and size of a file; it is read only if it changed since it was recorded."""
        path = self._root / name
        before = known.get(name)
        if before is not None and before.stat == read_stat(path):
            return before.sha256, before.bytes
        return hash_file(path), path.stat().st_size

    def forget(self) -> None:
        """Remove the record."""
        self._path.unlink(missing_ok=True)

    def _rows(self, name: str, values: Mapping[str, Any]) -> list[Any]:
        with closing(self._connect()) as connection:
            return connection.execute(_sql(name), values).fetchall()

    def _connect(self) -> sqlite3.Connection:
        make_folders(self._path.parent)
        try:
            connection = sqlite3.connect(self._path, timeout=_BUSY_TIMEOUT_S)
            connection.executescript(_sql("create_local"))
        except sqlite3.Error as error:
            raise BucketUnusable(
                f"{self._path} can't be used: {error}. No data is in it; remove the file, and run "
                "the command again: it compares all files with the bucket."
            ) from None
        return connection


def read_stat(path: Path) -> str | None:
    """Return a text that differs once a file was replaced or written; None if there is no file."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return f"{found.st_size}:{found.st_mtime_ns}:{found.st_ino}"


def _sql(name: str) -> str:
    return statement(name).decode()
