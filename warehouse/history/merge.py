"""Merge: every landed batch takes effect in the warehouse exactly once.

    lock → list the unmerged batches, choose the base → copy, fold → check → publish
    → write the partitions

One process merges at a time, under the home's lock. New batches are folded into a copy of the
published file. If one sorts before the last one folded, all later batches are refolded from the
newest checkpoint before it, or from an empty file. A rebuild is the same merge from an empty file.
"""

import logging
import shutil
import uuid
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass, field
from datetime import date
from functools import partial
from itertools import chain
from pathlib import Path
from time import monotonic
from typing import Final

import duckdb
import msgspec

from almanac.core import progress
from almanac.core.errors import WarehouseError
from almanac.core.timestamps import utc_now
from almanac.reading.attached_file import attach_published
from warehouse.batch_problems import BatchProblem, list_damaged_problems, list_record_problems
from warehouse.errors import BatchFailed, DamagedBatch
from warehouse.files.storage import Storage
from warehouse.history import checkpoints
from warehouse.history.fold import Fold
from warehouse.history.local_logs import find_local_logs
from warehouse.history.merge_plan import MergePlan, plan_merge
from warehouse.history.observations import Observation, Outcome, order_observations
from warehouse.history.partitions import CHANGES_COLUMNS, write_partitions
from warehouse.history.warehouse_file import (
    SECONDS_FACT,
    NextFile,
    PublishedFile,
    find_damage,
    open_next_file,
    read_published,
    remove_next_files,
    unreadable_file,
)
from warehouse.home import Home
from warehouse.landing.batches import parse_feed
from warehouse.landing.landing import repair_landing, restore_intact_batches
from warehouse.schema import ddl
from warehouse.schema.columns import CONTENT_NAMED
from warehouse.schema.tables import TABLES

_OF_ONE_THREAD: Final = 64 << 20
"""Bytes of the batches, and of the file, up to which a merge uses one thread."""
_INDEXED: Final = 500_000
"""From so many versions on, an index finds the versions of an event; few are read as quickly."""
_log = logging.getLogger(__name__)
ABANDONED_S = 3600.0
"""Unfinished files in landing or state, where other processes write too, are removed after this."""
_COMPARED: Final = {
    "versions_before": "before.main.event_versions",
    "versions_now": "event_versions",
}
"""The versions of a refold, and those that were published before it."""


@dataclass(slots=True)
class MergeReport:
    """The result of a merge. `rows` has the number of rows of each table; sizes are in bytes."""

    outcomes: list[Outcome] = field(default_factory=list)
    refolded: dict[date, tuple[int, int]] = field(default_factory=dict)
    """The already merged days, with the numbers of added and of removed versions."""
    damaged: dict[str, str] = field(default_factory=dict)
    """Batches that were set aside because their files in landing are damaged, with the reason."""
    lost: dict[str, str] = field(default_factory=dict)
    """Batches that were merged before and are quarantined now, with the reason."""
    rebuilt: str | None = None
    """Why the warehouse was rebuilt from landing; None if it was not."""
    is_published: bool = False
    """Whether a new file was published; False if nothing was new."""
    rows: dict[str, int] = field(default_factory=dict)
    bytes: int = 0
    partitions: int = 0
    """Parquet partitions that were written or removed."""
    waited: bool = False
    seconds: float = 0.0

    @property
    def days(self) -> list[date]:
        return sorted({outcome.day for outcome in self.outcomes})

    @property
    def changes(self) -> Counter[str]:
        """The number of versions of each kind."""
        total: Counter[str] = Counter()
        for outcome in self.outcomes:
            total.update(outcome.changes)
        return total

    @property
    def rejected(self) -> int:
        return sum(outcome.rejected for outcome in self.outcomes)

    @property
    def versions(self) -> int:
        return sum(outcome.versions for outcome in self.outcomes)

    @property
    def problems(self) -> list[BatchProblem]:
        """The partial, flagged and quarantined batches in fold order, then the damaged ones."""
        folded = (list_record_problems(outcome.record()) for outcome in self.outcomes)
        return [*chain.from_iterable(folded), *list_damaged_problems(self.damaged)]

    @property
    def notes(self) -> list[str]:
        """A line for each effect that refolding had on the earlier history."""
        lost = (
            f"{batch_id} was merged before and is quarantined now: its rows are no longer in the "
            f"warehouse. {why}"
            for batch_id, why in self.lost.items()
        )
        return [*([] if self.rebuilt is None else [self.rebuilt]), *lost]

    @property
    def quarantined(self) -> list[Outcome]:
        return [outcome for outcome in self.outcomes if outcome.status == "quarantined"]


