"""One day of history: its observations are folded, its files written, the day's file last.

    lake/checkpoints/YYYY-MM-DD-{fold id}/{seen,content,coins,…}.parquet, state.json

The day's file names the files that were written before it, and a later merge rewrites those that
no file names; so a crash at any point leaves the old day or the new one. A checkpoint is the whole
state after a day, so that a merge need not start from the first day. Its fold id identifies the
folded batches, so a checkpoint belongs to one history only.

The content of events is large and seldom changes. Successive checkpoints share one file of it, by a
hard link, and each has a second file with the content that changed since. The shared file is
written again when the second one has a fifth of the events.
"""

import hashlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any, Final

import duckdb
import msgspec

from warehouse.errors import DamagedBatch, LakeDamaged
from warehouse.files import lake_paths
from warehouse.files.documents import find_damage, hash_file
from warehouse.files.lake_paths import absences_name, changes_name, coins_name, rejects_name
from warehouse.files.storage import Storage, link_file, sync
from warehouse.history.change_log import NORMALISER, ChangeLog, DayFile, Head
from warehouse.history.fold import (
    CancellationSpan,
    Fold,
    SavedTable,
    WatchedSpan,
    WatchedSpans,
)
from warehouse.history.observations import FoldKey, Outcome, first_key, order_observations
from warehouse.landing.batches import Manifest
from warehouse.landing.landing import Landing
from warehouse.phases import Step, report_phase
from warehouse.publish.lake_files import name_state_files
from warehouse.schema.columns import GROUPS
from warehouse.sql import Statements, literal

_SQL = Statements(__package__, GROUPS)

CHANGED_SHARE: Final = 0.2
"""Share of the events; if the content of more changed, a checkpoint writes a new content file."""
_TABLES = {
    "coins": "coins_state",
    "categories": "categories_state",
    "cancellations": "cancellations_waiting",
    "labels": "coin_labels",
}
_SORTABLE = "%Y-%m-%dT%H:%M:%S.%fZ"


class State(msgspec.Struct, frozen=True, kw_only=True):
    """The part of the state outside the tables, and the number of rows of each table."""

    fold_id: str
    rows: dict[str, int]
    watch: tuple[WatchedSpan, ...]
    cancellations_seen: tuple[CancellationSpan, ...]
    list_separator: str | None = None


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

    def state(self, name: str) -> State:
        """Return the part of a checkpoint outside the tables."""
        return msgspec.json.decode(self._lake.read(lake_paths.checkpoint_state(name)), type=State)

    def save(self, fold: Fold, day: date, fold_id: str) -> tuple[str, dict[str, str]]:
        """Write the state; return the checkpoint's name, and the sha256 of its files by name.

        The checkpoint appears complete or not at all.
        """
        name = make_name(day, fold_id)
        rows = _counts(fold.connection)
        with self._lake.staged_folder(lake_paths.checkpoint_folder(name)) as folder:
            _write(fold.connection, _SQL["save_seen"], folder / "seen")
            hashes = _save_content(fold, folder, rows["events"])
            for table, source in _TABLES.items():
                if table in fold.saved:
                    hashes |= _link(fold.saved[table], folder / f"{table}.parquet")
                else:
                    _write(fold.connection, _SQL[f"save_{source}"], folder / table)
            state = State(
                fold_id=fold_id,
                rows=rows,
                watch=fold.watched.spans,
                cancellations_seen=fold.cancellations_seen,
                list_separator=fold.separator,
            )
            (folder / lake_paths.CHECKPOINT_STATE).write_bytes(msgspec.json.encode(state))
            sync(folder / lake_paths.CHECKPOINT_STATE)
            named = {
                f"{lake_paths.checkpoint_folder(name)}/{path.name}": hashes.get(path.name)
                or hash_file(path)
                for path in sorted(folder.iterdir())
            }
        self._note_saved(fold, name_state_files(name, named), named)
        return name, named

    def load(self, name: str, fold: Fold, fold_id: str, files: Mapping[str, str]) -> None:
        """Read a checkpoint into an empty fold. `files` has the sha256 of each of its files.

        Raises:
            LakeDamaged: it is missing, can't be read, or belongs to another history.
        """
        tables = name_state_files(name, files)
        state_file = lake_paths.checkpoint_state(name)
        for file in {*tables.values(), state_file}:
            if (why := find_damage(self._lake, file, files)) is not None:
                raise LakeDamaged(f"the checkpoint {name} can't be read: {why}")
        try:
            state = self.state(name)
            self._load_tables(tables, fold.connection)
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
        fold.separator = state.list_separator
        self._note_saved(fold, tables, files)
        fold.write_watched()

    def _note_saved(self, fold: Fold, names: Mapping[str, str], files: Mapping[str, str]) -> None:
        fold.saved = {
            table: SavedTable(self._lake.path(names[table]), files.get(names[table]))
            for table in ("content", *_TABLES)
        }

    def prune(self, keep: set[str]) -> None:
        """Remove all checkpoints except those in `keep`."""
        for name in self.names():
            if name not in keep:
                self._lake.remove_folder(lake_paths.checkpoint_folder(name))

    def _load_tables(self, names: Mapping[str, str], connection: duckdb.DuckDBPyConnection) -> None:
        files = {table: {"file": literal(self._lake.path(name))} for table, name in names.items()}
        connection.execute(_SQL["load_seen"], files["seen"])
        if names["content_changes"] != names["content"]:
            connection.execute(_SQL["load_content_changes"], files["content_changes"])
        connection.execute(_SQL["find_content_file"], files["content"])
        connection.execute(_SQL["view_content"])
        for table, target in _TABLES.items():
            connection.execute(_SQL[f"load_{target}"], files[table])


