"""A mirror follows the publications of its file, and keeps the last one that it can serve."""

import csv
import io
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import httpx
import pytest

from almanac.errors import WarehouseError
from catalog.contract.plans import ENTERPRISE, plan_window
from catalog.server.accounts import ServiceDirError
from catalog.server.hosting import HostingError
from catalog.server.store import EventQuery
from pipeline.mirror.mirror import Mirror
from pipeline.mirror.mirror_store import MirrorStore, PublishedViews
from pipeline.mirror.version_feed import FeedUnusable, VersionFeed
from tests.free_ports import free_port
from tests.hangs import HANGS_AFTER_S, wait_for
from tests.warehouse.landed_days import FIRST, land
from tests.warehouse.normalise.catalog_bodies import json_event
from warehouse.history.merge import merge, replay
from warehouse.home import Home

NOW = datetime(2026, 5, 1, tzinfo=UTC)
RANGE = "from=2026-01-01&to=2026-12-31"


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "home")
    publish(home, 0)
    return home


def publish(home: Home, day: int) -> None:
    """Publish one more event, `event-<day>`."""
    land(home, day)
    merge(home)


@contextmanager
def serving(home: Home, **options: Any) -> Iterator[tuple[Mirror, httpx.Client]]:
    mirror = Mirror(home.warehouse, state_dir=home.state / "mirror", wall=lambda: NOW, **options)
    with (
        mirror,
        httpx.Client(base_url=mirror.base_url, verify=False, timeout=HANGS_AFTER_S) as client,
    ):
        yield mirror, client


def health(client: httpx.Client) -> dict[str, Any]:
    answer = client.get("/healthz")
    assert answer.status_code == 200
    found: dict[str, Any] = answer.json()["publication"]
    return found


def listed(client: httpx.Client) -> list[str]:
    answer = client.get(f"/v2/events?limit=100&{RANGE}")
    assert answer.status_code == 200, answer.text
    page = answer.json()
    assert page["meta"]["total"] == len(page["data"])
    return sorted(event["id"] for event in page["data"])


def exported(client: httpx.Client) -> list[str]:
    answer = client.get(f"/v2/events/export?{RANGE}")
    assert answer.status_code == 200, answer.text
    return sorted(row["id"] for row in csv.DictReader(io.StringIO(answer.text)))


def state(days: int) -> list[str]:
    """Return the ids of the events after so many publications."""
    return sorted(f"event-{day}" for day in range(days))


@pytest.mark.parametrize("days", [5, pytest.param(20, marks=pytest.mark.long)])
@pytest.mark.parametrize("read", [listed, exported])
def test_a_client_sees_whole_states_and_no_error_while_a_home_is_published(
    home: Home, read: Callable[[httpx.Client], list[str]], days: int
) -> None:
    seen: list[list[str]] = []
    failures: list[BaseException] = []
    done = threading.Event()

    def ask(base_url: str) -> None:
        try:
            with httpx.Client(base_url=base_url, verify=False, timeout=HANGS_AFTER_S) as client:
                while not done.is_set():
                    found = read(client)
                    if not seen or seen[-1] != found:
                        seen.append(found)
        except BaseException as error:  # noqa: BLE001 - reported by the test's own thread
            failures.append(error)

    with serving(home) as (mirror, client):
        asking = threading.Thread(target=ask, args=(mirror.base_url,))
        asking.start()
        try:
            for day in range(1, days):
                publish(home, day)
            wait_for(lambda: health(client)["events"] == days)
            wait_for(lambda: bool(failures) or seen[-1:] == [state(days)])
        finally:
            done.set()
            asking.join()
    assert failures == []
    assert seen[-1] == state(days)
    assert all(found == state(len(found)) for found in seen)
    assert [len(found) for found in seen] == sorted(len(found) for found in seen)


@pytest.mark.parametrize("publications", [4, pytest.param(50, marks=pytest.mark.long)])
@pytest.mark.parametrize("events_in_memory", [0, 1_000])
def test_a_replaced_file_is_closed(home: Home, events_in_memory: int, publications: int) -> None:
    with serving(home, events_in_memory=events_in_memory) as (_, client):
        for day in range(1, publications):
            publish(home, day)
            wait_for(partial(shows, client, state(day + 1)))
        wait_for(lambda: len(open_warehouses(home)) == 1)


