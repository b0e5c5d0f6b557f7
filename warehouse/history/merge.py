"""Merge: every landed batch takes effect in the warehouse exactly once.

    lock → find the unmerged batches → choose the base → copy and fold → check → publish
    → keep a checkpoint → write the partitions

One process merges at a time, under the home's lock. New batches are folded into a copy of the
published file. If one sorts before the last one folded, all later batches are refolded from the
newest checkpoint before it, or from an empty file. A replay is the same merge from an empty file.
"""

import logging
import shutil
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import date
from itertools import chain
from pathlib import Path
from time import monotonic
from typing import Final

import duckdb
import msgspec

from almanac.reading.attached_file import attach_published
from warehouse.batch_problems import BatchProblem, list_damaged_problems, list_record_problems
from warehouse.clock import utc_now
from warehouse.errors import BatchFailed, DamagedBatch, UnknownBatch, WarehouseError
from warehouse.files.storage import Storage
from warehouse.history import checkpoints
from warehouse.history.fold import Fold
from warehouse.history.observations import (
    Observation,
    Outcome,
    first_key,
    order_observations,
)
from warehouse.history.partitions import CHANGES_COLUMNS, write_partitions
from warehouse.history.warehouse_file import (
    NextFile,
    PublishedFile,
    next_file,
    read_published,
    remove_next_files,
    unreadable_file,
)
from warehouse.home import Home
from warehouse.landing.batches import Manifest
from warehouse.landing.landing import Landing, lost_batch, repair_landing, restore_whole
from warehouse.phases import Step, report_phase
from warehouse.schema import ddl
from warehouse.schema.tables import TABLES
from warehouse.sql import literal

_log = logging.getLogger(__name__)
ABANDONED_S = 3600.0
"""Unfinished files in landing or state, where other processes write too, are removed after this."""
_LOGS_FACT: Final = "local_logs"
_SECONDS_FACT: Final = "fold_seconds"
_BATCH_S: Final = 0.1
"""About the time of a batch, where a file does not record how long its batches took."""
_BEFORE_CHECKPOINTS: Final = ("lake", ".spare-warehouse.duckdb")
"""What a home of an earlier format has, which a rebuilt one does not need."""


@dataclass(slots=True)
class MergeReport:
    """The result of a merge. `rows` has the number of rows of each table; sizes are in bytes."""

    outcomes: list[Outcome] = field(default_factory=list)
    refolded: dict[date, tuple[int, int]] = field(default_factory=dict)
    """The days that were folded before, with the numbers of added and of removed versions."""
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
    step: Step = lambda _: None,
    clock: Callable[[], float] = monotonic,
    with_months: bool = True,
    refold_from: date | None = None,
) -> MergeReport:
    """Fold the landed batches that are not merged, and publish. Waits for the lock.

    `refold_from` refolds that day and all later days. `with_months` also writes the Parquet files
    of the event months that changed. A batch that is damaged in landing and never took effect is
    set aside and listed in the report.

    Raises:
        DamagedBatch: a batch that took effect must be refolded, and is damaged.
        WarehouseError: the new file is wrong, or the published one can't be read; the published
            file is kept.
    """
    began = clock()
    with home.merge_lock() as waited:
        report = _merge(home, step, refold_from=refold_from, with_months=with_months)
    report.waited, report.seconds = waited, clock() - began
    return report


def replay(
    home: Home,
    *,
    step: Step = lambda _: None,
    clock: Callable[[], float] = monotonic,
    with_repair: bool = True,
) -> MergeReport:
    """Rebuild the warehouse from landing alone, without a request.

    Readers see the old file until the end. Batches that are damaged in landing are set aside and
    listed in the report. `with_repair` also rewrites the markers and intact bodies of landing.
    """
    began = clock()
    with home.merge_lock() as waited:
        report = _merge(home, step, is_replay=True, with_repair=with_repair)
    report.waited, report.seconds = waited, clock() - began
    return report


