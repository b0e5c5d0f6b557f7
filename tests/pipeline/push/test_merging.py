"""`almanac receive --merge`: what arrives is merged in the receiver's process, failures or not."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pipeline.receiver import merging
from pipeline.receiver.merging import MergeThread
from resources.inbox.deliveries import LOCK_NAME, waiting_deliveries
from resources.inbox.inbox_file import Arrival, InboxWriter
from resources.inbox.progress import inbox_folder, progress_path
from tests.hangs import HANGS_AFTER_S, wait_for
from tests.resources.inbox.deliveries import Clock, delivery
from warehouse.files.locks import hold_lock
from warehouse.home import Home
from warehouse.queries import connected


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "data", wait_s=0)
    home.claim("sandbox:1")
    return home


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merging, "FIRST_WAIT_S", 0.002)
    monkeypatch.setattr(merging, "LONGEST_WAIT_S", 0.008)


def store(home: Home, number: int) -> None:
    with InboxWriter.open(home, Clock().now) as writer:
        writer.store([Arrival(delivery(number))])


def published(home: Home) -> int:
    with connected(home.warehouse) as connection:
        return int(connection.sql("SELECT count(*) FROM events").fetchall()[0][0])


@contextmanager
def merging_of(home: Home, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """Run the thread; yields a function that waits for the next attempt that succeeded."""
    succeeded = threading.Semaphore(0)
    merge = MergeThread._merge

    def noted(self: MergeThread) -> None:
        merge(self)
        succeeded.release()

    monkeypatch.setattr(MergeThread, "_merge", noted)

    def wait() -> None:
        assert succeeded.acquire(timeout=HANGS_AFTER_S)

    thread = MergeThread(home, Clock().now)
    thread.start()
    try:
        yield lambda: (thread.wake(), wait())[1]
    finally:
        thread.stop()


def waits(caplog: pytest.LogCaptureFixture) -> list[float]:
    """Return the waits that were logged, the second value of each message."""
    found = [record.args for record in caplog.records if record.msg.startswith("not merged")]
    return [args[1] for args in found if isinstance(args, tuple)]  # type: ignore[misc]


def failing(times: int, error: Exception, then: Callable[..., Any]) -> Callable[..., Any]:
    left = [error] * times

    def call(*args: Any, **given: Any) -> Any:
        if left:
            raise left.pop()
        return then(*args, **given)

    return call


def test_what_is_in_the_inbox_is_landed_and_published(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    store(home, 1)
    with merging_of(home, monkeypatch) as next_success:
        next_success()
        assert published(home) == 1
        store(home, 2)
        next_success()
        next_success()
    assert published(home) == 2
    assert waiting_deliveries(home).count == 0


def test_a_delivery_that_arrives_during_a_merge_is_merged_next(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merging, "LOOK_EVERY_S", 300.0)
    thread, merges = MergeThread(home, Clock().now), threading.Semaphore(0)
    merge, arriving = merging.merging.merge, [2]

    def merge_while_it_arrives(merged: Home) -> None:
        merge(merged)
        if arriving:
            store(home, arriving.pop())
            thread.wake()
        merges.release()

    monkeypatch.setattr(merging.merging, "merge", merge_while_it_arrives)
    store(home, 1)
    thread.start()
    try:
        assert merges.acquire(timeout=HANGS_AFTER_S)
        assert merges.acquire(timeout=HANGS_AFTER_S)
    finally:
        thread.stop()
    assert published(home) == 2


@pytest.mark.parametrize(
    "error", [OSError(28, "No space left on device"), RuntimeError("unforeseen")], ids=str
)
def test_a_failure_is_tried_again_after_a_wait_that_doubles(
    home: Home, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    store(home, 1)
    land = failing(4, error, merging.land_deliveries)
    monkeypatch.setattr(merging, "land_deliveries", land)
    with merging_of(home, monkeypatch) as next_success:
        next_success()
    assert waits(caplog) == [0.002, 0.004, 0.008, 0.008]
    assert published(home) == 1
    has_traceback = [record.exc_info is not None for record in caplog.records if record.exc_info]
    assert bool(has_traceback and all(has_traceback)) == isinstance(error, RuntimeError)


def test_the_waits_begin_anew_after_a_success(
    home: Home, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for number in (1, 2):
        store(home, number)
        with monkeypatch.context() as patched:
            land = failing(2, OSError(5, "Input/output error"), merging.land_deliveries)
            patched.setattr(merging, "land_deliveries", land)
            with merging_of(home, patched) as next_success:
                next_success()
    assert waits(caplog) == [0.002, 0.004] * 2


@pytest.mark.parametrize("lock", ["merge", "landing"])
def test_a_lock_that_another_process_holds_loses_nothing_and_delays_no_stop(
    home: Home, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, lock: str
) -> None:
    store(home, 1)
    held = home.merge_lock() if lock == "merge" else landing_lock(home)
    thread = MergeThread(home, Clock().now)
    with held:
        thread.start()
        wait_for(lambda: len(waits(caplog)) >= 2)
        thread.stop()
    assert "is using this home" in caplog.text
    with merging_of(home, monkeypatch) as next_success:
        next_success()
    assert published(home) == 1


def test_a_stop_at_the_moment_in_which_a_merge_begins_waits_for_that_merge_alone(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merging, "LOOK_EVERY_S", 300.0)
    thread = MergeThread(home, Clock().now)

    class StoppedWhenCleared(threading.Event):
        def clear(self) -> None:
            thread._stopping.set()
            self.set()
            super().clear()

    thread._woken = StoppedWhenCleared()
    thread.start()
    thread._thread.join(HANGS_AFTER_S)
    assert not thread._thread.is_alive()


def landing_lock(home: Home) -> Any:
    return hold_lock(inbox_folder(home) / LOCK_NAME, "to land deliveries", wait_s=0)


def test_a_damaged_file_of_the_inbox_is_reported_and_used_once_it_is_restored(
    home: Home, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store(home, 1)
    progress_path(home).write_bytes(b"damaged" * 1_000)
    restored = threading.Event()
    thread_merge = MergeThread._merge

    def merge(self: MergeThread) -> None:
        if len(waits(caplog)) >= 2:
            progress_path(home).unlink(missing_ok=True)
            restored.set()
        thread_merge(self)

    monkeypatch.setattr(MergeThread, "_merge", merge)
    with merging_of(home, monkeypatch) as next_success:
        next_success()
    assert restored.is_set()
    assert "progress.sqlite of the inbox can't be used" in caplog.text
    assert published(home) == 1
