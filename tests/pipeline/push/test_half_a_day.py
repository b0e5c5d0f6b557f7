"""Half a day with push on: what it brings, what the slow polls find, and what gets lost.

The sandbox pushes to the receiver over HTTP; time is the sandbox's, three hours a step.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import duckdb
import pytest
from pydantic import SecretStr
from starlette.types import Receive, Scope, Send

from catalog.contract.signatures import Verifier
from catalog.sandbox.sandbox import Sandbox
from catalog.server.hosting import HostedApp
from pipeline.health.checks import read_health
from pipeline.health.facts import Health
from pipeline.polling.facts import PollFacts
from pipeline.polling.planner import CancellationsPull, EventsPull, LookUps, Pull, plan_polls
from pipeline.receiver.app import ReceiverApp
from pipeline.session import OpenedSession, open_service
from pipeline.settings import Settings
from resources.inbox.deliveries import land_deliveries
from resources.inbox.inbox_file import InboxWriter
from resources.request_log import DeferredPulls
from resources.session import Poll, poll_and_note, pull
from tests.pipeline.homes_in_days import settings_of
from warehouse.history.merge import merge
from warehouse.home import Home
from warehouse.landing.batches import Feed

START = datetime(2018, 12, 7, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)
STEP_H = 3
SECRET = "a-secret-of-the-tests-0123456789"
FEEDS: tuple[Feed, ...] = ("export", "events", "cancellations")


class LossyFront:
    """Stands before the receiver. While it is lossy, it answers 204 and passes nothing on."""

    def __init__(self, app: ReceiverApp) -> None:
        self.app = app
        self.is_lossy = False
        self.lost: list[dict[str, Any]] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not self.is_lossy:
            await self.app(scope, receive, send)
            return
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        self.lost.append(json.loads(body))
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})


@dataclass
class HalfDay:
    """The home, the sandbox, and the polls that were due."""

    settings: Settings
    service: OpenedSession
    front: LossyFront
    polls: list[tuple[datetime, Pull]] = field(default_factory=list)

    @property
    def home(self) -> Home:
        return Home(self.settings.home)

    @property
    def sandbox(self) -> Sandbox:
        assert self.service.sandbox is not None
        return self.service.sandbox

    @property
    def now(self) -> datetime:
        return self.sandbox.clock.now()

    def live(self, hours: int) -> None:
        """Let so many hours pass, as a daemon would: land, merge, and poll what is due."""
        for _ in range(hours // STEP_H):
            self.sandbox.advance(timedelta(hours=STEP_H) - MINUTE)
            self.sandbox.wait_until_pushed(15)
            land_deliveries(self.home, self.sandbox.clock.now)
            self._merge()
            # Deliveries and polls of one instant would have no order.
            self.sandbox.advance(MINUTE)
            while self._poll():
                self._merge()

    def _merge(self) -> None:
        if self.home.landing.pending():
            merge(self.home)

    def _poll(self) -> bool:
        inputs = PollFacts(self.settings, self.home).inputs(self.now)
        assert inputs is not None and inputs.push_is_on
        due = plan_polls(inputs).due
        if due:
            self.polls += [(self.now, what) for what in due]
            cancelled = [what for what in due if isinstance(what, CancellationsPull)]
            wanted = Poll(
                windows=tuple(what.window for what in due if isinstance(what, EventsPull)),
                cancellations=bool(cancelled),
                since=cancelled[0].since if cancelled else None,
                event_ids=tuple(
                    event_id
                    for what in due
                    if isinstance(what, LookUps)
                    for event_id in what.event_ids
                ),
            )
            deferrals = DeferredPulls(self.home.state_storage)
            assert all(not p.deferred for p in poll_and_note(self.service, wanted, deferrals))
        return bool(due)

    def health(self) -> Health:
        return read_health(self.settings, self.home, self.now)

    def versions(self, since: datetime) -> list[tuple[str, frozenset[str], str]]:
        """Return event, change kinds and feed of the versions since an instant."""
        with duckdb.connect(self.home.warehouse, read_only=True) as connection:
            rows = connection.execute(
                "SELECT event_id, change_kinds, feed FROM event_versions WHERE known_from > $since",
                {"since": since},
            ).fetchall()
        return [(event_id, frozenset(kinds), feed) for event_id, kinds, feed in rows]

    def statuses(self) -> dict[str, str]:
        with duckdb.connect(self.home.warehouse, read_only=True) as connection:
            return dict(connection.execute("SELECT event_id, status FROM events").fetchall())


@pytest.fixture(scope="module")
def half_day(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HalfDay]:
    """Twelve hours with push on, after a daily pull."""
    home = tmp_path_factory.mktemp("home")
    settings = settings_of(home, coins=(), plan="elite", webhook_secrets=SecretStr(SECRET))
    with open_service(settings, now=START, work="polls") as service:
        sandbox = service.sandbox
        assert sandbox is not None
        for feed in FEEDS:
            assert pull(feed, service).deferred is None
        merge(Home(home))
        clock = sandbox.clock.now
        verifier = Verifier([SECRET], forms=("hex",))
        with InboxWriter.open(Home(home), clock) as writer:
            front = LossyFront(ReceiverApp(lambda: verifier, writer, clock, path="/webhooks"))
            with HostedApp(front) as server:
                sandbox.subscribe(f"{server.base_url}/webhooks", secret=SECRET)
                story = HalfDay(settings, service, front)
                story.live(12)
                yield story


def test_push_brings_every_material_change_and_slow_polls_and_look_ups_the_withdrawals(
    half_day: HalfDay,
) -> None:
    until = START + 12 * HOUR
    changes = half_day.sandbox.truth().changes(START, until)
    withdrawn = {change.event_id for change in changes if "withdrawn" in change.kinds}
    assert len(withdrawn) == 3
    found = half_day.versions(START + MINUTE)
    pushed = {(event_id, kinds) for event_id, kinds, feed in found if feed == "deliveries"}
    happened = {
        (change.event_id, kinds)
        for change in changes
        if (kinds := frozenset(change.kinds) - {"verified"}) and kinds != {"withdrawn"}
    }
    # A change of a title, coins or categories alone is not pushed; the polls find it.
    unpushed = happened - pushed
    assert pushed < happened
    assert {kinds for _, kinds in unpushed} == {frozenset({"revised"})}
    assert len(unpushed) < len(pushed) / 5
    assert {kind for _, kinds in pushed for kind in kinds} >= {
        "created",
        "rescheduled",
        "cancelled",
    }
    pulled = {(event_id, kinds) for event_id, kinds, feed in found if feed != "deliveries"}
    removed = {(event_id, frozenset({"withdrawn"})) for event_id in withdrawn}
    assert pulled == unpushed | removed
    assert {half_day.statuses()[event_id] for event_id in withdrawn} == {"withdrawn"}

    windows = [at for at, what in half_day.polls if isinstance(what, EventsPull)]
    assert windows == [START + 6 * HOUR, START + 12 * HOUR]
    looked_up = [what.event_ids for _, what in half_day.polls if isinstance(what, LookUps)]
    assert {event_id for ids in looked_up for event_id in ids} == withdrawn
    health = half_day.health()
    assert health.push is not None and health.push.missed == []
    assert "push" not in [warning.kind for warning in health.warnings]


def test_deliveries_that_are_lost_are_named_once_a_poll_found_the_changes(
    half_day: HalfDay,
) -> None:
    half_day.front.is_lossy = True
    half_day.live(6)
    half_day.front.is_lossy = False
    changes = half_day.sandbox.truth().changes(START + 12 * HOUR, half_day.now)
    # A service need not report that an event is back, so that is not counted as missed.
    restored = {change.event_id for change in changes if "restored" in change.kinds}
    lost = {delivery["data"]["id"] for delivery in half_day.front.lost} - restored
    assert len(lost) >= 4
    half_day.sandbox.advance(HOUR)
    health = half_day.health()
    assert health.push is not None
    assert {change.event_id for change in health.push.missed} == lost
    assert {change.feed for change in health.push.missed} <= {"events", "cancellations"}
    (warning,) = [warning for warning in health.warnings if warning.kind == "push"]
    assert f"{len(health.push.missed)} changes of the last" in warning.text
    assert any(event_id in warning.text for event_id in lost)
