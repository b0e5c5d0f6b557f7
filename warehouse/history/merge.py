"""Merge: every landed batch takes effect in the warehouse exactly once.

    lock → list the unmerged batches, choose the base → copy, fold → check → publish
    → write the partitions

One process merges at a time, under the home's lock. New batches are folded into a copy of the
published file. If one sorts before the last one folded, all later batches are refolded from the
newest checkpoint before it, or from an empty file. A rebuild is the same merge from an empty file.
"""

import shutil
import uuid
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import date
from functools import partial
from itertools import chain
from time import monotonic
from typing import Final

import duckdb
import msgspec

from almanac.core import progress
from almanac.core.errors import WarehouseError
from almanac.core.timestamps import utc_now
from warehouse.batch_problems import BatchProblem, list_damaged_problems, list_record_problems
from warehouse.errors import BatchFailed, DamagedBatch
from warehouse.files.storage import Storage
from warehouse.history import checkpoints
from warehouse.history.change_feed import continue_feed
from warehouse.history.fold import Fold
from warehouse.history.merge_plan import MergePlan, find_local_logs, plan_merge
from warehouse.history.observations import Observation, Outcome, order_observations
from warehouse.history.partitions import CHANGES_COLUMNS, write_partitions
from warehouse.history.warehouse_file import (
    SECONDS_FACT,
    NextFile,
    PublishedFile,
    find_file_damage,
    open_next_file,
    read_published,
    remove_next_files,
    unreadable_file,
)
from warehouse.home import Home
from warehouse.landing.batches import parse_feed
from warehouse.landing.landing import restore_intact_batches
from warehouse.schema import ddl
from warehouse.schema.tables import BATCHES

_OF_ONE_THREAD: Final = 64 << 20
"""Bytes of the batches, and of the file, up to which a merge uses one thread."""
_INDEXED: Final = 500_000
"""From so many versions on, an index finds the versions of an event; few are read as quickly."""
ABANDONED_S = 3600.0
"""Unfinished files in landing or state, where other processes write too, are removed after this."""


@dataclass(slots=True)
class MergeReport:
    """The result of a merge."""

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
    began = monotonic()
    with home.merge_lock() as waited:
        run = MergeRun(home, refold_from=refold_from, last_day=last_day)
        report = run.run(with_events=with_events)
    report.waited, report.seconds = waited, monotonic() - began
    return report


def rebuild(home: Home, *, with_repair: bool = True) -> MergeReport:
    """Rebuild the warehouse from landing alone, without a request.

    Readers see the old file until the end. Batches that are damaged in landing are set aside and
    listed in the report. `with_repair` uses batches again that were set aside and are intact now,
    and packs older exports.
    """
    began = monotonic()
    with home.merge_lock() as waited:
        report = MergeRun(home, is_rebuild=True, with_repair=with_repair).run()
    report.waited, report.seconds = waited, monotonic() - began
    return report