def shows(client: httpx.Client, events: list[str]) -> bool:
    return listed(client) == events


def open_warehouses(home: Home) -> list[str]:
    """Return the published files of a home that this process has open, also replaced ones."""
    found: list[str] = []
    for descriptor in Path("/proc/self/fd").iterdir():
        try:
            target = str(descriptor.readlink())
        except OSError:
            continue  # closed meanwhile
        if target.startswith(str(home.root)) and "warehouse.duckdb" in target:
            found.append(target)
    return found


def test_an_export_continues_with_the_file_that_it_began_with(home: Home) -> None:
    events = [{**json_event(), "id": f"many-{number:04}"} for number in range(2_500)]
    body = httpx.Response(200, json={"data": events, "meta": {}}).content
    land(home, 1, body=body)
    merge(home)
    with serving(home, events_in_memory=0) as (mirror, client):
        rows = mirror.store.at(NOW).iter_events(EventQuery(plan_window(ENTERPRISE, NOW)))
        began = [next(rows).id]
        publish(home, 2)
        wait_for(lambda: health(client)["events"] == 2_502)
        found = began + [event.id for event in rows]
    assert len(found) == 2_501
    assert "event-2" not in found


def garbage(warehouse: Path) -> None:
    warehouse.write_bytes(b"no database" * 1_000)


