"""The sensor of deliveries that wait in the inbox. It reads one row of each file of the inbox.

While deliveries wait, it requests a run that lands them as a batch of the day, merges and
publishes. Deliveries that arrive during a run wait for the next one.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

import dagster as dg

from assets.layout import Layout
from pipeline.automation.jobs import DAILY, DELIVERIES, MERGE
from pipeline.automation.runs import Decision, SensorState, doubled, run_in_progress
from resources.inbox.landing import Waiting, waiting_deliveries
from warehouse.errors import InboxUnusable
from warehouse.home import Home

EVERY_S: Final = 15
_BEFORE_MIDNIGHT: Final = timedelta(minutes=1)
_FIRST_WAIT: Final = timedelta(minutes=1)
_LONGEST_WAIT: Final = timedelta(hours=1)


class DeliveryState(SensorState, frozen=True, kw_only=True):
    """The last run that was requested: when, its number of attempts, the number of requests so far.

    `landed_to` is up to where deliveries were landed then: as long as that is so and some wait, it
    failed.
    """

    requests: int = 0
    landed_to: int = -1
    attempt: int = 0
    at: datetime | None = None


def decide_deliveries(
    waiting: Waiting,
    state: DeliveryState,
    *,
    now: datetime,
    running: str | None,
    least_interval: timedelta,
    service_now: datetime,
) -> Decision:
    """Decide whether to request a run for the deliveries that wait.

    There is at most one run in `least_interval`; while none of them gets landed, the wait doubles.
    `running` is the id of a run that lands or merges. The partition of the run is the service's
    day; just before that ends none is requested, since a run lands on its day alone.
    """
    count = waiting.count
    if not count:
        rested = DeliveryState(requests=state.requests, at=state.at)
        return Decision(f"No delivery waits. Next check in {EVERY_S} s.", state=rested)
    words = "1 delivery waits" if count == 1 else f"{count:,} deliveries wait"
    if running is not None:
        return Decision(f"{words}; run {running[:8]} is in progress. Next check after it.")
    landed_to, attempt, wait = waiting.progress.landed_to, 1, least_interval
    if state.landed_to == landed_to:
        wait = max(least_interval, doubled(_FIRST_WAIT, state.attempt - 1, longest=_LONGEST_WAIT))
        attempt = state.attempt + 1
    if state.at is not None and now < state.at + wait:
        failed = f" attempt {state.attempt} landed none of them;" if attempt > 1 else ""
        return Decision(f"{words};{failed} the next run starts at {state.at + wait:%H:%M:%S} UTC.")
    today = service_now.date()
    if (service_now + _BEFORE_MIDNIGHT).date() != today:
        return Decision(f"{words}; the next run is one of the day that begins soon.")
    requests = state.requests + 1
    return Decision(
        f"{words}; requesting a run.",
        # A key that was used is never launched, and what waits may be the same after a replay.
        dg.RunRequest(
            run_key=f"{landed_to}-{waiting.last_seq}-{requests}", partition_key=today.isoformat()
        ),
        DeliveryState(requests=requests, landed_to=landed_to, attempt=attempt, at=now),
    )


def deliveries(
    layout: Layout,
    home: Home,
    clock: Callable[[], datetime],
    service_now: Callable[[], datetime],
    least_interval: timedelta,
) -> dg.SensorDefinition:
    """Return the sensor. Attempts are by `clock`, the day of a run is the service's."""

    @dg.sensor(
        name=layout.name("deliveries"),
        job_name=layout.name(DELIVERIES),
        minimum_interval_seconds=EVERY_S,
        description="Requests a run that lands and merges the webhook deliveries in the inbox.",
        default_status=layout.sensor_status("deliveries"),
    )
    def sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        try:
            waiting = waiting_deliveries(home)
        except InboxUnusable as error:
            return Decision(str(error)).result(context)
        running = None
        if waiting.count:
            names = layout.names(DELIVERIES, MERGE, DAILY)
            running = run_in_progress(context.instance, names)
        decision = decide_deliveries(
            waiting,
            DeliveryState.of_cursor(context.cursor),
            now=clock(),
            running=running,
            least_interval=least_interval,
            service_now=service_now(),
        )
        return decision.result(context)

    return sensor
