"""What was known at the instants of the caller's rows.

Belongs here: `attach_known` and `features`, from the caller's frame, bars and names of coins to
codes and instants. Does not: the answer (next_events).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, tzinfo
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from almanac import frames
from almanac.coins import Coin
from almanac.errors import InvalidArgument
from almanac.events import Names, category_names, impact_values, one_of
from almanac.instants import Duration, duration
from almanac.joins.next_events import ORIGIN, US, NextEvents, Selection, next_events
from almanac.joins.spans import NONE
from almanac.pairs import Coins, resolve_each_pair, resolve_pairs
from almanac.reader import Reader
from almanac.reading.named_sql import NamedStatements
from almanac.streams import (
    SLICE_ROWS,
    RowProgress,
    Stream,
    check_target,
    open_stream,
    write_parquet,
)

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    Numbers = npt.NDArray[np.int64]

AsOf = Literal["bar_close", "bar_open"]
Symbols = str | Iterable[str] | Mapping[str, str | Coin]
Unknown = Literal["raise", "ignore"]
_SQL = NamedStatements("almanac.joins")


class KnownRows:
    """Answers slices of rows one after the other; coins and what was ahead of them are kept.

    Instants lie in `range_us`. `named` are names in the rows, each with its coin.
    """

    def __init__(
        self,
        reader: Reader,
        selection: Selection,
        range_us: tuple[int, int],
        named: Coins | None,
        *,
        is_strict: bool,
    ) -> None:
        self._reader = reader
        self._selection = selection
        self._range_us = range_us
        self._named = named
        self._is_strict = is_strict
        self._slugs: dict[str, str | None] = {}
        self._places: dict[str, int] = {}
        self._ahead: NextEvents | None = None

    def codes_of(self, texts: "pa.DictionaryArray") -> "Numbers":
        """Return the number of the coin of each row; `NONE` for no coin.

        Raises:
            UnknownName, AmbiguousCoin: a coin does not exist, or is not unique.
        """
        import numpy as np

        wanted: list[str] = texts.dictionary.to_pylist()
        if new := [text for text in wanted if text not in self._slugs]:
            # Whether a column has slugs alone is a matter of all its texts.
            each = [*self._slugs, *new]
            found = _slugs_of(self._reader, each, self._named, is_strict=self._is_strict)
            self._slugs |= {text: found.get(text) for text in new}
            for slug in sorted(set(found.values()) - set(self._places)):
                self._places[slug] = len(self._places)
                self._ahead = None
        codes = [self._places.get(self._slugs[text] or "", NONE) for text in wanted]
        indices = texts.indices.fill_null(len(wanted)).to_numpy(zero_copy_only=False)
        numbers: Numbers = np.array([*codes, NONE], np.int64)[indices]
        return numbers

    def columns_of(self, codes: "Numbers", moments: frames.Moments) -> "pa.Table":
        """Return the columns that are added to rows."""
        if self._ahead is None:
            slugs = list(self._places)
            self._ahead = next_events(self._reader, slugs, self._selection, *self._range_us)
        return self._ahead.of_rows(codes, moments)


def attach_known(
    reader: Reader,
    frame: Any,
    *,
    ts: str | None,
    coin: str,
    horizon: Duration,
    prefix: str,
    categories: Names | None,
    min_impact: float | None,
    unknown: Unknown,
    coins: Coins | None = None,
    to: str | Path | None = None,
    progress: Callable[[str], None] | None = None,
    rows_max: int = SLICE_ROWS,
) -> Any:
    """Return the answer as `Joins.attach_known`; `rows_max` rows are answered at a time."""
    import pyarrow as pa

    is_strict = one_of(unknown, "unknown", ("raise", "ignore")) == "raise"
    target = None if to is None else check_target(to, frame)
    stream = open_stream(frame, "frame")
    with reader.pinned():
        selection = selected(reader, horizon, categories, min_impact)
        now = reader.now()
        if stream is not None:
            # All instants that may come: what is known now of the time since the first pull.
            range_us = (0, (now - ORIGIN) // US)
            known = KnownRows(reader, selection, range_us, coins, is_strict=is_strict)
            joined = _joined(known, stream, ts, coin, prefix, reader.tz, now, rows_max)
            schema = next(joined).schema
            done = RowProgress(progress, stream.rows).counted(joined)
            if target is not None:
                return write_parquet(done, schema, target)
            batches = (batch for table in done for batch in table.to_batches())
            return pa.RecordBatchReader.from_batches(schema, batches)
        moments = frames.moments_of(frames.column_of(frame, ts, "ts"), ts or "index", reader.tz)
        _refuse_future(moments, "the frame", now)
        texts = frames.texts_of(frames.column_of(frame, coin, "coin"), coin)
        known = KnownRows(reader, selection, moments.range_us(), coins, is_strict=is_strict)
        codes = known.codes_of(texts)
        parts = range(0, max(1, len(codes)), rows_max)
        done = RowProgress(progress, len(codes)).counted(
            known.columns_of(codes[first : first + rows_max], moments.slice(first, rows_max))
            for first in parts
        )
        found = frames.with_columns(frame, pa.concat_tables(list(done)), prefix)
    if target is None:
        return found
    table = frames.arrow_table(found)
    return write_parquet([table], table.schema, target)


def _joined(
    known: KnownRows,
    stream: Stream,
    ts: str | None,
    coin: str,
    prefix: str,
    tz: tzinfo,
    now: datetime,
    rows_max: int,
) -> "Iterator[pa.Table]":
    """Yield a table without rows, and then the rows of a stream with their columns."""
    names = stream.schema.names
    if repeated := [name for name in names if names.count(name) > 1]:
        raise InvalidArgument(f"{stream.where} has two columns {repeated[0]!r}; rename one of them")
    first = 0
    for table in chain([stream.schema.empty_table()], stream.slices(names, rows_max)):
        instants = frames.column_of(table, ts, "ts")
        moments = frames.moments_of(instants, ts or "index", tz, first)
        _refuse_future(moments, stream.where, now, first)
        codes = known.codes_of(frames.texts_of(frames.column_of(table, coin, "coin"), coin))
        yield frames.with_columns(table, known.columns_of(codes, moments), prefix)
        first += table.num_rows


def features(
    reader: Reader,
    index: Any,
    *,
    bar: Duration,
    symbols: Symbols,
    as_of: AsOf,
    horizon: Duration,
    categories: Names | None,
    min_impact: float | None,
    to: str | Path | None = None,
    progress: Callable[[str], None] | None = None,
    rows_max: int = SLICE_ROWS,
) -> Any:
    """Return the answer as `Joins.features`; `rows_max` rows are answered at a time."""
    import pandas as pd
    import pyarrow as pa

    length = duration(bar, "bar")
    if not length:
        raise InvalidArgument(f"bar={bar!r}: a bar takes some time, such as '1h' or '1d'")
    is_close = one_of(as_of, "as_of", ("bar_close", "bar_open")) == "bar_close"
    target = None if to is None else check_target(to, index)
    names = named_coins(symbols)
    opens = pd.Index(index)
    with reader.pinned():
        selection = selected(reader, horizon, categories, min_impact)
        opened = frames.moments_of(opens.to_series(index=range(len(opens))), "index", reader.tz)
        now = reader.now()
        _refuse_future(opened, "index", now)
        coins = [coin.slug for coin in resolve_each_pair(reader, names.values())]
        known_us = opened.microseconds + (length // US if is_close else 0)
        # What will be known at the close of the running bar is not known yet.
        is_over = opened.is_known & (known_us <= (now - ORIGIN) // US)
        known = frames.Moments(known_us, is_over)
        slugs = sorted(set(coins))
        ahead = next_events(reader, slugs, selection, *known.range_us())
    codes = [slugs.index(slug) for slug in coins]
    step = max(1, rows_max // max(1, len(coins)))
    parts = (
        _of_bars(ahead, codes, known.slice(first, step), opened.slice(first, step), reader.tz)
        for first in range(0, max(1, len(opens)), step)
    )
    done = RowProgress(progress, len(opens) * len(coins)).counted(parts)
    if target is None:
        found = frames.pandas_of(pa.concat_tables(list(done)))
        found.index = pd.MultiIndex.from_product([opens, list(names)], names=["ts", "symbol"])
        return found
    named = _named_bars(done, pa.array(opens), pa.array(list(names)), step)
    first_part = next(named)
    return write_parquet(chain([first_part], named), first_part.schema, target)


def _of_bars(
    ahead: NextEvents,
    codes: list[int],
    known: frames.Moments,
    opened: frames.Moments,
    tz: tzinfo,
) -> "pa.Table":
    """Return the columns for each bar and coin."""
    import numpy as np
    import pyarrow as pa

    each = len(codes)
    moments = frames.Moments(np.repeat(known.microseconds, each), np.repeat(known.is_known, each))
    found = ahead.of_rows(np.tile(np.array(codes, np.int64), len(known.microseconds)), moments)
    known_at = pa.array(moments.microseconds, mask=np.repeat(~opened.is_known, each))
    return found.append_column("known_at", known_at.cast(pa.timestamp("us", str(tz))))


def _named_bars(
    tables: "Iterable[pa.Table]", opens: "pa.Array", symbols: "pa.Array", step: int
) -> "Iterator[pa.Table]":
    """Yield tables with the bar and the symbol of each row in front."""
    import numpy as np

    for number, table in enumerate(tables):
        bars = opens.slice(number * step, step)
        places = np.repeat(np.arange(len(bars)), len(symbols))
        labels = np.tile(np.arange(len(symbols)), len(bars))
        table = table.add_column(0, "symbol", symbols.take(labels))
        yield table.add_column(0, "ts", bars.take(places))


def selected(
    reader: Reader, horizon: Duration, categories: Names | None, min_impact: float | None
) -> Selection:
    """Return which events count, from arguments as the caller gives them.

    Raises:
        InvalidArgument: a score is wanted, and no pull has shown any.
    """
    filters = {"categories": category_names(reader, categories), **impact_values(min_impact)}
    if min_impact is not None:
        (shown,) = reader.query(_SQL["impact_is_known"]).to_pylist()
        if shown["versions"] and not shown["is_known"]:
            raise InvalidArgument(
                f"min_impact={min_impact!r}: no event has a score or a band; the plan does not "
                "show them. Use min_impact=None, and choose by categories."
            )
    return Selection(duration(horizon, "horizon"), filters)


def named_coins(symbols: Symbols) -> dict[str, str | Coin]:
    """Return coins by the names that the caller's data has for them.

    Raises:
        InvalidArgument: a name is given twice, or there is none.
    """
    if isinstance(symbols, Mapping):
        return dict(symbols)
    listed = [symbols] if isinstance(symbols, str) else list(symbols)
    if len(set(listed)) < len(listed):
        raise InvalidArgument(f"symbols={listed!r}: a symbol is given twice")
    return {name: name for name in listed}


def _refuse_future(moments: frames.Moments, what: str, now: datetime, first_row: int = 0) -> None:
    import numpy as np

    is_late = moments.is_known & (moments.microseconds > (now - ORIGIN) // US)
    if is_late.any():
        row = int(np.argmax(is_late))
        at = np.datetime64(int(moments.microseconds[row]), "us")
        raise InvalidArgument(
            f"row {first_row + row} of {what} is at {at}Z, still to come: the time is "
            f"{now.isoformat()}. Nobody knows yet what will be known then. Rows like this: "
            f"{int(is_late.sum())}. Leave them out; an instant that names no zone is of the zone "
            "of the database."
        )


def _slugs_of(
    reader: Reader, texts: list[str], named: Coins | None, *, is_strict: bool
) -> dict[str, str]:
    """Return the slug of each text that is a coin."""
    coins = resolve_pairs(reader, texts, named)
    if is_strict:
        resolve_each_pair(reader, [text for text in texts if text not in coins])  # Raises.
    return {text: coin.slug for text, coin in coins.items()}
