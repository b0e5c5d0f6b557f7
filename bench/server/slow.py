"""Slow connections: how soon the server closes them, and how 500 of them affect other requests.

As a program (`python -m bench.server.slow PORT COUNT SECONDS ROUTE`) it holds the connections, in a
separate process so that it does not affect the load generator's times. `ROUTE` is a method and a
path that read a body, for the connections that send half of one.
"""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench.server.load import Times, open_loop
from bench.server.peers.peer import get

COUNT = 500
_RATE_PER_S = 300.0
_SETTLE_S = 5.5
_HALF_HEADER = b"GET /v2/events HTTP/1.1\r\nHost: 127.0.0.1\r\nX-"
_DRIBBLE = b"a"
_DRIBBLE_EVERY_S = 1.0
_UNREAD, _READ = "POST /v2/events", "PUT /sandbox/clock"
_REOPEN_AFTER_S = 5.0
"""The least time from one opening of a connection to the next."""


@dataclass(frozen=True, slots=True)
class Manner:
    """How a connection is slow: its first bytes, and then a byte each second or nothing."""

    name: str
    first: bytes
    dribbles: bool = False


def held_manners(route: str) -> tuple[Manner, ...]:
    """Return the manners of the connections that are held; `route` reads the body."""
    return (
        Manner("idle", b""),
        Manner("dribbled header", _HALF_HEADER, dribbles=True),
        Manner("half a body that a route awaits", _half_body(route)),
    )


def _half_body(route: str) -> bytes:
    head = f"{route} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000\r\n\r\n"
    return head.encode() + b"x" * 500


_TIMED = (
    *held_manners(_READ),
    Manner("half a body that no route reads", _half_body(_UNREAD)),
    Manner("half a header", _HALF_HEADER),
)


@dataclass(frozen=True, slots=True)
class Felt:
    """Ordinary requests at a fixed rate, without and with the slow connections."""

    rate_per_s: float
    p99_without_ms: float
    p99_with_ms: float
    p50_without_ms: float
    p50_with_ms: float
    held: int
    opened: int
    refused: int

    @property
    def ratio(self) -> float:
        return self.p99_with_ms / self.p99_without_ms


async def seconds_until_closed(port: int, key: str, *, give_up_s: float) -> dict[str, float | None]:
    """Return the seconds until the server closed each connection; None is over `give_up_s`."""
    kept = Manner("idle after an answer", get("/v2/usage", f"x-api-key: {key}"))
    manners = (*_TIMED, kept)
    seconds = await asyncio.gather(*(_until_closed(port, manner, give_up_s) for manner in manners))
    return dict(zip((manner.name for manner in manners), seconds, strict=True))


def felt(
    port: int,
    requests: Callable[[int], Sequence[bytes]],
    *,
    route: str = _READ,
    expected: int = 200,
    core: int | None = None,
    rounds: int,
    for_s: float,
    report_progress: Callable[[str], None],
) -> Felt:
    """Measure in rounds, with and without slow connections in turn; rounds are pooled.

    `requests` returns so many ordinary requests, and `route` awaits half a body. The slow
    connections are held on `core`, if one is given.
    """
    count = int(_RATE_PER_S * for_s)
    without: list[Times] = []
    with_slow: list[Times] = []
    counts = {"held": 0, "opened": 0, "refused": 0}

    def run() -> Times:
        return open_loop(
            port, requests(count), rate_per_s=_RATE_PER_S, for_s=for_s, expected=expected
        )

    run()
    for number in range(rounds):
        report_progress(f"slow connections: round {number + 1}")
        without.append(run())
        words = [str(port), str(COUNT), str(for_s + _SETTLE_S), route]
        pinned = [] if core is None else ["taskset", "-c", str(core)]
        with subprocess.Popen(
            [*pinned, sys.executable, "-m", "bench.server.slow", *words], stdout=subprocess.PIPE
        ) as holder:
            try:
                time.sleep(_SETTLE_S)
                with_slow.append(run())
                out, _ = holder.communicate(timeout=_SETTLE_S + for_s)
                counts = json.loads(out)
            finally:
                holder.kill()
    return Felt(
        rate_per_s=_RATE_PER_S,
        p99_without_ms=_pooled_ms(without, 0.99),
        p99_with_ms=_pooled_ms(with_slow, 0.99),
        p50_without_ms=_pooled_ms(without, 0.50),
        p50_with_ms=_pooled_ms(with_slow, 0.50),
        **counts,
    )


def _pooled_ms(runs: Sequence[Times], share: float) -> float:
    seconds = [value for times in runs for value in times.seconds]
    return Times(seconds, 1.0, 0).quantile_ms(share)


async def _until_closed(port: int, manner: Manner, give_up_s: float) -> float | None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    began = time.perf_counter()
    dribble = asyncio.create_task(_keep_sending(writer, manner))
    try:
        async with asyncio.timeout(give_up_s):
            while await reader.read(65_536):
                began = time.perf_counter()  # the wait is counted from the end of an answer
    except ConnectionError:
        pass
    except TimeoutError:
        return None
    finally:
        dribble.cancel()
        writer.close()
    return time.perf_counter() - began


async def _keep_sending(writer: asyncio.StreamWriter, manner: Manner) -> None:
    writer.write(manner.first)
    while manner.dribbles:
        await asyncio.sleep(_DRIBBLE_EVERY_S)
        writer.write(_DRIBBLE)


async def _hold(port: int, count: int, for_s: float, route: str) -> dict[str, int]:
    """Keep `count` connections open, of each manner in turn; reopen those that are closed."""
    counts = {"held": 0, "opened": 0, "refused": 0}
    manners = held_manners(route)

    async def keep(number: int) -> None:
        manner = manners[number % len(manners)]
        await asyncio.sleep(number / count * _REOPEN_AFTER_S)
        while True:
            reopen_at = time.monotonic() + _REOPEN_AFTER_S
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                counts["refused"] += 1
                await asyncio.sleep(0.1)
                continue
            counts["opened"] += 1
            counts["held"] += 1
            dribble = asyncio.create_task(_keep_sending(writer, manner))
            try:
                while await reader.read(65_536):
                    pass
            except ConnectionError:
                pass
            finally:
                counts["held"] -= 1
                dribble.cancel()
                writer.close()
            await asyncio.sleep(reopen_at - time.monotonic())

    tasks = [asyncio.create_task(keep(number)) for number in range(count)]
    await asyncio.sleep(for_s)
    at_the_end = dict(counts)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return at_the_end


if __name__ == "__main__":
    _port, _count, _for_s, _route = sys.argv[1:]
    print(json.dumps(asyncio.run(_hold(int(_port), int(_count), float(_for_s), _route))))
