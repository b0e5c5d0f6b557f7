"""The bucket: immutable objects, each named by the sha256 of its bytes.

    objects/ab/abcd…

An object is never changed, so a copy of the same bytes is the same object. The addresses are those
of pyarrow: `s3://BUCKET/FOLDER`, `gs://…`, or `file:///FOLDER` for a trial. Which file of the home
an object belongs to is recorded in the database (file_index.py).
"""

import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from warehouse.errors import BucketUnusable, ObjectDamaged

CHUNK_BYTES: Final = 8 << 20
_OBJECTS: Final = "objects"
_HOME: Final = "home-"
_SHA256: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)
_SCHEME: Final = re.compile(r"(s3|gs|gcs|abfss?|file)://[^?#@]+", re.ASCII)
_LOCAL: Final = "file://"


class Bucket:
    """The objects below an address. Nothing is opened before the first use."""

    def __init__(self, address: str) -> None:
        """Raises BucketUnusable: the address has an unknown scheme, or a secret."""
        if not _SCHEME.fullmatch(address):
            raise BucketUnusable(
                "ALMANAC_BUCKET: expected an address such as s3://BUCKET/FOLDER, without a key and "
                "without parameters; the environment gives access (AWS_ACCESS_KEY_ID, "
                "AWS_ENDPOINT_URL). Nothing was changed."
            )
        self.address = address.rstrip("/")

    def __repr__(self) -> str:
        return f"Bucket({self.address!r})"

    @cached_property
    def _opened(self) -> tuple[Any, str]:
        """The file system, and the path in it."""
        from pyarrow.fs import FileSystem

        with self._translating_errors("opened"):
            system, path = FileSystem.from_uri(self.address)
        return system, path

    def _path(self, sha256: str) -> str:
        return f"{self._opened[1]}/{_OBJECTS}/{sha256[:2]}/{sha256}"

    def check_home(self, home_id: str, *, is_new: bool) -> None:
        """Check that the bucket belongs to a home; the bucket of a new home gets its mark.

        Raises:
            BucketUnusable: it is another one, or can't be reached.
        """
        system, path = self._opened
        mark = f"{path}/{_HOME}{home_id}"
        with self._translating_errors("opened"):
            is_there = system.get_file_info(mark).is_file
            if not is_there and is_new:
                if self.address.startswith(_LOCAL):
                    system.create_dir(path, recursive=True)
                with system.open_output_stream(mark) as stream:
                    stream.write(b"{}")
        if not is_there and not is_new:
            raise BucketUnusable(
                f"{self.address} (ALMANAC_BUCKET) is not the bucket of this home: {_HOME}{home_id} "
                "is missing from it. Nothing was changed; set the bucket with which "
                "ALMANAC_POSTGRES was used before."
            )

    def put(self, source: Path, sha256: str) -> None:
        """Store the bytes of a file, whose hash is `sha256`. A second upload changes nothing.

        Raises:
            BucketUnusable: the bucket can't be reached or written. No object is left in part: S3
                shows an object after its last byte, and a folder after a rename.
            ObjectDamaged: the file changed during the upload.
        """
        system, target = self._opened[0], self._path(sha256)
        is_local = self.address.startswith(_LOCAL)
        written = f"{target}.{os.getpid()}-{uuid4().hex}" if is_local else target
        digest = hashlib.sha256()
        with source.open("rb") as file:
            # The first chunk is read before the object is opened: a file that can't be read must
            # not become an empty object.
            chunk = file.read(CHUNK_BYTES)
            with self._translating_errors("written"):
                if is_local:
                    system.create_dir(target.rpartition("/")[0], recursive=True)
                with system.open_output_stream(written) as stream:
                    while chunk:
                        digest.update(chunk)
                        stream.write(chunk)
                        chunk = file.read(CHUNK_BYTES)
        with self._translating_errors("written"):
            if digest.hexdigest() != sha256:
                system.delete_file(written)
                raise ObjectDamaged(
                    f"{source} changed while it was copied to the bucket. Nothing refers to the "
                    "copy; run the command again."
                )
            if is_local:
                system.move(written, target)

    def size(self, sha256: str) -> int | None:
        """Return the size of an object in bytes, None if there is none. Raises BucketUnusable."""
        with self._translating_errors("read"):
            found = self._opened[0].get_file_info(self._path(sha256))
            return int(found.size) if found.is_file else None

    def fetch(self, sha256: str, target: Path) -> None:
        """Write an object to a file that is not in use yet, and check its hash.

        Raises:
            ObjectDamaged: it is missing, or has other bytes.
            BucketUnusable: the bucket can't be reached.
        """
        digest = hashlib.sha256()
        system, source = self._opened[0], self._path(sha256)
        with (
            target.open("wb") as file,
            self._translating_errors("read", sha256),
            system.open_input_stream(source) as stream,
        ):
            while chunk := stream.read(CHUNK_BYTES):
                digest.update(chunk)
                file.write(chunk)
        if digest.hexdigest() != sha256:
            raise ObjectDamaged(
                f"the object {sha256} of the bucket {self.address} has other bytes: its sha256 is "
                f"{digest.hexdigest()}. The home was not changed; restore the object, or run "
                "`almanac doctor --fix` on a machine that has the file."
            )

    def objects(self) -> Iterator[tuple[str, int, datetime]]:
        """Yield sha256, size and time of each object. Raises BucketUnusable."""
        from pyarrow.fs import FileSelector

        system, path = self._opened
        with self._translating_errors("listed"):
            chosen = FileSelector(f"{path}/{_OBJECTS}", recursive=True, allow_not_found=True)
            found = system.get_file_info(chosen)
        for info in found:
            if info.is_file and _SHA256.fullmatch(info.base_name):
                yield info.base_name, int(info.size), info.mtime.astimezone(UTC)

    def remove(self, sha256: str) -> None:
        """Remove an object, if it exists. Raises BucketUnusable."""
        with self._translating_errors("changed"):
            if self._opened[0].get_file_info(self._path(sha256)).is_file:
                self._opened[0].delete_file(self._path(sha256))

    @contextmanager
    def _translating_errors(self, what: str, sha256: str = "") -> Iterator[None]:
        """Raise errors of pyarrow as errors of `warehouse.errors`."""
        try:
            yield
        except FileNotFoundError as error:
            if not sha256:
                raise self._unusable(what, error) from None
            raise ObjectDamaged(
                f"the object {sha256} is missing from the bucket {self.address}. The home was not "
                "changed; restore the object, or run `almanac doctor --fix` on a machine that has "
                "the file."
            ) from None
        except (OSError, ValueError, NotImplementedError) as error:
            raise self._unusable(what, error) from None

    def _unusable(self, what: str, error: Exception) -> BucketUnusable:
        text = str(error).partition("\n")[0].rstrip(".")
        return BucketUnusable(
            f"the bucket {self.address} (ALMANAC_BUCKET) can't be {what}: {text}. Run the command "
            "again when it can be used; `almanac doctor` checks it."
        )
