"""Commits a publication to the Iceberg tables: each table that differs, then `publications`.

A kill in between leaves readers at the publication before, and the next merge commits the rest. A
failure never affects the published file. `state/iceberg.json` has the result, for `almanac status`
and to skip a publication that is committed.
"""

import logging
from collections.abc import Callable, Mapping
from contextlib import closing
from datetime import datetime
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import duckdb
import msgspec

from almanac import lake
from almanac.reading.attached_file import attach_published
from warehouse.clock import utc_now
from warehouse.files.documents import put_note, read_note
from warehouse.files.storage import make_folders
from warehouse.home import Home
from warehouse.iceberg.lake_tables import LAKE_TABLES, PUBLICATIONS
from warehouse.iceberg.parts import PartName, PublishedParts, digest
from warehouse.iceberg.table_commits import (
    commit_parts,
    list_parts,
    local_path,
    open_table,
)
from warehouse.iceberg.table_snapshots import read_snapshot
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
    step: Step = lambda _: None,
    now: Callable[[], datetime] = utc_now,
) -> IcebergReport | None:
    """Commit the published file to the Iceberg tables. Call only under the merge lock.

    A failure is noted and logged, since the publication stands: the next call tries again.
    Returns None if there is no published file.
    """
    began = monotonic()
    if not home.warehouse.is_file():
        return None
    before = read_iceberg_note(home) or IcebergNote()
    try:
        report = _commit(home, place, before, step, now)
    except Exception as error:  # noqa: BLE001 - catalogs and stores have many; each is noted
        why = hide_password(f"{type(error).__name__}: {error}", place)
        _log.warning(
            "The Iceberg tables do not have the newest publication: %s. The warehouse is "
            "published; the next merge commits it.",
            why,
        )
        note = msgspec.structs.replace(before, failed_at=now(), why_failed=why)
        report = IcebergReport(note=note)
    if report.note != before:
        put_note(home.state_storage, NOTE, report.note)
    report.seconds = monotonic() - began
    return report


def hide_password(text: str, place: IcebergPlace) -> str:
    """Return a text without the address of the catalog and its password."""
    password = urlsplit(place.catalog).password
    text = text.replace(place.catalog, "the catalog's address")
    return text.replace(password, "***") if password else text


def _commit(
    home: Home, place: IcebergPlace, before: IcebergNote, step: Step, now: Callable[[], datetime]
) -> IcebergReport:
    with closing(home.connect()) as connection:
        attach_published(connection, home.warehouse, "published")
        connection.execute(ddl.use("published"))
        ((publication, published_at),) = connection.execute(_SQL["list_publication"]).fetchall()
        is_there = before.publication == publication and before.location == place.location
        if is_there and not before.why_failed and before.snapshots.keys() == _NAMES:
            return IcebergReport(note=before)
        with closing(open_writing(place)) as catalog:
            catalog.create_namespace_if_not_exists(lake.NAMESPACE)
            commit = _PublicationCommit(home, place, connection, catalog, step, now)
            return commit.run(str(publication), datetime.fromisoformat(published_at))


_NAMES: Final = {table.name for table in LAKE_TABLES}


def open_writing(place: IcebergPlace) -> "Catalog":
    """Open the catalog; a SQLite file is made if it is missing.

    Raises:
        WarehouseError: the packages of `crypto-almanac[lake]` are missing.
    """
    scheme, _, path = place.catalog.partition("://")
    if scheme == "sqlite":
        make_folders(Path(path.removeprefix("/")).parent)
    properties = {}
    if local_path(place.location) is None:
        from pyarrow.fs import FileSystem

        filesystem, _ = FileSystem.from_uri(place.location)
        properties["s3.region"] = str(getattr(filesystem, "region", ""))
    return lake.open_catalog(place.catalog, properties)


class _PublicationCommit:
    """One commit of all tables."""

    def __init__(
        self,
        home: Home,
        place: IcebergPlace,
        connection: duckdb.DuckDBPyConnection,
        catalog: "Catalog",
        step: Step,
        now: Callable[[], datetime],
    ) -> None:
        self._place = place
        self._connection = connection
        self._catalog = catalog
        self._step = step
        self._now = now
        self._parts = PublishedParts(connection, home.lake)

    def run(self, publication: str, published_at: datetime) -> IcebergReport:
        """Commit the tables that differ, then the snapshots of all."""
        properties = {
            lake.PUBLICATION: publication,
            lake.PUBLISHED_AT: published_at.isoformat(),
        }
        snapshots: dict[str, int] = {}
        changed = []
        for declared in LAKE_TABLES:
            before = read_snapshot(open_table(self._catalog, declared, self._place.location))
            wanted = self._parts.find(declared, list_parts(before.files))
            done = commit_parts(before, declared, wanted, properties, self._now())
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

    def _commit_snapshots(
        self,
        publication: str,
        published_at: datetime,
        snapshots: Mapping[str, int],
        properties: Mapping[str, str],
    ) -> None:
        before = read_snapshot(open_table(self._catalog, PUBLICATIONS, self._place.location))
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
        commit_parts(before, PUBLICATIONS, wanted, named, self._now())
