"""Deliveries with random changes of their bytes: none that is forged is accepted, and the receiver
answers each."""

import asyncio
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from tests.application.receiver.served import Served, request, signature
from tests.resources.inbox.deliveries import START, delivery

CONNECTIONS = 64
COUNT = 2_000
PATIENT_S = 0.1
"""How long a request that may be incomplete waits for its answer."""
OF_ALL = 40
"""One of so many is sent as it was signed."""
PIECES = (
    *(b"\r\n", b"\n", b"\0", b" ", b":", b",", b"=", b"\xff", b"\xc3\xa9", b"0", b"-1", b"{"),
    *(b"Transfer-Encoding: chunked\r\n", b"Content-Length: 5\r\n", b"Expect: 100-continue\r\n"),
    *(b"t=", b"Content-Encoding: gzip\r\n", b"POST /webhooks HTTP/1.1\r\n", b"0\r\n\r\n"),
    b"x" * 5_000,
)


@dataclass(frozen=True, slots=True)
class Mutated:
    """A request with the delivery of a number; `is_genuine` if not a byte was changed."""

    number: int
    sent: bytes
    is_genuine: bool


def mutated(count: int) -> Iterator[Mutated]:
    """Yield signed deliveries, in both forms and with or without chunks, nearly all changed."""
    chance = random.Random(count)
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


async def send_all(port: int, requests: Iterator[Mutated]) -> dict[int, int]:
    """Send each on a connection of its own, many at once; return the status of each number."""
    statuses: dict[int, int] = {}

    async def send_some() -> None:
        for mutation in requests:
            statuses[mutation.number] = await status_of(port, mutation)

    await asyncio.gather(*(send_some() for _ in range(CONNECTIONS)))
    return statuses


async def status_of(port: int, mutation: Mutated) -> int:
    """Return the status of the first answer on a connection, 0 if there is none."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    reading = asyncio.ensure_future(reader.readline())
    try:
        writer.write(mutation.sent)
        if not mutation.is_genuine:
            # The receiver may wait for the rest for seconds.
            await asyncio.wait([reading], timeout=PATIENT_S)
            writer.write_eof()
        line = await asyncio.wait_for(reading, None if mutation.is_genuine else PATIENT_S)
        return int(line.split()[1]) if line else 0
    except (OSError, TimeoutError):
        return 0
    finally:
        writer.close()


def test_no_forged_delivery_is_accepted_and_the_receiver_stays_alive(receiver: Served) -> None:
    """What is stored is, byte for byte, what was signed: nothing else was accepted."""
    answered = asyncio.run(send_all(receiver.port, mutated(COUNT)))
    statuses = Counter(answered.values())
    assert not [status for status in statuses if status >= 500]
    assert statuses[401] > COUNT // 10
    assert statuses[400] > COUNT // 10
    assert receiver.post(delivery(COUNT)).status == 204
    bodies = set(receiver.stored())
    assert bodies <= {delivery(number) for number in range(COUNT + 1)}
    acknowledged = {number for number, status in answered.items() if status == 204}
    assert bodies >= {delivery(number) for number in acknowledged}
    assert acknowledged >= set(range(0, COUNT, OF_ALL))
