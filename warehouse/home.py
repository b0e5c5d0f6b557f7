"""A home: the folder of one warehouse, stamped with the source of its data. Its paths and locks.

landing/  inbox/  warehouse.duckdb  checkpoints/  parquet/  state/  dagster/  home.json
"""

import os
import re
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from almanac.core.errors import WarehouseError
from warehouse.duckdb_limits import USUAL_LIMITS, DuckDBLimits
from warehouse.errors import DamagedBatch
from warehouse.files.documents import BrokenSeal, format_document, is_sealed, seal
from warehouse.files.locks import WAIT_S, hold_lock
from warehouse.files.storage import Storage
from warehouse.landing.bucket import Bucket, CopiedStorage
from warehouse.landing.landing import Landing

if TYPE_CHECKING:
    import duckdb

FORMAT = 1
_STAMP = "home.json"
_UI_WAIT_S = 1.0
"""Long enough for an `almanac ui` that is just ending."""
_MISREAD = re.compile(r"[?\\]|%[0-9A-Fa-f]{2}")


class Stamp(msgspec.Struct, frozen=True, kw_only=True):
    """Description of a home. `source` is a base address, or `sandbox:` and a seed."""

    source: str
    format: int = FORMAT


def describe_source(source: str) -> str:
    """Return a source for people."""
    kind, _, seed = source.partition(":")
    return f"embedded sandbox, seed {seed}, pace 1" if kind == "sandbox" else source