def merge(
    home: Home,
    *,
    clock: Callable[[], float] = monotonic,
    with_events: bool = True,
    refold_from: date | None = None,
    last_day: date = date.max,
) -> MergeReport:
    """Fold the landed batches that are not merged, and publish. Waits for the lock.

    `refold_from` refolds that day and all later days. New batches of days after `last_day` are left
    for a later merge. `with_events` also writes the Parquet file of the events. A batch that is
    damaged in landing and never took effect is set aside and listed in the report.

    Raises:
        DamagedBatch: a batch that took effect must be refolded, and is damaged.
        WarehouseError: the new file is wrong, or the published one can't be read; the published
            file is kept.
    """
    began = clock()
    with home.merge_lock() as waited:
        report = _merge(home, refold_from=refold_from, last_day=last_day, with_events=with_events)
    report.waited, report.seconds = waited, clock() - began
    return report


def rebuild(home: Home, *, with_repair: bool = True) -> MergeReport:
    """Rebuild the warehouse from landing alone, without a request.

    Readers see the old file until the end. Batches that are damaged in landing are set aside and
    listed in the report. `with_repair` also rewrites the markers in landing, and stored bodies
    whose content is intact.
    """
    began = monotonic()
    with home.merge_lock() as waited:
        report = _merge(home, is_rebuild=True, with_repair=with_repair)
    report.waited, report.seconds = waited, monotonic() - began
    return report


def _merge(
    home: Home,
    *,
    refold_from: date | None = None,
    last_day: date = date.max,
    with_events: bool = True,
    is_rebuild: bool = False,
    with_repair: bool = False,
) -> MergeReport:
    """Merge under the lock."""
    progress.phase("list batches")
    _remove_unfinished(home)
    connection = home.connect()
    published = _read_before(home, connection, is_rebuild=is_rebuild)
    if with_repair:
        batches = {} if published is None else published.batches
        released = [batch_id for batch_id, batch in batches.items() if batch.released]
        repair_landing(home.landing, released)
        restore_intact_batches(home.landing)
    plan_next = partial(
        plan_merge,
        home,
        published,
        refold_from=refold_from,
        last_day=last_day,
        is_rebuild=is_rebuild,
    )
    plan = plan_next()
    arriving = sum(manifest.bytes for manifest in plan.manifests)
    size = home.warehouse.stat().st_size if home.warehouse.is_file() else 0
    if home.limits.threads is None and max(arriving, size) <= _OF_ONE_THREAD:
        # More threads take no less time, but more memory.
        connection.execute("SET threads = 1")
    report = MergeReport(rebuilt=plan.why_rebuilt, damaged=plan.damaged)
    failed: dict[str, str] = {}
    while plan.is_needed and not report.is_published:
        try:
            connection = _publish_next(home, plan, report, failed, connection)
        except (WarehouseError, duckdb.Error) as error:
            connection = home.connect()
            if _drop_damaged_base(home, plan):
                plan = plan_next()
                report.damaged |= plan.damaged
            elif isinstance(error, BatchFailed):
                # Its earlier deliveries are folded: begin again, without the batch.
                failed[error.batch_id] = error.why
            else:
                raise
    if home.warehouse.exists():
        _keep_checkpoints(home, plan, report.days, is_rebuild=is_rebuild)
        report.bytes = home.warehouse.stat().st_size
        report.partitions = _write_partitions(
            home, with_events=with_events, anew=is_rebuild, connection=connection
        )
        progress.phase("clear markers")
    merged = {*plan.merged, *(outcome.manifest.batch_id for outcome in report.outcomes)}
    for batch_id in merged.intersection(home.landing.marked()):
        home.landing.clear_pending(batch_id)
    progress.phase("pack exports")
    if with_repair or not is_rebuild:
        exports = sorted(each for each in merged if parse_feed(each) == "export")
        new = sum(outcome.manifest.feed == "export" for outcome in report.outcomes)
        home.landing.pack_exports(exports, new)
    return report


