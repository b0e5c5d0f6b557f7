"""Failed runs, failing ticks and the daemon in Dagster's records, as a note in the home.

    state/runs.json    a RunNote

A process that has the instance open writes it: the sensor `health`, every five minutes. Others read
it without Dagster, whose import takes seconds. Times are by the machine's clock."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from typing import TYPE_CHECKING, Annotated, Final

import msgspec

from pipeline.secrecy import shareable
from pipeline.settings import Settings
from warehouse.files.documents import put_note, read_note
from warehouse.home import Home

if TYPE_CHECKING:
    import dagster as dg

REPORTED_FOR: Final = timedelta(days=7)
"""A failure is reported for so long, unless the same work succeeds before."""
_FILE: Final = "runs.json"
_TICKS: Final = 50
_FAILURES: Final = ("STEP_FAILURE", "PIPELINE_FAILURE")
_Time = Annotated[datetime, msgspec.Meta(tz=True)]


class FailedWork(msgspec.Struct, frozen=True, kw_only=True):
    """A job, with its partition or range, whose newest run failed.

    `times` counts the failures since its last success, of which the first was at `since`. `error`
    is the first line of the error, empty if it is not known.
    """

    job: str
    part: str
    run_id: str
    since: _Time
    at: _Time
    times: int = 1
    error: str = ""

    @property
    def name(self) -> str:
        return f"{self.job} of {self.part}" if self.part else self.job


class FailedTicks(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule or sensor whose newest ticks failed; `times` of them, since the last good one."""

    name: str
    since: _Time
    times: int
    error: str = ""


class RunNote(msgspec.Struct, frozen=True, kw_only=True):
    """The findings `at` a time. `daemon_at` is when Dagster's daemon last reported itself."""

    at: _Time
    failed: tuple[FailedWork, ...] = ()
    ticks: tuple[FailedTicks, ...] = ()
    daemon_at: _Time | None = None


def read_run_note(home: Home) -> RunNote | None:
    """Return the note of a home; None if there is none, or it can't be read."""
    return read_note(home.state_storage, _FILE, RunNote)


def write_run_note(
    home: Home,
    settings: Settings,
    instance: "dg.DagsterInstance",
    now: datetime,
    automation: Collection[str] = (),
) -> None:
    """Write the note of a home from an instance, without secrets and folders of this machine.

    `automation` has the names of its schedules and sensors.
    """
    # Imported here, since `almanac status` only reads the note.
    from pipeline.instance import owner_tags

    tags = owner_tags(settings.key_prefix, settings.name_prefix)
    heartbeats = (beat.timestamp for beat in instance.get_daemon_heartbeats().values())
    reported = max(heartbeats, default=None)
    note = RunNote(
        at=now,
        failed=tuple(
            msgspec.structs.replace(work, error=shareable(settings, work.error))
            for work in _find_failed_work(instance, tags, now - REPORTED_FOR)
        ),
        ticks=tuple(
            msgspec.structs.replace(ticks, error=shareable(settings, ticks.error))
            for ticks in _find_failed_ticks(instance, automation)
        ),
        daemon_at=None if reported is None else datetime.fromtimestamp(reported, UTC),
    )
    put_note(home.state_storage, _FILE, note)


def _find_failed_work(
    instance: "dg.DagsterInstance", tags: Mapping[str, str], since: datetime
) -> Iterator[FailedWork]:
    """Yield the work whose newest run failed, the oldest failure first."""
    import dagster as dg

    ended = [dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.SUCCESS]
    records = instance.get_run_records(
        dg.RunsFilter(statuses=ended, tags=tags, updated_after=since), ascending=True
    )
    failed: dict[tuple[str, str], FailedWork] = {}
    for record in records:
        run = record.dagster_run
        part = _name_partitions(run.tags)
        work = (run.job_name, part or run.tags.get("dagster/backfill", ""))
        before = failed.pop(work, None)
        if run.status is dg.DagsterRunStatus.FAILURE:
            at = record.update_timestamp.replace(tzinfo=UTC)
            failed[work] = FailedWork(
                job=run.job_name,
                part=part,
                run_id=run.run_id,
                since=at if before is None else before.since,
                at=at,
                times=1 if before is None else before.times + 1,
            )
    for found in sorted(failed.values(), key=lambda work: work.since):
        yield msgspec.structs.replace(found, error=_read_error(instance, found.run_id))


def _name_partitions(tags: Mapping[str, str]) -> str:
    first = tags.get("dagster/partition") or tags.get("dagster/asset_partition_range_start", "")
    last = tags.get("dagster/asset_partition_range_end", first)
    return first if first == last else f"{first} to {last}"


def _read_error(instance: "dg.DagsterInstance", run_id: str) -> str:
    """Return the first line of the error of a run's first failed step, else of the run."""
    import dagster as dg

    entries = instance.all_logs(run_id, of_type={dg.DagsterEventType(name) for name in _FAILURES})
    events = [entry.dagster_event for entry in entries if entry.dagster_event is not None]
    for event in sorted(events, key=lambda event: not event.is_step_failure):
        if not event.is_step_failure:
            data = event.job_failure_data if event.event_specific_data else None
            return _read_first_line(_messages(data and data.error, event.message))
        step = event.step_failure_data
        said = step.user_failure_data and step.user_failure_data.description
        return _read_first_line([said or "", *_messages(step.error, event.message)])
    return ""


def _messages(error: object, otherwise: str | None) -> list[str]:
    """Return the texts of the causes of an error, the innermost first."""
    found = [otherwise or ""]
    while error is not None:
        found.insert(0, str(getattr(error, "message", "")))
        error = getattr(error, "cause", None)
    return found


def _read_first_line(texts: Iterable[str]) -> str:
    """Return the first line of the first text that has one, without the module of its class."""
    lines = (line.strip() for text in texts for line in text.splitlines())
    line = next((line for line in lines if line), "")
    head, colon, rest = line.partition(": ")
    if colon and head.replace(".", "").replace("_", "").isalnum() and "." in head:
        name = head.rpartition(".")[2]
        # The text of the product's own failures is complete.
        return rest if name == "Failure" else f"{name}: {rest}"
    return line


def _find_failed_ticks(
    instance: "dg.DagsterInstance", automation: Collection[str]
) -> Iterator[FailedTicks]:
    """Yield the schedules and sensors that are on and whose newest ended ticks failed."""
    for state in instance.all_instigator_state():
        if state.instigator_name not in automation or state.status.value == "STOPPED":
            continue
        ticks = instance.get_ticks(state.instigator_origin_id, state.selector_id, limit=_TICKS)
        ended = (tick for tick in ticks if tick.status.value != "STARTED")
        failed = list(takewhile(lambda tick: tick.status.value == "FAILURE", ended))
        if failed:
            yield FailedTicks(
                name=state.instigator_name,
                since=datetime.fromtimestamp(failed[-1].timestamp, UTC),
                times=len(failed),
                error=_read_first_line(_messages(failed[0].error, "")),
            )
