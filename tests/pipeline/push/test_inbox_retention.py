"""Bodies of landed deliveries are cleared by the receiver, or by `almanac prune` without one."""

import asyncio
import json
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from pipeline.receiver.app import ReceiverApp
from pipeline.receiver.group_commit import GroupCommit
from pipeline.receiver.upkeep import Upkeep
from resources.inbox.deliveries import land_deliveries
from resources.inbox.inbox_file import Arrival, InboxReader, InboxWriter, StoreResult, inbox_path
from resources.inbox.progress import connected, progress_path
from tests.hangs import HANGS_AFTER_S
from tests.pipeline.conftest import Almanac
from tests.resources.inbox.deliveries import Clock, delivery
from warehouse.home import Home

KEEP = timedelta(days=30)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "data", wait_s=0)
    home.claim("sandbox:1")
    return home


@pytest.fixture
def clock() -> Clock:
    return Clock()


def arrivals(count: int, begin: int = 0) -> list[Arrival]:
    return [Arrival(delivery(number)) for number in range(begin, begin + count)]


def with_bodies(home: Home) -> list[int]:
    with closing(connected(inbox_path(home), read_only=True)) as connection:
        rows = connection.execute("SELECT seq FROM deliveries WHERE body IS NOT NULL ORDER BY 1")
        return [seq for (seq,) in rows.fetchall()]


def store_old_and_landed(home: Home, clock: Clock, count: int) -> None:
    with InboxWriter.open(home, clock.now) as writer:
        writer.store([*arrivals(count), Arrival(b"unreadable")])
        land_deliveries(home, clock.now)
        clock.advance(days=31)
        writer.store(arrivals(1, begin=count))


class RecordingWriter:
    """The writer, and the names of its calls in their order."""

    def __init__(self, writer: InboxWriter) -> None:
        self.writer = writer
        self.calls: list[str] = []

    def store(self, group: Sequence[Arrival]) -> list[StoreResult]:
        self.calls.append("store")
        return self.writer.store(group)

    def clear_bodies(self, **values: Any) -> int:
        self.calls.append("clear")
        return self.writer.clear_bodies(**values)


def run_with(home: Home, clock: Clock, work: Callable[[Any, Upkeep, GroupCommit], Any]) -> Any:
    """Run a coroutine with an upkeep over the home's inbox, and the commits of a receiver."""

    async def run(writer: Any) -> Any:
        commits = GroupCommit(writer)
        running = asyncio.create_task(commits.run())
        upkeep = Upkeep(home, writer, clock.now, keep=KEEP, pause_s=0)
        try:
            return await work(writer, upkeep, commits)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await commits.close()

    with InboxWriter.open(home, clock.now) as writer:
        return asyncio.run(run(RecordingWriter(writer)))


def test_a_receiver_clears_old_bodies_that_are_landed_and_no_others(
    home: Home, clock: Clock
) -> None:
    store_old_and_landed(home, clock, 5)
    land_deliveries(home, clock.now)
    clock.advance(days=29)

    async def clear(writer: Any, upkeep: Upkeep, commits: GroupCommit) -> int:
        return await upkeep.clear(commits) + await upkeep.clear(commits)

    assert run_with(home, clock, clear) == 5
    # The unreadable one is a dead letter, and the newest is young.
    assert with_bodies(home) == [6, 7]


def test_bodies_that_are_old_but_not_landed_stay(home: Home, clock: Clock) -> None:
    with InboxWriter.open(home, clock.now) as writer:
        writer.store(arrivals(3))
    clock.advance(days=365)
    assert run_with(home, clock, lambda writer, upkeep, commits: upkeep.clear(commits)) == 0
    assert with_bodies(home) == [1, 2, 3]


def test_deliveries_are_stored_between_the_steps_of_a_long_clearing(
    home: Home, clock: Clock
) -> None:
    store_old_and_landed(home, clock, 350)

    async def clear_and_store(writer: Any, upkeep: Upkeep, commits: GroupCommit) -> list[str]:
        clearing = asyncio.create_task(upkeep.clear(commits))
        await asyncio.sleep(0)
        await commits.store(Arrival(delivery(1_000)))
        assert await clearing == 350
        calls: list[str] = writer.calls
        return calls

    calls = run_with(home, clock, clear_and_store)
    assert calls.count("clear") == 5
    assert calls.index("store") < 3


