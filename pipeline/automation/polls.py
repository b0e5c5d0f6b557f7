"""The sensor of polls, and the job that executes the due pulls of the planner.

Due pulls follow from landing, so a crash of the daemon or of a run repeats no request. The cursor
has only the time of the last run request. The sensor reads only local state.
"""

from collections.abc import Callable, Sequence
from datetime import date, datetime, timedelta
from typing import Final

import dagster as dg
from pydantic import Field

from assets.layout import Layout
from assets.metadata import log_problems, poll_metadata
from assets.partitions import CATALOG_POOL
from pipeline.automation.jobs import DAILY
from pipeline.automation.runs import (
    Decision,
    LastRuns,
    SensorState,
    doubled,
    last_runs,
    run_in_progress,
)
from pipeline.polling.inputs import PollFacts
from pipeline.polling.plan import CancellationsPull, EventsPull, PlannerInputs, PollPlan, Pull
from pipeline.polling.planner import plan_polls
from pipeline.retention.owned import owner_tags
from resources.deferrals import DeferredPulls, deferred_pull
from resources.errors import CatalogError, Defer
from resources.feeds import Poll, Pulled, poll
from resources.ingest.scopes import PollWindow
from resources.session import LazySession
from warehouse.batch_problems import problems_of_landed
from warehouse.errors import WarehouseError
from warehouse.files.storage import Storage
from warehouse.home import Home
from warehouse.landing.batches import Feed

POLL: Final = "poll"
OP: Final = "look_again"
_ASSETS: Final[dict[Feed, str]] = {
    "events": "landed_events",
    "cancellations": "landed_cancellations",
}
"""Single look-ups have no asset of their own; their batches are in landing like all others."""


class PollConfig(dg.Config):
    """The pulls of a run."""

    windows: list[list[str]] = Field(
        default=[],
        description=(
            "First and last event date of each window; without a last date, up to the end of "
            "the plan."
        ),
    )
    cancellations: bool = Field(default=False, description="Whether to pull them.")
    since: str = Field(
        default="", description="Cancellations since this instant; empty means 90 days ago."
    )
    event_ids: list[str] = Field(default=[], description="Events to look up by id.")
    as_daily: bool = Field(
        default=False, description="Whether it counts as a daily pull, with access to the reserve."
    )


def config_of(layout: Layout, due: Sequence[Pull], *, as_daily: bool = False) -> dict[str, object]:
    """Return the config of a run that executes the due pulls."""
    windows: list[list[str]] = []
    event_ids: list[str] = []
    cancellations, since = False, ""
    for pull in due:
        if isinstance(pull, EventsPull):
            windows.append(pull.window.texts())
        elif isinstance(pull, CancellationsPull):
            cancellations, since = True, "" if pull.since is None else pull.since.isoformat()
        else:
            event_ids += pull.event_ids
    config = {
        "windows": windows,
        "cancellations": cancellations,
        "since": since,
        "event_ids": event_ids,
        "as_daily": as_daily,
    }
    return {"ops": {layout.name(OP): {"config": config}}}


def poll_job(layout: Layout) -> dg.JobDefinition:
    """Return the job of one op that executes the pulls of its config."""

    @dg.op(
        name=layout.name(OP),
        description="Executes the pulls of the config, and lands the results.",
        pool=layout.name(CATALOG_POOL),
        required_resource_keys=layout.names("home", "catalog", "catalog_for_polls"),
        out=dg.Out(dg.Nothing),
    )
    def pull_op(context: dg.OpExecutionContext, config: PollConfig) -> None:
        pull_due(layout, context, config)

    @dg.job(
        name=layout.name(POLL),
        executor_def=dg.in_process_executor,
        description="Pulls what changes within a day: windows of event dates, cancellations, "
        "missing events. `almanac budget` shows when and why.",
        tags=owner_tags(layout),
    )
    def job() -> None:
        pull_op()

    return job


def pull_due(layout: Layout, context: dg.OpExecutionContext, config: PollConfig) -> None:
    """Execute the pulls of the config, and land the results.

    Raises:
        dg.Failure: a pull failed, for another reason than plan or quota.
    """
    home: Home = layout.resource(context, "home")
    deferrals = DeferredPulls(Storage(home.state))
    session: LazySession = layout.resource(
        context, "catalog" if config.as_daily else "catalog_for_polls"
    )
    try:
        service = session.service()
        deferrals.settle("polls", service.now())
        for pulled in poll(service, _poll_of(config)):
            _record_pull(layout, context, pulled, service.today(), home, session.quota_left)
            if pulled.deferred is None:
                deferrals.done("polls", pulled.feed)
            else:
                deferrals.note(deferred_pull("polls", pulled.feed, pulled.deferred, service.now()))
    except Defer as error:
        deferrals.note(deferred_pull("polls", "events", error, session.now()))
        context.log.warning("Deferred before it started: %s", error)
    except (CatalogError, WarehouseError) as error:
        raise dg.Failure(str(error), allow_retries=False) from error


