"""The copy of landing in a bucket, from which an empty home is rebuilt.

    home.json  writer.json  bodies/…  batches/…  released/…  dismissed/…

A body, and then its manifest, is in the bucket before it is in the home, so a batch that counts is
in both. A bucket keeps the body as it was landed when the home packs it. Pages of a pull in
progress, and deliveries in the inbox, are in the home alone. One home writes to a bucket:
`writer.json` names it, with the time of its last batch.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import msgspec

from almanac.core.errors import WarehouseError
from almanac.core.timestamps import utc_now
from warehouse.files.documents import put_note, read_note
from warehouse.files.locks import host
from warehouse.files.storage import Storage

HELD_FOR: Final = timedelta(minutes=15)
"""How long after its last batch a home prevents other homes from writing."""
_RENEWED_AFTER: Final = timedelta(minutes=1)
_COPIED: Final = ("bodies/", "released/", "dismissed/", "batches/")
"""The copied folders. Manifests are last, since a batch counts once its manifest exists."""
_STAMP: Final = "home.json"
_WRITER: Final = "writer.json"
_NOTE: Final = "bucket.json"
_AT_A_TIME: Final = 16


class _Writer(msgspec.Struct, frozen=True, kw_only=True):
    """A home, by a random id, and when it last wrote to a bucket."""

    home: str
    host: str
    address: str
    at: datetime


class Bucket:
    """The objects below an address of `pyarrow.fs`, such as `s3://BUCKET/FOLDER`."""

    def __init__(
        self, address: str, root: Path, *, clock: Callable[[], datetime] = utc_now
    ) -> None:
        """`root` is the home. The bucket is opened on first use."""
        self.address = address
        self._root = root
        self._clock = clock
        self._held_at: datetime | None = None

    @cached_property
    def _opened(self) -> Any:
        from pyarrow.fs import FileSystem, SubTreeFileSystem

        system, path = FileSystem.from_uri(self.address)
        return SubTreeFileSystem(path, system)

    @contextmanager
    def _reached(self) -> Iterator[Any]:
        """Yield a file system whose root is the address."""
        try:
            yield self._opened
        except (OSError, ValueError, NotImplementedError) as error:
            text = str(error).partition("\n")[0].rstrip(".")
            raise WarehouseError(
                f"the bucket {self.address} (ALMANAC_BUCKET) can't be used: {text}. A batch that "
                "was being landed does not count yet. Run the command again when the bucket can "
                "be used."
            ) from None

    def read(self, name: str) -> bytes | None:
        """Return the bytes of an object; None if it does not exist."""
        with self._reached() as system:
            if not system.get_file_info(name).is_file:
                return None
            with system.open_input_stream(name, compression=None) as stream:
                return bytes(stream.read())

    def put(self, name: str, data: bytes) -> None:
        """Write an object, which appears when it is complete."""
        with self._reached() as system:
            is_folder = system.base_fs.type_name == "local"
            written = f"unfinished-{uuid4().hex}" if is_folder else name
            if is_folder:
                folder = system.base_path + name.rpartition("/")[0]
                system.base_fs.create_dir(folder, recursive=True)
            with system.open_output_stream(written, compression=None) as stream:
                stream.write(data)
            if is_folder:
                system.move(written, name)

    def remove(self, name: str) -> None:
        """Remove an object, if it exists."""
        with self._reached() as system:
            if system.get_file_info(name).is_file:
                system.delete_file(name)

    def hold(self) -> None:
        """Become the only writer, or stay it.

        If this home was not the last writer, it is synchronised first.

        Raises:
            WarehouseError: another home wrote in the last minutes.
        """
        now = self._clock()
        if self._held_at is not None and now - self._held_at < _RENEWED_AFTER:
            return
        state, found = Storage(self._root / "state"), self.read(_WRITER)
        note = read_note(state, _NOTE, _Writer)
        home = uuid4().hex if note is None or note.address != self.address else note.home
        last = None if found is None else msgspec.json.decode(found, type=_Writer)
        if last is not None and last.home != home and now - last.at < HELD_FOR:
            raise WarehouseError(
                f"the home on {last.host} wrote to {self.address} at {last.at:%Y-%m-%d %H:%M:%S} "
                "UTC, and a bucket has one writer. Nothing was done. Stop that one; this one may "
                f"write {HELD_FOR.seconds // 60} minutes after its last batch."
            )
        if last is None or last.home != home:
            self.synchronise()
        ours = _Writer(home=home, host=host(), address=self.address, at=now)
        put_note(state, _NOTE, ours)
        self.put(_WRITER, msgspec.json.encode(ours))
        self._held_at = now

    def synchronise(self) -> bool:
        """Copy what the bucket or the home lacks; return False if neither has a stamp.

        An empty home gets its stamp last, so a copy that was killed is continued.

        Raises:
            WarehouseError: the bucket has the data of another source, or can't be used: then the
                next call continues.
        """
        path, theirs = self._root / _STAMP, self.read(_STAMP)
        ours = path.read_bytes() if path.is_file() else None
        if ours is None and theirs is None:
            return False
        sources = {msgspec.json.decode(stamp)["source"] for stamp in (ours, theirs) if stamp}
        if len(sources) > 1:
            raise WarehouseError(
                f"the bucket {self.address} and the home {self._root} hold data of "
                f"{' and '.join(sorted(sources))}. Nothing was changed; set ALMANAC_BUCKET to "
                "another folder."
            )
        if theirs is None and ours is not None:
            self.put(_STAMP, ours)
        landing, here, there = Storage(self._root / "landing"), self._list_home(), self._list()

        def copy(name: str) -> None:
            if name in here:
                self.put(name, landing.read(name))
            elif (data := self.read(name)) is not None:
                if name.startswith("batches/"):
                    landing.put(f"pending/{name.rpartition('/')[2]}", b"{}")
                landing.put(name, data)

        with ThreadPoolExecutor(_AT_A_TIME) as workers:
            for folder in _COPIED:
                lacking = (name for name in here ^ there if name.startswith(folder))
                list(workers.map(copy, sorted(lacking)))
        if ours is None and theirs is not None:
            Storage(self._root).put(_STAMP, theirs)
        return True

    def list_lacking(self) -> list[str]:
        return sorted(self._list_home() - self._list())

    def _list_home(self) -> set[str]:
        landing = Storage(self._root / "landing")
        return {name for folder in _COPIED for name in landing.names(folder.rstrip("/"))}

    def _list(self) -> set[str]:
        from pyarrow.fs import FileSelector

        with self._reached() as system:
            found = system.get_file_info(FileSelector("", recursive=True, allow_not_found=True))
        return {info.path for info in found if info.is_file}


class CopiedStorage(Storage):
    """The landing folder of a home with a bucket."""

    def __init__(self, root: Path, bucket: Bucket) -> None:
        super().__init__(root)
        self._bucket = bucket

    def adopt(self, staged: Path, name: str) -> None:
        if name.startswith(_COPIED):
            self._bucket.hold()
            self._bucket.put(name, staged.read_bytes())
        super().adopt(staged, name)

    def remove(self, name: str) -> None:
        if name.startswith(_COPIED):
            self._bucket.remove(name)
        super().remove(name)
