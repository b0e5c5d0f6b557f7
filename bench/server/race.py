"""The three workloads on every server in turn, and the limit of the load generator."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench.server.load import LoadError, closed_loop, fetch, open_loop
from bench.server.peers.peer import Peer, Shown, get
from bench.server.process import Running, own_server
from bench.server.workloads import Workload, WorkRequest, pages_of

OPEN_RATE_PER_S = 500.0
_WARM_UP = 300
_SAMPLE_SEED = 11


class RowsDifferError(Exception):
    """Two servers returned different rows for a request: their speeds can't be compared."""


@dataclass(frozen=True, slots=True)
class Pace:
    """The durations and sizes of a race."""

    sample: int
    """Requests of each workload whose rows are compared."""
    closed_s: float
    open_s: float


@dataclass(frozen=True, slots=True)
class Lap:
    """One server on one workload. Latencies are in milliseconds; a busy core is 1.0."""

    server: str
    workload: str
    requests: int
    per_s: float
    p50_ms: float
    p99_ms: float
    open_p99_ms: float | None
    """None when the server can't answer the fixed rate."""
    body_bytes: float
    cpu: float


def race(
    peers: Sequence[Peer],
    workloads: Sequence[Workload],
    pace: Pace,
    *,
    report_progress: Callable[[str], None],
) -> list[Lap]:
    """Run each server alone, in order; all must return the rows of the first.

    Raises:
        RowsDifferError: rows or totals of a request differ.
    """
    laps: list[Lap] = []
    agreed: dict[WorkRequest, tuple[str, Shown]] = {}
    pages = pages_of(workloads)
    for peer in peers:
        with peer.start() as running:
            peer.learn(running, pages)
            for workload in workloads:
                _compare(peer, running, _sample(workload, pace.sample), agreed)
            for workload in workloads:
                report_progress(f"{peer.name}: {workload.name}")
                laps.append(_lap(peer, running, workload, pace))
    return laps


def ceiling(core: int, *, body_bytes: int, count: int, for_s: float) -> float:
    """Return the requests per second that the load generator does against fixed bytes."""
    with own_server(core, "fixed", str(body_bytes)) as running:
        requests = [get(f"/{number}") for number in range(count)]
        return closed_loop(running.port, requests, for_s=for_s).per_s


def _sample(workload: Workload, count: int) -> list[WorkRequest]:
    size = min(count, len(workload.requests))
    return random.Random(_SAMPLE_SEED).sample(list(workload.requests), size)


def _compare(
    peer: Peer,
    running: Running,
    sample: Sequence[WorkRequest],
    agreed: dict[WorkRequest, tuple[str, Shown]],
) -> None:
    bodies = fetch(running.port, [peer.request(request) for request in sample])
    for request, body in zip(sample, bodies, strict=True):
        shown = peer.shown(request, body)
        first, expected = agreed.setdefault(request, (peer.name, shown))
        if shown != expected:
            raise RowsDifferError(
                f"{peer.name} and {first} differ on {request}: {shown}, not {expected}"
            )


def _lap(peer: Peer, running: Running, workload: Workload, pace: Pace) -> Lap:
    requests = [peer.request(request) for request in workload.requests]
    closed_loop(running.port, requests[-_WARM_UP:], for_s=pace.closed_s)
    cpu_s = running.cpu_s()
    times = closed_loop(running.port, requests, for_s=pace.closed_s)
    cpu_s = running.cpu_s() - cpu_s
    return Lap(
        server=peer.name,
        workload=workload.name,
        requests=len(times.seconds),
        per_s=times.per_s,
        p50_ms=times.quantile_ms(0.50),
        p99_ms=times.quantile_ms(0.99),
        open_p99_ms=_open_p99_ms(running, requests, times.per_s, pace),
        body_bytes=times.body_bytes / len(times.seconds),
        cpu=cpu_s / times.elapsed_s,
    )


def _open_p99_ms(
    running: Running, requests: Sequence[bytes], per_s: float, pace: Pace
) -> float | None:
    if per_s < OPEN_RATE_PER_S:
        return None
    # From the end: a slow server got only the first requests in the closed loop.
    late = requests[::-1]
    try:
        times = open_loop(running.port, late, rate_per_s=OPEN_RATE_PER_S, for_s=pace.open_s)
    except LoadError:
        return None
    return times.quantile_ms(0.99)