def _poll_of(config: PollConfig) -> Poll:
    return Poll(
        windows=tuple(PollWindow.of_texts(*texts) for texts in config.windows),
        cancellations=config.cancellations,
        since=datetime.fromisoformat(config.since) if config.since else None,
        event_ids=tuple(config.event_ids),
    )


def _record_pull(
    layout: Layout,
    context: dg.OpExecutionContext,
    pulled: Pulled,
    today: date,
    home: Home,
    quota_left: int | None,
) -> None:
    log_problems(context.log, problems_of_landed(outcome.manifest for outcome in pulled.landed))
    metadata = poll_metadata(pulled, home.landing, day=today, quota_left=quota_left)
    asset = _ASSETS.get(pulled.feed)
    if asset is None or not pulled.landed:
        context.log.info(
            "%s: %s requests, %s", pulled.feed, pulled.requests, pulled.why_nothing or "landed"
        )
        return
    context.log_event(
        dg.AssetMaterialization(layout.key(asset), partition=today.isoformat(), metadata=metadata)
    )


EVERY_S: Final = 60
_FIRST_WAIT: Final = timedelta(minutes=2)
_LONGEST_WAIT: Final = timedelta(hours=6)


class PollState(SensorState, frozen=True, kw_only=True):
    """When a poll was last requested."""

    at: datetime | None = None


def decide_poll(
    layout: Layout,
    inputs: PlannerInputs | None,
    state: PollState,
    last: LastRuns,
    *,
    running: str | None,
    wait_until: datetime | None = None,
    ahead: timedelta = timedelta(0),
) -> Decision:
    """Decide whether to request a poll, and its pulls.

    There is at most one poll in the least interval; after a failure the wait doubles. None is
    requested while a poll or the daily pull is in progress, since what it lands is no longer due,
    nor before `wait_until`, if the service or the quota deferred a poll. `inputs` and `wait_until`
    are by the service's clock, which is `ahead` of the machine's; state and runs are by the
    machine's.
    """
    if inputs is None:
        return Decision("Nothing was pulled yet, and the plan is not known. Run: almanac run.")
    if wait_until is not None and inputs.now < wait_until:
        return Decision(f"Deferred by the service until {wait_until:%Y-%m-%d %H:%M:%S} UTC.")
    if running is not None:
        return Decision(f"Run {running[:8]} is pulling. Next decision after that run.")
    plan = plan_polls(inputs)
    if not plan.due:
        return Decision(f"Nothing is due. {_next_pull_text(plan)}")
    newest = max((at for at in (state.at, last.newest_at) if at is not None), default=None)
    if newest is not None:
        newest += ahead
        next_attempt_at = newest + inputs.least_interval
        if last.failures:
            wait = doubled(_FIRST_WAIT, last.failures - 1, longest=_LONGEST_WAIT)
            next_attempt_at = max(next_attempt_at, newest + wait)
        if inputs.now < next_attempt_at:
            why = f"{last.failures} polls failed; " if last.failures else ""
            return Decision(
                f"{why}the next one starts at {next_attempt_at:%H:%M:%S} UTC at the earliest."
            )
    requests = sum(pull.requests for pull in plan.due)
    now = inputs.now - ahead
    return Decision(
        f"{len(plan.due)} pulls are due, {requests} requests.",
        dg.RunRequest(run_key=f"poll-{now:%Y%m%dT%H%M%S}", run_config=config_of(layout, plan.due)),
        PollState(at=now),
    )


def polls(layout: Layout, facts: PollFacts, clock: Callable[[], datetime]) -> dg.SensorDefinition:
    """Return the sensor that requests polls between the daily pulls."""

    @dg.sensor(
        name=layout.name("polls"),
        job_name=layout.name(POLL),
        minimum_interval_seconds=EVERY_S,
        description="Requests the pulls that are due by the poll plan (almanac budget): near "
        "events more often than far ones, cancellations, missing events.",
        default_status=dg.DefaultSensorStatus.RUNNING,
    )
    def sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        now = clock()
        try:
            inputs = facts.inputs(now)
        except WarehouseError as error:
            return Decision(str(error)).result(context)
        decision = decide_poll(
            layout,
            inputs,
            PollState.of_cursor(context.cursor),
            last_runs(context.instance, layout.name(POLL)),
            running=run_in_progress(context.instance, layout.names(POLL, DAILY)),
            wait_until=_deferred_until(facts.home),
            ahead=timedelta(0) if inputs is None else inputs.now - now,
        )
        return decision.result(context)

    return sensor


def _deferred_until(home: Home) -> datetime | None:
    polls = (
        deferred
        for deferred in DeferredPulls(Storage(home.state)).all()
        if deferred.work == "polls"
    )
    return max((poll.resume_at for poll in polls), default=None)


def _next_pull_text(plan: PollPlan) -> str:
    return f"The next pull is due at {plan.next_at:%Y-%m-%d %H:%M:%S} UTC."
