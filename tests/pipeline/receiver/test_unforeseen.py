"""A failure that nobody foresaw: it is answered and logged, and the receiver goes on."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path

import pytest

from pipeline.receiver.group_commit import GroupCommit, NotStored
from pipeline.receiver.upkeep import Upkeep
from resources.inbox.inbox_file import Arrival, InboxReader, InboxWriter, Stored
from tests.pipeline.receiver.served import request, served
from tests.resources.inbox.deliveries import Clock, delivery
from warehouse.home import Home

WITHIN_S = 10.0


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "home", wait_s=0)
    home.claim("sandbox:1")
    return home


def fail_once(monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    real: Callable[..., object] = getattr(InboxWriter, method)

    def fail(*given: object, **named: object) -> object:
        monkeypatch.setattr(InboxWriter, method, real)
        raise RuntimeError("unforeseen")

    monkeypatch.setattr(InboxWriter, method, fail)


def test_a_delivery_is_refused_and_the_next_one_is_stored(
    home: Home, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    health = request(b"", method="GET", path="/healthz")
    with served(home, Clock()) as receiver:
        fail_once(monkeypatch, "store")
        assert receiver.post(delivery(1)).status == 503
        assert receiver.send(health).status == 503
        assert receiver.post(delivery(1)).status == 204
        assert receiver.send(health).status == 200
    assert "RuntimeError: unforeseen" in caplog.text


def test_bodies_that_could_not_be_cleared_are_cleared_the_next_time(
    home: Home, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def clear_twice(writer: InboxWriter) -> None:
        commits = GroupCommit(writer)
        upkeep = Upkeep(home, writer, Clock().now, keep=timedelta(days=1), pause_s=0)
        assert await upkeep.clear(commits) == 0
        assert "RuntimeError: unforeseen" in caplog.text
        assert await upkeep.clear(commits) == 0
        await commits.close()

    fail_once(monkeypatch, "clear_bodies")
    with InboxWriter.open(home, Clock().now) as writer:
        asyncio.run(clear_twice(writer))


def test_requests_are_answered_though_the_commits_end_during_theirs(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, begun, may_end = InboxWriter.store, threading.Event(), threading.Event()

    def slow(self: InboxWriter, arrivals: Sequence[Arrival]) -> list[Stored]:
        begun.set()
        assert may_end.wait(WITHIN_S)
        return real(self, arrivals)

    async def end_during_a_commit(writer: InboxWriter) -> None:
        commits = GroupCommit(writer)
        running = asyncio.create_task(commits.run())
        storing = asyncio.create_task(commits.store(Arrival(delivery(1))))
        await asyncio.to_thread(begun.wait, WITHIN_S)
        running.cancel()
        with pytest.raises(NotStored):
            await asyncio.wait_for(storing, WITHIN_S)
        may_end.set()
        await commits.close()

    monkeypatch.setattr(InboxWriter, "store", slow)
    with InboxWriter.open(home, Clock().now) as writer:
        asyncio.run(end_during_a_commit(writer))
    assert InboxReader(home).last() == (1, Clock().now())
