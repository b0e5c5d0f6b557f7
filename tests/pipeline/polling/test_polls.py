"""Polls: the runs that the sensor requests, the job, and the inputs of the planner, as push."""

import json
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster import build_sensor_context

from assets.layout import Layout
from assets.polled import NAME, POLLED, PollConfig, poll_run_config
from pipeline.automation.jobs import POLL
from pipeline.automation.sensors import (
    Decision,
    JobHistory,
    decide_poll,
    polls_sensor,
    request_poll,
)
from pipeline.build import build_definitions
from pipeline.polls import (
    CANCELLATIONS,
    INTERVALS,
    MISSING,
    PollInputs,
    plan_polls,
    read_poll_inputs,
)
from pipeline.service_session import OpenedSession, open_service
from pipeline.settings import Settings
from resources.errors import Defer, Reason
from resources.request_log import DeferredPulls, last_usage
from resources.scopes import PollWindow
from resources.session import LazySession, Poll, pull
from tests.pipeline.conftest import Almanac
from tests.pipeline.homes_in_days import QUIET, settings_of
from tests.pipeline.small_home import NOW as PUSHED_AT
from tests.pipeline.small_home import SmallHome
from tests.warehouse.inbox.deliveries import delivery, store
from warehouse.files.storage import Storage
from warehouse.history.merge import merge
from warehouse.home import Home
from warehouse.landing.inbox import Inbox

LAYOUT = Layout()
NOW = datetime(2019, 3, 2, 9, tzinfo=UTC)
"""The catalog of that year is a fraction of today's."""
LATER = NOW + timedelta(hours=3)
NO_RUNS = JobHistory()
HOUR = timedelta(hours=1)


def config_of(request: dg.RunRequest) -> PollConfig:
    return PollConfig(**request.run_config["ops"][NAME]["config"])


@dataclass(frozen=True)
class Polled:
    """A home on a plan that is polled, with its instance."""

    settings: Settings
    instance: dg.DagsterInstance

    @property
    def home(self) -> Home:
        return Home(self.settings.home)

    def inputs(self, now: datetime) -> PollInputs:
        inputs = read_poll_inputs(self.settings, self.home, now)
        assert inputs is not None
        return inputs

    def decide(self, at_service: datetime, last: JobHistory = NO_RUNS, **given: Any) -> Decision:
        given = {"now": at_service, "running": None, **given}
        return decide_poll(LAYOUT, self.inputs(at_service), last, **given)

    def tick(self, now: datetime) -> dg.SensorResult:
        """Evaluate the sensor on an instance without runs, whose times are of this machine."""
        sensor = polls_sensor(LAYOUT, self.settings, self.home, lambda: now)
        definitions = build_definitions(self.settings, clock=lambda: now)
        with dg.DagsterInstance.ephemeral() as instance:
            result = sensor(build_sensor_context(instance=instance, definitions=definitions))
        assert isinstance(result, dg.SensorResult)
        return result

    def opened(self, now: datetime) -> AbstractContextManager[OpenedSession]:
        return open_service(self.settings, now=now, work="polls")

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


def materialised(result: dg.ExecuteInProcessResult) -> dict[str, dg.AssetMaterialization]:
    return {
        event.asset_key.to_user_string(): event.materialization
        for event in result.get_asset_materialization_events()
        if event.asset_key is not None
    }


@pytest.fixture(scope="module")
def polled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Polled]:
    """A home on Pro after pulls of every feed at NOW."""
    settings = settings_of(tmp_path_factory.mktemp("home"), coins=(), plan="pro")
    with dg.DagsterInstance.ephemeral() as instance:
        fresh = Polled(settings_of(tmp_path_factory.mktemp("fresh")), instance)
        assert "job daily" in reason_of(fresh.tick(NOW)), "nothing was pulled"
        found = Polled(settings, instance)
        with open_service(settings, now=NOW) as service:
            for feed in ("events", "cancellations", "coins", "categories"):
                assert pull(feed, service).deferred is None
        merge(found.home)
        yield found


def test_no_poll_is_due_after_the_daily_pull_until_the_interval_is_over(polled: Polled) -> None:
    result = polled.tick(NOW + timedelta(minutes=5))
    assert "The next poll is due at 2019-03-02 09:1" in reason_of(result)
    assert not result.run_requests


