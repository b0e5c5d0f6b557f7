"""Checkpoints: the whole state after a day, so that a merge need not start from the first day.

    lake/checkpoints/YYYY-MM-DD-{fold id}/{events,coins,…}.parquet, state.json

The fold id identifies what was folded, so a checkpoint belongs to one history only. Those of the
newest seven days and the last day of each month are kept. All can be rebuilt from landing.
"""

from collections.abc import Mapping
from datetime import date
from itertools import zip_longest
from pathlib import Path
from typing import Any

import duckdb
import msgspec

from warehouse.errors import LakeDamaged
from warehouse.files import lake_paths
from warehouse.files.documents import find_damage, hash_file
from warehouse.files.storage import Storage, sync
from warehouse.history.fold import CancellationSpan, Fold, WatchedSpan, WatchedSpans
from warehouse.normalise.csv_lists import ListSeparators
from warehouse.schema.columns import GROUPS
from warehouse.sql import Statements, literal

_SQL = Statements(__package__, GROUPS)

NEWEST_KEPT = 7
_TABLES = {
    "coins": "coins_state",
    "categories": "categories_state",
    "cancellations": "cancellations_waiting",
    "labels": "coin_labels",
}


class State(msgspec.Struct, frozen=True, kw_only=True):
    """The part of the state that is in no table, and the number of rows of each table."""

    fold_id: str
    rows: dict[str, int]
    watch: tuple[WatchedSpan, ...]
    cancellations_seen: tuple[CancellationSpan, ...]
    separators: ListSeparators = ListSeparators()


def make_name(day: date, fold_id: str) -> str:
    return f"{day.isoformat()}-{fold_id[:12]}"


class Checkpoints:
    """The checkpoints of a lake."""

    def __init__(self, lake: Storage) -> None:
        self._lake = lake

    def names(self) -> list[str]:
        return self._lake.folders(lake_paths.CHECKPOINTS)

    def has(self, name: str) -> bool:
        return self._lake.exists(lake_paths.checkpoint_state(name))

    def files(self, name: str) -> list[str]:
        """Return the names in the lake of the files of a checkpoint."""
        tables = [lake_paths.checkpoint_table(name, table) for table in ("events", *_TABLES)]
        return [*tables, lake_paths.checkpoint_state(name)]

    def path(self, name: str) -> Path:
        return self._lake.path(lake_paths.checkpoint_folder(name))

    def save(self, fold: Fold, day: date, fold_id: str) -> tuple[str, dict[str, str]]:
        """Write the state; return the checkpoint's name, and the sha256 of its files by name.

        The checkpoint appears complete or not at all.
        """
        name = make_name(day, fold_id)
        rows: dict[str, int] = {}
        with self._lake.staged_folder(lake_paths.checkpoint_folder(name)) as folder:
            rows["events"] = _write(fold.connection, _SQL["list_state_events"], folder / "events")
            for table, source in _TABLES.items():
                query = _SQL[f"save_{source}"]
                rows[table] = _write(fold.connection, query, folder / table)
            state = State(
                fold_id=fold_id,
                rows=rows,
                watch=fold.watched.spans,
                cancellations_seen=fold.cancellations_seen,
                separators=fold.separators,
            )
            (folder / lake_paths.CHECKPOINT_STATE).write_bytes(msgspec.json.encode(state))
            sync(folder / lake_paths.CHECKPOINT_STATE)
            hashes = {
                f"{lake_paths.checkpoint_folder(name)}/{path.name}": hash_file(path)
                for path in sorted(folder.iterdir())
            }
        return name, hashes

    def load(
        self, name: str, fold: Fold, fold_id: str, files: Mapping[str, str] | None = None
    ) -> None:
        """Read a checkpoint into an empty fold. `files` has the sha256 of each of its files.

        Raises:
            LakeDamaged: it is missing, can't be read, or belongs to another history.
        """
        folder = self.path(name)
        for file in self.files(name):
            if (why := find_damage(self._lake, file, files)) is not None:
                raise LakeDamaged(f"the checkpoint {name} can't be read: {why}")
        try:
            state = msgspec.json.decode(
                (folder / lake_paths.CHECKPOINT_STATE).read_bytes(), type=State
            )
            self._load_tables(folder, fold.connection)
        except duckdb.OutOfMemoryException:
            raise
        except (OSError, ValueError, duckdb.Error) as error:
            raise LakeDamaged(f"the checkpoint {name} can't be read: {error}") from error
        counted = _counts(fold.connection)
        if state.fold_id != fold_id or counted != state.rows:
            raise LakeDamaged(
                f"the checkpoint {name} belongs to another history, or is incomplete: it holds "
                f"{counted}, and records {state.rows}"
            )
        fold.watched = WatchedSpans(state.watch)
        fold.cancellations_seen = state.cancellations_seen
        fold.separators = state.separators
        fold.write_watched()

    def prune(self, keep: set[str]) -> None:
        """Remove all checkpoints except those in `keep`."""
        for name in self.names():
            if name not in keep:
                self._lake.remove_folder(lake_paths.checkpoint_folder(name))

    def _load_tables(self, folder: Path, connection: duckdb.DuckDBPyConnection) -> None:
        events = {"file": literal(folder / "events.parquet")}
        connection.execute(_SQL["load_current"], events)
        connection.execute(_SQL["load_seen"], events)
        for table, target in _TABLES.items():
            file = {"file": literal(folder / f"{table}.parquet")}
            connection.execute(_SQL[f"load_{target}"], file)


def choose_checkpoints(days: list[date]) -> set[date]:
    """Return the days whose checkpoints are kept: the newest seven, and the last of each month."""
    newest = set(days[-NEWEST_KEPT:])
    return newest | {
        day
        for day, following in zip_longest(days, days[1:])
        if following is None or (following.year, following.month) != (day.year, day.month)
    }


def _write(connection: duckdb.DuckDBPyConnection, query: str, target: Path) -> int:
    """Copy the rows of a query into a Parquet file, synced to disk; return their number."""
    path = target.with_suffix(".parquet")
    copy = _SQL["write_checkpoint_file"].replace("{query}", query.rstrip().rstrip(";"))
    values: dict[str, Any] = {"file": str(path)}
    (rows,) = connection.execute(copy, values).fetchall()[0]
    sync(path)
    return int(rows)


def _counts(connection: duckdb.DuckDBPyConnection) -> dict[str, int]:
    tables = {"events": "event_seen", **_TABLES}
    counts: dict[str, int] = {}
    for name, table in tables.items():
        (count,) = connection.table(table).aggregate("count(*)").fetchall()[0]
        counts[name] = int(count)
    return counts
