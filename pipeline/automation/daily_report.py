"""The asset `daily_report`, its job, and the sensor that requests it once a day.

They exist only if ALMANAC_REPORT_DIR or ALMANAC_DIGEST_URL is set. The asset has no partitions:
each report continues where the one before ended, so that a day without a report is in the next.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Final

import dagster as dg

from almanac.digest import as_markdown
from almanac.errors import AlmanacError
from assets.layout import Layout, step_failure
from pipeline.automation.health import has_batches_to_merge
from pipeline.automation.jobs import DAILY, MERGE
from pipeline.automation.run_decisions import (
    Decision,
    JobHistory,
    find_instance,
    find_last_end,
    find_run_in_progress,
    read_job_history,
)
from pipeline.health.notices import NotPosted
from pipeline.report import post_digest, write_daily_report
from pipeline.retention import owner_tags
from pipeline.settings import Settings
from warehouse.errors import WarehouseError
from warehouse.home import Home
from warehouse.schema.tables import EVENT_VERSIONS, EVENTS

NAME: Final = "daily_report"
REPORT: Final = "report"
"""The name of the job and of the sensor."""
FIRST_RETRY: Final = timedelta(minutes=15)
LONGEST_RETRY: Final = timedelta(hours=12)
_EVERY_S: Final = 300
Clock = Callable[[], datetime]


def daily_report(layout: Layout, settings: Settings, clock: Clock) -> dg.AssetsDefinition:
    """Return the asset that writes a report, deletes the oldest ones, and posts the changes."""

    decorate: Callable[[Callable[..., Any]], dg.AssetsDefinition] = dg.asset(
        key=layout.key(NAME),
        deps=layout.keys([EVENTS.name, EVENT_VERSIONS.name]),
        description="What is coming, what changed since the last report, and data quality, as one "
        "HTML file in ALMANAC_REPORT_DIR. Posts the changes to ALMANAC_DIGEST_URL.",
        required_resource_keys=layout.names("home"),
        **layout.attributes(REPORT, {"html"}),
    )

    @decorate
    def asset(context: dg.AssetExecutionContext) -> dg.MaterializeResult[None]:
        home: Home = layout.resource(context, "home")
        metadata: dict[str, Any] = {}
        try:
            if settings.report_dir is not None:
                path, digest = write_daily_report(settings, home, clock())
                metadata |= {
                    "file": path.name,
                    "bytes": path.stat().st_size,
                    "changes": sum(section.changes for section in digest.sections),
                    "since": dg.MetadataValue.timestamp(digest.since),
                    "until": dg.MetadataValue.timestamp(digest.until),
                    "preview": dg.MetadataValue.md(as_markdown(digest)),
                }
            if settings.digests:
                metadata["posted"] = post_digest(settings, home, clock()) or "nothing new"
        except (AlmanacError, WarehouseError, OSError, NotPosted) as error:
            raise step_failure(error) from error
        return dg.MaterializeResult(metadata=metadata)

    return asset


def report_job(layout: Layout) -> Any:
    """Return the job that writes the report."""
    return dg.define_asset_job(
        layout.name(REPORT),
        selection=dg.AssetSelection.assets(layout.key(NAME)),
        description="Write and post the report of the day. The sensor `report` requests it after "
        "the daily run. Sends no request to the service.",
        executor_def=dg.in_process_executor,
        tags=owner_tags(layout.key_prefix, layout.name_prefix),
    )


def report_sensor(layout: Layout, home: Home, clock: Clock) -> dg.SensorDefinition:
    """Return the sensor that requests a report after each daily run."""

    @dg.sensor(
        name=layout.name(REPORT),
        job_name=layout.name(REPORT),
        minimum_interval_seconds=_EVERY_S,
        description="Requests the asset daily_report after the daily run.",
        default_status=layout.sensor_status(REPORT),
    )
    def sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        instance = find_instance(context)
        is_running = find_run_in_progress(instance, layout.names(DAILY, MERGE, REPORT)) is not None
        return decide_report(
            find_last_end(instance, layout.name(DAILY)),
            read_job_history(instance, layout.name(REPORT)),
            now=clock(),
            merging=is_running or has_batches_to_merge(home),
        ).result(context)

    return sensor


def decide_report(
    pulled_at: datetime | None, history: JobHistory, *, now: datetime, merging: bool
) -> Decision:
    """Return whether a report is due.

    `pulled_at` is the end of the newest daily run, whatever its outcome; `history` is of the job
    `report`; `merging` says that a run is in progress, or a batch waits whose changes belong to it.
    """
    if pulled_at is None:
        return Decision("No daily run has ended yet.")
    newest = history.newest_at
    if newest is not None and pulled_at <= newest and not history.failures:
        return Decision(f"The report of {newest:%Y-%m-%d %H:%M} UTC is newer than the daily run.")
    if merging:
        return Decision("A run is in progress, or a batch is not merged yet.")
    retry_at = history.next_attempt_at(FIRST_RETRY, LONGEST_RETRY) if history.failures else None
    if retry_at is not None and now < retry_at:
        return Decision(f"The last report failed. The next attempt is at {retry_at:%H:%M} UTC.")
    # A key per attempt: a run that failed is requested again.
    key = f"{pulled_at:%Y%m%dT%H%M%SZ}-{history.failures}"
    return Decision("The daily run ended.", dg.RunRequest(run_key=key))
