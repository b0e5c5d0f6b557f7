"""The asset `daily_report`, its job, and the sensor that requests it once a day.

They exist only if ALMANAC_REPORT_DIR is set. The asset has no partitions: each report continues
where the one before ended, so that a day without a report is in the next.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

import dagster as dg

from almanac.errors import AlmanacError
from assets.layout import Layout, step_failure
from assets.metadata import bullets
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
from pipeline.report.document import make_text
from pipeline.report.report_file import DAILY as DAILY_SELECTION
from pipeline.report.report_file import WrittenReport, read_marks, write_daily_report
from pipeline.report.sections import make_sections
from pipeline.retention import owner_tags
from pipeline.settings import Settings
from warehouse.errors import WarehouseError
from warehouse.home import Home
from warehouse.schema.tables import EVENT_VERSIONS, EVENTS

NAME: Final = "daily_report"
REPORT: Final = "report"
"""The name of the job and of the sensor."""
REPORT_EVERY: Final = timedelta(hours=20)
"""Less than a day, since the daily run does not end at the same time each day."""
FIRST_RETRY: Final = timedelta(minutes=15)
LONGEST_RETRY: Final = timedelta(hours=12)
_EVERY_S: Final = 300
Clock = Callable[[], datetime]


def daily_report(layout: Layout, settings: Settings, clock: Clock) -> dg.AssetsDefinition:
    """Return the asset that writes a report and deletes the oldest ones."""

    decorate: Callable[[Callable[..., Any]], dg.AssetsDefinition] = dg.asset(
        key=layout.key(NAME),
        deps=layout.keys([EVENTS.name, EVENT_VERSIONS.name]),
        description="One HTML file in ALMANAC_REPORT_DIR: what is coming, what changed since the "
        "last report, and the health of the data.",
        required_resource_keys=layout.names("home"),
        **layout.attributes(REPORT, {"html"}),
    )

    @decorate
    def asset(context: dg.AssetExecutionContext) -> dg.MaterializeResult[None]:
        home: Home = layout.resource(context, "home")
        assert settings.report_dir is not None
        folder = settings.report_dir
        try:
            path, written = write_daily_report(
                settings, home, folder, clock(), keep=settings.keep_reports
            )
        except (AlmanacError, WarehouseError, OSError) as error:
            raise step_failure(error) from error
        return dg.MaterializeResult(metadata=describe_file(home, path, written))

    return asset


def describe_file(home: Home, path: Path, written: WrittenReport) -> dict[str, Any]:
    """Return the metadata of a report. It names no folder outside the home."""
    try:
        name = path.resolve().relative_to(home.root.resolve()).as_posix()
    except ValueError:
        name = path.name
    facts = written.facts
    summary = make_sections(facts, with_plots=False)[0]
    return {
        "file": dg.MetadataValue.text(name),
        "bytes": written.size,
        "coming": len(facts.upcoming),
        "changes": sum(section.changes for section in facts.digest.sections),
        "warnings": len(facts.warnings),
        "since": dg.MetadataValue.timestamp(facts.digest.since),
        "until": dg.MetadataValue.timestamp(facts.digest.until),
        "preview": dg.MetadataValue.md(bullets(map(make_text, summary.sentences))),
    }


def report_job(layout: Layout) -> Any:
    """Return the job that writes the report."""
    return dg.define_asset_job(
        layout.name(REPORT),
        selection=dg.AssetSelection.assets(layout.key(NAME)),
        description="Write the report of the day. The sensor `report` requests it after the daily "
        "run. Sends no request to the service.",
        executor_def=dg.in_process_executor,
        tags=owner_tags(layout.key_prefix, layout.name_prefix),
    )


def report_sensor(layout: Layout, home: Home, clock: Clock) -> dg.SensorDefinition:
    """Return the sensor that requests a report once a day, after the daily run."""

    @dg.sensor(
        name=layout.name(REPORT),
        job_name=layout.name(REPORT),
        minimum_interval_seconds=_EVERY_S,
        description="Requests the asset daily_report once a day, after the daily run.",
        default_status=layout.sensor_status(REPORT),
    )
    def sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        now, instance = clock(), find_instance(context)
        mark = read_marks(home).get(DAILY_SELECTION)
        names = layout.names(DAILY, MERGE, REPORT)
        is_running = find_run_in_progress(instance, names) is not None
        return decide_report(
            None if mark is None else mark.at,
            find_last_end(instance, layout.name(DAILY)),
            read_job_history(instance, layout.name(REPORT)),
            now=now,
            merging=is_running or has_batches_to_merge(home),
        ).result(context)

    return sensor


def decide_report(
    last: datetime | None,
    pulled_at: datetime | None,
    history: JobHistory,
    *,
    now: datetime,
    merging: bool,
) -> Decision:
    """Return whether a report is due.

    `last` is when the last report was made, `pulled_at` the end of the newest daily run, whatever
    its outcome; `merging` says that a run is in progress, or a batch waits whose changes belong to
    the report.
    """
    if pulled_at is None:
        return Decision("No daily run has ended yet.")
    if last is not None and pulled_at <= last:
        return Decision(f"The report of {last:%Y-%m-%d %H:%M} UTC is newer than the daily run.")
    if last is not None and now < last + REPORT_EVERY:
        return Decision(f"The next report is due at {last + REPORT_EVERY:%Y-%m-%d %H:%M} UTC.")
    if merging:
        return Decision("A run is in progress, or a batch is not merged yet.")
    retry_at = history.next_attempt_at(FIRST_RETRY, LONGEST_RETRY) if history.failures else None
    if retry_at is not None and now < retry_at:
        return Decision(f"The last report failed. The next attempt is at {retry_at:%H:%M} UTC.")
    # A key per attempt: a run that failed is requested again.
    key = f"{pulled_at:%Y%m%dT%H%M%SZ}-{history.failures}"
    return Decision("The daily run ended.", dg.RunRequest(run_key=key))
