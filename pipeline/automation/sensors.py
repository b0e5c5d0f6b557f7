"""The sensors that request runs: polls, pulls and merges.

Each sensor reads local state and run records, sends no request, passes them to a plain function
`decide_…`, and returns its decision. Nothing here writes. Timestamps are UTC and aware. Two clocks
are in use: runs and attempts are by the machine's clock (`now`), days and deferrals by the
service's (`at_service`).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import partial
from typing import Any, Final

import dagster as dg

from almanac.core.errors import WarehouseError
from assets.landed_calendar import EVENT_MONTHS
from assets.landed_calendar import NAME as LANDED_CALENDAR
from assets.layout import Layout
from assets.polled import POLLED, PollConfig, poll_run_config
from catalog.contract.plans import PLANS
from pipeline.automation.jobs import (
    CALENDAR,
    DAILY,
    DELIVERIES,
    ENDED_STATUSES,
    EXPORT_IS_OUT_AT,
    MERGE,
    POLL,
)
from pipeline.polls import PollInputs, plan_polls, read_poll_inputs
from pipeline.settings import Settings
from resources.calendar_backfill import OpenBackfill, read_open_backfill
from resources.request_log import DeferredPull, DeferredPulls
from resources.scopes import month_key
from resources.session import Poll
from warehouse.home import Home
from warehouse.landing.inbox import Inbox

Clock = Callable[[], datetime]

ABANDONED_AFTER: Final = timedelta(days=7)
"""Work that was not resumed for this long after it became possible is left to a person; `status`
shows it."""
IN_PROGRESS_STATUSES: Final = tuple({*dg.DagsterRunStatus} - {*ENDED_STATUSES})
_NEWEST_RUNS: Final = 8
_PLANNED: Final = 1_000_000
"""The `max_requests` of a run whose price was decided before."""
_LEAST_WAIT: Final = timedelta(minutes=1)
_LONGEST_MERGE_WAIT: Final = timedelta(hours=1)
_BEFORE_MIDNIGHT: Final = timedelta(minutes=1)
_FIRST_WAIT: Final = timedelta(minutes=10)
_LONGEST_WAIT: Final = timedelta(hours=6)
_LONGEST_DAILY_WAIT: Final = timedelta(hours=1)
_DONE: Final = "done"
"""The cursor of `pulls` once a first pull is done."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision of a sensor to request a run or none; `reason` explains it and names the next
    step."""

    reason: str
    request: dg.RunRequest | None = None

    def result(self, cursor: str | None = None) -> dg.SensorResult:
        return dg.SensorResult(
            run_requests=[] if self.request is None else [self.request],
            skip_reason=self.reason if self.request is None else None,
            cursor=cursor,
        )


@dataclass(frozen=True, slots=True)
class JobHistory:
    """The creation time of a job's newest run, and the failures since the last success."""

    newest_at: datetime | None = None
    failures: int = 0

    def next_at(self, first: timedelta, longest: timedelta) -> datetime:
        """Return when the next run may start: after a wait that each failure but one doubles."""
        if self.newest_at is None:
            return datetime.min.replace(tzinfo=UTC)
        doubled: timedelta = first * 2 ** max(0, self.failures - 1)
        return self.newest_at + min(longest, doubled)


def wait_for_partition(layout: Layout, decision: Decision) -> Decision:
    """Return the decision, without its request if the service's day is not a partition yet.

    Dagster counts partitions by the machine's clock, and the service's may differ from it.
    """
    day = None if decision.request is None else decision.request.partition_key
    if day is None or layout.observed_days.has_partition_key(day):
        return decision
    return Decision(
        f"It is {day} for the service, which is not a partition by this machine's clock. The run "
        "is requested when both are on the same day; `almanac status` shows how far they differ."
    )


_OPENED: Final[list[tuple[object, dg.DagsterInstance]]] = []


def find_instance(context: dg.SensorEvaluationContext) -> dg.DagsterInstance:
    """Return the instance of a sensor, opened once in a process and not for each tick.

    With SQLite, Dagster 1.13 reads its migration scripts whenever it opens an instance. It takes
    0.1 s and leaks 18 KB of memory.
    """
    ref = context.instance_ref
    if ref is None:
        return context.instance
    for known, instance in _OPENED:
        if known == ref:
            return instance
    _OPENED.append((ref, dg.DagsterInstance.from_ref(ref)))
    return _OPENED[-1][1]


def read_job_history(instance: dg.DagsterInstance, job_name: str) -> JobHistory:
    """Return the outcome of the newest runs of a job."""
    filters = dg.RunsFilter(job_name=job_name)
    records = instance.get_run_records(filters=filters, limit=_NEWEST_RUNS)
    failures = 0
    for record in records:
        if record.dagster_run.status is not dg.DagsterRunStatus.FAILURE:
            break
        failures += 1
    newest = records[0].create_timestamp.astimezone(UTC) if records else None
    return JobHistory(newest, failures)


