"""The sensors that see to what was put off, and to cancellations that nobody looked at.

`quota` goes on with looks and backfills once the quota is there again, or the service's wait is
over. `cancellations` asks for a look when there was none for days, whatever the polls do: after 90
days some are lost. Local state alone is read.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any, Final

import dagster as dg

from assets.calendar import EVENT_MONTHS
from pipeline.automation.jobs import CALENDAR, DAILY, calendar_job, daily_job
from pipeline.automation.polls import POLL, config_of
from pipeline.automation.runs import LastRuns, doubled, last_runs, under_way
from pipeline.polling.plan import CancellationsPull
from resources.backfill.state import BackfillState, BackfillStates
from resources.deferrals import DeferredPull, DeferredPulls
from resources.ingest.scopes import month_key, month_start
from warehouse.files.storage import Storage
from warehouse.home import Home

EVERY_S: Final = 60
UNWATCHED: Final = timedelta(days=2)
"""The day's look brings them every day; after two without one the look itself is ill."""
ABANDONED: Final = timedelta(days=7)
"""What could have gone on for so long and did not is left to a person; `status` shows it."""
_LOOKED_BACK: Final = timedelta(days=100)
_FIRST_WAIT: Final = timedelta(minutes=10)
_LONGEST_WAIT: Final = timedelta(hours=6)


@dataclass(frozen=True, slots=True)
class ResumeDecision:
    """What to ask for now: a day's look, or the rest of a sweep; neither is nothing."""

    said: str
    day: date | None = None
    sweep: BackfillState | None = None


def decide_resume(
    deferrals: Sequence[DeferredPull],
    sweeps: Sequence[BackfillState],
    now: datetime,
    *,
    running: str | None,
) -> ResumeDecision:
    """Decide what to go on with. Polls need nothing: what they lack is due in their own plan."""
    daily = [one for one in deferrals if one.work == "daily" and now - one.resume_at < ABANDONED]
    waiting = [
        one for one in sweeps if one.resume_at is not None and now - one.resume_at < ABANDONED
    ]
    if not daily and not waiting:
        return ResumeDecision("Nothing is put off.")
    if running is not None:
        return ResumeDecision(f"Run {running[:8]} is under way. Deciding again after it.")
    for look in daily:
        if look.resume_at <= now:
            return ResumeDecision(
                f"the look at {look.feed} was put off: {look.why}", day=now.date()
            )
    for sweep in waiting:
        if sweep.resume_at is not None and sweep.resume_at <= now:
            return ResumeDecision(f"a backfill was put off: {sweep.why}", sweep=sweep)
    times = [one.resume_at for one in daily] + [one.resume_at for one in waiting if one.resume_at]
    return ResumeDecision(
        f"{len(times)} put off; the first goes on at {min(times):%Y-%m-%d %H:%M} UTC."
    )


def quota(
    home: Home, clock: Callable[[], datetime], service_now: Callable[[], datetime]
) -> dg.SensorDefinition:
    """Return the sensor that goes on with what was put off.

    By `service_now` is told what is put off until when; by `clock`, as runs are, the next try.
    """

    @dg.sensor(
        name="quota",
        jobs=[daily_job, calendar_job],
        minimum_interval_seconds=EVERY_S,
        description="Goes on with looks and backfills that the quota, or the service, put off.",
        default_status=dg.DefaultSensorStatus.RUNNING,
    )
    def sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        now, at_service, state = clock(), service_now(), Storage(home.state)
        later = decide_resume(
            DeferredPulls(state).all(),
            BackfillStates(state, home.landing).open(at_service),
            at_service,
            running=under_way(context.instance, (DAILY, CALENDAR)),
        )
        if later.day is None and later.sweep is None:
            return dg.SkipReason(later.said)
        job_name = DAILY if later.day is not None else CALENDAR
        wait_until = _again_at(last_runs(context.instance, job_name))
        if wait_until is not None and now < wait_until:
            return dg.SkipReason(f"{later.said}; the next try is at {wait_until:%H:%M:%S} UTC.")
        key = f"{job_name}-{now:%Y%m%dT%H%M%S}"
        if later.sweep is not None:
            return dg.SensorResult(run_requests=[_rest_of(later.sweep, key)])
        day = at_service.date().isoformat()
        return dg.SensorResult(
            run_requests=[dg.RunRequest(run_key=key, job_name=DAILY, partition_key=day)]
        )

    return sensor


