"""Bar charts as values, which the macros of `charts.html` draw as SVG with a table of numbers.

The style sheet `site.css` has their colours.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, log10
from typing import Final

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
