"""Plots of a report as SVG, by Altair and vl-convert (the extra `report`).

They need no network and no installed font: texts stay texts of the reader's font. Every plot has an
alternative text, and its numbers are in a table of the report.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from importlib.util import find_spec
from typing import Any, Final

from almanac.forms import cut_line

HOW_TO_GET_PLOTS: Final = (
    "Plots need the packages altair and vl-convert-python. In a checkout: "
    ".venv/bin/pip install altair vl-convert-python"
)
_WIDTH: Final = 560
_BAR: Final = 18
_LABEL: Final = 170
_INK: Final = "#010203"
"""Stands for the text colour of the page, which is light or dark."""
_INK_OF_FILE: Final = "#767676"
"""Readable on white and on black."""
_COLOURS: Final = {
    "slipped": "#d1661b",
    "pulled in": "#2f86c9",
    "cancelled": "#c23f52",
    "moved": "#d1661b",
}
_ID: Final = re.compile(r'(\bid="|url\(#|href="#)')
_ROLE: Final = re.compile(r' (?:role="graphics-[a-z]+"|aria-roledescription="[^"]*")')
"""The parts of a picture with an alternative text need no roles of their own."""
_FONT: Final = "system-ui, sans-serif"
Counts = Sequence[tuple[str, str, float]]
"""Rows of a label, a series, and a number."""


@dataclass(frozen=True, slots=True)
class Plot:
    """A plot. `svg` has the text colour of the page; `alt` says what it shows."""

    name: str
    title: str
    alt: str
    svg: str

    def as_file(self) -> str:
        """Return the SVG as a file of its own."""
        return self.svg.replace("currentColor", _INK_OF_FILE)


def can_plot() -> bool:
    """Return whether the packages of the extra are installed."""
    return find_spec("altair") is not None and find_spec("vl_convert") is not None


def plot_columns(name: str, title: str, alt: str, counts: Counts, axis: str) -> Plot:
    """Return stacked columns: one per label, in the given order."""
    import altair

    labels = list(dict.fromkeys(label for label, _, _ in counts))
    chart = _chart(altair, counts, height=190).encode(
        x=altair.X("label:N", sort=labels, title=None, axis=altair.Axis(labelAngle=0)),
        y=altair.Y("number:Q", title=axis, axis=altair.Axis(tickMinStep=1, format=",d")),
        color=_colour(altair, counts),
    )
    return _draw(name, title, alt, chart)


def plot_bars(name: str, title: str, alt: str, counts: Counts, axis: str) -> Plot:
    """Return horizontal bars of shares from 0 to 1: one group per label, in the given order."""
    import altair

    labels = list(dict.fromkeys(label for label, _, _ in counts))
    series = list(dict.fromkeys(series for _, series, _ in counts))
    chart = _chart(altair, counts, height=_BAR * len(labels) * len(series) + 10).encode(
        x=altair.X("number:Q", title=axis, axis=altair.Axis(format=".0%", tickCount=6)),
        y=altair.Y(
            "label:N",
            sort=labels,
            title=None,
            axis=altair.Axis(labelLimit=_LABEL, minExtent=_LABEL),
        ),
        yOffset=altair.YOffset("series:N", sort=series),
        color=_colour(altair, counts),
    )
    return _draw(name, title, alt, chart)


def _chart(altair: Any, counts: Counts, *, height: int) -> Any:
    rows = [
        {"label": cut_line(label, 40), "series": series, "number": number}
        for label, series, number in counts
    ]
    data = altair.InlineData(values=rows)
    return altair.Chart(data, width=_WIDTH, height=height).mark_bar()


def _colour(altair: Any, counts: Counts) -> Any:
    series = list(dict.fromkeys(series for _, series, _ in counts))
    if len(series) == 1:
        return altair.value(_COLOURS.get(series[0], "#2f86c9"))
    scale = altair.Scale(domain=series, range=[_COLOURS[name] for name in series])
    return altair.Color(
        "series:N", scale=scale, title=None, legend=altair.Legend(orient="top", symbolType="square")
    )


def _draw(name: str, title: str, alt: str, chart: Any) -> Plot:
    import vl_convert

    chart = (
        chart.configure(background="transparent", font=_FONT, aria=False)
        .configure_view(stroke=None)
        .configure_axis(
            labelColor=_INK,
            titleColor=_INK,
            tickColor=_INK,
            domainColor=_INK,
            grid=False,
            labelFontSize=11,
        )
        .configure_axisQuantitative(grid=True, gridColor=_INK, gridOpacity=0.15)
        .configure_legend(labelColor=_INK, labelFontSize=11)
    )
    drawn: str = vl_convert.vegalite_to_svg(chart.to_dict(format="vega-lite"))
    begin, rest = drawn[drawn.index("<svg") :].split(">", 1)
    begin = f'{begin} role="img" aria-label="{escape(alt)}"'
    # Several plots are in one page, and an identifier may be in it once.
    svg = _ID.sub(rf"\g<1>{name}-", f"{begin}>{_ROLE.sub('', rest)}")
    svg = svg.replace(_INK, "currentColor")
    return Plot(name, title, alt, svg)