def _save_content(fold: Fold, folder: Path, events: int) -> dict[str, str]:
    """Write the content that changed since the content file, or a new content file.

    Returns the hashes that are known, by file name.
    """
    connection, file, known = fold.connection, fold.saved.get("content"), dict[str, str]()
    ((changed,),) = connection.execute(_SQL["count_content_changes"]).fetchall()
    if file is None or changed > CHANGED_SHARE * events:
        _write(connection, _SQL["save_content"], folder / "content")
        connection.execute(_SQL["note_saved"])
    else:
        known = _link(file, folder / "content.parquet")
    _write(connection, _SQL["save_content_changes"], folder / "content_changes")
    return known


def _link(table: SavedTable, target: Path) -> dict[str, str]:
    """Link the file of an unchanged table; return its hash by file name, if it is known."""
    link_file(table.path, target)
    return {} if table.sha256 is None else {target.name: table.sha256}


def _write(connection: duckdb.DuckDBPyConnection, query: str, target: Path) -> None:
    """Copy the rows of a query into a Parquet file, synced to disk."""
    path = target.with_suffix(".parquet")
    copy = _SQL["write_checkpoint_file"].replace("{query}", query.rstrip().rstrip(";"))
    values: dict[str, Any] = {"file": str(path)}
    connection.execute(copy, values)
    sync(path)


def _counts(connection: duckdb.DuckDBPyConnection) -> dict[str, int]:
    (counts,) = connection.execute(_SQL["count_state"]).fetchall()
    return dict(zip(("events", *_TABLES), counts, strict=True))


@dataclass(slots=True)
class DayReport:
    """The outcome of a day. `added` and `removed` count versions that differ from before."""

    day: date
    outcomes: list[Outcome] = field(default_factory=list)
    added: int = 0
    removed: int = 0


