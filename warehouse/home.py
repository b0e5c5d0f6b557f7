"""A home: the folder in which one warehouse lives, stamped with where its data comes from.

    landing/  lake/  warehouse.duckdb  state/  dagster/  home.json

Belongs here: where things lie, the stamp, the one lock. Does not: what is in them.
"""

import os
from contextlib import AbstractContextManager
from pathlib import Path

import duckdb
import msgspec

from warehouse.errors import HomeRefused
from warehouse.landing import Landing
from warehouse.storage import Storage
from warehouse.turns import WAIT_S, turn

FORMAT = 1
_STAMP = "home.json"
_UI_WAIT_S = 1.0
"""For one that is just ending."""
_MEMORY = "1600MB"


class Stamp(msgspec.Struct, frozen=True, kw_only=True):
    """What a home says of itself. `source` is a base address, or `sandbox:` and a seed."""

    source: str
    format: int = FORMAT


class Home:
    """The places of a home. Nothing is made until something is put there."""

    def __init__(self, root: Path, *, wait_s: float = WAIT_S) -> None:
        self.root = root
        self.wait_s = wait_s
        """How long a turn is waited for, in seconds."""
        self.lake = Storage(root / "lake")
        self.state = root / "state"
        self.dagster = root / "dagster"
        self.warehouse = root / "warehouse.duckdb"

    def __repr__(self) -> str:
        return f"Home({str(self.root)!r})"

    @property
    def landing(self) -> Landing:
        return Landing(self.root / "landing")

    def stamp(self) -> Stamp | None:
        """Return the stamp, None where there is no home yet.

        Raises:
            HomeRefused: it can't be read, a newer Almanac wrote it, or a file has its place.
        """
        if self.root.exists() and not self.root.is_dir():
            raise HomeRefused(
                f"{self.root} is a file, and a home is a folder. Nothing was changed; name another "
                "with ALMANAC_HOME."
            )
        path = self.root / _STAMP
        if not path.exists():
            return None
        try:
            found = msgspec.json.decode(path.read_bytes(), type=Stamp)
        except msgspec.MsgspecError as error:
            raise HomeRefused(
                f"{path} can't be read as the stamp of a home: {error}. Nothing was changed; "
                "put it right, or name another folder with ALMANAC_HOME."
            ) from error
        if found.format > FORMAT:
            raise HomeRefused(
                f"the home {self.root} has format {found.format}; this Almanac writes format "
                f"{FORMAT}. Nothing was changed; upgrade Almanac, or name another ALMANAC_HOME."
            )
        return found

    def check(self, source: str) -> None:
        """Check that the home may be used for a source. Writes nothing.

        Raises:
            HomeRefused: it holds another source: histories of two must not be mixed.
        """
        found = self.stamp()
        if found is not None and found.source != source and self._holds_anything():
            raise HomeRefused(
                f"the home {self.root} holds data of {found.source}, not of {source}. Nothing was "
                "changed; name another folder with ALMANAC_HOME, or the other address."
            )

    def claim(self, source: str) -> None:
        """Stamp a home, or check that it has the same source; an empty one may change it.

        Raises:
            HomeRefused: as `check`.
        """
        self.check(source)
        found = self.stamp()
        if found is None or found.source != source:
            stamp = msgspec.json.format(msgspec.json.encode(Stamp(source=source)), indent=1)
            Storage(self.root).put(_STAMP, stamp)

    def _holds_anything(self) -> bool:
        """Whether a batch is landed, or being pulled: the source of those is the home's."""
        storage = self.landing.storage
        return bool(storage.folders("batches") or storage.folders("journal"))

    def merge_lock(self) -> AbstractContextManager[bool]:
        """Hold the one lock of merge and publish; yields whether it had to be waited for.

        Raises:
            TurnTaken: another process holds it, and still does after the home's `wait_s`.
        """
        return turn(self.state / "merge.lock", "to merge", wait_s=self.wait_s)

    def run_lock(self) -> AbstractContextManager[bool]:
        """Hold the lock of `almanac run`: two at once would land the same days twice.

        Raises:
            TurnTaken: as `merge_lock`.
        """
        return turn(self.state / "run.lock", "to run", wait_s=self.wait_s)

    def ui_lock(self) -> AbstractContextManager[bool]:
        """Hold the lock of `almanac ui`, of which a home has one. Not waited for.

        Raises:
            TurnTaken: another process holds it.
        """
        return turn(self.state / "ui.lock", "to serve Dagster", wait_s=_UI_WAIT_S)

    def connect(self) -> duckdb.DuckDBPyConnection:
        """Return a database in memory that spills into the home, on UTC."""
        spill = self.state / "spill" / str(os.getpid())
        spill.parent.mkdir(parents=True, exist_ok=True)
        connection = duckdb.connect()
        connection.execute("SET TimeZone = 'UTC'")
        # DuckDB draws it on stdout, where a program expects the answer of a command.
        connection.execute("SET enable_progress_bar = false")
        connection.execute("SET memory_limit = $limit", {"limit": _MEMORY})
        connection.execute("SET temp_directory = $folder", {"folder": str(spill)})
        return connection
