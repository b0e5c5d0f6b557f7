"""The results of `attach_known` as steps: each step is valid for its coin until the coin's next
step.

An as-of join on coin and timestamp, in any engine, gives the same columns. Each coin has at most
one step per timestamp, since engines pick any of several rows. A step is made at the first pull,
and where knowledge changes, an event comes within the horizon, or one begins.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import numpy as np
import pyarrow as pa

from almanac.core.statements import Statements
from almanac.core.timestamps import ORIGIN, US
from almanac.next_events import (
    Flags,
    KnownStates,
    NextEvents,
    Numbers,
    StepFunction,
    find_next_events,
)
from almanac.reader import Reader

_SQL: Final = Statements("almanac")
_HORIZON: Final = timedelta(days=7)
"""The default of `attach_known`."""
_LAST_US: Final = (datetime(9999, 12, 31, tzinfo=UTC) - ORIGIN) // US
"""Steps up to this time are valid unless a later pull changes the history."""
_NO_FILTERS: Final[Mapping[str, Any]] = {"categories": None, "min_impact": None, "bands": None}


def list_steps(reader: Reader) -> pa.Table:
    """Return the steps of all coins that a published file knows, sorted by coin and `valid_from`.

    There are none before the first pull.
    """
    coins: list[str] = reader.query(_SQL["step_coins"]).column("coin").to_pylist()
    ahead = find_next_events(reader, coins, _HORIZON, _NO_FILTERS, 0, _LAST_US)
    codes, edges = _list_edges(ahead, coins)
    states = ahead.find_states(codes, edges, np.ones(len(edges), bool))
    changes = _find_changes(codes, states)
    kept = states.select(changes)
    shown, taken = ahead.show_states(kept)
    names = pa.DictionaryArray.from_arrays(
        pa.array(codes[changes].astype(np.int32)), pa.array(coins, pa.string())
    )
    valid_from = pa.array(edges[changes]).cast(pa.timestamp("us", "UTC"))
    columns = {"coin": names.cast(pa.string()), "valid_from": valid_from}
    columns |= dict(zip(shown.column_names, shown.columns, strict=True))
    columns["next_event_first_seen_at"] = taken.column("first_seen_at")
    columns["events_ahead"] = pa.array(kept.counts, pa.int64())
    columns["watched"] = pa.array(kept.is_watched)
    return pa.table(columns)


def _list_edges(ahead: NextEvents, coins: Sequence[str]) -> tuple[Numbers, Numbers]:
    """Return the coins and timestamps where a state may change, from the first pull on."""
    if ahead.first_pull_us is None:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    of_coins, of_all = ahead.watched
    turns = _find_turns(of_coins)
    shared = np.append(of_all.times[_find_turns(of_all)], ahead.first_pull_us)
    codes = np.concatenate(
        [ahead.steps.keys, of_coins.keys[turns], np.repeat(np.arange(len(coins)), len(shared))]
    )
    edges = np.concatenate([ahead.steps.times, of_coins.times[turns], np.tile(shared, len(coins))])
    is_inside = (edges >= ahead.first_pull_us) & (edges <= _LAST_US)
    pairs = np.unique(np.stack([codes[is_inside], edges[is_inside]]), axis=1)
    return pairs[0], pairs[1]


def _find_turns(steps: StepFunction) -> Flags:
    """Return whether each step begins or ends a time that is covered by a span."""
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