class MergeRun:
    """One merge, whose lock is held: its plan, the file that it makes, and the outcomes so far."""

    def __init__(
        self,
        home: Home,
        *,
        is_rebuild: bool = False,
        with_repair: bool = False,
        refold_from: date | None = None,
        last_day: date = date.max,
    ) -> None:
        progress.phase("list batches")
        _remove_unfinished(home)
        self._home, self._is_rebuild = home, is_rebuild
        self._connection = home.connect()
        published = _read_before(home, self._connection, is_rebuild=is_rebuild)
        self._packs = with_repair or not is_rebuild
        if with_repair:
            restore_intact_batches(home.landing)
        self._plan_next = partial(
            plan_merge,
            home,
            published,
            is_rebuild=is_rebuild,
            refold_from=refold_from,
            last_day=last_day,
        )
        self._plan = self._plan_next()
        self._report = MergeReport(rebuilt=self._plan.why_rebuilt, damaged=self._plan.damaged)
        self._outcomes: dict[str, Outcome] = {}
        self._failed: dict[str, str] = {}
        """The reasons of batches that can't be folded: they are quarantined unread."""

    def run(self, *, with_events: bool = True) -> MergeReport:
        """Publish what is new, then keep checkpoints, partitions and landing in step with it."""
        home, report = self._home, self._report
        self._choose_threads()
        while self._plan.is_needed and not report.is_published:
            try:
                self._publish_next()
            except (WarehouseError, duckdb.Error) as error:
                self._connection = home.connect()
                if self._drop_damaged_base():
                    self._plan = self._plan_next()
                    report.damaged |= self._plan.damaged
                elif isinstance(error, BatchFailed):
                    # Its earlier deliveries are folded: begin again, without the batch.
                    self._failed[error.batch_id] = error.why
                else:
                    raise
        if home.warehouse.exists():
            self._keep_checkpoints()
            report.partitions = self._write_partitions(with_events)
            progress.phase("clear markers")
        merged = {*self._plan.merged, *self._outcomes}
        for batch_id in merged.intersection(home.landing.marked()):
            home.landing.clear_pending(batch_id)
        progress.phase("pack exports")
        if self._packs:
            exports = sorted(each for each in merged if parse_feed(each) == "export")
            new = sum(outcome.manifest.feed == "export" for outcome in report.outcomes)
            home.landing.pack_exports(exports, new)
        return report

    def _choose_threads(self) -> None:
        arriving = sum(manifest.bytes for manifest in self._plan.manifests)
        file = self._home.warehouse
        size = file.stat().st_size if file.is_file() else 0
        if self._home.limits.threads is None and max(arriving, size) <= _OF_ONE_THREAD:
            # More threads take no less time, but more memory.
            self._connection.execute("SET threads = 1")

    def _publish_next(self) -> None:
        """Fold the batches of the plan into a copy of its base, check it, and publish it.

        Raises:
            BatchFailed: a batch failed after some of its deliveries were folded, or the base is
                damaged.
            WarehouseError, duckdb.Error: the base is damaged, or Almanac has an error.
        """
        began, plan, report = monotonic(), self._plan, self._report
        with open_next_file(self._home, plan.base, self._connection) as file:
            # Updates of the table would have to maintain it.
            file.run("drop_index")
            self._fold_batches(file)
            report.outcomes = list(self._outcomes.values())
            _complete(self._home, plan, file, monotonic() - began)
            report.refolded = continue_feed(self._home, plan, file, report.days)
            report.lost = _find_lost(plan, report.quarantined)
            batch_ids = None if plan.base is None else [each.batch_id for each in plan.manifests]
            if check(file, batch_ids) >= _INDEXED:
                file.run("make_index")
            progress.phase("publish")
            file.publish()
            report.is_published = True
            progress.phase("keep checkpoints")
        if file.connection is not self._connection:
            self._connection = self._home.connect()

    def _fold_batches(self, file: NextFile) -> None:
        """Fold the batches of the plan in order.

        Raises:
            BatchFailed: a batch failed after some of its deliveries were folded.
            DamagedBatch: a batch that took effect before is damaged.
        """
        home, plan = self._home, self._plan
        self._outcomes = {}
        fold = Fold(file, home.list_separator)
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
                self._fold_one(fold, observation)
            except DamagedBatch as error:
                fold = self._drop_transaction(file)
                plan.set_aside(home, batch_id, error)
            except BatchFailed as failure:
                if batch_id in self._outcomes or (plan.base and find_file_damage(home, plan.base)):
                    raise
                self._failed[batch_id] = failure.why
                fold = self._drop_transaction(file)
                self._fold_one(fold, observation)

    def _drop_transaction(self, file: NextFile) -> Fold:
        """Drop the transaction in progress; return the state before it."""
        file.reopen()
        return Fold(file, self._home.list_separator)

    def _fold_one(self, fold: Fold, observation: Observation) -> None:
        """Fold an observation, and write the account of its batch, in one transaction."""
        manifest, file = observation.manifest, fold.file
        batch_id = manifest.batch_id
        released, before = batch_id in self._plan.released, self._outcomes.get(batch_id)
        if batch_id not in self._failed:
            read = fold.read(manifest, self._home.landing)
        with file.transaction():
            if batch_id in self._failed:
                outcome = Outcome(manifest, released=released).quarantine(self._failed[batch_id])
            else:
                outcome = fold.fold(observation, read, released=released)
                fold.save()
                if outcome.rejected and before is None:
                    file.run("insert_rejects", observed_at=manifest.observed_at)
            if before is not None:
                outcome = before.joined_with(outcome)
                file.run("forget_batch", batch_id=batch_id)
                file.run("forget_record", batch_id=batch_id)
            record = outcome.record()
            text = msgspec.json.encode(record).decode()
            file.run("insert_record", batch_id=batch_id, released=released, record=text)
            row = record | record["scope"]
            file.run("insert_batch", row={name: row[name] for name in BATCHES.names[1:]})
        self._outcomes[batch_id] = outcome

    def _drop_damaged_base(self) -> bool:
        """Remove a base that is a damaged checkpoint; return whether it is."""
        base = self._plan.base
        if base is None or (why := find_file_damage(self._home, base)) is None:
            return False
        if base == self._home.warehouse:
            raise unreadable_file(base, why)
        checkpoints.drop(self._home, date.fromisoformat(base.stem), why)
        return True

    def _keep_checkpoints(self) -> None:
        """Make the published file the checkpoint of its last day, and remove old checkpoints.

        Also without a publication: a merge may have been killed after it published.
        """
        home, published, folded = self._home, self._plan.published, self._report.days
        before = None if published is None else published.last_key
        last = folded[-1:] or ([] if before is None or self._is_rebuild else [before[0].date()])
        days = set(checkpoints.list_days(home))
        is_new = not days.issuperset(last)
        for day in last:
            checkpoints.link_published(home, day)
            days.add(day)
        if self._is_rebuild:
            days &= set(folded)
        checkpoints.keep_only(home, checkpoints.choose_days(days))
        # A day's later merges replace its checkpoint, and leave the one before whole.
        if is_new or self._plan.is_refold:
            checkpoints.pack_older(home)

    def _write_partitions(self, with_events: bool) -> int:
        """Write the partitions. Raises WarehouseError: the published file is damaged."""
        try:
            return write_partitions(
                self._home,
                with_events=with_events,
                anew=self._is_rebuild,
                connection=self._connection,
            )
        except duckdb.Error:
            if why := find_file_damage(self._home, self._home.warehouse):
                raise unreadable_file(self._home.warehouse, why) from None
            raise


