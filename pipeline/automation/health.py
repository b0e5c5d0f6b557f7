"""The sensor `health`, and the asset `health`, whose checks show the warnings.

The asset is never materialised: Dagster shows only check results that are newer than the last
materialisation.

It starts no run and sends no request to the service. It also notes failed runs for `almanac
status`, which does not import Dagster, and fails runs whose process is gone: a code server notices
when a run is killed, unless the server is killed with it. So a run has the tag `almanac/process`:
its id, the host, the process id, and when that process started. Runs of other hosts and runs
without the tag are left to Dagster's run monitoring.
"""

import os
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import dagster as dg

from assets.layout import Layout
from pipeline.automation.sensors import find_instance
from pipeline.health.facts import FORGOTTEN_AFTER, RUN_NOTE, FailedWork, RunNote
from pipeline.health.notices import NotPosted, post_warnings
from pipeline.health.warnings import WARNINGS, find_warnings
from pipeline.instance import owner_tags
from pipeline.settings import Settings
from warehouse.files.documents import put_note
from warehouse.files.locks import host
from warehouse.home import Home

HEALTH: Final = "health"
EVERY_S: Final = 60
PROCESS_TAG: Final = "almanac/process"
_PARTS: Final = ("dagster/partition", "dagster/asset_partition_range_start")
Clock = Callable[[], datetime]


def health_asset(layout: Layout) -> dg.AssetSpec:
    """Return the asset that the warnings belong to."""
    return dg.AssetSpec(
        layout.key(HEALTH),
        description="The health of the home: each warning of `almanac status` is a check, reported "
        "by the sensor `health`. This asset is never materialised.",
        **layout.attributes(HEALTH, {"python"}),
    )


def health_checks(
    layout: Layout, settings: Settings, home: Home, clock: Clock
) -> dg.AssetChecksDefinition:
    """Return the asset checks that show the warnings of a home, one for each."""
    specs = [
        dg.AssetCheckSpec(kind, asset=layout.key(HEALTH), description=find.__doc__)
        for kind, find in WARNINGS.items()
    ]

    @dg.multi_asset_check(name=layout.name(HEALTH), specs=specs, can_subset=True)
    def check(context: dg.AssetCheckExecutionContext) -> Iterable[dg.AssetCheckResult]:
        found = find_warnings(settings, home, clock())
        for key in context.selected_asset_check_keys:
            if key.name in found:
                yield dg.AssetCheckResult(**_describe(layout, key.name, found[key.name]))

    return check


def _describe(layout: Layout, kind: str, text: str | None) -> dict[str, Any]:
    return {
        "asset_key": layout.key(HEALTH),
        "check_name": kind,
        "passed": text is None,
        "severity": dg.AssetCheckSeverity.WARN,
        "description": text,
    }


def health_sensor(
    layout: Layout, settings: Settings, home: Home, clock: Clock
) -> dg.SensorDefinition:
    """Return the sensor that reports a check, and posts to ALMANAC_ALERT_URL, when it changes."""

    @dg.sensor(
        name=layout.name(HEALTH),
        minimum_interval_seconds=EVERY_S,
        description="Reports the warnings of almanac status as checks of the asset health, and "
        "posts them to ALMANAC_ALERT_URL, when one begins or ends; marks runs as failed whose "
        "process was killed. Starts no run.",
        default_status=layout.sensor_status(HEALTH),
    )
    def sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        now, instance = clock(), find_instance(context)
        failed = fail_dead_runs(instance)
        write_run_note(home, layout, instance, now)
        found = find_warnings(settings, home, now)
        reason = f"Warnings: {' '.join(kind for kind in found if found[kind]) or 'none'}."
        if failed:
            reason += f" Runs whose process is gone, marked as failed: {' '.join(failed)}."
        if settings.alert_url:
            try:
                posted = post_warnings(settings, home, found, now)
                reason += f" Posted: {' '.join(posted) or 'nothing'}."
            except NotPosted as error:
                reason += f" {error}"
        return dg.SensorResult(
            skip_reason=f"{reason} Next check in {EVERY_S} s.",
            asset_events=[
                dg.AssetCheckEvaluation(**_describe(layout, kind, text))
                for kind, text in found.items()
                if not _is_shown(instance, layout, kind, text)
            ],
        )

    return sensor


def _is_shown(instance: dg.DagsterInstance, layout: Layout, kind: str, text: str | None) -> bool:
    """Whether the UI shows a check as it is; not if it is planned, skipped or missing."""
    key = dg.AssetCheckKey(layout.key(HEALTH), kind)
    latest = instance.get_latest_asset_check_evaluation_record(key)
    expected = "SUCCEEDED" if text is None else "FAILED"
    return latest is not None and latest.status.value == expected


def write_run_note(home: Home, layout: Layout, instance: dg.DagsterInstance, now: datetime) -> None:
    """Note the work whose newest run of the last days failed, and when the daemon reported."""
    records = instance.get_run_records(
        dg.RunsFilter(
            statuses=[dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.SUCCESS],
            tags=owner_tags(layout),
            updated_after=now - FORGOTTEN_AFTER,
        ),
        ascending=True,
    )
    newest = {}
    for record in records:
        run, at = record.dagster_run, record.update_timestamp.replace(tzinfo=UTC)
        part = next((run.tags[name] for name in _PARTS if name in run.tags), "")
        newest[run.job_name, part] = run.status, FailedWork(run.job_name, part, run.run_id, at)
    failed = [work for status, work in newest.values() if status is dg.DagsterRunStatus.FAILURE]
    heartbeats = (beat.timestamp for beat in instance.get_daemon_heartbeats().values())
    reported = max(heartbeats, default=None)
    daemon_at = None if reported is None else datetime.fromtimestamp(reported, UTC)
    put_note(home.state_storage, RUN_NOTE, RunNote(now, tuple(failed), daemon_at))


def process_tags(run_id: str) -> dict[str, str]:
    """Return the tags of a run that this process executes."""
    return {PROCESS_TAG: f"{run_id} {host()} {os.getpid()} {_start_of(os.getpid())}"}


def fail_dead_runs(instance: dg.DagsterInstance) -> list[str]:
    """Mark the started runs whose process is gone as failed, and return their ids."""
    failed = []
    started = dg.RunsFilter(statuses=[dg.DagsterRunStatus.STARTED])
    for record in instance.get_run_records(started):
        run = record.dagster_run
        if _is_gone(run):
            # Read again: it may have ended in between.
            now = instance.get_run_by_id(run.run_id)
            if now is not None and not now.is_finished:
                instance.report_run_failed(
                    now, "Its process no longer exists: it was killed, or the machine stopped."
                )
                failed.append(run.run_id)
    return failed


def _is_gone(run: dg.DagsterRun) -> bool:
    match run.tags.get(PROCESS_TAG, "").split():
        # A retry has the tags of the run that it repeats, until its process sets its own.
        case [run_id, where, pid, start] if run_id == run.run_id and where == host():
            return start != _start_of(int(pid))
    return False


def _start_of(pid: int) -> str:
    """Return when a process started, in Linux's clock ticks; "" if there is none.

    The ids of ended processes are used again. Without /proc, no run is judged.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return ""
    return "" if fields[0] == "Z" else fields[19]
