"""Homes that Almanac fills on a clock that is set: from the sandbox, or from a replay of it.

Both are filled as by a daemon: a daily pull of every feed, the polls and look-ups that the planner
requests, webhooks through the receiver, landing and merging.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, time, timedelta
from itertools import count
from pathlib import Path
from typing import Any, Protocol

from pydantic import SecretStr

from catalog.contract.signatures import Verifier
from catalog.sandbox.sandbox import Sandbox, register
from catalog.server.hosting import HostedApp
from catalog.server.state_dir import ServiceDir
from pipeline.automation.jobs import EXPORT_IS_OUT_AT as DAILY_AT
from pipeline.mirror.replay_server import ReplayOrder, ReplayServer
from pipeline.polls import INTERVALS, plan_polls, read_poll_inputs
from pipeline.receiver import Receiver
from pipeline.session import OpenedSession, open_service
from pipeline.settings import Settings
from resources.inbox import Inbox
from resources.request_log import DeferredPulls
from resources.session import poll, pull
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
    """When the sandbox is watched, the time between two steps, and whether it sends webhooks.

    A replay is pulled `lag` later than the sandbox, so that no two pulls are simultaneous.
    """

    start: datetime
    days: int
    step: timedelta
    lag: timedelta
    is_pushed: bool = True

    @property
    def until(self) -> datetime:
        return self.start + timedelta(days=self.days)

    @property
    def mirrored_from(self) -> datetime:
        return self.start + self.lag


class Upstream(Protocol):
    """A service whose clock is set."""

    def now(self) -> datetime: ...

    def subscribe(self, url: str) -> None:
        """Send webhooks to an address from now on."""
        ...

    def move(self, until: datetime) -> None:
        """Move the clock to a time; what changes on the way is delivered at its own time."""
        ...


class SandboxUpstream:
    """The sandbox. It delivers a change two seconds later."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox
        self._is_pushing = False

    def now(self) -> datetime:
        return self._sandbox.clock.now()

    def subscribe(self, url: str) -> None:
        self._sandbox.subscribe(url, secret=SECRET)
        self._is_pushing = True

    def move(self, until: datetime) -> None:
        if self._is_pushing:
            changes = self._sandbox.truth().changes(self.now() - PUSH_TAKES, until - PUSH_TAKES)
            for at in sorted({change.at + PUSH_TAKES for change in changes}):
                self._sandbox.set_clock(at)
                self._sandbox.wait_until_pushed(HANGS_AFTER_S)
        self._sandbox.set_clock(until)


class ReplayUpstream:
    """A replay. It delivers a change when the replayed home knew it."""

    def __init__(self, replay: ReplayServer, folder: Path, inbox: Callable[[], int]) -> None:
        self._replay = replay
        self._folder = ServiceDir(folder)
        self._inbox = inbox
        self._is_pushing = False

    def now(self) -> datetime:
        return self._replay.clock.now()

    def subscribe(self, url: str) -> None:
        register(self._folder, url, secret=SECRET)
        self._is_pushing = True

    def move(self, until: datetime) -> None:
        store, start = self._replay.store, self._replay.clock.start
        if self._is_pushing:
            reported = store.changes(self.now(), until)
            for at in sorted({change.at for change in reported}):
                self._replay.move(ReplayOrder(now=at.isoformat()))
                deliveries = len(store.changes(start, at))
                wait_for(lambda least=deliveries: self._inbox() >= least)
        self._replay.move(ReplayOrder(now=until.isoformat()))


@dataclass
class Daemon:
    """Fills one home from one upstream."""

    settings: Settings
    service: OpenedSession
    upstream: Upstream
    span: Span
    pulled_at: list[datetime] = field(default_factory=list)
    exported_at: list[datetime] = field(default_factory=list)

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
        self.pulled_at.append(self.upstream.now())
        self.exported_at.append(self.upstream.now())
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
        if plan.due.windows:
            self.pulled_at.append(self.upstream.now())
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
        if span.is_pushed:
            upstream.subscribe(stack.enter_context(_receiving(daemon.home, upstream.now)))
        daemon.live(span.until, daily_at=DAILY_AT)
    return daemon.home


def fill_from_replay(root: Path, source: Home, span: Span, *, is_pushed: bool) -> Daemon:
    """Fill a home from a replay of another, with or without webhooks."""
    folder = root / "mirror"
    with ExitStack() as stack:
        server = ReplayServer(source.warehouse, span.mirrored_from, paused=True, state_dir=folder)
        replay = stack.enter_context(server)
        key = SecretStr("any-key-0123456789")
        settings = _settings(root, span, base_url=replay.base_url, api_key=key)
        service = stack.enter_context(open_service(settings, work="polls"))
        home = Home(settings.home)
        upstream = ReplayUpstream(replay, folder, lambda: count_received(home))
        daemon = Daemon(settings, service, upstream, span)
        if is_pushed:
            # Before the first pull, so that no change falls in between.
            upstream.subscribe(stack.enter_context(_receiving(home, upstream.now)))
        daemon.pull_day()
        daemon.live(span.until, daily_at=(datetime.combine(span.start, DAILY_AT) + span.lag).time())
    return daemon


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
