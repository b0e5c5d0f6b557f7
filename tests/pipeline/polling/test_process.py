"""The process of a poll: what it requests, lands and records, and how it ends."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest

from catalog.sandbox.sandbox import Sandbox
from pipeline.polling.inputs import PollFacts
from pipeline.polling.planner import plan_polls
from pipeline.polling.process import execute_poll
from pipeline.polling.records import PollRecord, PollRecords, PollRequest
from pipeline.polling.starter import PollProcess
from pipeline.session import OpenedSession, open_service
from pipeline.settings import Settings
from resources.deferrals import DeferredPulls
from resources.errors import Defer
from resources.feeds import pull
from tests.pipeline.homes_in_days import NOW, address_of, settings_of
from tests.test_cli import environment
from warehouse.clock import utc_now
from warehouse.errors import LockHeld
from warehouse.files.locks import hold_lock
from warehouse.history.merge import merge
from warehouse.home import Home
from warehouse.news import quiet_batches

WHOLE = PollRequest(windows=(("2026-03-01", "2026-03-31"),), cancellations=True)


@dataclass(frozen=True)
class Served:
    """A home on Pro after its daily pull, and its service, whose clock stands still."""

    settings: Settings
    service: Sandbox

    @property
    def home(self) -> Home:
        return Home(self.settings.home)

    def opened(self) -> AbstractContextManager[OpenedSession]:
        return open_service(self.settings, work="polls")

    def poll(self, request: PollRequest = WHOLE) -> PollRecord:
        # Two batches of one instant would be the same batch.
        self.service.advance(timedelta(seconds=1))
        return execute_poll(self.home, request, self.opened, clock=utc_now)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with Sandbox(seed=1, now=NOW, export_interval_s=0) as service:
        key = service.new_key("pro")
        settings = settings_of(
            tmp_path_factory.mktemp("polled"),
            **address_of(service.base_url, key),
            max_clock_skew_days=1_000,
        )
        with open_service(settings) as session:
            for feed in ("coins", "categories", "cancellations", "events"):
                pull(feed, session)
        merge(Home(settings.home))
        yield Served(settings, service)


def paths_since(served: Served) -> list[str]:
    return [request.path for request in served.service.requests]


def test_a_poll_sends_what_the_plan_says_and_no_request_of_the_usage(served: Served) -> None:
    served.service.advance(timedelta(hours=12))
    with served.opened() as session:
        pull("categories", session)  # The clock of the home learns the time.
    inputs = PollFacts(served.settings, served.home).inputs(utc_now())
    assert inputs is not None
    due = plan_polls(inputs).due
    served.service.forget_requests()
    record = served.poll(PollRequest.of_due(due))
    sent = paths_since(served)
    assert "/v2/usage" not in sent
    assert len(sent) == record.sent == sum(pull.requests for pull in due)
    assert record.quota_left is not None
    assert {polled.feed for polled in record.feeds} == {"events", "cancellations"}


def test_batches_with_which_a_merge_would_change_nothing_are_quiet(served: Served) -> None:
    served.poll()
    merge(served.home)
    record = served.poll()
    assert [polled.feed for polled in record.feeds] == ["cancellations", "events"]
    assert record.news == ()
    pending = served.home.landing.pending()
    assert quiet_batches(served.home, pending) == frozenset(pending)
    assert served.poll().news == (), "quiet batches are not judged a second time"
    versions = merge(served.home).versions
    assert versions == 0
    assert quiet_batches(served.home, served.home.landing.pending()) == frozenset()


def test_a_change_of_an_event_is_news(served: Served) -> None:
    served.poll()
    merge(served.home)
    served.service.advance(timedelta(hours=6))
    record = served.poll()
    assert "events" in {polled.feed for polled in record.news}
    assert quiet_batches(served.home, served.home.landing.pending()) != frozenset(
        served.home.landing.pending()
    )
    assert merge(served.home).versions > 0


def test_failures_are_counted_until_a_poll_succeeds(served: Served) -> None:
    served.service.faults.set("repeat_cursor~events")
    try:
        first, second = served.poll(), served.poll()
    finally:
        served.service.faults.clear()
    assert "returned a cursor" in first.error
    assert (first.failures, second.failures) == (1, 2)
    assert first.ended_at is not None
    assert served.poll().failures == 0


def test_a_deferral_while_an_open_pull_is_continued_holds_back_the_next_poll(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    until = NOW + timedelta(days=30)

    def deferred(session: OpenedSession) -> None:
        raise Defer("asked to wait", resume_at=until, reason="asked_to_wait")

    deferrals = DeferredPulls(served.home.state_storage)
    with monkeypatch.context() as patched:
        patched.setattr(OpenedSession, "resume_open", deferred)
        record = served.poll()
    assert (record.failures, record.feeds) == (0, ()), "it is no failure, and pulled nothing"
    assert [(note.work, note.resume_at) for note in deferrals.all()] == [("polls", until)]
    deferrals.done("polls", "events")


def test_one_process_polls_at_a_time(served: Served) -> None:
    before = PollRecords(served.home).last()
    with (
        hold_lock(PollRecords(served.home).lock, "to poll"),
        pytest.raises(LockHeld, match="Nothing was done"),
    ):
        served.poll()
    assert PollRecords(served.home).last() == before


def test_a_poll_that_is_interrupted_is_no_failure(served: Served) -> None:
    def interrupted() -> AbstractContextManager[OpenedSession]:
        raise SystemExit(143)

    with pytest.raises(SystemExit):
        execute_poll(served.home, WHOLE, interrupted, clock=utc_now)
    record = PollRecords(served.home).last()
    assert record is not None
    assert record.interrupted and record.ended_at is not None and record.failures == 0


def test_the_process_polls_as_the_function_does(served: Served, tmp_path: Path) -> None:
    address = served.settings.service_address()
    assert address is not None
    env = {
        **environment(served.home.root),
        "ALMANAC_BASE_URL": address[0],
        "ALMANAC_API_KEY": address[1].get_secret_value(),
        "ALMANAC_STATE": str(served.settings.state),
        "ALMANAC_COINS": ",".join(served.settings.coins),
        "ALMANAC_MAX_CLOCK_SKEW_DAYS": "1000",
    }
    served.service.forget_requests()
    done = subprocess.run(
        [sys.executable, "-m", "pipeline.polling.process"],
        input=json.dumps({"cancellations": True}) + "\n",
        # The pipe closes with the input, as if the starter had ended: it is ended or succeeds.
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 143), done.stderr
    record = PollRecords(served.home).last()
    assert record is not None and record.ended_at is not None
    assert record.interrupted == (done.returncode == 143)


def test_the_process_of_a_poll_does_not_import_dagster() -> None:
    program = "import sys, pipeline.polling.process; sys.exit('dagster' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)


STARTER = """
import sys
from pipeline.polling.records import PollRequest
from pipeline.polling.starter import PollProcess
poll = PollProcess(sys.executable, "-c", sys.argv[1])
poll.start(PollRequest(cancellations=True))
sys.stdin.read()
"""
WAITING_POLL = """
import sys, time
import pipeline.polling.process as process
def wait(*words, **given):
    try:
        # The signal may come right after it.
        print("polling", file=sys.stderr, flush=True)
        time.sleep(600)
    finally:
        print("ended", file=sys.stderr, flush=True)
process.execute_poll = wait
sys.exit(process.main())
"""


def test_a_poll_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", STARTER, WAITING_POLL],
        env=environment(tmp_path),
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as starter:
        assert starter.stderr is not None
        assert starter.stderr.readline() == "polling\n"
        starter.kill()
        assert starter.stderr.read() == "ended\n"


def test_a_process_that_ends_is_not_running() -> None:
    poll = PollProcess(sys.executable, "-c", "pass")
    poll.start(PollRequest())
    assert not poll.is_running(wait_s=30)
