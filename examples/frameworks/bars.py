"""Shared by the files of this folder: what was known at the close of each bar."""

from collections.abc import Mapping
from typing import Any

import pandas as pd

import almanac


def known_at_bars(
    db: almanac.Database,
    index: pd.DatetimeIndex,
    bar: str,
    coins: Mapping[Any, str],
    **wanted: Any,
) -> dict[Any, pd.DataFrame]:
    """Return the columns of `db.features` for each label of `coins`, with the index of the bars.

    `wanted` are `as_of`, `horizon`, `categories` and `min_impact` of `db.features`.

    Raises:
        ValueError: bars are not in order, or much shorter than `bar`.
    """
    if not (index.is_monotonic_increasing and index.is_unique):
        raise ValueError("expected one row per bar, oldest first")
    symbols = {str(place): coin for place, coin in enumerate(coins.values())}
    found = db.features(index, bar=bar, symbols=symbols, **wanted)
    # A comparison with NaN is false; one with the NA of a nullable number is neither.
    found = found.astype({"events_ahead": "float64"})
    # The rows are sorted by bar, then in the order of the symbols.
    rows = {label: found.iloc[place :: len(coins)] for place, label in enumerate(coins)}
    return {label: part.set_axis(index) for label, part in rows.items()}
