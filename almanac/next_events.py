"""The next event of a coin as known at many timestamps, by step functions.

For a coin, the answer stays the same until knowledge changes, an event comes within the horizon, or
one begins. The steps are built once; each row then looks up its step. DuckDB's ASOF join picks any
row if several have the same timestamp (duckdb issue 25536). Here each key has one step for a
timestamp.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import chain
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from almanac import frames
from almanac.coins import (
    Coin,
    LabelledCoins,
    explain_unknown_coin,
    find_coins,
    refuse_ambiguous_coins,
    resolve_texts,
)
from almanac.core.errors import InvalidArgument
from almanac.core.statements import Statements
from almanac.core.timestamps import ORIGIN, US, TimeUnit
from almanac.frames import TimestampColumn
from almanac.reader import Reader
from almanac.streams import Stream

Numbers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


NONE: Final = -1


@dataclass(frozen=True, slots=True)
class StepFunction:
    """The values from each step until the next step of its key. Steps are sorted by key and
    timestamp.

    Attributes:
        keys, times: of the steps; unique together.
        first: the number of the span that goes before the others at the step, `NONE` without any.
        counts: how many spans hold.
    """

    keys: Numbers
    times: Numbers
    first: Numbers
    counts: Numbers

    def find_steps(self, keys: Numbers, times: Numbers) -> Numbers:
        """Return the index of the step that contains each timestamp of a key; `NONE` before all
        steps."""
        found = np.full(len(keys), NONE, np.int64)
        if not len(self.keys):
            return found
        # Numpy sorts numbers of 16 bits by radix, several times as fast.
        is_small = len(keys) and max(keys.max(), -keys.min()) < 2**15
        order = np.argsort(keys.astype(np.int16) if is_small else keys, kind="stable")
        wanted, begins = np.unique(keys[order], return_index=True)
        ends = np.append(begins, len(order))[1:]
        lows = np.searchsorted(self.keys, wanted, "left")
        highs = np.searchsorted(self.keys, wanted, "right")
        for begin, end, low, high in zip(begins, ends, lows, highs, strict=True):
            if low < high:
                rows = order[begin:end]
                after = np.searchsorted(self.times[low:high], times[rows], "right")
                found[rows] = np.where(after == 0, NONE, low + after - 1)
        return found


def make_step_function(spans: pa.Table) -> StepFunction:
    """Return the steps of spans (code, starts, ends), which are in order of precedence."""
    keys, starts, ends = (_micros(spans.column(name)) for name in ("code", "starts", "ends"))
    keys_twice, edges = np.concatenate([keys, keys]), np.concatenate([starts, ends])
    order = np.lexsort((edges, keys_twice))
    sorted_keys, sorted_edges = keys_twice[order], edges[order]
    is_new = np.ones(len(order), bool)
    is_new[1:] = (np.diff(sorted_keys) != 0) | (np.diff(sorted_edges) != 0)
    step_of = np.empty(len(order), np.int64)
    step_of[order] = np.cumsum(is_new) - 1
    count = int(is_new.sum())
    begins, ends_at = step_of[: len(keys)], step_of[len(keys) :]
    # The last step of a key is the end of its last span: nothing leaks into the next key.
    changes = np.bincount(begins, minlength=count) - np.bincount(ends_at, minlength=count)
    return StepFunction(
        sorted_keys[is_new],
        sorted_edges[is_new],
        np.array(_first_spans(begins.tolist(), ends_at.tolist(), count), np.int64),
        np.cumsum(changes),
    )


def _first_spans(begins: list[int], ends: list[int], count: int) -> list[int]:
    """Return the first span that covers each step.

    Each span takes the steps that no earlier span took. `free` points to the next free step. Its
    paths are compressed, so that each step is visited about once.
    """
    first, free = [NONE] * count, list(range(count + 1))
    for number, (begin, end) in enumerate(zip(begins, ends, strict=True)):
        step = _next_free(free, begin)
        while step < end:
            first[step] = number
            free[step] = step + 1
            step = _next_free(free, step + 1)
    return first


def _next_free(free: list[int], step: int) -> int:
    while free[step] != step:
        free[step] = free[free[step]]
        step = free[step]
    return step


WATCHED_AGE: Final = timedelta(days=2)
"""How long after a pull the absence of an event still shows that none was listed (see
`Coverage.covers`)."""
_DAY: Final = timedelta(days=1)
_DAY_US: Final = _DAY // US
_SQL = Statements("almanac")
_OF_EVENT: Final = {
    "next_event_id": "event_id",
    "next_event_title": "title",
    "next_event_date": "date",
    "next_event_precision": "date_precision",
    "next_event_categories": "categories",
    "next_event_impact": "impact",
    "next_event_band": "impact_band",
    "next_event_known_from": "known_from",
}


class KnownStates(NamedTuple):
    """The state of each row: the values that stay the same between two steps.

    Attributes:
        found: the place in `NextEvents.spans` of the next event, `NONE` without any.
        counts: the number of upcoming events.
        is_requested: whether the row has a coin, and a timestamp after the first pull.
        is_watched: whether a pull had covered the coin.
    """

    found: Numbers
    counts: Numbers
    is_requested: Flags
    is_watched: Flags

    def select(self, rows: Flags) -> "KnownStates":
        parts: list[Any] = [values[rows] for values in self]
        return KnownStates(*parts)


@dataclass(frozen=True, slots=True)
class NextEvents:
    """The events ahead of some coins from the first timestamp of interest to the last.

    Attributes:
        spans: times in which an event was ahead, as `spans_ahead` gives them.
        steps: the same as steps. The key of a coin is its place in the list that was asked for.
        watched: times in which a pull had covered a coin, and those in which it had covered all.
        first_pull_us: the timestamp of the first pull; None if there was none.
    """

    spans: pa.Table
    steps: StepFunction
    watched: tuple[StepFunction, StepFunction]
    first_pull_us: int | None

    def find_states(self, codes: Numbers, micros: Numbers, is_known: Flags) -> KnownStates:
        """Return the states of rows of coins and timestamps; `NONE` means no coin."""
        is_requested = is_known & (codes != NONE)
        if self.first_pull_us is None:
            is_requested = np.zeros_like(is_requested)
        else:
            is_requested &= micros >= self.first_pull_us
        # The place NONE is the last one: before the first step nothing is ahead.
        places = self.steps.find_steps(codes, micros)
        found = np.append(self.steps.first, NONE)[places]
        found[~is_requested] = NONE
        counts = np.append(self.steps.counts, 0)[places]
        # Whether a pull had covered the dates from the day of each timestamp to the horizon.
        of_coins, of_all = self.watched
        of_all_at = np.searchsorted(of_all.times, micros, "right") - 1
        is_watched = np.append(of_all.counts, 0)[of_all_at] > 0
        is_watched |= np.append(of_coins.counts, 0)[of_coins.find_steps(codes, micros)] > 0
        return KnownStates(found, counts, is_requested, is_requested & is_watched)

    def show_states(self, states: KnownStates) -> tuple[pa.Table, pa.Table]:
        """Return the next event's columns of some states, and the rows of `spans` they are from."""
        found = states.found
        taken = self.spans.take(pa.array(found, mask=found == NONE))
        columns = {name: taken.column(column) for name, column in _OF_EVENT.items()}
        columns["next_event_impact"] = columns["next_event_impact"].cast(pa.float64())
        return pa.table(columns), taken

    def join_rows(self, codes: Numbers, moments: TimestampColumn) -> pa.Table:
        """Return the columns of the join for rows of coins and timestamps; `NONE` means no coin."""
        micros = moments.microseconds
        states = self.find_states(codes, micros, moments.is_known)
        shown, taken = self.show_states(states)
        ages = micros - _micros(taken.column("first_seen_at"))
        added = {
            "next_event_age_days": _days(ages, states.found),
            "days_until": _days_until(taken, micros, states.found),
            "events_ahead": pa.array(states.counts, mask=~states.is_requested),
            "watched": pa.array(states.is_watched),
        }
        return pa.table({**dict(zip(shown.column_names, shown.columns, strict=True)), **added})


