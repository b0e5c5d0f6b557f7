"""A failure that nobody foresaw: it is answered and logged, and the receiver goes on."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path

import pytest

from pipeline.receiver.group_commit import GroupCommit, NotStored
from pipeline.receiver.upkeep import Upkeep
from resources.inbox.inbox_file import Arrival, InboxReader, InboxWriter, StoreResult
from tests.hangs import HANGS_AFTER_S, wait_for
from tests.pipeline.receiver.served import request, served
from tests.resources.inbox.deliveries import Clock, delivery
from warehouse.home import Home


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


def hold_commits(monkeypatch: pytest.MonkeyPatch) -> tuple[threading.Event, threading.Event]:
    """Return two events: a commit has begun, and commits may end."""
    real, begun, may_end = InboxWriter.store, threading.Event(), threading.Event()

    def held(self: InboxWriter, arrivals: Sequence[Arrival]) -> list[StoreResult]:
        begun.set()
        assert may_end.wait(HANGS_AFTER_S)
        return real(self, arrivals)

    monkeypatch.setattr(InboxWriter, "store", held)
    return begun, may_end


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
    begun, may_end = hold_commits(monkeypatch)

    async def end_during_a_commit(writer: InboxWriter) -> None:
        commits = GroupCommit(writer)
        running = asyncio.create_task(commits.run())
        storing = asyncio.create_task(commits.store(Arrival(delivery(1))))
        await asyncio.to_thread(begun.wait, HANGS_AFTER_S)
        running.cancel()
        with pytest.raises(NotStored):
            await asyncio.wait_for(storing, HANGS_AFTER_S)
        may_end.set()
        await commits.close()

    with InboxWriter.open(home, Clock().now) as writer:
        asyncio.run(end_during_a_commit(writer))
    assert InboxReader(home).last() == (1, Clock().now())


def test_counts_that_could_not_be_stored_are_stored_at_the_stop(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def count(writer: InboxWriter) -> None:
        commits = GroupCommit(writer)
        running = asyncio.create_task(commits.run())
        commits.count_refused("mismatch")
        await asyncio.to_thread(wait_for, lambda: commits.is_failing)
        commits.count_refused("mismatch")
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await commits.close()

    monkeypatch.setattr("pipeline.receiver.group_commit._COUNTS_AFTER_S", 0.02)
    fail_once(monkeypatch, "count_refusals")
    with InboxWriter.open(home, Clock().now) as writer:
        asyncio.run(count(writer))
    assert [(found.reason, found.requests) for found in InboxReader(home).refusals()] == [
        ("mismatch", 2)
    ]


def test_a_client_that_leaves_during_a_commit_neither_ends_nor_holds_up_the_commits(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, may_end = hold_commits(monkeypatch)

    async def leave(writer: InboxWriter) -> None:
        commits = GroupCommit(writer)
        running = asyncio.create_task(commits.run())
        leaving = asyncio.create_task(commits.store(Arrival(delivery(1))))
        await asyncio.to_thread(begun.wait, HANGS_AFTER_S)
        leaving.cancel()
        may_end.set()
        assert (
            await asyncio.wait_for(commits.store(Arrival(delivery(2))), HANGS_AFTER_S) == "stored"
        )
        assert not running.done()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await commits.close()

    with InboxWriter.open(home, Clock().now) as writer:
        asyncio.run(leave(writer))
    assert InboxReader(home).last() == (2, Clock().now())
