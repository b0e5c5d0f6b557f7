"""The sensor of warnings, and the job that posts warnings that began or ended.

The sensor reads only local state and sends nothing. `state/alerts.json` records what was posted, so
the sensor needs no cursor, and a restarted daemon posts nothing twice. The job determines the
warnings again, so that its config has neither warnings nor the address.
"""

import hashlib
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

import dagster as dg

from assets.layout import Layout
from pipeline.automation.run_decisions import (
    Decision,
    JobHistory,
    double_wait,
    find_run_in_progress,
    read_job_history,
)
from pipeline.health.alerts import ALERT, Alerts, Changes, find_warnings, post_changes
from pipeline.hooks import NotPosted
from pipeline.retention import owner_tags
from pipeline.runs.presence import announce
from pipeline.settings import Settings, SettingsError
from warehouse.errors import WarehouseError
from warehouse.home import Home

_RETRIES: Final = 3
_RETRY_WAIT_S: Final = 20.0


def alert_job(
    layout: Layout,
    settings: Settings,
    home: Home,
    clock: Callable[[], datetime],
    *,
    retry_wait_s: float = _RETRY_WAIT_S,
) -> dg.JobDefinition:
    """Return the job. After its retries it fails, and the sensor requests another run."""

    def post() -> str:
        changes = post_changes(settings, home, clock())
        return " ".join(changes.kinds) or "nothing, all was posted before"

    return posting_job(
        layout,
        ALERT,
        home,
        post,
        op="post_warnings",
        does="Posts warnings that began or ended, and records that they were posted.",
        summary="DeliveryPoster warnings to ALMANAC_ALERT_URL. Sends no request to the service.",
        retry_wait_s=retry_wait_s,
    )


def posting_job(
    layout: Layout,
    name: str,
    home: Home,
    post: Callable[[], str],
    *,
    op: str,
    does: str,
    summary: str,
    retry_wait_s: float = _RETRY_WAIT_S,
) -> dg.JobDefinition:
    """Return a job of one op that posts, and logs what `post` returns.

    A receiver that is down is retried. Settings or files that can't be used fail the run at once.
    """

    @dg.op(
        name=layout.name(op),
        description=does,
        retry_policy=dg.RetryPolicy(
            max_retries=_RETRIES, delay=retry_wait_s, backoff=dg.Backoff.EXPONENTIAL
        ),
    )
    def posted(context: dg.OpExecutionContext) -> None:
        announce(home, context.run_id)
        try:
            what = post()
        except NotPosted as error:
            raise dg.Failure(str(error)) from error
        except (SettingsError, WarehouseError) as error:
            raise dg.Failure(str(error), allow_retries=False) from error
        context.log.info("Posted: %s", what)

    @dg.job(
        name=layout.name(name),
        description=summary,
        executor_def=dg.in_process_executor,
        tags=owner_tags(layout.key_prefix, layout.name_prefix),
    )
    def job() -> None:
        posted()

    return job


EVERY_S: Final = 300
_FIRST_WAIT: Final = timedelta(seconds=EVERY_S)
_LONGEST_WAIT: Final = timedelta(hours=1)


def decide_alert(due: Changes, last: JobHistory, *, now: datetime, running: str | None) -> Decision:
    """Decide whether to request a run that posts; `decide_post` has the rules."""
    if not due:
        return Decision(f"Nothing new to post. Next check in {EVERY_S // 60} min.")
    return decide_post(" ".join(due.kinds), last, now=now, running=running)


def decide_post(what: str, last: JobHistory, *, now: datetime, running: str | None) -> Decision:
    """Decide whether to request a run that posts `what`.

    After a failed run the wait doubles. The run key has what is posted, the attempt and the time:
    Dagster never launches a used key, and the same warnings may begin again on another day.
    """
    if running is not None:
        return Decision(f"{what}: run {running[:8]} posts it. Next check after that run.")
    if last.failures and last.newest_at is not None:
        wait = double_wait(_FIRST_WAIT, last.failures - 1, longest=_LONGEST_WAIT)
        if now < last.newest_at + wait:
            return Decision(
                f"{what}: the last {last.failures} runs could not post it. The next run is at "
                f"{last.newest_at + wait:%H:%M:%S} UTC; the page of the run shows the reason."
            )
    digest = hashlib.sha256(what.encode()).hexdigest()[:12]
    key = f"{digest}-{last.failures + 1}-{now:%Y%m%dT%H%M%S}"
    return Decision(f"{what}: requesting a run.", dg.RunRequest(run_key=key))


def alert_sensors(
    layout: Layout, settings: Settings, home: Home, clock: Callable[[], datetime]
) -> list[dg.SensorDefinition]:
    """Return the sensor of warnings, or none without an address to post to."""
    return [alerts_sensor(layout, settings, home, clock)] if settings.alerts else []


def alerts_sensor(
    layout: Layout, settings: Settings, home: Home, clock: Callable[[], datetime]
) -> dg.SensorDefinition:
    """Return the sensor that requests a run to post new warnings, with its job."""

    @dg.sensor(
        name=layout.name("alerts"),
        job=alert_job(layout, settings, home, clock),
        minimum_interval_seconds=EVERY_S,
        description="Requests a run when a warning of almanac status begins, has lasted another "
        "day, or ends.",
        default_status=layout.sensor_status("alerts"),
    )
    def sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        now = clock()
        decision = decide_alert(
            Alerts(home.state).due(find_warnings(settings, home, now), now=now),
            read_job_history(context.instance, layout.name(ALERT)),
            now=now,
            running=find_run_in_progress(context.instance, layout.names(ALERT)),
        )
        return decision.result(context)

    return sensor