def _remove_unfinished(home: Home) -> None:
    remove_next_files(home)
    for own in (home.parquet, home.checkpoints):
        own.remove_unfinished()
    for shared in (Storage(home.root), Storage(home.state), home.landing.storage):
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


def _show_state(file: NextFile, first_day: date) -> None:
    """Update the derived tables, and record the identity of the file's state."""
    with file.transaction():
        file.run("note_first_look")
        file.run("forget_days", first_day=first_day)
        columns = ddl.column_list(CHANGES_COLUMNS)
        file.run("note_days", {"columns": columns}, first_day=first_day)
        file.run(
            "note_publication", publication=uuid.uuid4().hex, published_at=utc_now().isoformat()
        )


def _complete(home: Home, plan: MergePlan, file: NextFile, seconds: float) -> None:
    """Complete the tables of a file after all its batches were merged."""
    _show_state(file, plan.first_day)
    with file.transaction():
        find_local_logs(home.state).load(file)
        before = 0.0 if plan.base is None else float(file.facts.get(SECONDS_FACT, 0))
        file.note_fact(SECONDS_FACT, f"{before + seconds:.3f}")


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


def check(file: NextFile, batch_ids: list[str] | None) -> int:
    """Check the versions of all events, or of events that some batches changed; return how many
    versions there are."""
    if wrong := file.rows("check_versions", batches=batch_ids):
        names = ("event_id", "versions", "first", "last", "current")
        rows = (zip(names, row, strict=True) for row in wrong)
        events = "; ".join(", ".join(f"{name} {value}" for name, value in row) for row in rows)
        raise _disagreement(f"the versions of events disagree: {events}")
    if wrong := file.rows("check_absences"):
        events = ", ".join(str(event_id) for (event_id,) in wrong)
        raise _disagreement(f"the logged absences of {events} do not end with its `missing_since`")
    ((versions, of_days),) = file.rows("check_counts")
    if versions != of_days:
        raise _disagreement(f"there are {versions} versions, expected {of_days}")
    return int(versions)


def _disagreement(message: str) -> WarehouseError:
    return WarehouseError(
        f"{message}. Nothing was published; the old warehouse is kept. Run `almanac rebuild`; if "
        "it recurs, it is a bug in Almanac."
    )
