"""The results of one run; also the form of `--json`."""

from dataclasses import dataclass

from bench.server.export import Export
from bench.server.race import Lap
from bench.server.slow import Felt

LEAST_PER_S = {"page of events": 100.0, "one event": 300.0}
P99_MS = 100.0
SLOW_RATIO = 2.0
EXPORT_GROWTH_MIB = 50.0


@dataclass(frozen=True, slots=True)
class Bar:
    """A figure and the limits that it must meet."""

    what: str
    found: float
    least: float | None = None
    most: float | None = None

    @property
    def met(self) -> bool:
        above = self.least is None or self.found >= self.least
        return above and (self.most is None or self.found <= self.most)


@dataclass(frozen=True, slots=True)
class Results:
    settings: dict[str, str]
    """By server."""
    load_average: float
    """Load average of the machine when the run began."""
    ceiling_per_s: dict[int, float]
    """Requests per second of the load generator against fixed bytes, by body bytes."""
    laps: list[Lap]
    given_up_after_s: float
    closed_after_s: dict[str, float | None]
    felt: Felt
    exports: list[Export]

    def lap(self, server: str, workload: str) -> Lap:
        return next(lap for lap in self.laps if (lap.server, lap.workload) == (server, workload))

    def bars(self) -> list[Bar]:
        bars: list[Bar] = []
        for lap in self.laps:
            if lap.server != "ours":
                continue
            work = lap.workload
            bars.append(Bar(f"{work}: requests per second", lap.per_s, LEAST_PER_S.get(work)))
            for peer in ("Datasette", "Datasette tuned", "bare json", "bare msgspec"):
                ratio = lap.per_s / self.lap(peer, work).per_s
                bars.append(Bar(f"{work}: times {peer}", ratio))
            bars.append(Bar(f"{work}: p99, 8 connections (ms)", lap.p99_ms, most=P99_MS))
            if lap.open_p99_ms is not None:
                bars.append(Bar(f"{work}: p99 at 500/s (ms)", lap.open_p99_ms, most=P99_MS))
        slow = "p99 with 500 slow connections, times without"
        bars.append(Bar(slow, self.felt.ratio, most=SLOW_RATIO))
        for export in self.exports:
            what = f"export, {export.name}: growth (MiB)"
            bars.append(Bar(what, export.growth_mib, most=EXPORT_GROWTH_MIB))
        return bars