def _merge(
    home: Home,
    step: Step,
    *,
    refold_from: date | None = None,
    with_months: bool = True,
    is_replay: bool = False,
    with_repair: bool = False,
) -> MergeReport:
    """Merge under the lock."""
    step("merge:locked")
    _remove_unfinished(home)
    published = _read_before(home, is_replay=is_replay)
    if with_repair:
        repair_landing(home.landing, _list_released(published))
        restore_whole(home.landing)
    plan = _plan_merge(home, published, refold_from, is_replay=is_replay)
    report = plan.report
    if plan.is_needed:
        failed: dict[str, str] = {}
        while not _fold_and_publish(home, plan, failed, step):
            pass
    if home.warehouse.exists():
        report.bytes = home.warehouse.stat().st_size
        report.partitions = write_partitions(home, with_months=with_months)
        step("merge:partitions_written")
    for outcome in report.outcomes:
        home.landing.clear_pending(outcome.manifest.batch_id)
    step("merge:cleared")
    return report


def _remove_unfinished(home: Home) -> None:
    remove_next_files(home)
    home.parquet.remove_unfinished()
    for shared in (Storage(home.root), home.landing.storage):
        shared.remove_unfinished(older_than_s=ABANDONED_S)


def _read_before(home: Home, *, is_replay: bool) -> PublishedFile | None:
    """Return the facts of the published file; a replay needs none, so it accepts damage.

    Raises:
        WarehouseError: it can't be read.
    """
    if is_replay and home.warehouse.is_dir():
        shutil.rmtree(home.warehouse)
    if home.warehouse.is_dir():
        raise WarehouseError(
            f"{home.warehouse} is a folder, and must be the published file. Nothing was "
            "published; move it away, or run `almanac replay`."
        )
    try:
        return read_published(home.warehouse)
    except duckdb.Error as error:
        if is_replay:
            return None
        raise unreadable_file(home.warehouse, error) from error


def _list_released(published: PublishedFile | None) -> list[str]:
    """Return the batches that were folded as released."""
    found = {} if published is None else published.batches
    return [batch_id for batch_id, batch in found.items() if batch.released]


@dataclass(slots=True)
class MergePlan:
    """What a merge folds, and into which file. `base` None is an empty file."""

    published: PublishedFile | None
    base: Path | None
    manifests: list[Manifest]
    released: frozenset[str]
    is_needed: bool
    first_day: date
    """Days from this one on are folded, and no earlier day."""
    is_refold: bool
    is_replay: bool
    report: MergeReport


def _plan_merge(
    home: Home, published: PublishedFile | None, refold_from: date | None, *, is_replay: bool
) -> MergePlan:
    """List the unmerged batches, and choose the base for them."""
    report = MergeReport()
    released = frozenset(home.landing.released())
    landed = home.landing.batch_ids()
    report.rebuilt = _why_rebuilt(home, published, len(landed), is_replay=is_replay)
    merged = published.batches if published is not None else {}
    if is_replay:
        _set_aside_lost(home, merged.keys() - set(landed), report)
        landed = home.landing.batch_ids()
    from_empty = is_replay or report.rebuilt is not None or published is None
    fresh_ids = [
        batch_id
        for batch_id in landed
        if batch_id not in merged or merged[batch_id].released != (batch_id in released)
    ]
    fresh = _read_manifests(home, fresh_ids, merged, report, is_replay=is_replay)
    starts = [manifest.observed_at.date() for manifest in fresh]
    if refold_from is not None:
        starts += [day for day in home.landing.days(since=refold_from)[:1]]
    first_day = min(starts, default=date.max)
    plan = MergePlan(
        published, home.warehouse, fresh, released, False, first_day, False, is_replay, report
    )
    if not from_empty:
        last = published.last_key if published is not None else None
        follows = last is None or all(first_key(manifest) > last for manifest in fresh)
        if follows and refold_from is None:
            plan.is_needed = bool(fresh) or _needs_new_file(home, published)
            return plan
    plan.is_needed = plan.is_refold = True
    before = None if from_empty else checkpoints.find_before(home, first_day)
    after = date.min
    plan.base = None
    if before is not None:
        after, plan.base = before
    ids = [batch_id for batch_id in landed if batch_id[:8] > f"{after:%Y%m%d}"]
    later = {batch_id for batch_id, batch in merged.items() if batch.observed_at.date() > after}
    if not from_empty and (lost := sorted(later - set(landed) - home.landing.damaged().keys())):
        raise lost_batch(lost[0])
    plan.manifests = _read_manifests(home, ids, merged, report, is_replay=from_empty)
    plan.first_day = min(
        (manifest.observed_at.date() for manifest in plan.manifests), default=first_day
    )
    if not is_replay and before is not None:
        checkpoints.remove_from(home, plan.first_day)
    return plan


