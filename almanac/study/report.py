"""A study for people: text, a figure, one HTML page.

Belongs here: matplotlib and words. Does not: figures that are computed (results).
"""

from base64 import b64encode
from html import escape
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd

from almanac.errors import InvalidArgument
from almanac.study.windows import REASONS
from almanac.user_files import local_path

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from almanac.study.study import Study

_PAGE: Final = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Event study</title><style>
body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 62em; margin: 2em auto; padding: 0 1em }}
table {{ border-collapse: collapse; font-size: 13px; margin: 1em 0 }}
th, td {{ padding: 2px 10px; text-align: right; border-bottom: 1px solid #ddd }}
th:first-child, td:first-child {{ text-align: left }}
img {{ max-width: 100% }}
</style></head><body>
<h1>Event study</h1>
<p>{summary}</p>
<img alt="CAAR by bar" src="data:image/png;base64,{image}">
<h2>Tests of the window</h2>{tests}
<h2>By bar</h2>{table}
<h2>Naive, on today's table</h2>
<p>Events that are scheduled today, at the dates they have today, whether known before or not, with
the plain t. It is here to be compared, not to be used.</p>{naive}
<h2>Rows</h2>{counts}
{steps}<h2>Settings</h2>{settings}
</body></html>
"""

COUNTS: Final = {
    "redenominations": "steps of prices by a power of ten",
    "redenomination_in_window": "used with such a step in the window",
}
"""Counts whose names do not say what they are."""


def require(module: str) -> None:
    """Check that a library of the extra is installed.

    Raises:
        InvalidArgument: it is not; the message says how to install it.
    """
    if find_spec(module) is None:
        raise InvalidArgument(
            f"an event study needs {module}, which is not installed: "
            "pip install 'crypto-almanac[study]'"
        )


def text(study: "Study") -> str:
    """Return the summary and the tests as text."""
    return f"{summary(study)}\n\n{study.tests.to_string(index=False)}"


def summary(study: "Study") -> str:
    """Return the result in sentences."""
    counts, table = study.counts, study.table
    low, high = table["caar_low"].iloc[-1], table["caar_high"].iloc[-1]
    band = f" ({study.settings['confidence']} band {low:+.2%} to {high:+.2%})"
    left_out = len(study.excluded)
    naive = study.naive.iloc[-1]
    return (
        f"{counts['used']:,} rows of {counts['events']:,} events and {counts['coins']:,} coins "
        f"on {counts['days']:,} days, as known {study.settings['lead']} before; {left_out:,} "
        f"excluded. "
        f"CAAR over {study.settings['window']}: {study.caar:+.2%}"
        f"{band if np.isfinite(low) else ''}, BHAR {table['bhar'].iloc[-1]:+.2%}; "
        f"{verdict_of(study)}. Naive, on today's table: CAAR "
        f"{naive['caar']:+.2%}, plain t {naive['t']:.2f}, p = {naive['p']:.3f}, "
        f"n = {naive['n']:,.0f}.{_remarks(study)}"
    )


def _remarks(study: "Study") -> str:
    """Return what a reader has to know of the names and the prices; empty if nothing."""
    found = []
    if study.settings["model"] == "mean":
        found.append("Each coin is compared with its own mean, without a market.")
    if study.weights == "events":
        found.append("Each event weighs the same.")
    if ambiguous := study.ambiguous:
        found.append(
            f"Names of several coins, left out of the events: {', '.join(ambiguous)}; "
            "coins= says which they are."
        )
    steps = study.redenominations
    if len(steps):
        names = ", ".join(dict.fromkeys(steps["coin"]))
        rows = study.counts.get("redenomination", 0)
        used = study.counts["redenomination_in_window"]
        found.append(
            f"Prices step by a power of ten, as in a redenomination: {names}. "
            f"Rows with a step in the window: {rows:,} left out, {used:,} used."
        )
    return "".join(f" {remark}" for remark in found)


def verdict_of(study: "Study") -> str:
    """Return the headline in words."""
    if np.isnan(study.headline.p):
        return "too few rows for a test that holds"
    return f"{study.headline.test} p = {study.headline.p:.3f}"


def plot(study: "Study", path: str | Path | None) -> "Figure":
    """Return the CAAR with its band, and the naive one, by bar."""
    require("matplotlib")
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator, PercentFormatter

    table, naive = study.table, study.naive
    figure = Figure(figsize=(9, 5), layout="constrained")
    axes = figure.subplots()
    bars = _with_start(table["bar"], first=True)
    label = f"{study.settings['confidence']} band of the headline ({study.headline.test})"
    if np.isfinite(table["caar_low"]).any():
        low, high = (_with_start(table[name]) for name in ("caar_low", "caar_high"))
        axes.fill_between(bars, low, high, color="#1f77b4", alpha=0.18, linewidth=0, label=label)
    axes.plot(bars, _with_start(table["caar"]), color="#1f77b4", linewidth=2, label="CAAR")
    axes.plot(
        bars,
        _with_start(naive["caar"]),
        color="#888",
        linestyle="--",
        linewidth=1.2,
        label="naive CAAR, on today's table",
    )
    axes.axhline(0, color="black", linewidth=0.8)
    if table["bar"].iloc[0] <= 0 <= table["bar"].iloc[-1]:
        axes.axvline(0, color="black", linewidth=0.8, linestyle=":")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=14))
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_xlabel(f"bars of {study.settings['bar']} from that of the event, at their end")
    axes.set_ylabel("mean cumulated abnormal return")
    counts = study.counts
    axes.set_title(
        f"{counts['used']:,} rows, {counts['events']:,} events, {counts['days']:,} days, as known "
        f"{study.settings['lead']} before: {verdict_of(study)}",
        fontsize=10,
    )
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=9)
    if path is not None:
        figure.savefig(local_path(path, "path"), dpi=140)
    return figure


def page(study: "Study", path: str | Path | None) -> str:
    """Return one HTML page that needs no other file."""
    image = BytesIO()
    plot(study, None).savefig(image, format="png", dpi=110)
    excluded = study.excluded["reason"].value_counts()
    counts = [
        (COUNTS.get(name, name.replace("_", " ")), n)
        for name, n in study.counts.items()
        if name not in excluded
    ]
    counts += [
        (f"excluded: {REASONS.get(str(name), str(name))}", n) for name, n in excluded.items()
    ]
    found = _PAGE.format(
        summary=escape(summary(study)),
        image=b64encode(image.getvalue()).decode(),
        tests=_html(study.tests),
        table=_html(study.table),
        naive=_html(study.naive),
        counts=_html(pd.DataFrame(counts, columns=["what", "rows"])),
        steps=_steps(study),
        settings=_html(pd.DataFrame(study.settings.items(), columns=["setting", "value"])),
    )
    if path is not None:
        local_path(path, "path").write_text(found, "utf-8")
    return found


def fragment(study: "Study") -> str:
    """Return the summary, the figure and the tests for a notebook, without a style of the page.

    Without matplotlib it has no figure.
    """
    figure = ""
    if find_spec("matplotlib") is not None:
        image = BytesIO()
        plot(study, None).savefig(image, format="png", dpi=80)
        data = b64encode(image.getvalue()).decode()
        figure = (
            f'<img alt="CAAR by bar" style="max-width:100%" src="data:image/png;base64,{data}">'
        )
    # MathJax of the page would show a text between two dollars as a formula.
    return (
        f'<div class="tex2jax_ignore mathjax_ignore"><p>{escape(summary(study))}</p>{figure}'
        f"{_html(study.tests)}</div>"
    )


def _steps(study: "Study") -> str:
    steps = study.redenominations
    if steps.empty:
        return ""
    is_kept = study.settings["redenominations"]
    return (
        "<h2>Steps of prices by a power of ten</h2>\n<p>As a redenomination, or data that change "
        f"their unit, make them: {escape(is_kept)}.</p>{_html(steps)}\n"
    )


def _with_start(values: Any, *, first: bool = False) -> Any:
    """Put the start before the values: 0, or the bar before the first."""
    found = np.asarray(values, dtype=np.float64)
    return np.concatenate([[found[0] - 1 if first else 0.0], found])


def _html(frame: pd.DataFrame) -> str:
    shown = {"offset": _in_hours} if "offset" in frame else None
    return str(
        frame.to_html(
            index=False,
            border=0,
            na_rep="",
            float_format=lambda number: f"{number:.4g}",
            formatters=shown,
        )
    )


def _in_hours(offset: pd.Timedelta) -> str:
    """Return a distance as days or hours: pandas shows six hours before as -1 days +18:00:00."""
    hours = offset.total_seconds() / 3_600
    return f"{hours / 24:+g} d" if hours % 24 == 0 else f"{hours:+g} h"
