"""Commits to one Iceberg table: parts replaced in one snapshot, old snapshots expired.

The writer holds the merge lock, so it does not retry a refused commit: the next merge does. Files
of a commit that failed, and of expired snapshots, stay until `remove_orphans`.
"""

import shutil
from collections.abc import Collection, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final
from urllib.parse import urlparse

from almanac.lake import NAMESPACE
from almanac.reading.temporary import own_folder
from warehouse.files.storage import link_file, make_folders
from warehouse.iceberg.lake_tables import PUBLICATIONS, LakeTable
from warehouse.iceberg.parts import PartName, Parts, parse_part
from warehouse.iceberg.table_snapshots import TableSnapshot, write_snapshot
from warehouse.schema.columns import INSTANT, TEXTS, Column

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.io import FileIO, InputFile
    from pyiceberg.manifest import DataFile
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table

SNAPSHOT_DAYS: Final = 7
"""A reader that pinned a publication can read it for so many days after the next one."""
SNAPSHOTS_MIN: Final = 3
"""So many snapshots of a table stay, whatever their age."""
PUBLICATIONS_MAX: Final = 200
"""So many publications stay at most, so that the metadata stays small."""
SNAPSHOTS_MAX: Final = PUBLICATIONS_MAX + 20
"""A table may have snapshots of publications that were interrupted."""
_EXPIRED_TOGETHER: Final = 8
_PROPERTIES: Final = {
    "format-version": "2",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "10",
    "write.metadata.metrics.default": "none",
    "write.parquet.compression-codec": "zstd",
}
_UPLOADS: Final = 8
_BLOCK_BYTES: Final = 8 << 20
_BOUND: Final = "truncate(36)"
_NAME_MAPPING: Final = "schema.name-mapping.default"


@dataclass(frozen=True, slots=True)
class TableCommit:
    """The snapshot of a table after a commit, and the numbers of replaced files."""

    snapshot_id: int
    added: int = 0
    removed: int = 0


def open_table(
    catalog: "Catalog", declared: LakeTable, location: str, *, rebuild: bool = False
) -> "Table":
    """Return a table of the catalog. It is made if it is missing, or if its files are elsewhere.

    The metadata has absolute paths, so the tables of a moved home are made again. With `rebuild` it
    is also made again if its metadata can't be read.
    """
    from pyiceberg.exceptions import NoSuchTableError

    name, place = (NAMESPACE, declared.name), f"{location}/{declared.name}"
    try:
        table = catalog.load_table(name)
    except NoSuchTableError:
        pass
    except FileNotFoundError:
        catalog.drop_table(name)
    except Exception:
        if not rebuild:
            raise
        catalog.drop_table(name)
    else:
        if table.location() == place:
            return _update_schema(table, declared)
        catalog.drop_table(name)
    schema = make_schema(declared.columns)
    bounds = {
        f"write.metadata.metrics.column.{column}": _BOUND if _is_text(declared, column) else "full"
        for column in declared.bounded
    }
    table = catalog.create_table(
        name,
        schema=schema,
        location=place,
        partition_spec=_make_spec(declared, schema),
        properties={**_PROPERTIES, **bounds},
    )
    return _update_schema(table, declared)


def _update_schema(table: "Table", declared: LakeTable) -> "Table":
    """Add columns that a newer Almanac declares, and the mapping of column names to field ids."""
    names = {field.name for field in table.schema().fields}
    is_whole = names.issuperset(column.name for column in declared.columns)
    if is_whole and _NAME_MAPPING in table.properties:
        return table
    with table.transaction() as transaction:
        if not is_whole:
            with transaction.update_schema() as update:
                update.union_by_name(make_schema(declared.columns))
        mapping = transaction.table_metadata.schema().name_mapping.model_dump_json()
        transaction.set_properties({_NAME_MAPPING: mapping})
    return table


def _is_text(declared: LakeTable, name: str) -> bool:
    return any(column.name == name and column.type == "VARCHAR" for column in declared.columns)


def make_schema(columns: Collection[Column]) -> "Schema":
    """Return the Iceberg schema of some columns."""
    from pyiceberg import types
    from pyiceberg.schema import Schema

    found = {
        "VARCHAR": types.StringType(),
        "JSON": types.StringType(),
        "DOUBLE": types.DoubleType(),
        "BOOLEAN": types.BooleanType(),
        "INTEGER": types.IntegerType(),
        "BIGINT": types.LongType(),
        "DATE": types.DateType(),
        INSTANT: types.TimestamptzType(),
    }
    fields = []
    for number, column in enumerate(columns, 1):
        if column.type == TEXTS:
            element_id = len(columns) + number
            kind = types.ListType(element_id, types.StringType(), element_required=False)
        else:
            kind = found[column.type]
        fields.append(types.NestedField(number, column.name, kind, doc=column.meaning))
    return Schema(*fields)


