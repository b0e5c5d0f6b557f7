"""The sensors that request merges: of landed batches, and of deliveries in the inbox.

Both read local state and run records alone, and call a plain `decide_…` function.
"""

import hashlib
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Final

import dagster as dg

from assets.layout import Layout
from pipeline.automation.jobs import DAILY, DELIVERIES, MERGE
from pipeline.automation.run_decisions import (
    Decision,
    SensorState,
    double_wait,
    find_instance,
    find_run_in_progress,
)
from warehouse.home import Home
from warehouse.landing.inbox import Inbox

_FIRST_WAIT: Final = timedelta(minutes=1)
_LONGEST_WAIT: Final = timedelta(hours=1)
_BEFORE_MIDNIGHT: Final = timedelta(minutes=1)


class MergeState(SensorState, frozen=True, kw_only=True):
    """The batches for which a merge was requested, the number of requests, and the last time."""

    waiting: str = ""
    attempt: int = 0
    at: datetime | None = None


def merge_sensor(layout: Layout, home: Home, clock: Callable[[], datetime]) -> dg.SensorDefinition:
    """Return the sensor that requests the merge and publication of landed batches.

    Landing leaves a marker of each batch.
    """

    @dg.sensor(
        name=layout.name("unmerged_batches"),
        job_name=layout.name(MERGE),
        minimum_interval_seconds=30,
        description="Requests a merge while landed batches are not merged.",
        default_status=layout.sensor_status("unmerged_batches"),
    )
    def sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        return decide_merge(
            home.landing.pending(),
            MergeState.from_cursor(context.cursor),
            now=clock(),
            running=find_run_in_progress(
                find_instance(context), layout.names(MERGE, DAILY, DELIVERIES)
            ),
        ).result(context)

    return sensor


def decide_merge(
    pending: Sequence[str], state: MergeState, *, now: datetime, running: str | None
) -> Decision:
    """Decide whether to request a merge of the pending batches.

    A merge of the same batches is requested again after a wait that doubles, each time with a new
    run key, since Dagster never launches a used one. `running` is the id of a run that merges.
    """
    if not pending:
        return Decision("Nothing to merge.", state=MergeState())
    count = "1 batch waits" if len(pending) == 1 else f"{len(pending)} batches wait"
    if running is not None:
        reason = f"{count}; run {running[:8]} merges. Next check after that run."
        return Decision(reason, state=state)
    waiting = hashlib.sha256("/".join(pending).encode()).hexdigest()[:12]
    attempt = 1
    if waiting == state.waiting and state.at is not None:
        next_at = state.at + double_wait(_FIRST_WAIT, state.attempt - 1, longest=_LONGEST_WAIT)
        if now < next_at:
            return Decision(
                f"{count}; attempt {state.attempt} failed to merge. The next one is at "
                f"{next_at:%H:%M:%S} UTC; the run's page shows the reason.",
                state=state,
            )
        attempt = state.attempt + 1
    return Decision(
        f"{count}; requesting a merge.",
        dg.RunRequest(run_key=f"{waiting}-{attempt}"),
        MergeState(waiting=waiting, attempt=attempt, at=now),
    )


class DeliveryState(SensorState, frozen=True, kw_only=True):
    """The last requested run: its time, its number of attempts, the number of requests so far.

    `oldest` is the delivery that waited longest at that time. If it still waits, the run failed.
    """

    requests: int = 0
    oldest: str = ""
    attempt: int = 0
    at: datetime | None = None


def deliveries_sensor(
    layout: Layout, home: Home, clock: Callable[[], datetime], service_now: Callable[[], datetime]
) -> dg.SensorDefinition:
    """Return the sensor that requests a run while deliveries wait in the inbox.

    Attempts are timed by `clock`; the day of a run is the service's day.
    """

    @dg.sensor(
        name=layout.name("deliveries"),
        job_name=layout.name(DELIVERIES),
        minimum_interval_seconds=15,
        description="Requests a run that lands and merges the webhook deliveries in the inbox.",
        default_status=layout.sensor_status("deliveries"),
    )
    def sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        waiting, running = Inbox(home).names(), None
        if waiting:
            names = layout.names(DELIVERIES, MERGE, DAILY)
            running = find_run_in_progress(find_instance(context), names)
        return decide_deliveries(
            waiting,
            DeliveryState.from_cursor(context.cursor),
            now=clock(),
            running=running,
            service_now=service_now(),
        ).result(context)

    return sensor


def decide_deliveries(
    waiting: Sequence[str],
    state: DeliveryState,
    *,
    now: datetime,
    running: str | None,
    service_now: datetime,
) -> Decision:
    """Decide whether to request a run for the deliveries that wait.

    There is at most one run a minute. The wait doubles while no delivery is stored.
    `running` is the id of a run that lands or merges. The partition of the run is the service's
    day. No run is requested just before the day ends, since a run stores batches on its own day
    only.
    """
    if not waiting:
        rested = DeliveryState(requests=state.requests, at=state.at)
        return Decision("No delivery waits.", state=rested)
    words = "1 delivery waits" if len(waiting) == 1 else f"{len(waiting):,} deliveries wait"
    if running is not None:
        return Decision(f"{words}; run {running[:8]} is in progress. Next check after it.")
    attempt, wait = 1, _FIRST_WAIT
    if state.oldest == waiting[0]:
        attempt = state.attempt + 1
        wait = double_wait(_FIRST_WAIT, state.attempt - 1, longest=_LONGEST_WAIT)
    if state.at is not None and now < state.at + wait:
        failed = f" attempt {state.attempt} landed none of them;" if attempt > 1 else ""
        return Decision(f"{words};{failed} the next run starts at {state.at + wait:%H:%M:%S} UTC.")
    today = service_now.date()
    if (service_now + _BEFORE_MIDNIGHT).date() != today:
        return Decision(f"{words}; the next run belongs to the day that begins soon.")
    requests = state.requests + 1
    return Decision(
        f"{words}; requesting a run.",
        # Dagster never launches a used key.
        dg.RunRequest(run_key=f"{waiting[-1]}-{requests}", partition_key=today.isoformat()),
        DeliveryState(requests=requests, oldest=waiting[0], attempt=attempt, at=now),
    )