def _why_rebuilt(
    home: Home, published: PublishedFile | None, batches: int, *, is_replay: bool
) -> str | None:
    """Return why the warehouse must be rebuilt from landing, and log how long it may take."""
    if is_replay or not home.warehouse.exists():
        return None
    if published is not None and published.has_current_tables:
        return None
    facts = {} if published is None else published.facts
    seconds = float(facts.get(_SECONDS_FACT, batches * _BATCH_S))
    why = "the warehouse was made by another version of Almanac, and is rebuilt from landing"
    _log.warning("%s: %d batches, about %.0f s.", why.capitalize(), batches, seconds)
    return f"{why.capitalize()}: {batches} batches."


def _needs_new_file(home: Home, published: PublishedFile | None) -> bool:
    """Whether a file without new batches is published: the logs or the views changed."""
    if published is None:
        return False
    current = {_LOGS_FACT: _LocalLogs.find(home).fingerprint, **NextFile.view_facts()}
    return any(published.facts.get(name) != value for name, value in current.items())


def _set_aside_lost(home: Home, lost: Iterable[str], report: MergeReport) -> None:
    """Set aside batches that took effect and are missing from landing."""
    for batch_id in sorted(set(lost) - home.landing.damaged().keys()):
        home.landing.set_aside(batch_id, str(lost_batch(batch_id)))
    report.damaged.update(home.landing.damaged())


def _read_manifests(
    home: Home,
    batch_ids: Iterable[str],
    merged: Iterable[str],
    report: MergeReport,
    *,
    is_replay: bool,
) -> list[Manifest]:
    """Return the manifests of batches. A damaged one is set aside.

    Raises:
        DamagedBatch: it took effect before; only a replay sets such a batch aside.
    """
    found: list[Manifest] = []
    took_effect = set(merged)
    for batch_id in batch_ids:
        try:
            found.append(home.landing.manifest(batch_id))
        except UnknownBatch:
            continue
        except DamagedBatch as error:
            if batch_id in took_effect and not is_replay:
                raise
            _set_aside(home.landing, batch_id, error, report)
    return found


def _set_aside(landing: Landing, batch_id: str, error: DamagedBatch, report: MergeReport) -> None:
    landing.set_aside(batch_id, str(error))
    report.damaged[batch_id] = str(error)


def _fold_and_publish(home: Home, plan: MergePlan, failed: dict[str, str], step: Step) -> bool:
    """Copy the base, fold, check and publish.

    Returns False if a batch failed of which earlier deliveries were folded: the next try
    quarantines it from its first delivery on.
    """
    began = monotonic()
    with next_file(home, plan.base) as file:
        step("merge:copied")
        folding = _Folding(home, plan, file, failed, step)
        if not folding.fold_all():
            return False
        report = plan.report
        report.outcomes = list(folding.outcomes.values())
        report.lost = _find_lost(plan, report.quarantined)
        last_day = max(report.days, default=None)
        batch_ids = None if plan.base is None else [*folding.outcomes]
        _finish(home, plan, file, monotonic() - began)
        check(file, batch_ids)
        report.rows = {
            name: rows for name, rows in file.connection.execute(ddl.counts(TABLES)).fetchall()
        }
        step("merge:checked")
        file.publish()
        report.is_published = True
        step("merge:renamed")
    if last_day is not None:
        checkpoints.link_published(home, last_day)
        checkpoints.keep(home, checkpoints.choose_days(_list_checkpoint_days(home, plan)))
    if plan.report.rebuilt is not None:
        _remove_earlier_format(home)
    return True


