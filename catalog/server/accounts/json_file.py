"""A small typed JSON file that several processes read and write.

Written whole: temporary file, fsync, rename, fsync of the folder; one OS lock beside it
while it is edited. Readable by its owner alone.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

T = TypeVar("T")


class JsonFileError(Exception):
    """A file that is not what it should be; it was left as it is."""


class Edit(Generic[T]):
    """Holds the value while the file is locked; assign `value` to change it."""

    def __init__(self, value: T) -> None:
        self.value = value


class JsonFile(Generic[T]):
    """One file that holds one value of a msgspec type, whose default is an absent file."""

    def __init__(self, path: Path, kind: type[T]) -> None:
        self.path = path
        self._kind = kind

    def version(self) -> tuple[int, int, int] | None:
        """Return what changes whenever the file does; None when there is none."""
        try:
            stat = self.path.stat()
        except FileNotFoundError:
            return None
        return stat.st_ino, stat.st_mtime_ns, stat.st_size

    def read(self) -> T:
        """Raises JsonFileError when the file is not of the expected form."""
        try:
            return msgspec.json.decode(self.path.read_bytes(), type=self._kind)
        except FileNotFoundError:
            return self._kind()
        except msgspec.MsgspecError as error:
            raise JsonFileError(
                f"{self.path} can't be read as {self._kind.__name__}: {error}. It was not "
                "changed; repair it or move it away."
            ) from error

    @contextmanager
    def editing(self) -> Iterator[Edit[T]]:
        """Lock, read, let the caller change the value, and write it if no error came."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.with_suffix(".lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            edit = Edit(self.read())
            yield edit
            self._write(edit.value)

    def _write(self, value: T) -> None:
        temporary = self.path.with_suffix(".tmp")
        data = msgspec.json.format(msgspec.json.encode(value), indent=2)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self.path)
        folder = os.open(self.path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