def _remove_unfinished(home: Home) -> None:
    remove_next_files(home)
    for own in (home.parquet, home.checkpoints):
        own.remove_unfinished()
    for shared in (Storage(home.root), home.landing.storage):
        shared.remove_unfinished(older_than_s=ABANDONED_S)


def _read_before(
    home: Home, connection: duckdb.DuckDBPyConnection, *, is_rebuild: bool
) -> PublishedFile | None:
    """Return the facts of the published file; a rebuild needs none, so it accepts damage."""
    if is_rebuild and home.warehouse.is_dir():
        shutil.rmtree(home.warehouse)
    if home.warehouse.is_dir():
        raise WarehouseError(
            f"{home.warehouse} is a folder, and must be the published file. Nothing was "
            "published; move it away, or run `almanac rebuild`."
        )
    try:
        return read_published(home.warehouse, connection)
    except duckdb.Error as error:
        if is_rebuild:
            return None
        raise unreadable_file(home.warehouse, error) from error


def _publish_next(
    home: Home,
    plan: MergePlan,
    report: MergeReport,
    failed: dict[str, str],
    connection: duckdb.DuckDBPyConnection,
) -> duckdb.DuckDBPyConnection:
    """Fold the batches of a plan into a copy of its base, check it, and publish it.

    Returns a connection without a file: the given one, if no batch failed.

    Raises:
        BatchFailed: a batch failed after some of its deliveries were folded, or the base is
            damaged.
        WarehouseError, duckdb.Error: the base is damaged, or Almanac has an error.
    """
    began = monotonic()
    with open_next_file(home, plan.base, connection) as file:
        # Updates of the table would have to maintain it.
        file.run("drop_index")
        report.outcomes = _fold_batches(home, plan, file, failed)
        _complete(home, plan, file, monotonic() - began)
        report.refolded = _continue_feed(home, plan, file, report.days)
        report.lost = _find_lost(plan, report.quarantined)
        report.rows = dict(file.connection.execute(ddl.count_rows(TABLES)).fetchall())
        if report.rows["event_versions"] >= _INDEXED:
            file.run("make_index")
        check(file, None if plan.base is None else [each.batch_id for each in plan.manifests])
        progress.phase("publish")
        file.publish()
        report.is_published = True
        progress.phase("keep checkpoints")
    return connection if file.connection is connection else home.connect()


def _drop_damaged_base(home: Home, plan: MergePlan) -> bool:
    """Remove a base that is a damaged checkpoint; return whether it is."""
    if plan.base is None or (why := _find_damage(home, plan.base)) is None:
        return False
    if plan.base == home.warehouse:
        raise unreadable_file(home.warehouse, why)
    checkpoints.drop(home, date.fromisoformat(plan.base.stem), why)
    return True


def _find_damage(home: Home, path: Path) -> str | None:
    with closing(home.connect()) as connection:
        return find_damage(connection, path)


def _write_partitions(
    home: Home,
    *,
    with_events: bool,
    anew: bool,
    connection: duckdb.DuckDBPyConnection | None,
) -> int:
    """Write the partitions. Raises WarehouseError: the published file is damaged."""
    try:
        return write_partitions(home, with_events=with_events, anew=anew, connection=connection)
    except duckdb.Error:
        if why := _find_damage(home, home.warehouse):
            raise unreadable_file(home.warehouse, why) from None
        raise


