"""Charts as values, which the macros of `templates/charts.html` draw as SVG.

Bars have a table of their numbers, and the colours of the style sheet of the pages. Lines have
colours of their own, since a notebook has no style sheet of ours.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor, isfinite, log10
from typing import Final

from markupsafe import Markup

from almanac.safe_text import render_html

_TICKS: Final = 4
_STEPS: Final = (1, 2, 5, 10)


@dataclass(frozen=True, slots=True)
class BarSeries:
    """One value per label. `colour` is a class of the style sheet: c1 to c5, or `open`."""

    name: str
    colour: str
    values: Sequence[int]


@dataclass(frozen=True, slots=True)
class BarChart:
    """Counts by label; the bars of several series are stacked.

    `question` is the heading, `description` explains the counts, and `label` is the title of the
    label axis.
    """

    name: str
    question: str
    description: str
    label: str
    labels: Sequence[str]
    series: Sequence[BarSeries]

    @property
    def totals(self) -> list[int]:
        return [sum(values) for values in zip(*(each.values for each in self.series), strict=True)]

    @property
    def has_bars(self) -> bool:
        return any(self.totals)

    @property
    def ticks(self) -> list[int]:
        """The values of the axis, from 0 to the least round number that no bar exceeds."""
        return find_ticks(max(self.totals, default=0))

    @property
    def top(self) -> int:
        return self.ticks[-1]


def find_ticks(most: int) -> list[int]:
    """Return about four round values from 0 on, the last at least `most`."""
    raw = max(most, 1) / _TICKS
    size = 10 ** max(0, int(log10(raw)) if raw >= 1 else 0)
    step = next(factor * size for factor in _STEPS if factor * size >= raw)
    return [number * step for number in range(ceil(max(most, 1) / step) + 1)]


class Drawing(Markup):
    """An SVG, which a notebook shows."""

    __slots__ = ()

    def _repr_svg_(self) -> str:
        return str(self)


@dataclass(frozen=True, slots=True)
class Line:
    """One value per place. `colour` is a colour of SVG."""

    name: str
    colour: str
    values: Sequence[float]
    is_dashed: bool = False


@dataclass(frozen=True, slots=True)
class LineChart:
    """Fractions as lines over whole numbers. `band` has a name, and the lower and upper values."""

    title: str
    label: str
    places: Sequence[int]
    lines: Sequence[Line]
    band: tuple[str, Sequence[float], Sequence[float]] | None = None

    @property
    def ticks(self) -> list[float]:
        """Round values from at most the least to at least the greatest, with 0 among them."""
        shown = [value for line in self.lines for value in line.values]
        shown += [] if self.band is None else [*self.band[1], *self.band[2]]
        values = [0.0, *(float(value) for value in shown if isfinite(value))]
        least, most = min(values), max(values)
        raw = max(most - least, 1e-4) / _TICKS
        size = 10.0 ** floor(log10(raw))
        step = next(factor * size for factor in _STEPS if factor * size >= raw)
        return [n * step for n in range(floor(least / step), max(ceil(most / step), 1) + 1)]

    def draw(self) -> Drawing:
        """Return the chart as SVG of its own."""
        return Drawing(render_html("line_chart.html", chart=self))
