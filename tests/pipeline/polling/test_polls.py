"""Polls: what the sensor requests, what the job lands, and the inputs of the planner after it."""

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import dagster as dg
import pytest
from dagster import build_sensor_context

from assets.layout import Layout
from pipeline.automation.polls import POLL, PollState, config_of, decide_poll
from pipeline.automation.runs import LastRuns
from pipeline.build import build_definitions
from pipeline.instance import instance_of
from pipeline.polling.inputs import PollFacts
from pipeline.polling.plan import CancellationsPull, EventsPull, LookUps, PlannerInputs
from pipeline.polling.planner import plan_polls
from pipeline.session import OpenedSession, open_service
from pipeline.settings import Settings
from resources.deferrals import DeferredPulls, deferred_pull
from resources.errors import Defer
from resources.feeds import pull
from resources.ingest.scopes import PollWindow
from resources.request_log import last_usage
from resources.session import LazySession
from tests.pipeline.homes_in_days import NOW, QUIET, failure_of, run_sandbox_days, settings_of
from warehouse.files.storage import Storage
from warehouse.history.merge import merge
from warehouse.home import Home

LATER = NOW + timedelta(hours=3)


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

    def tick(self, now: datetime, cursor: str | None = None) -> dg.SensorResult:
        """Evaluate the sensor of a fresh daemon."""
        definitions = build_definitions(self.settings, clock=lambda: now)
        context = build_sensor_context(
            instance=self.instance, cursor=cursor, definitions=definitions
        )
        result = definitions.resolve_sensor_def("polls")(context)
        assert isinstance(result, dg.SensorResult)
        return result

    def run(self, service: OpenedSession, config: dict[str, object]) -> dg.ExecuteInProcessResult:
        with LazySession(lambda: nullcontext(service), clock=service.clock) as session:
            job = build_definitions(self.settings, catalog_for_polls=session).resolve_job_def(POLL)
            return job.execute_in_process(
                instance=self.instance, raise_on_error=False, run_config={**QUIET, **config}
            )


LAYOUT = Layout()


@pytest.fixture(scope="module")
def polled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Polled]:
    """A home on Pro after the daily pull at NOW."""
    settings = settings_of(tmp_path_factory.mktemp("home"), coins=(), plan="pro")
    with instance_of(Home(settings.home)) as instance:
        run_sandbox_days(settings, instance, days=1)
        yield Polled(settings, instance)


def test_a_fresh_home_requests_no_poll_and_names_the_command_to_run(tmp_path: Path) -> None:
    with instance_of(Home(tmp_path)) as instance:
        result = Polled(settings_of(tmp_path), instance).tick(NOW)
    assert result.run_requests == []
    assert result.skip_reason is not None
    assert "almanac run" in str(result.skip_reason.skip_message)


def test_no_poll_is_due_after_the_daily_pull_until_the_interval_is_over(polled: Polled) -> None:
    result = polled.tick(NOW + timedelta(minutes=5))
    assert result.run_requests == []
    assert "The next pull is due at 2026-03-02 09:1" in str(result.skip_reason)


def test_a_due_poll_is_requested_landed_and_then_not_due(polled: Polled) -> None:
    requested = polled.tick(LATER)
    (request,) = requested.run_requests or []
    assert request.run_key == "poll-20260302T120000"
    with open_service(polled.settings, now=LATER, work="polls") as service:
        result = polled.run(service, request.run_config)
        assert result.success
    recorded = {
        (event.materialization.asset_key.path[0], event.materialization.partition)
        for event in result.all_events
        if event.is_step_materialization
    }
    assert recorded == {
        ("landed_events", "2026-03-02"),
        ("landed_cancellations", "2026-03-02"),
    }
    merge(polled.home)
    soon = LATER + timedelta(minutes=2)
    after = polled.tick(soon, requested.cursor)
    assert after.run_requests == []
    pulled_at = polled.inputs(soon).cancellations_pulled_at
    assert pulled_at is not None
    assert pulled_at >= LATER - timedelta(seconds=1)
    # A daemon that lost its cursor requests nothing twice: what is due follows from landing.
    assert polled.tick(soon, None).run_requests == []


def test_planner_inputs_are_read_from_warehouse_and_landing(polled: Polled) -> None:
    inputs = polled.inputs(LATER)
    assert inputs.plan.name == "pro"
    assert sum(inputs.calendar.begins.values()) > 1_000
    assert inputs.month.quota == 300_000
    assert inputs.month.reserve == 60_000
    assert 25 < inputs.month.daily_requests < 60
    assert inputs.last_pulls[date(2026, 3, 20)] <= inputs.now
    assert inputs.webhooks is False


def test_no_poll_is_requested_while_a_run_pulls(polled: Polled) -> None:
    inputs = polled.inputs(LATER + timedelta(hours=9))
    decision = decide_poll(LAYOUT, inputs, PollState(), LastRuns(), running="0123456789")
    assert decision.request is None
    assert "Run 01234567 is pulling" in decision.reason


def test_a_failed_poll_is_requested_after_a_wait_that_doubles(polled: Polled) -> None:
    now = LATER + timedelta(hours=9)
    inputs = polled.inputs(now)
    failed = LastRuns(now - timedelta(minutes=40), failures=6)
    decision = decide_poll(LAYOUT, inputs, PollState(), failed, running=None)
    assert decision.request is None
    assert decision.reason.startswith("6 polls failed; the next one starts at 21:24:00")
    assert decide_poll(
        LAYOUT, inputs, PollState(), LastRuns(now - timedelta(minutes=70), 6), running=None
    ).request


