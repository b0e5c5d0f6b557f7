"""A small typed JSON file that several processes read and write.

It is written as a whole: temporary file, fsync, rename, fsync of the folder; an OS lock beside it
while it is edited. Only its owner may read it.
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
    """A file of another form than expected; it was not changed."""


class Edit(Generic[T]):
    """Holds the value while the file is locked; assign `value` to change it."""

    def __init__(self, value: T) -> None:
        self.value = value


class JsonFile(Generic[T]):
    """A file that holds a value of a msgspec type; an absent file is the type's default."""

    def __init__(self, path: Path, kind: type[T]) -> None:
        self.path = path
        self._kind = kind

    def version(self) -> tuple[int, int, int] | None:
        """Return a value that changes with every change of the file; None when there is no file."""
        try:
            stat = self.path.stat()
        except FileNotFoundError:
            return None
        return stat.st_ino, stat.st_mtime_ns, stat.st_size

    def read(self) -> T:
        """Return the value. Raises JsonFileError when the file is not of the expected form."""
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
        """Lock, read, let the caller change the value, and write it if there was no error."""
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
