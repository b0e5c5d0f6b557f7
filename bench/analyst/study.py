"""`python -m bench.analyst.study`: the event study beside the same in plain pandas.

50,000 rows (event and coin) over hourly prices of 500 coins. The loops are those that people write:
for each event a slice, a least-squares fit, a cumulated abnormal return; then t and BMP. They run
on a sample of the rows, and their seconds are scaled to all. Ours also has every other test, the
band, and the naive study. Each side runs in a process of its own; both read prices from Parquet.
"""

import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd

from bench.children import measure, print_figures
from bench.report import parse_arguments, show

TIMES, BAR_MB = 10.0, 2_000
WINDOW, ESTIMATION, GAP = 24, 240, 12


def main() -> None:
    size = parse_arguments(__doc__, events=50_000, coins=500, days=730, sample=1_000)
    with TemporaryDirectory(prefix="almanac-study-", dir=size.folder) as temporary:
        folder = Path(temporary)
        _make(folder, size.events, size.coins, size.days * 24)
        runs = {
            "almanac": measure("bench.analyst.study", "ours", str(folder)),
            "pandas loops": measure("bench.analyst.study", "loops", str(folder), str(size.sample)),
        }
        ours, loops = (runs[name].figures for name in ("almanac", "pandas loops"))
        apart = abs(ours["sample_caar"] - loops["sample_caar"])
        times = runs["pandas loops"].seconds / runs["almanac"].seconds
        bars = {
            f"at least {TIMES:.0f} x the loops, scaled from {size.sample:,} rows": f"{times:.0f} x",
            f"at most {BAR_MB:,} MB": f"{runs['almanac'].peak_mb:,.0f}",
            "the same CAAR on the sample": "yes" if apart < 1e-9 else f"NO: {apart:.1e} apart",
        }
        title = (
            f"event study: {size.events:,} rows, {size.coins} coins, {size.days * 24:,} hourly bars"
        )
        show(title, runs, "almanac", bars, size.json)


def _make(folder: Path, events: int, coins: int, bars: int) -> None:
    random = np.random.default_rng(1)
    index = pd.date_range("2024-01-01", periods=bars, freq="h", tz="UTC", name="ts")
    common = random.standard_t(4, (bars, 1)) * 0.004
    moves = common + random.standard_t(4, (bars, coins)) * 0.004
    names = [f"coin-{place}" for place in range(coins)]
    frame = pd.DataFrame(np.exp(moves.cumsum(axis=0)), index=index, columns=names)
    long = frame.reset_index().melt("ts", var_name="coin", value_name="close")
    long.to_parquet(folder / "prices.parquet")
    first = WINDOW + GAP + ESTIMATION + 1
    bar = random.integers(first, bars - WINDOW - 1, events)
    rows = pd.DataFrame(
        {
            "event_id": [f"event-{place}" for place in range(events)],
            "coin": random.choice(names, events),
            "date": index[bar],
        }
    )
    rows.to_parquet(folder / "events.parquet")


def ours(folder: Path) -> None:
    """Study all rows; the CAAR of the rows that the loops take is printed, too."""
    from almanac.reader import Reader
    from almanac.study.questions import EventStudies

    class Studies(EventStudies):
        _reader = Reader.__new__(Reader)  # Events of the user's own: no warehouse is read.

    from datetime import UTC

    Studies._reader.tz = UTC
    started = time.perf_counter()
    study = Studies().event_study(
        folder / "prices.parquet",
        events=pd.read_parquet(folder / "events.parquet"),
        lead="24h",
        window=(-WINDOW, WINDOW),
        estimation=ESTIMATION,
        gap=GAP,
        market="coin-0",
    )
    seconds = time.perf_counter() - started
    car = study.events.set_index("event_id")["car"]
    chosen = [name for name in (f"event-{place}" for place in range(1_000)) if name in car.index]
    print_figures(
        seconds=seconds,
        rows=study.counts["used"],
        headline_p=study.headline.p,
        sample_caar=float(car[chosen].mean()),
    )


def loops(folder: Path, sample: int) -> None:
    """Study a sample of the rows, as people write it; the seconds are scaled to all rows."""
    events = pd.read_parquet(folder / "events.parquet")
    started = time.perf_counter()
    long = pd.read_parquet(folder / "prices.parquet")
    prices = long.pivot(index="ts", columns="coin", values="close")
    returns = np.log(prices).diff()
    prepared = time.perf_counter() - started
    started = time.perf_counter()
    cars, scars = [], []
    for _, event in events.head(sample).iterrows():
        place = returns.index.get_loc(event["date"])
        before = returns.iloc[place - WINDOW - GAP - ESTIMATION : place - WINDOW - GAP]
        inside = returns.iloc[place - WINDOW : place + WINDOW + 1]
        x, y = before["coin-0"], before[event["coin"]]
        if event["coin"] == "coin-0":
            continue
        beta = ((x - x.mean()) * (y - y.mean())).sum() / ((x - x.mean()) ** 2).sum()
        alpha = y.mean() - beta * x.mean()
        residuals = y - alpha - beta * x
        spread = np.sqrt((residuals**2).sum() / (len(y) - 2))
        abnormal = inside[event["coin"]] - alpha - beta * inside["coin-0"]
        scaled = abnormal / spread
        cars.append(abnormal.cumsum())
        scars.append(scaled.sum() / np.sqrt(len(inside)))
    table = pd.DataFrame([car.to_numpy() for car in cars])
    caar = table.mean()
    t = caar.iloc[-1] / table.iloc[:, -1].std() * np.sqrt(len(table))
    bmp = np.mean(scars) / np.std(scars, ddof=1) * np.sqrt(len(scars))
    each = (time.perf_counter() - started) / sample
    print_figures(
        seconds=prepared + each * len(events),
        sampled=len(table),
        t=float(t),
        bmp=float(bmp),
        sample_caar=float(caar.iloc[-1]),
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["ours"]:
        ours(Path(sys.argv[2]))
    elif sys.argv[1:2] == ["loops"]:
        loops(Path(sys.argv[2]), int(sys.argv[3]))
    else:
        main()
