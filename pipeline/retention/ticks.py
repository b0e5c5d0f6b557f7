"""Old ticks of a home's schedules and sensors, and its ended backfills.

Dagster's daemon deletes old ticks of sensors while it runs; those of schedules it keeps.
"""

from datetime import datetime, timedelta
from typing import Final

import dagster as dg
import sqlalchemy as db
from dagster._core.execution.backfill import (
    BULK_ACTION_TERMINAL_STATUSES,
    BulkActionsFilter,
    PartitionBackfill,
)
from dagster._core.storage.runs.sql_run_storage import SqlRunStorage
from dagster._core.storage.schedules.sql_schedule_storage import SqlScheduleStorage

from pipeline.retention.lengths import Pruned, Retention
from pipeline.retention.owned import OWNER_TAG, Owned
from warehouse.sql import Statements

_SQL: Final = Statements(__package__)


def prune_ticks(
    instance: dg.DagsterInstance,
    owned: Owned,
    retention: Retention,
    now: datetime,
    *,
    locations: frozenset[str],
    dry_run: bool,
) -> Pruned:
    """Delete the old ticks of a home's schedules and sensors.

    `locations` are the repositories from which its runs were started (`name@location`): another
    location may have a sensor of the same name.
    """
    before = now - timedelta(days=retention.ticks_days)
    storage = instance.schedule_storage
    count = 0
    if not isinstance(storage, SqlScheduleStorage):
        return Pruned("ticks", 0)
    for state in instance.all_instigator_state():
        label = state.origin.repository_origin.get_label()
        if state.instigator_name not in owned.instigators:
            continue
        if owned.home is None and label not in locations:
            continue
        given = {"selector": state.selector_id, "before": before.replace(tzinfo=None)}
        statement = db.text(_SQL["count_old_ticks"]).bindparams(
            db.bindparam("before", type_=db.TIMESTAMP())
        )
        with storage.connect() as connection:
            count += int(connection.execute(statement, given).scalar() or 0)
        if not dry_run:
            instance.purge_ticks(state.instigator_origin_id, state.selector_id, before.timestamp())
    return Pruned("ticks", count)


def prune_backfills(
    instance: dg.DagsterInstance,
    owned: Owned,
    retention: Retention,
    now: datetime,
    *,
    dry_run: bool,
) -> Pruned:
    """Delete the records of backfills that ended before the oldest runs that are kept."""
    storage = instance.run_storage
    if not isinstance(storage, SqlRunStorage):
        return Pruned("backfills", 0)
    old = [
        backfill.backfill_id
        for backfill in instance.get_backfills(
            filters=BulkActionsFilter(
                statuses=BULK_ACTION_TERMINAL_STATUSES,
                created_before=retention.runs_before(now, succeeded=False),
            )
        )
        if _is_ours(backfill, owned)
    ]
    for backfill_id in [] if dry_run else old:
        with storage.connect() as connection:
            for name in ("delete_backfill_tags", "delete_backfill"):
                connection.execute(db.text(_SQL[name]), {"backfill": backfill_id})
    return Pruned("backfills", len(old))


def _is_ours(backfill: PartitionBackfill, owned: Owned) -> bool:
    if backfill.tags.get(OWNER_TAG) == owned.label:
        return True
    return bool(backfill.asset_selection) and owned.assets.issuperset(
        backfill.asset_selection or ()
    )
