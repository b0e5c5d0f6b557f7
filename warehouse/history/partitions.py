"""Parquet files, for engines that read Parquet: derived from the published file.

    parquet/event_changes/observed_date=YYYY-MM-DD/changes.parquet    versions that became known
    parquet/events/events.parquet                                     the events as now known
    parquet/partitions.json                                           what was written

Each file is written beside its place and renamed. It is written if its content in the published
file differs from the recorded one, so a merge repairs what a killed one left.
"""

from contextlib import closing
from pathlib import Path
from typing import Final

import duckdb
import msgspec

from almanac.core import progress
from almanac.core.statements import Statements
from almanac.reading.attached_file import attach_published
from warehouse.files.documents import hash_file
from warehouse.files.storage import Storage
from warehouse.home import Home
from warehouse.schema.columns import GROUPS
from warehouse.schema.tables import EVENT_VERSIONS

_SQL = Statements(__package__, GROUPS)
CHANGES: Final = "event_changes"
EVENTS: Final = "events"
RECORD: Final = "partitions.json"
CHANGES_COLUMNS: Final = tuple(
    name for name in EVENT_VERSIONS.names if name not in ("known_to", "published_seq")
)
"""The columns of the changes, without the end of a version and its place in the feed."""


class Partition(msgspec.Struct, frozen=True):
    """A text that identifies the rows of a file, and the hash of its bytes."""

    content: str
    sha256: str


Partitions = dict[str, Partition]
"""Files by key: the day of their changes, or `events`."""


def partition_name(key: str) -> str:
    if key == EVENTS:
        return f"{EVENTS}/events.parquet"
    return f"{CHANGES}/observed_date={key}/changes.parquet"


def read_record(parquet: Storage) -> Partitions:
    """Return the files that were written; nothing if the record can't be read."""
    try:
        return msgspec.json.decode(parquet.read(RECORD), type=Partitions)
    except (OSError, ValueError):
        return {}


def list_contents(connection: duckdb.DuckDBPyConnection) -> dict[str, str]:
    """Return the content of each file, by key; the published file is attached as `warehouse`."""
    return dict(connection.execute(_SQL["list_contents"]).fetchall())


def has_written_bytes(parquet: Storage, key: str, partition: Partition) -> bool:
    """Whether a file is as it was written."""
    path = parquet.path(partition_name(key))
    return path.is_file() and hash_file(path) == partition.sha256


def write_partitions(
    home: Home,
    *,
    with_events: bool,
    anew: bool,
    connection: duckdb.DuckDBPyConnection | None = None,
) -> int:
    """Write the files whose content changed, and remove days without a version; return how many.

    Without `with_events`, the file of the events stays as it is. `anew` writes all files.
    """
    parquet = home.parquet
    recorded = read_record(parquet)
    with closing(connection or home.connect()) as connection:
        attach_published(connection, home.warehouse, "warehouse")
        connection.execute("USE warehouse")
        contents = list_contents(connection)
        skipped = set() if with_events else {EVENTS}
        record = {
            key: partition
            for key, partition in recorded.items()
            if key in skipped or (not anew and contents.get(key) == partition.content)
        }
        changed = sorted(contents.keys() - record.keys() - skipped)
        for number, key in enumerate(changed):
            progress.phase("write partitions", number, len(changed))
            is_day = key != EVENTS
            name, day = ("write_event_changes", {"day": key}) if is_day else ("write_events", {})
            with parquet.writing(partition_name(key)) as file:
                connection.execute(_SQL[name], {"file": str(file), **day})
                record[key] = Partition(contents[key], hash_file(file))
    folders = {str(Path(partition_name(key)).parent) for key in contents}
    gone = {f"{kind}/{name}" for kind in (CHANGES, EVENTS) for name in parquet.folders(kind)}
    for folder in gone - folders:
        parquet.remove_folder(folder)
    if record != recorded:
        parquet.put(RECORD, msgspec.json.encode(record))
    return len(changed) + len(gone - folders)