def cancellations(
    home: Home, clock: Callable[[], datetime], service_now: Callable[[], datetime]
) -> dg.SensorDefinition:
    """Return the sensor that sees to it that cancellations are looked at; clocks as `quota`."""

    @dg.sensor(
        name="cancellations",
        job_name=POLL,
        minimum_interval_seconds=EVERY_S * 10,
        description="Asks for a look at the cancellations when there was none for two days; after "
        "90 days some are lost.",
        default_status=dg.DefaultSensorStatus.RUNNING,
    )
    def sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        now, at_service = clock(), service_now()
        if home.stamp() is None:
            return dg.SkipReason("Nothing was looked at yet: almanac run.")
        looked_at = cancellations_looked_at(home, at_service)
        if looked_at is not None and at_service - looked_at < UNWATCHED:
            return dg.SkipReason(f"Looked at {looked_at:%Y-%m-%d %H:%M} UTC, which is enough.")
        running = under_way(context.instance, (POLL, DAILY))
        if running is not None:
            return dg.SkipReason(f"Run {running[:8]} is looking. Deciding again after it.")
        wait_until = _again_at(last_runs(context.instance, POLL))
        if wait_until is not None and now < wait_until:
            return dg.SkipReason(f"Looking failed; the next try is at {wait_until:%H:%M:%S} UTC.")
        since = None if looked_at is None else looked_at - timedelta(days=1)
        # As a daily look, which it stands in for: polls may have no share left.
        config = config_of([CancellationsPull(since)], as_daily=True)
        key = f"cancellations-{now:%Y%m%dT%H%M%S}"
        return dg.SensorResult(run_requests=[dg.RunRequest(run_key=key, run_config=config)])

    return sensor


def cancellations_looked_at(home: Home, now: datetime) -> datetime | None:
    """Return when the cancellations were last looked at in full, None for not in 100 days."""
    landing = home.landing
    for day in reversed(landing.days(since=(now - _LOOKED_BACK).date())):
        for batch_id in reversed(landing.batch_ids(day=day)):
            if "-cancellations-" in batch_id:
                found, _ = landing.readable([batch_id])
                if found and found[0].complete:
                    return found[0].observed_at
    return None


def _again_at(last: LastRuns) -> datetime | None:
    """Return when to ask again. Also after a success: what it left undone it may leave again."""
    if last.newest_at is None:
        return None
    return last.newest_at + doubled(_FIRST_WAIT, last.failures, longest=_LONGEST_WAIT)


def _rest_of(sweep: BackfillState, key: str) -> dg.RunRequest:
    """Return the run that lands what a sweep lacks."""
    lower, upper = sweep.scope.lower, sweep.scope.upper
    assert lower is not None and upper is not None
    months = EVENT_MONTHS.get_partition_keys()
    # Dates beyond the partitions are told by `begin` and `end`; some month there has to be.
    first, last = (
        min(max(month_key(month_start(at)), months[0]), months[-1]) for at in (lower, upper)
    )
    config: dict[str, Any] = {
        "begin": lower.date().isoformat(),
        "end": upper.date().isoformat(),
        "source": sweep.by,
        "max_requests": 1_000_000,
    }
    return dg.RunRequest(
        run_key=key,
        job_name=CALENDAR,
        run_config={"ops": {"landed_calendar": {"config": config}}},
        tags={
            "dagster/asset_partition_range_start": first,
            "dagster/asset_partition_range_end": last,
        },
    )