def test_planner_inputs_are_read_from_warehouse_and_landing(polled: Polled) -> None:
    inputs = polled.inputs(LATER)
    assert inputs.plan.name == "pro"
    assert sum(count for _, _, count in inputs.spans) > 500
    assert inputs.month.quota == 300_000
    assert inputs.month.reserve == 60_000
    assert 15 < inputs.month.daily_requests < 30
    assert set(inputs.last_pulls) == {name for name in INTERVALS if name != MISSING}
    assert inputs.push_until is None
    usage = last_usage(polled.home.state)
    assert usage is not None and usage.used is not None
    assert inputs.month.used == usage.used > 0
    assert polled.inputs(LATER + timedelta(days=31)).month.used == 0, "of another month"


def test_due_pulls_are_a_run_that_sends_what_the_plan_says(polled: Polled) -> None:
    result = polled.tick(LATER)
    (request,) = result.run_requests or ()
    expected = plan_polls(polled.inputs(LATER)).requests
    with polled.opened(LATER) as service:
        before = service.log.count
        assets = [key.to_user_string() for key in request.asset_selection or ()]
        run = polled.run(service, config_of(request), *assets)
        sent = service.log.count - before
    assert run.success
    assert sent == expected
    shown = materialised(run)
    assert set(shown) == {"polled_events", "polled_cancellations"}
    assert {"requests", "rows", "quota left"} <= shown["polled_events"].metadata.keys()
    soon = LATER + timedelta(minutes=2)
    assert "Nothing is due" in reason_of(polled.tick(soon)), "what it landed is not pulled again"
    merge(polled.home)
    assert polled.inputs(soon).last_pulls[CANCELLATIONS] >= LATER - timedelta(seconds=1)


def test_no_poll_is_requested_while_a_run_pulls(polled: Polled) -> None:
    decision = polled.decide(LATER + timedelta(hours=9), running="0123456789")
    assert decision.request is None
    assert "Run 01234567 is pulling" in decision.reason


def test_the_wait_after_failed_polls_doubles(polled: Polled) -> None:
    now = LATER + timedelta(hours=9)
    decision = polled.decide(now, JobHistory(now - timedelta(minutes=20), 6))
    assert decision.request is None
    assert decision.reason.startswith("6 polls failed; the next poll starts at 21:12:00")
    assert polled.decide(now, JobHistory(now - timedelta(minutes=40), 6)).request


def test_two_polls_are_never_closer_than_the_least_interval(polled: Polled) -> None:
    now = LATER + timedelta(hours=9)
    for minutes, is_requested in ((14, False), (15, True)):
        last = JobHistory(now - timedelta(minutes=minutes))
        assert bool(polled.decide(now, last).request) == is_requested
        # Runs are dated by the machine, whose clock may differ from the service's.
        assert bool(polled.decide(now + HOUR, last, now=now).request) == is_requested


def test_a_poll_looks_up_each_missing_event_by_id(polled: Polled) -> None:
    config = PollConfig(event_ids=["no-such-event", "nor-this-one"])
    over = Defer(Reason("asked_to_wait", "asked to wait", LATER))
    DeferredPulls(Storage(polled.home.state)).note("polls", "cancellations", over, NOW)
    with polled.opened(LATER + timedelta(hours=1)) as service:
        before = service.log.count
        assert polled.run(service, config, "polled_look_ups").success
        assert service.log.count - before == 2
    assert polled.inputs(LATER + timedelta(hours=1)).last_pulls[MISSING] >= LATER
    assert DeferredPulls(Storage(polled.home.state)).all() == [], "its time to wait is over"


def test_every_polled_asset_is_materialised_also_if_it_had_nothing_to_do(polled: Polled) -> None:
    with polled.opened(LATER + timedelta(hours=2)) as service:
        found = materialised(polled.run(service, PollConfig()))
    assert found.keys() == set(POLLED.values())
    nothing = found["polled_look_ups"].metadata
    assert (nothing["rows"].value, nothing["outcome"].value) == (0, "no event to look up")
    assert found["polled_events"].metadata["outcome"].value == "pulled"


