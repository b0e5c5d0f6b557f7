"""Four days of pulls by a machine whose clock is days off, with interrupted answers.

Belongs here: one such run from a seed, and the differences of the published history from the truth.
Does not: how answers are interrupted (cutting_upstream).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest
from pydantic import SecretStr

from catalog.contract.plans import ENTERPRISE
from catalog.sandbox.sandbox import Sandbox
from catalog.sandbox.world.world import World
from resources.errors import CatalogError
from resources.http.client import CatalogClient
from resources.request_log import DeferredPulls, RequestLog
from resources.scopes import PollWindow
from resources.service_clock import ServiceClock
from resources.session import CatalogSession, Poll, poll, pull
from resources.waits import Ambient, RetryPolicy
from tests.history.model.comparison import EVENT_COLUMNS, VERSION_COLUMNS, Rows, published
from tests.history.model.observations import CONTENT_FIELDS, PLAN_RULES, Showing
from tests.history.stories.cutting_upstream import CuttingUpstream
from tests.history.stories.merged_story import reading
from tests.unlimited import Unlimited
from warehouse.files.storage import Storage
from warehouse.history.merge import merge, replay
from warehouse.home import Home
from warehouse.landing.batches import Feed

SOURCE: Final = "http://catalog.test"
DAYS: Final = 4
FIRST: Final = datetime(2017, 7, 1, tzinfo=UTC)
"""The first day that a run may begin. A sandbox makes its world up to its present."""
_MINUTE, _HOUR, _DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
_DAILY: Final[tuple[Feed, ...]] = ("export", "events", "cancellations")
_RARE: Final[tuple[Feed, ...]] = ("categories", "coins")
"""They cost many requests and have no events."""
_NEARLY: Final = timedelta(seconds=5)
_UNCOMPARED: Final = {"updated_at", "last_verified_at"}


class Killed(BaseException):
    """The process died here: its open files and pulls stay open."""


class ClocksApart:
    """One run, which depends on the seed only."""

    def __init__(
        self, seed: int, root: Path, sandbox: Sandbox, upstream: CuttingUpstream, key: str
    ) -> None:
        self.random = Random(seed)
        self.home = Home(root)
        self.sandbox = sandbox
        self._upstream = upstream
        self._key = SecretStr(key)
        self._starts = FIRST + self.random.randrange(120) * _DAY
        self._skew = self.random.uniform(-48, 48) * _HOUR
        self._fault_rate = self.random.choice((0.0, 0.1, 0.3, 0.6, 0.9))
        upstream.dated = []

    def machine(self) -> datetime:
        return self.sandbox.clock.now() + self._skew

    def run(self) -> None:
        """Pull every day and sometimes in between, with merges; then once without faults."""
        self._upstream.before = self._advance_clock
        self._upstream.cut = self._cut
        times = sorted(
            day * _DAY + self.random.choice((0, 6, 12, 18, 23)) * _HOUR + 59 * _MINUTE
            for day in range(DAYS)
        )
        for after in times:
            # Mostly minutes before an hour is full, so that a day changes within some pulls.
            self.sandbox.clock.set(self._starts + after + self.random.randrange(60) * _MINUTE / 60)
            near = self.random.random() < 0.3
            self._process(_DAILY if near else ("export", "cancellations"))
            if self.random.random() < 0.5:
                self.sandbox.clock.advance(self.random.uniform(0.2, 3) * _HOUR // _MINUTE * _MINUTE)
                self._process(())
            if self.random.random() < 0.25:
                merge(self.home)
            if self.random.random() < 0.2:
                # The machine's clock is set, as it may be to a part of a day.
                self._skew += self.random.uniform(-20, 20) * _MINUTE
        self._fault_rate = 0.0
        self.sandbox.clock.set(self._starts + DAYS * _DAY + 12 * _HOUR)
        self._process((*_DAILY, *_RARE) if self.random.random() < 0.03 else _DAILY)
        merge(self.home)

    def _process(self, feeds: tuple[Feed, ...]) -> None:
        """Do the work of one process: the feeds of a day, or a poll; an error or a kill ends it."""
        try:
            with self._opened() as service:
                for feed in feeds:
                    pull(feed, service)
                if not feeds:
                    today = service.today()
                    near = PollWindow(today - 7 * _DAY, today + 30 * _DAY)
                    what = Poll(windows=(near,), cancellations=True)
                    list(poll(service, what, DeferredPulls(self.home.state_storage)))
        except (CatalogError, Killed):
            return

    @contextmanager
    def _opened(self) -> Iterator[CatalogSession]:
        state = Storage(self.home.state)
        service_clock = ServiceClock(self.machine, state=state)
        ambient = Ambient(self.machine, sleep=lambda seconds: None, random=lambda: 0.0)
        with CatalogClient(
            self._upstream.base_url,
            self._key,
            limiter=Unlimited(),
            ambient=ambient,
            policy=RetryPolicy(attempts=self.random.choice((1, 2, 3))),
            service_clock=service_clock,
        ) as client:
            usage = client.usage()
            self.home.claim(SOURCE)
            service_clock.keep()
            yield CatalogSession(
                client=client,
                plan=ENTERPRISE,
                source=SOURCE,
                landing=self.home.landing,
                clock=self.machine,
                log=RequestLog(self.home.state, self.machine, key=self._key),
                usage=usage,
                on_page=self._on_page,
            )

    def _on_page(self, feed: str, rows: int, total: int | None) -> None:
        if self.random.random() < 0.05 * self._fault_rate:
            raise Killed

    def _advance_clock(self) -> None:
        self.sandbox.clock.advance(timedelta(seconds=self.random.randrange(45)))

    def _cut(self, head: bytes, body: bytes) -> bytes:
        if self.random.random() >= self._fault_rate:
            return head + body
        kind = self.random.choice(("head", "body", "body", "silent"))
        if kind == "head":
            return head[: self.random.randrange(len(head))]
        whole = head
        if kind == "silent":
            # Without a length: the answer ends where the connection ends.
            lines = [line for line in head.split(b"\r\n") if b"content-length" not in line.lower()]
            whole = b"\r\n".join(lines)
        return whole + body[: self.random.randrange(len(body) + 1)]

    # The checks of a run.

    def differences(self, world: World, *, replayed: bool) -> list[str]:
        """Return what is wrong with the batches, the versions and, if requested, the replay."""
        before = self._tables()
        wrong = [*self._wrong_times(), *_false_versions(world, before[1]), *self._lacking(world)]
        if replayed:
            replay(self.home)
            if self._tables() != before:
                wrong.append("replay gives another history")
        return wrong

    def _tables(self) -> tuple[Rows, Rows]:
        with reading(self.home) as connection:
            return (
                published(connection, "events", EVENT_COLUMNS),
                published(connection, "event_versions", VERSION_COLUMNS),
            )

    def _wrong_times(self) -> Iterator[str]:
        """Yield the batches whose date is not that of an answer of the service."""
        landing = self.home.landing
        for batch in map(landing.manifest, landing.batch_ids()):
            if min(abs(batch.observed_at - at) for at in self._upstream.dated) > _NEARLY:
                yield f"{batch.batch_id} is dated by no answer"
            if batch.content_at > batch.observed_at:
                yield f"{batch.batch_id} was true at {batch.content_at}, after it was observed"
            if batch.date_doubt is not None:
                yield f"{batch.batch_id}: {batch.date_doubt}"
            # The rest of a killed pull is requested from its last row on.
            since = batch.scope.since
            back = None if since is None else batch.observed_at - since
            if back is not None and back > 87 * _DAY and abs(back - 90 * _DAY) > _HOUR:
                yield f"{batch.batch_id} requests since {since}, at {batch.observed_at}"

    def _lacking(self, world: World) -> Iterator[str]:
        """Yield the events of the last export that are absent, or not scheduled."""
        exports = [batch_id for batch_id in self.home.landing.batch_ids() if "-export-" in batch_id]
        last = self.home.landing.manifest(exports[-1])
        with reading(self.home) as connection:
            rows = connection.sql("SELECT event_id, status FROM events").fetchall()
        status = dict(rows)
        for event_id in world.events_at(last.content_at):
            # An event that changed after the export was requested may have its change, or not yet.
            now = world.status_at(event_id, self.sandbox.clock.now())
            if now == "scheduled" and status.get(event_id) != "scheduled":
                yield f"{event_id} is scheduled, and published as {status.get(event_id)}"


def _false_versions(world: World, versions: Rows) -> Iterator[str]:
    """Yield observed versions that were never true between content_at and known_from."""
    showing = Showing(world)
    for (event_id, number), row in versions.items():
        if row["known_basis"] != "observed":
            continue
        known_from, content_at = row["known_from"], row["content_at"]
        history = world.history(event_id, known_from)
        then = [
            version
            for version in history
            if version.known_to is None or version.known_to > content_at
        ]
        alike = [version for version in then if version.status == row["status"]]
        if row["status"] == "withdrawn":
            # An event that was cancelled after its withdrawal is cancelled by the next pull.
            alike = [version for version in then if version.status != "scheduled"]
        if not alike:
            statuses = [version.status for version in then]
            yield f"{event_id} v{number} {row['status']} at {known_from}, in truth {statuses}"
        elif row["status"] == "scheduled":
            contents = [_content(showing, version.event) for version in alike]
            if {name: row[name] for name in contents[0]} not in contents:
                yield f"{event_id} v{number} of {known_from} has a content that it never had then"


def _content(showing: Showing, event: Any) -> dict[str, Any]:
    content = showing._content(event, PLAN_RULES["enterprise"])
    return {name: content[name] for name in CONTENT_FIELDS if name not in _UNCOMPARED}


def fail_if_wrong(wrong: list[str], seed: int) -> None:
    if wrong:
        shown = "\n".join(wrong[:8])
        pytest.fail(f"seed {seed}, {len(wrong)} wrong:\n{shown}", pytrace=False)
