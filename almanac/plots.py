"""Plots by matplotlib. Each function draws on an `Axes`, and returns it.

Times are UTC. A band is a period of which only the month, quarter or year is known.
"""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from importlib.util import find_spec
from io import StringIO
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from almanac.core.errors import InvalidArgument
from almanac.core.text import count_noun
from almanac.user_files import path_to_write

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_EXACT: Final = ("instant", "day")
_AREAS: Final = {None: 10, "Low": 10, "Mid": 20, "High": 45, "Critical": 90}
"""The area of a mark by impact band, in square points."""
_PRECISIONS: Final = ("instant", "day", "month", "quarter", "year", "deadline")
_WIDTH: Final = 0.8
_TITLE_CHARS: Final = 80
_PATHS_MAX: Final = 1_000
"""More paths of rows hide each other, and take a minute."""


def is_installed() -> bool:
    return find_spec("matplotlib") is not None


def draw(draw_on: Callable[["Axes"], object], path: str | Path | None, ax: "Axes | None") -> "Axes":
    """Draw on the given Axes, or on one of a new figure; return it.

    If a path is given, the figure is saved in the format of its suffix.

    Raises:
        InvalidArgument: matplotlib is not installed, or does not write this format.
        OSError: the file can't be written.
    """
    if ax is None:
        if not is_installed():
            raise InvalidArgument(
                "a plot needs matplotlib, which is not installed: pip install "
                "'crypto-almanac[plot]'"
            )
        import matplotlib.pyplot as plt

        ax = plt.subplots(layout="constrained")[1]
    draw_on(ax)
    if not ax.has_data():
        ax.text(0.5, 0.5, "nothing to show", transform=ax.transAxes, ha="center", va="center")
        ax.set(xticks=[], yticks=[])
    if path is not None:
        target = path_to_write(path)
        figure = ax.get_figure(root=True)
        assert figure is not None
        formats = figure.canvas.get_supported_filetypes()
        if target.suffix[1:].lower() not in formats:
            raise InvalidArgument(
                f"path={str(path)!r}: expected a file name that ends in one of "
                f"{', '.join(sorted(formats))}"
            )
        figure.savefig(target)
    return ax