def find_next_events(
    reader: Reader,
    slugs: list[str],
    horizon: timedelta,
    filters: Mapping[str, Any],
    first_us: int,
    last_us: int,
) -> NextEvents:
    """Return the upcoming events of the coins at the timestamps from the first to the last."""
    codes = pa.array(range(len(slugs)), pa.int64())
    coins = {"requested_coins": pa.table({"coin": pa.array(slugs, pa.string()), "code": codes})}
    horizon_us = {"horizon_us": horizon // US}
    ahead = {**horizon_us, "first_us": first_us, "last_us": last_us, **filters}
    spans = reader.query(_SQL["spans_ahead"], ahead, frames=coins)
    watched = reader.query(
        _SQL["spans_watched"], {**horizon_us, "age_us": WATCHED_AGE // US}, frames=coins
    )
    first_pull_at = reader.publication().first_pull_at
    of_all, of_coins = pc.field("code") == NONE, pc.field("code") != NONE
    return NextEvents(
        spans,
        make_step_function(spans),
        (make_step_function(watched.filter(of_coins)), make_step_function(watched.filter(of_all))),
        None if first_pull_at is None else (first_pull_at - ORIGIN) // US,
    )


def _days_until(taken: pa.Table, micros: Numbers, found: Numbers) -> pa.Array:
    """Whole UTC days if the date is a day, so that today is 0 (as days_until of the warehouse)."""
    date = _micros(taken.column("date"))
    is_day = pc.equal(taken.column("date_precision"), "day").fill_null(False)
    whole = (date // _DAY_US - micros // _DAY_US) * _DAY_US
    return _days(np.where(is_day.to_numpy(), whole, date - micros), found)


def _days(micros: Numbers, found: Numbers) -> pa.Array:
    return pa.array(micros / _DAY_US, mask=found == NONE)


def _micros(times: pa.ChunkedArray) -> Numbers:
    numbers: Numbers = times.cast(pa.int64()).fill_null(0).to_numpy()
    return numbers


@dataclass
class KnownRows:
    """Answers slices of rows one after the other, and caches the upcoming events of the coins.

    Timestamps lie in `range_us`. `named` are names in the rows, each with its coin.
    """

    reader: Reader
    horizon: timedelta
    filters: Mapping[str, Any]
    range_us: tuple[int, int]
    named: LabelledCoins | None
    is_strict: bool = field(kw_only=True)

    def __post_init__(self) -> None:
        self._slugs: dict[str, str | None] = {}
        self._places: dict[str, int] = {}
        self._largest: dict[str, tuple[Numbers, Numbers, tuple[Coin, ...]]] = {}
        """By ambiguous text: its coin from each pull of coins on, and all that it may be."""
        self._ahead: NextEvents | None = None

    def find_codes(
        self, texts: pa.DictionaryArray, coin: str, moments: TimestampColumn, first_row: int = 0
    ) -> Numbers:
        """Return the number of the coin of each row of the column `coin`; `NONE` for no coin."""
        wanted: list[str] = texts.dictionary.to_pylist()
        if new := [text for text in wanted if text not in self._slugs]:
            # Whether a column has slugs alone is a matter of all its texts.
            each = [*self._slugs, *new]
            takes = self.reader.ambiguous == "largest"
            named = find_coins(self.reader, each, self.named) if takes else {}
            several = {text: coins for text, coins in named.items() if len(coins) > 1}
            plain = [text for text in each if text not in several]
            found = resolve_texts(self.reader, plain, self.named, is_strict=False)
            unknown = next((text for text in new if text not in {**found, **several}), None)
            if self.is_strict and unknown is not None:
                row = first_row + texts.indices.index(wanted.index(unknown)).as_py()
                where = f"row {row} (0 is the first) of the column {coin!r}: " if coin else ""
                raise explain_unknown_coin(self.reader, unknown, where)
            known = {text: found[text].slug if text in found else None for text in new}
            self._slugs = {**self._slugs, **known}
            coins = {*found.values(), *(coin for coins in several.values() for coin in coins)}
            for slug in sorted({coin.slug for coin in coins} - set(self._places)):
                self._places[slug] = len(self._places)
                self._ahead = None
            for text in several.keys() - self._largest.keys():
                wanted_slugs = {"coins": [coin.slug for coin in several[text]]}
                rows = self.reader.rows(_SQL["largest_over_time"], wanted_slugs)
                since_us = np.array([row["since_us"] for row in rows], np.int64)
                largest = [self._places.get(row["coin"] or "", NONE) for row in rows]
                self._largest[text] = since_us, np.array([*largest, NONE], np.int64), several[text]
        codes = [self._places.get(self._slugs[text] or "", NONE) for text in wanted]
        indices = texts.indices.fill_null(len(wanted)).to_numpy(zero_copy_only=False)
        numbers: Numbers = np.array([*codes, NONE], np.int64)[indices]
        for place, text in enumerate(wanted):
            if text in self._largest:
                is_text = indices == place
                numbers[is_text] = self._find_largest(text, moments, is_text)
        return numbers

    def _find_largest(self, text: str, moments: TimestampColumn, is_text: Flags) -> Numbers:
        since_us, largest, coins = self._largest[text]
        micros = moments.microseconds[is_text]
        # Before the first pull the place is -1, the last one, where no coin is.
        found: Numbers = largest[np.searchsorted(since_us, micros, "right") - 1]
        unranked = micros[moments.is_known[is_text] & (found == NONE)]
        if len(unranked):
            at = np.datetime64(int(unranked[0]), "us")
            raise refuse_ambiguous_coins({text: coins}, f"no coin had a rank at {at}Z: ")
        return found

    def join_columns(self, codes: Numbers, moments: TimestampColumn) -> pa.Table:
        if self._ahead is None:
            slugs = list(self._places)
            self._ahead = find_next_events(
                self.reader, slugs, self.horizon, self.filters, *self.range_us
            )
        found = self._ahead.join_rows(codes, moments)
        if self.reader.ambiguous != "largest":
            return found
        slugs = pa.array(list(self._places), pa.string())
        return found.append_column("coin_slug", slugs.take(pa.array(codes, mask=codes == NONE)))

    def join_bars(self, symbols: pa.Array, known: TimestampColumn, known_at: pa.Array) -> pa.Table:
        each, bars = len(symbols), np.arange(len(known_at))
        moments = TimestampColumn(
            np.repeat(known.microseconds, each), np.repeat(known.is_known, each)
        )
        texts = pa.DictionaryArray.from_arrays(np.tile(np.arange(each), len(bars)), symbols)
        found = self.join_columns(self.find_codes(texts, "", moments), moments)
        return found.append_column("known_at", known_at.take(np.repeat(bars, each)))


def join_slices(
    known: KnownRows,
    stream: Stream,
    ts: str | None,
    coin: str,
    prefix: str,
    tz: tzinfo,
    now: datetime,
    rows_max: int,
    unit: TimeUnit | None,
) -> Iterator[pa.Table]:
    """Yield an empty table first, then the rows of a stream with the added columns."""
    names = stream.schema.names
    if repeated := [name for name in names if names.count(name) > 1]:
        raise InvalidArgument(f"{stream.where} has two columns {repeated[0]!r}; rename one of them")
    first = 0
    for table in chain([pa.Table.from_batches([], stream.schema)], stream.slices(names, rows_max)):
        times = frames.get_column(table, ts, "ts")
        moments = frames.read_timestamp_column(times, ts or "index", tz, first, unit)
        refuse_future(moments, stream.where, now, first)
        texts = frames.read_text_column(frames.get_column(table, coin, "coin"), coin)
        codes = known.find_codes(texts, coin, moments, first)
        columns = known.join_columns(codes, moments)
        yield frames.add_columns(table, columns, prefix)
        first += table.num_rows


def close_bars(
    opened: TimestampColumn, bar: timedelta | pd.DateOffset | None, zone: tzinfo, now: datetime
) -> TimestampColumn:
    """Return when each bar closes, its timestamp of knowledge; one after now is not known.

    The end follows from the open, the zone and the length alone, so no bar depends on the bars
    after it. A bar closes after its length on the clock of the zone, or after as much time, if that
    is earlier: a local day has 23 hours when the clocks go forward, and one of 25 closes after 24.
    A bar whose open the clocks skip, as midnight in Santiago, opens after the gap and is shorter.
    None is a bar of no length.

    Raises:
        InvalidArgument: a bar closes after the next one opens. The last point may lie in a bar that
            is not over: prices may end with one of the present.
    """
    known_us = opened.microseconds
    if bar is not None:
        opens = pd.DatetimeIndex(known_us.view("datetime64[us]"), tz=UTC)
        is_fixed = isinstance(bar, timedelta)
        local = opens.tz_convert(zone).tz_localize(None)
        # The same but after a gap, where it is the start of the gap: the open that was skipped.
        due = (opens - US).tz_convert(zone).tz_localize(None) + US
        step = min(bar, _DAY) if isinstance(bar, timedelta) else _DAY
        is_whole = (due - due.normalize()) % step == timedelta(0)
        is_skipped = (due < local) & (due + bar > local) & is_whole
        local = due.where(is_skipped, local) + bar
        first = np.full(len(opens), not is_fixed)
        closes = local.tz_localize(zone, ambiguous=first, nonexistent="shift_forward")
        plain = closes.tz_convert(UTC).tz_localize(None).as_unit("us")
        close_us = plain.to_numpy().view(np.int64)
        known_us = np.minimum(close_us, known_us + bar // US) if is_fixed else close_us
    # What will be known at the close of the running bar is not known yet.
    is_over = known_us <= (now - ORIGIN) // US
    _refuse_overlaps(opened, known_us, is_over)
    return TimestampColumn(known_us, opened.is_known & is_over)


def _refuse_overlaps(opened: TimestampColumn, known_us: Any, is_over: Any) -> None:
    opens = np.unique(opened.microseconds[opened.is_known])
    places = np.searchsorted(opens, opened.microseconds, "right")
    # A local time that the clocks skip is a microsecond before the next.
    overlaps = opened.is_known & (places < len(opens) - ~is_over)
    overlaps &= known_us > np.append(opens, 0)[places] + 1
    if overlaps.any():
        row = int(np.argmax(overlaps))
        at, close, following = (
            np.datetime64(int(us), "us")
            for us in (opened.microseconds[row], known_us[row], opens[places[row]])
        )
        raise InvalidArgument(
            f"the bar at {at}Z closes at {close}Z, after the next opens at {following}Z. Give the "
            "length of a bar, '1mo' for calendar months; and give the index the zone of its local "
            "days, as with tz_convert"
        )


def name_bars(
    tables: Iterable[pa.Table], opens: pa.Array, symbols: pa.Array, step: int
) -> Iterator[pa.Table]:
    for number, table in enumerate(tables):
        bars = opens.slice(number * step, step)
        places = np.repeat(np.arange(len(bars)), len(symbols))
        labels = np.tile(np.arange(len(symbols)), len(bars))
        table = table.add_column(0, "symbol", symbols.take(labels))
        yield table.add_column(0, "ts", bars.take(places))


def refuse_future(moments: TimestampColumn, what: str, now: datetime, first_row: int = 0) -> None:
    is_late = moments.is_known & (moments.microseconds > (now - ORIGIN) // US)
    if is_late.any():
        row = int(np.argmax(is_late))
        at = np.datetime64(int(moments.microseconds[row]), "us")
        raise InvalidArgument(
            f"row {first_row + row} of {what} is at {at}Z, still to come: the time is "
            f"{now.isoformat()}. Nobody knows yet what will be known then. Rows like this: "
            f"{int(is_late.sum())}. Leave them out; a timestamp that names no zone is of the zone "
            "of the database."
        )


_HORIZON: Final = timedelta(days=7)
"""The default of `attach_known`."""
_LAST_US: Final = (datetime(9999, 12, 31, tzinfo=UTC) - ORIGIN) // US
"""Steps up to this time are valid unless a later pull changes the history."""
_NO_FILTERS: Final[Mapping[str, Any]] = {"categories": None, "min_impact": None, "bands": None}


def list_steps(reader: Reader) -> pa.Table:
    """Return the results of `attach_known` as steps, sorted by coin and `valid_from`.

    Each step is valid for its coin until the next one of the coin, so an as-of join on coin and
    timestamp, in any engine, gives the same columns. Each coin has at most one step per timestamp,
    since engines pick any of several rows. A step is made at the first pull, and where knowledge
    changes, an event comes within the horizon, or one begins. All coins that the file knows have
    steps; there are none before the first pull.
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
