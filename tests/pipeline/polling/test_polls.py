"""Polls: what the sensor starts and reports, the job by hand, and the inputs of the planner."""

import re
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster import build_sensor_context

from assets.layout import Layout
from assets.polled import POLLED, PollConfig, poll_run_config
from pipeline.automation.jobs import POLL
from pipeline.automation.polls import PollFailed, PollState, decide_poll, polls
from pipeline.automation.runs import LastRuns
from pipeline.build import build_definitions
from pipeline.instance import instance_of
from pipeline.polling.inputs import PollFacts
from pipeline.polling.plan import CancellationsPull, EventsPull, LookUps, PlannerInputs
from pipeline.polling.planner import plan_polls
from pipeline.polling.process import execute_poll
from pipeline.polling.records import PollRecord, PollRecords, PollRequest
from pipeline.session import OpenedSession, open_service
from pipeline.settings import Settings
from resources.deferrals import DeferredPulls, deferred_pull
from resources.errors import Defer
from resources.feeds import pull
from resources.ingest.scopes import PollWindow
from resources.request_log import last_usage
from resources.session import LazySession
from tests.pipeline.homes_in_days import QUIET, failure_of, run_sandbox_days, settings_of
from warehouse.files.locks import hold_lock
from warehouse.files.storage import Storage
from warehouse.history.merge import merge
from warehouse.home import Home

LAYOUT = Layout()
NOW = datetime(2019, 3, 2, 9, tzinfo=UTC)
"""The catalog of that year is a fraction of today's."""
LATER = NOW + timedelta(hours=3)


@dataclass
class StartsHere:
    """Executes polls in this process, against the sandbox at an instant."""

    settings: Settings
    now: datetime
    faults: str = ""
    requests: list[PollRequest] = field(default_factory=list)
    does_poll: bool = True
    is_slow: bool = False

    def start(self, request: PollRequest) -> None:
        self.requests.append(request)
        if not self.does_poll:
            return
        with open_service(self.settings, now=self.now, work="polls") as service:
            assert service.sandbox is not None
            service.sandbox.faults.set(self.faults)
            execute_poll(
                Home(self.settings.home),
                request,
                lambda: nullcontext(service),
                clock=lambda: self.now,
            )

    def is_running(self, *, wait_s: float = 0.0) -> bool:
        return bool(self.is_slow and wait_s)


@dataclass(frozen=True)
class Polled:
    """A home on a plan that is polled, with its instance."""

    settings: Settings
    instance: dg.DagsterInstance

    @property
    def home(self) -> Home:
        return Home(self.settings.home)

    def inputs(self, now: datetime) -> PlannerInputs:
        inputs = PollFacts(self.settings, self.home).inputs(now)
        assert inputs is not None
        return inputs

    def starter(self, now: datetime, **given: Any) -> StartsHere:
        return StartsHere(self.settings, now, **given)

    def tick(
        self, now: datetime, cursor: str | None = "", starter: StartsHere | None = None
    ) -> dg.SensorResult:
        """Evaluate the sensor of a fresh daemon; by default the last poll was reported."""
        if cursor == "":
            last = PollRecords(self.home).last()
            cursor = PollState(reported="" if last is None else last.poll_id).cursor()
        starter = starter or self.starter(now)
        facts = PollFacts(self.settings, self.home)
        sensor = polls(LAYOUT, facts, lambda: now, starter, wait_s=1.0)
        definitions = build_definitions(self.settings, clock=lambda: now)
        context = build_sensor_context(
            instance=self.instance, cursor=cursor, definitions=definitions
        )
        result = sensor(context)
        assert isinstance(result, dg.SensorResult)
        assert result.run_requests == []
        return result

    def run(
        self, service: OpenedSession, config: PollConfig, *assets: str
    ) -> dg.ExecuteInProcessResult:
        with LazySession(lambda: nullcontext(service), clock=service.clock) as session:
            job = build_definitions(self.settings, catalog_for_polls=session).resolve_job_def(POLL)
            return job.execute_in_process(
                instance=self.instance,
                raise_on_error=False,
                run_config={**QUIET, **poll_run_config(LAYOUT, config)},
                asset_selection=[dg.AssetKey(name) for name in assets] or None,
            )


def reason_of(result: dg.SensorResult) -> str:
    assert result.skip_reason is not None
    return str(result.skip_reason.skip_message)


def reported(result: dg.SensorResult) -> dict[str, dg.AssetMaterialization]:
    return {
        event.asset_key.to_user_string(): event
        for event in result.asset_events or ()
        if isinstance(event, dg.AssetMaterialization)
    }


def runs_of(polled: Polled) -> int:
    return len(polled.instance.get_runs())