def _list_checkpoint_days(home: Home, plan: MergePlan) -> set[date]:
    """Return the days that may have a checkpoint after a merge."""
    days = checkpoints.list_days(home)
    if plan.is_replay:
        folded = {manifest.observed_at.date() for manifest in plan.manifests}
        return folded.intersection(days)
    return set(days)


def _remove_earlier_format(home: Home) -> None:
    for name in _BEFORE_CHECKPOINTS:
        path = home.root / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


class _Folding:
    """The fold of the batches of a merge into the next file, a transaction for each observation."""

    def __init__(
        self, home: Home, plan: MergePlan, file: NextFile, failed: dict[str, str], step: Step
    ) -> None:
        """`failed` has batches that can't be folded: they are quarantined unread."""
        self._home = home
        self._plan = plan
        self._file = file
        self._failed = failed
        self._step = step
        self._fold = Fold(file)
        self.outcomes: dict[str, Outcome] = {}

    def fold_all(self) -> bool:
        """Fold; return False if the merge must begin again without a batch (`failed`)."""
        observations = order_observations(self._plan.manifests)
        kept = checkpoints.choose_days(
            [*checkpoints.list_days(self._home), *(each.day for each in observations)]
        )
        for number, observation in enumerate(observations):
            report_phase("fold batches", number, len(observations))
            day = observation.day
            if number and observations[number - 1].day != day:
                self._keep_checkpoint(observations[number - 1].day, kept)
            try:
                self._fold_one(observation)
            except DamagedBatch as error:
                self._file.reopen()
                self._fold = Fold(self._file)
                self._set_aside(observation, error)
            except BatchFailed as failure:
                if failure.batch_id in self._failed:
                    raise
                self._failed[failure.batch_id] = failure.why
                if failure.batch_id in self.outcomes:
                    return False
                self._file.reopen()
                self._fold = Fold(self._file)
                self._fold_one(observation)
            self._step("merge:observation_folded")
        return True

    def _set_aside(self, observation: Observation, error: DamagedBatch) -> None:
        batch_id, plan = observation.manifest.batch_id, self._plan
        merged = {} if plan.published is None else plan.published.batches
        if batch_id in merged and not plan.is_replay and plan.report.rebuilt is None:
            raise error
        _set_aside(self._home.landing, batch_id, error, plan.report)

    def _fold_one(self, observation: Observation) -> None:
        """Fold an observation and its account in one transaction."""
        manifest = observation.manifest
        batch_id = manifest.batch_id
        released = batch_id in self._plan.released
        before = self.outcomes.get(batch_id)
        with self._file.transaction():
            if batch_id in self._failed:
                outcome = Outcome(manifest, released=released).quarantine(self._failed[batch_id])
            else:
                outcome = self._fold.fold(observation, self._home.landing, released=released)
                if outcome.rejected and before is None:
                    self._file.run("insert_rejects", observed_at=manifest.observed_at)
                self._fold.save()
            if before is not None:
                outcome = before.joined_with(outcome)
                self._file.run("forget_batch", batch_id=batch_id)
                self._file.run("forget_record", batch_id=batch_id)
            record = msgspec.json.encode(outcome.record()).decode()
            self._file.run("insert_record", batch_id=batch_id, released=released, record=record)
            self._file.run("insert_batch", record=record)
        self.outcomes[batch_id] = outcome

    def _keep_checkpoint(self, day: date, kept: set[date]) -> None:
        """Copy the file at the end of a day that is followed by others."""
        if day in kept:
            _show_state(self._file, min(day, self._plan.first_day))
            self._file.checkpoint()
            checkpoints.copy_file(self._home, self._file.path, day)


def _show_state(file: NextFile, first_day: date) -> None:
    """Bring the tables that follow from others up to date, and name the state of the file."""
    with file.transaction():
        file.run("show_seen")
        file.run("show_unknown")
        file.run("note_first_look")
        file.run("forget_days", first_day=first_day)
        columns = ddl.column_list(CHANGES_COLUMNS)
        file.run("note_days", {"columns": columns}, first_day=first_day)
        file.run("forget_publication")
        file.run(
            "note_publication", publication=uuid.uuid4().hex, published_at=utc_now().isoformat()
        )