def find_run_in_progress(instance: dg.DagsterInstance, job_names: Iterable[str]) -> str | None:
    """Return the id of a run of one of the jobs that has not ended, None if there is none."""
    for job_name in sorted(job_names):
        filters = dg.RunsFilter(job_name=job_name, statuses=list(IN_PROGRESS_STATUSES))
        runs = instance.get_runs(filters=filters, limit=1)
        if runs:
            return runs[0].run_id
    return None


def has_run(
    instance: dg.DagsterInstance, job_name: str, day: date, *statuses: dg.DagsterRunStatus
) -> bool:
    """Whether a run of a job for a day has one of the statuses."""
    filters = dg.RunsFilter(
        job_name=job_name, tags={"dagster/partition": day.isoformat()}, statuses=list(statuses)
    )
    return bool(instance.get_runs(filters=filters, limit=1))


def merges_sensor(
    layout: Layout, jobs: Mapping[str, Any], home: Home, clock: Clock, service_now: Clock
) -> dg.SensorDefinition:
    """Return the sensor that requests the merge of landed batches and of deliveries in the inbox.

    Landing leaves a marker of each batch. Runs are timed by `clock`; the day of a run that lands
    deliveries is the service's day.
    """

    @dg.sensor(
        name=layout.name("merges"),
        jobs=[jobs[MERGE], jobs[DELIVERIES]],
        minimum_interval_seconds=15,
        description="Requests a merge while landed batches are not merged, or webhook deliveries "
        "wait in the inbox.",
        default_status=layout.sensor_status("merges"),
    )
    def sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        pending, deliveries = home.landing.pending(), Inbox(home).names()
        if not pending and not deliveries:
            return Decision("Nothing to merge.").result()
        instance, job = find_instance(context), layout.name(DELIVERIES if deliveries else MERGE)
        decision = decide_merge(
            layout,
            pending,
            deliveries,
            read_job_history(instance, job),
            now=clock(),
            running=find_run_in_progress(instance, layout.names(MERGE, DAILY, DELIVERIES)),
            at_service=service_now(),
        )
        return wait_for_partition(layout, decision).result()

    return sensor


def decide_merge(
    layout: Layout,
    pending: Sequence[str],
    deliveries: Sequence[str],
    last: JobHistory,
    *,
    now: datetime,
    running: str | None,
    at_service: datetime,
) -> Decision:
    """Decide whether to request a merge of the pending batches and of deliveries in the inbox.

    There is at most one run a minute; after a failure the wait doubles. `running` is the id of a
    run that merges. A run stores deliveries on its own day only, so none is requested for them just
    before the day ends.
    """
    count = f"{len(pending):,} batches and {len(deliveries):,} deliveries wait"
    if running is not None:
        return Decision(f"{count}; run {running[:8]} merges. Next check after that run.")
    if now < (next_at := last.next_at(_LEAST_WAIT, _LONGEST_MERGE_WAIT)):
        failed = f" {last.failures} runs failed, see their pages;" if last.failures else ""
        return Decision(f"{count};{failed} the next run starts at {next_at:%H:%M:%S} UTC.")
    name, day = MERGE, at_service.date()
    if deliveries:
        name = DELIVERIES
        if (at_service + _BEFORE_MIDNIGHT).date() != day:
            return Decision(f"{count}; the next run belongs to the day that begins soon.")
    request = dg.RunRequest(
        run_key=_run_key(name, now),
        job_name=layout.name(name),
        partition_key=day.isoformat() if deliveries else None,
    )
    return Decision(f"{count}; requesting a merge.", request)


def polls_sensor(
    layout: Layout, settings: Settings, home: Home, clock: Clock
) -> dg.SensorDefinition:
    """Return the sensor that requests a run of the job `poll` when pulls are due."""

    @dg.sensor(
        name=layout.name("polls"),
        job_name=layout.name(POLL),
        minimum_interval_seconds=60,
        description="Requests the pulls that are due by the poll plan (almanac budget): near "
        "events more often than far ones, cancellations, missing events.",
        default_status=layout.sensor_status("polls"),
    )
    def sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        now = clock()
        try:
            inputs = read_poll_inputs(settings, home, now)
        except WarehouseError as error:
            return Decision(str(error)).result()
        deferred = DeferredPulls(home.state_storage).all()
        return decide_poll(
            layout,
            inputs,
            read_job_history(find_instance(context), layout.name(POLL)),
            now=now,
            running=find_run_in_progress(find_instance(context), layout.names(POLL, DAILY)),
            wait_until=max((d.resume_at for d in deferred if d.work == "polls"), default=None),
        ).result()

    return sensor