def study_svg(study: Any) -> str:
    """Return the plot of a study as SVG, the same text for the same study.

    Its style names all elements: in a page, it has to be an image.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    figure, text = Figure(layout="constrained"), StringIO()
    draw_study(study, figure.subplots())
    with rc_context({"svg.hashsalt": "almanac", "svg.fonttype": "none"}):
        figure.savefig(text, format="svg", metadata={"Date": None})
    svg = text.getvalue()
    return svg[svg.index("<svg") :]


def draw_study(study: Any, ax: "Axes") -> None:
    """Draw the CAAR with its band, and the naive one beside it."""
    table = study.table
    bars = [int(table["bar"].iloc[0]) - 1, *map(int, table["bar"])]
    caar = ax.plot(bars, _from_zero(table["caar"]), label="mean cumulated abnormal return")
    if table["caar_low"].notna().all():
        low, high = _from_zero(table["caar_low"]), _from_zero(table["caar_high"])
        name = f"{study.settings['confidence']} band ({study.headline.test})"
        ax.fill_between(bars, low, high, alpha=0.2, color=caar[0].get_color(), label=name)
    naive = _from_zero(study.naive["caar"])
    ax.plot(bars, naive, color="gray", linestyle="--", label="naive, on today's table")
    _label_bars(study, ax)
    ax.legend(loc="upper left", fontsize="small")


def draw_study_events(study: Any, paths: Any, ax: "Axes") -> None:
    """Draw the path of each row, faint, and the mean. `paths` are cumulated by row and bar."""
    table = study.table
    bars = [int(table["bar"].iloc[0]) - 1, *map(int, table["bar"])]
    shown = paths[:: -(-len(paths) // _PATHS_MAX)]
    faint = max(0.05, min(0.5, 20 / len(shown)))
    ax.plot(bars, [[0.0] * len(shown), *shown.T], color="gray", linewidth=0.7, alpha=faint)
    if len(shown) < len(paths):
        note = f"{len(shown):,} of {len(paths):,} paths"
        ax.text(0.99, 0.01, note, transform=ax.transAxes, ha="right", va="bottom", fontsize="small")
    ax.plot(bars, _from_zero(table["caar"]), linewidth=2, label="mean")
    _label_bars(study, ax)
    ax.legend(loc="upper left", fontsize="small")


def _label_bars(study: Any, ax: "Axes") -> None:
    from matplotlib.ticker import PercentFormatter

    counts = study.counts
    ax.axhline(0, color="gray", linewidth=0.8)
    ax.axvline(0, color="gray", linewidth=0.8, linestyle=":")
    ax.yaxis.set_major_formatter(PercentFormatter(1))
    ax.set_xlabel(f"bars of {study.settings['bar']} from the event's bar, at their end")
    ax.set_ylabel("cumulated abnormal return")
    ax.set_title(
        f"{count_noun(counts['used'], 'row')}, {count_noun(counts['events'], 'event')}, "
        f"{count_noun(counts['days'], 'day')}, as known {study.settings['lead']} before",
        fontsize="medium",
    )


def _from_zero(values: Any) -> list[float]:
    """Return the values after 0, the value before the first bar."""
    return [0.0, *map(float, values)]


def draw_date(versions: Sequence[dict[str, Any]], until: datetime, ax: "Axes") -> None:
    """Draw when an event was to take place, over the time at which this was known.

    A line is an exact date, a band a period or the time up to a deadline, a cross the time at which
    the event was cancelled or withdrawn. On the dotted line the date is today.
    """
    for row in versions:
        known, end = row["known_from"], row["known_to"] or until
        if row["status"] != "scheduled":
            ax.plot([known], [row["date"]], marker="x", color="crimson", linestyle="none")
            ax.annotate(
                row["status"], (known, row["date"]), xytext=(4, 4), textcoords="offset points"
            )
        elif row["date_precision"] in _EXACT:
            ax.plot([known, end], [row["date"]] * 2, color="C0", linewidth=2)
        else:
            first = row["earliest"] or known
            ax.fill_between([known, end], [first] * 2, [row["latest"]] * 2, color="C0", alpha=0.25)
    low, high = ax.get_ylim()
    if versions:
        span = [versions[0]["known_from"], until]
        ax.plot(span, span, color="gray", linestyle=":", label="the date is today")
        ax.set_ylim(low, high)
        title = versions[-1]["title"]
        ax.set_title(title[:_TITLE_CHARS], fontsize="medium", parse_math=False)
        ax.legend(loc="best", fontsize="small")
    ax.set_xlabel("known at")
    ax.set_ylabel("date of the event")
    ax.tick_params("x", rotation=30)


def draw_slips(rates: Sequence[dict[str, Any]], title: str, ax: "Axes") -> None:
    """Draw the share of dates that slipped, by precision and distance; labels count the events."""
    from matplotlib.ticker import PercentFormatter

    by_distance = {row["distance_from"]: row["distance"] for row in rates}
    distances = sorted(by_distance)
    found = [name for name in _PRECISIONS if any(r["date_precision"] == name for r in rates)]
    width = _WIDTH / max(1, len(found))
    for place, precision in enumerate(found):
        rows = [row for row in rates if row["date_precision"] == precision]
        at = [
            distances.index(r["distance_from"]) + (place + 0.5) * width - _WIDTH / 2 for r in rows
        ]
        bars = ax.bar(at, [row["slipped_share"] for row in rows], width, label=precision)
        counts = [f"{row['cohort']:,}" for row in rows]
        ax.bar_label(bars, counts, fontsize="x-small", rotation=90, padding=2)
    ax.set_xticks(range(len(distances)), [by_distance[each] for each in distances])
    ax.yaxis.set_major_formatter(PercentFormatter(1))
    ax.margins(y=0.15)
    ax.set_xlabel("days from then to the date")
    ax.set_ylabel("share that slipped")
    ax.set_title(title, fontsize="medium")
    if found:
        ax.legend(loc="best", fontsize="small")


def draw_survival(rates: Sequence[dict[str, Any]], title: str, ax: "Axes") -> None:
    """Draw the share of dates that still stand so many days after they became known."""
    from matplotlib.ticker import PercentFormatter

    for precision in _PRECISIONS:
        rows = [
            row for row in rates if row["date_precision"] == precision and row["share"] is not None
        ]
        if rows:
            days = [row["after_days"] for row in rows]
            (line,) = ax.step(days, [r["share"] for r in rows], where="post", label=precision)
            low, high = ([row[n] or row["share"] for row in rows] for n in ("low", "high"))
            ax.fill_between(days, low, high, step="post", alpha=0.15, color=line.get_color())
    ax.yaxis.set_major_formatter(PercentFormatter(1))
    ax.set_ylim(0, 1.02)
    ax.set_xlabel("days after the date became known")
    ax.set_ylabel("share of dates that still stand")
    ax.set_title(title, fontsize="medium")
    if ax.lines:
        ax.legend(loc="best", fontsize="small")


def draw_coverage(pulls: Sequence[dict[str, Any]], ax: "Axes") -> None:
    """Draw a mark per complete pull, by feed, and a band over each time of more than two days."""
    feeds = sorted({row["feed"] for row in pulls}, reverse=True)
    for place, feed in enumerate(feeds):
        at = sorted(row["observed_at"] for row in pulls if row["feed"] == feed)
        ax.plot(at, [place] * len(at), marker="|", linestyle="none", markersize=14)
        for before, after in pairwise(at):
            if after - before > timedelta(days=2):
                ax.broken_barh(
                    [(before, after - before)], (place - 0.3, 0.6), color="C3", alpha=0.3
                )
    ax.set_yticks(range(len(feeds)), feeds)
    ax.set_ylim(-0.5, max(0.5, len(feeds) - 0.5))
    ax.set_xlabel("complete pulls; a red band is a gap of more than two days")
    ax.tick_params("x", rotation=30)


def draw_calendar(
    events: Sequence[dict[str, Any]],
    coins: Sequence[str],
    at: datetime,
    until: datetime,
    ax: "Axes",
) -> None:
    """Draw upcoming events, a lane per coin: marks by impact, bars for periods and deadlines.

    `at` is the time at which the events were known: a deadline begins there. The axis ends at
    `until`, since a period may end years later.
    """
    for place, coin in enumerate(coins):
        rows = [row for row in events if coin in row["coins"]]
        exact = [row for row in rows if row["date_exact"] is not None]
        if exact:
            sizes = [_AREAS.get(row["impact_band"], _AREAS[None]) for row in exact]
            dates = [row["date_exact"] for row in exact]
            ax.scatter(dates, [place] * len(exact), sizes, color="C0", alpha=0.6, zorder=2)
        starts = [(row["earliest"] or at, row) for row in rows if row["date_exact"] is None]
        if starts:
            spans: Any = [(first, row["latest"] - first) for first, row in starts]
            ax.broken_barh(spans, (place - 0.15, 0.3), color="gray", alpha=0.3)
    ax.set_yticks(range(len(coins)), coins)
    ax.set_ylim(max(0.5, len(coins) - 0.5), -0.5)
    if events:
        bounds: Any = (at, until)  # A period may have begun before.
        ax.set_xlim(*bounds)
    ax.set_xlabel("date of the event; the area of a mark is its impact")
    ax.tick_params("x", rotation=30)
