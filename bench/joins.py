"""`python -m bench.joins`: the next known event of each row of a back-test, beside pandas.

`attach_known` against `merge_asof` for each span between two pulls, and against a loop over the
rows. All run in turn, each in its own process, and must give the same answers. Then the same rows
are streamed from Parquet to Parquet; with `--streamed ROWS` as many rows as that.
"""

from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd

from bench.children import ChildFailed, Measured, measure, run_apart
from bench.homes import make_home
from bench.join_sides import write_rows, write_versions
from bench.report import parse_arguments, show

BAR = 10
BAR_MB = 2_000
STREAMED_MB = 3_000
LOOPED = 500
OURS, STREAMED = "almanac", "almanac, streamed"
_SIDES = "bench.join_sides"


def main() -> None:
    size = parse_arguments(
        __doc__,
        events=50_000,
        versions=700_000,
        coins=2_000,
        days=365,
        rows=1_000_000,
        streamed=0,
        rounds=2,
    )
    made = {name: getattr(size, name) for name in ("events", "versions", "coins", "days")}
    with TemporaryDirectory(prefix="almanac-joins-", dir=size.folder) as temporary:
        folder = Path(temporary)
        run_apart(make_home, folder / "home", **made)
        run_apart(write_versions, folder)
        run_apart(write_rows, folder / "rows.parquet", rows=size.rows, days=size.days - 1)
        measured = measure_joins(folder, size.rounds)
        ours = measured[OURS]
        bars = {
            f"at least {BAR} x as fast as {name}, processor time": f"{ratio:,.1f} x"
            for name, run in measured.items()
            if (ratio := run.figures["cpu"] / ours.figures["cpu"]) and name.startswith("pandas")
        }
        bars[f"at most {BAR_MB:,} MB"] = f"{ours.peak_mb:,.0f}"
        streamed = measured[STREAMED]
        if size.streamed:
            run_apart(write_rows, folder / "rows.parquet", rows=size.streamed, days=size.days - 1)
            streamed = _measure_side("stream", folder, "last")
            seconds = f"{streamed.seconds:,.1f} s, {streamed.cpu_s:,.1f} s of the processor"
            bars[f"{size.streamed:,} rows, streamed"] = seconds
        bars[f"at most {STREAMED_MB:,} MB, streamed"] = f"{streamed.peak_mb:,.0f}"
        title = (
            f"attach_known, {size.rows:,} rows, {size.events:,} events, {size.versions:,} versions"
        )
        show(title, measured, OURS, bars, size.json)


def measure_joins(folder: Path, rounds: int) -> dict[str, Measured]:
    """Return the figures of each side, with the least processor time of some rounds.

    Raises:
        ChildFailed: two sides have different answers.
    """
    found = {OURS: _measure_least("attach", folder, rounds)}
    found[STREAMED] = _measure_least("stream", folder, rounds)
    # One round each: they take minutes.
    found["pandas: merge_asof"] = _measure_side("merge_asof", folder, "merge_asof")
    found["pandas: loop"] = _measure_side("loop", folder, "loop", f"--only={LOOPED}")
    for other in ("stream", "merge_asof", "loop"):
        if wrong := count_differing(folder / "attach.parquet", folder / f"{other}.parquet"):
            raise ChildFailed(f"attach_known and {other} differ in {wrong} rows")
    return found


def count_differing(ours: Path, theirs: Path) -> int:
    """Return the number of rows in which the other's answer differs."""
    other = pd.read_parquet(theirs)
    mine = pd.read_parquet(ours).loc[other.index]
    wrong = mine.next_event_id.fillna("") != other.next_event_id.fillna("")
    if "events_ahead" in other:
        wrong |= mine.events_ahead != other.events_ahead
    return int(wrong.sum())


def _measure_least(what: str, folder: Path, rounds: int) -> Measured:
    runs = [_measure_side(what, folder, what) for _ in range(rounds)]
    return min(runs, key=lambda run: float(run.figures["cpu"]))


def _measure_side(what: str, folder: Path, into: str, *words: str) -> Measured:
    return measure(_SIDES, what, str(folder), str(folder / f"{into}.parquet"), *words)


if __name__ == "__main__":
    main()
