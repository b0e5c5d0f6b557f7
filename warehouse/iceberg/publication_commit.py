"""Commits a publication to the Iceberg tables: each table that differs, then `publications`.

A kill in between leaves readers at the publication before, and the next merge commits the rest. A
failure never affects the published file. `state/iceberg.json` has the result, for `almanac status`
and to skip a publication that is committed.
"""

import logging
from collections.abc import Callable, Mapping
from contextlib import closing, nullcontext
from datetime import datetime
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

import duckdb
import msgspec

from almanac import errors, lake
from almanac.reading.attached_file import attach_published
from warehouse.clock import utc_now
from warehouse.errors import StaleWriter
from warehouse.files.documents import put_note, read_note
from warehouse.files.storage import make_folders
from warehouse.home import Home
from warehouse.iceberg.lake_tables import LAKE_TABLES, PUBLICATIONS, LakeTable
from warehouse.iceberg.parts import PartName, PublishedParts, digest
from warehouse.iceberg.table_commits import (
    commit_parts,
    list_parts,
    open_table,
)
from warehouse.iceberg.table_snapshots import TableSnapshot, read_snapshot
from warehouse.iceberg_place import IcebergPlace
from warehouse.phases import Step
from warehouse.schema import ddl
from warehouse.sql import Statements

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

_SQL: Final = Statements(__package__)
NOTE: Final = "iceberg.json"
_log = logging.getLogger(__name__)


class IcebergNote(msgspec.Struct, frozen=True, kw_only=True):
    """The newest publication in the Iceberg tables, and why a later one is not."""

    publication: str = ""
    """Empty if none was committed."""
    published_at: datetime | None = None
    committed_at: datetime | None = None
    snapshots: dict[str, int] = {}
    """The snapshot id of each table."""
    location: str = ""
    failed_at: datetime | None = None
    why_failed: str = ""
    """Empty if the last commit succeeded."""


class IcebergReport(msgspec.Struct, kw_only=True):
    """The result of a commit. `changed` has the tables of which parts were replaced."""

    note: IcebergNote
    changed: list[str] = []
    seconds: float = 0.0

    @property
    def why_failed(self) -> str:
        return self.note.why_failed


def read_iceberg_note(home: Home) -> IcebergNote | None:
    """Return the state of the Iceberg tables; None if nothing was committed or failed yet."""
    return read_note(home.state_storage, NOTE, IcebergNote)


def commit_publication(
    home: Home,
    place: IcebergPlace,
    *,
    rebuild: bool = False,
    step: Step = lambda _: None,
    now: Callable[[], datetime] = utc_now,
) -> IcebergReport | None:
    """Commit the published file to the Iceberg tables. Call only under the merge lock.

    `rebuild` writes all files again, whatever the tables have. A failure is noted and logged, since
    the publication stands: the next call tries again. Returns None if there is no published file.

    Raises:
        StaleWriter: another writer took over; the tables have its commits.
    """
    began = monotonic()
    if not home.warehouse.is_file():
        return None
    before = read_iceberg_note(home) or IcebergNote()
    try:
        with nullcontext() if home.database is None else home.database.translating_errors():
            report = _commit(home, place, before, rebuild, step, now)
    except StaleWriter:
        raise
    except Exception as error:  # noqa: BLE001 - catalogs and stores have many; each is noted
        why = describe_error(error, place)
        _log.warning(
            "The Iceberg tables do not have the newest publication: %s. The warehouse is "
            "published; the next merge commits it.",
            why.rstrip("."),
        )
        note = msgspec.structs.replace(before, failed_at=now(), why_failed=why)
        report = IcebergReport(note=note)
    if report.note != before:
        put_note(home.state_storage, NOTE, report.note)
    report.seconds = monotonic() - began
    return report


def describe_error(error: Exception, place: IcebergPlace) -> str:
    """Return the first line of an error, without the password of the catalog."""
    text = f"{type(error).__name__}: {error}".strip().partition("\n")[0]
    password = urlsplit(place.catalog).password or ""
    for secret in {place.catalog, password, unquote(password)} - {""}:
        text = text.replace(secret, "***")
    return text


