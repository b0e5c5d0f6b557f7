"""The questions of the database that join what was known with the caller's rows.

Belongs here: the public methods, their documentation and defaults. Does not: how they are answered
(rows, blackouts).
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from almanac.events import Coins, Names
from almanac.instants import Duration
from almanac.joins import blackouts, rows
from almanac.joins.blackouts import AsOfEach
from almanac.joins.rows import AsOf, Symbols, Unknown
from almanac.pairs import Coins as CoinsOfLabels
from almanac.reader import Reader
from almanac.results import Result


class Joins:
    """Point-in-time joins; a part of `Database`."""

    _reader: Reader

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
        coins: CoinsOfLabels | None = None,
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
        return rows.attach_known(
            self._reader,
            frame,
            ts=ts,
            coin=coin,
            horizon=horizon,
            prefix=prefix,
            categories=categories,
            min_impact=min_impact,
            unknown=unknown,
            coins=coins,
            to=to,
            progress=progress,
        )

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
        return rows.features(
            self._reader,
            index,
            bar=bar,
            symbols=symbols,
            as_of=as_of,
            horizon=horizon,
            categories=categories,
            min_impact=min_impact,
            to=to,
            progress=progress,
        )

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
        return blackouts.blackouts(
            self._reader,
            before=before,
            after=after,
            min_impact=min_impact,
            as_of=as_of,
            coins=coins,
            categories=categories,
        )
