"""Deliveries with random changes of their bytes: none that is forged is accepted, and the receiver
answers each."""

import asyncio
import json
import random
import sqlite3
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pytest

from resources.inbox.inbox_file import inbox_path
from tests.memory import peak_bytes
from tests.pipeline.receiver.served import Served, request, signature
from tests.resources.inbox.deliveries import START, delivery

CONNECTIONS = 64
PATIENT_S = {2_000: 0.1, 50_000: 0.5}
"""How long a request that may be incomplete waits for its answer."""
MEMORY_MAX = 200_000_000
OF_ALL = 40
"""One of so many is sent as it was signed."""
PIECES = (
    *(
        b"\r\n",
        b"\n",
        b"\0",
        b" ",
        b":",
        b",",
        b"=",
        b"\xff",
        b"\xc3\xa9",
        b"0",
        b"-1",
        b"{",
        b"t=",
    ),
    *(b"Transfer-Encoding: chunked\r\n", b"Content-Length: 5\r\n", b"Expect: 100-continue\r\n"),
    *(b"Content-Encoding: gzip\r\n", b"POST /webhooks HTTP/1.1\r\n", b"0\r\n\r\n", b"x" * 5_000),
)


@dataclass(frozen=True, slots=True)
class Mutated:
    """A request with the delivery of a number; `is_genuine` if not a byte was changed."""

    number: int
    sent: bytes
    is_genuine: bool


def mutated(count: int, *, seed: int) -> Iterator[Mutated]:
    """Yield signed deliveries, in both forms and with or without chunks, nearly all changed."""
    chance = random.Random(seed)
    for number in range(count):
        body = delivery(number)
        given = signature(body, at=START, form=chance.choice(("hex", "t,v1")))
        whole = request(body, given, chunks=chance.choice((None, None, [50, 300])))
        if number % OF_ALL == 0:
            yield Mutated(number, whole, is_genuine=True)
            continue
        sent = whole
        while sent == whole:
            for _ in range(chance.choice((1, 1, 1, 2, 5))):
                sent = changed(sent, chance)
        yield Mutated(number, sent, is_genuine=False)


def changed(sent: bytes, chance: random.Random) -> bytes:
    if not sent:
        return chance.choice(PIECES)
    place = chance.randrange(len(sent) + 1)
    if chance.random() < 0.3:
        # The line of the signature is where a forgery would be.
        place = min(max(0, sent.find(b"SVC-Sig")) + chance.randrange(100), len(sent) - 1)
    kind = chance.randrange(6)
    if kind == 0 and place < len(sent):
        return sent[:place] + bytes([sent[place] ^ 1 << chance.randrange(8)]) + sent[place + 1 :]
    if kind == 1:
        return sent[:place] + chance.choice(PIECES) + sent[place:]
    if kind == 2:
        return sent[:place] + sent[place + chance.randrange(1, 60) :]
    if kind == 3:
        return sent[:place] + chance.randbytes(chance.randrange(1, 20)) + sent[place:]
    if kind == 4:
        start = chance.randrange(len(sent))
        return sent[:place] + sent[start : start + 80] + sent[place:]
    return sent[:place]


async def send_all(
    port: int, requests: Iterator[Mutated], *, patient_s: float = 0.1
) -> dict[int, int]:
    """Send each on a connection of its own, many at once; return the status of each number."""
    statuses: dict[int, int] = {}

    async def send_some() -> None:
        for mutation in requests:
            statuses[mutation.number] = await status_of(port, mutation, patient_s)

    await asyncio.gather(*(send_some() for _ in range(CONNECTIONS)))
    return statuses


