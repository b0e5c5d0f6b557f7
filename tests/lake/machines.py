"""Machines that share a bucket and a database: each is a home in a folder of its own."""

from dataclasses import dataclass
from pathlib import Path

from warehouse.home import Home
from warehouse.iceberg_place import IcebergPlace
from warehouse.shared.bucket import Bucket
from warehouse.shared.database import SharedDatabase
from warehouse.shared.file_index import FileIndex


@dataclass(frozen=True)
class Machines:
    """Makes the homes of machines. `bucket` and `postgres` are addresses."""

    folder: Path
    bucket: str
    postgres: str
    lease_s: float = 60.0

    def home(self, name: str, *, iceberg: bool = False) -> Home:
        """Return the home on a machine, as a new process has it."""
        database = SharedDatabase(self.postgres)
        return Home(
            self.folder / name,
            database=database,
            index=FileIndex(database, Bucket(self.bucket)),
            lease_s=self.lease_s,
            wait_s=20,
            iceberg=IcebergPlace(self.postgres, f"{self.bucket}/iceberg") if iceberg else None,
        )

    def alone(self, name: str = "alone") -> Home:
        """Return a home without a bucket."""
        return Home(self.folder / name)


def files_in(home: Home, *folders: str) -> dict[str, bytes]:
    """Return the shared files of a home by name."""
    found = {}
    for folder in folders:
        root = home.root / folder
        paths = [root] if root.is_file() else [path for path in root.rglob("*") if path.is_file()]
        for path in paths:
            if path.suffix != ".lock":
                found[path.relative_to(home.root).as_posix()] = path.read_bytes()
    return found
