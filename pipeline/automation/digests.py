"""The sensor of the daily digest, and the job that posts it.

The sensor reads only local state and sends nothing. `state/digest.json` has the end of the last
digest, so that a missed day is in the next one and none is posted twice. The job reads the
published file, so that its config has neither the digest nor the address.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

import dagster as dg

from assets.layout import Layout
from pipeline.automation.alerts import EVERY_S, decide_post, posting_job
from pipeline.automation.jobs import DAILY, MERGE
from pipeline.automation.run_decisions import (
    Decision,
    JobHistory,
    find_last_end,
    find_run_in_progress,
    read_job_history,
)
from pipeline.health.digests import PostedDigest, last_posted, post_digest
from pipeline.settings import Settings
from warehouse.home import Home
from warehouse.news import quiet_batches

DIGEST: Final = "digest"
LEAST_INTERVAL: Final = timedelta(hours=20)
"""Less than a day, since the daily run does not end at the same time each day."""
_NEXT: Final = f"Next check in {EVERY_S // 60} min."


def digest_job(
    layout: Layout,
    settings: Settings,
    home: Home,
    clock: Callable[[], datetime],
    *,
    retry_wait_s: float = 20.0,
) -> dg.JobDefinition:
    """Return the job. After its retries it fails, and the sensor requests another run."""

    def post() -> str:
        posted = post_digest(settings, home, clock())
        if posted is None:
            return "nothing, no pull was published since the last digest"
        return f"{posted.since:%Y-%m-%d %H:%M} to {posted.until:%Y-%m-%d %H:%M}: {posted.summary}"

    return posting_job(
        layout,
        DIGEST,
        home,
        post,
        op="post_digest",
        does="Posts what became known since the last digest, and records its end.",
        summary="DeliveryPoster the digest to ALMANAC_DIGEST_URL. Sends no request to the service.",
        retry_wait_s=retry_wait_s,
    )


def decide_digest(
    posted: PostedDigest | None,
    pulled_at: datetime | None,
    last: JobHistory,
    *,
    now: datetime,
    running: str | None,
    merging: bool,
) -> Decision:
    """Decide whether to request a run that posts the digest of the day.

    `pulled_at` is the end of the newest daily run, however it went; `merging` says that a run is in
    progress or a batch waits whose changes belong into the digest.
    """
    if pulled_at is None:
        return Decision(f"No daily run has ended yet. {_NEXT}")
    if posted is not None and pulled_at <= posted.at:
        return Decision(f"The digest of {posted.at:%Y-%m-%d %H:%M} UTC is newer. {_NEXT}")
    if posted is not None and now < posted.at + LEAST_INTERVAL:
        due_at = posted.at + LEAST_INTERVAL
        return Decision(f"One digest a day: the next is due at {due_at:%Y-%m-%d %H:%M} UTC.")
    if merging:
        return Decision(f"A run is in progress, or a batch is not merged yet. {_NEXT}")
    return decide_post("digest", last, now=now, running=running)


def digest_sensors(
    layout: Layout, settings: Settings, home: Home, clock: Callable[[], datetime]
) -> list[dg.SensorDefinition]:
    """Return the sensor of the digest, or none without an address to post to."""
    return [digest_sensor(layout, settings, home, clock)] if settings.digests else []


def digest_sensor(
    layout: Layout, settings: Settings, home: Home, clock: Callable[[], datetime]
) -> dg.SensorDefinition:
    """Return the sensor that requests a run to post the digest after a daily run, with its job."""

    @dg.sensor(
        name=layout.name("digest"),
        job=digest_job(layout, settings, home, clock),
        minimum_interval_seconds=EVERY_S,
        description="Once a day, after the daily run, requests a run that posts what became known "
        "since the last digest.",
        default_status=layout.sensor_status("digest"),
    )
    def sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        instance = context.instance
        merging = find_run_in_progress(instance, layout.names(DAILY, MERGE)) is not None
        decision = decide_digest(
            last_posted(home.state),
            find_last_end(instance, layout.name(DAILY)),
            read_job_history(instance, layout.name(DIGEST)),
            now=clock(),
            running=find_run_in_progress(instance, layout.names(DIGEST)),
            merging=merging or _has_news_to_merge(home),
        )
        return decision.result(context)

    return sensor


def _has_news_to_merge(home: Home) -> bool:
    """Whether a batch waits to be merged; one without news may wait for a day, and adds nothing."""
    pending = home.landing.pending()
    return len(quiet_batches(home, pending)) < len(pending)