def _fold_batches(
    home: Home, plan: MergePlan, file: NextFile, failed: dict[str, str]
) -> list[Outcome]:
    """Fold the batches of a plan in order; return their outcomes.

    `failed` has the reasons of batches that can't be folded: they are quarantined unread.

    Raises:
        BatchFailed: a batch failed after some of its deliveries were folded.
        DamagedBatch: a batch that took effect before is damaged.
    """
    fold, outcomes = Fold(file, home.list_separator), dict[str, Outcome]()
    observations = order_observations(plan.manifests)
    days = [observation.day for observation in observations]
    kept = checkpoints.choose_days([*checkpoints.list_days(home), *days])
    for number, observation in enumerate(observations):
        progress.phase("fold batches", number, len(observations))
        batch_id = observation.manifest.batch_id
        if number and days[number - 1] != observation.day and days[number - 1] in kept:
            _show_state(file, plan.first_day)
            file.checkpoint()
            checkpoints.copy_file(home, file.path, days[number - 1])
        try:
            _fold_one(home, plan, fold, file, observation, outcomes, failed)
        except DamagedBatch as error:
            fold = _drop_transaction(home, file)
            plan.set_aside(home, batch_id, error)
        except BatchFailed as failure:
            if batch_id in outcomes or (plan.base and _find_damage(home, plan.base)):
                raise
            failed[batch_id] = failure.why
            fold = _drop_transaction(home, file)
            _fold_one(home, plan, fold, file, observation, outcomes, failed)
    return list(outcomes.values())


def _drop_transaction(home: Home, file: NextFile) -> Fold:
    """Drop the transaction in progress; return the state before it."""
    file.reopen()
    return Fold(file, home.list_separator)


def _fold_one(
    home: Home,
    plan: MergePlan,
    fold: Fold,
    file: NextFile,
    observation: Observation,
    outcomes: dict[str, Outcome],
    failed: dict[str, str],
) -> None:
    """Fold an observation, and write the account of its batch, in one transaction."""
    manifest = observation.manifest
    batch_id = manifest.batch_id
    released, before = batch_id in plan.released, outcomes.get(batch_id)
    if batch_id not in failed:
        read = fold.read(manifest, home.landing)
    with file.transaction():
        if batch_id in failed:
            outcome = Outcome(manifest, released=released).quarantine(failed[batch_id])
        else:
            outcome = fold.fold(observation, read, released=released)
            fold.save()
            if outcome.rejected and before is None:
                file.run("insert_rejects", observed_at=manifest.observed_at)
        if before is not None:
            outcome = before.joined_with(outcome)
            file.run("forget_batch", batch_id=batch_id)
            file.run("forget_record", batch_id=batch_id)
        record = msgspec.json.encode(outcome.record()).decode()
        file.run("insert_record", batch_id=batch_id, released=released, record=record)
        file.run("insert_batch", record=record)
    outcomes[batch_id] = outcome


def _show_state(file: NextFile, first_day: date) -> None:
    """Update the derived tables, and record the identity of the file's state."""
    with file.transaction():
        file.run("note_first_look")
        file.run("forget_days", first_day=first_day)
        columns = ddl.column_list(CHANGES_COLUMNS)
        file.run("note_days", {"columns": columns}, first_day=first_day)
        file.run("forget_publication")
        file.run(
            "note_publication", publication=uuid.uuid4().hex, published_at=utc_now().isoformat()
        )


def _complete(home: Home, plan: MergePlan, file: NextFile, seconds: float) -> None:
    """Complete the tables of a file after all its batches were merged."""
    _show_state(file, plan.first_day)
    with file.transaction():
        find_local_logs(home.state).load(file)
        before = 0.0 if plan.base is None else float(file.read_facts().get(SECONDS_FACT, 0))
        file.note_facts({SECONDS_FACT: f"{before + seconds:.3f}"})


