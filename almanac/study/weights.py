"""What each row counts in a mean: each row the same, or each event the same.

Belongs here: the share of a row, and means over the rows of one event. Does not: tests.
"""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd

from almanac.study.prices import Floats, Integers

Weighting = Literal["rows", "events"]


@dataclass(frozen=True, slots=True)
class Weights:
    """The share of each row in a mean.

    Attributes:
        share: of each row; they sum to 1.
        unit: the number of the unit of each row, from 0 on by first row: its event, or None if each
            row is a unit of its own. A unit counts as one observation.
    """

    share: Floats
    unit: Integers | None

    @property
    def units(self) -> int:
        return len(self.share) if self.unit is None else int(self.unit.max(initial=-1)) + 1

    @property
    def scale(self) -> Floats | None:
        """The shares as multiples of those of equal rows; None if they are equal."""
        return None if self.unit is None else self.share * len(self.share)

    def mean(self, values: Floats) -> Floats:
        """Return the mean over rows, of each column if there are several."""
        if self.unit is None:
            equal: Floats = np.asarray(values.mean(axis=0)) if len(values) else np.asarray(np.nan)
            return equal
        return np.asarray(self.share @ values)

    def of_units(self, values: Floats, among: Any = None) -> Floats:
        """Return the mean of each unit over its rows; units without a row `among` are left out."""
        mine = slice(None) if among is None else among
        if self.unit is None:
            return values[mine]
        unit = self.unit[mine]
        count = np.bincount(unit, minlength=self.units)
        sums = np.bincount(unit, weights=values[mine], minlength=self.units)
        found: Floats = sums[count > 0] / count[count > 0]
        return found

    def first_rows(self) -> Any:
        """Return the first row of each unit."""
        if self.unit is None:
            return slice(None)
        return np.unique(self.unit, return_index=True)[1]


def equal(count: int) -> Weights:
    """Return the weights of rows that count the same."""
    return Weights(np.full(count, 1.0 / max(count, 1)), None)


def weigh(rows: pd.DataFrame, weighting: Weighting) -> Weights:
    """Return the weights of rows with an `event_id`, in their order."""
    if weighting == "rows":
        return equal(len(rows))
    unit = pd.factorize(rows["event_id"])[0].astype(np.int64)
    of_unit = np.bincount(unit)
    return Weights(1.0 / (of_unit[unit] * max(len(of_unit), 1)), unit)
