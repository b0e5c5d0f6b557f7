"""`python -m bench.analyst.study`: the event study beside the same in plain pandas.

50,000 rows (event and coin) over hourly prices of 500 coins. The loops are those that people write:
for each event two slices, a least-squares fit, a cumulated abnormal return; then t, Patell, BMP,
sign and GRANK. They run on a sample of the rows, and their seconds are scaled to all. Ours also has
adjusted BMP, GRANK, the calendar test, the band, and the whole naive study. Each side runs in a
process of its own; both read long prices from Parquet. The bar is on processor time.
"""

import sys
from datetime import UTC
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd

from bench.children import Stopwatch, measure, print_figures
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
        mine, theirs = (runs[name].figures for name in ("almanac", "pandas loops"))
        apart = abs(mine["sample_caar"] - theirs["sample_caar"])
        times = theirs["cpu"] / mine["cpu"]
        bars = {
            f"at least {TIMES:.0f} x the loops, scaled from {size.sample:,} rows": f"{times:.1f} x",
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
    from almanac.database import Database
    from almanac.reader import Reader

    for name in ("almanac.study.study", "scipy.special"):
        import_module(name)  # Before the clock starts, as pandas in the other process.

    reader = Reader.__new__(Reader)  # Events of the user's own: no warehouse is read.
    reader.tz = UTC
    watch = Stopwatch()
    study = Database(reader).event_study(
        folder / "prices.parquet",
        events=pd.read_parquet(folder / "events.parquet"),
        lead="24h",
        window=(-WINDOW, WINDOW),
        estimation=ESTIMATION,
        gap=GAP,
        market="coin-0",
    )
    figures = watch.figures()
    car = study.events.set_index("event_id")["car"]
    chosen = [name for name in (f"event-{place}" for place in range(1_000)) if name in car.index]
    print_figures(
        **figures,
        rows=study.counts["used"],
        headline_p=study.headline.p,
        sample_caar=float(car[chosen].mean()),
    )


def loops(folder: Path, sample: int) -> None:
    """Study a sample of the rows, as people write it; the seconds are scaled to all rows."""
    events = pd.read_parquet(folder / "events.parquet")
    watch = Stopwatch()
    long = pd.read_parquet(folder / "prices.parquet")
    prices = long.pivot(index="ts", columns="coin", values="close")
    returns = np.log(prices).diff()
    prepared = watch.figures()
    watch = Stopwatch()
    cars, scars, standard = [], [], []
    for _, event in events.head(sample).iterrows():
        if event["coin"] == "coin-0":
            continue
        place = returns.index.get_loc(event["date"])
        before = returns.iloc[place - WINDOW - GAP - ESTIMATION : place - WINDOW - GAP]
        inside = returns.iloc[place - WINDOW : place + WINDOW + 1]
        x, y = before["coin-0"], before[event["coin"]]
        beta = ((x - x.mean()) * (y - y.mean())).sum() / ((x - x.mean()) ** 2).sum()
        alpha = y.mean() - beta * x.mean()
        residuals = y - alpha - beta * x
        spread = np.sqrt((residuals**2).sum() / (len(y) - 2))
        abnormal = inside[event["coin"]] - alpha - beta * inside["coin-0"]
        bars = len(abnormal)
        moved = (inside["coin-0"] - x.mean()).sum() ** 2 / ((x - x.mean()) ** 2).sum()
        error = spread * np.sqrt(bars + bars**2 / len(y) + moved)
        cars.append(abnormal.cumsum().to_numpy())
        scars.append(abnormal.sum() / error)
        standard.append((residuals / spread).to_numpy())
    table = pd.DataFrame(cars)
    caar = table.mean()
    t = caar.iloc[-1] / table.iloc[:, -1].std() * np.sqrt(len(table))
    bmp = np.mean(scars) / np.std(scars, ddof=1) * np.sqrt(len(scars))
    ranks = []
    for scar, residuals in zip(np.array(scars) / np.std(scars, ddof=1), standard, strict=True):
        ranks.append(pd.Series([scar, *residuals]).rank().to_numpy() / (ESTIMATION + 2) - 0.5)
    means = np.mean(ranks, axis=0)
    z = means[0] / np.sqrt((means**2).mean())
    grank = z * np.sqrt((ESTIMATION - 1) / (ESTIMATION - z**2))
    found = watch.figures()
    whole = {name: prepared[name] + found[name] / sample * len(events) for name in found}
    print_figures(
        **whole,
        sampled=len(table),
        **{"t": float(t), "bmp": float(bmp)},
        grank=float(grank),
        sample_caar=float(caar.iloc[-1]),
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["ours"]:
        ours(Path(sys.argv[2]))
    elif sys.argv[1:2] == ["loops"]:
        loops(Path(sys.argv[2]), int(sys.argv[3]))
    else:
        main()
