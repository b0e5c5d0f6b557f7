"""Parquet files by date, for engines that read Parquet: derived from the published file.

    parquet/event_changes/observed_date=YYYY-MM-DD/changes.parquet    versions that became known
    parquet/events/event_month=YYYY-MM/events.parquet                 the events as now known
    parquet/partitions.json                                           the content of each partition

Each file is written beside its place and renamed. A partition is written if its content in the
published file differs from the recorded one, so a merge repairs what a killed one left.
"""

from contextlib import closing
from pathlib import Path
from typing import Final

import duckdb
import msgspec

from almanac.reading.attached_file import attach_published
from warehouse.files.storage import Storage
from warehouse.home import Home
from warehouse.phases import report_phase
from warehouse.schema import ddl
from warehouse.schema.columns import AS_OF, GROUPS
from warehouse.schema.tables import EVENT_VERSIONS
from warehouse.sql import Statements

_SQL = Statements(__package__, GROUPS)
CHANGES: Final = "event_changes"
EVENTS: Final = "events"
RECORD: Final = "partitions.json"
_FILES: Final = {CHANGES: "changes.parquet", EVENTS: "events.parquet"}
_KEYS: Final = {CHANGES: "observed_date", EVENTS: "event_month"}
_TOGETHER: Final = 64
"""Partitions that one statement writes: DuckDB keeps a file open for each, at most 100."""
CHANGES_COLUMNS: Final = tuple(name for name in EVENT_VERSIONS.names if name != "known_to")
"""The columns of the changes: a version's end is only known later."""
EVENTS_COLUMNS: Final = tuple(column.name for column in AS_OF)

Contents = dict[str, dict[str, str]]
"""The content of each partition by kind and key, as a text that differs if the rows do."""


def partition_name(kind: str, key: str) -> str:
    """Return the name of a partition's file in the folder of the partitions."""
    return f"{kind}/{_KEYS[kind]}={key}/{_FILES[kind]}"


def read_record(parquet: Storage) -> Contents:
    """Return the recorded content of each partition; nothing if the record can't be read."""
    try:
        return msgspec.json.decode(parquet.read(RECORD), type=Contents)
    except (OSError, ValueError):
        return {}


def write_partitions(home: Home, *, with_months: bool, anew: bool) -> int:
    """Write the partitions whose content changed, and remove those without a row; return how many.

    `with_months` also compares the events by month. `anew` writes all files.
    """
    parquet = home.parquet
    recorded = {} if anew else read_record(parquet)
    with closing(home.connect()) as connection:
        attach_published(connection, home.warehouse, "warehouse")
        connection.execute("USE warehouse")
        contents = {CHANGES: dict(connection.execute(_SQL["list_days_as_text"]).fetchall())}
        if with_months:
            text = _SQL["list_months"].replace("{columns}", ddl.column_list(EVENTS_COLUMNS))
            contents[EVENTS] = dict(connection.execute(text).fetchall())
        count = 0
        for kind, found in contents.items():
            before = recorded.get(kind, {})
            changed = [key for key, content in found.items() if before.get(key) != content]
            gone = _existing(parquet, kind) - found.keys()
            _write_files(connection, parquet, kind, changed)
            for key in gone:
                parquet.remove_folder(f"{kind}/{_KEYS[kind]}={key}")
            count += len(changed) + len(gone)
    if count or not parquet.exists(RECORD):
        parquet.put(RECORD, msgspec.json.encode(recorded | contents))
    return count


def _existing(parquet: Storage, kind: str) -> set[str]:
    folders = parquet.folders(kind)
    return {folder.partition("=")[2] for folder in folders if folder.startswith(_KEYS[kind])}


def _write_files(
    connection: duckdb.DuckDBPyConnection, parquet: Storage, kind: str, keys: list[str]
) -> None:
    """Write some partitions of a kind: many with one statement, each renamed into its place."""
    for start in range(0, len(keys), _TOGETHER):
        report_phase("write partitions", start, len(keys))
        with parquet.staging() as folder:
            values = {"folder": str(folder), "keys": keys[start : start + _TOGETHER]}
            connection.execute(_SQL[f"write_{kind}"], values)
            for file in folder.glob("*/*.parquet"):
                parquet.adopt(file, f"{kind}/{file.parent.name}/{_FILES[kind]}")


def list_files(home: Home, kind: str) -> list[Path]:
    """Return the files of the partitions of a kind."""
    parquet = home.parquet
    names = (partition_name(kind, key) for key in sorted(_existing(parquet, kind)))
    return [parquet.path(name) for name in names if parquet.exists(name)]
