"""The sensors that resume deferred work, and that request cancellations not pulled for long.

`quota` resumes pulls and backfills once the quota has reset or the service's wait is over.
`cancellations` requests a pull if there was none for two days, independent of polls: after 90 days
some are lost. Both read only local state.
"""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

import dagster as dg

from assets.calendar import EVENT_MONTHS
from assets.calendar import NAME as LANDED_CALENDAR
from assets.layout import Layout
from assets.polled import POLLED, PollConfig, poll_run_config
from pipeline.automation.jobs import CALENDAR, DAILY, POLL, Jobs
from pipeline.automation.runs import Decision, LastRuns, doubled, last_runs, run_in_progress
from resources.backfill.state import BackfillState, BackfillStates
from resources.deferrals import DeferredPull, DeferredPulls
from resources.ingest.scopes import month_key, month_start
from warehouse.files.storage import Storage
from warehouse.home import Home

EVERY_S: Final = 300
"""What is deferred waits for hours mostly, and each evaluation takes a fifth of a second."""
PULLED_WITHIN: Final = timedelta(days=2)
"""The daily pull includes them; two days without one mean that it fails."""
ABANDONED_AFTER: Final = timedelta(days=7)
"""Work that could resume for this long and did not is left to a person; `status` shows it."""
_SEARCHED: Final = timedelta(days=100)
_FIRST_WAIT: Final = timedelta(minutes=10)
_LONGEST_WAIT: Final = timedelta(hours=6)


def decide_resume(
    layout: Layout,
    deferrals: Sequence[DeferredPull],
    backfills: Sequence[BackfillState],
    at_service: datetime,
    *,
    now: datetime,
    running: str | None,
    last: Callable[[str], LastRuns],
) -> Decision:
    """Decide what to resume: a daily pull, or the rest of a backfill.

    Deferred polls are not resumed here: the poll plan has them as due. Deferrals are by the
    service's clock (`at_service`), runs and attempts by the machine's (`now`). `last` returns how
    the newest runs of a job went.
    """
    oldest = at_service - ABANDONED_AFTER
    daily = [pull for pull in deferrals if pull.work == "daily" and pull.resume_at > oldest]
    waiting = [
        (backfill.resume_at, backfill)
        for backfill in backfills
        if backfill.resume_at is not None and backfill.resume_at > oldest
    ]
    if not daily and not waiting:
        return Decision("Nothing is deferred.")
    if running is not None:
        return Decision(f"Run {running[:8]} is in progress. Next decision after that run.")
    for pull in daily:
        if pull.resume_at <= at_service:
            day = at_service.date().isoformat()
            request = dg.RunRequest(
                run_key=_key(DAILY, now), job_name=layout.name(DAILY), partition_key=day
            )
            why = f"the pull of {pull.feed} was deferred: {pull.why}"
            return _unless_too_early(request, why, last(layout.name(DAILY)), now)
    for resume_at, backfill in waiting:
        if resume_at <= at_service:
            request = _resume_request(layout, backfill, _key(CALENDAR, now))
            why = f"a backfill was deferred: {backfill.why}"
            return _unless_too_early(request, why, last(layout.name(CALENDAR)), now)
    times = [pull.resume_at for pull in daily] + [resume_at for resume_at, _ in waiting]
    return Decision(f"{len(times)} deferred; the first resumes at {min(times):%Y-%m-%d %H:%M} UTC.")


def _key(job_name: str, now: datetime) -> str:
    return f"{job_name}-{now:%Y%m%dT%H%M%S}"


def _unless_too_early(request: dg.RunRequest, why: str, last: LastRuns, now: datetime) -> Decision:
    wait_until = _next_attempt_at(last)
    if wait_until is not None and now < wait_until:
        return Decision(f"{why}; the next attempt is at {wait_until:%H:%M:%S} UTC.")
    return Decision(why, request)


def quota(
    layout: Layout,
    jobs: Jobs,
    home: Home,
    clock: Callable[[], datetime],
    service_now: Callable[[], datetime],
) -> dg.SensorDefinition:
    """Return the sensor that resumes deferred work.

    Deferrals are by `service_now`; runs and attempts are by `clock`.
    """

    @dg.sensor(
        name=layout.name("quota"),
        jobs=[jobs.daily, jobs.calendar],
        minimum_interval_seconds=EVERY_S,
        description="Resumes pulls and backfills that were deferred by the quota or the service.",
        default_status=layout.sensor_status("quota"),
    )
    def sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        at_service, state = service_now(), Storage(home.state)
        decision = decide_resume(
            layout,
            DeferredPulls(state).all(),
            BackfillStates(state, home.landing).open(at_service),
            at_service,
            now=clock(),
            running=run_in_progress(context.instance, layout.names(DAILY, CALENDAR)),
            last=partial(last_runs, context.instance),
        )
        return decision.result(context)

    return sensor