async def status_of(port: int, mutation: Mutated, patient_s: float) -> int:
    """Return the status of the first answer on a connection, 0 if there is none."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    reading = asyncio.ensure_future(reader.readline())
    try:
        writer.write(mutation.sent)
        if not mutation.is_genuine:
            # The receiver may wait for the rest for seconds.
            await asyncio.wait([reading], timeout=patient_s)
            writer.write_eof()
        line = await asyncio.wait_for(reading, None if mutation.is_genuine else patient_s)
        return int(line.split()[1]) if line else 0
    except (OSError, TimeoutError):
        return 0
    finally:
        writer.close()


@pytest.mark.parametrize(
    "count", [2_000, pytest.param(50_000, marks=[pytest.mark.long, pytest.mark.timeout(3_600)])]
)
def test_no_forged_delivery_is_accepted_and_the_receiver_stays_alive(
    receiver: Served, count: int
) -> None:
    """What is stored is, byte for byte, what was signed: nothing else was accepted."""
    before, memory = receiver.count(), peak_bytes()
    answered = asyncio.run(
        send_all(receiver.port, mutated(count, seed=count), patient_s=PATIENT_S[count])
    )
    statuses = Counter(answered.values())
    sys.stdout.write(f"{dict(sorted(statuses.items()))}\n")
    assert sum(statuses.values()) == count
    assert not [status for status in statuses if status >= 500]
    assert statuses[401] > count // 10
    assert statuses[400] > count // 10
    assert statuses[204] >= count // OF_ALL
    assert receiver.post(delivery(count)).status == 204
    bodies = bodies_of(receiver, after=before)
    assert len(set(bodies)) == len(bodies)
    assert set(bodies) <= {delivery(number) for number in range(count + 1)}
    acknowledged = {number for number, status in answered.items() if status == 204}
    assert set(bodies) >= {delivery(number) for number in acknowledged}
    genuine = {number: answered[number] for number in range(0, count, OF_ALL)}
    assert {number: status for number, status in genuine.items() if status != 204} == {}
    assert peak_bytes() - memory < MEMORY_MAX


@pytest.mark.parametrize("count", [300, pytest.param(10_000, marks=pytest.mark.long)])
def test_signed_bytes_of_any_kind_are_stored_as_they_are(receiver: Served, count: int) -> None:
    chance, before = random.Random(count), receiver.count()
    sent = {odd_body(chance) for _ in range(count)}
    requests = [
        Mutated(number, request(body, signature(body, at=START)), is_genuine=True)
        for number, body in enumerate(sent)
    ]
    answered = asyncio.run(send_all(receiver.port, iter(requests)))
    assert Counter(answered.values()) == {204: len(sent)}
    assert set(bodies_of(receiver, after=before)) == sent


def odd_body(chance: random.Random) -> bytes:
    """Return bytes that are no delivery, or JSON of odd values, or a delivery with such values."""
    kind = chance.randrange(4)
    if kind == 0:
        return chance.randbytes(chance.randrange(40))
    if kind == 1:
        return changed(delivery(chance.randrange(100)), chance)
    fields = ("id", "type", "data", "createdAt", "deliveredAt", "event")
    body = {name: odd_value(chance) for name in fields if chance.random() < 0.8}
    if kind == 3:
        body["data"] = {name: odd_value(chance) for name in ("id", "updatedAt", "title", "coins")}
        body["type"] = chance.choice(("events.updated", "events.cancelled", "event.created"))
    return json.dumps(body).encode()


def odd_value(chance: random.Random) -> Any:
    deep: Any = []
    for _ in range(chance.choice((3, 3, 3, 400))):
        deep = [deep]
    return chance.choice((
        *(None, True, 0, -1, 10**40, 1e308, float("nan"), float("inf"), "", "\0", "\ud800"),
        *("é" * 300, "x" * 5_000, "2026-03-01T12:00:00Z", "9999-12-31T23:59:59+23:59", [], {}),
        *(deep, {"id": {}}, "evt_1", "events.created", f"{chance.random()}", {"": ""}, "\u202e"),
    ))  # fmt: skip


def bodies_of(receiver: Served, *, after: int) -> list[bytes]:
    """Return the bodies that were stored after some deliveries."""
    with closing(sqlite3.connect(f"file:{inbox_path(receiver.home)}?mode=ro", uri=True)) as inbox:
        found = inbox.execute("SELECT body FROM deliveries WHERE seq > ? ORDER BY seq", (after,))
        return [body for (body,) in found]
