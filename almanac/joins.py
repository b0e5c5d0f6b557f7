"""Point-in-time joins: what was known at the timestamp of each row."""

import re
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from almanac.coins import Coin, LabelledCoins, resolve_slugs, split_coins
from almanac.core.errors import InvalidArgument
from almanac.core.statements import Statements
from almanac.core.timestamps import ORIGIN, US, Duration, TimestampLike, TimeUnit, read_duration
from almanac.events import (
    Coins,
    MinImpact,
    Names,
    check_choice,
    make_impact_values,
    read_known_at,
    resolve_categories,
)
from almanac.reader import Reader
from almanac.results import Result
from almanac.user_files import explain_errors

if TYPE_CHECKING:
    import pandas as pd

AsOf = Literal["bar_close", "bar_open"]
_MONTHS: Final = re.compile(r"\s*([1-9]\d?)\s*mo(?:nths?)?\s*")
Symbols = str | Iterable[str] | Mapping[str, str | Coin]
Unknown = Literal["raise", "ignore"]
AsOfEach = TimestampLike | Literal["each"]
_SQL = Statements("almanac")


class Joins:
    """Point-in-time joins; a part of `Database`."""

    _reader: Reader
    _rows_max = 1_000_000
    """The number of rows that are joined per step."""

    def attach_known(
        self,
        frame: Any,
        ts: str | None = "ts",
        coin: str = "coin",
        horizon: Duration = "7d",
        prefix: str = "",
        *,
        categories: Names | None = None,
        min_impact: MinImpact | None = None,
        unknown: Unknown = "raise",
        coins: LabelledCoins | None = None,
        unit: TimeUnit | None = None,
        to: str | Path | None = None,
        progress: Callable[[str], None] | None = None,
    ) -> Any:
        """Return the rows of a frame with the next event of each coin, as known at that time.

        An event is ahead of a timestamp if it was known then, linked to the coin, scheduled, not
        missing, exact, and begins later, at most `horizon` after it. An event of a day begins, at
        the latest, at the end of its UTC day. The next event has the earliest date; of several, the
        lowest id.

        Args:
            frame: a pandas or Polars DataFrame, or a pyarrow Table; it is not changed. For rows
                that do not fit into memory: a pyarrow RecordBatchReader, dataset or ParquetFile, or
                the path of a Parquet file, a folder of them, a pattern, or a CSV file, whose
                columns are texts.
            ts: the column of timestamps, or a level of the index; None is the index. A timestamp
                without a zone is in the zone of the database. A future timestamp is an error.
            coin: the column of coins: slugs, tickers, names, or pairs such as `BTC/USDT`, `BTC-USD`
                or `BTCUSDT`.
            horizon: how far ahead an event may begin.
            prefix: put before the name of each new column.
            categories, min_impact: select events as in `events`, by what was known then.
            unknown: `ignore` treats an unknown coin as no coin. An ambiguous coin is an error.
            coins: names in the column, or tickers, each with its coin.
            unit: the unit of timestamps that are numbers since 1970: s, ms, us or ns. Numbers
                without it are refused, and those outside of the years 2000 to 2199.
            to: a Parquet file to write instead of returning the rows. It appears when it is
                complete, and replaces a file of this name.
            progress: called with a line of text for each million rows, such as `print`.

        Returns:
            With `to` the number of rows. For a frame the same rows, order, index and columns in the
            same kind of frame; for a reader, dataset or path a RecordBatchReader, which answers a
            million rows at a time. New columns, missing without an event: `next_event_id`,
            `next_event_title`, `next_event_date` (timestamp), `next_event_precision` (`instant` or
            `day`), `next_event_categories` (joined by "; "), `next_event_impact` (0 to 10, NaN if
            unknown), `next_event_band`, `next_event_known_from` (when this became known),
            `next_event_age_days` (since the event was first seen) and `days_until` (whole UTC days
            if the date is a day, 0 is today). Also `events_ahead`, their number, NULL before the
            first pull, and `watched`: whether a complete pull in the two days before covered the
            coin and the dates up to the horizon. If it is false, events may be missing. A row
            without a timestamp or a coin has none of these.

        Raises:
            InvalidArgument: a column is absent or exists already, or a timestamp is in the future.
            UnknownName, AmbiguousCoin: a coin does not exist, or is not unique.
            OSError: the file can't be written.
        """
        import pyarrow as pa

        from almanac import frames, streams
        from almanac.next_events import KnownRows, join_slices, refuse_future

        reader, rows_max, span = self._reader, self._rows_max, read_duration(horizon, "horizon")
        is_strict = check_choice(unknown, "unknown", ("raise", "ignore")) == "raise"
        if coins is not None and not isinstance(coins, Mapping):
            raise InvalidArgument(f"coins={coins!r}: expected a mapping from names to coins")
        target = None if to is None else streams.check_target(to, frame)
        stream = streams.open_stream(frame, "frame")
        with reader.pinned():
            filters = make_join_filters(reader, categories, min_impact)
            now = reader.now()
            if stream is not None:
                # All timestamps that may come: what is known now of the time since the first pull.
                range_us = (0, (now - ORIGIN) // US)
                known = KnownRows(reader, span, filters, range_us, coins, is_strict=is_strict)
                joined = join_slices(
                    known, stream, ts, coin, prefix, reader.tz, now, rows_max, unit
                )
                schema = next(joined).schema
                done = streams.count_rows(joined, stream.rows, progress)
                if target is not None:
                    return streams.write_parquet(done, schema, target)
                batches = (batch for table in done for batch in table.to_batches())
                return pa.RecordBatchReader.from_batches(schema, batches)
            moments = frames.read_timestamp_column(
                frames.get_column(frame, ts, "ts"), ts or "index", reader.tz, unit=unit
            )
            refuse_future(moments, "the frame", now)
            texts = frames.read_text_column(frames.get_column(frame, coin, "coin"), coin)
            known = KnownRows(reader, span, filters, moments.range_us(), coins, is_strict=is_strict)
            codes = known.find_codes(texts, coin, moments)
            parts = range(0, max(1, len(codes)), rows_max)
            joined = (
                known.join_columns(codes[first : first + rows_max], moments.slice(first, rows_max))
                for first in parts
            )
            done = streams.count_rows(joined, len(codes), progress)
            found = frames.add_columns(frame, pa.concat_tables(list(done)), prefix)
        if target is None:
            return found
        table = frames.to_arrow(found)
        return streams.write_parquet([table], table.schema, target)

    def features(
        self,
        index: Any,
        bar: Duration,
        symbols: Symbols,
        as_of: AsOf = "bar_close",
        horizon: Duration = "7d",
        *,
        categories: Names | None = None,
        min_impact: MinImpact | None = None,
        unit: TimeUnit | None = None,
        to: str | Path | None = None,
        progress: Callable[[str], None] | None = None,
    ) -> Any:
        """Return the columns of `attach_known` for bars of prices.

        Args:
            index: the timestamps at which the bars open; without a zone as in `attach_known`.
            bar: the length of a bar; for calendar months `1mo`. A bar closes after it on the clock
                of the index's zone, else of the database's: a local day has 23 hours when the
                clocks go forward; one of 25 closes after 24. Bars that overlap are an error.
            symbols: coins or pairs, in a list or separated by commas; or the names of your data,
                each with its coin.
            as_of: knowledge when the bar closed (`bar_close`), for a decision at the next open, or
                when it opened (`bar_open`).
            horizon, categories, min_impact, unit, progress: as in `attach_known`.
            to: a Parquet file to write instead, with `ts` and `symbol` as its first columns.

        Returns:
            With `to` the number of rows. Otherwise a pandas DataFrame, one row per bar and symbol
            in the order given, with the index `ts` (the timestamps as given) and `symbol`; the
            columns of `attach_known`, and `known_at`, the time of the knowledge. A bar that has not
            closed yet has only `known_at`.

        Raises: as `attach_known`; a bar that opens in the future is an error.
        """
        import pandas as pd
        import pyarrow as pa

        from almanac import frames, next_events, streams

        reader, rows_max, span = self._reader, self._rows_max, read_duration(horizon, "horizon")
        length = read_bar(bar, as_of)
        target = None if to is None else streams.check_target(to, index)
        names = read_symbols(split_coins(reader, symbols) if isinstance(symbols, str) else symbols)
        with explain_errors("the index"):
            if hasattr(index, "to_arrow") or isinstance(index, pa.Array | pa.ChunkedArray):
                index = frames.plain_column(index, "index", "timestamps").to_pandas()
            opens = pd.Index(index)
        with reader.pinned():
            filters = make_join_filters(reader, categories, min_impact)
            opened = frames.read_timestamp_column(opens, "index", reader.tz, unit=unit)
            now = reader.now()
            next_events.refuse_future(opened, "index", now)
            zone = getattr(opens, "tz", None) or reader.tz
            known = next_events.close_bars(opened, length, zone, now)
            # Also of bars that are not over.
            known_at = pa.array(known.microseconds, mask=~opened.is_known)
            known_at = known_at.cast(pa.timestamp("us", str(reader.tz)))
            labels = {f"{each}": each for each in names.values() if isinstance(each, Coin)}
            rows = next_events.KnownRows(
                reader, span, filters, known.range_us(), labels, is_strict=True
            )
            texts = pa.array([f"{each}" for each in names.values()], pa.string())
            # What is known is read now; the bars are joined later.
            rows.join_bars(texts, known.slice(0, 0), known_at.slice(0, 0))
        step = max(1, rows_max // max(1, len(names)))
        parts = (
            rows.join_bars(texts, known.slice(first, step), known_at.slice(first, step))
            for first in range(0, max(1, len(opens)), step)
        )
        done = streams.count_rows(parts, len(opens) * len(names), progress)
        if target is None:
            found = frames.to_pandas(pa.concat_tables(list(done)))
            found.index = pd.MultiIndex.from_product([opens, list(names)], names=["ts", "symbol"])
            return found
        named = next_events.name_bars(
            done, frames.plain_column(opens, "index"), pa.array(list(names)), step
        )
        first_part = next(named)
        return streams.write_parquet(chain([first_part], named), first_part.schema, target)

    def blackouts(
        self,
        before: Duration = "30m",
        after: Duration = "30m",
        min_impact: MinImpact | None = 7.5,
        *,
        as_of: AsOfEach,
        coins: Coins | None = None,
        categories: Names | None = None,
    ) -> Result:
        """Return the times around events in which a strategy should not trade a coin.

        The time around an event begins `before` its date, and ends `after` it, or `after` the end
        of its UTC day if the date is a day. Events are scheduled, not missing, and exact; only the
        beginning of a longer event counts. Times that overlap or touch are one.

        Args:
            min_impact, categories: which events count, as in `events`; None is every event.
            as_of: `each`, for back-tests, uses the knowledge at each time: an event blocks time
                from when it was known until it was known to be cancelled or moved; after now, as
                known now. A timestamp, or `now` for today's orders, uses the knowledge at that
                time: in a back-test that is look-ahead for earlier times.
            coins: as in `events`; None is every coin.

        Returns:
            One row per coin and time, soonest first: `coin`, `starts`, `ends` (exclusive),
            `known_from` (when the last of it became known), `impact` (the highest, NULL if
            unknown), `event_ids`.

        Raises: as `events`; InvalidArgument also if no pull has shown a score or a band.
        """
        reader = self._reader
        lead, rest = read_duration(before, "before"), read_duration(after, "after")
        if lead + rest == timedelta(0):
            raise InvalidArgument(
                "before and after are both 0: an event with a time of day would take no time"
            )
        if as_of is None:
            raise InvalidArgument("as_of=None; expected 'each' (back-tests), 'now' or a timestamp")
        with reader.pinned():
            is_each = isinstance(as_of, str) and as_of == "each"
            at = None if is_each else read_known_at(reader, as_of, "as_of")
            values = {
                "at_us": None if at is None else (at - ORIGIN) // US,
                "before_us": lead // US,
                "after_us": rest // US,
                "coins": resolve_slugs(reader, coins, at),
                **make_join_filters(reader, categories, min_impact),
            }
            return reader.result(_SQL["blackouts"], values)


def bar_lag_us(bar: Duration, as_of: AsOf) -> int:
    """Return the microseconds from the open of a bar to its time of knowledge."""
    length = read_duration(bar, "bar")
    if not length:
        raise InvalidArgument(f"bar={bar!r}: a bar takes some time, such as '1h' or '1d'")
    is_close = check_choice(as_of, "as_of", ("bar_close", "bar_open")) == "bar_close"
    return length // US if is_close else 0


def read_bar(bar: Duration, as_of: AsOf) -> "timedelta | pd.DateOffset | None":
    """Return the length of a bar, also of calendar months; None if its open counts."""
    from pandas import DateOffset

    months = _MONTHS.fullmatch(bar) if isinstance(bar, str) else None
    lag_us = bar_lag_us("1d" if months else bar, as_of)
    if not lag_us:
        return None
    return DateOffset(months=int(months[1])) if months else lag_us * US


def make_join_filters(
    reader: Reader, categories: Names | None, min_impact: MinImpact | None
) -> dict[str, Any]:
    """Return the filter values of the statements; refuse a score if no pull has shown any."""
    if min_impact is not None:
        (shown,) = reader.query(_SQL["impact_is_known"]).to_pylist()
        if shown["versions"] and not shown["is_known"]:
            raise InvalidArgument(
                f"min_impact={min_impact!r}: no event has a score or a band; the plan does not "
                "show them. Use min_impact=None, and choose by categories."
            )
    return {"categories": resolve_categories(reader, categories), **make_impact_values(min_impact)}


def read_symbols(symbols: Symbols) -> dict[str, str | Coin]:
    """Return coins by the names that the caller's data has for them."""
    if isinstance(symbols, Mapping):
        return dict(symbols)
    with explain_errors("symbols"):
        listed = list(symbols)
        is_double = len(set(listed)) < len(listed)
    if is_double:
        raise InvalidArgument(f"symbols={listed!r}: a symbol is given twice")
    return {name: name for name in listed}
