"""`python -m bench.analyst.published PRICES INDEX`: the published numbers of estudy2, reproduced.

The example of the R package estudy2 (vignette "Introduction to estudy2"): seven stocks and the S&P
500, 2019-04-01 to 2020-04-01, closes; log returns; market model fitted to 2020-03-13; events from
2020-03-16 to 2020-03-20. The data are its files data/prices.rda and data/prices_indx.rda, which you
fetch from its repository (irudnyts/estudy2), and are not in ours. PRICES and INDEX are these files
(`pip install rdata`), or CSV made of them: ts, and one column a series.

estudy2 divides residuals by m - 1 where Patell (1976) and Boehmer, Musumeci and Poulsen (1991) have
m - 2, takes the market's mean and squares over all days also for a stock that was listed later, and
the share of positive residuals over all stocks and days, where Cowan (1992) has the stocks' mean.
The figures are shown by the papers and by its rules; the latter must be equal to what it printed.
"""

import argparse
import sys
import warnings
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
from rich.console import Console
from rich.table import Table

from almanac.study.prices import Floats, read_market, read_prices
from almanac.study.returns import Returns, returns_of
from almanac.study.significance import bmp, cross_sectional, generalised_sign, patell
from almanac.study.windows import Spans, Windows, fit

PRINTED: Final = {
    "AAR": (0.02329740, -0.03157867, -0.01617850, 0.07672027, 0.05840545),
    "t": (1.3941497, -1.2769075, -0.4023135, 1.7958275, 5.1233281),
    "Patell": (2.5507399, -2.9495613, 0.3283654, 8.4216222, 6.3196352),
    "BMP": (1.20471169, -1.17531339, 0.07606284, 2.16657728, 8.65212561),
    "sign": (1.1516761, 0.3957301, 1.1516761, 1.9076220, 2.6635680),
}
"""What the vignette prints, for the five days; `sign` is its gsign_stat."""
FIRST, LAST = "2020-03-16", "2020-03-20"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("prices", type=Path)
    parser.add_argument("index", type=Path)
    given = parser.parse_args()
    prices = read_prices(_frame(given.prices), bars="frame")
    closes, utc = _frame(given.index), pd.Timestamp(FIRST, tz="UTC").tz
    market = read_market(closes, prices, stamp="start", tz=utc)
    returns = returns_of(prices, kind="log", market=market)
    zero = int(np.searchsorted(prices.starts, pd.Timestamp(FIRST, tz="UTC").value // 1_000))
    spans = Spans(first=0, last=4, estimation=zero - 1, gap=0, least=200)
    rows = np.full(len(prices.coins), zero)
    windows, usable = fit(returns, rows, np.arange(len(rows)), rows, spans, "market")
    assert usable.all()
    assert str(pd.Timestamp(int(prices.starts[zero + 4]), unit="us").date()) == LAST
    ours, theirs = _figures(windows), _figures(_by_rules_of_estudy2(returns, windows))
    agrees = _show(ours, theirs)
    sys.exit(0 if agrees else 1)


def _figures(windows: Windows) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {name: [] for name in PRINTED}
    spread = np.sqrt(windows.variance_of_bars())
    for day in range(5):
        values = windows.abnormal[:, day]
        scaled = values / spread[:, day]
        found["AAR"].append(float(values.mean()))
        found["t"].append(cross_sectional(values).statistic)
        found["Patell"].append(patell(scaled, windows.degrees).statistic)
        found["BMP"].append(bmp(scaled).statistic)
        found["sign"].append(generalised_sign(values, windows.share_positive).statistic)
    return found


def _by_rules_of_estudy2(returns: Returns, windows: Windows) -> Windows:
    """Return the windows with the divisor m - 1, and moments and shares over all days."""
    days: Floats = returns.markets[0, 1 : int(windows.zero[0])]
    inside = windows.zero[:, None] + windows.spans.relative
    return replace(
        windows,
        sd=windows.sd * np.sqrt(windows.degrees / (windows.fitted_on - 1)),
        market=returns.markets[0, inside] - days.mean(),
        market_squares=np.full(len(windows.zero), ((days - days.mean()) ** 2).sum()),
        share_positive=np.full(
            len(windows.zero), np.average(windows.share_positive, weights=windows.fitted_on)
        ),
    )


def _frame(path: Path) -> Any:
    if path.suffix != ".rda":
        frame = pd.read_csv(path)
        return frame.set_index(pd.to_datetime(frame.iloc[:, 0])).iloc[:, 1:]
    rdata = import_module("rdata")  # It has no types, and is not one of our requirements.

    def as_frame(values: Any, attributes: Any) -> pd.DataFrame:
        index = pd.to_datetime(np.asarray(attributes["index"]).ravel(), unit="D")
        names = np.asarray(attributes["dimnames"][1])
        return pd.DataFrame(np.asarray(values).reshape(len(index), -1), index, names)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        read = rdata.read_rda(
            path, constructor_dict={**rdata.conversion.DEFAULT_CLASS_MAP, "zoo": as_frame}
        )
    (frame,) = read.values()
    return frame


def _show(ours: dict[str, list[float]], theirs: dict[str, list[float]]) -> bool:
    table = Table("", "source", *(f"March {16 + day}" for day in range(5)), "apart at most")
    agrees = True
    for name, printed in PRINTED.items():
        table.add_row(name, "printed by estudy2", *(f"{value:.7f}" for value in printed), "")
        for source, found in (("by its rules", theirs[name]), ("by the papers", ours[name])):
            apart = max(abs(a - b) for a, b in zip(found, printed, strict=True))
            shown = [f"{value:.7f}" for value in found]
            table.add_row("", source, *shown, f"{apart:.1e}")
            agrees &= source != "by its rules" or apart < 1e-6
    console = Console(highlight=False, width=130)
    console.print(table)
    console.print("equal to what was printed: " + ("yes" if agrees else "NO"))
    return agrees


if __name__ == "__main__":
    main()
