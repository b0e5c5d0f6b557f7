"""The index of the bucket: which object each file of the home is, in the table `almanac.files`.

A row refers to an object that exists: the transaction that writes the row checks the object, under
a lock that excludes `remove_unused`. Rows of the lake need the writer lease; all others don't,
since any machine may land.
"""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final, TypeVar

from warehouse.errors import BucketUnusable, DatabaseUnavailable
from warehouse.shared.bucket import Bucket
from warehouse.shared.database import SharedDatabase, statement

if TYPE_CHECKING:
    from psycopg import Connection

    from warehouse.shared.lease import Lease

_T = TypeVar("_T")
LAKE: Final = "lake/"
LANDING: Final = "landing/"
STATE: Final = "state/"
_THREADS: Final = 8
_CHECKED_TOGETHER: Final = 200
_SESSION: Final = "-c idle_in_transaction_session_timeout=60s -c lock_timeout=120s"
"""A stopped machine holds `share_files` until the server ends its session; others wait longer."""


@dataclass(frozen=True, slots=True)
class SharedFile:
    """A row: a file of the home and its object. `sha256` is None if the file was removed."""

    name: str
    sha256: str | None
    bytes: int
    seq: int = 0


class FileIndex:
    """The rows of one home. Threads share one connection, which is opened again if it is lost."""

    def __init__(self, database: SharedDatabase, bucket: Bucket) -> None:
        self.bucket = bucket
        self._database = database
        self._turn = threading.RLock()
        self._connection: Connection | None = None
        self.home_id = ""
        """The id of the home in the database, once it is connected."""

    def __repr__(self) -> str:
        return f"FileIndex({self.bucket!r})"

    def connect(self) -> str:
        """Connect, and return the id of the home in the database.

        Raises:
            SharedDatabaseError, BucketUnusable: it can't be used, or the bucket is another one.
        """
        return self._run(lambda connection: self.home_id)

    def write(
        self,
        files: Sequence[SharedFile],
        *,
        removed: Sequence[str] = (),
        removed_folder: str = "",
        lease: "Lease | None" = None,
    ) -> int:
        """Write the rows of files whose objects are in the bucket, in one transaction.

        `lease` is needed for files of the lake. Returns the newest `seq` of these rows, 0 if there
        is none.

        Raises:
            StaleWriter: another machine took over; nothing was written.
            BucketUnusable: an object is not in the bucket.
        """

        def written(connection: "Connection") -> int:
            newest = 0
            with connection.transaction():
                connection.execute(statement("share_files"))
                self._check_objects(connection, files)
                epoch = 0 if lease is None else lease.epoch
                rows = [
                    {"name": f.name, "sha256": f.sha256, "bytes": f.bytes, "epoch": epoch}
                    for f in files
                ]
                if rows:
                    with connection.cursor() as cursor:
                        cursor.executemany(statement("put_file"), rows, returning=True)
                        while True:
                            newest = max(newest, *(seq for (seq,) in cursor.fetchall()))
                            if not cursor.nextset():
                                break
                if removed:
                    names = {"names": list(removed)}
                    found = connection.execute(statement("remove_files"), names).fetchall()
                    newest = max([newest, *(seq for (seq,) in found)])
                if removed_folder:
                    folder = {"folder": removed_folder}
                    connection.execute(statement("remove_folder_files"), folder)
            return newest

        if lease is None:
            return self._run(written)
        with lease.connect() as connection, self._database.translating_errors():
            return written(connection)

    def _check_objects(self, connection: "Connection", files: Sequence[SharedFile]) -> None:
        """Check the objects of some files, while the server keeps the transaction open."""
        with ThreadPoolExecutor(_THREADS) as pool:
            for first in range(0, len(files), _CHECKED_TOGETHER):
                list(pool.map(self._check_object, files[first : first + _CHECKED_TOGETHER]))
                connection.execute(statement("stay_active"))

    def _check_object(self, file: SharedFile) -> None:
        """Check that a row would refer to a whole object: `remove_unused` may have removed it."""
        assert file.sha256 is not None
        found = self.bucket.size(file.sha256)
        if found != file.bytes:
            state = "is missing" if found is None else f"has {found} bytes"
            raise BucketUnusable(
                f"the object of {file.name} {state} in the bucket {self.bucket.address}; expected "
                f"{file.bytes} bytes. No file was recorded; run the command again."
            )

    def changes(self, seen: int) -> list[SharedFile]:
        """Return the rows that are newer than `seen`, oldest first; removed files too."""

        def read(connection: "Connection") -> list[SharedFile]:
            with connection.transaction():
                connection.execute(statement("lock_files"))
                rows = connection.execute(statement("list_changed_files"), {"seen": seen})
                return [SharedFile(*row) for row in rows.fetchall()]

        return self._run(read)

    def files(self, folder: str = "") -> dict[str, SharedFile]:
        """Return the files whose names begin with `folder`, by name; removed files are left out."""

        def read(connection: "Connection") -> dict[str, SharedFile]:
            rows = connection.execute(statement("list_files"), {"folder": folder}).fetchall()
            return {row[0]: SharedFile(*row) for row in rows}

        return self._run(read)

    def hashes(self) -> set[str]:
        """Return the sha256 of every object that a file refers to."""
        return self._run(
            lambda connection: {
                str(sha256) for (sha256,) in connection.execute(statement("list_hashes")).fetchall()
            }
        )

    def find_unused(self, before: datetime) -> Mapping[str, int]:
        """Return the size of each object that is older than `before` and that no file refers to."""
        used = self.hashes()
        return {
            sha256: size
            for sha256, size, at in self.bucket.objects()
            if at < before and sha256 not in used
        }

    def remove_unused(self, sha256: str) -> None:
        """Remove an object, unless a file refers to it by now."""

        def removed(connection: "Connection") -> None:
            with connection.transaction():
                connection.execute(statement("lock_files"))
                found = connection.execute(statement("refers_to"), {"sha256": sha256}).fetchone()
                if found is None:
                    self.bucket.remove(sha256)

        self._run(removed)

    @contextmanager
    def claim(self, name: str) -> Iterator[bool]:
        """Claim a name against all other machines; yield whether that was possible.

        The claim ends with the connection, so also if this machine fails.
        """
        with self._database.connect() as connection:
            self._database.prepare(connection)
            with self._database.translating_errors():
                row = connection.execute(statement("claim_name"), {"name": name}).fetchone()
            yield row is not None and bool(row[0])

    def _run(self, work: Callable[["Connection"], _T]) -> _T:
        """Run work on the connection; once more with a new one if the database has restarted."""
        with self._turn:
            for is_last_try in (False, True):
                try:
                    with self._database.translating_errors():
                        return work(self._connected())
                except DatabaseUnavailable:
                    self.close()
                    if is_last_try:
                        raise
        raise AssertionError

    def _connected(self) -> "Connection":
        if self._connection is None:
            connection = self._database.connect(_SESSION)
            self._database.prepare(connection)
            row = connection.execute(statement("read_home")).fetchone()
            assert row is not None
            home_id, has_files = row
            self.bucket.check_home(home_id, is_new=not has_files)
            self.home_id = home_id
            self._connection = connection
        return self._connection

    def close(self) -> None:
        with self._turn:
            connection, self._connection = self._connection, None
            if connection is not None:
                with suppress(OSError):
                    connection.close()