def test_a_clearing_that_fails_is_logged_and_deliveries_are_still_stored(
    home: Home, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    store_old_and_landed(home, clock, 2)
    progress_path(home).write_bytes(b"damaged" * 1_000)

    async def clear_and_store(writer: Any, upkeep: Upkeep, commits: GroupCommit) -> StoreResult:
        assert await upkeep.clear(commits) == 0
        return await commits.store(Arrival(delivery(1_000)))

    assert run_with(home, clock, clear_and_store) == "stored"
    assert "could not be cleared" in caplog.text


def test_the_application_clears_when_it_starts(home: Home, clock: Clock) -> None:
    store_old_and_landed(home, clock, 3)

    async def start(writer: InboxWriter) -> None:
        cleared, messages = asyncio.Event(), asyncio.Queue[str]()

        class Announced(Upkeep):
            async def clear(self, commits: GroupCommit) -> int:
                found = await super().clear(commits)
                cleared.set()
                return found

        upkeep = Announced(home, writer, clock.now, keep=KEEP, pause_s=0)
        app = ReceiverApp(_no_verifier, writer, clock.now, path="/webhooks", upkeep=upkeep)

        async def receive() -> dict[str, str]:
            return {"type": await messages.get()}

        async def send(message: Any) -> None:
            pass

        living = asyncio.create_task(app({"type": "lifespan"}, receive, send))
        messages.put_nowait("lifespan.startup")
        await asyncio.wait_for(cleared.wait(), HANGS_AFTER_S)
        messages.put_nowait("lifespan.shutdown")
        await asyncio.wait_for(living, HANGS_AFTER_S)

    with InboxWriter.open(home, clock.now) as writer:
        asyncio.run(start(writer))
    assert with_bodies(home) == [4, 5]


def _no_verifier() -> Any:
    raise AssertionError("no request is sent")


def log_bytes(home: Home) -> int:
    return inbox_path(home).with_name(inbox_path(home).name + "-wal").stat().st_size


def test_the_log_that_a_reader_let_grow_is_cut_once_it_is_in_the_file(
    home: Home, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("resources.inbox.inbox_file.LOG_BYTES_MAX", 100_000)
    with InboxWriter.open(home, clock.now) as writer:
        writer.store(arrivals(1))
        with closing(connected(inbox_path(home), read_only=True)) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM deliveries").fetchone()
            for begin in range(1, 3_001, 500):
                writer.store(arrivals(500, begin=begin))
                writer.checkpoint()  # It waits for no reader.
            assert log_bytes(home) > 2_000_000
        writer.checkpoint()
        writer.store(arrivals(1, begin=5_000))
        assert log_bytes(home) <= 100_000
        assert InboxReader(home).last() == (3_002, clock.now())


def test_a_receiver_without_deliveries_moves_the_log_into_the_file(
    home: Home, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline.receiver.group_commit._COUNTS_AFTER_S", 0.01)
    moved: list[int] = []
    checkpoint = InboxWriter.checkpoint

    async def store_and_wait(writer: InboxWriter) -> None:
        commits, idle = GroupCommit(writer), asyncio.Event()
        loop = asyncio.get_running_loop()

        def noted(self: InboxWriter) -> None:
            checkpoint(self)
            moved.append(_rows_in_file_alone(home))
            loop.call_soon_threadsafe(idle.set)

        monkeypatch.setattr(InboxWriter, "checkpoint", noted)
        running = asyncio.create_task(commits.run())
        for number in range(3):
            idle.clear()
            await commits.store(Arrival(delivery(number)))
            await asyncio.wait_for(idle.wait(), HANGS_AFTER_S)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await commits.close()

    with InboxWriter.open(home, clock.now) as writer:
        asyncio.run(store_and_wait(writer))
    assert moved[-3:] == [1, 2, 3]


def _rows_in_file_alone(home: Home) -> int:
    """Return the number of deliveries in the file, as it would be read without its log."""
    address = f"file:{inbox_path(home)}?mode=ro&immutable=1"
    with closing(sqlite3.connect(address, uri=True)) as connection:
        return int(connection.execute("SELECT count(*) FROM deliveries").fetchone()[0])


def pruned(almanac: Almanac, *words: str) -> int:
    rows = json.loads(almanac("prune", *words, "--json").stdout)
    (count,) = [row["count"] for row in rows if row["what"] == "bodies of landed deliveries"]
    return int(count)


def test_prune_clears_bodies_where_no_receiver_runs(almanac: Almanac, home: Home) -> None:
    clock = Clock(datetime.now(UTC) - timedelta(days=31))
    store_old_and_landed(home, clock, 150)
    assert pruned(almanac, "--dry-run") == 150
    assert len(with_bodies(home)) == 152
    assert pruned(almanac) == 150
    assert with_bodies(home) == [151, 152]
    assert pruned(almanac) == 0


def test_prune_leaves_bodies_to_a_receiver_that_runs(
    almanac: Almanac, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("resources.inbox.inbox_file._LOCK_WAIT_S", 0)
    clock = Clock(datetime.now(UTC) - timedelta(days=31))
    store_old_and_landed(home, clock, 2)
    with InboxWriter.open(home, clock.now):
        assert pruned(almanac) == 0
    assert with_bodies(home) == [1, 2, 3, 4]


def test_prune_makes_no_inbox(almanac: Almanac, home: Home) -> None:
    rows = json.loads(almanac("prune", "--json").stdout)
    assert "bodies of landed deliveries" not in [row["what"] for row in rows]
    assert not inbox_path(home).parent.exists()
