"""The sensor of polls: it asks for a run when the planner says that something is due.

What is due follows from what is landed, so that nothing is asked for twice, whatever becomes of
the daemon or of a run; only when it asked last is kept in the cursor. Local state alone is read.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import dagster as dg
import msgspec

from pipeline.in_flight import LastRuns, doubled, last_runs, under_way
from pipeline.jobs import DAILY
from pipeline.poll_facts import PollFacts
from pipeline.poll_job import POLL, config_of
from pipeline.poll_plan import Known, PollPlan, Pull
from pipeline.poll_planner import plan_polls
from resources.deferrals import Deferrals
from warehouse.errors import WarehouseError
from warehouse.home import Home
from warehouse.storage import Storage

EVERY_S: Final = 60
_FIRST_WAIT: Final = timedelta(minutes=2)
_LONGEST_WAIT: Final = timedelta(hours=6)


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What the sensor remembers: when it asked last."""

    at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """What to do now: run what is `due`, or nothing, and `said` tells why and what comes next."""

    said: str
    due: tuple[Pull, ...] = ()


def decide(
    known: Known | None,
    asked: Asked,
    last: LastRuns,
    *,
    running: str | None,
    wait_until: datetime | None = None,
    ahead: timedelta = timedelta(0),
) -> Verdict:
    """Decide whether to ask for a poll, and of what.

    At most one in the least interval; after a failure the wait doubles. While a poll or the day's
    look is under way nothing is asked for: what it lands is not due any more. Nor before
    `wait_until`, where the service or the quota put a poll off. `known` and `wait_until` are by the
    service's clock, which is `ahead` of the machine's, and so of what was asked and of runs.
    """
    if known is None:
        return Verdict("Nothing was looked at yet, and the plan is not known: almanac run.")
    if wait_until is not None and known.now < wait_until:
        return Verdict(f"Put off by the service until {wait_until:%Y-%m-%d %H:%M:%S} UTC.")
    if running is not None:
        return Verdict(f"Run {running[:8]} is looking. Deciding again after it.")
    plan = plan_polls(known)
    if not plan.due:
        return Verdict(f"Nothing is due. {_next(plan)}")
    newest = max((at for at in (asked.at, last.newest_at) if at is not None), default=None)
    if newest is not None:
        newest += ahead
        again_at = newest + known.least_interval
        if last.failures:
            wait = doubled(_FIRST_WAIT, last.failures - 1, longest=_LONGEST_WAIT)
            again_at = max(again_at, newest + wait)
        if known.now < again_at:
            why = f"{last.failures} polls failed; " if last.failures else ""
            return Verdict(f"{why}the next one is at {again_at:%H:%M:%S} UTC at the earliest.")
    requests = sum(pull.requests for pull in plan.due)
    return Verdict(f"{len(plan.due)} looks are due, {requests} requests.", plan.due)


def polls(facts: PollFacts, clock: Callable[[], datetime]) -> dg.SensorDefinition:
    """Return the sensor that has the catalog looked at again within the day."""

    @dg.sensor(
        name="polls",
        job_name=POLL,
        minimum_interval_seconds=EVERY_S,
        description="Asks for a look at what is due by the poll plan (almanac budget): near events "
        "more often than far ones, cancellations, vanished events.",
        default_status=dg.DefaultSensorStatus.RUNNING,
    )
    def sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        now, asked = clock(), _remembered(context.cursor)
        try:
            known = facts.known(now)
        except WarehouseError as error:
            return dg.SensorResult(skip_reason=str(error), cursor=context.cursor)
        verdict = decide(
            known,
            asked,
            last_runs(context.instance, POLL),
            running=under_way(context.instance, (POLL, DAILY)),
            wait_until=_put_off(facts.home),
            ahead=timedelta(0) if known is None else known.now - now,
        )
        if not verdict.due:
            return dg.SensorResult(skip_reason=verdict.said, cursor=context.cursor)
        request = dg.RunRequest(
            run_key=f"poll-{now:%Y%m%dT%H%M%S}", run_config=config_of(verdict.due)
        )
        return dg.SensorResult(
            run_requests=[request], cursor=msgspec.json.encode(Asked(at=now)).decode()
        )

    return sensor


def _put_off(home: Home) -> datetime | None:
    polls = (one for one in Deferrals(Storage(home.state)).all() if one.work == "polls")
    return max((one.resume_at for one in polls), default=None)


def _remembered(cursor: str | None) -> Asked:
    try:
        return msgspec.json.decode(cursor or "{}", type=Asked)
    except msgspec.MsgspecError:
        return Asked()


def _next(plan: PollPlan) -> str:
    return f"The next look is due at {plan.next_at:%Y-%m-%d %H:%M:%S} UTC."
