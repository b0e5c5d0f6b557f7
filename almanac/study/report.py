"""An event study as tables, text, a chart and an HTML page."""

from base64 import b64encode
from collections.abc import Mapping
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
import pandas as pd
from markupsafe import Markup

from almanac import plots
from almanac.core.errors import InvalidArgument
from almanac.core.text import render_html
from almanac.events import check_choice
from almanac.study.estimates import (
    Control,
    Draws,
    Figures,
    Verdict,
    adjust_p_values,
    compute_headline,
    list_tests,
)
from almanac.study.returns import Returns
from almanac.study.windows import REASONS, StudyRows
from almanac.user_files import path_to_write

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Groups = Literal["category", "band", "coin"]

COUNTS: Final = {
    "assumed_known": "used without known_from, as if known at entry",
    "redenominations": "steps of prices by a power of ten",
    "redenomination_in_window": "used with such a step in the window",
}
"""Counts whose names do not say what they are."""
OTHER_TESTS: Final = (
    "study.tests has the others. Without an effect, on samples whose events share days, at 5 % "
    "calendar rejects 3.8 to 5.8 %, and a plain t "
    "(cross_sectional_t, naive_t) up to 50.6 %."
)
"""Measured by `python -m bench.study_size`."""


class Study:
    """An event study over events as they were known at entry; made by `Database.event_study`.

    Attributes:
        table: one row per bar: `bar` (0 is the event's bar), `offset`, `n`, `aar`, its plain t and
            `aar_p`; `caar` with `caar_low`, `caar_high` and `caar_p`; `bhar`.
            Returns are fractions; both p are of the headline's kind.
        tests: one row per test of the whole window: `test`, `statistic`, `degrees`, `p`,
            `is_headline`. The last is the plain t of the naive study. A report shows the headline
            and the last; docs/backtests.md has the size of each.
        headline: the test to rely on, a `Verdict` with `test`, `statistic`, `degrees` and `p`.
        events: one row per event and coin used, with what was known at entry, the fit, `car`,
            `bhar`, and what became of the event (`moved_after_entry`, …).
        excluded: one row per event, or event and coin, that is not used, with its `reason`.
        counts: the numbers of rows used and excluded, by reason; `days` are those with an event,
            `redenominations` the steps in the prices, `assumed_known` the rows of `events=` without
            a `known_from`, which count as known at entry.
        redenominations: one row per step of a price by a power of ten: `coin` (a name in the
            prices, or `market`), `ts` (start of the bar), `ratio` of the prices, `factor`.
        naive: by bar, the study of today's table: events that are scheduled today, at the dates
            they have today, exact or not, known or not, with the plain t.
        ambiguous: names in the prices that several coins have.
        settings: what was chosen, in words.
    """

    def __init__(
        self,
        *,
        returns: Returns,
        placed: StudyRows,
        figures: Figures,
        naive: pd.DataFrame,
        naive_t: Verdict,
        excluded: pd.DataFrame,
        redenominations: pd.DataFrame,
        options: Draws,
        ambiguous: tuple[str, ...],
        settings: Mapping[str, str],
    ) -> None:
        self._returns, self._placed, self._options = returns, placed, options
        self.ambiguous: tuple[str, ...] = ambiguous
        self.table: pd.DataFrame = figures.table
        self.headline: Verdict = figures.headline
        self.events: pd.DataFrame = placed.rows
        self.excluded = excluded
        self.redenominations = redenominations
        self.naive = naive
        self.settings = dict(settings)
        self.tests: pd.DataFrame = list_tests([*figures.verdicts, naive_t], figures.headline)
        self.counts: dict[str, int] = {
            "used": len(placed.rows),
            "events": int(placed.rows["event_id"].nunique()),
            "coins": int(placed.rows["coin"].nunique()),
            "days": figures.days,
            "assumed_known": int((placed.rows["known_basis"] == "assumed").sum()),
            "moved_after_entry": int(placed.rows["moved_after_entry"].sum()),
            "cancelled_after_entry": int(placed.rows["cancelled_after_entry"].sum()),
            "delisted_in_window": int(placed.rows["delisted_in_window"].sum()),
            "redenomination_in_window": int(placed.rows["redenomination_in_window"].sum()),
            "redenominations": len(redenominations),
            **{name: int(n) for name, n in excluded["reason"].value_counts().items()},
        }

    @property
    def caar(self) -> float:
        """The mean cumulated abnormal return of the whole window, a fraction."""
        return float(self.table["caar"].iloc[-1])

    def by(self, group: Groups, *, control: Control = "bh", level: float = 0.05) -> pd.DataFrame:
        """Return the headline of each group, with false discoveries controlled.

        Groups are as known at entry; an event with several categories is in each of them. Columns:
        the group, `n`, `events`, `caar`, `bhar`, `test`, `statistic`, `p`, `p_adjusted` (`bh`:
        Benjamini and Hochberg; `by`: Benjamini and Yekutieli, for any dependence) and
        `significant`: whether `p_adjusted` is at most `level`. A group whose p can't
        be computed has NaN.

        Raises:
            InvalidArgument: there is no such group or control.
        """
        check_choice(group, "group", ("category", "band", "coin"))
        check_choice(control, "control", ("bh", "by"))
        keys = self._keys(group)
        found = []
        for name in sorted(keys.unique()):
            rows = np.unique(keys.index[keys == name].to_numpy())
            mine = self.events.loc[rows]
            part = self._placed.windows.subset(rows)
            verdict = compute_headline(self._returns, part, self._options)
            found.append(
                {
                    group: name,
                    "n": len(rows),
                    "events": mine["event_id"].nunique(),
                    "caar": float(mine["car"].mean()),
                    "bhar": float(mine["bhar"].mean()),
                    "test": verdict.test,
                    "statistic": verdict.statistic,
                    "p": verdict.p,
                }
            )
        names = [group, "n", "events", "caar", "bhar", "test", "statistic", "p"]
        table = pd.DataFrame(found, columns=names)
        table["p_adjusted"] = adjust_p_values(table["p"].to_numpy(np.float64), control)
        table["significant"] = table["p_adjusted"] <= level
        return table.sort_values("p", kind="stable", ignore_index=True)

    def _keys(self, group: Groups) -> "pd.Series[Any]":
        """Return the group of each row, under its place; one with several categories repeats."""
        column = {"category": "categories"}.get(group, group)
        keys = self.events[column].explode() if group == "category" else self.events[column]
        return keys.dropna()

    def plot(self, path: str | Path | None = None, *, ax: "Axes | None" = None) -> "Axes":
        """Plot the CAAR with its band, and the naive one beside it.

        It draws on `ax` if given, saves the figure to `path` if given, in the format of its suffix,
        and returns the Axes.

        Raises:
            InvalidArgument: matplotlib is not installed, or does not write this format.
        """
        return plots.draw(partial(plots.draw_study, self), path, ax)

    def plot_events(self, path: str | Path | None = None, *, ax: "Axes | None" = None) -> "Axes":
        """Plot the cumulated abnormal return of each row, faint, and the mean; else as `plot`."""
        paths = self._placed.windows.cumulated
        return plots.draw(partial(plots.draw_study_events, self, paths), path, ax)

    def to_html(self, path: str | Path | None = None) -> str:
        """Return the study as one HTML page, and write it to `path` if given.

        The page has the plot, if matplotlib is installed.
        """
        page = render_study(self)
        if path is not None:
            path_to_write(path).write_text(page, "utf-8")
        return page

    def __repr__(self) -> str:
        return f"{summary(self)}\n\n{_main_tests(self).to_string(index=False)}\n{OTHER_TESTS}"

    def _repr_html_(self) -> str:
        return render_study(self, is_fragment=True)


