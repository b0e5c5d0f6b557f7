"""A mirror follows the publications of its file, and tells webhooks what each of them added."""

import csv
import io
import json
import shutil
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, closing, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import httpx
import pytest

from almanac.core.errors import WarehouseError
from application.web.mirror.mirror import Mirror
from application.web.mirror.publications import Publications
from application.web.site import WebSite
from catalog import ServerError
from catalog.contract.plans import ELITE, ENTERPRISE, find_plan_window
from catalog.server.catalog_store import EventQuery
from catalog.server.service_dir import ServiceDir
from catalog.server.webhooks.sender import SenderOptions
from tests.application.mirror.filled_home import mirroring
from tests.free_ports import free_port
from tests.hangs import HANGS_AFTER_S, wait_for
from tests.history.stories.disk import without_syncs
from tests.server.webhooks.receiver import Receiver
from tests.warehouse.landed_days import FIRST, land
from tests.warehouse.normalise.catalog_bodies import json_event
from warehouse.history.merge import merge, rebuild
from warehouse.home import Home

NOW = datetime(2026, 5, 1, tzinfo=UTC)
SOON = SenderOptions(retry_after_s=(0.05,) * 200, poll_s=0.02)
RANGE = "from=2026-01-01&to=2026-12-31"


@pytest.fixture(autouse=True)
def quick_disk() -> Iterator[None]:
    with without_syncs():
        yield


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "home")
    publish(home, 0)
    return home


def publish(home: Home, *days: int) -> None:
    """Publish one more event for each day, `event-<day>`."""
    for day in days:
        land(home, day)
    merge(home)


def serving(home: Home, **options: Any) -> AbstractContextManager[tuple[Mirror, httpx.Client]]:
    return mirroring(home, home.state / "mirror", **{"wall": lambda: NOW, **options})


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


def test_a_client_sees_whole_states_and_no_error_while_a_home_is_published(home: Home) -> None:
    days = 4
    seen: list[list[str]] = []
    failures: list[BaseException] = []
    done = threading.Event()

    def ask(base_url: str) -> None:
        try:
            with httpx.Client(base_url=base_url, verify=False, timeout=HANGS_AFTER_S) as client:
                while not done.wait(0.01):
                    for read in (listed, exported):
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
            # A replaced file is closed.
            wait_for(lambda: len(open_warehouses(home)) == 1)
        finally:
            done.set()
            asking.join()
    assert failures == []
    assert seen[-1] == state(days)
    assert all(found == state(len(found)) for found in seen)
    assert [len(found) for found in seen] == sorted(len(found) for found in seen)


def open_warehouses(home: Home) -> list[str]:
    """Return the published files of a home that this process has open, also replaced ones."""
    found: list[str] = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # closed meanwhile
            found.append(str(descriptor.readlink()))
    start = str(home.root)
    return [each for each in found if each.startswith(start) and "warehouse.duckdb" in each]


def test_an_export_continues_with_the_file_that_it_began_with(home: Home) -> None:
    events = [{**json_event(), "id": f"many-{number:04}"} for number in range(2_500)]
    body = httpx.Response(200, json={"data": events, "meta": {}}).content
    land(home, 1, body=body)
    merge(home)
    with closing(Publications(home.warehouse, lambda: NOW)) as published:
        rows = published.store().iter_events(EventQuery(NOW, find_plan_window(ENTERPRISE, NOW)))
        began = [next(rows).id]
        publish(home, 2)
        assert published.store().span.events == 2_502
        found = began + [event.id for event in rows]
    assert len(found) == 2_501
    assert "event-2" not in found