def cancellations(
    layout: Layout,
    home: Home,
    clock: Callable[[], datetime],
    service_now: Callable[[], datetime],
) -> dg.SensorDefinition:
    """Return the sensor that requests overdue cancellations; clocks as in `quota`."""

    @dg.sensor(
        name=layout.name("cancellations"),
        job_name=layout.name(POLL),
        minimum_interval_seconds=EVERY_S * 2,
        description="Requests a pull of the cancellations if there was none for two days; after 90 "
        "days some are lost.",
        default_status=layout.sensor_status("cancellations"),
    )
    def sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        if home.stamp() is None:
            return Decision("Nothing was pulled yet. Run: almanac run.").result(context)
        at_service = service_now()
        decision = decide_cancellations(
            layout,
            cancellations_pulled_at(home, at_service),
            at_service,
            now=clock(),
            running=run_in_progress(context.instance, layout.names(POLL, DAILY)),
            last=last_runs(context.instance, layout.name(POLL)),
        )
        return decision.result(context)

    return sensor


def decide_cancellations(
    layout: Layout,
    pulled_at: datetime | None,
    at_service: datetime,
    *,
    now: datetime,
    running: str | None,
    last: LastRuns,
) -> Decision:
    """Decide whether to request the cancellations; clocks as in `decide_resume`."""
    if pulled_at is not None and at_service - pulled_at < PULLED_WITHIN:
        return Decision(f"Pulled at {pulled_at:%Y-%m-%d %H:%M} UTC; no new pull needed yet.")
    if running is not None:
        return Decision(f"Run {running[:8]} is pulling. Next decision after that run.")
    since = None if pulled_at is None else pulled_at - timedelta(days=1)
    # It counts as a daily pull, which it replaces: polls may have no quota left.
    config = PollConfig(since="" if since is None else since.isoformat(), as_daily=True)
    request = dg.RunRequest(
        run_key=_key("cancellations", now),
        run_config=poll_run_config(layout, config),
        asset_selection=[layout.key(POLLED["cancellations"])],
    )
    return _unless_too_early(request, "The pull failed", last, now)


def cancellations_pulled_at(home: Home, now: datetime) -> datetime | None:
    """Return the time of the last complete pull of cancellations, None for none in 100 days."""
    landing = home.landing
    for day in reversed(landing.days(since=(now - _SEARCHED).date())):
        for batch_id in reversed(landing.batch_ids(day=day)):
            if "-cancellations-" in batch_id:
                found, _ = landing.readable([batch_id])
                if found and found[0].complete:
                    return found[0].observed_at
    return None


def _next_attempt_at(last: LastRuns) -> datetime | None:
    """Return the time of the next attempt. After a success there is a wait too, since the same work
    may be left undone again."""
    if last.newest_at is None:
        return None
    return last.newest_at + doubled(_FIRST_WAIT, last.failures, longest=_LONGEST_WAIT)


def _resume_request(layout: Layout, backfill: BackfillState, key: str) -> dg.RunRequest:
    """Return the run that resumes a backfill."""
    lower, upper = backfill.scope.lower, backfill.scope.upper
    assert lower is not None and upper is not None
    months = EVENT_MONTHS.get_partition_keys()
    # `begin` and `end` give dates beyond the partitions; a run needs some partition all the same.
    first, last = (
        min(max(month_key(month_start(at)), months[0]), months[-1]) for at in (lower, upper)
    )
    config: dict[str, Any] = {
        "begin": lower.date().isoformat(),
        "end": upper.date().isoformat(),
        "source": backfill.by,
        "max_requests": 1_000_000,
    }
    return dg.RunRequest(
        run_key=key,
        job_name=layout.name(CALENDAR),
        run_config={"ops": {layout.name(LANDED_CALENDAR): {"config": config}}},
        tags={
            "dagster/asset_partition_range_start": first,
            "dagster/asset_partition_range_end": last,
        },
    )
