"""A folder of the home that is also in the bucket: each change is there before it is on this disk.

A file is stored in three steps: its object, its row in the index, the rename on this disk. A
process that is killed in between leaves an object that no row refers to, or a row whose file this
machine fetches later (home_copy.py). A removed file loses its row first.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from warehouse.files.documents import hash_file
from warehouse.files.storage import Storage, sync
from warehouse.shared.file_index import FileIndex, SharedFile

PENDING: Final = "pending/"
_LOCK: Final = ".lock"


class SharedStorage(Storage):
    """A folder below a home. `prefix` is its name in the home, with a slash, or empty."""

    def __init__(
        self,
        root: Path,
        index: FileIndex,
        prefix: str,
        is_shared: Callable[[str], bool] = lambda name: True,
    ) -> None:
        """Files for which `is_shared` is false are on this disk alone."""
        super().__init__(root)
        self._index = index
        self._prefix = prefix
        self._is_shared = is_shared

    def adopt(self, staged: Path, name: str) -> None:
        self.path(name)
        if self._is_shared(name):
            sync(staged)
            sha256, size = hash_file(staged), staged.stat().st_size
            upload(self._index, staged, sha256, size)
            self._index.write([SharedFile(self._prefix + name, sha256, size)])
        super().adopt(staged, name)

    @contextmanager
    def staged_folder(self, name: str) -> Iterator[Path]:
        raise NotImplementedError(f"{name}: folders of the lake alone are written as a whole")

    def remove(self, name: str) -> None:
        """Remove a file, if it exists.

        The marker of a pending batch stays in the index until the merge commits: another machine
        that takes over must merge the batch.
        """
        self.path(name)
        if self._is_shared(name) and not name.startswith(PENDING):
            self._index.write([], removed=[self._prefix + name])
        super().remove(name)

    def remove_folder(self, name: str) -> None:
        self.path(name)
        if self._is_shared(name):
            self._index.write([], removed_folder=f"{self._prefix}{name}/")
        super().remove_folder(name)

    @contextmanager
    def claim(self, name: str) -> Iterator[bool]:
        with self._index.claim(self._prefix + name) as is_claimed:
            yield is_claimed


def upload(index: FileIndex, path: Path, sha256: str, size: int) -> None:
    """Store a file as an object, unless the bucket has it."""
    if index.bucket.size(sha256) != size:
        index.bucket.put(path, sha256)


def is_landed(name: str) -> bool:
    """Whether a file of landing is shared: all are, except locks."""
    return not name.endswith(_LOCK)
