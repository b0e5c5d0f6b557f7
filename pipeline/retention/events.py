"""The events and check results of runs: deleted, but for the latest of each partition.

What stays is what the pages of assets and the conditions of downstream assets read; no event is
reported anew, so that nothing downstream sees a change. Works on the tables of Dagster's SQL
storages (SQLite, PostgreSQL).
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final, TypeVar

import dagster as dg
import sqlalchemy as db
from dagster._core.storage.event_log.sql_event_log import SqlEventLogStorage
from dagster._core.storage.event_log.sqlite.sqlite_event_log import SqliteEventLogStorage
from sqlalchemy.engine import Connection

from warehouse.sql import Statements

_SQL: Final = Statements(__package__)
_KEPT: Final = (
    dg.DagsterEventType.ASSET_MATERIALIZATION.value,
    dg.DagsterEventType.ASSET_OBSERVATION.value,
    dg.DagsterEventType.FRESHNESS_STATE_CHANGE.value,
)
_Item = TypeVar("_Item")
_AT_ONCE: Final = 500
"""Fewer than the variables that any SQLite accepts in a statement."""
NO_RUN: Final = ""
"""The run of events that were reported without one."""


class EventLog:
    """The event log of an instance, as retention uses it. If `dry_run`, it only counts."""

    def __init__(self, instance: dg.DagsterInstance, *, dry_run: bool) -> None:
        storage = instance.event_log_storage
        if not isinstance(storage, SqlEventLogStorage):
            raise TypeError(
                f"The events of this instance are in {type(storage).__name__}, expected an SQL "
                "storage (SQLite, PostgreSQL). Nothing was deleted."
            )
        self._instance = instance
        self._storage = storage
        self._dry_run = dry_run

    def newest_run(self) -> str | None:
        """Return the run of the newest event, None if it has none.

        SQLite gives the id of a deleted newest event to the next one; sensors would miss it.
        """
        with self._storage.index_connection() as connection:
            found = connection.execute(db.text(_SQL["find_newest_event"])).scalar()
        return found or None

    def forget_runs(self, run_ids: Sequence[str]) -> int:
        """Delete what may go of the events and check results of runs; return how many."""
        count = 0
        with self._storage.index_transaction() as connection:
            for statement, delete in (
                ("list_spent_events", self._delete_events),
                ("list_spent_checks", self._delete_checks),
            ):
                rows = _rows(connection, statement, runs=run_ids)
                count += delete(connection, [row[0] for row in rows])
        return count

    def forget_superseded(self, asset: dg.AssetKey, before: datetime) -> int:
        """Delete old events of an asset that were the latest once; return how many.

        Also those that were reported without a run. Events of runs that still exist stay.
        """
        given = {"asset": asset.to_string(), "before": before.replace(tzinfo=None)}
        with self._storage.index_transaction() as connection:
            events = _rows(connection, "list_superseded_events", **given)
            checks = _rows(connection, "list_superseded_checks", **given)
            there = self._existing({row[1] for row in (*events, *checks)})
            ids = [row[0] for row in events if row[1] not in there]
            # The event of a result names no asset, so it is found by the result.
            ids += [row[2] for row in checks if row[1] == NO_RUN and row[2] is not None]
            count = self._delete_events(connection, ids)
            gone = [row[0] for row in checks if row[1] not in there]
            return count + self._delete_checks(connection, gone)

    def forget_runless(
        self, assets: Iterable[dg.AssetKey], before: datetime, *, is_own: bool
    ) -> None:
        """Delete the copies of old events without a run that SQLite keeps beside the index.

        Results of checks name no asset there, and go only if the instance `is_own`.
        """
        storage = self._storage
        if self._dry_run or not isinstance(storage, SqliteEventLogStorage):
            return
        # Opening a database that is missing would create it.
        if not Path(storage.path_for_shard(NO_RUN)).exists():
            return
        instant = before.replace(tzinfo=None)
        with storage.run_connection(NO_RUN) as connection:
            for asset in assets:
                given = {"asset": asset.to_string(), "before": instant}
                _execute(connection, "delete_runless_events", **given)
            if is_own:
                _execute(connection, "delete_runless_results", before=instant)

    def free_slots(self, run_ids: Iterable[str]) -> None:
        """Free the places in pools that ended runs still hold; without a run nobody would."""
        if self._dry_run or not self._storage.supports_global_concurrency_limits:
            return
        for run_id in self._storage.get_concurrency_run_ids() & set(run_ids):
            self._storage.free_concurrency_slots_for_run(run_id)

    def _existing(self, run_ids: set[str]) -> set[str]:
        """Return which runs have a record."""
        ids = sorted(run_ids - {NO_RUN})
        return {
            run.run_id
            for chunk in in_chunks(ids)
            for run in self._instance.get_runs(filters=dg.RunsFilter(run_ids=chunk))
        }

    def _delete_events(self, connection: Connection, ids: list[int]) -> int:
        for chunk in [] if self._dry_run else in_chunks(ids):
            _execute(connection, "delete_event_tags", ids=chunk)
            _execute(connection, "delete_events", ids=chunk)
        return len(ids)

    def _delete_checks(self, connection: Connection, ids: list[int]) -> int:
        for chunk in [] if self._dry_run else in_chunks(ids):
            _execute(connection, "delete_checks", ids=chunk)
        return len(ids)


def in_chunks(items: Sequence[_Item], size: int = _AT_ONCE) -> list[Sequence[_Item]]:
    """Return the items in lists of a size."""
    return [items[start : start + size] for start in range(0, len(items), size)]


def _rows(connection: Connection, name: str, **given: Any) -> Sequence[Any]:
    rows: Sequence[Any] = _execute(connection, name, **given).fetchall()
    return rows


def _execute(connection: Connection, name: str, **given: Any) -> Any:
    if ":kinds" in _SQL[name]:
        given["kinds"] = _KEPT
    types = {datetime: db.TIMESTAMP()}
    bound = [
        db.bindparam(key, expanding=True)
        if isinstance(value, list | tuple)
        else db.bindparam(key, type_=types.get(type(value)))
        for key, value in given.items()
    ]
    return connection.execute(db.text(_SQL[name]).bindparams(*bound), given)
