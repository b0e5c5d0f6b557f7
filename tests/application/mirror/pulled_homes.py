"""Homes that Almanac fills on a clock that is set: from the sandbox, or from a replay of it.

Both are filled as by a daemon: a daily pull of every feed, the polls and look-ups that the planner
requests, webhooks through the receiver, landing and merging.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import httpx
from pydantic import SecretStr

from application.receiver import Receiver
from application.web.mirror.replay import Replay
from catalog.contract.constants import SIGNATURE_FORMS
from catalog.contract.signatures import Verifier
from catalog.sandbox.sandbox import ACCOUNT, Sandbox
from catalog.server.catalog_store import ChangeQuery
from catalog.server.hosting import HostedApp
from catalog.server.sql_store import SqlStore
from catalog.server.state_dir import ServiceDir
from catalog.server.webhooks.sender import reported_kinds
from pipeline.automation.jobs import EXPORT_IS_OUT_AT as DAILY_AT
from pipeline.polls import INTERVALS, plan_polls, read_poll_inputs
from pipeline.service_session import OpenedSession, open_service
from pipeline.settings import Settings
from resources.inbox import Inbox
from resources.request_log import DeferredPulls
from resources.session import poll, pull
from tests.application.mirror.replays import order, replaying
from tests.hangs import HANGS_AFTER_S, wait_for
from tests.resources.inbox.deliveries import landed_bodies
from warehouse.history.merge import merge
from warehouse.home import Home
from warehouse.landing.batches import Feed

SECRET = "a-secret-of-the-tests-0123456789"
FEEDS: tuple[Feed, ...] = ("export", "events", "cancellations", "coins", "categories")
MINUTE = timedelta(minutes=1)
PUSH_TAKES = timedelta(seconds=2)


@dataclass(frozen=True, slots=True)
class Span:
    """When the sandbox is watched, and the time between two steps.

    A replay is pulled `lag` later than the sandbox, so that no two pulls are simultaneous.
    """

    start: datetime
    days: int
    step: timedelta
    lag: timedelta

    @property
    def until(self) -> datetime:
        return self.start + timedelta(days=self.days)

    @property
    def mirrored_from(self) -> datetime:
        return self.start + self.lag


@dataclass
class SandboxUpstream:
    """The sandbox. It delivers a change two seconds later."""

    sandbox: Sandbox
    is_pushing: bool = False

    def now(self) -> datetime:
        return self.sandbox.clock.now()

    def subscribe(self, url: str) -> None:
        self.sandbox.subscribe(url, secret=SECRET)
        self.is_pushing = True

    def move(self, until: datetime) -> None:
        if self.is_pushing:
            changes = self.sandbox.truth().changes(self.now() - PUSH_TAKES, until - PUSH_TAKES)
            for at in sorted({change.at + PUSH_TAKES for change in changes}):
                self.sandbox.set_clock(at)
                self.sandbox.wait_until_pushed(HANGS_AFTER_S)
        self.sandbox.set_clock(until)


@dataclass
class ReplayUpstream:
    """A replay. It delivers a change when the replayed home knew it."""

    replay: Replay
    client: httpx.Client
    folder: ServiceDir
    inbox: Callable[[], int]
    is_pushing: bool = False

    def now(self) -> datetime:
        return self.replay.clock.now()

    def subscribe(self, url: str) -> None:
        self.folder.endpoint_book().subscribe(
            url, account=ACCOUNT, secret=SECRET, signature=SIGNATURE_FORMS[0]
        )
        self.is_pushing = True

    def move(self, until: datetime) -> None:
        if self.is_pushing:
            store = self.replay.store()
            reported = list_reported(store, until)
            for at in sorted({at for _, at in reported if at > self.now()}):
                order(self.client, now=at.isoformat())
                deliveries = sum(known <= at for _, known in reported)
                wait_for(lambda least=deliveries: self.inbox() >= least)
        order(self.client, now=until.isoformat())


def list_reported(store: SqlStore, until: datetime) -> list[tuple[str, datetime]]:
    """Return the event and the time of each delivery of a replay."""
    found = store.changes(ChangeQuery(until=until), limit=1_000_000)
    return [
        (version.event_id, version.known_from)
        for version in found.rows
        for _ in reported_kinds(version)
    ]


@dataclass
class Daemon:
    """Fills one home from one upstream."""

    settings: Settings
    service: OpenedSession
    upstream: SandboxUpstream | ReplayUpstream
    span: Span

    @property
    def home(self) -> Home:
        return Home(self.settings.home)

    def live(self, until: datetime, *, daily_at: time) -> None:
        """Let days pass, with a daily pull of each."""
        while (now := self.upstream.now()) < until:
            daily = datetime.combine(now.date() + timedelta(days=1), daily_at, UTC)
            for step in count(1):
                at = min(now + step * self.span.step, daily, until)
                # Deliveries and pulls of one second would have no order.
                self.upstream.move(at - MINUTE)
                Inbox(self.home).land(self.upstream.now)
                self.upstream.move(at)
                if at in (daily, until):
                    break
                while self._poll():
                    self._merge()
            self.pull_day()

    def pull_day(self) -> None:
        """Pull every feed, as the daily job does."""
        for feed in FEEDS:
            assert pull(feed, self.service).deferred is None
        self._merge()

    def _merge(self) -> None:
        Inbox(self.home).land(self.upstream.now)
        if self.home.landing.pending():
            merge(self.home)

    def _poll(self) -> bool:
        # The Date of a response sets the clock of the home.
        self.service.request_usage()
        inputs = read_poll_inputs(self.settings, self.home, self.service.clock())
        assert inputs is not None
        plan = plan_polls(inputs)
        deferrals = DeferredPulls(self.home.state_storage)
        assert all(not p.deferred for p in poll(self.service, plan.due, deferrals))
        return bool(plan.requests)


def fill_from_sandbox(root: Path, span: Span) -> Home:
    """Return a home that was filled from the sandbox."""
    settings = _settings(root, span, plan="elite")
    with ExitStack() as stack:
        service = stack.enter_context(open_service(settings, now=span.start, work="polls"))
        assert service.sandbox is not None
        upstream = SandboxUpstream(service.sandbox)
        daemon = Daemon(settings, service, upstream, span)
        daemon.pull_day()
        upstream.subscribe(stack.enter_context(_receiving(daemon.home, upstream.now)))
        daemon.live(span.until, daily_at=DAILY_AT)
    return daemon.home


def fill_from_replay(root: Path, source: Home, span: Span) -> Home:
    """Return a home that was filled from a replay of another."""
    folder = root / "mirror"
    with ExitStack() as stack:
        replay, client = stack.enter_context(replaying(source, folder, span.mirrored_from))
        key = SecretStr("any-key-0123456789")
        settings = _settings(root, span, base_url=str(client.base_url), api_key=key)
        service = stack.enter_context(open_service(settings, work="polls"))
        home = Home(settings.home)
        upstream = ReplayUpstream(replay, client, ServiceDir(folder), lambda: count_received(home))
        daemon = Daemon(settings, service, upstream, span)
        # Before the first pull, so that no change falls in between.
        upstream.subscribe(stack.enter_context(_receiving(home, upstream.now)))
        daemon.pull_day()
        daemon.live(span.until, daily_at=(datetime.combine(span.start, DAILY_AT) + span.lag).time())
    return daemon.home


def count_received(home: Home) -> int:
    """Return the number of deliveries in the inbox and in landing."""
    landed = sum(map(len, landed_bodies(home).values()))
    return landed + len(Inbox(home).names())


def _settings(root: Path, span: Span, **given: Any) -> Settings:
    poll_s = int(span.step.total_seconds() * 0.8)  # Every band is due at every step.
    return Settings(
        home=root / "home",
        state=root / "machine",
        webhook_secrets=SecretStr(SECRET),
        max_clock_skew_days=36_500,
        export_interval_s=0,
        poll_interval_s=poll_s // max(INTERVALS.values()),
        push_poll_interval_s=poll_s,
        **given,
    )


@contextmanager
def _receiving(home: Home, clock: Callable[[], datetime]) -> Iterator[str]:
    """Run the receiver of a home; yield the address for webhooks."""
    verifier = Verifier([SECRET], forms=("hex",))
    receiver = Receiver(lambda: verifier, Inbox(home), clock, path="/webhooks")
    with HostedApp(receiver.app) as server:
        yield f"{server.base_url}/webhooks"