def test_two_polls_are_never_closer_than_the_least_interval(polled: Polled) -> None:
    now = LATER + timedelta(hours=9)
    inputs = polled.inputs(now)
    assert (
        decide_poll(
            LAYOUT, inputs, PollState(at=now - timedelta(minutes=14)), LastRuns(), running=None
        ).request
        is None
    )
    assert decide_poll(
        LAYOUT, inputs, PollState(at=now - timedelta(minutes=15)), LastRuns(), running=None
    ).request


def test_a_garbled_cursor_counts_as_none(polled: Polled) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        fresh = Polled(polled.settings, instance)
        assert fresh.tick(LATER + timedelta(hours=9), "{").run_requests


def test_a_poll_looks_up_each_missing_event_by_id(polled: Polled) -> None:
    config = config_of(LAYOUT, [LookUps(("no-such-event", "nor-this-one"))])
    over = Defer("asked to wait", resume_at=LATER, reason="asked_to_wait")
    DeferredPulls(Storage(polled.home.state)).note(
        deferred_pull("polls", "cancellations", over, NOW)
    )
    with open_service(polled.settings, now=LATER + timedelta(hours=1), work="polls") as service:
        before = service.log.count
        assert polled.run(service, config).success
        assert service.log.count - before == 2
    inputs = polled.inputs(LATER + timedelta(hours=1))
    assert inputs.looked_up_today == 2
    assert DeferredPulls(Storage(polled.home.state)).all() == [], "its time to wait is over"


def test_a_poll_deferred_by_the_quota_is_recorded_and_succeeds(polled: Polled) -> None:
    config = config_of(
        LAYOUT, [CancellationsPull(None), EventsPull(PollWindow(date(2026, 3, 2), None), 30)]
    )
    deferrals = DeferredPulls(Storage(polled.home.state))
    with open_service(polled.settings, now=LATER + timedelta(hours=2), work="polls") as service:
        assert service.sandbox is not None
        service.sandbox.faults.set("quota~events")
        assert polled.run(service, config).success
        (note,) = deferrals.all()
        assert (note.work, note.feed) == ("polls", "cancellations")
        assert note.resume_at.date() == date(2026, 4, 1)
        service.sandbox.faults.clear()
        assert polled.run(service, config).success
    assert deferrals.all() == []


def test_a_failed_poll_has_the_reason(polled: Polled) -> None:
    config = config_of(LAYOUT, [EventsPull(PollWindow(date(2026, 3, 2), None), 30)])
    with open_service(polled.settings, now=LATER + timedelta(hours=4), work="polls") as service:
        assert service.sandbox is not None
        service.sandbox.faults.set("repeat_cursor~events")
        result = polled.run(service, config)
    assert not result.success
    assert "returned a cursor" in failure_of(result)


@pytest.mark.parametrize("last", [date(2026, 3, 9), None])
def test_a_window_is_the_same_after_the_config_of_a_run(last: date | None) -> None:
    window = PollWindow(date(2026, 3, 2), last)
    assert PollWindow.of_texts(*window.texts()) == window


def test_a_window_that_is_no_date_is_an_error() -> None:
    with pytest.raises(ValueError, match="isoformat"):
        PollWindow.of_texts("tomorrow")


def test_the_config_of_a_run_has_the_due_pulls() -> None:
    since = datetime(2026, 3, 1, 4, 30, tzinfo=UTC)
    windows = [PollWindow(date(2026, 3, 2), date(2026, 3, 9)), PollWindow(date(2026, 3, 20), None)]
    due = [
        *(EventsPull(window, 1) for window in windows),
        CancellationsPull(since),
        LookUps(("a",)),
    ]
    assert config_of(LAYOUT, due)["ops"] == {
        "look_again": {
            "config": {
                "windows": [["2026-03-02", "2026-03-09"], ["2026-03-20"]],
                "cancellations": True,
                "since": "2026-03-01T04:30:00+00:00",
                "event_ids": ["a"],
                "as_daily": False,
            }
        }
    }


def test_without_a_ledger_the_month_is_as_the_service_last_reported_it(polled: Polled) -> None:
    usage = last_usage(polled.home.state)
    assert usage is not None and usage.used is not None
    assert polled.inputs(LATER).month.used == usage.used > 0
    assert polled.inputs(LATER + timedelta(days=31)).month.used == 0, "of another month"


def test_no_poll_is_requested_before_a_deferred_one_may_resume(polled: Polled) -> None:
    now = LATER + timedelta(hours=9)
    until = now + timedelta(hours=2)
    inputs = polled.inputs(now)
    decision = decide_poll(LAYOUT, inputs, PollState(), LastRuns(), running=None, wait_until=until)
    assert decision.request is None
    assert decision.reason == "Deferred by the service until 2026-03-02 23:00:00 UTC."
    assert decide_poll(
        LAYOUT, inputs, PollState(), LastRuns(), running=None, wait_until=now
    ).request


def test_free_has_no_polls_beside_the_daily_pull(
    tmp_path: Path,
) -> None:
    settings = settings_of(tmp_path, plan="free", coins=())
    with open_service(settings, now=datetime(2026, 3, 2, 0, 20, tzinfo=UTC)) as service:
        for feed in ("coins", "events", "cancellations"):
            pull(feed, service)
    merge(Home(tmp_path))
    facts = PollFacts(settings, Home(tmp_path))
    for hour in range(1, 24):
        inputs = facts.inputs(datetime(2026, 3, 2, hour, 30, tzinfo=UTC))
        assert inputs is not None
        # The cancellations are fresher than the list: a pull of them may be due.
        assert [due for due in plan_polls(inputs).due if isinstance(due, EventsPull)] == []