def _make_spec(declared: LakeTable, schema: "Schema") -> "PartitionSpec":
    from pyiceberg.partitioning import PartitionField, PartitionSpec
    from pyiceberg.transforms import DayTransform, MonthTransform

    if declared.partition is None:
        return PartitionSpec()
    name, unit = declared.partition
    source = schema.find_field(name).field_id
    transform = DayTransform() if unit == "day" else MonthTransform()
    return PartitionSpec(PartitionField(source, 1000, transform, f"{name}_{unit}"))


def list_parts(files: "Collection[DataFile]") -> "dict[PartName, DataFile]":
    """Return the parts in some data files; a file of another program is left out."""
    named = ((parse_part(file.file_path), file) for file in files)
    return {name: file for name, file in named if name is not None}


def commit_parts(
    before: TableSnapshot,
    declared: LakeTable,
    there: "Mapping[PartName, DataFile]",
    wanted: Parts,
    properties: Mapping[str, str],
    now: datetime,
) -> TableCommit:
    """Replace the parts of a table that differ, in one commit of the catalog.

    `before` is its newest snapshot, and `there` are its parts that may stay. Nothing is committed
    if no part differs, unless the table has no snapshot yet.
    """
    table, current = before.table, before.table.current_snapshot()
    kept = {file.file_path for name, file in there.items() if name in wanted}
    gone = [file for file in before.files if file.file_path not in kept]
    new = [name for name in wanted if name not in there]
    if current is not None and not gone and not new:
        return TableCommit(current.snapshot_id)
    added = _add_files(table, new, wanted)
    snapshots = [(each.snapshot_id, each.timestamp_ms) for each in table.metadata.snapshots]
    most = PUBLICATIONS_MAX if declared is PUBLICATIONS else SNAPSHOTS_MAX
    expired = choose_expired(snapshots, now, most)
    if len(expired) < _EXPIRED_TOGETHER:
        expired = []
    snapshot_id = write_snapshot(before, gone, added, properties, expired, now)
    return TableCommit(snapshot_id, len(added), len(gone))


def _add_files(table: "Table", new: Collection[PartName], wanted: Parts) -> "list[DataFile]":
    """Write the files of parts into the table folder; return their entries.

    Several uploads run side by side; a file is described from its copy on this machine.
    """
    uploads: list[Future[None]] = []
    added: list[DataFile] = []
    with (
        TemporaryDirectory(prefix="iceberg-", dir=own_folder()) as folder,
        ThreadPoolExecutor(_UPLOADS) as pool,
    ):
        for number, name in enumerate(new):
            location = f"{table.location()}/data/{name.file_name()}"
            target = local_path(location)
            if target is not None:
                make_folders(target.parent)
            source = wanted[name](Path(folder) / f"{number}.parquet" if target is None else target)
            added.append(_describe_file(table, source, location))
            if target is None:
                is_temporary = source.parent == Path(folder)
                uploads.append(pool.submit(_upload, table.io, source, location, is_temporary))
            elif target != source:
                link_file(source, target)
        for upload in uploads:
            upload.result()
    return added


def _describe_file(table: "Table", source: Path, location: str) -> "DataFile":
    """Return the entry of a file at a location, with the statistics of its copy here."""
    from pyiceberg.io.pyarrow import PyArrowFileIO, parquet_file_to_data_file

    class Here(PyArrowFileIO):  # type: ignore[misc]
        """Opens the copy for the location."""

        def new_input(self, _: str) -> "InputFile":
            return super().new_input(str(source))

    return parquet_file_to_data_file(Here(), table.metadata, location)


def _upload(io: "FileIO", source: Path, location: str, is_temporary: bool) -> None:
    with io.new_output(location).create(overwrite=True) as stream, source.open("rb") as file:
        shutil.copyfileobj(file, stream, _BLOCK_BYTES)
    if is_temporary:
        source.unlink()


def local_path(location: str) -> Path | None:
    """Return the path of a location on this machine; None if it is elsewhere."""
    parts = urlparse(location)
    return Path(parts.path) if parts.scheme in ("", "file") else None


def choose_expired(snapshots: Collection[tuple[int, int]], now: datetime, most: int) -> list[int]:
    """Return the ids of the snapshots that expire, from ids and times in ms since 1970.

    A snapshot expires some days after the next one replaced it, or if there are more than `most`.
    """
    ordered = sorted(snapshots, key=lambda snapshot: snapshot[1])
    since_ms = (now.astimezone(UTC) - timedelta(days=SNAPSHOT_DAYS)).timestamp() * 1000
    surplus = len(ordered) - most
    return [
        snapshot_id
        for place, ((snapshot_id, _), (_, replaced_ms)) in enumerate(pairwise(ordered))
        if place < len(ordered) - SNAPSHOTS_MIN and (replaced_ms < since_ms or place < surplus)
    ]