def decide_poll(
    layout: Layout,
    inputs: PollInputs | None,
    last: JobHistory,
    *,
    now: datetime,
    running: str | None,
    wait_until: datetime | None = None,
) -> Decision:
    """Decide whether to request a poll, and which pulls it makes.

    There is at most one poll in the least interval; after a failure the wait doubles. None is
    requested while a run pulls (`running`), since landed windows are no longer due, nor before
    `wait_until`, if the service or the quota deferred a poll. `inputs` and `wait_until` are by the
    service's clock. The due pulls are computed from the stored batches, so a killed run neither
    loses nor repeats a pull.
    """
    if inputs is None:
        return Decision("Nothing was pulled yet, so the plan is not known. Run the job daily once.")
    if wait_until is not None and inputs.now < wait_until:
        return Decision(f"Deferred by the service until {wait_until:%Y-%m-%d %H:%M:%S} UTC.")
    if running is not None:
        return Decision(f"Run {running[:8]} is pulling. Next decision after that run.")
    plan = plan_polls(inputs)
    if not plan.requests:
        at = f"{plan.next_at:%Y-%m-%d %H:%M:%S} UTC"
        return Decision(f"Nothing is due. The next poll is due at {at}.")
    next_at = last.next_at(_LEAST_WAIT, _LONGEST_WAIT)
    if last.newest_at is not None:
        next_at = max(next_at, last.newest_at + inputs.least_interval)
    if now < next_at:
        failed = "1 poll failed; " if last.failures == 1 else f"{last.failures} polls failed; "
        return Decision(
            f"{failed if last.failures else ''}the next poll starts at {next_at:%H:%M:%S} UTC at "
            "the earliest."
        )
    return Decision(
        f"A poll of {plan.requests} requests is due.",
        request_poll(layout, plan.due, run_key=_run_key(POLL, now)),
    )


def request_poll(layout: Layout, due: Poll, *, run_key: str) -> dg.RunRequest:
    """Return the run of the due pulls. A killed poll run is not retried, since the next plan
    includes its pulls."""
    config = PollConfig(
        windows=[window.texts() for window in due.windows],
        since="" if due.since is None else due.since.isoformat(),
        event_ids=list(due.event_ids),
        max_requests=_PLANNED,
    )
    is_due = {"events": due.windows, "cancellations": due.cancellations, "event": due.event_ids}
    return dg.RunRequest(
        run_key=run_key,
        run_config=poll_run_config(layout, config),
        asset_selection=layout.keys(name for feed, name in POLLED.items() if is_due[feed]),
        tags={"dagster/max_retries": "0"},
    )


def decide_resume(
    layout: Layout,
    deferrals: Sequence[DeferredPull],
    backfill: OpenBackfill | None,
    at_service: datetime,
    *,
    now: datetime,
    running: str | None,
    last: Callable[[str], JobHistory],
) -> Decision:
    """Decide whether to resume a daily pull, or the rest of a backfill.

    Deferred polls are not resumed here, since the poll plan includes them. `last` returns the
    history of a job.
    """
    oldest = at_service - ABANDONED_AFTER
    daily = [pull for pull in deferrals if pull.work == "daily" and pull.resume_at > oldest]
    times = [pull.resume_at for pull in daily]
    if backfill is not None and backfill.resume_at is not None and backfill.resume_at > oldest:
        times.append(backfill.resume_at)
    else:
        backfill = None
    if not times:
        return Decision("Nothing is deferred.")
    if running is not None:
        return Decision(f"Run {running[:8]} is in progress. Next decision after that run.")
    for pull in daily:
        if pull.resume_at <= at_service:
            request = dg.RunRequest(
                run_key=_run_key(DAILY, now),
                job_name=layout.name(DAILY),
                partition_key=at_service.date().isoformat(),
            )
            why = f"the pull of {pull.feed} was deferred: {pull.why}"
            return _unless_too_early(request, why, last(layout.name(DAILY)), now)
    if backfill is not None and times[-1] <= at_service:
        request = _request_backfill(layout, backfill, _run_key(CALENDAR, now))
        why = f"a backfill was deferred: {backfill.why}"
        return _unless_too_early(request, why, last(layout.name(CALENDAR)), now)
    return Decision(f"{len(times)} deferred; the first resumes at {min(times):%Y-%m-%d %H:%M} UTC.")


