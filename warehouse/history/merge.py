"""Merge: every landed batch takes effect in the lake exactly once, then the warehouse follows.

One process merges at a time, under the home's lock; it lists the unmerged batches under the lock.
If a batch sorts before the last one folded, its day and all later days are refolded from the
checkpoint before. This module chooses the days and the checkpoint, and reports the result; day.py
folds a day.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date
from functools import cached_property
from itertools import chain
from time import monotonic
from typing import Any

import duckdb

from almanac.reading.attached_file import attach_published
from warehouse.batch_problems import BatchProblem, list_damaged_problems, list_record_problems
from warehouse.errors import BatchFailed, DamagedBatch, LakeDamaged, UnknownBatch
from warehouse.files.storage import Storage
from warehouse.history.change_log import (
    ChangeLog,
    DayFile,
    choose_checkpoints,
    day_before,
    find_break,
    find_doubtful_day,
    find_older_days,
    is_whole,
    read_records,
    read_released,
    remove_obstacles,
    remove_surplus,
    write_head,
)
from warehouse.history.day import Checkpoints, DayReport, DayWriter, follow
from warehouse.history.fold import Fold
from warehouse.history.observations import Outcome
from warehouse.home import Home
from warehouse.iceberg.publication_commit import IcebergReport, commit_publication
from warehouse.landing.batches import Manifest
from warehouse.landing.landing import lost_batch, repair_landing, restore_whole
from warehouse.phases import Step
from warehouse.publish.publish import PublishReport, publish
from warehouse.schema.columns import GROUPS
from warehouse.sql import Statements, literal

_SQL = Statements(__package__, GROUPS)
ABANDONED_S = 3600.0
"""Unfinished files in landing or state, where other processes write too, are removed after this."""


@dataclass(frozen=True, slots=True)
class VersionCounts:
    """How many observed versions a history has, in all and by kind of change."""

    versions: int
    kinds: Counter[str]


@dataclass(frozen=True, slots=True)
class Upgrade:
    """How history differs after days that an Almanac with other rules folded were refolded.

    Days that also got new batches are not compared, since their differences may come from those.
    `added` counts versions that are new or changed, `removed` those that no longer exist. The
    counts are None if the files could not be read.
    """

    days: int
    uncompared: int
    added: int
    removed: int
    before: VersionCounts | None
    after: VersionCounts | None

    def __str__(self) -> str:
        """Return one line."""
        days = "1 day" if self.days == 1 else f"{self.days:,} days"
        were = "was" if self.days == 1 else "were"
        left_out = f" ({self.uncompared:,} with new batches left out)" if self.uncompared else ""
        return (
            f"{days} folded by another version of Almanac {were} refolded: "
            f"{self._difference}{left_out}."
        )

    @property
    def _difference(self) -> str:
        before, after = self.before, self.after
        if self.days == self.uncompared:
            return "nothing to compare"
        if not self.added and not self.removed:
            return "nothing changed"
        differing = f"{self.added:,} new or changed, {self.removed:,} removed"
        if before is None or after is None:
            return f"versions: {differing}"
        versions = "1 version" if before.versions == 1 else f"{before.versions:,} versions"
        changed = (
            f"{kind} {before.kinds[kind]:,} before, {after.kinds[kind]:,} now"
            for kind in sorted(before.kinds | after.kinds)
            if before.kinds[kind] != after.kinds[kind]
        )
        return "; ".join((f"{versions} before, {after.versions:,} now", differing, *changed))


class Comparison:
    """Compares the history before a merge with the history after it."""

    def __init__(self, home: Home, released: frozenset[str]) -> None:
        """`released` are the batches that a person trusts now."""
        self._home = home
        self._released = released
        self._taken_back: set[str] = set()
        self._merged: set[str] = set()
        self._older: set[date] = set()
        self._with_fresh: set[date] = set()
        self._before: VersionCounts | None = None

    def begin(self, days: Sequence[DayFile], fresh: Iterable[Manifest]) -> None:
        """Record the existing days before any is refolded, and the new batches."""
        self._older = set(find_older_days(days))
        self._with_fresh = {manifest.observed_at.date() for manifest in fresh}
        self._before = self._count(days) if self._older else None

    def note(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Record the earlier outcomes of batches that may be refolded."""
        for record in records:
            batch_id = str(record["batch_id"])
            if record["status"] == "merged":
                self._merged.add(batch_id)
            if record["released"] and batch_id not in self._released:
                self._taken_back.add(batch_id)

    def lost(self, quarantined: Iterable[Outcome]) -> dict[str, str]:
        """Return the quarantined batches that were merged before, with the reason.

        They were merged before according to the lake or the published file, since a killed replay
        may have left an incomplete lake. A batch whose release was taken back is not lost.
        """
        why = {outcome.manifest.batch_id: outcome.why or "" for outcome in quarantined}
        if not why:
            return {}
        before = (self._merged | self._read_published()) - self._taken_back
        return {batch_id: reason for batch_id, reason in why.items() if batch_id in before}

    def upgrade(
        self, read_days: Callable[[], list[DayFile]], refolded: Mapping[date, tuple[int, int]]
    ) -> Upgrade | None:
        """Return how history differs, None if no day with other rules was refolded.

        `refolded` has for each day the number of new or changed versions, and of removed ones.
        """
        refolded_days = self._older & refolded.keys()
        if not refolded_days:
            return None
        compared = refolded_days - self._with_fresh
        return Upgrade(
            days=len(refolded_days),
            uncompared=len(refolded_days) - len(compared),
            added=sum(refolded[day][0] for day in compared),
            removed=sum(refolded[day][1] for day in compared),
            before=self._before,
            after=self._count(read_days()),
        )

    def _count(self, days: Iterable[DayFile]) -> VersionCounts | None:
        """Return the counts of the compared files; None if one can't be read."""
        compared = self._older - self._with_fresh
        files = [literal(day_file.path) for day_file in days if day_file.day in compared]
        if not files:
            return VersionCounts(0, Counter())
        with suppress(duckdb.Error), self._home.connect() as connection:
            rows = connection.execute(_SQL["count_history"], {"files": files}).fetchall()
            counted = dict(rows)
            return VersionCounts(counted.pop(None), Counter(counted))
        return None

    def _read_published(self) -> set[str]:
        """Return the ids of the batches in the published file; none if it can't be read."""
        if self._home.warehouse.is_file():
            with suppress(duckdb.Error), self._home.connect() as connection:
                attach_published(connection, self._home.warehouse, "published")
                rows = connection.execute(_SQL["list_merged_batches"]).fetchall()
                return {str(batch_id) for (batch_id,) in rows}
        return set()


