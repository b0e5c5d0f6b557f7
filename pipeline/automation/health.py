"""The sensor of warnings, which shows them as an asset check on Dagster's pages.

It also marks runs as failed whose process was killed, and frees their place in the queue. It reads
only local state and sends nothing. The records of an instance without SQLite databases
can't be read quickly from outside, so the sensor also notes what they say of failed work, for
`almanac status`. Belongs here: the sensor, its check, that note. Does not: the warnings
(pipeline/health), posting them (alerts).
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from itertools import takewhile
from typing import Any, Final

import dagster as dg
from dagster._core.scheduler.instigation import InstigatorStatus, TickStatus
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecordStatus
from dagster_shared.error import SerializableErrorInfo

from assets.layout import Layout
from assets.metadata import bullets
from pipeline.automation.run_decisions import IN_PROGRESS_STATUSES
from pipeline.health.alerts import FoundWarnings, find_warnings
from pipeline.health.report import JOBS
from pipeline.instance import plain_faults
from pipeline.runs.dead_runs import fail_dead_runs
from pipeline.runs.history import (
    LONG,
    REPORTED_FOR,
    EndedRun,
    FailedTicks,
    LongRun,
    RunHistory,
    failed_work,
    first_line,
    note_history,
    part_of_tags,
)
from pipeline.runs.place import place_of
from pipeline.settings import Settings
from warehouse.errors import RunRecordsBusy
from warehouse.home import Home
from warehouse.schema.tables import EVENTS

HEALTH: Final = "health"
CHECK: Final = "no_warnings"
EVERY_S: Final = 300
_RUNS_MAX: Final = 1_000
_TICKS: Final = 50
_ENDED: Final = (dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.SUCCESS)
_FAILURES: Final = {dg.DagsterEventType.STEP_FAILURE, dg.DagsterEventType.RUN_FAILURE}
_MEANING: Final = (
    "Nothing is stale, waits, failed or is stuck: the warnings of `almanac status`, read every "
    f"{EVERY_S // 60} minutes. Each says what to do, and ends by itself."
)


def health_check(
    layout: Layout, settings: Settings, home: Home, clock: Callable[[], datetime]
) -> dg.AssetChecksDefinition:
    """Return the check that has the warnings of a home."""

    @dg.multi_asset_check(
        name=layout.name(HEALTH),
        specs=[dg.AssetCheckSpec(CHECK, asset=layout.key(EVENTS.name), description=_MEANING)],
    )
    def check(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckResult]:
        found = find_warnings(settings, home, clock())
        yield dg.AssetCheckResult(
            passed=not found.warnings,
            asset_key=layout.key(EVENTS.name),
            check_name=CHECK,
            severity=dg.AssetCheckSeverity.WARN,
            metadata=_metadata(found),
        )

    return check


def health_sensor(
    layout: Layout,
    settings: Settings,
    home: Home,
    clock: Callable[[], datetime],
    others: Collection[str],
) -> dg.SensorDefinition:
    """Return the sensor that reports the check whenever a warning begins or ends.

    `others` are the names of the other schedules and sensors: in an instance that is shared with
    other definitions, only their failed ticks count.
    """

    @dg.sensor(
        name=layout.name(HEALTH),
        minimum_interval_seconds=EVERY_S,
        description="Reports the warnings of almanac status as a check of the events, whenever one "
        "begins or ends. Starts no run.",
        default_status=layout.sensor_status(HEALTH),
    )
    def sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        now = clock()
        # Only runs in local processes announce themselves.
        local = settings.executor == "in_process"
        # The daemon may be in a long write; the next check is soon.
        with suppress(RunRecordsBusy), plain_faults(home):
            fail_dead_runs(home, context.instance, now if local else None)
        if place_of(home).databases is None:
            roles = {layout.name(job): job for job in JOBS}
            note_history(home, history_of_instance(context.instance, roles, others, now), now)
        found = find_warnings(settings, home, now)
        kinds = " ".join(sorted(warning.kind for warning in found.warnings))
        is_shown = kinds == context.cursor and _passed(context.instance, layout) == (not kinds)
        reported = [] if is_shown else [_evaluation(layout, found)]
        return dg.SensorResult(
            skip_reason=f"Warnings: {kinds or 'none'}. Next check in {EVERY_S // 60} min.",
            cursor=kinds,
            asset_events=reported,
        )

    return sensor


def _passed(instance: dg.DagsterInstance, layout: Layout) -> bool | None:
    """Return whether the page shows that the check passed, None if it shows nothing.

    A run evaluates it, too, at a moment when what it repeats still counts as failed.
    """
    key = dg.AssetCheckKey(layout.key(EVENTS.name), CHECK)
    newest = instance.event_log_storage.get_asset_check_execution_history(key, limit=1)
    passed = AssetCheckExecutionRecordStatus.SUCCEEDED
    return newest[0].status is passed if newest else None


def _evaluation(layout: Layout, found: FoundWarnings) -> dg.AssetCheckEvaluation:
    return dg.AssetCheckEvaluation(
        asset_key=layout.key(EVENTS.name),
        check_name=CHECK,
        passed=not found.warnings,
        severity=dg.AssetCheckSeverity.WARN,
        metadata=_metadata(found),
    )


def _metadata(found: FoundWarnings) -> dict[str, Any]:
    texts = [f"{warning.kind}: {warning.text}" for warning in found.warnings]
    return {
        "warnings": len(texts),
        **({"what to do": dg.MetadataValue.md(bullets(texts))} if texts else {}),
    }


def history_of_instance(
    instance: dg.DagsterInstance, roles: Mapping[str, str], names: Collection[str], now: datetime
) -> RunHistory:
    """Return what an instance with any storage says of failed work.

    `roles` are our jobs, each with its name without a prefix; `names` our schedules and sensors.
    """
    since, long_since = now - REPORTED_FOR, now - LONG
    ended = _records(instance, roles, statuses=list(_ENDED), updated_after=since)
    failed = failed_work(map(_ended, ended), roles)
    return RunHistory(
        failed=tuple(replace(work, error=_error(instance, work.run_id)) for work in failed),
        long=tuple(
            LongRun(
                record.dagster_run.run_id,
                record.dagster_run.job_name,
                record.dagster_run.status.value,
                record.create_timestamp.replace(tzinfo=UTC),
            )
            for record in _records(
                instance, roles, statuses=list(IN_PROGRESS_STATUSES), created_before=long_since
            )
        ),
        ticks=tuple(_ticks(instance, names)),
        reported_at=tuple(
            (kind, datetime.fromtimestamp(beat.timestamp, UTC))
            for kind, beat in sorted(instance.get_daemon_heartbeats().items())
        ),
    )


def _records(
    instance: dg.DagsterInstance, jobs: Iterable[str], **filters: Any
) -> list[dg.RunRecord]:
    """Return runs of some jobs in the order in which they were made, of each the newest.

    They are asked for by job: in an instance that is shared, others may have thousands.
    """
    found = [
        record
        for job in jobs
        for record in instance.get_run_records(
            dg.RunsFilter(job_name=job, **filters), limit=_RUNS_MAX
        )
    ]
    return sorted(found, key=lambda record: record.storage_id)


def _ended(record: dg.RunRecord) -> EndedRun:
    run, tags = record.dagster_run, record.dagster_run.tags
    return EndedRun(
        run.run_id,
        run.job_name,
        part_of_tags(tags),
        record.update_timestamp.replace(tzinfo=UTC),
        run.status is dg.DagsterRunStatus.FAILURE,
        tags.get("dagster/backfill"),
    )


def _error(instance: dg.DagsterInstance, run_id: str) -> str:
    """Return the first line of the cause of a failed run: that of its first failed step."""
    entries = instance.all_logs(run_id, of_type=_FAILURES)
    events = [entry.dagster_event for entry in entries if entry.dagster_event is not None]
    for event in sorted(events, key=lambda event: not event.is_step_failure):
        if event.is_step_failure:
            failure = event.step_failure_data.user_failure_data
            if failure is not None and failure.description:
                return first_line(failure.description)
            return first_line(_cause(event.step_failure_data.error) or event.message or "")
        error = event.job_failure_data.error if event.event_specific_data else None
        return first_line(_cause(error) or event.message or "")
    return ""


def _cause(error: SerializableErrorInfo | None) -> str:
    while error is not None and error.cause is not None:
        error = error.cause
    return "" if error is None else error.message


def _ticks(instance: dg.DagsterInstance, names: Collection[str]) -> Iterator[FailedTicks]:
    """Yield the named schedules and sensors whose newest ended ticks failed."""
    for state in instance.all_instigator_state():
        if state.instigator_name not in names or state.status is InstigatorStatus.STOPPED:
            continue
        ticks = instance.get_ticks(
            state.instigator_origin_id, state.selector_id, limit=_TICKS, after=None
        )
        failed = list(
            takewhile(
                lambda tick: tick.status is TickStatus.FAILURE,
                (tick for tick in ticks if tick.status is not TickStatus.STARTED),
            )
        )
        if failed:
            yield FailedTicks(
                name=state.instigator_name,
                since=datetime.fromtimestamp(failed[-1].timestamp, UTC),
                times=len(failed),
                error=first_line(_cause(failed[0].error)),
            )
