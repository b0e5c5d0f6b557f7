"""Runs days in this process: the daily job of each day, with polls between, up to now.

With the sandbox, the clock is set to each simulated time. A real service can only run the current
day.
application/cli/run_command.py shows the summary.
"""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from contextvars import copy_context
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from typing import Any, Final, Literal
from uuid import uuid4

import dagster as dg
import duckdb

from almanac.core import progress
from almanac.core.errors import QUERY_INTERRUPTED, AlmanacError, WarehouseError
from almanac.core.timestamps import utc_now
from assets.event_changes import MERGED_TAG
from assets.metadata import REFOLD_NOTES, RESUMES_AT
from pipeline.automation.health import process_tags
from pipeline.automation.jobs import DAILY
from pipeline.automation.sensors import was_day_pulled
from pipeline.build import build_definitions, make_layout
from pipeline.home_location import locate_home
from pipeline.service_session import OpenedSession
from pipeline.settings import Settings
from resources.feed_day import USUAL
from resources.session import LazySession, pull
from warehouse.batch_problems import BatchProblem, list_new_problems
from warehouse.history.merge import merge
from warehouse.history.warehouse_file import read_records
from warehouse.home import Home
from warehouse.landing.batches import Feed

Kind = Literal["day", "poll"]
_DAY_AT: Final = time(6, tzinfo=UTC)
_POLLS_AT: Final = (time(12, tzinfo=UTC), time(18, tzinfo=UTC))
_POLLED: Final[tuple[Feed, ...]] = ("events", "cancellations")
DAILY_FEEDS: Final[tuple[Feed, ...]] = ("export", "events", "cancellations", "categories", "coins")
# Dagster's log lines would disturb the progress bar; the UI shows them.
_QUIET: Final = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
_INTERRUPTS: Final = (dg.DagsterExecutionInterruptedError.__name__, KeyboardInterrupt.__name__)


class RunFailed(AlmanacError):
    """A step of a day failed; batches landed before it are kept.

    `problems` are the problems of these batches.
    """

    problems: Sequence[BatchProblem] = ()


@dataclass(frozen=True, slots=True)
class RunTime:
    """The time of a run, and its kind: the daily job, or a poll of the near windows."""

    at: datetime
    kind: Kind