@dataclass(slots=True)
class MergeReport:
    """The result of a merge."""

    outcomes: list[Outcome] = field(default_factory=list)
    days: list[date] = field(default_factory=list)
    refolded: dict[date, tuple[int, int]] = field(default_factory=dict)
    """The days that were folded before, with the numbers of added and of removed versions."""
    rebuilt: list[str] = field(default_factory=list)
    """Checkpoints that could not be used, so that more days were refolded."""
    damaged: dict[str, str] = field(default_factory=dict)
    """Batches that were set aside because their files in landing are damaged, with the reason."""
    lost: dict[str, str] = field(default_factory=dict)
    """Batches that were merged before and are quarantined now, with the reason."""
    upgrade: Upgrade | None = None
    waited: bool = False
    seconds: float = 0.0
    published: PublishReport | None = None
    iceberg: IcebergReport | None = None
    """The commit of the publication to the Iceberg tables; None if they are off."""

    def note(self, merged: DayReport, *, refolded: bool) -> None:
        """Add the outcome of a day; a day that is folded twice after a failed batch counts once."""
        if merged.day in self.days:
            self.outcomes = [outcome for outcome in self.outcomes if outcome.day != merged.day]
        else:
            self.days.append(merged.day)
        self.outcomes.extend(merged.outcomes)
        if refolded:
            self.refolded.setdefault(merged.day, (merged.added, merged.removed))

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
        return [*([] if self.upgrade is None else [str(self.upgrade)]), *lost]

    @property
    def quarantined(self) -> list[Outcome]:
        return [outcome for outcome in self.outcomes if outcome.status == "quarantined"]


