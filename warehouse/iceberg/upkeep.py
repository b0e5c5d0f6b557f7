"""Upkeep of the Iceberg tables: removal of files that no snapshot has, and comparison."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import duckdb

from almanac import lake
from almanac.lake import Lake
from almanac.reading.attached_file import attach_published
from warehouse.errors import WarehouseError
from warehouse.files import lake_paths
from warehouse.home import Home
from warehouse.iceberg.lake_tables import LAKE_TABLES, PUBLICATIONS, LakeTable
from warehouse.iceberg.parts import LoggedDay
from warehouse.iceberg.publication_commit import describe_error, open_reading
from warehouse.iceberg.table_commits import local_path
from warehouse.iceberg_place import IcebergPlace
from warehouse.schema import ddl
from warehouse.sql import Statements, literal

if TYPE_CHECKING:
    from pyiceberg.table import Table

_SQL: Final = Statements(__package__)
ORPHAN_AFTER: Final = timedelta(days=1)
"""A younger file may belong to a commit in progress."""


@dataclass(frozen=True, slots=True)
class OrphanFile:
    """A file that no snapshot has: its path in the file system, and size in bytes."""

    path: str
    bytes: int


def remove_orphans(
    place: IcebergPlace, now: datetime, *, dry_run: bool = False
) -> list[OrphanFile]:
    """Remove files of failed commits and expired snapshots. Call only under the merge lock.

    Files of a snapshot that a table still has stay, so a reader that pinned it is not affected.

    Raises:
        WarehouseError: the catalog or the files can't be read; nothing more was removed.
    """
    file = lake.find_catalog_file(place.catalog)
    if file is not None and not file.exists():
        return []  # Nothing was committed yet.
    try:
        return _remove_orphans(place, now, dry_run=dry_run)
    except Exception as error:
        why = describe_error(error, place)
        raise WarehouseError(
            f"old files of the Iceberg tables could not be removed: {why}. The tables are not "
            "affected; the next `almanac prune` tries again."
        ) from error


def _remove_orphans(place: IcebergPlace, now: datetime, *, dry_run: bool) -> list[OrphanFile]:
    from pyarrow.fs import FileSelector, FileSystem, FileType, LocalFileSystem

    folder_here = local_path(place.location)
    # A path may have characters that are not allowed in an address.
    files, root = (
        FileSystem.from_uri(place.location)
        if folder_here is None
        else (LocalFileSystem(), str(folder_here))
    )
    found: list[OrphanFile] = []
    reader = open_reading(place)
    with closing(reader.catalog):
        for declared in (*LAKE_TABLES, PUBLICATIONS):
            folder = FileSelector(f"{root}/{declared.name}", recursive=True, allow_not_found=True)
            stored = [info for info in files.get_file_info(folder) if info.type == FileType.File]
            if not stored or not reader.catalog.table_exists((lake.NAMESPACE, declared.name)):
                continue
            used = set(_list_used(reader.table(declared.name)))
            found += [
                OrphanFile(info.path, info.size)
                for info in stored
                if info.path not in used and now - info.mtime > ORPHAN_AFTER
            ]
    if not dry_run:
        for orphan in found:
            files.delete_file(orphan.path)
    return found


def _list_used(table: "Table") -> Iterator[str]:
    """Yield the paths of all files that the metadata and snapshots of a table have."""
    yield _path(table.metadata_location)
    for entry in table.metadata.metadata_log:
        yield _path(entry.metadata_file)
    read: set[str] = set()
    for snapshot in table.snapshots():
        yield _path(snapshot.manifest_list)
        for manifest in snapshot.manifests(table.io):
            if manifest.manifest_path not in read:
                read.add(manifest.manifest_path)
                yield _path(manifest.manifest_path)
                for item in manifest.fetch_manifest_entry(table.io):
                    yield _path(item.data_file.file_path)


def _path(location: str) -> str:
    parts = urlsplit(location)
    return f"{parts.netloc}{parts.path}"


def find_differences(home: Home, place: IcebergPlace, *, deep: bool) -> Iterator[str]:
    """Yield how the Iceberg tables differ from the published file, a line each.

    Rows are counted; `deep` also compares their content, for which all files are read.
    """
    try:
        reader = open_reading(place)
        with closing(home.connect()) as connection, closing(reader.catalog):
            attach_published(connection, home.warehouse, "published")
            connection.execute(ddl.use("published"))
            yield from _compare(home, connection, reader, deep=deep)
    except Exception as error:  # noqa: BLE001 - catalogs and stores have many; each is a finding
        why = describe_error(error, place)
        yield f"they can't be read: {why}; `almanac merge` makes them if they are missing"


def _compare(
    home: Home, connection: duckdb.DuckDBPyConnection, reader: Lake, *, deep: bool
) -> Iterator[str]:
    pinned = reader.publication()
    ((publication, _),) = connection.execute(_SQL["list_publication"]).fetchall()
    if pinned.id != publication:
        yield (
            f"they have the publication {pinned.id[:12]}, the warehouse is {publication[:12]}; "
            "`almanac merge` commits it"
        )
        return
    for table in LAKE_TABLES:
        scan = reader.scan(table.name, publication=pinned)
        count, total = _sum_published(home, connection, table)
        found = scan.count()
        if found == count and deep:
            connection.register("there", scan.to_arrow_batch_reader())
            ((found, found_total),) = connection.execute(_SQL["sum_there"]).fetchall()
            connection.unregister("there")
            if found == count and found_total != total:
                yield f"rows of {table.name} differ from the warehouse; `almanac replay` repairs it"
        if found != count:
            yield (
                f"{table.name} has {found:,} rows, the warehouse {count:,}; `almanac replay` "
                "repairs it"
            )


def _sum_published(
    home: Home, connection: duckdb.DuckDBPyConnection, table: LakeTable
) -> tuple[int, str]:
    """Return the number of rows that a table should have, and the sum of their hashes."""
    if table.parts == "hashed":
        rows = connection.execute(_SQL[f"list_{table.name}"]).fetchall()
        return sum(row[1] for row in rows), str(sum(int(row[2]) for row in rows))
    if table.parts == "steps":
        from warehouse.iceberg.step_parts import sum_steps

        return sum_steps(connection)
    if table.parts == "versions":
        ((count, total),) = connection.execute(_SQL["sum_event_versions"]).fetchall()
        return int(count), str(total)
    days = [LoggedDay(*row) for row in connection.execute(_SQL["list_days"]).fetchall()]
    files = [literal(home.lake.path(lake_paths.changes_name(logged.day))) for logged in days]
    if not files:
        return 0, "0"
    ((count, total),) = connection.execute(_SQL["sum_event_changes"], {"files": files}).fetchall()
    return int(count), str(total)