@dataclass(slots=True)
class RunSummary:
    """The result of a run. `notes` give omitted and deferred work, and why.

    `problems` has its batch problems: partial, flagged or quarantined. `deferred_pulls` has the day
    and the step or feed of each pull that was deferred, in part or whole.
    """

    instants: int = 0
    days: list[date] = field(default_factory=list)
    batches: int = 0
    rows: int = 0
    requests: int = 0
    rejected: int = 0
    quarantined: int = 0
    changes: dict[str, int] = field(default_factory=dict)
    quota_left: int | None = None
    problems: list[BatchProblem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    deferred_pulls: list[str] = field(default_factory=list)

    def note(self, note: str) -> None:
        if note not in self.notes:
            self.notes.append(note)


def find_last_day(home: Home) -> date | None:
    """Return the last landed day whose daily pull is whole, None for a home without a batch.

    A run stops at its first failure, so only the newest day can be in part.
    """
    newest = max(home.landing.days(), default=None)
    if newest is None or was_day_pulled(home, newest):
        return newest
    return newest - timedelta(days=1)


def find_missed_polls(home: Home, day: date) -> list[datetime]:
    """Return the polls of a simulated day that a stopped run left out, in part or whole."""
    landed = {batch_id.rpartition("-")[0] for batch_id in home.landing.batch_ids(day=day)}

    def has(feed: Feed, at: time) -> bool:
        return f"{datetime.combine(day, at):%Y%m%dT%H%M%SZ}-{feed}" in landed

    if not has("coins", _DAY_AT):  # The day ended a run, which polls no more.
        return []
    missed = [at for at in _POLLS_AT if not all(has(feed, at) for feed in _POLLED)]
    return [datetime.combine(day, at) for at in missed]


def plan_run_times(
    days: int, *, now: datetime, last_day: date | None, missed: Sequence[datetime] = ()
) -> list[RunTime]:
    """Return the run times of the last days up to now, from the day after the last whole one.

    `missed` are polls of that day, which come first.
    """
    today = now.date()
    first = today - timedelta(days=days - 1)
    if last_day is not None:
        first = min(max(first, last_day + timedelta(days=1)), today)
    found = [RunTime(at, "poll") for at in missed if first - timedelta(days=1) == at.date() < today]
    for number in range((today - first).days):
        day = first + timedelta(days=number)
        found.append(RunTime(datetime.combine(day, _DAY_AT), "day"))
        found += [RunTime(datetime.combine(day, at), "poll") for at in _POLLS_AT]
    return [*found, RunTime(now, "day")]


def run_days(
    settings: Settings,
    service: OpenedSession,
    instance: dg.DagsterInstance,
    instants: list[RunTime],
    *,
    on_instant: Callable[[int, RunTime], None] = lambda number, instant: None,
) -> RunSummary:
    """Run each day and poll, and sum up the landed and merged batches.

    Raises:
        RunFailed: a step of a daily job failed.
        KeyboardInterrupt: Ctrl-C; batches landed before it are kept.
        CatalogError: a poll failed.
    """
    home, summary = locate_home(settings), RunSummary()
    known = set(home.landing.batch_ids())
    job = _job(settings, service, first_day=min(instant.at for instant in instants).date())
    first: date | None = None
    try:
        with PastDaysMerge(home, summary) as merging:
            for number, instant in enumerate(instants):
                on_instant(number, instant)
                if service.sandbox is not None:
                    service.sandbox.set_clock(instant.at)
                if instant.kind == "poll":
                    _pull_feeds(_POLLED, service, summary)
                else:
                    if number:
                        merging.until(service.today() - timedelta(days=1))
                        service.request_usage()
                    first = first or _find_first_day(home, service, instance)
                    if number < len(instants) - 1:
                        # The run of the last day records the days before it.
                        _pull_feeds(DAILY_FEEDS, service, summary)
                    else:
                        run_days_of_job(job, first, service.today(), instance, summary)
                summary.instants += 1
    except RunFailed as error:
        # Only from landing: the warehouse may be unreadable.
        error.problems = list_new_problems(home, known, records=())
        raise
    _sum_up(home, known, summary)
    summary.requests = service.log.count
    summary.quota_left = service.quota_left
    return summary


class PastDaysMerge:
    """Merges days in a thread, while later ones are pulled.

    The merge in progress at the end of the block is completed. After an error in the block, the
    merged days are reported.
    """

    def __init__(self, home: Home, summary: RunSummary) -> None:
        self._home, self._summary = home, summary
        self._wanted = self._merged = date.min
        self._begun: list[Future[None]] = []
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="merge")

    def __enter__(self) -> "PastDaysMerge":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._pool.shutdown(cancel_futures=kind is not None)
        if kind is None:
            self._raise_failure()
        elif self._merged > date.min:
            progress.wait(f"The days until {self._merged} are merged and published.")

    def until(self, day: date) -> None:
        """Begin to merge the days until one. Raises RunFailed: a merge before it failed."""
        self._wanted = day
        self._raise_failure()
        self._begun.append(self._pool.submit(copy_context().run, self._merge))

    def _merge(self) -> None:
        if (day := self._wanted) == self._merged:
            return
        try:
            notes = merge(self._home, with_events=False, last_day=day).notes
        except (WarehouseError, OSError, duckdb.IOException) as error:
            raise RunFailed(f"{day}, merge: {error}") from error
        self._merged = day
        for note in notes:
            self._summary.note(note)

    def _raise_failure(self) -> None:
        for each in self._begun:
            if each.done():
                each.result()


def _find_first_day(home: Home, service: OpenedSession, instance: dg.DagsterInstance) -> date:
    """Return the first day to record: today, or the days before it that a stopped run landed."""
    day = service.today()
    if service.sandbox is None:
        return day
    recorded = instance.get_materialized_partitions(dg.AssetKey("landed_coins"))
    landed = set(home.landing.days())
    while (before := day - timedelta(days=1)) in landed and before.isoformat() not in recorded:
        day = before
    return day


def _job(settings: Settings, service: OpenedSession, *, first_day: date) -> dg.JobDefinition:
    session = LazySession(lambda: nullcontext(service), clock=service.clock)
    session.service()
    # A person waits, and can run the command again.
    ahead = max(0, (service.today() - utc_now().date()).days)
    given: dict[str, Any] = {"first_day": first_day, "days_ahead": ahead, "retry_policy": None}
    layout = make_layout(locate_home(settings), service.now(), **given)
    definitions = build_definitions(settings, clock=service.clock, layout=layout, catalog=session)
    return definitions.resolve_job_def(layout.name(DAILY))


def _pull_feeds(feeds: Iterable[Feed], service: OpenedSession, summary: RunSummary) -> None:
    """Pull some feeds. The daily job at the end merges them."""
    for feed in feeds:
        pulled = pull(feed, service)
        name = f"{service.now():%Y-%m-%d} {feed}"
        if pulled.outcome not in USUAL:
            summary.note(f"{name}: {pulled.outcome}")
        if pulled.deferred is not None:
            summary.deferred_pulls.append(name)