class DayWriter:
    """Folds days into a lake, one after the other."""

    def __init__(
        self,
        lake: Storage,
        log: ChangeLog,
        landing: Landing,
        fold: Fold,
        step: Step,
        set_aside: Callable[[str, DamagedBatch], None],
        total: int,
    ) -> None:
        """`total` is the number of batches of all days, for the reported progress."""
        self._lake = lake
        self._log = log
        self._landing = landing
        self._fold = fold
        self._step = step
        self._set_aside = set_aside
        self._checkpoints = Checkpoints(lake)
        self._done, self._total = 0, total

    def merge(
        self,
        day: date,
        manifests: list[Manifest],
        *,
        before: DayFile | None,
        so_far: DayFile | None,
        released: frozenset[str],
        keep_checkpoint: bool,
    ) -> tuple[DayFile, DayReport]:
        """Fold batches into a new day, or append them to an existing one (`so_far`); commit it."""
        merged = DayReport(day)
        files = self._begin(so_far)
        last: FoldKey | None = None
        by_id: dict[str, Outcome] = {}
        for observation in order_observations(manifests):
            batch_id = observation.manifest.batch_id
            report_phase("fold batches", min(self._done, self._total), self._total)
            self._done += batch_id not in by_id
            try:
                outcome = self._fold.fold(observation, self._landing, released=batch_id in released)
            except DamagedBatch as error:
                # The state is unchanged: all rows are read before any is folded.
                self._set_aside(batch_id, error)
                continue
            files |= self._write_rejects(day, outcome)
            by_id[batch_id] = _joined(by_id.get(batch_id), outcome)
            last = observation.until
            self._step("merge:observation_folded")
        merged.outcomes = list(by_id.values())
        records = [] if so_far is None else list(so_far.meta["batches"])
        records += [outcome.record() for outcome in merged.outcomes]
        fold_id = _fold_id(before, records)
        files |= self._write_beside("snapshot", coins_name(day))
        files |= self._write_beside("day_absences", absences_name(day))
        self._step("merge:coins_written")
        checkpoint = None
        if keep_checkpoint:
            checkpoint, written = self._checkpoints.save(self._fold, day, fold_id)
            files |= written
        self._step("merge:checkpoint_written")
        head = Head(
            day=day.isoformat(),
            previous=None if before is None else before.sha256,
            fold_id=fold_id,
            folded_to=key_text(last) if last else (so_far.head.folded_to if so_far else None),
            checkpoint=checkpoint,
            files=files,
        )
        if so_far is None:
            merged.added, merged.removed = self._difference(day)
        committed = self._log.write(self._fold.connection, head, records)
        self._step("merge:day_written")
        return committed, merged

    def _begin(self, so_far: DayFile | None) -> dict[str, str]:
        """Load the content of a day; return the hashes of the files that it keeps."""
        connection = self._fold.connection
        for table in ("day_versions", "day_absences", "snapshot"):
            connection.execute(_SQL[f"empty_{table}"])
        if so_far is None:
            return {}
        connection.execute(_SQL["load_day_versions"], {"file": literal(so_far.path)})
        name = coins_name(so_far.day)
        if self._lake.exists(name) and any(
            batch["feed"] == "coins" for batch in so_far.meta["batches"]
        ):
            file = {"file": literal(self._lake.path(name))}
            connection.execute(_SQL["load_snapshot"], file)
        name = absences_name(so_far.day)
        if name in so_far.head.files:
            file = {"file": literal(self._lake.path(name))}
            connection.execute(_SQL["load_day_absences"], file)
        kept = [
            rejects_name(so_far.day, record["batch_id"])
            for record in so_far.meta["batches"]
            if record["rejected"]
        ]
        recorded = so_far.head.files
        return {name: recorded[name] for name in kept if name in recorded}

    def _write_rejects(self, day: date, outcome: Outcome) -> dict[str, str]:
        name = rejects_name(day, outcome.manifest.batch_id)
        if not outcome.rejected:
            self._lake.remove(name)
            return {}
        return self._write(name, "write_rejects")

    def _write_beside(self, table: str, name: str) -> dict[str, str]:
        """Write a table of the day as a file; a table without rows has none."""
        (count,) = self._fold.connection.table(table).aggregate("count(*)").fetchall()[0]
        if not count:
            self._lake.remove(name)
            return {}
        return self._write(name, f"write_{table}")

    def _write(self, name: str, by: str) -> dict[str, str]:
        """Write a file of the lake by a statement; return its sha256, by its name."""
        with self._lake.writing(name) as staged:
            self._fold.connection.execute(_SQL[by], {"file": str(staged)})
            sha256 = hash_file(staged)
        return {name: sha256}

    def _difference(self, day: date) -> tuple[int, int]:
        """Return how many versions of the day are new or changed, and how many were removed."""
        path = self._lake.path(changes_name(day))
        connection = self._fold.connection
        with suppress(duckdb.Error):
            file = {"file": literal(path)}
            added, removed = connection.execute(_SQL["count_differences"], file).fetchall()[0]
            return int(added), int(removed)
        # The file is missing, or damaged and about to be replaced.
        (count,) = connection.table("day_versions").aggregate("count(*)").fetchall()[0]
        return int(count), 0


def follow(last: DayFile, fresh: list[Manifest]) -> bool:
    """Whether all new batches sort after everything folded, and none was released."""
    folded_to = last.head.folded_to
    known = last.batches()
    return all(
        manifest.batch_id not in known
        and (folded_to is None or key_text(first_key(manifest)) > tuple(folded_to))
        for manifest in fresh
    )


def key_text(key: FoldKey) -> tuple[str, str, int, str]:
    """Return a fold key as text that sorts as the key does."""
    observed_at, content_at, rank, batch_id = key
    return f"{observed_at:{_SORTABLE}}", f"{content_at:{_SORTABLE}}", rank, batch_id


def _joined(so_far: Outcome | None, more: Outcome) -> Outcome:
    """Return one outcome for a batch that was folded as several observations."""
    if so_far is None:
        return more
    so_far.stale += more.stale
    so_far.missing += more.missing
    so_far.versions += more.versions
    for kind, count in more.changes.items():
        so_far.changes[kind] = so_far.changes.get(kind, 0) + count
    return so_far


def _fold_id(before: DayFile | None, records: list[dict[str, object]]) -> str:
    """Return the id of a history; the same batches with the same status give the same id."""
    digest = hashlib.sha256(f"{NORMALISER}/{before.head.fold_id if before else ''}".encode())
    for record in sorted(records, key=lambda entry: str(entry["batch_id"])):
        digest.update(f"/{record['batch_id']}:{record['status']}:{record['released']}".encode())
    return digest.hexdigest()
