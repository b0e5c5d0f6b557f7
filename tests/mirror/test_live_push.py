"""Webhooks of a mirror that follows publications: each change once, and none is passed over."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from catalog.contract.plans import ELITE
from catalog.server.state_dir import ServiceDir
from catalog.server.webhooks.sender import SenderOptions
from pipeline.mirror.mirror import Mirror
from pipeline.mirror.mirror_store import MirrorStore, PushClock
from pipeline.mirror.version_feed import VersionFeed
from tests.hangs import wait_for
from tests.server.webhooks.receiver import Receiver
from tests.warehouse.landed_days import land
from warehouse.history.merge import merge
from warehouse.home import Home

SOON = SenderOptions(retry_after_s=(0.05,) * 200, poll_s=0.02)
NOW = datetime(2026, 5, 1, tzinfo=UTC)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "home")
    publish(home, 0)
    return home


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.close()


def publish(home: Home, *days: int) -> None:
    """Publish one more event for each day, `event-<day>`."""
    for day in days:
        land(home, day)
    merge(home)


def list_sent(receiver: Receiver) -> list[str]:
    """Return each delivery once: a mirror that stops before it reads the answer sends it again."""
    bodies = {each.id: json.loads(each.body) for each in list(receiver.received)}.values()
    return sorted(f"{body['data']['id']} {body['type']}" for body in bodies)


def test_a_publication_is_told_once_also_one_that_was_made_while_the_mirror_was_stopped(
    home: Home, receiver: Receiver
) -> None:
    state_dir = home.state / "mirror"
    folder = ServiceDir(state_dir)
    folder.key_book().create("bot", ELITE)
    folder.endpoint_book().add(receiver.url, account="bot", allow_private=True)
    with Mirror(home.warehouse, state_dir=state_dir, push=SOON) as mirror:
        wait_for(lambda: mirror.store.is_recorded)
        publish(home, 1)
        wait_for(lambda: len(list_sent(receiver)) == 2)
    publish(home, 2, 3)
    with Mirror(home.warehouse, state_dir=state_dir, push=SOON):
        wait_for(lambda: len(list_sent(receiver)) == 6)
        publish(home, 4)
        wait_for(lambda: len(list_sent(receiver)) == 8)
    assert list_sent(receiver) == [
        f"event-{day} events.{kind}" for day in (1, 2, 3, 4) for kind in ("created", "high-impact")
    ]


def test_the_clock_of_webhooks_stands_until_a_recorded_publication_is_served(
    home: Home, tmp_path: Path
) -> None:
    walls = [NOW]
    feed = VersionFeed(tmp_path / "changes.sqlite")
    store = MirrorStore(home.warehouse, feed, lambda: walls[-1])
    clock = PushClock(store)
    assert store.follow() is None
    before = clock.now()
    publish(home, 1)
    views = store.follow()
    assert views is not None
    walls.append(NOW + timedelta(hours=1))
    assert clock.now() == before
    store.serve(views)
    walls.append(NOW - timedelta(hours=1))
    served_at = clock.now()
    assert served_at > before
    (change, *_) = store.changes(before, served_at)
    assert (change.event.id, before < change.at <= served_at) == ("event-1", True)
    assert store.changes(served_at, served_at + timedelta(days=1)) == []
    publish(home, 2)
    later = store.follow()
    assert later is not None
    store.serve(later)
    assert {change.event.id for change in store.changes(served_at, clock.now())} == {"event-2"}
    feed.close()


def test_a_clock_that_was_set_back_between_two_starts_passes_no_change_over(
    home: Home, tmp_path: Path
) -> None:
    feed = VersionFeed(tmp_path / "changes.sqlite")
    store = MirrorStore(home.warehouse, feed, lambda: NOW)
    store.follow()
    mark = store.pushed_until()
    publish(home, 1)
    earlier = NOW - timedelta(days=1)
    again = MirrorStore(home.warehouse, feed, lambda: earlier, pushed_until=mark)
    again.follow()
    changes = again.changes(mark, again.pushed_until())
    assert {change.event.id for change in changes} == {"event-1"}
    feed.close()


def test_a_new_feed_tells_nothing_of_the_history_that_it_finds(home: Home, tmp_path: Path) -> None:
    feed = VersionFeed(tmp_path / "changes.sqlite")
    store = MirrorStore(home.warehouse, feed, lambda: NOW)
    store.follow()
    assert store.changes(NOW - timedelta(days=365), store.pushed_until()) == []
    feed.close()
