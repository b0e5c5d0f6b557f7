"""Parquet files by date, for engines that read Parquet: derived from the published file.

    parquet/event_changes/observed_date=YYYY-MM-DD/changes.parquet    versions that became known
    parquet/events/event_year=YYYY/events.parquet                     the events as now known
    parquet/partitions.json                                           what was written

Each file is written beside its place and renamed. A partition is written if its content in the
published file differs from the recorded one, so a merge repairs what a killed one left.
"""

from contextlib import closing
from pathlib import Path
from typing import Final

import duckdb
import msgspec

from almanac.reading.attached_file import attach_published
from warehouse.files.documents import hash_file
from warehouse.files.storage import Storage
from warehouse.home import Home
from warehouse.merge_progress import report_progress
from warehouse.schema import ddl
from warehouse.schema.columns import AS_OF, GROUPS
from warehouse.schema.tables import EVENT_VERSIONS
from warehouse.sql import Statements

_SQL = Statements(__package__, GROUPS)
CHANGES: Final = "event_changes"
EVENTS: Final = "events"
RECORD: Final = "partitions.json"
_FILES: Final = {CHANGES: "changes.parquet", EVENTS: "events.parquet"}
_KEYS: Final = {CHANGES: "observed_date", EVENTS: "event_year"}
_CONTENTS: Final = {CHANGES: "list_days_as_text", EVENTS: "list_months"}
_TOGETHER: Final = 64
"""Partitions that one statement writes: DuckDB keeps a file open for each, at most 100."""
CHANGES_COLUMNS: Final = tuple(
    name for name in EVENT_VERSIONS.names if name not in ("known_to", "published_seq")
)
"""The columns of the changes, without the end of a version and its place in the feed."""
EVENTS_COLUMNS: Final = tuple(column.name for column in AS_OF)


class Partition(msgspec.Struct, frozen=True):
    """A text that identifies the rows of a partition, and the hash of its file."""

    content: str
    sha256: str


Partitions = dict[str, dict[str, Partition]]
"""The partitions that were written, by kind and key."""


def partition_name(kind: str, key: str) -> str:
    return f"{kind}/{_KEYS[kind]}={key}/{_FILES[kind]}"


def read_record(parquet: Storage) -> Partitions:
    """Return the partitions that were written; nothing if the record can't be read."""
    try:
        return msgspec.json.decode(parquet.read(RECORD), type=Partitions)
    except (OSError, ValueError):
        return {}


def list_contents(connection: duckdb.DuckDBPyConnection, kind: str) -> dict[str, str]:
    """Return the content of each partition in the file attached as `warehouse`, by its key."""
    text = _SQL[_CONTENTS[kind]].replace("{columns}", ddl.column_list(EVENTS_COLUMNS))
    return dict(connection.execute(text).fetchall())


def has_written_bytes(parquet: Storage, kind: str, key: str, partition: Partition) -> bool:
    """Whether the file of a partition is as it was written."""
    path = parquet.path(partition_name(kind, key))
    return path.is_file() and hash_file(path) == partition.sha256


def write_partitions(
    home: Home,
    *,
    with_months: bool,
    anew: bool,
    connection: duckdb.DuckDBPyConnection | None = None,
) -> int:
    """Write the partitions whose content changed, and remove those without a row; return how many.

    `with_months` also compares the events by month. `anew` writes all files.
    """
    parquet = home.parquet
    recorded = read_record(parquet)
    record = {kind: {} if anew else recorded.get(kind, {}) for kind in _KEYS}
    count = 0
    with closing(connection or home.connect()) as connection:
        attach_published(connection, home.warehouse, "warehouse")
        connection.execute("USE warehouse")
        for kind in (CHANGES, EVENTS) if with_months else (CHANGES,):
            contents = list_contents(connection, kind)
            kept = {
                key: partition
                for key, partition in record[kind].items()
                if contents.get(key) == partition.content
            }
            changed = [key for key in contents if key not in kept]
            hashes = _write_files(connection, parquet, kind, changed)
            gone = _existing(parquet, kind) - contents.keys()
            for key in gone:
                parquet.remove_folder(f"{kind}/{_KEYS[kind]}={key}")
            record[kind] = kept | {key: Partition(contents[key], hashes[key]) for key in changed}
            count += len(changed) + len(gone)
    if record != recorded:
        parquet.put(RECORD, msgspec.json.encode(record))
    return count


def _existing(parquet: Storage, kind: str) -> set[str]:
    folders = parquet.folders(kind)
    return {folder.partition("=")[2] for folder in folders if folder.startswith(_KEYS[kind])}


def _write_files(
    connection: duckdb.DuckDBPyConnection, parquet: Storage, kind: str, keys: list[str]
) -> dict[str, str]:
    """Write some partitions of a kind: many with one statement, each renamed into its place.

    Returns the hashes of the files.
    """
    hashes: dict[str, str] = {}
    for start in range(0, len(keys), _TOGETHER):
        report_progress("write partitions", start, len(keys))
        with parquet.staging() as folder:
            values = {"folder": str(folder), "keys": keys[start : start + _TOGETHER]}
            connection.execute(_SQL[f"write_{kind}"], values)
            for file in folder.glob("*/*.parquet"):
                key = file.parent.name.partition("=")[2]
                hashes[key] = hash_file(file)
                parquet.adopt(file, partition_name(kind, key))
    return hashes


def list_files(home: Home, kind: str) -> list[Path]:
    parquet = home.parquet
    names = (partition_name(kind, key) for key in sorted(_existing(parquet, kind)))
    return [parquet.path(name) for name in names if parquet.exists(name)]
