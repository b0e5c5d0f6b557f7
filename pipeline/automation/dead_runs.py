"""The sensor that fails runs whose process is gone.

A code server notices when a run is killed, unless the server is killed with it. So a run
has the tag `almanac/process`: its id, the host, the process id, and when that process started. Runs
of other hosts and runs without the tag are left to Dagster's run monitoring.
"""

import os
from pathlib import Path
from typing import Final

import dagster as dg

from assets.layout import Layout
from pipeline.automation.run_decisions import find_instance
from warehouse.files.locks import host

DEAD_RUNS: Final = "dead_runs"
PROCESS_TAG: Final = "almanac/process"
EVERY_S: Final = 30


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


def dead_runs_sensor(layout: Layout) -> dg.SensorDefinition:
    """Return the sensor; Dagster then retries the run and frees its pool."""

    @dg.sensor(
        name=layout.name(DEAD_RUNS),
        minimum_interval_seconds=EVERY_S,
        description="Marks runs as failed whose process was killed. Starts no run.",
        default_status=layout.sensor_status(DEAD_RUNS),
    )
    def sensor(context: dg.SensorEvaluationContext) -> dg.SkipReason:
        failed = fail_dead_runs(find_instance(context))
        return dg.SkipReason(f"Marked as failed: {' '.join(failed) or 'none'}.")

    return sensor


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