def _continue_feed(
    home: Home, plan: MergePlan, file: NextFile, folded: Iterable[date]
) -> dict[date, tuple[int, int]]:
    """Give each new version its position in the change feed, after the published versions.

    Returns the number of added and of removed versions on days that were merged before. Versions of
    a file with other tables are compared by the columns that both have. If the published file can't
    be compared, no numbers are returned: the next file replaces it and begins a new feed.
    """
    published, rows, feed_id = plan.published, [], uuid.uuid4().hex
    if published is not None and not plan.is_refold:
        feed_id = published.feed_id
    elif published is not None:
        attach_published(file.connection, home.warehouse, "before")
        shared = {name for (name,) in file.rows("list_shared_columns")}
        if not published.has_current_tables:
            shared.discard("unknown_fields")  # It names new columns, too.
        changes, content = (
            ddl.column_list([name for name in names if name in shared])
            for names in (CHANGES_COLUMNS, CONTENT_NAMED)
        )
        days = [day for day in folded if day in published.days]
        values = {"first_day": plan.first_day, "days": days}
        try:
            rows = file.rows("count_differences", {"columns": changes}, **values)
            for name, source in _COMPARED.items():
                parts = {"name": name, "source": source, "content": content}
                file.run("list_versions", parts, first_day=plan.first_day)
            file.run("list_removed_before")
        except duckdb.Error:
            why = _find_damage(home, home.warehouse)
            if why is None and published.has_current_tables:
                raise
            why = why or "another version of Almanac made it"
            _log.warning("The feed of changes begins again after %s: %s", home.warehouse.name, why)
            rows = []
        else:
            feed_id = published.feed_id
            with file.transaction():
                file.run("keep_places")
                file.run("take_places")
                file.run("note_removed")
        file.connection.execute("DETACH before")
    with file.transaction():
        file.run("number_new")
        file.run("take_places")
        file.run("note_feed", feed_id=feed_id)
    return {day: (added, removed) for day, added, removed in rows}


def _find_lost(plan: MergePlan, quarantined: Iterable[Outcome]) -> dict[str, str]:
    """Return the quarantined batches that were merged before, with the reason.

    A batch whose release was taken back is not lost.
    """
    return {
        outcome.manifest.batch_id: outcome.why or ""
        for outcome in quarantined
        if (batch := plan.merged.get(outcome.manifest.batch_id)) is not None
        and batch.status == "merged"
        and (outcome.manifest.batch_id in plan.released or not batch.released)
    }


def _keep_checkpoints(home: Home, plan: MergePlan, folded: list[date], *, is_rebuild: bool) -> None:
    """Make the published file the checkpoint of its last day, and remove old checkpoints.

    Also without a publication: a merge may have been killed after it published.
    """
    before = None if plan.published is None else plan.published.last_key
    last = folded[-1:] or ([] if before is None or is_rebuild else [before[0].date()])
    days = set(checkpoints.list_days(home))
    is_new = not days.issuperset(last)
    for day in last:
        checkpoints.link_published(home, day)
        days.add(day)
    if is_rebuild:
        days &= set(folded)
    checkpoints.keep_only(home, checkpoints.choose_days(days))
    # A day's later merges replace its checkpoint, and leave the one before whole.
    if is_new or plan.is_refold:
        checkpoints.pack_older(home)


def check(file: NextFile, batch_ids: list[str] | None) -> None:
    """Check the counts and the versions of all events, or of events that some batches changed."""
    if wrong := file.rows("check_versions", batches=batch_ids):
        names = ("event_id", "rows", "version", "versions", "first", "last", "current")
        rows = (zip(names, row, strict=True) for row in wrong)
        events = "; ".join(", ".join(f"{name} {value}" for name, value in row) for row in rows)
        raise _disagreement(f"events and their versions disagree: {events}")
    if wrong := file.rows("check_absences"):
        events = ", ".join(str(event_id) for (event_id,) in wrong)
        raise _disagreement(f"the logged absences of {events} do not end with its `missing_since`")
    ((versions, of_days),) = file.rows("check_counts")
    if versions != of_days:
        raise _disagreement(f"there are {versions} versions, expected {of_days}")


def _disagreement(message: str) -> WarehouseError:
    return WarehouseError(
        f"{message}. Nothing was published; the old warehouse is kept. Run `almanac rebuild`; if "
        "it recurs, it is a bug in Almanac."
    )