def merge(
    home: Home,
    *,
    step: Step = lambda _: None,
    clock: Callable[[], float] = monotonic,
    publishing: bool = True,
    refold_from: date | None = None,
) -> MergeReport:
    """Fold the landed batches that are not merged into the lake, and publish. Waits for the lock.

    `refold_from` refolds that day and all later days, from the checkpoint before. A batch that is
    damaged in landing and never took effect is set aside and listed in the report.

    Raises:
        DamagedBatch: a batch that took effect must be refolded, and is damaged.
        LakeDamaged: a file of the lake can't be read; nothing was changed.
        WarehouseError: the new publication is wrong; the old warehouse is kept.
    """
    return _run(home, step, clock, publishing, refold_from)


def replay(
    home: Home,
    *,
    step: Step = lambda _: None,
    clock: Callable[[], float] = monotonic,
    with_repair: bool = True,
) -> MergeReport:
    """Rebuild lake and warehouse from landing alone, without a request.

    Each day is replaced when it is finished, and readers see the old warehouse until the end. Lake
    and state are rebuilt whatever they contain; batches that are damaged in landing are set aside
    and listed in the report. `with_repair` also rewrites the markers and intact bodies of landing.
    """
    return _run(home, step, clock, True, date.min, with_repair)


def _run(
    home: Home,
    step: Step,
    clock: Callable[[], float],
    publishing: bool,
    refold_from: date | None,
    with_repair: bool = False,
) -> MergeReport:
    began, is_replay = clock(), refold_from == date.min
    step = home.guard(step)
    with home.merge_lock() as waited:
        step("merge:locked")
        home.lake.remove_unfinished()
        for shared in (Storage(home.root), home.landing.storage):
            shared.remove_unfinished(older_than_s=ABANDONED_S)
        if is_replay:
            remove_obstacles(home)
        if with_repair:
            if home.copy is not None:
                home.copy.catch_up(repairing=True)
            repair_landing(home.landing, read_released(home))
            restore_whole(home.landing)
        merging = _Merge(home, step, refold_from)
        report = merging.run()
        if publishing:
            report.published = publish(
                home.lake,
                home.warehouse,
                chain=merging.days_after,
                state_folder=home.state,
                full=is_replay,
                step=step,
                limits=home.limits,
            )
            if home.iceberg is not None:
                report.iceberg = commit_publication(
                    home, home.iceberg, rebuild=is_replay, step=step
                )
        if is_replay:
            remove_surplus(home)
        report.waited = waited
    report.seconds = clock() - began
    return report


