"""Files of landing and lake, put in place as a whole or not at all.

The one module through which both are written, so that an object store can follow: its
atomic put takes the place of the rename. Names are relative, with `/` between parts.
"""

import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import time

_UNFINISHED = ".unfinished-"


class Storage:
    """A folder of files that appear complete, survive a power cut, and are never half there."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def path(self, name: str) -> Path:
        """Return where a file lies.

        Raises:
            ValueError: a name that would leave the folder.
        """
        parts = name.split("/")
        if not name or any(part in ("", ".", "..") for part in parts):
            raise ValueError(
                f"{name!r} is not a valid name of a stored file; expected parts joined by '/'"
            )
        return self.root.joinpath(*parts)

    def exists(self, name: str) -> bool:
        return self.path(name).exists()

    def read(self, name: str) -> bytes:
        return self.path(name).read_bytes()

    def put(self, name: str, data: bytes) -> None:
        """Write a file, or replace it, in one step that outlasts a crash."""
        with self.writing(name) as unfinished:
            unfinished.write_bytes(data)

    @contextmanager
    def writing(self, name: str) -> Iterator[Path]:
        """Lend a path to write to; what stands there at the end takes the name's place.

        On an error nothing has changed, and what was begun is removed.
        """
        with self.staging() as staged:
            yield staged
            self.adopt(staged, name)

    @contextmanager
    def staging(self) -> Iterator[Path]:
        """Lend a path whose name is not known yet; unless adopted, it is removed at the end."""
        make_folders(self.root)
        staged = self.root / f"{_UNFINISHED}{os.getpid()}-{uuid.uuid4().hex}"
        try:
            yield staged
        finally:
            staged.unlink(missing_ok=True)

    def adopt(self, staged: Path, name: str) -> None:
        """Put a staged file in place, replacing what has the name."""
        target = self.path(name)
        make_folders(target.parent)
        sync(staged)
        if target.is_dir():  # A hand or a repair of the disk made it: no file would ever go there.
            self.remove_folder(name)
        staged.replace(target)
        sync(target.parent)

    @contextmanager
    def staged_folder(self, name: str) -> Iterator[Path]:
        """Lend a folder whose files appear together; the files in it must be synced already.

        A folder of that name that was there before is replaced.
        """
        target = self.path(name)
        make_folders(target.parent)
        staged = target.with_name(f"{_UNFINISHED}{os.getpid()}-{uuid.uuid4().hex}")
        staged.mkdir()
        try:
            yield staged
            sync(staged)
            self.remove_folder(name)
            staged.rename(target)
            sync(target.parent)
        finally:
            if staged.exists():
                shutil.rmtree(staged)

    def remove(self, name: str) -> None:
        """Remove a file; one that is not there is no error."""
        path = self.path(name)
        if path.is_dir():
            self.remove_folder(name)
        elif path.exists():
            path.unlink()
            sync(path.parent)

    def remove_folder(self, name: str) -> None:
        """Remove a folder with its files, so that a crash leaves all of it or an unnamed rest."""
        path = self.path(name)
        if path.exists():
            doomed = path.with_name(f"{_UNFINISHED}{uuid.uuid4().hex}")
            path.rename(doomed)
            sync(path.parent)
            shutil.rmtree(doomed)

    def unfinished(self, *, older_than_s: float = 0.0) -> list[Path]:
        """Return what killed writers left, where it was not touched for so long.

        Without an age, only while no other process writes here.
        """
        found: list[Path] = []
        for path in [*self.root.glob(f"{_UNFINISHED}*"), *self.root.glob(f"*/{_UNFINISHED}*")]:
            with suppress(FileNotFoundError):
                if not older_than_s or time() - path.stat().st_mtime >= older_than_s:
                    found.append(path)
        return found

    def remove_unfinished(self, *, older_than_s: float = 0.0) -> None:
        """Remove it."""
        for path in self.unfinished(older_than_s=older_than_s):
            with suppress(FileNotFoundError):
                shutil.rmtree(path) if path.is_dir() else path.unlink()

    def names(self, under: str) -> list[str]:
        """Return the finished files below a folder, sorted by name."""
        folder = self.path(under)
        found = (path for path in folder.rglob("*") if path.is_file()) if folder.exists() else ()
        return sorted(
            path.relative_to(self.root).as_posix()
            for path in found
            if not any(part.startswith(_UNFINISHED) for part in path.relative_to(folder).parts)
        )

    def folders(self, under: str) -> list[str]:
        """Return the names of the folders directly in one, sorted."""
        folder = self.path(under)
        if not folder.exists():
            return []
        found = (path.name for path in folder.iterdir() if path.is_dir())
        return sorted(name for name in found if not name.startswith(_UNFINISHED))


def sync(path: Path) -> None:
    """Wait until a file, or the entries of a folder, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folders(path: Path) -> None:
    """Make a folder and those above it; each new one is in its parent for good."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for folder in reversed(missing):
        sync(folder.parent)