def half(warehouse: Path) -> None:
    content = warehouse.read_bytes()
    warehouse.write_bytes(content[: len(content) // 2])


def folder(warehouse: Path) -> None:
    warehouse.mkdir()


def other_database(warehouse: Path) -> None:
    warehouse.unlink()
    with duckdb.connect(str(warehouse)) as connection:
        connection.execute("CREATE TABLE event_versions (version INTEGER)")


def missing(warehouse: Path) -> None:
    warehouse.unlink()


UNSERVABLE = [garbage, half, folder, other_database, missing]


def damage(home: Home, spoil: Callable[[Path], None]) -> None:
    """Replace the published file by a spoilt copy."""
    spoilt = home.warehouse.with_name("spoilt")
    if spoil in (folder, missing):
        home.warehouse.unlink()
        if spoil is folder:
            folder(home.warehouse)
        return
    shutil.copy(home.warehouse, spoilt)
    spoilt.chmod(0o600)
    spoil(spoilt)
    spoilt.replace(home.warehouse)


@pytest.mark.parametrize("spoil", UNSERVABLE)
def test_a_start_without_a_servable_file_fails_with_a_clear_error(
    home: Home, spoil: Callable[[Path], None]
) -> None:
    damage(home, spoil)
    with pytest.raises(WarehouseError, match=r"almanac (replay|run)") as raised, serving(home):
        pass
    assert str(home.warehouse) in str(raised.value)


@pytest.mark.parametrize("spoil", UNSERVABLE)
def test_a_file_that_cannot_be_served_leaves_the_one_before_it_in_service(
    home: Home, spoil: Callable[[Path], None]
) -> None:
    with serving(home) as (_, client):
        damage(home, spoil)
        wait_for(lambda: health(client)["trouble"] is not None)
        named = health(client)["trouble"]
        assert named.startswith("the new publication is not served, and the old one is: ")
        assert str(home.root) not in named, "the answer needs no key"
        assert listed(client) == state(1)
        land(home, 1)
        replay(home)
        wait_for(lambda: health(client)["events"] == 2)
        assert listed(client) == state(2)
        assert health(client)["trouble"] is None


def test_the_warehouse_of_another_home_is_not_served(home: Home, tmp_path: Path) -> None:
    other = Home(tmp_path / "other")
    land(other, 7)
    merge(other)
    with serving(home) as (_, client):
        shutil.copy(other.warehouse, home.root / "copied")
        (home.root / "copied").replace(home.warehouse)
        wait_for(lambda: health(client)["trouble"] is not None)
        assert "the warehouse of another home" in health(client)["trouble"]
        assert listed(client) == state(1)


def test_health_names_the_publication_that_is_served(home: Home) -> None:
    with serving(home) as (_, client):
        wait_for(lambda: bool(health(client)["changesRecorded"]))
        found = health(client)
        assert found.pop("publishedAt")
        assert found == {
            "servedSince": "2026-05-01T00:00:00Z",
            "events": 1,
            "firstPull": FIRST.isoformat().replace("+00:00", "Z"),
            "lastPull": FIRST.isoformat().replace("+00:00", "Z"),
            "changesRecorded": True,
            "trouble": None,
        }


def test_a_damaged_change_feed_is_named_at_the_start(home: Home) -> None:
    with serving(home):
        pass
    (home.state / "mirror" / "changes.sqlite").write_bytes(b"no feed" * 1_000)
    with pytest.raises(FeedUnusable, match="can't be used"), serving(home):
        pass


def test_a_folder_has_one_mirror_and_a_port_one_server(home: Home, tmp_path: Path) -> None:
    with serving(home) as (mirror, client), ExitStack() as undo:
        port = int(mirror.base_url.rpartition(":")[2])
        with pytest.raises(ServiceDirError, match="another server uses"):
            undo.enter_context(serving(home))
        second = Mirror(home.warehouse, state_dir=tmp_path / "second", port=port)
        with pytest.raises(HostingError, match=f"can't listen on 127.0.0.1 port {port}"):
            second.start()
        assert listed(client) == state(1)


def test_a_folder_that_cannot_be_written_to_is_named(home: Home, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(ServiceDirError, match="can't be made"):
        Mirror(home.warehouse, state_dir=tmp_path / "file").start()
    made = tmp_path / "made"
    (made / "server.lock").mkdir(parents=True)
    with pytest.raises(ServiceDirError, match="can't be written to"):
        Mirror(home.warehouse, state_dir=made).start()


def test_another_address_needs_a_key(home: Home) -> None:
    state_dir = home.state / "mirror"
    mirror = Mirror(home.warehouse, state_dir=state_dir, host="0.0.0.0", port=free_port())
    with pytest.raises(HostingError, match="almanac accounts keys create NAME"):
        mirror.start()


def test_a_request_with_the_host_of_another_site_is_refused_on_loopback(home: Home) -> None:
    with serving(home) as (_, client):
        for path in ("/v2/events", "/healthz", "/metrics"):
            assert client.get(path, headers={"host": "evil.example"}).status_code == 421


def test_the_changes_of_a_publication_are_recorded_though_a_damaged_file_replaced_it(
    home: Home, tmp_path: Path
) -> None:
    feed = VersionFeed(tmp_path / "changes.sqlite")
    store = MirrorStore(home.warehouse, feed, lambda: NOW)
    store.follow()
    publish(home, 1)
    # The damaged file comes between the opening of the good one and the record of its changes.
    good = store.follow
    replaced = home.warehouse.with_name("damaged.duckdb")
    replaced.write_bytes(b"not a warehouse")
    opened = store._open

    def open_then_replace() -> PublishedViews:
        views = opened()
        if replaced.exists():
            replaced.replace(home.warehouse)
        return views

    store._open = open_then_replace  # type: ignore[method-assign]
    views = good()
    assert views is not None
    store.serve(views)
    assert not feed.is_at(views.catalog)
    assert store.follow() is None
    assert feed.is_at(views.catalog)
    assert store.trouble is not None
    assert "is not served" in store.trouble
    feed.close()


def test_a_file_that_is_missing_while_its_changes_are_recorded_is_tried_again(
    home: Home, tmp_path: Path
) -> None:
    feed = VersionFeed(tmp_path / "changes.sqlite")
    store = MirrorStore(home.warehouse, feed, lambda: NOW)
    aside = home.warehouse.rename(home.warehouse.with_name("aside.duckdb"))
    assert store.follow() is None
    assert store.trouble is not None
    aside.rename(home.warehouse)
    assert store.follow() is None
    assert (store.trouble, store.is_recorded) == (None, True)
    feed.close()


def test_an_unexpected_failure_is_shown_and_following_goes_on(home: Home) -> None:
    with serving(home) as (mirror, client):
        follow = mirror.store.follow
        failures = [RuntimeError("planned")]

        def fail_first() -> PublishedViews | None:
            if failures:
                raise failures.pop()
            return follow()

        mirror.store.follow = fail_first  # type: ignore[method-assign]
        wait_for(lambda: not failures)
        publish(home, 1)
        wait_for(lambda: client.get("/v2/events/event-1").status_code == 200)
        assert health(client)["trouble"] is None
