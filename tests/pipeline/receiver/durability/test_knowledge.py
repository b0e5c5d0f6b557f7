"""What is known after deliveries and pulls of the sandbox, in the orders in which they meet."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from catalog.sandbox.sandbox import Sandbox
from catalog.sandbox.world_store import SandboxStore
from catalog.server.store import CatalogChange
from catalog.server.webhooks.sender import SenderOptions
from resources.inbox.deliveries import land_deliveries
from resources.inbox.inbox_file import InboxWriter
from tests.crashes.pulls import SOURCE, pulling
from tests.pipeline.receiver.durability.truth import answers, differences, rows_of
from tests.pipeline.receiver.programs import SECRET, ReceiveProgram, set_service_clock
from tests.pipeline.receiver.served import Served, request, served, signature
from tests.resources.inbox.deliveries import Clock, delivery
from warehouse import queries
from warehouse.clock import utc_now
from warehouse.history.merge import merge
from warehouse.home import Home
from warehouse.landing.batches import Manifest

NOW = datetime(2018, 3, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)
FRESHNESS = timedelta(minutes=1)
"""What the service shows is so old; push is not."""
FROM, TO = NOW.date() - timedelta(days=30), NOW.date() + timedelta(days=60)


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox(now=NOW, push=SenderOptions(retry_after_s=(0.2,) * 50, poll_s=0.02)) as sandbox:
        yield sandbox


@pytest.fixture
def home(sandbox: Sandbox, tmp_path: Path) -> Home:
    sandbox.set_clock(NOW)
    home = Home(tmp_path / "home", wait_s=0)
    home.claim(SOURCE)
    return home


@contextmanager
def pushing(sandbox: Sandbox, home: Home) -> Iterator[Served]:
    """Push to a home from now on."""
    with served(home, Clock(sandbox.clock.now())) as receiver:
        sandbox.subscribe(f"http://127.0.0.1:{receiver.port}/webhooks", secret=SECRET)
        yield receiver
        (*_, endpoint) = sandbox.service_dir.endpoint_book().endpoints()
        sandbox.service_dir.endpoint_book().disable(endpoint.id, reason="the test has ended")


def push_until(sandbox: Sandbox, receiver: Served, until: datetime) -> None:
    receiver.clock.instant = until
    sandbox.set_clock(until)
    sandbox.wait_until_pushed(30)


def land_and_merge(home: Home) -> None:
    land_deliveries(home, utc_now)
    merge(home)


def next_update(sandbox: Sandbox) -> CatalogChange:
    """Return the next change of an event that pulls show and that does not change soon again."""
    changes = SandboxStore(sandbox.truth()).changes(NOW, NOW + timedelta(days=20))
    times = {change.event.id: 0 for change in changes}
    for change in changes:
        times[change.event.id] += 1
    return next(
        change
        for change in changes
        if change.kind == "events.updated"
        and times[change.event.id] == 1
        and change.event.created_at < NOW
        and change.event.date is not None
        and NOW.date() < change.event.date.date() < TO
    )


def versions(home: Home, event_id: str) -> list[tuple[object, ...]]:
    """Return the versions of an event that were observed."""
    statement = "SELECT version, title, impact, date, updated_at FROM event_versions"
    with queries.connected(home.warehouse) as connection:
        rows = connection.execute(f"{statement} WHERE event_id = ? ORDER BY version", [event_id])
        return rows.fetchall()


def test_a_poll_in_the_minute_after_a_delivery_that_shows_the_old_state_changes_nothing(
    sandbox: Sandbox, home: Home
) -> None:
    change = next_update(sandbox)
    with pulling(sandbox, home.landing) as (puller, time), pushing(sandbox, home) as receiver:
        time.now = change.at - timedelta(hours=2)
        puller.events(FROM, TO)
        push_until(sandbox, receiver, change.at + 2 * SECOND)
        land_and_merge(home)
        known = versions(home, change.event.id)
        assert len(known) == 2
        time.now = change.at + 20 * SECOND
        old = puller.events(FROM, TO).manifest
        assert shows(home, old, change) == "old"
        land_and_merge(home)
        assert versions(home, change.event.id) == known
        time.now = change.at + 2 * FRESHNESS
        new = puller.events(FROM, TO).manifest
        assert shows(home, new, change) == "new"
        land_and_merge(home)
        assert versions(home, change.event.id) == known


def shows(home: Home, listed: Manifest, change: CatalogChange) -> str:
    """Return whether a list shows an event as before or after its change."""
    rows = [row for _, page in home.landing.pages(listed) for row in json.loads(page)["data"]]
    (row,) = [row for row in rows if row["id"] == change.event.id]
    is_new = datetime.fromisoformat(row["updatedAt"]) == change.event.updated_at
    return "new" if is_new else "old"


def test_deliveries_before_the_first_export_and_twice_give_what_the_service_shows(
    sandbox: Sandbox, home: Home
) -> None:
    until = NOW + timedelta(days=2)
    with pushing(sandbox, home) as receiver:
        push_until(sandbox, receiver, NOW + timedelta(days=1))
        land_and_merge(home)
        push_until(sandbox, receiver, until)
        first = receiver.count()
    pushed = set(rows_of(home.warehouse))
    assert len(pushed) > 5
    with pulling(sandbox, home.landing) as (puller, time):
        time.now = until + FRESHNESS
        puller.export(FROM, None)
        land_and_merge(home)
    rows = rows_of(home.warehouse)
    assert len(rows) > len(pushed)
    key = sandbox.new_key("enterprise", rate_per_s=1e6, burst=1_000_000)
    found = answers(sandbox.base_url, key, pushed, until + FRESHNESS)
    assert differences({event_id: rows[event_id] for event_id in pushed}, found) == []
    # The same from the beginning, to another receiver: all of it is known.
    bodies = landed(home)
    with served(home, Clock(until + timedelta(days=400))) as receiver:
        assert {receiver.post(body).status for body in bodies} == {204}
        assert receiver.count() == first
    assert land_deliveries(home, utc_now).deliveries == 0


def landed(home: Home) -> list[bytes]:
    return [
        body
        for batch_id in home.landing.batch_ids()
        if (manifest := home.landing.manifest(batch_id)).feed == "deliveries"
        for _, body in home.landing.pages(manifest)
    ]


def test_a_delivery_whose_body_was_cleared_is_known_to_the_next_receiver(home: Home) -> None:
    with served(home, Clock(NOW)) as receiver:
        assert receiver.post(delivery(1)).status == 204
    land_deliveries(home, utc_now)
    with InboxWriter.open(home, lambda: NOW) as writer:
        assert writer.clear_bodies(before=NOW + SECOND, landed_to=1) == 1
    with served(home, Clock(NOW + timedelta(days=366))) as receiver:
        assert receiver.post(delivery(1)).status == 204
        assert receiver.count() == 1


@pytest.mark.parametrize("hours", [-30, 30])
def test_the_service_s_clock_judges_signatures_and_dates_batches_also_hours_away(
    hours: int, tmp_path: Path
) -> None:
    program = ReceiveProgram(tmp_path / "home")
    client = Served(program.home, Clock())
    client.port = program.port
    machine = datetime.now(UTC)
    service = machine + timedelta(hours=hours)
    try:
        program.start()
        # While it runs, as by the first pull of another process.
        set_service_clock(program.home, service, machine)
        for number, (at, status) in enumerate([(machine, 401), (service, 204)]):
            given = signature(delivery(number), at=at, form="t,v1")
            assert client.send(request(delivery(number), given)).status == status
    finally:
        program.close()
    (manifest,) = land_deliveries(program.home, utc_now).manifests
    assert abs(manifest.observed_at - service) < timedelta(minutes=2)
    assert manifest.batch_id.startswith(f"{manifest.observed_at:%Y%m%d}")
    assert manifest.observed_at.date() != machine.date()