def test_a_file_that_cannot_be_served_leaves_the_old_one_in_service(
    home: Home, tmp_path: Path
) -> None:
    other = Home(tmp_path / "other")
    land(other, 7)
    merge(other)
    content, database = home.warehouse.read_bytes(), tmp_path / "any.duckdb"
    with duckdb.connect(str(database)) as connection:
        connection.execute("CREATE TABLE event_versions (version INTEGER)")
    spoilt = {"half": content[: len(content) // 2], "other database": database.read_bytes()}
    with serving(home) as (_, client):
        for days, form in enumerate(("half", "other database", "missing"), start=1):
            home.warehouse.unlink()
            if form in spoilt:
                home.warehouse.write_bytes(spoilt[form])
            with (
                pytest.raises(WarehouseError, match=r"almanac (rebuild|run)") as raised,
                Mirror(home.warehouse, state_dir=home.state / "other"),
            ):
                pass
            assert str(home.warehouse) in str(raised.value)
            named = str(wait_for(lambda: health(client)["trouble"]))
            assert named.startswith("the new publication is not served, and the old one is: ")
            assert str(home.root) not in named, "the answer needs no key"
            assert listed(client) == state(days)
            land(home, days)
            rebuild(home)
            wait_for(lambda least=days + 1: health(client)["events"] == least)  # type: ignore[misc]
            assert health(client)["trouble"] is None
        shutil.copy(other.warehouse, home.root / "copied")
        (home.root / "copied").replace(home.warehouse)
        wait_for(lambda: "the warehouse of another home" in (health(client)["trouble"] or ""))
        assert listed(client) == state(4)


def test_health_names_the_publication_and_a_home_has_one_mirror(home: Home, tmp_path: Path) -> None:
    with serving(home) as (mirror, client), ExitStack() as undo:
        found = health(client)
        assert found.pop("publishedAt")
        pulled = f"{FIRST:%FT%TZ}"
        assert found == {
            "servedSince": "2026-05-01T00:00:00Z",
            **{"events": 1, "firstPull": pulled, "lastPull": pulled, "trouble": None},
        }
        port = int(mirror.base_url.rpartition(":")[2])
        with pytest.raises(ServerError, match="another server uses"):
            undo.enter_context(serving(home))
        second = Mirror(home.warehouse, state_dir=tmp_path / "second", port=port)
        with pytest.raises(ServerError, match=f"can't listen on 127.0.0.1 port {port}"):
            second.start()
        elsewhere = Mirror(home.warehouse, state_dir=tmp_path, host="0.0.0.0", port=free_port())
        with pytest.raises(ServerError, match="almanac serve keys create NAME"):
            elsewhere.start()
        assert listed(client) == state(1)


@pytest.fixture
def receiver(home: Home) -> Iterator[Receiver]:
    """Return a receiver that is an endpoint of the mirror's folder."""
    receiver, folder = Receiver(), ServiceDir(home.state / "mirror")
    folder.key_book().create("bot", ELITE)
    folder.endpoint_book().add(receiver.url, account="bot", allow_private=True)
    yield receiver
    receiver.close()


def list_sent(receiver: Receiver) -> list[str]:
    """Return each delivery once: a mirror that stops before it reads the answer sends it again."""
    bodies = {each.id: json.loads(each.body) for each in list(receiver.received)}.values()
    return sorted(f"{body['data']['id']} {body['type']}" for body in bodies)


def test_a_publication_is_told_once_also_after_a_stop(home: Home, receiver: Receiver) -> None:
    with serving(home, push=SOON) as (mirror, _):
        # Changes are sent from the time when the sender first sees the endpoint.
        wait_for(mirror.sender.outbox.positions)
        publish(home, 1)
        wait_for(lambda: len(list_sent(receiver)) == 2)
    publish(home, 2, 3)
    with serving(home, push=SOON):
        wait_for(lambda: len(list_sent(receiver)) == 6)
        publish(home, 4)
        wait_for(lambda: len(list_sent(receiver)) == 8)
    assert list_sent(receiver) == [
        f"event-{day} events.{kind}" for day in (1, 2, 3, 4) for kind in ("created", "high-impact")
    ]


def test_a_clock_that_is_set_back_passes_no_change_over(home: Home, receiver: Receiver) -> None:
    for day, wall in ((1, NOW), (2, NOW - timedelta(days=100)), (3, NOW)):
        with serving(home, push=SOON, wall=lambda at=wall: at, site=WebSite) as (served, _):
            wait_for(served.sender.outbox.positions)
            publish(home, day)
            wait_for(lambda count=2 * day: len(list_sent(receiver)) == count)


def test_pages_follow_after_a_page_that_fails(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(request: object) -> str:
        raise RuntimeError("a defect")

    monkeypatch.setattr("application.web.site.show_coins", fail)
    with mirroring(home, tmp_path / "m", site=WebSite) as (_, client):
        publish(home, 1)
        page = "/?from=2025-01-01&to=2027-01-01"
        wait_for(lambda: "/event/event-1" in client.get(page).text)


def test_pages_show_a_new_publication_when_it_is_prepared(home: Home, tmp_path: Path) -> None:
    with mirroring(home, tmp_path / "m", site=WebSite) as (_, client):
        page = "/?from=2025-01-01&to=2027-01-01"
        assert "/event/event-0" in client.get(page).text
        publish(home, 1)
        wait_for(lambda: "/event/event-1" in client.get(page).text)
        damaged = tmp_path / "damaged"
        damaged.write_bytes(b"no database")
        damaged.replace(home.warehouse)
        assert "/event/event-1" in client.get(page).text