@pytest.fixture(scope="module")
def polled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Polled]:
    """A home on Pro after the daily pull at NOW."""
    settings = settings_of(tmp_path_factory.mktemp("home"), coins=(), plan="pro")
    with instance_of(Home(settings.home)) as instance:
        run_sandbox_days(settings, instance, days=1, now=NOW)
        yield Polled(settings, instance)


def test_a_fresh_home_starts_no_poll_and_names_the_command_to_run(tmp_path: Path) -> None:
    with instance_of(Home(tmp_path)) as instance:
        result = Polled(settings_of(tmp_path), instance).tick(NOW)
    assert "almanac run" in reason_of(result)


def test_no_poll_is_due_after_the_daily_pull_until_the_interval_is_over(polled: Polled) -> None:
    starter = polled.starter(NOW + timedelta(minutes=5))
    result = polled.tick(starter.now, starter=starter)
    assert "The next pull is due at 2019-03-02 09:1" in reason_of(result)
    assert starter.requests == []


def test_planner_inputs_are_read_from_warehouse_and_landing(polled: Polled) -> None:
    inputs = polled.inputs(LATER)
    assert inputs.plan.name == "pro"
    assert sum(inputs.calendar.begins.values()) > 500
    assert inputs.month.quota == 300_000
    assert inputs.month.reserve == 60_000
    assert 15 < inputs.month.daily_requests < 30
    assert inputs.last_pulls[date(2019, 3, 20)] <= inputs.now
    assert inputs.push is None


def test_a_due_poll_is_started_and_reported_without_a_run(polled: Polled) -> None:
    starter, before = polled.starter(LATER), runs_of(polled)
    result = polled.tick(LATER, starter=starter)
    assert len(starter.requests) == 1
    found = reported(result)
    assert set(found) == set(POLLED.values()), "without news once, so that no page misses it"
    assert found["polled_look_ups"].metadata["rows"].value == 0
    metadata = found["polled_events"].metadata
    assert {"requests", "rows", "quota left", "bytes"} <= metadata.keys()
    assert "The next pull is due at" in reason_of(result)
    assert runs_of(polled) == before
    # A daemon that lost its cursor reports and polls nothing twice.
    for event in found.values():
        polled.instance.report_runless_asset_event(event)
    soon = LATER + timedelta(minutes=2)
    for cursor in (result.cursor, None, "{"):
        again = polled.starter(soon)
        assert reported(polled.tick(soon, cursor, again)) == {}
        assert again.requests == []
    merge(polled.home)
    pulled_at = polled.inputs(soon).cancellations_pulled_at
    assert pulled_at is not None
    assert pulled_at >= LATER - timedelta(seconds=1)


def test_a_poll_without_news_is_in_the_reason_of_the_tick(polled: Polled) -> None:
    now = LATER + timedelta(minutes=16)
    polled.tick(now)
    merge(polled.home)
    now += timedelta(minutes=16)
    starter = polled.starter(now)
    result = polled.tick(now, starter=starter)
    assert len(starter.requests) == 1
    record = PollRecords(polled.home).last()
    assert record is not None
    if not record.news:
        assert all(event.metadata["rows"].value == 0 for event in reported(result).values())
        assert "It brought nothing new." in reason_of(result)
    assert f"{record.sent} request" in reason_of(result)


def test_a_poll_that_takes_longer_is_reported_by_the_next_tick(polled: Polled) -> None:
    now = LATER + timedelta(hours=1)
    slow = polled.starter(now, is_slow=True)
    first = polled.tick(now, starter=slow)
    assert "The next tick reports the poll" in reason_of(first)
    second = polled.tick(now + timedelta(minutes=1), first.cursor)
    assert "The poll of 13:00:00 UTC pulled" in reason_of(second)


def test_a_preview_of_a_tick_starts_and_reports_no_poll(polled: Polled) -> None:
    # It comes before the polls of the hours that follow.
    now = LATER + timedelta(hours=1, minutes=30)
    starter, before = polled.starter(now), PollRecords(polled.home).last()
    facts = PollFacts(polled.settings, polled.home)
    sensor = polls(LAYOUT, facts, lambda: now, starter)
    # As for a preview, the log has no number of a tick.
    context = build_sensor_context(
        instance=polled.instance,
        repository_name="__repository__",
        sensor_name="polls",
        definitions=build_definitions(polled.settings, clock=lambda: now),
    )
    result = sensor(context)
    assert isinstance(result, dg.SensorResult)
    assert re.fullmatch(
        r"A preview starts and reports no poll\. \d+ pulls are due, \d+ requests\.",
        reason_of(result),
    )
    assert result.asset_events == []
    assert (starter.requests, PollRecords(polled.home).last()) == ([], before)


