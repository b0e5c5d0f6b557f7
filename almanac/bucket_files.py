"""Opens the files of Iceberg tables in a bucket, as the environment says.

pyiceberg leaves `AWS_ENDPOINT_URL` out, and asks AWS for the region. This class opens buckets as
`pyarrow.fs.FileSystem.from_uri` does. Only pyiceberg imports this module, by its name.
"""

from functools import lru_cache
from typing import Any, Final

from pyarrow.fs import FileSystem
from pyiceberg.io.pyarrow import PyArrowFileIO

_S3: Final = ("s3", "s3a", "s3n")
_OPTIONS: Final = ("s3.", "client.")
"""Begin pyiceberg's properties for a bucket; if one is given, pyiceberg opens the bucket."""


class BucketFiles(PyArrowFileIO):  # type: ignore[misc]
    """pyiceberg's access to files, with buckets opened from the environment."""

    def __init__(self, properties: dict[str, str]) -> None:
        super().__init__(properties)
        self._open_from_environment()

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._open_from_environment()

    def _open_from_environment(self) -> None:
        if not any(name.startswith(_OPTIONS) for name in self.properties):
            others = PyArrowFileIO(self.properties)

            def open_files(scheme: str, place: str | None = None) -> FileSystem:
                if scheme in _S3:
                    return FileSystem.from_uri(f"s3://{place}")[0]
                return others.fs_by_scheme(scheme, place)

            self.fs_by_scheme = lru_cache(open_files)