def _finish(home: Home, plan: MergePlan, file: NextFile, seconds: float) -> None:
    """Complete the tables, and name the publication."""
    _show_state(file, plan.first_day)
    logs = _LocalLogs.find(home)
    facts = file.read_facts()
    with file.transaction():
        if facts.get(_LOGS_FACT) != logs.fingerprint:
            logs.load(file)
        spent = seconds + (0 if plan.base is None else float(facts.get(_SECONDS_FACT, 0)))
        file.note_facts({_LOGS_FACT: logs.fingerprint, _SECONDS_FACT: f"{spent:.3f}"})
    if plan.is_refold and plan.published is not None and plan.published.has_current_tables:
        plan.report.refolded = _count_differences(home, plan, file)


def _count_differences(home: Home, plan: MergePlan, file: NextFile) -> dict[date, tuple[int, int]]:
    """Return the numbers of added and removed versions of the days that were folded before."""
    assert plan.published is not None
    days = [day for day in plan.report.days if day in plan.published.days]
    attach_published(file.connection, home.warehouse, "before")
    text = file.text("count_differences", {"columns": ddl.column_list(CHANGES_COLUMNS)})
    values = {"first_day": plan.first_day, "days": days}
    rows = file.connection.execute(text, values).fetchall()
    file.connection.execute("DETACH before")
    return {day: (added, removed) for day, added, removed in rows}


def _find_lost(plan: MergePlan, quarantined: Sequence[Outcome]) -> dict[str, str]:
    """Return the quarantined batches that were merged before, with the reason.

    A batch whose release was taken back is not lost.
    """
    before = {} if plan.published is None else plan.published.batches
    return {
        outcome.manifest.batch_id: outcome.why or ""
        for outcome in quarantined
        if (batch := before.get(outcome.manifest.batch_id)) is not None
        and batch.status == "merged"
        and not (batch.released and outcome.manifest.batch_id not in plan.released)
    }


def check(file: NextFile, batch_ids: Sequence[str] | None) -> None:
    """Check the versions of all events, or of those that some batches changed, and the counts.

    Raises:
        WarehouseError: a check failed; the published file is kept.
    """
    batches = None if batch_ids is None else list(batch_ids)
    if wrong := file.rows("check_versions", batches=batches):
        names = ("event_id", "rows", "version", "versions", "first", "last", "current")
        rows = (zip(names, row, strict=True) for row in wrong)
        events = "; ".join(", ".join(f"{name} {value}" for name, value in row) for row in rows)
        raise _disagreement(f"events and their versions disagree: {events}")
    if wrong := file.rows("check_absences"):
        events = ", ".join(str(event_id) for (event_id,) in wrong)
        raise _disagreement(f"the logged absences of {events} do not end with its `missing_since`")
    ((events, seen, versions, of_days),) = file.rows("check_counts")
    if (events, versions) != (seen, of_days):
        raise _disagreement(
            f"there are {events} events and {versions} versions, expected {seen} and {of_days}"
        )


def _disagreement(message: str) -> WarehouseError:
    return WarehouseError(
        f"{message}. Nothing was published; the old warehouse is kept. Run `almanac replay`; if it "
        "recurs, it is a bug in Almanac."
    )


@dataclass(frozen=True, slots=True)
class _LocalLogs:
    """This machine's logs, which no replay rebuilds. The fingerprint changes with them."""

    requests: list[str]
    usage: list[str]
    fingerprint: str

    @classmethod
    def find(cls, home: Home) -> "_LocalLogs":
        requests = sorted(path for path in home.state.glob("requests/*.jsonl") if path.is_file())
        usage = sorted(path for path in home.state.glob("usage.jsonl") if path.is_file())
        stats = [(path.name, path.stat()) for path in (*requests, *usage)]
        return cls(
            [literal(path) for path in requests],
            [literal(path) for path in usage],
            " ".join(f"{name}:{stat.st_size}:{stat.st_mtime_ns}" for name, stat in stats),
        )

    def load(self, file: NextFile) -> None:
        """Replace the tables that are made from the logs."""
        for name, paths in (("requests", self.requests), ("usage", self.usage)):
            file.run(f"empty_{name}")
            if paths:
                file.run(f"insert_{name}", **{name: paths})