def test_no_poll_is_started_while_another_process_pulls(polled: Polled) -> None:
    now = LATER + timedelta(hours=2)
    starter = polled.starter(now)
    with hold_lock(PollRecords(polled.home).lock, "to pull"):
        assert "is in progress" in reason_of(polled.tick(now, starter=starter))
    assert starter.requests == []


def test_a_failed_poll_fails_one_tick_and_is_started_again_after_a_wait(polled: Polled) -> None:
    now = LATER + timedelta(hours=3)
    with pytest.raises(PollFailed, match="returned a cursor"):
        polled.tick(now, starter=polled.starter(now, faults="repeat_cursor~events"))
    later = polled.tick(now + timedelta(minutes=1), None)
    assert "The poll of 15:00:00 UTC" in reason_of(later), "what it did pull is reported, too"
    result = polled.tick(now + timedelta(minutes=2), later.cursor)
    assert "1 poll failed; the next one starts at 15:15:00" in reason_of(result)
    polled.tick(now + timedelta(minutes=20))
    record = PollRecords(polled.home).last()
    assert record is not None and record.failures == 0


def test_a_killed_poll_fails_one_tick(polled: Polled) -> None:
    now = LATER + timedelta(hours=4)
    records = PollRecords(polled.home)
    records.put(PollRecord(poll_id="killed", started_at=now))
    with pytest.raises(PollFailed, match="its process was killed"):
        polled.tick(now + timedelta(minutes=1), None)
    assert "1 poll failed" in reason_of(polled.tick(now + timedelta(minutes=2)))
    records.put(PollRecord(poll_id="ended", started_at=now, ended_at=now))


def test_a_process_that_ends_before_it_polls_fails_the_tick(polled: Polled) -> None:
    now = LATER + timedelta(hours=5)
    with pytest.raises(PollFailed, match="ended before it began"):
        polled.tick(now, starter=polled.starter(now, does_poll=False))


def test_an_interrupted_poll_is_started_again_at_once(polled: Polled) -> None:
    now = LATER + timedelta(hours=6)
    record = PollRecord(
        poll_id="stopped", started_at=now, ended_at=now, interrupted=True, error="stopped"
    )
    PollRecords(polled.home).put(record)
    starter = polled.starter(now + timedelta(minutes=2))
    polled.tick(now + timedelta(minutes=2), starter=starter)
    assert len(starter.requests) == 1


def test_no_poll_is_started_while_a_run_pulls(polled: Polled) -> None:
    inputs = polled.inputs(LATER + timedelta(hours=9))
    decision = decide_poll(inputs, LastRuns(), running="0123456789")
    assert decision.request is None
    assert "Run 01234567 is pulling" in decision.reason


def test_the_wait_after_failed_polls_doubles(polled: Polled) -> None:
    now = LATER + timedelta(hours=9)
    inputs = polled.inputs(now)
    decision = decide_poll(inputs, LastRuns(now - timedelta(minutes=40), 6), running=None)
    assert decision.request is None
    assert decision.reason.startswith("6 polls failed; the next one starts at 21:24:00")
    assert decide_poll(inputs, LastRuns(now - timedelta(minutes=70), 6), running=None).request


def test_two_polls_are_never_closer_than_the_least_interval(polled: Polled) -> None:
    now = LATER + timedelta(hours=9)
    inputs = polled.inputs(now)
    for minutes, is_started in ((14, False), (15, True)):
        last = LastRuns(now - timedelta(minutes=minutes))
        assert bool(decide_poll(inputs, last, running=None).request) == is_started


def test_the_interval_is_kept_where_the_clocks_of_service_and_machine_differ(
    polled: Polled,
) -> None:
    inputs = polled.inputs(LATER + timedelta(hours=9))
    ahead = timedelta(hours=1)
    for minutes, is_started in ((14, False), (15, True)):
        last = LastRuns(inputs.now - ahead - timedelta(minutes=minutes))
        assert bool(decide_poll(inputs, last, running=None, ahead=ahead).request) == is_started


def test_a_poll_looks_up_each_missing_event_by_id(polled: Polled) -> None:
    config = PollConfig(event_ids=["no-such-event", "nor-this-one"])
    over = Defer("asked to wait", resume_at=LATER, reason="asked_to_wait")
    DeferredPulls(Storage(polled.home.state)).note(
        deferred_pull("polls", "cancellations", over, NOW)
    )
    with open_service(polled.settings, now=LATER + timedelta(hours=1), work="polls") as service:
        before = service.log.count
        assert polled.run(service, config, "polled_look_ups").success
        assert service.log.count - before == 2
    inputs = polled.inputs(LATER + timedelta(hours=1))
    assert inputs.looked_up_today == 2
    assert DeferredPulls(Storage(polled.home.state)).all() == [], "its time to wait is over"


