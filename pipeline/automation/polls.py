"""The sensor of polls: it starts due polls, and reports what they brought.

A poll runs in a process of its own (pipeline/polling/process.py), which writes a record. The
sensor reads the record and reports a materialisation of each feed that brought news; a failed poll
fails the tick. So a poll without news starts no run and leaves nothing in Dagster's databases. Due
pulls follow from landing, so a crash repeats no request. The sensor itself sends none.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import dagster as dg
import msgspec

from assets.layout import Layout
from assets.metadata import Metadata, bullets
from assets.polled import POLLED, version_of
from pipeline.automation.jobs import DAILY, POLL
from pipeline.automation.runs import LastRuns, SensorState, doubled, run_in_progress
from pipeline.polling.inputs import PollFacts
from pipeline.polling.plan import PlannerInputs, PollPlan
from pipeline.polling.planner import plan_polls
from pipeline.polling.records import PolledFeed, PollRecord, PollRecords, PollRequest
from pipeline.polling.starter import Starter
from resources.deferrals import DeferredPulls
from warehouse.errors import WarehouseError
from warehouse.files.locks import is_held
from warehouse.home import Home

EVERY_S: Final = 60
WAIT_S: Final = 5.0
"""Most polls end within it, so that the tick that started one also reports it."""
_FIRST_WAIT: Final = timedelta(minutes=2)
_LONGEST_WAIT: Final = timedelta(hours=6)
_PULLING: Final = "A poll or a daily pull is in progress. Next check after it."
_KILLED: Final = (
    "the poll of {:%Y-%m-%d %H:%M:%S} UTC ended without a result: its process was killed. Pages "
    "that were received are in the journal, and the next poll lands them"
)


class PollFailed(Exception):
    """A poll failed, and the tick with it."""


class PollState(SensorState, frozen=True, kw_only=True):
    """When a poll was last started, and the last poll that was reported."""

    at: datetime | None = None
    reported: str = ""


@dataclass(frozen=True, slots=True)
class PollDecision:
    """The decision to start a poll or none. `reason` explains it."""

    reason: str
    request: PollRequest | None = None


def decide_poll(
    inputs: PlannerInputs | None,
    last: LastRuns,
    *,
    running: str | None,
    wait_until: datetime | None = None,
    ahead: timedelta = timedelta(0),
) -> PollDecision:
    """Decide whether to start a poll, and its pulls.

    There is at most one poll in the least interval; after a failure the wait doubles. None is
    started while a run pulls (`running`), since what it lands is no longer due, nor before
    `wait_until`, if the service or the quota deferred a poll. `inputs` and `wait_until` are by the
    service's clock, which is `ahead` of the machine's; `last` is by the machine's.
    """
    if inputs is None:
        return PollDecision("Nothing was pulled yet, and the plan is not known. Run: almanac run.")
    if wait_until is not None and inputs.now < wait_until:
        return PollDecision(f"Deferred by the service until {wait_until:%Y-%m-%d %H:%M:%S} UTC.")
    if running is not None:
        return PollDecision(f"Run {running[:8]} is pulling. Next decision after that run.")
    plan = plan_polls(inputs)
    if not plan.due:
        return PollDecision(f"Nothing is due. {_next_pull_text(plan)}")
    if last.newest_at is not None:
        newest = last.newest_at + ahead
        next_attempt_at = newest + inputs.least_interval
        if last.failures:
            wait = doubled(_FIRST_WAIT, last.failures - 1, longest=_LONGEST_WAIT)
            next_attempt_at = max(next_attempt_at, newest + wait)
        if inputs.now < next_attempt_at:
            why = ""
            if last.failures:
                why = "1 poll failed; " if last.failures == 1 else f"{last.failures} polls failed; "
            return PollDecision(
                f"{why}the next one starts at {next_attempt_at:%H:%M:%S} UTC at the earliest."
            )
    requests = sum(pull.requests for pull in plan.due)
    return PollDecision(
        f"{len(plan.due)} pulls are due, {requests} requests.", PollRequest.of_due(plan.due)
    )


def polls(
    layout: Layout,
    facts: PollFacts,
    clock: Callable[[], datetime],
    starter: Starter,
    *,
    wait_s: float = WAIT_S,
) -> dg.SensorDefinition:
    """Return the sensor that starts polls between the daily pulls, with `starter`."""

    @dg.sensor(
        name=layout.name("polls"),
        job_name=layout.name(POLL),
        minimum_interval_seconds=EVERY_S,
        description="Pulls what is due by the poll plan (almanac budget): near events more often "
        "than far ones, cancellations, missing events. A poll is no run: what brought news is "
        "reported to the polled assets, and a poll without news is in the reason of the tick.",
        default_status=layout.sensor_status("polls"),
    )
    def sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        return _Tick(layout, facts, clock, starter, wait_s, context).result()

    return sensor


@dataclass(frozen=True, slots=True)
class _Tick:
    """One evaluation of the sensor."""

    layout: Layout
    facts: PollFacts
    clock: Callable[[], datetime]
    starter: Starter
    wait_s: float
    context: dg.SensorEvaluationContext

    @property
    def home(self) -> Home:
        return self.facts.home

    def result(self) -> dg.SensorResult:
        """Report the last poll if it was not reported yet, else start one that is due.

        A preview on Dagster's page does neither.

        Raises:
            PollFailed: a poll failed; the next tick does not raise for it again.
        """
        state = PollState.of_cursor(self.context.cursor)
        if is_preview(self.context):
            return self._skip(self._preview(state), state)
        if self._is_pulling():
            return self._skip(_PULLING, state)
        record = self._ended()
        if record is not None and record.poll_id != state.reported:
            return self._report(record, state)
        try:
            decision = self._decision(state, record)
        except WarehouseError as error:
            return self._skip(str(error), state)
        if decision.request is None:
            return self._skip(_with_last(decision.reason, record), state)
        state = msgspec.structs.replace(state, at=self.clock())
        self.starter.start(decision.request)
        if self.starter.is_running(wait_s=self.wait_s):
            return self._skip(f"{decision.reason} The next tick reports the poll.", state)
        started, record = record, self._ended()
        if record is None or record == started:
            if self._is_pulling():  # A run took the lock first.
                return self._skip(_PULLING, state)
            raise PollFailed(
                f"{decision.reason} The process of the poll ended before it began; the log of the "
                "code location has the reason. The next tick starts it again."
            )
        return self._report(record, state)

    def _preview(self, state: PollState) -> str:
        """Return what a tick would do, without doing it."""
        try:
            reason = self._decision(state, PollRecords(self.home).last()).reason
        except WarehouseError as error:
            reason = str(error)
        return f"A preview starts and reports no poll. {_PULLING if self._is_pulling() else reason}"

    def _is_pulling(self) -> bool:
        return self.starter.is_running() or is_held(PollRecords(self.home).lock)

    def _ended(self) -> PollRecord | None:
        """Return the record of the last poll, which has ended; a killed one counts as failed."""
        records = PollRecords(self.home)
        record = records.last()
        if record is None or record.ended_at is not None:
            return record
        record = msgspec.structs.replace(
            record,
            ended_at=self.clock(),
            error=_KILLED.format(record.started_at),
            failures=record.failures + 1,
        )
        records.put(record)
        return record

    def _decision(self, state: PollState, record: PollRecord | None) -> PollDecision:
        now = self.clock()
        inputs = self.facts.inputs(now)
        times = [state.at, None if record is None else record.started_at]
        newest = max((at for at in times if at is not None), default=None)
        if record is not None and record.interrupted:
            newest = None  # What it did not pull is still due.
        return decide_poll(
            inputs,
            LastRuns(newest, 0 if record is None else record.failures),
            running=run_in_progress(self.context.instance, self.layout.names(POLL, DAILY)),
            wait_until=_deferred_until(self.home),
            ahead=timedelta(0) if inputs is None else inputs.now - now,
        )

    def _report(self, record: PollRecord, state: PollState) -> dg.SensorResult:
        """Report what a poll brought; a failure first, by failing the tick once."""
        if record.error and not record.interrupted and not record.is_shown:
            # A tick that fails keeps its cursor, so the record has that it was shown.
            PollRecords(self.home).put(msgspec.structs.replace(record, is_shown=True))
            raise PollFailed(f"{record.cost()}, and failed: {record.error}")
        state = msgspec.structs.replace(state, reported=record.poll_id)
        events = list(self._materialisations(record))
        news = " and ".join(polled.feed for polled in record.news) or "nothing new"
        reason = f"{record.cost()}. It brought {news}. {self._next_due()}"
        return dg.SensorResult(asset_events=events, skip_reason=reason, cursor=state.cursor())

    def _materialisations(self, record: PollRecord) -> Iterator[dg.AssetMaterialization]:
        """Yield a materialisation for each feed that brought news, if it is not reported yet.

        A daemon that is killed after it recorded some of them has not stored the cursor. A feed
        that never brought news is reported once, since the pages would show it as missing.
        """
        for polled in record.news:
            key = self.layout.key(POLLED[polled.feed])
            version = version_of(polled.batches).value
            newest = self.context.instance.get_latest_materialization_event(key)
            found = None if newest is None else newest.asset_materialization
            if found is not None and (found.tags or {}).get("dagster/data_version") == version:
                continue
            yield dg.AssetMaterialization(
                key,
                metadata=_metadata(record, polled),
                tags={"dagster/data_version": version},
            )
        for feed in POLLED.keys() - {polled.feed for polled in record.news}:
            key = self.layout.key(POLLED[feed])
            if self.context.instance.get_latest_materialization_event(key) is None:
                yield dg.AssetMaterialization(
                    key,
                    metadata={"requests": 0, "rows": 0, "outcome": "no news so far"},
                    tags={"dagster/data_version": version_of(()).value},
                )

    def _next_due(self) -> str:
        try:
            inputs = self.facts.inputs(self.clock())
        except WarehouseError as error:
            return str(error)
        return "" if inputs is None else _next_pull_text(plan_polls(inputs))

    def _skip(self, reason: str, state: PollState) -> dg.SensorResult:
        return dg.SensorResult(skip_reason=reason, cursor=state.cursor())


def is_preview(context: dg.SensorEvaluationContext) -> bool:
    """Whether a page asks what a tick would do; only the key of the log tells.

    Dagster keeps the log of a tick under the tick's number, and that of a preview under its time.
    """
    key = context.log_key
    return key is not None and not key[-1].isdecimal()


def _metadata(record: PollRecord, polled: PolledFeed) -> Metadata:
    metadata: Metadata = {
        "requests": polled.requests,
        "rows": polled.rows,
        "bytes": polled.bytes,
        "requests of the whole poll": record.sent,
        "batches": ", ".join(polled.batches),
        "poll": record.poll_id,
    }
    if record.quota_left is not None:
        metadata["quota left"] = record.quota_left
    if polled.observed_at is not None:
        metadata["observed at"] = dg.MetadataValue.timestamp(polled.observed_at)
    if polled.warnings:
        metadata["warnings"] = dg.MetadataValue.md(bullets(polled.warnings))
    return metadata


def _with_last(reason: str, record: PollRecord | None) -> str:
    """Return a reason with what the last poll cost."""
    if record is None or record.interrupted or record.error:
        return reason
    news = " and ".join(polled.feed for polled in record.news) or "nothing new"
    return f"{reason} {record.cost()}; it brought {news}."


def _deferred_until(home: Home) -> datetime | None:
    polls = (
        deferred for deferred in DeferredPulls(home.state_storage).all() if deferred.work == "polls"
    )
    return max((poll.resume_at for poll in polls), default=None)


def _next_pull_text(plan: PollPlan) -> str:
    return f"The next pull is due at {plan.next_at:%Y-%m-%d %H:%M:%S} UTC."
