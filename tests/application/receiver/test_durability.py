"""Deliveries while the receiver is killed: what was acknowledged is landed, once. Repeated ones
change nothing, and the service's clock counts."""

import json
import random
import socket
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from almanac.core.timestamps import utc_now
from tests.application.receiver.programs import ReceiveProgram, set_service_clock
from tests.application.receiver.served import Served, answer_on, request, served, signature
from tests.hangs import HANGS_AFTER_S, wait_for
from tests.warehouse.inbox.deliveries import START, Clock, bodies_in, delivery, landed_bodies
from warehouse.home import Home
from warehouse.landing.inbox import Inbox

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
    [(200, 2), pytest.param(10_000, 20, marks=[pytest.mark.long, pytest.mark.timeout(3_600)])],
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
    assert service.cut > 0
    assert service.posts > count * (1 + SENT_AGAIN / 2)


def ids(bodies: list[bytes]) -> list[str]:
    return [json.loads(body)["id"] for body in bodies]


def landed(home: Home) -> list[bytes]:
    return [body for bodies in landed_bodies(home).values() for body in bodies]


def test_the_service_s_clock_judges_signatures_and_dates_batches_also_hours_away(
    program: ReceiveProgram,
) -> None:
    client, machine = client_of(program), datetime.now(UTC)
    service = machine + timedelta(hours=30)
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


@pytest.fixture
def client(program: ReceiveProgram) -> Served:
    """A client of the program, which is started."""
    program.start()
    client = Served(program.home, Clock())
    client.port = program.port
    return client


def refused(program: ReceiveProgram) -> str:
    """Start a program that refuses to run; return what it says."""
    process = program.spawn()
    output, errors = process.communicate(timeout=HANGS_AFTER_S)
    assert (process.returncode, output) == (1, "")
    assert "Traceback" not in errors
    return " ".join(errors.split())


def test_a_second_receiver_and_another_source_are_refused_and_the_first_goes_on(
    program: ReceiveProgram, client: Served
) -> None:
    assert client.post(delivery(1)).status == 204
    stamp = (program.home.root / "home.json").read_bytes()
    message = refused(ReceiveProgram(program.home.root))
    assert f"pid {program.process.pid}" in message
    assert "is using this home" in message
    # Nothing is landed yet, so no batch says whose deliveries these are.
    message = refused(ReceiveProgram(program.home.root, base_url="http://127.0.0.1:8"))
    assert "holds data of http://127.0.0.1:9, not of http://127.0.0.1:8" in message
    assert (program.home.root / "home.json").read_bytes() == stamp
    assert client.post(delivery(2)).status == 204
    assert client.count() == 2


BODY_WITHIN_S = 0.5
WHOLE = request(delivery(0), signature(delivery(0), at=START))
HEAD = WHOLE.index(b"\r\n\r\n") + 4


@pytest.fixture
def impatient(tmp_path: Path) -> Iterator[Served]:
    home = Home(tmp_path / "home", wait_s=0)
    home.claim("sandbox:1")
    with served(home, Clock(), body_within_s=BODY_WITHIN_S) as serving:
        yield serving


def test_a_body_that_stops_is_408_and_one_that_comes_a_byte_at_a_time_too(
    impatient: Served,
) -> None:
    for pause_s in (BODY_WITHIN_S / 5, HANGS_AFTER_S):
        with socket.create_connection(("127.0.0.1", impatient.port)) as client:
            client.settimeout(pause_s)
            client.sendall(WHOLE[:HEAD])
            sent = HEAD
            while not is_answered(client):
                sent += 1
                assert sent < len(WHOLE)
                client.sendall(WHOLE[sent - 1 : sent])
            client.settimeout(None)
            assert answer_on(client).status == 408
    assert impatient.count() == 0
    # The short limit may refuse more requests on a busy machine.
    wait_for(lambda: impatient.send(WHOLE).status == 204)


def is_answered(client: socket.socket) -> bool:
    """Wait for an answer as long as the client's timeout."""
    try:
        client.recv(1, socket.MSG_PEEK)
    except TimeoutError:
        return False
    return True