def run_days_of_job(
    job: dg.JobDefinition,
    first: date,
    day: date,
    instance: dg.DagsterInstance,
    summary: RunSummary,
) -> None:
    """Run the job of the days from the first on in this process, and add its result to `summary`.

    Raises:
        RunFailed: a step failed, or the day is not a partition.
        KeyboardInterrupt: Ctrl-C.
    """
    days = job.partitions_def
    if days is not None and not days.has_partition_key(day.isoformat()):
        raise RunFailed(
            f"The service's day is {day}, which was not expected when this run began: its clock "
            "was set, or a day passed. No request was sent for that day. Run the command again."
        )
    run_id = str(uuid4())
    try:
        result = job.execute_in_process(
            run_id=run_id,
            instance=instance,
            partition_key=day.isoformat() if first == day else None,
            raise_on_error=False,
            run_config=_QUIET,
            # From its first record on: the process, so that a run killed at any moment is known to
            # be dead, and the label by which the UI finds the runs of a job.
            tags={
                **process_tags(run_id),
                ".dagster/repository": "__repository__@almanac",
                **({} if first == day else {MERGED_TAG: "true", **_range_tags(first, day)}),
            },
        )
    except dg.DagsterExecutionInterruptedError as error:
        _record_interrupt(instance, run_id)
        raise KeyboardInterrupt from error
    if not result.success and any(_was_interrupted(event) for event in result.all_events):
        _record_interrupt(instance, run_id)
        raise KeyboardInterrupt
    for event in result.all_events:
        if event.is_step_failure:
            raise RunFailed(_failure_text(day, event))
        if event.is_step_materialization:
            _note_outcome(summary, day, event)
    if not result.success:
        raise RunFailed(f"the run of {day} failed; `almanac ui` shows why")
    summary.days += [first + timedelta(days=number) for number in range((day - first).days + 1)]


def _range_tags(first: date, last: date) -> dict[str, str]:
    return {
        "dagster/asset_partition_range_start": first.isoformat(),
        "dagster/asset_partition_range_end": last.isoformat(),
    }


def _record_interrupt(instance: dg.DagsterInstance, run_id: str) -> None:
    """Record a run as canceled: Dagster takes it for a failure, which a warning would show."""
    if (run := instance.get_run_by_id(run_id)) is not None:
        instance.report_run_canceled(run, "Interrupted. Landed batches are kept.")


def _was_interrupted(event: dg.DagsterEvent) -> bool:
    if event.is_step_failure:
        return _is_interrupt(event.step_failure_data.error)
    # Between two steps.
    return event.is_run_failure and _is_interrupt(event.job_failure_data.error)


def _is_interrupt(cause: Any) -> bool:
    """Return whether a step or a run failed by Ctrl-C, which Dagster reports as its error."""
    while cause is not None:
        if cause.cls_name in _INTERRUPTS or QUERY_INTERRUPTED in cause.message:
            return True
        cause = cause.cause
    return False


def _failure_text(day: date, event: dg.DagsterEvent) -> str:
    data = event.step_failure_data
    failure = data.user_failure_data
    if failure is not None and failure.description:
        return f"{day}, {event.step_key}: {failure.description}"
    cause = data.error
    while cause is not None and cause.cause is not None:
        cause = cause.cause
    message = "" if cause is None else cause.message.strip()
    return f"{day}, {event.step_key}: {message} (`almanac ui` shows the full error)"


def _note_outcome(summary: RunSummary, day: date, event: dg.DagsterEvent) -> None:
    metadata = event.materialization.metadata
    if (refolded := metadata.get(REFOLD_NOTES)) is not None:
        for note in str(refolded.value).splitlines():
            summary.note(note)
    if RESUMES_AT in metadata:
        summary.deferred_pulls.append(f"{day} {event.step_key}")
    outcome = metadata.get("outcome")
    if outcome is None or outcome.value in USUAL:
        return
    summary.note(f"{day} {event.step_key}: {outcome.value}")


def _sum_up(home: Home, known: set[str], summary: RunSummary) -> None:
    """Add the outcomes of the batches that were landed during this run."""
    fresh = [batch_id for batch_id in home.landing.batch_ids() if batch_id not in known]
    days = {
        date.fromisoformat(f"{batch_id[:4]}-{batch_id[4:6]}-{batch_id[6:8]}") for batch_id in fresh
    }
    found = read_records(home.warehouse, since=min(days), until=max(days)) if days else {}
    records = list(found.values())
    for record in records:
        if record["batch_id"] in known:
            continue
        summary.batches += 1
        summary.rows += record["arrived"]
        summary.rejected += record["rejected"]
        summary.quarantined += record["status"] == "quarantined"
        for kind, count in record["changes"].items():
            summary.changes[kind] = summary.changes.get(kind, 0) + count
    summary.problems = list_new_problems(home, known, records)