def _request_backfill(layout: Layout, backfill: OpenBackfill, run_key: str) -> dg.RunRequest:
    months = EVENT_MONTHS.get_partition_keys()
    # `begin` and `end` may be beyond the partitions; a run needs some partition all the same.
    first, last = (
        min(max(month_key(day), months[0]), months[-1]) for day in (backfill.first, backfill.last)
    )
    dates = {"begin": backfill.first.isoformat(), "end": backfill.last.isoformat()}
    config: dict[str, Any] = {**dates, "source": backfill.by, "max_requests": _PLANNED}
    return dg.RunRequest(
        run_key=run_key,
        job_name=layout.name(CALENDAR),
        run_config={"ops": {layout.name(LANDED_CALENDAR): {"config": config}}},
        tags={
            "dagster/asset_partition_range_start": first,
            "dagster/asset_partition_range_end": last,
        },
    )


def pulls_sensor(
    layout: Layout, jobs: Mapping[str, Any], home: Home, clock: Clock, service_now: Clock
) -> dg.SensorDefinition:
    """Return the sensor of the pulls that can't wait for the next 00:20.

    They are the first pull of a deployment, the retry of a failed one on the same day, and what
    the quota or the service deferred.
    """

    @dg.sensor(
        name=layout.name("pulls"),
        jobs=[jobs[DAILY], jobs[CALENDAR]],
        minimum_interval_seconds=300,
        description="Requests the pull of today at the first start, if that day is not landed, and "
        "again after a failed run; resumes pulls and backfills that were deferred by the quota or "
        "the service. The daily schedule pulls all other days.",
        default_status=layout.sensor_status("pulls"),
    )
    def sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        at_service, now, is_done = service_now(), clock(), context.cursor == _DONE
        instance, job, day = find_instance(context), layout.name(DAILY), at_service.date()
        has_failed = has_run(instance, job, day, dg.DagsterRunStatus.FAILURE)
        # A canceled run is not retried.
        ended = (dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.CANCELED)
        running = find_run_in_progress(instance, layout.names(DAILY, CALENDAR))
        if (has_failed or not is_done) and (
            was_day_pulled(home, day) or has_run(instance, job, day, *ended)
        ):
            is_done, has_failed = True, False
        first = Decision("Done: the schedule pulls each day.")
        if has_failed or not is_done:
            last = read_job_history(instance, job)
            first = decide_first_pull(layout, at_service, now=now, running=running, last=last)
        deferred = decide_resume(
            layout,
            DeferredPulls(home.state_storage).all(),
            read_open_backfill(home.state_storage, at_service),
            at_service,
            now=now,
            running=running,
            last=partial(read_job_history, instance),
        )
        decision = Decision(f"{first.reason} {deferred.reason}", first.request or deferred.request)
        return wait_for_partition(layout, decision).result(_DONE if is_done else context.cursor)

    return sensor


def decide_first_pull(
    layout: Layout, at_service: datetime, *, now: datetime, running: str | None, last: JobHistory
) -> Decision:
    """Decide whether to request the pull of the service's day, which was not pulled or failed."""
    day = at_service.date()
    if at_service < datetime.combine(day, EXPORT_IS_OUT_AT, UTC):
        return Decision(f"The schedule pulls {day} at {EXPORT_IS_OUT_AT:%H:%M} UTC.")
    if running is not None:
        return Decision(f"Run {running[:8]} is in progress. Next decision after that run.")
    if last.failures and now < (next_at := last.next_at(_FIRST_WAIT, _LONGEST_DAILY_WAIT)):
        return Decision(
            f"The pull of {day} failed; the next attempt is at {next_at:%H:%M} UTC. The run's page "
            "shows the reason."
        )
    return Decision(
        f"Nothing was pulled on {day} yet; requesting the pull.",
        dg.RunRequest(
            run_key=_run_key(DAILY, now), job_name=layout.name(DAILY), partition_key=day.isoformat()
        ),
    )


def was_day_pulled(home: Home, day: date) -> bool:
    """Whether a daily pull of a day was landed after its export was out.

    Polls and backfills land no coins, so a day with coins and all other feeds had a daily pull.
    """
    out_at = datetime.combine(day, EXPORT_IS_OUT_AT, UTC)
    batches, _ = home.landing.readable(home.landing.batch_ids(day=day))
    landed = [batch for batch in batches if batch.complete and batch.observed_at >= out_at]
    wanted = {"events", "cancellations", "coins"}
    if any(batch.plan in PLANS and PLANS[batch.plan].export for batch in landed):
        wanted.add("export")
    return wanted <= {batch.feed for batch in landed}


def _run_key(name: str, now: datetime) -> str:
    return f"{name}-{now:%Y%m%dT%H%M%S}"


def _unless_too_early(
    request: dg.RunRequest, why: str, last: JobHistory, now: datetime
) -> Decision:
    """Return the request, unless the newest run is too young.

    After a success there is a wait too, since the same work may be left undone again.
    """
    if now < (next_at := last.next_at(_FIRST_WAIT, _LONGEST_WAIT)):
        return Decision(f"{why}; the next attempt is at {next_at:%H:%M:%S} UTC.")
    return Decision(why, request)