def test_a_poll_deferred_by_the_quota_is_recorded_and_succeeds(polled: Polled) -> None:
    config = PollConfig(windows=[["2019-03-02"]])
    deferrals = DeferredPulls(Storage(polled.home.state))
    with polled.opened(LATER + timedelta(hours=2)) as service:
        assert service.sandbox is not None
        service.sandbox.faults.set("quota~events")
        assert polled.run(service, config).success
        (note,) = deferrals.all()
        assert (note.work, note.feed) == ("polls", "cancellations")
        assert note.resume_at.date() == date(2019, 4, 1)
    with polled.opened(LATER + timedelta(hours=2)) as service:
        assert polled.run(service, config).success
    assert deferrals.all() == []


def test_a_request_has_the_due_pulls() -> None:
    since = datetime(2019, 3, 1, 4, 30, tzinfo=UTC)
    windows = PollWindow(date(2019, 3, 2), date(2019, 3, 9)), PollWindow(date(2019, 3, 20), None)
    due = Poll(windows, cancellations=True, since=since, event_ids=("a",))
    request = request_poll(LAYOUT, due, run_key="key")
    config = config_of(request)
    assert config.windows == [["2019-03-02", "2019-03-09"], ["2019-03-20"]]
    assert config.since == "2019-03-01T04:30:00+00:00"
    assert config.event_ids == ["a"]
    assert {key.to_user_string() for key in request.asset_selection or ()} == set(POLLED.values())
    assert request.tags["dagster/max_retries"] == "0"
    (alone,) = request_poll(LAYOUT, Poll(cancellations=True), run_key="key").asset_selection or ()
    assert alone.to_user_string() == "polled_cancellations"


def test_no_poll_is_requested_before_a_deferred_one_may_resume(polled: Polled) -> None:
    now = LATER + timedelta(hours=9)
    until = now + timedelta(hours=2)
    decision = polled.decide(now, wait_until=until)
    assert decision.request is None
    assert decision.reason == "Deferred by the service until 2019-03-02 23:00:00 UTC."
    assert polled.decide(now, wait_until=now).request


@pytest.fixture
def small(tmp_path: Path) -> SmallHome:
    small = SmallHome(tmp_path / "home", plan="elite", push_poll_interval_s=7_200)
    small.land(at=PUSHED_AT - HOUR)
    return small


def receive(home: Home, at: datetime, number: int = 1) -> None:
    store(home, at, delivery(number, at=at))


def inputs_of(small: SmallHome, now: datetime = PUSHED_AT) -> PollInputs:
    found = read_poll_inputs(small.settings, small.home, now)
    assert found is not None
    return found


def least_interval(found: PollInputs) -> timedelta:
    return min(row.interval for row in plan_polls(found).rows)


def test_push_is_on_from_the_first_delivery_until_the_silence_limit(small: SmallHome) -> None:
    assert inputs_of(small).push_until is None
    receive(small.home, PUSHED_AT)
    assert inputs_of(small).push_is_on
    assert least_interval(inputs_of(small)) == 2 * HOUR
    assert inputs_of(small, PUSHED_AT + 24 * HOUR).push_is_on
    silent = inputs_of(small, PUSHED_AT + 25 * HOUR)
    assert not silent.push_is_on and least_interval(silent) < HOUR
    Inbox(small.home).land(lambda: PUSHED_AT)
    assert inputs_of(small).push_is_on and not inputs_of(small, PUSHED_AT + 25 * HOUR).push_is_on
    receive(small.home, PUSHED_AT + 26 * HOUR, 2)
    assert inputs_of(small, PUSHED_AT + 26 * HOUR).push_is_on


def test_the_budget_shows_whether_push_is_on(almanac: Almanac, tmp_path: Path) -> None:
    home = Home(tmp_path / "data")
    home.claim("sandbox:1")
    now = datetime.now(UTC)
    assert json.loads(almanac("budget", "--json", plan="elite").stdout)["push_until"] is None
    receive(home, now - 30 * HOUR)
    silent = almanac("budget", plan="elite").stdout
    assert "Push is silent since" in silent and "15 min" in silent
    receive(home, now - HOUR, 2)
    shown = almanac("budget", plan="elite").stdout
    assert "Push is received: intervals are at least 6.0 h" in shown
    found = json.loads(almanac("budget", "--json", plan="elite").stdout)
    assert (found["push_is_on"], found["schedule"][0]["interval_s"]) == (True, 21_600)
