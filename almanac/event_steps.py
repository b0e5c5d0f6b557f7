"""The answers of `attach_known` as steps: each holds for its coin until the coin's next step.

An as-of join of any engine on coin and timestamp gives the same columns. Each coin has one step for
a timestamp, since engines pick any row of several. A step is made where knowledge changes, an event
comes within the horizon, or one begins.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import numpy as np
import pyarrow as pa

from almanac.instants import ORIGIN, US
from almanac.next_events import Flags, KnownStates, NextEvents, Numbers, Queries, Steps, next_events

HORIZON: Final = timedelta(days=7)
"""The default of `attach_known`."""
RULES: Final = 1
"""Raise it if the steps of the same file change for another reason than `STATEMENTS`."""
STATEMENTS: Final = ("spans_ahead", "spans_watched", "first_pull")
"""The statements that decide the steps."""
LAST_US: Final = (datetime(9999, 12, 31, tzinfo=UTC) - ORIGIN) // US
"""Steps up to here hold unless knowledge changes."""
_NO_FILTERS: Final[Mapping[str, Any]] = {"categories": None, "min_impact": None, "bands": None}


def list_steps(
    queries: Queries,
    slugs: Sequence[str],
    marks_us: Sequence[int],
    last_us: int,
    horizon: timedelta = HORIZON,
    filters: Mapping[str, Any] = _NO_FILTERS,
) -> pa.Table:
    """Return the steps of coins from the first mark to `last_us`, sorted by coin and `valid_from`.

    Each coin has a step at each mark (microseconds since 1970), except before the first pull.
    """
    coins = sorted(slugs)
    first_us = min(marks_us)
    ahead = next_events(queries, coins, horizon, filters, first_us, last_us)
    codes, edges, is_mark = _list_edges(ahead, len(coins), marks_us, last_us)
    states = ahead.find_states(codes, edges, np.ones(len(edges), bool))
    keeps = states.is_requested & (is_mark | _find_changes(codes, states))
    kept = states.select(keeps)
    shown, taken = ahead.show_states(kept)
    names = pa.DictionaryArray.from_arrays(
        pa.array(codes[keeps].astype(np.int32)), pa.array(coins, pa.string())
    )
    valid_from = pa.array(edges[keeps]).cast(pa.timestamp("us", "UTC"))
    columns = {"coin": names.cast(pa.string()), "valid_from": valid_from}
    columns |= dict(zip(shown.column_names, shown.columns, strict=True))
    columns["next_event_first_seen_at"] = taken.column("first_seen_at")
    columns["events_ahead"] = pa.array(kept.counts, pa.int64())
    columns["watched"] = pa.array(kept.is_watched)
    return pa.table(columns)


def _list_edges(
    ahead: NextEvents, coins: int, marks_us: Sequence[int], last_us: int
) -> tuple[Numbers, Numbers, Flags]:
    """Return all coins and timestamps where a state may change, and whether each is a mark."""
    of_coins, of_all = ahead.watched
    coin_turns, all_turns = _find_turns(of_coins), _find_turns(of_all)
    everyone = np.arange(coins, dtype=np.int64)
    marks = np.array(marks_us, np.int64)
    shared = np.concatenate([marks, of_all.instants[all_turns]])
    codes = np.concatenate(
        [ahead.steps.keys, of_coins.keys[coin_turns], np.repeat(everyone, len(shared))]
    )
    edges = np.concatenate(
        [ahead.steps.instants, of_coins.instants[coin_turns], np.tile(shared, coins)]
    )
    is_inside = (edges >= marks.min()) & (edges <= last_us)
    pairs = np.unique(np.stack([codes[is_inside], edges[is_inside]]), axis=1)
    return pairs[0], pairs[1], np.isin(pairs[1], marks)


def _find_turns(steps: Steps) -> Flags:
    """Return whether each step begins or ends a time in which any span holds."""
    holds = steps.counts > 0
    before = np.concatenate([[False], holds[:-1]])
    is_first = np.concatenate([[True], np.diff(steps.keys) != 0])[: len(holds)]
    turns: Flags = np.where(is_first, holds, holds != before[: len(holds)])
    return turns


def _find_changes(codes: Numbers, states: KnownStates) -> Flags:
    """Return whether each state differs from the one before it of the same coin."""
    changes = np.ones(len(codes), bool)
    changes[1:] = np.diff(codes) != 0
    for values in states:
        changes[1:] |= values[1:] != values[:-1]
    return changes
