"""`almanac receive --merge`: what arrives is merged in the receiver's process, failures or not."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from application import receiver
from application.receiver import MergeThread
from resources.inbox import Inbox
from tests.hangs import wait_for
from tests.resources.inbox.deliveries import START, Clock, delivery, store
from warehouse.home import Home
from warehouse.queries import connected


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "data", wait_s=0)
    home.claim("sandbox:1")
    return home


def published(home: Home) -> int:
    if not home.warehouse.exists():
        return 0
    with connected(home.warehouse) as connection:
        return int(connection.sql("SELECT count(*) FROM events").fetchall()[0][0])


@contextmanager
def merging(home: Home) -> Iterator[MergeThread]:
    thread = MergeThread(home, Clock().now)
    thread.start()
    try:
        yield thread
    finally:
        thread.stop()


def test_what_is_in_the_inbox_is_published_at_the_start_and_when_it_arrives(home: Home) -> None:
    store(home, START, delivery(1))
    with merging(home) as thread:
        wait_for(lambda: published(home) == 1)
        store(home, START, delivery(2))
        thread.wake()
        wait_for(lambda: published(home) == 2)
    assert Inbox(home).names() == []


@pytest.mark.parametrize(
    "error", [OSError(28, "No space left on device"), RuntimeError("unforeseen")], ids=str
)
def test_a_failure_is_logged_and_tried_again(
    home: Home, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    failures, merge = [error, error], receiver.merge

    def fail_at_first(merged: Home) -> object:
        if failures:
            raise failures.pop()
        return merge(merged)

    monkeypatch.setattr(receiver, "merge", fail_at_first)
    monkeypatch.setattr(receiver, "MERGE_EVERY_S", 0.01)
    store(home, START, delivery(1))
    with merging(home):
        wait_for(lambda: published(home) == 1)
    logged = [record for record in caplog.records if record.msg.startswith("not merged")]
    assert len(logged) == 2
    assert all(bool(record.exc_info) == isinstance(error, RuntimeError) for record in logged)


def test_a_lock_that_another_process_holds_delays_no_stop(
    home: Home, caplog: pytest.LogCaptureFixture
) -> None:
    store(home, START, delivery(1))
    with home.merge_lock(), merging(home):
        wait_for(lambda: "is using this home" in caplog.text)
    with merging(home):
        wait_for(lambda: published(home) == 1)
