"""The asset `daily_report`, its job, and the sensor that requests it once a day.

They exist only if ALMANAC_REPORT_DIR or ALMANAC_DIGEST_URL is set. The asset has no partitions:
each report continues where the one before ended, so that a day without a report is in the next.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

import dagster as dg

from almanac.digest import as_markdown
from almanac.errors import AlmanacError
from application.web.html_report import post_digest, write_daily_report
from assets.layout import Layout
from pipeline.instance import owner_tags
from pipeline.settings import Settings
from warehouse.home import Home
from warehouse.schema.tables import EVENT_VERSIONS, EVENTS

NAME: Final = "daily_report"
REPORT: Final = "report"
"""The name of the job and of the sensor."""
_EVERY_S: Final = 300
Clock = Callable[[], datetime]


def daily_report(layout: Layout, settings: Settings, clock: Clock) -> dg.AssetsDefinition:
    """Return the asset that writes a report, deletes the oldest ones, and posts the changes."""
    decorate: Callable[[Callable[..., Any]], dg.AssetsDefinition] = dg.asset(
        key=layout.key(NAME),
        deps=layout.keys([EVENTS.name, EVENT_VERSIONS.name]),
        description="Writes upcoming events, the changes since the last report, and data quality "
        "to one HTML file in ALMANAC_REPORT_DIR. Posts the changes to ALMANAC_DIGEST_URL.",
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
            if settings.digest_url is not None:
                metadata["posted"] = post_digest(settings, home, clock()) or "nothing new"
        except (AlmanacError, OSError) as error:
            raise dg.Failure(str(error)) from error
        return dg.MaterializeResult(metadata=metadata)

    return asset


def report_job(layout: Layout) -> Any:
    """Return the job that writes the report."""
    return dg.define_asset_job(
        layout.name(REPORT),
        selection=dg.AssetSelection.assets(layout.key(NAME)),
        description="Write and post the report of the day. Sends no request to the service.",
        executor_def=dg.in_process_executor,
        tags=owner_tags(layout.key_prefix, layout.name_prefix),
    )


def report_sensor(layout: Layout, daily: Any, job: Any) -> dg.SensorDefinition:
    """Return the sensor that requests a report after each daily run that succeeds."""

    @dg.run_status_sensor(
        name=layout.name(REPORT),
        run_status=dg.DagsterRunStatus.SUCCESS,
        monitored_jobs=[daily],
        request_job=job,
        minimum_interval_seconds=_EVERY_S,
        description="Requests the asset daily_report after the daily run.",
        default_status=layout.sensor_status(REPORT),
    )
    def sensor(context: dg.RunStatusSensorContext) -> dg.RunRequest:
        return dg.RunRequest(run_key=context.dagster_run.run_id)

    return sensor
