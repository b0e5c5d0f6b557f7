"""The sensor of the first daily pull: a new deployment does not wait for the next 00:20.

It requests the pull of today once, unless that day is landed already, and then leaves the days to
the schedule. It reads only local state. Belongs here also: whether a day was pulled.
"""

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import Final

import dagster as dg

from assets.layout import Layout
from catalog.contract.plans import PLANS
from pipeline.automation.jobs import DAILY, EXPORT_IS_OUT_AT, Jobs
from pipeline.automation.runs import (
    Decision,
    LastRuns,
    SensorState,
    doubled,
    last_runs,
    run_in_progress,
    run_succeeded,
)
from warehouse.home import Home

NAME: Final = "first_pull"
EVERY_S: Final = 600
_FIRST_WAIT: Final = timedelta(minutes=10)
_LONGEST_WAIT: Final = timedelta(hours=6)


class FirstPullState(SensorState, frozen=True, kw_only=True):
    """Whether the first pull is done, and how often it was requested."""

    is_done: bool = False
    attempts: int = 0


def decide_first_pull(
    at_service: datetime,
    state: FirstPullState,
    *,
    now: datetime,
    was_pulled: bool,
    running: str | None,
    last: LastRuns,
) -> Decision:
    """Decide whether to request the pull of the service's day.

    The day is by the service's clock (`at_service`), runs are by the machine's (`now`). The run key
    is that of the attempt, so that two daemons that decide at once request one run.
    """
    day = at_service.date()
    if state.is_done or was_pulled:
        done = FirstPullState(is_done=True, attempts=state.attempts)
        return Decision("Done: the schedule pulls each day.", state=done)
    if at_service < datetime.combine(day, EXPORT_IS_OUT_AT, UTC):
        return Decision(f"The schedule pulls {day} at {EXPORT_IS_OUT_AT:%H:%M} UTC.")
    if running is not None:
        return Decision(f"Run {running[:8]} is in progress. Next decision after that run.")
    if state.attempts and last.newest_at is not None:
        wait = doubled(_FIRST_WAIT, max(last.failures - 1, 0), longest=_LONGEST_WAIT)
        if now < last.newest_at + wait:
            return Decision(
                f"The first pull failed; the next attempt is at {last.newest_at + wait:%H:%M} UTC. "
                "The page of the run shows the reason."
            )
    attempts = state.attempts + 1
    return Decision(
        f"Nothing was pulled on {day} yet; requesting the pull.",
        dg.RunRequest(run_key=f"{day}-{attempts}", partition_key=day.isoformat()),
        FirstPullState(attempts=attempts),
    )


def first_pull(
    layout: Layout,
    jobs: Jobs,
    home: Home,
    clock: Callable[[], datetime],
    service_now: Callable[[], datetime],
) -> dg.SensorDefinition:
    """Return the sensor that requests the first daily pull of a deployment."""

    @dg.sensor(
        name=layout.name(NAME),
        job=jobs.daily,
        minimum_interval_seconds=EVERY_S,
        description="Requests the pull of today at the first start, if that day is not landed. "
        "From then on the daily schedule pulls.",
        default_status=layout.sensor_status(NAME),
    )
    def sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        at_service, state = service_now(), FirstPullState.of_cursor(context.cursor)
        job, day = layout.name(DAILY), at_service.date()
        decision = decide_first_pull(
            at_service,
            state,
            now=clock(),
            was_pulled=not state.is_done
            and (pulled(home, day) or run_succeeded(context.instance, job, day)),
            running=run_in_progress(context.instance, [job]),
            last=last_runs(context.instance, job),
        )
        return decision.result(context)

    return sensor


def pulled(home: Home, day: date) -> bool:
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
