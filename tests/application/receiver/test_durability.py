"""Deliveries while the receiver is killed: what was acknowledged is landed, once. Repeated ones
change nothing, and the service's clock counts."""

import json
import random
import sys
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from resources.inbox import Inbox
from tests.application.receiver.programs import ReceiveProgram, set_service_clock
from tests.application.receiver.served import Served, request, signature
from tests.hangs import wait_for
from tests.resources.inbox.deliveries import (
    START,
    Clock,
    bodies_in,
    delivery,
    landed_bodies,
    store,
)
from warehouse.clock import utc_now
from warehouse.history.merge import merge
from warehouse.home import Home
from warehouse.queries import connected

SENDERS = 8
SENT_AGAIN = 0.1


@pytest.fixture
def program(tmp_path: Path) -> Iterator[ReceiveProgram]:
    program = ReceiveProgram(tmp_path / "home")
    yield program
    program.close()


def client_of(program: ReceiveProgram) -> Served:
    client = Served(program.home, Clock())
    client.port = program.port
    return client


class Service:
    """Posts deliveries from several threads until each is acknowledged, some of them again."""

    def __init__(self, client: Served, count: int) -> None:
        self.acknowledged: set[str] = set()
        self.posts = self.cut = 0
        self._client = client
        self._waiting = list(range(count))
        self._threads = [threading.Thread(target=self._send, args=(n,)) for n in range(SENDERS)]
        for thread in self._threads:
            thread.start()

    def wait(self) -> None:
        for thread in self._threads:
            thread.join()

    def _send(self, seed: int) -> None:
        chance = random.Random(seed)
        while self._waiting:
            try:
                number = self._waiting.pop()
            except IndexError:
                return
            self.posts += 1
            try:
                status = self._client.post(delivery(number)).status
                self.cut += status == 0
            except OSError:  # It is down.
                status = 0
                time.sleep(0.02)
            if status == 204:
                self.acknowledged.add(f"evt_dlv_{number}")
            if status != 204 or chance.random() < SENT_AGAIN:
                self._waiting.insert(0, number)


@pytest.mark.parametrize(
    ("count", "kills"),
    [
        (600, 4),
        pytest.param(10_000, 20, marks=[pytest.mark.long, pytest.mark.timeout(3_600)]),
    ],
)
def test_what_was_acknowledged_is_landed_once_while_the_receiver_is_killed(
    program: ReceiveProgram, count: int, kills: int
) -> None:
    chance = random.Random(count)
    program.start()
    service = Service(client_of(program), count)
    for kill in range(kills):
        least = (kill + chance.random()) * count / kills
        wait_for(lambda least=least: len(service.acknowledged) >= least)
        program.kill()
        acknowledged = set(service.acknowledged)
        stored = {*ids(bodies_in(program.home)), *ids(landed(program.home))}
        assert acknowledged <= stored
        program.start()
        Inbox(program.home).land(utc_now)  # While deliveries arrive.
    service.wait()
    assert program.end()[0] == 130
    Inbox(program.home).land(utc_now)
    assert sorted(ids(landed(program.home))) == sorted(service.acknowledged)
    assert len(service.acknowledged) == count
    assert bodies_in(program.home) == bodies_in(program.home, "rejected") == []
    sys.stdout.write(
        f"{count} deliveries, {service.posts} posts; {kills} kills cut {service.cut}\n"
    )
    assert service.cut > 0
    assert service.posts > count * (1 + SENT_AGAIN / 2)


def ids(bodies: list[bytes]) -> list[str]:
    return [json.loads(body)["id"] for body in bodies]


def landed(home: Home) -> list[bytes]:
    return [body for bodies in landed_bodies(home).values() for body in bodies]


def test_deliveries_that_are_repeated_after_a_year_change_nothing(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    home.claim("sandbox:1")
    kinds = ("created", "updated", "updated", "cancelled")
    bodies = [
        delivery(number, kind=kind, at=START + timedelta(hours=number), title=f"Title {number}")
        for number, kind in enumerate(kinds)
    ]
    one_event = [body.replace(b'"evt_%d"' % n, b'"evt_1"') for n, body in enumerate(bodies)]
    store(home, START + timedelta(hours=9), *one_event, delivery(9))
    histories = []
    for later in (timedelta(hours=10), timedelta(days=400), timedelta(days=800)):
        Inbox(home).land(utc_now)
        merge(home)
        with connected(home.warehouse) as connection:
            versions = connection.sql("SELECT * FROM event_versions ORDER BY ALL").fetchall()
        histories.append(versions)
        store(home, START + later, *one_event, delivery(9))
    assert len(histories[0]) == 5
    assert histories == histories[:1] * 3
    assert len(landed(home)) == 10, "those of ten hours later are duplicates"


@pytest.mark.parametrize("hours", [-30, 30])
def test_the_service_s_clock_judges_signatures_and_dates_batches_also_hours_away(
    program: ReceiveProgram, hours: int
) -> None:
    client, machine = client_of(program), datetime.now(UTC)
    service = machine + timedelta(hours=hours)
    program.start()
    # While it runs, as by the first pull of another process.
    set_service_clock(program.home, service, machine)
    for number, (at, status) in enumerate([(machine, 401), (service, 204)]):
        given = signature(delivery(number), at=at, form="t,v1")
        assert client.send(request(delivery(number), given)).status == status
    (manifest,) = Inbox(program.home).land(utc_now)
    assert abs(manifest.observed_at - service) < timedelta(minutes=2)
    assert manifest.batch_id.startswith(f"{manifest.observed_at:%Y%m%d}")
    assert manifest.observed_at.date() != machine.date()
