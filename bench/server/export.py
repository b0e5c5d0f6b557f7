"""The bulk export: how fast it streams, and whether the server's memory grows."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

from bench.server.peers.peer import get
from bench.server.process import Running, own_server

_MIB = 2**20
_SAMPLE_EVERY_ROWS = 10_000
_SLOW_PAUSE_S = 0.1
_TIMEOUT_S = 150.0


class ExportFailedError(Exception):
    """The export was incomplete."""


@dataclass(frozen=True, slots=True)
class Export:
    name: str
    rows: int
    elapsed_s: float
    body_mib: float
    rss_start_mib: float
    """Before the request."""
    rss_peak_mib: float
    growth_mib: float
    """Peak after a tenth of the rows, minus the value at that point."""

    @property
    def rows_per_s(self) -> float:
        return self.rows / self.elapsed_s


def exports(
    core: int, *, rows: int, slow_s: float, report_progress: Callable[[str], None]
) -> list[Export]:
    """Stream the sandbox's catalog, then `rows` generated rows: at full speed, to a slow client.

    After a tenth of the rows the slow client takes ten chunks (about 1 MiB) a second for
    `slow_s`; a server that does not wait for it would by then hold much of the body in memory.
    """
    done: list[Export] = []
    report_progress("export of the sandbox")
    with own_server(core, "ours") as running:
        done.append(asyncio.run(_export("sandbox's catalog", running, None, 0.0)))
    for name, pause_s in (("full speed", 0.0), ("slow client", slow_s)):
        report_progress(f"export of {rows:,} rows, {name}")
        with own_server(core, "long-export", str(rows)) as running:
            done.append(asyncio.run(_export(f"{rows:,} rows, {name}", running, rows, pause_s)))
    return done


async def _export(name: str, running: Running, expected: int | None, slow_s: float) -> Export:
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            return await _read(name, running, expected, slow_s)
    except TimeoutError as error:
        raise ExportFailedError(f"{name}: not done after {_TIMEOUT_S:g} s") from error


async def _read(name: str, running: Running, expected: int | None, slow_s: float) -> Export:
    reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
    start = running.rss_bytes()
    began = time.perf_counter()
    writer.write(get("/v2/events/export", f"x-api-key: {running.details['key']}"))
    status = (await reader.readuntil(b"\r\n\r\n")).splitlines()[0]
    if b" 200 " not in status:
        raise ExportFailedError(f"{name}: {status.decode()}")
    base_from = _SAMPLE_EVERY_ROWS if expected is None else expected // 10
    rows, size, sampled, base, peak = -1, 0, 0, 0, start  # the first line has the names
    slow_until = 0.0
    while chunk_bytes := int(await reader.readline(), 16):
        chunk = await reader.readexactly(chunk_bytes + 2)
        size += chunk_bytes
        rows += chunk.count(b"\r\n", 0, chunk_bytes)
        slow = time.perf_counter() < slow_until
        if slow or rows >= sampled + _SAMPLE_EVERY_ROWS:
            sampled = rows
            peak = max(peak, running.rss_bytes())
        if not base and rows >= base_from:
            base = peak = running.rss_bytes()
            slow_until = time.perf_counter() + slow_s
        if slow:
            await asyncio.sleep(_SLOW_PAUSE_S)
    elapsed = time.perf_counter() - began
    writer.close()
    if expected is not None and rows != expected:
        raise ExportFailedError(f"{name}: {rows:,} rows arrived, not {expected:,}")
    return Export(
        name=name,
        rows=rows,
        elapsed_s=elapsed,
        body_mib=size / _MIB,
        rss_start_mib=start / _MIB,
        rss_peak_mib=max(peak, base) / _MIB,
        growth_mib=(peak - base) / _MIB,
    )