def require_package(module: str) -> None:
    """Check that a library of the extra is installed."""
    if find_spec(module) is None:
        raise InvalidArgument(
            f"an event study needs {module}, which is not installed: "
            "pip install 'crypto-almanac[study]'"
        )


def summary(study: Study) -> str:
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
        f"{describe_headline(study)}. Naive, on today's table: CAAR "
        f"{naive['caar']:+.2%}, plain t {naive['t']:.2f}, p = {naive['p']:.3f}, "
        f"n = {naive['n']:,.0f}.{_remarks(study)}"
    )


def _remarks(study: Study) -> str:
    """Return what a reader has to know of the names and the prices; empty if nothing."""
    found = []
    if assumed := study.counts["assumed_known"]:
        found.append(
            f"{assumed:,} rows have no known_from and count as known at entry: whether they are "
            "look-ahead is not known."
        )
    if study.settings["model"] == "mean":
        found.append("Each coin is compared with its own mean, without a market.")
    if "last prices" in study.settings:
        found.append(f"Last prices of coins: {study.settings['last prices']}.")
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


def describe_headline(study: Study) -> str:
    if np.isnan(study.headline.p):
        return "too few days for a test that holds"
    return f"{study.headline.test} p = {study.headline.p:.3f}"


def render_study(study: Study, *, is_fragment: bool = False) -> str:
    """Return the study as HTML: a page, or a fragment for a notebook.

    The page includes its style and figure. The fragment has no style, and no tables but the tests.
    """
    excluded = study.excluded["reason"].value_counts()
    counts = [
        (COUNTS.get(name, name.replace("_", " ")), n)
        for name, n in study.counts.items()
        if name not in excluded
    ]
    counts += [
        (f"excluded: {REASONS.get(str(name), str(name))}", n) for name, n in excluded.items()
    ]
    steps = study.redenominations
    return render_html(
        "study.html",
        is_fragment=is_fragment,
        summary=summary(study),
        image=b64encode(plots.study_svg(study).encode()).decode() if plots.is_installed() else None,
        tests=_html(_main_tests(study)),
        other_tests=OTHER_TESTS,
        table=_html(study.table),
        naive=_html(study.naive),
        counts=_html(pd.DataFrame(counts, columns=["what", "rows"])),
        steps=None if steps.empty else _html(steps),
        kept=study.settings["redenominations"],
        settings=_html(pd.DataFrame(study.settings.items(), columns=["setting", "value"])),
    )


def _main_tests(study: Study) -> pd.DataFrame:
    """Return the headline and the naive test."""
    tests = study.tests
    return tests[tests["is_headline"] | (tests["test"] == "naive_t")]


def _html(frame: pd.DataFrame) -> Markup:
    shown = {"offset": _in_hours} if "offset" in frame else None
    number = "{:.4g}".format
    return Markup(
        frame.to_html(index=False, border=0, na_rep="", float_format=number, formatters=shown)
    )


def _in_hours(offset: pd.Timedelta) -> str:
    """Return a distance as days or hours: pandas shows six hours before as -1 days +18:00:00."""
    hours = offset.total_seconds() / 3_600
    return f"{hours / 24:+g} d" if hours % 24 == 0 else f"{hours:+g} h"