class Home:
    """The paths of a home. No folder is made until something is written there."""

    def __init__(
        self,
        root: Path,
        *,
        wait_s: float = WAIT_S,
        wait_setting: str = "",
        dagster_home: Path | None = None,
        limits: DuckDBLimits = USUAL_LIMITS,
        list_separator: str | None = None,
        bucket: str | None = None,
    ) -> None:
        """`bucket` is the address of a copy of landing, as `Bucket` takes it."""
        self.root = root
        self.bucket = None if bucket is None else Bucket(bucket, root)
        self.limits = limits
        """DuckDB's limits while it makes the warehouse."""
        self.list_separator = list_separator
        """The separator of lists in exports; None: learnt from the first export that shows it."""
        self.wait_s = wait_s
        """How long to wait for a lock, in seconds."""
        self.wait_setting = wait_setting
        """The setting that gives the wait, for messages; empty if it is fixed."""
        self.parquet = Storage(root / "parquet")
        """The partitions of Parquet files, which follow from the warehouse."""
        self.checkpoints = Storage(root / "checkpoints")
        """Published files of earlier days, from which a merge refolds later ones."""
        self.state = root / "state"
        self.receiver_lock = self.state / "receiver.lock"
        """Held while `almanac receive` runs."""
        self.dagster = root / "dagster"
        """The home's own Dagster instance, and the locks of its programs."""
        self.instance_folder = self.dagster if dagster_home is None else dagster_home
        """The folder of the Dagster instance in use, with its `dagster.yaml`."""
        self.warehouse = root / "warehouse.duckdb"
        self.inbox = root / "inbox"
        """Webhook deliveries that are not landed (warehouse/landing/inbox.py)."""

    def __repr__(self) -> str:
        return f"Home({str(self.root)!r})"

    @property
    def state_storage(self) -> Storage:
        return Storage(self.state)

    @property
    def landing(self) -> Landing:
        folder = self.root / "landing"
        return Landing(folder if self.bucket is None else CopiedStorage(folder, self.bucket))

    def fetch_landing(self) -> bool:
        """Fetch landing and stamp of an empty home from its bucket; return whether there are some.

        Raises:
            WarehouseError: the next call continues.
        """
        return self.bucket is not None and self.stamp() is None and self.bucket.synchronise()

    def stamp(self) -> Stamp | None:
        """Return the stamp, None if there is no home yet.

        Raises:
            WarehouseError: it can't be read, a newer Almanac wrote it, the home is a file, or
                DuckDB or Dagster would misread its path.
        """
        self._refuse_path()
        if self.root.exists() and not self.root.is_dir():
            raise WarehouseError(
                f"{self.root} is a file, and a home must be a folder. Nothing was changed; set "
                "ALMANAC_HOME to another path."
            )
        path = self.root / _STAMP
        if not path.exists():
            return None
        try:
            data = path.read_bytes()
            is_sealed(data)
            found = msgspec.json.decode(data, type=Stamp)
            if "scope" in msgspec.json.decode(data, type=dict[str, Any]):
                # A manifest has a source and a format as well, but is not a stamp.
                raise BrokenSeal("it is the intent of a pull")
            if re.match("[^/]*//[^/]*@", found.source):
                raise BrokenSeal("its address has a user or a password")
            if found.format < 1:
                raise BrokenSeal(f"there is no format {found.format}")
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            raise WarehouseError(
                f"{path} can't be read as the description of a home: {why}. Nothing was changed; "
                "`almanac doctor --fix` rebuilds it from landing, or set ALMANAC_HOME to "
                "another folder."
            ) from error
        if found.format > FORMAT:
            raise WarehouseError(
                f"the home {self.root} has format {found.format}; this version of Almanac writes "
                f"format {FORMAT}. Nothing was changed; upgrade Almanac, or set another "
                "ALMANAC_HOME."
            )
        return found

    def refuse_lost_stamp(self) -> None:
        """Check that a home with batches has a stamp.

        Raises:
            WarehouseError: its home.json is missing.
        """
        if self.stamp() is None and self.has_batches_or_pulls():
            raise WarehouseError(
                f"{self.root} has batches but no home.json. Nothing was changed. `almanac doctor "
                "--fix` rebuilds it from landing."
            )

    def _refuse_path(self) -> None:
        odd = _MISREAD.search(str(self.root.resolve()))
        if odd is not None:
            raise WarehouseError(
                f"the path {self.root.resolve()} contains {odd[0]!r}, with which DuckDB or "
                "Dagster would open another file. Nothing was changed; set ALMANAC_HOME to a "
                "path without '?', a backslash, and '%' before two hexadecimal digits."
            )

    def check(self, source: str) -> None:
        """Check that the home may be used for a source. Writes nothing.

        Raises:
            WarehouseError: it holds another source; the histories of two sources must not be mixed.
        """
        found = self.stamp()
        # Deliveries that are not landed have no batch that says from which source they are.
        if not self.has_batches_or_pulls() and not any(self.inbox.glob("**/*.json")):
            return
        sources = {found.source} if found is not None else self._landed_sources()
        for landed_source in sorted(sources - {source}):
            raise WarehouseError(
                f"the home {self.root} holds data of {landed_source}, not of {source}. Nothing was "
                "changed; set ALMANAC_HOME to another folder, or use the other address."
            )

    def claim(self, source: str) -> None:
        """Stamp a home, or check that it has the same source; an empty home may change its source.

        Raises:
            WarehouseError: as `check`.
        """
        self.fetch_landing()
        self.check(source)
        found = self.stamp()
        if found is None or found.source != source:
            self._write_stamp(Stamp(source=source))

    def is_stamped_with(self, stamp: Stamp) -> bool:
        """Whether the file has exactly the bytes that a version of Almanac writes for this
        stamp."""
        data = (self.root / _STAMP).read_bytes()
        return data in (format_document(stamp), seal(format_document(stamp)))

    def rebuild_stamp(self) -> str | None:
        """Rebuild a damaged stamp from the batches; return the source, None if nothing is wrong.

        Raises:
            WarehouseError: a newer Almanac wrote it, or the batches don't have a single source.
        """
        try:
            found = self.stamp()
            is_lost = found is None and self.has_batches_or_pulls()
            if not is_lost and (found is None or self.is_stamped_with(found)):
                return None
        except WarehouseError as refused:
            if refused.__cause__ is None:  # Not damaged: a newer Almanac, or no folder.
                raise
        sources = self._landed_sources()
        if len(sources) != 1:
            found_sources = f"batches of {len(sources)} sources" if sources else "no batches"
            raise WarehouseError(
                f"{self.root / _STAMP} is damaged, and landing has {found_sources}, so it can't be "
                f"rebuilt. Nothing was changed; write "
                '{"source": "…"} into it with the address of your service, or `sandbox:` and the '
                "seed."
            )
        (source,) = sources
        self._write_stamp(Stamp(source=source))
        return source

    def _landed_sources(self) -> set[str]:
        """Return the sources of the batches whose manifests can be read."""
        sources: set[str] = set()
        for batch_id in self.landing.batch_ids():
            with suppress(DamagedBatch):
                sources.add(self.landing.manifest(batch_id).source)
        return sources

    def _write_stamp(self, stamp: Stamp) -> None:
        data = seal(format_document(stamp))
        if self.bucket is not None:
            self.bucket.put(_STAMP, data)
        Storage(self.root).put(_STAMP, data)

    def has_batches_or_pulls(self) -> bool:
        """Whether a batch is landed or being pulled; its source is the source of the home."""
        storage = self.landing.storage
        return bool(storage.folders("batches") or storage.folders("journal"))

    def merge_lock(self) -> AbstractContextManager[bool]:
        """Hold the lock of merge and publish; yields whether it waited.

        Raises:
            WarehouseError: another process still holds it after the home's `wait_s`.
        """
        return self._hold_lock("merge.lock", "to merge")

    def run_lock(self) -> AbstractContextManager[bool]:
        """Hold the lock of `almanac run`: two simultaneous runs would land the same days twice.

        Raises:
            WarehouseError: as `merge_lock`.
        """
        return self._hold_lock("run.lock", "to run")

    def ui_lock(self) -> AbstractContextManager[bool]:
        """Hold the lock of `almanac ui`, without a wait: a home has at most one.

        Raises:
            WarehouseError: another process holds it.
        """
        return hold_lock(self.state / "ui.lock", "to serve Dagster", wait_s=_UI_WAIT_S)

    def _hold_lock(self, name: str, what: str) -> AbstractContextManager[bool]:
        return hold_lock(
            self.state / name, what, wait_s=self.wait_s, wait_setting=self.wait_setting
        )

    def connect(self) -> "duckdb.DuckDBPyConnection":
        """Return a database in memory that spills into the home, on UTC."""
        spill = self.state / "spill" / str(os.getpid())
        spill.parent.mkdir(parents=True, exist_ok=True)
        from warehouse.duckdb_limits import open_spilling

        return open_spilling(spill, self.limits, warehouse=self.warehouse)