def _commit(
    home: Home,
    place: IcebergPlace,
    before: IcebergNote,
    rebuild: bool,
    step: Step,
    now: Callable[[], datetime],
) -> IcebergReport:
    with closing(home.connect()) as connection:
        attach_published(connection, home.warehouse, "published")
        connection.execute(ddl.use("published"))
        ((publication, published_at),) = connection.execute(_SQL["list_publication"]).fetchall()
        is_there = before.publication == publication and before.location == place.location
        is_whole = not before.why_failed and before.snapshots.keys() == _NAMES
        if is_there and is_whole and not rebuild and _is_newest(home, place, str(publication)):
            return IcebergReport(note=before)
        with closing(_open_writing(home, place)) as catalog:
            catalog.create_namespace_if_not_exists(lake.NAMESPACE)
            parts = PublishedParts(connection, home.lake)
            commit = _PublicationCommit(place, connection, catalog, parts, rebuild, step, now)
            return commit.run(str(publication), datetime.fromisoformat(published_at))


def _is_newest(home: Home, place: IcebergPlace, publication: str) -> bool:
    """Whether the tables have this publication. With a database another machine may commit too."""
    if home.database is None:
        return True
    reader = open_reading(place)
    with closing(reader.catalog):
        try:
            return reader.publication().id == publication
        except (errors.UnknownName, errors.WarehouseError):
            return False  # The tables were removed: they are made again.


_NAMES: Final = {table.name for table in LAKE_TABLES}


def _open_writing(home: Home, place: IcebergPlace) -> "Catalog":
    """Open the catalog, whose tables are made if they are missing, under the home's lease.

    Raises:
        WarehouseError: the packages of `crypto-almanac[lake]` are missing.
    """
    file = lake.find_catalog_file(place.catalog)
    if file is not None:
        make_folders(file.parent)
    if home.database is None or home.lease is None:
        return lake.open_catalog(place.catalog)
    catalog = lake.open_catalog(home.lease.catalog_uri())
    with home.lease.connect() as connection:
        home.database.fence(connection)
    return catalog


def open_reading(place: IcebergPlace) -> lake.Lake:
    """Open the tables for reading; nothing is made.

    Raises:
        WarehouseError: the packages are missing, or there is no catalog.
    """
    return lake.open_lake(place.catalog)


class _PublicationCommit:
    """One commit of all tables."""

    def __init__(
        self,
        place: IcebergPlace,
        connection: duckdb.DuckDBPyConnection,
        catalog: "Catalog",
        parts: PublishedParts,
        rebuild: bool,
        step: Step,
        now: Callable[[], datetime],
    ) -> None:
        self._place = place
        self._connection = connection
        self._catalog = catalog
        self._step = step
        self._now = now
        self._parts = parts
        self._rebuild = rebuild

    def run(self, publication: str, published_at: datetime) -> IcebergReport:
        """Commit the tables that differ, then the snapshots of all."""
        properties = {
            lake.PUBLICATION: publication,
            lake.PUBLISHED_AT: published_at.isoformat(),
        }
        snapshots: dict[str, int] = {}
        changed = []
        for declared in LAKE_TABLES:
            before = self._read(declared)
            there = {} if self._rebuild else list_parts(before.files)
            wanted = self._parts.find(declared, there)
            done = commit_parts(before, declared, there, wanted, properties, self._now())
            snapshots[declared.name] = done.snapshot_id
            if done.added or done.removed:
                changed.append(declared.name)
            self._step(f"iceberg:{declared.name}")
        self._commit_snapshots(publication, published_at, snapshots, properties)
        self._step("iceberg:committed")
        note = IcebergNote(
            publication=publication,
            published_at=published_at,
            committed_at=self._now(),
            snapshots=snapshots,
            location=self._place.location,
        )
        return IcebergReport(note=note, changed=changed)

    def _read(self, declared: LakeTable) -> TableSnapshot:
        location = self._place.location
        return read_snapshot(open_table(self._catalog, declared, location, rebuild=self._rebuild))

    def _commit_snapshots(
        self,
        publication: str,
        published_at: datetime,
        snapshots: Mapping[str, int],
        properties: Mapping[str, str],
    ) -> None:
        before = self._read(PUBLICATIONS)
        values: dict[str, Any] = {
            "publication": publication,
            "published_at": published_at,
            "tables": list(snapshots),
            "snapshots": list(snapshots.values()),
        }

        def write(file: Path) -> Path:
            self._connection.execute(_SQL["write_publications"], {**values, "file": str(file)})
            return file

        text = msgspec.json.encode(snapshots).decode()
        wanted = {PartName("all", digest(publication, text)): write}
        named = {**properties, lake.SNAPSHOTS: text}
        there = list_parts(before.files)
        commit_parts(before, PUBLICATIONS, there, wanted, named, self._now())
