"""Point-in-time joins: what was known at the timestamp of each row."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, timedelta, tzinfo
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from almanac import frames
from almanac.coins import Coin, LabelledCoins, resolve_each_pair, resolve_pairs, slugs_of
from almanac.errors import InvalidArgument
from almanac.events import Coins, Names, category_names, impact_values, known_at, one_of
from almanac.instants import Duration, Instant, duration
from almanac.next_events import NONE, ORIGIN, US, NextEvents, Selection, next_events
from almanac.reader import Reader
from almanac.reading.named_sql import NamedStatements
from almanac.results import Result
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
AsOfEach = Instant | Literal["each"]
_SQL = NamedStatements("almanac")


class KnownRows:
    """Answers slices of rows one after the other; coins and what was ahead of them are kept.

    Instants lie in `range_us`. `named` are names in the rows, each with its coin.
    """

    def __init__(
        self,
        reader: Reader,
        selection: Selection,
        range_us: tuple[int, int],
        named: LabelledCoins | None,
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


class Joins:
    """Point-in-time joins; a part of `Database`."""

    _reader: Reader
    _rows_max = SLICE_ROWS
    """The rows that are answered at a time."""

    def attach_known(
        self,
        frame: Any,
        ts: str | None = "ts",
        coin: str = "coin",
        horizon: Duration = "7d",
        prefix: str = "",
        *,
        categories: Names | None = None,
        min_impact: float | None = None,
        unknown: Unknown = "raise",
        coins: LabelledCoins | None = None,
        to: str | Path | None = None,
        progress: Callable[[str], None] | None = None,
    ) -> Any:
        """Return the rows of a frame with the next event of their coin, as known at their instant.

        An event is ahead at an instant if what had been pulled by then says so: it is linked to the
        coin, scheduled, not missing, has an exact date, and begins later, at most `horizon` after
        the instant. An event of a day begins, at the latest, at the end of its UTC day. The next
        event is the one with the earliest date, and of several the one with the lowest id.

        Args:
            frame: a pandas or Polars DataFrame, or a pyarrow Table; it is not changed. For rows
                that memory does not hold: a pyarrow RecordBatchReader, dataset or ParquetFile, or
                the path of a Parquet file, of a folder of such files, a pattern, or the path of a
                CSV file, whose columns are texts.
            ts: the column of instants, or a level of the index; None is the index. Instants without
                a zone are of the zone of the database. An instant to come is an error.
            coin: the column of coins: slugs, tickers, names, or pairs such as `BTC/USDT`, `BTC-USD`
                or `BTCUSDT`.
            horizon: how far ahead an event may begin.
            prefix: put before the name of each new column.
            categories, min_impact: which events count, as in `events`, by what was known then.
            unknown: `ignore` takes a coin that nobody knows as no coin. An ambiguous one is always
                an error.
            coins: names in the column, or tickers, each with its coin.
            to: a Parquet file to write in place of returning the rows. It has its name only once
                it is complete; a file of this name is replaced.
            progress: called with a line of text for each million rows; `print` will do.

        Returns:
            With `to` the number of rows. For a frame the same rows, order, index and columns, of
            the same kind of frame; for a reader, a dataset or a path a RecordBatchReader, which
            reads and answers a million rows at a time. The added columns are:
            `next_event_id`, `next_event_title`, `next_event_date` (instant), `next_event_precision`
            (`instant` or `day`), `next_event_categories` (joined by "; "), `next_event_impact` (0
            to 10, NaN if unknown) and `next_event_band`, `next_event_known_from` (when this became
            known), `next_event_age_days` (since the event was first seen), `days_until` (whole UTC
            days if the date is a day, 0 is today), all missing without an event;
            `events_ahead`, how many are ahead, NULL before the first pull; `watched`, whether a
            complete pull in the two days before had covered the coin and the dates up to the
            horizon: where it is false there may be events that nobody had pulled.
            A row without an instant or a coin has none of these.

        Raises:
            InvalidArgument: a column is not there or there already, or an instant is to come.
            UnknownName, AmbiguousCoin: a coin does not exist, or is not unique.
            OSError: the file can't be written.
        """
        import pyarrow as pa

        reader, rows_max = self._reader, self._rows_max
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

    def features(
        self,
        index: Any,
        bar: Duration,
        symbols: Symbols,
        as_of: AsOf = "bar_close",
        horizon: Duration = "7d",
        *,
        categories: Names | None = None,
        min_impact: float | None = None,
        to: str | Path | None = None,
        progress: Callable[[str], None] | None = None,
    ) -> Any:
        """Return the columns of `attach_known` for bars of prices.

        Args:
            index: the instants at which the bars open; without a zone as in `attach_known`.
            bar: the length of a bar.
            symbols: coins or pairs; or the names of your data, each with its coin.
            as_of: `bar_close` is what was known when the bar closed, for a decision at the next
                open; `bar_open` what was known when it opened.
            horizon, categories, min_impact, progress: as in `attach_known`.
            to: a Parquet file to write in place of returning the rows, with `ts` and `symbol` as
                its first columns.

        Returns:
            With `to` the number of rows. Otherwise a pandas DataFrame, one row per bar and symbol
            in the order given, with the index `ts` (the instants as given) and `symbol`; the
            columns of `attach_known`, and `known_at`, the instant whose knowledge it is. The bar
            that has not closed yet has only `known_at`.

        Raises: as `attach_known`; a bar that opens in the time to come is an error.
        """
        import pandas as pd
        import pyarrow as pa

        reader, rows_max = self._reader, self._rows_max
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

    def blackouts(
        self,
        before: Duration = "30m",
        after: Duration = "30m",
        min_impact: float | None = 7.5,
        as_of: AsOfEach | None = None,
        coins: Coins | None = None,
        categories: Names | None = None,
    ) -> Result:
        """Return the times around events in which a strategy should not trade a coin.

        The time around an event begins `before` its date, and ends `after` it, or `after` the end
        of its UTC day if the date is a day. Events are scheduled, not missing, and exact; only the
        beginning of one that lasts several days counts. Times that overlap or touch are one.

        Args:
            min_impact, categories: which events count, as in `events`; None is every event.
            as_of: `None` is what is known now, an instant what was known then: both know of no
                event that was cancelled, and of moved ones only the last date, so they are not for
                a back-test over the time before. `each` is what was known at each instant itself:
                whoever looked within a time returned saw that it was on. An event takes time from
                when it was known, and none once it was known to be cancelled or moved. After now it
                is what is known now.
            coins: slugs, tickers or names; None is every coin.

        Returns:
            One row per coin and time, soonest first: `coin`, `starts`, `ends` (exclusive),
            `known_from` (when the last of it became known), `impact` (the highest, NULL if
            unknown), `event_ids`.

        Raises: as `events`; InvalidArgument also if no pull has shown a score or a band.
        """
        reader = self._reader
        lead, rest = duration(before, "before"), duration(after, "after")
        if lead + rest == timedelta(0):
            raise InvalidArgument(
                "before and after are both 0: an event with a time of day would take no time"
            )
        with reader.pinned():
            is_each = isinstance(as_of, str) and as_of == "each"
            at = None if is_each else known_at(reader, as_of, "as_of")
            selection = selected(reader, timedelta(0), categories, min_impact)
            values = {
                "at_us": None if at is None else (at - ORIGIN) // US,
                "before_us": lead // US,
                "after_us": rest // US,
                "coins": slugs_of(reader, coins),
                **selection.filters,
            }
            return reader.result(_SQL["blackouts"], values)


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
    reader: Reader, texts: list[str], named: LabelledCoins | None, *, is_strict: bool
) -> dict[str, str]:
    """Return the slug of each text that is a coin."""
    coins = resolve_pairs(reader, texts, named)
    if is_strict:
        resolve_each_pair(reader, [text for text in texts if text not in coins])  # Raises.
    return {text: coin.slug for text, coin in coins.items()}