class _Merge:
    """One merge, under the lock."""

    def __init__(self, home: Home, step: Step, refold_from: date | None) -> None:
        self._home = home
        self._step = step
        self._refold_from = refold_from
        self._is_replay = refold_from == date.min
        self._landing = home.landing
        self._log = ChangeLog.of(home)
        self._checkpoints = Checkpoints(home.lake)
        self._released = frozenset(self._landing.released())
        self._failed: dict[str, str] = {}
        self._report = MergeReport()
        self._days: list[DayFile] = []
        """The days before this merge."""
        self._fresh: list[Manifest] = []
        self._start = date.max
        """The first day to be folded."""
        self._written: dict[date, DayFile] = {}
        """The days that this merge has written, oldest first; after a failed batch it continues
        from one of them."""
        self._removes_after = date.max
        """Later days that no longer have a batch are removed."""
        self._is_doubtful = False
        """Whether the newest day can't be continued from."""
        self.days_after: list[DayFile] = []
        """The days of the lake, once this merge has written its last."""
        self._compared = Comparison(home, self._released)

    def run(self) -> MergeReport:
        """Merge; if a batch fails, continue without it from the last intact state."""
        self._days, report = self._read_days(), self._report
        self.days_after = self._days
        if self._is_replay:
            self._set_aside_lost()
        pending = self._landing.pending()
        self._fresh = self._find_fresh(pending)
        start = self._find_start()
        if start is not None:
            self._start = start
            self._compared.begin(self._days, self._fresh)
            newest = self._days[-1] if self._days else None
            write_head(self._home.lake, newest, unfinished_from=start)
            while not self._fold_all():
                pass
            report.lost = self._compared.lost(report.quarantined)
            report.upgrade = self._compared.upgrade(self._read_days, report.refolded)
        self._clear(pending)
        return report

    def _fold_all(self) -> bool:
        """Fold; return False if a batch failed, which the next try quarantines."""
        connection = self._home.connect()
        try:
            fold = Fold(connection, self._home.list_separator)
            fold.failed = self._failed
            base, appending = self._load_base(fold)
            self._step("merge:loaded")
            self._fold_days(fold, base, appending=appending)
        except BatchFailed as failure:
            if failure.batch_id in self._failed:
                raise
            self._failed[failure.batch_id] = failure.why
            return False
        finally:
            connection.close()
        return True

    def _read_days(self) -> list[DayFile]:
        """Return the existing days; a replay needs none, so it accepts unreadable ones."""
        return self._log.readable()[0] if self._is_replay else self._log.days()

    @cached_property
    def _folded(self) -> set[str]:
        """The ids of all batches that took effect before this merge."""
        return {str(record["batch_id"]) for record in read_records(self._days)}

    def _set_aside_lost(self) -> None:
        """Set aside batches that took effect and are missing from landing."""
        there = {*self._landing.batch_ids(), *self._landing.damaged()}
        for batch_id in sorted(self._folded - there):
            self._landing.set_aside(batch_id, str(lost_batch(batch_id)))
        self._compared.note(read_records(self._days))
        self._report.damaged.update(self._landing.damaged())

    def _set_aside(self, batch_id: str, error: DamagedBatch) -> None:
        """Set a batch aside; only a replay does so with a batch that took effect."""
        if batch_id in self._folded and not self._is_replay:
            raise error
        self._landing.set_aside(batch_id, str(error))
        self._report.damaged[batch_id] = str(error)

    def _read_manifests(self, batch_ids: Iterable[str]) -> list[Manifest]:
        """Return manifests; those that are missing or can't be read are left out."""
        found: list[Manifest] = []
        for batch_id in batch_ids:
            try:
                found.append(self._landing.manifest(batch_id))
            except UnknownBatch:
                continue  # A marker without a manifest: its batch is still being landed.
            except DamagedBatch as error:
                self._set_aside(batch_id, error)
        return found

    def _find_fresh(self, pending: list[str]) -> list[Manifest]:
        """Return the pending batches that are not merged yet, or were released since."""
        by_day = {day_file.day: day_file for day_file in self._days}
        found: list[Manifest] = []
        for manifest in self._read_manifests(pending):
            day, batch_id = by_day.get(manifest.observed_at.date()), manifest.batch_id
            record = None if day is None else day.batches().get(batch_id)
            if record is None or (batch_id in self._released) != record["released"]:
                found.append(manifest)
        return found

    def _find_start(self) -> date | None:
        """Return the first day to be folded, None if there is nothing to do."""
        days, starts = self._days, {manifest.observed_at.date() for manifest in self._fresh}
        if self._refold_from is not None:
            starts.update(self._landing.days(since=self._refold_from)[:1])
        if self._is_replay:
            starts.update(day_file.day for day_file in days[:1])
        if (broken := find_break(days)) is not None:
            starts.add(broken)
        if self._refold_from is None:
            doubtful = find_doubtful_day(self._home.lake, days)
            self._is_doubtful = doubtful is not None
            starts |= {doubtful} if doubtful else set()
        if days and not self._checkpoints.has(days[-1].head.checkpoint or "-"):
            # A replay was killed while it replaced the checkpoint, which publishing needs.
            starts.add(days[-1].day)
        return min(starts, default=None)

    def _load_base(self, fold: Fold) -> tuple[DayFile | None, bool]:
        """Load the state to continue from; return its day, and whether `_start` is appended to."""
        for day_file in reversed(self._written.values()):
            if self._load(fold, day_file):
                return day_file, False
        last = self._days[-1] if self._days else None
        if (
            last is not None
            and self._refold_from is None
            and find_break(self._days) is None
            and self._start >= last.day
            and not self._is_doubtful
            and follow(last, self._fresh)
            and (self._start > last.day or is_whole(self._home.lake, last))
            and self._load(fold, last)
        ):
            return last, self._start == last.day
        for day_file in reversed(self._days):
            if day_file.day < self._start and self._load(fold, day_file):
                return day_file, False
        return None, False

    def _load(self, fold: Fold, day_file: DayFile) -> bool:
        """Load a day's checkpoint; a missing or different checkpoint is rebuilt later."""
        name = day_file.head.checkpoint
        if name is None or not self._checkpoints.has(name):
            return False
        try:
            self._checkpoints.load(name, fold, day_file.head.fold_id, day_file.head.files)
        except LakeDamaged as error:
            self._report.rebuilt.append(str(error))
            fold.reset()
            return False
        return True

    def _fold_days(self, fold: Fold, base: DayFile | None, *, appending: bool) -> None:
        start, old = self._start, {day_file.day: day_file for day_file in self._days}
        first = start if appending else (base.day if base else date.min)
        # A written day stays a day, even if its batches were set aside since.
        found = sorted({*self._landing.days(since=first), *self._written})
        landed = [day for day in found if day > first or (appending and day == first)]
        self._written = {day: day_file for day, day_file in self._written.items() if day <= first}
        self._removes_after = min(first, self._removes_after)
        existing = {*self._written, *(() if self._is_replay else old)}
        kept = {day for day in existing if day < first or (base and day == base.day)}
        keep = choose_checkpoints(sorted({*kept, *landed}))
        before = day_before(self._days, start) if appending else base
        batch_ids = {day: self._landing.batch_ids(day=day) for day in landed}
        if appending:
            batch_ids[start] = [
                batch.batch_id for batch in self._fresh if batch.observed_at.date() == start
            ]
        total = sum(map(len, batch_ids.values()))
        writer = DayWriter(
            self._home.lake, self._log, self._landing, fold, self._step, self._set_aside, total
        )
        for day in landed:
            so_far = old.get(day) if appending and day == start else None
            if not self._is_replay and so_far is None and day in old:
                self._refuse_lost(old[day])
            before, merged = writer.merge(
                day,
                self._read_manifests(batch_ids[day]),
                before=before,
                so_far=so_far,
                released=self._released,
                keep_checkpoint=day in keep,
            )
            self._written[day] = before
            self._report.note(merged, refolded=day in old and so_far is None)
        after = self._written if self._is_replay else {**old, **self._written}
        for day in after.keys() - self._written.keys():
            if day > self._removes_after:
                self._log.remove(day)
                del after[day]
        if self._is_replay:
            self._log.keep(set(after))
        self.days_after = [after[day] for day in sorted(after)]
        self._log.write_index(self.days_after)
        write_head(self._home.lake, before, unfinished_from=None)
        named = {day_file.head.checkpoint for day_file in self.days_after if day_file.day in keep}
        self._checkpoints.prune({name for name in named if name is not None})

    def _refuse_lost(self, day: DayFile) -> None:
        """Stop if a day would be refolded without a batch that was folded into it."""
        self._compared.note(day.batches().values())
        there = {*self._landing.batch_ids(day=day.day), *self._landing.damaged()}
        for batch_id in sorted(day.batches().keys() - there):
            raise lost_batch(batch_id)

    def _clear(self, pending: Iterable[str]) -> None:
        """Remove the markers of batches that took effect."""
        folded = {day_file.day: day_file for day_file in self.days_after}
        for manifest in self._read_manifests(pending):
            day = folded.get(manifest.observed_at.date())
            if day is not None and manifest.batch_id in day.batches():
                self._landing.clear_pending(manifest.batch_id)
        self._step("merge:cleared")
