"""`python -m bench.analyst.joins`: events as of an instant, and the next event of a million rows.

The same is done in pandas, as people write it. All run in turn, each in its own process, and must
give the same answers.
"""

from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd

from bench.children import Measured, measure
from bench.report import parse_arguments, show

BAR = 10
BAR_MB = 2_000
AT = "2026-02-20T12:00:00+00:00"
HORIZON = "7D"
LOOPED = 500
OURS = "almanac"
READ = "pandas: read the log, groupby"
HELD = "pandas: groupby, log in memory"


def main() -> None:
    size = parse_arguments(
        __doc__, events=50_000, versions=700_000, coins=2_000, days=365, rows=1_000_000, rounds=2
    )
    with TemporaryDirectory(prefix="almanac-analyst-", dir=size.folder) as temporary:
        folder = Path(temporary)
        names = ("events", "versions", "coins", "days", "rows")
        sizes = [f"--{name}={getattr(size, name)}" for name in names]
        made = measure("bench.analyst.homes", str(folder), *sizes)
        home = folder / "home"
        title = f"{size.events:,} events, {made.figures['versions']:,} versions"
        as_of = measure_as_of(folder, home, size.rounds)
        also = size.json and size.json.with_stem(f"{size.json.stem}-events")
        show(f"events(as_of=), {title}", as_of, OURS, bars_of(as_of, [READ, HELD]), also)
        attached = measure_attached(folder, home, size.rounds)
        bars = bars_of(attached, list(attached)[1:]) | differences(folder)
        title = f"attach_known, {size.rows:,} rows, {title}"
        show(title, attached, OURS, bars, size.json)


def measure_as_of(folder: Path, home: Path, rounds: int) -> dict[str, Measured]:
    """From the file to one answer; in pandas also the answer alone, with the log in memory."""
    file = str(folder / "versions.parquet")
    best: dict[str, Measured] = {}
    for _ in range(rounds):
        ours = measure("bench.analyst.ours", "events", str(home), "--at", AT)
        keep(best, OURS, ours)
        group, mask = (
            measure("bench.analyst.plain", way, file, "--at", AT) for way in ("by_group", "by_mask")
        )
        assert ours.figures["rows"] == group.figures["rows"] == mask.figures["rows"]
        keep(best, READ, with_reading(group))
        keep(best, "pandas: read the log, mask", with_reading(mask))
        keep(best, HELD, group)
        keep(best, "pandas: mask, log in memory", mask)
    return best


def measure_attached(folder: Path, home: Path, rounds: int) -> dict[str, Measured]:
    def words(into: str) -> list[str]:
        rows = ["--rows", str(folder / "rows.parquet"), "--horizon", HORIZON]
        return [*rows, "--into", str(folder / into)]

    file = str(folder / "versions.parquet")
    best: dict[str, Measured] = {}
    for _ in range(rounds):
        ours = measure("bench.analyst.ours", "attach", str(home), *words(OURS))
        keep(best, OURS, ours)
    # One round each: they take minutes.
    for way in ("merge_asof", "loop"):
        some = ["--only", str(LOOPED)] if way == "loop" else []
        run = measure("bench.analyst.plain", way, file, *words(way), *some)
        keep(best, f"pandas: {way}", run)
    return best


def keep(best: dict[str, Measured], name: str, run: Measured) -> None:
    if name not in best or run.figures["cpu"] < best[name].figures["cpu"]:
        best[name] = run


def with_reading(run: Measured) -> Measured:
    figures = dict(run.figures)
    for name in ("seconds", "cpu"):
        figures[name] += figures.pop(f"read_{name}")
    return Measured(figures, run.peak_mb)


def ratio(other: Measured, ours: Measured) -> str:
    """Return how many times ours another takes: of the processor, whatever else is running."""
    return f"{other.figures['cpu'] / ours.figures['cpu']:,.1f} x"


def bars_of(measured: dict[str, Measured], others: list[str]) -> dict[str, str]:
    ours = measured[OURS]
    ratios = {
        f"at least {BAR} x as fast as {name}": f"{ratio(measured[name], ours)} of the processor"
        for name in others
    }
    return {**ratios, f"at most {BAR_MB:,} MB": f"{ours.peak_mb:,.0f}"}


def differences(folder: Path) -> dict[str, str]:
    """Return in how many rows the answers differ."""
    ours = pd.read_parquet(folder / OURS)
    found = {}
    for way in ("merge_asof", "loop"):
        other = pd.read_parquet(folder / way)
        same = ours.loc[other.index]
        wrong = same.next_event_id.fillna("") != other.next_event_id.fillna("")
        if "events_ahead" in other:
            wrong |= same.events_ahead != other.events_ahead
        found[f"rows in which {way} differs"] = f"{int(wrong.sum())} of {len(other):,}"
    return found


if __name__ == "__main__":
    main()
