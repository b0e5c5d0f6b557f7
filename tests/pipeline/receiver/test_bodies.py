"""The receiver's application without a server: bodies in the pieces that a server may hand over."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from catalog.contract.constants import ACCEPTED_FORMS
from catalog.contract.signatures import Verifier
from pipeline.receiver import app as receiving
from pipeline.receiver.app import ReceiverApp
from resources.inbox.inbox_file import InboxReader, InboxWriter
from tests.pipeline.receiver.programs import SECRET, ReceiveProgram, set_service_clock
from tests.pipeline.receiver.served import PATH, Served, signature
from tests.resources.inbox.deliveries import Clock, delivery
from warehouse.home import Home

Messages = AsyncIterator[dict[str, Any]]


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "home", wait_s=0)
    home.claim("sandbox:1")
    return home


async def post(
    app: ReceiverApp, clock: Clock, body: bytes, messages: Messages, *, longer: int = 0
) -> int:
    """Return the status of a request with the signature of `body`, whose pieces are `messages`.

    Its announced length is `longer` than the body.
    """
    headers = [(name.encode(), value.encode()) for name, value in signature(body, at=clock.now())]
    headers.append((b"content-length", str(len(body) + longer).encode()))
    scope = {"type": "http", "method": "POST", "path": PATH, "headers": headers}
    sent: list[Any] = []

    async def receive() -> Any:
        return await anext(messages)

    async def send(message: Any) -> None:
        sent.append(message)

    await app(scope, receive, send)
    return int(sent[0]["status"])


def statuses(
    home: Home, *requests: tuple[bytes, Messages], longer: int = 0, **options: Any
) -> list[int]:
    """Return the status of each request, one after the other."""
    clock = Clock()

    async def run(writer: InboxWriter) -> list[int]:
        verifier = Verifier([SECRET], forms=ACCEPTED_FORMS)
        app = ReceiverApp(lambda: verifier, writer, clock.now, path=PATH, **options)
        life: asyncio.Queue[Any] = asyncio.Queue()
        started = asyncio.Event()

        async def answered(message: Any) -> None:
            started.set()

        living = asyncio.create_task(app({"type": "lifespan"}, life.get, answered))
        life.put_nowait({"type": "lifespan.startup"})
        await started.wait()
        found = [
            await post(app, clock, body, messages, longer=longer) for body, messages in requests
        ]
        life.put_nowait({"type": "lifespan.shutdown"})
        await living
        return found

    with InboxWriter.open(home, clock.now) as writer:
        return asyncio.run(run(writer))


async def pieces(*parts: bytes, pause_s: float = 0.0) -> Messages:
    for number, part in enumerate(parts, start=1):
        await asyncio.sleep(pause_s)
        yield {"type": "http.request", "body": part, "more_body": number < len(parts)}


def test_a_body_that_ends_before_its_length_is_incomplete(home: Home) -> None:
    # The signature of what arrived is genuine, as if the rest were only white space.
    body = delivery(1)
    assert statuses(home, (body, pieces(body)), longer=1) == [400]
    assert InboxReader(home).newest(9) == []
    assert statuses(home, (body, pieces(body))) == [204]


def test_a_body_has_one_time_for_all_of_its_pieces(home: Home) -> None:
    body = delivery(1)
    parts = [body[at : at + 4] for at in range(0, len(body), 4)]
    slow = pieces(*parts, pause_s=0.01)
    assert statuses(home, (body, slow), body_within_s=0.1) == [408]
    assert InboxReader(home).newest(9) == []


def test_stored_bodies_need_no_memory(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    bodies = [delivery(number) for number in range(9)]
    monkeypatch.setattr(receiving, "BUFFERED_MAX", 3 * len(bodies[0]))
    assert statuses(home, *((body, pieces(body)) for body in bodies)) == [204] * 9


def test_a_refused_request_is_counted_and_a_stop_keeps_the_count(home: Home) -> None:
    body = delivery(1)
    assert (
        statuses(home, (body, pieces(body + b" ")), (body, pieces(b"{}")), longer=-1) == [400] * 2
    )
    assert [(found.reason, found.requests) for found in InboxReader(home).refusals()] == [
        ("incomplete", 2)
    ]


def test_a_new_delivery_wakes_the_merge_and_a_repeated_one_does_not(home: Home) -> None:
    woken: list[bool] = []
    bodies = [delivery(1), delivery(1), delivery(2)]
    requests = [(body, pieces(body)) for body in bodies]
    assert statuses(home, *requests, stored=lambda: woken.append(True)) == [204] * 3
    assert len(woken) == 2


def test_a_program_receives_by_the_clock_of_the_service(tmp_path: Path) -> None:
    program = ReceiveProgram(tmp_path / "home")
    clock = Clock(datetime.now(UTC) + timedelta(days=2))
    set_service_clock(program.home, clock.now())
    try:
        program.start()
        client = Served(program.home, clock)
        client.port = program.port
        assert client.post(delivery(1), form="t,v1").status == 204
        (stored,) = client.stored()
    finally:
        program.close()
    assert abs(stored.received_at - clock.now()) < timedelta(minutes=2)
