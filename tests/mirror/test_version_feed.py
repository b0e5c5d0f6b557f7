"""The change cursor: no gap and no repetition, whatever is published, killed, lost or damaged."""

import random
import resource
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from almanac.errors import WarehouseError
from catalog.contract.errors import InvalidCursor
from catalog.contract.plans import ENTERPRISE
from catalog.server.routes import CursorSigner
from pipeline.mirror.knowledge_routes import CHANGES_PATH, ChangeReader, ChangeRecord
from pipeline.mirror.mirror_store import MirrorStore
from pipeline.mirror.published_catalog import PublishedCatalog
from pipeline.mirror.version_feed import FeedPlace, ForeignPlace, VersionFeed
from tests.hangs import HANGS_AFTER_S, wait_for
from tests.history.stories.disk import without_syncs
from tests.history.stories.handmade import HandmadeHome, event
from tests.mirror.publications import Publications, Version, version_of, versions_in
from tests.test_cli import ALMANAC, environment
from warehouse.history.merge import replay

NOW = datetime(2026, 6, 1, tzinfo=UTC)


class Wall:
    """A clock that moves a second each time it is read."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> datetime:
        self.now += timedelta(seconds=1)
        return self.now


class Reader:
    """A client of a feed in a folder, in this process: it follows the home before each read."""

    wall = Wall()

    def __init__(self, home: HandmadeHome, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self.feed = VersionFeed(folder / "changes.sqlite")
        self.store = MirrorStore(home.home.warehouse, self.feed, self.wall, events_in_memory=0)
        self._changes = ChangeReader(self.store, CursorSigner(b"secret of a test"))
        self.cursor: str | None = None

    def read(self, *, limit: int = 3, **given: Any) -> list[Version]:
        """Return all changes since the last call, page by page."""
        if (views := self.store.follow()) is not None:
            self.store.serve(views)
        if not self.store.is_recorded:
            raise WarehouseError(self.store.trouble)
        found: list[Version] = []
        while True:
            page = self._changes.read(ENTERPRISE, NOW, cursor=self.cursor, limit=limit, **given)
            given.pop("since", None)
            found += map(_version, page.data)
            before, self.cursor = self.cursor, page.meta.cursor
            if self.cursor == before:
                assert page.meta.total == 0
                return found


def _version(change: ChangeRecord) -> Version:
    fields: dict[str, Any] = msgspec.to_builtins(change)
    return version_of(fields)


@pytest.fixture(autouse=True)
def quick_disk() -> Iterator[None]:
    with without_syncs():
        yield


@pytest.fixture
def home(tmp_path: Path) -> HandmadeHome:
    return HandmadeHome(tmp_path / "home")


@pytest.mark.parametrize(
    "count", [6, pytest.param(100, marks=pytest.mark.long)], ids=["short", "long"]
)
def test_each_publication_shows_exactly_the_versions_that_it_added(
    home: HandmadeHome, tmp_path: Path, count: int
) -> None:
    publications = Publications(home, seed=count)
    publications.publish()
    reader, second = (Reader(home, tmp_path / name) for name in ("first", "second"))
    assert Counter(reader.read()) == publications.added[0]
    for number in range(1, count):
        publications.publish()
        found = reader.read()
        assert Counter(found) == publications.added[number], number
        assert [each[1] for each in found] == sorted(each[1] for each in found)
    # A client that reads late sees what is left, once.
    assert Counter(second.read(limit=100)) == publications.published
    assert reader.read() == []


@pytest.mark.parametrize(
    ("count", "kills"),
    [(5, 2), pytest.param(100, 20, marks=pytest.mark.long)],
    ids=["short", "long"],
)
def test_a_client_of_a_mirror_that_is_killed_gets_each_version_once(
    home: HandmadeHome, tmp_path: Path, count: int, kills: int
) -> None:
    publications = Publications(home, seed=kills)
    publications.publish(replaying=False)
    address = f"http://127.0.0.1:{_free_port()}"
    client = PollingClient(address)
    mirrors = KilledMirrors(home.home.root, address, kills)
    with client, mirrors:
        for _ in range(count - 1):
            publications.publish(replaying=False)
        mirrors.finish()
        client.finish()
    received = Counter(map(version_of, client.received))
    assert publications.published - received == Counter(), "no gap"
    assert received - sum(publications.added, Counter[Version]()) == Counter(), "no repetition"


class PollingClient:
    """A thread that polls the changes with its cursor, whether or not the mirror responds."""

    def __init__(self, address: str) -> None:
        self.received: list[dict[str, Any]] = []
        self._address = address
        self._last = threading.Event()
        self._thread = threading.Thread(target=self._poll)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *raised: object) -> None:
        self._last.set()
        self._thread.join()

    def finish(self) -> None:
        """Read to the end, from a mirror that is up to date."""
        self._last.set()
        self._thread.join(HANGS_AFTER_S)

    def _poll(self) -> None:
        asked: dict[str, Any] = {"limit": 2}
        with httpx.Client(base_url=self._address, verify=False, timeout=HANGS_AFTER_S) as client:
            while True:
                is_last = self._last.is_set()
                try:
                    answer = client.get(CHANGES_PATH, params=asked)
                except httpx.TransportError:
                    if is_last:
                        return
                    time.sleep(0.02)
                    continue
                assert answer.status_code == 200, answer.text
                page = answer.json()
                self.received += page["data"]
                if is_last and not page["data"]:
                    return
                asked["cursor"] = page["meta"]["cursor"]


class KilledMirrors:
    """Mirrors of a home at one address, one after the other; each but the last is killed."""

    def __init__(self, home: Path, address: str, kills: int) -> None:
        self._home = home
        self._address = address
        self._moments = [random.Random(n).uniform(0.3, 5.0) for n in range(kills)]
        self._running: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._kill)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *raised: object) -> None:
        self._thread.join()
        if self._running is not None:
            self._running.kill()
            self._running.wait()

    def finish(self) -> None:
        """Wait for the kills, and for the last mirror to serve the last publication."""
        self._thread.join()
        self._running = self._start()
        wait_for(self._is_answering)

    def _is_answering(self) -> bool:
        try:
            answer = httpx.get(self._address + "/healthz", verify=False, timeout=HANGS_AFTER_S)
        except httpx.TransportError:
            return False
        return answer.raise_for_status().is_success

    def _kill(self) -> None:
        for moment in self._moments:
            mirror = self._start()
            time.sleep(moment)
            mirror.send_signal(signal.SIGKILL)
            mirror.wait()

    def _start(self) -> subprocess.Popen[bytes]:
        port = self._address.rpartition(":")[2]
        return subprocess.Popen(
            [*ALMANAC, "serve", "--port", port],
            env=environment(self._home),
            cwd=self._home,
            stdout=subprocess.DEVNULL,
        )


def _free_port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port: int = bound.getsockname()[1]
    return port


def test_a_version_that_vanished_and_came_back_is_shown_again(
    home: HandmadeHome, tmp_path: Path
) -> None:
    """A client that passed its place in between would never see it."""
    home.listed("02 06:00", event("a"))
    home.merge()
    with_one, with_both = tmp_path / "one.duckdb", tmp_path / "both.duckdb"
    shutil.copy(home.home.warehouse, with_one)
    home.listed("02 07:00", event("b"), why_incomplete="cut")
    home.merge()
    shutil.copy(home.home.warehouse, with_both)
    catalogs = [PublishedCatalog(path) for path in (with_both, with_one, with_both)]
    feed, wall = VersionFeed(tmp_path / "changes.sqlite"), Wall()
    assert [feed.follow(catalog, wall) for catalog in catalogs[:2]] == [2, 0]
    published_at = catalogs[1].published_at
    late = feed.page(FeedPlace(), until=None, limit=9, published_at=published_at)
    assert ([each.event_id for each in late.entries], late.total) == (["a"], 1)
    assert feed.follow(catalogs[2], wall) == 1
    both = catalogs[2].published_at
    page = feed.page(late.place, until=None, limit=9, published_at=both)
    assert ([each.event_id for each in page.entries], page.total) == (["b"], 1)


def test_a_page_is_empty_while_another_publication_is_about_to_be_served(
    home: HandmadeHome, tmp_path: Path
) -> None:
    home.listed("02 06:00", event("a"))
    home.merge()
    catalog = PublishedCatalog(home.home.warehouse)
    feed = VersionFeed(tmp_path / "changes.sqlite")
    feed.follow(catalog, Wall())
    page = feed.page(FeedPlace(), until=None, limit=9, published_at="another")
    assert (page.entries, page.total, page.place) == ([], 1, FeedPlace())


def test_since_shows_what_became_known_later_and_all_that_is_published_later(
    home: HandmadeHome, tmp_path: Path
) -> None:
    home.listed("02 06:00", event("a"))
    home.listed("03 06:00", event("b"), why_incomplete="cut")
    home.merge()
    reader = Reader(home, tmp_path / "feed")
    found = reader.read(since=datetime(2026, 3, 2, 12, tzinfo=UTC))
    assert [each[0] for each in found] == ["b"]
    # A delivery that was received before `since`, and merged after the first page.
    home.deliveries(("02 08:00", "2026-03-02T08:00:00Z", event("c")))
    home.merge()
    assert [each[0] for each in reader.read()] == ["c"]


def test_a_replay_shows_nothing_again(home: HandmadeHome, tmp_path: Path) -> None:
    publications = Publications(home, seed=1)
    for _ in range(4):
        publications.publish(replaying=False)
    reader = Reader(home, tmp_path / "feed")
    assert Counter(reader.read()) == publications.published
    replay(home.home)
    assert versions_in(home) == publications.published
    assert reader.read() == []


def test_a_version_counts_for_the_day_on_which_it_became_known(
    home: HandmadeHome,
) -> None:
    """So that the feed compares the versions of changed days only."""
    publications = Publications(home, seed=3)
    for _ in range(8):
        publications.publish()
    home.listed("2026-04-01 23:59:59", event("a", title="late"), why_incomplete="cut")
    home.listed("2026-04-02 00:00:00", event("b", title="early"), why_incomplete="cut")
    home.merge()
    counts = home.rows(
        "SELECT p.day, p.versions, count(v.event_id) FROM state.days AS p "
        "LEFT JOIN event_versions AS v ON (v.known_from AT TIME ZONE 'UTC')::DATE = p.day "
        "GROUP BY ALL"
    )
    assert [row for row in counts if row[1] != row[2]] == []
    assert sum(row[1] for row in counts) == versions_in(home).total()


def test_a_place_of_a_deleted_or_a_restored_feed_is_refused(
    home: HandmadeHome, tmp_path: Path
) -> None:
    wall, path = Wall(), tmp_path / "changes.sqlite"
    home.listed("02 06:00", event("a"))
    home.merge()
    feed = VersionFeed(path)
    feed.follow(PublishedCatalog(home.home.warehouse), wall)
    feed.close()
    backup = shutil.copy(path, tmp_path / "backup.sqlite")
    home.listed("02 07:00", event("b"), why_incomplete="cut")
    home.merge()
    catalog = PublishedCatalog(home.home.warehouse)
    asked: dict[str, Any] = {"until": None, "limit": 9, "published_at": catalog.published_at}
    feed = VersionFeed(path)
    feed.follow(catalog, wall)
    place = feed.page(FeedPlace(), **asked).place
    assert feed.page(place, **asked).total == 0
    restored, made_anew = VersionFeed(Path(backup)), VersionFeed(tmp_path / "new.sqlite")
    with pytest.raises(ForeignPlace):
        restored.page(place, **asked)
    for other in (restored, made_anew):
        other.follow(catalog, wall)
        with pytest.raises(ForeignPlace):
            other.page(place, **asked)


def test_a_cursor_of_another_feed_is_an_error_that_says_how_to_begin_again(
    home: HandmadeHome, tmp_path: Path
) -> None:
    home.listed("02 06:00", event("a"))
    home.merge()
    reader, other = Reader(home, tmp_path / "feed"), Reader(home, tmp_path / "other")
    reader.read()
    other.cursor = reader.cursor
    with pytest.raises(InvalidCursor, match="Begin again with since="):
        other.read()


def test_a_feed_of_another_home_shows_the_versions_of_this_one(
    home: HandmadeHome, tmp_path: Path
) -> None:
    other = HandmadeHome(tmp_path / "other")
    for each, name in ((home, "a"), (other, "b")):
        each.listed("02 06:00", event(name))
        each.merge()
    assert [each[0] for each in Reader(other, tmp_path / "feed").read()] == ["b"]
    assert [each[0] for each in Reader(home, tmp_path / "feed").read()] == ["a"]


def test_two_processes_with_one_feed_record_each_version_once(
    home: HandmadeHome, tmp_path: Path
) -> None:
    publications = Publications(home, seed=2)
    publications.publish()
    readers = [Reader(home, tmp_path / "feed") for _ in range(2)]
    for number in range(3):
        if number:
            publications.publish(replaying=False)
        for reader in readers:
            assert Counter(reader.read()) == publications.added[number]


@pytest.mark.parametrize("damage", ["text", "page"])
def test_a_damaged_feed_is_an_error_that_says_what_to_do(
    home: HandmadeHome, tmp_path: Path, damage: str
) -> None:
    home.listed("02 06:00", *(event(f"e{n}") for n in range(200)))
    home.merge()
    reader = Reader(home, tmp_path / "feed")
    reader.feed.close()
    path = tmp_path / "feed" / "changes.sqlite"
    whole = path.read_bytes()
    path.write_bytes(b"not a feed" * 500 if damage == "text" else whole[:8192] + b"\xff" * 40_960)
    with pytest.raises(WarehouseError, match=r"change feed .* can't be used.*move it away"):
        Reader(home, tmp_path / "feed").read()


def test_a_full_disk_leaves_the_feed_as_it_was(home: HandmadeHome, tmp_path: Path) -> None:
    home.listed("02 06:00", event("a"))
    home.merge()
    reader = Reader(home, tmp_path / "feed")
    assert len(reader.read()) == 1
    home.listed("02 07:00", *(event(f"e{n:04}") for n in range(2_000)), why_incomplete="cut")
    home.merge()
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    wal = tmp_path / "feed" / "changes.sqlite-wal"
    resource.setrlimit(resource.RLIMIT_FSIZE, (wal.stat().st_size + 16_384, before[1]))
    try:
        views, trouble = reader.store.follow(), reader.store.trouble
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert views is not None and trouble is not None
    reader.store.serve(views)
    assert "The recorded changes are kept. Check the free space" in trouble
    assert len(reader.read(limit=1_000)) == 2_000
