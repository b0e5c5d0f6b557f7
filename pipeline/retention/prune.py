"""What `almanac prune` and the job of that name do to an instance, in order.

Each step can be repeated: a prune that is killed is finished by the next one. It is safe while the
daemon and the pages run, since it deletes ended runs alone.
"""

from datetime import datetime, timedelta
from typing import Final

import dagster as dg

from pipeline.retention.events import EventLog
from pipeline.retention.lengths import Pruned, Retention
from pipeline.retention.owned import OWNER_TAG, Owned
from pipeline.retention.runs import (
    RunDeletion,
    ended_runs,
    needed_runs,
    runs_with_old_output,
    spent_runs,
)
from pipeline.retention.sqlite_files import RunFiles
from pipeline.retention.ticks import prune_backfills, prune_ticks
from pipeline.runs.store import REPOSITORY_TAG

_SHOWN_RUNS: Final = 50
_COPIED: Final = timedelta(days=1)
"""The index has the events without a run; no page reads their copies."""


def prune_instance(
    instance: dg.DagsterInstance,
    owned: Owned,
    retention: Retention,
    now: datetime,
    *,
    dry_run: bool = False,
) -> list[Pruned]:
    """Delete what a home has kept for long enough in an instance; return the counts by kind.

    Runs in progress and what belongs to others stay.

    Raises:
        TypeError: the events of the instance are not in an SQL storage.
    """
    owned = owned.in_instance(instance)
    events = EventLog(instance, dry_run=dry_run)
    files = RunFiles(instance, owned.home, dry_run=dry_run)
    deletion = RunDeletion(instance, events, files, dry_run=dry_run)
    runs = ended_runs(instance, owned)
    needed = needed_runs(instance, events)
    locations = _locations(instance, owned)
    spent = spent_runs(runs, retention, now, needed=needed)
    pruned = deletion.delete(spent)
    gone = {run.run_id for run in spent}
    staying = [run for run in runs if run.run_id not in gone]
    pruned.append(deletion.delete_output(runs_with_old_output(staying, retention, now)))
    before = retention.runs_before(now, succeeded=True)
    superseded = 0
    for asset in sorted(owned.assets):
        superseded += events.forget_superseded(asset, before)
    events.forget_runless(owned.assets, now - _COPIED, is_own=owned.home is not None)
    pruned.append(Pruned("superseded events", superseded))
    pruned.append(
        prune_ticks(instance, owned, retention, now, locations=locations, dry_run=dry_run)
    )
    pruned.append(prune_backfills(instance, owned, retention, now, dry_run=dry_run))
    pruned += files.delete_leftovers(now)
    pruned.append(files.vacuum())
    return _summed(pruned)


def _locations(instance: dg.DagsterInstance, owned: Owned) -> frozenset[str]:
    """Return the repositories from which newer runs of the home were started."""
    runs = instance.get_runs(
        filters=dg.RunsFilter(tags={OWNER_TAG: owned.label}), limit=_SHOWN_RUNS
    )
    labels = (run.tags.get(REPOSITORY_TAG) for run in runs)
    return frozenset(label for label in labels if label is not None)


def _summed(pruned: list[Pruned]) -> list[Pruned]:
    """Return the counts with one of each kind."""
    found: dict[str, Pruned] = {}
    for each in pruned:
        before = found.get(each.what, Pruned(each.what, 0))
        found[each.what] = Pruned(each.what, before.count + each.count, before.bytes + each.bytes)
    return list(found.values())