def test_a_poll_deferred_by_the_quota_is_recorded_and_succeeds(polled: Polled) -> None:
    config = PollConfig(windows=[["2019-03-02"]])
    deferrals = DeferredPulls(Storage(polled.home.state))
    with open_service(polled.settings, now=LATER + timedelta(hours=2), work="polls") as service:
        assert service.sandbox is not None
        service.sandbox.faults.set("quota~events")
        assert polled.run(service, config).success
        (note,) = deferrals.all()
        assert (note.work, note.feed) == ("polls", "cancellations")
        assert note.resume_at.date() == date(2019, 4, 1)
        service.sandbox.faults.clear()
        assert polled.run(service, config).success
    assert deferrals.all() == []


def test_a_run_of_a_failed_poll_has_the_reason(polled: Polled) -> None:
    config = PollConfig(windows=[["2019-03-02"]])
    with open_service(polled.settings, now=LATER + timedelta(hours=4), work="polls") as service:
        assert service.sandbox is not None
        service.sandbox.faults.set("repeat_cursor~events")
        result = polled.run(service, config, "polled_events")
    assert not result.success
    assert "returned a cursor" in failure_of(result)


@pytest.mark.parametrize("last", [date(2019, 3, 9), None])
def test_a_window_is_the_same_after_the_config_of_a_run(last: date | None) -> None:
    window = PollWindow(date(2019, 3, 2), last)
    assert PollWindow.of_texts(*window.texts()) == window


def test_a_window_that_is_no_date_is_an_error() -> None:
    with pytest.raises(ValueError, match="isoformat"):
        PollWindow.of_texts("tomorrow")


def test_a_request_has_the_due_pulls() -> None:
    since = datetime(2019, 3, 1, 4, 30, tzinfo=UTC)
    windows = [PollWindow(date(2019, 3, 2), date(2019, 3, 9)), PollWindow(date(2019, 3, 20), None)]
    due = [
        *(EventsPull(window, 1) for window in windows),
        CancellationsPull(since),
        LookUps(("a",)),
    ]
    request = PollRequest.of_due(due)
    assert request == PollRequest(
        windows=(("2019-03-02", "2019-03-09"), ("2019-03-20",)),
        cancellations=True,
        since="2019-03-01T04:30:00+00:00",
        event_ids=("a",),
    )
    assert request.poll().windows == tuple(windows)
    assert request.poll().since == since


def test_without_a_ledger_the_month_is_as_the_service_last_reported_it(polled: Polled) -> None:
    usage = last_usage(polled.home.state)
    assert usage is not None and usage.used is not None
    assert polled.inputs(LATER).month.used == usage.used > 0
    assert polled.inputs(LATER + timedelta(days=31)).month.used == 0, "of another month"


def test_no_poll_is_requested_before_a_deferred_one_may_resume(polled: Polled) -> None:
    now = LATER + timedelta(hours=9)
    until = now + timedelta(hours=2)
    inputs = polled.inputs(now)
    decision = decide_poll(inputs, LastRuns(), running=None, wait_until=until)
    assert decision.request is None
    assert decision.reason == "Deferred by the service until 2019-03-02 23:00:00 UTC."
    assert decide_poll(inputs, LastRuns(), running=None, wait_until=now).request


def test_free_has_no_polls_beside_the_daily_pull(
    tmp_path: Path,
) -> None:
    settings = settings_of(tmp_path, plan="free", coins=())
    with open_service(settings, now=datetime(2019, 3, 2, 0, 20, tzinfo=UTC)) as service:
        for feed in ("coins", "events", "cancellations"):
            pull(feed, service)
    merge(Home(tmp_path))
    facts = PollFacts(settings, Home(tmp_path))
    for hour in range(1, 24):
        inputs = facts.inputs(datetime(2019, 3, 2, hour, 30, tzinfo=UTC))
        assert inputs is not None
        # The cancellations are fresher than the list: a pull of them may be due.
        assert [due for due in plan_polls(inputs).due if isinstance(due, EventsPull)] == []


def test_the_job_polls_near_events_and_cancellations_at_once(polled: Polled) -> None:
    with open_service(polled.settings, now=LATER + timedelta(hours=10), work="polls") as service:
        result = polled.run(service, PollConfig())
    assert result.success
    events = {
        event.asset_key.path[0]: event.materialization
        for event in result.all_events
        if event.is_step_materialization and event.asset_key is not None
    }
    assert set(events) == {"polled_events", "polled_cancellations"}
    assert events["polled_events"].partition is None
    assert {"requests", "rows"} <= events["polled_events"].metadata.keys()
