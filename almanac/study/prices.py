"""Reads the user's prices, in the long or the wide layout, into arrays of bars and coins."""

import reprlib
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa

from almanac.coins import Coin
from almanac.core.errors import InvalidArgument
from almanac.core.timestamps import ORIGIN, US, Duration, TimeUnit
from almanac.events import Coins
from almanac.frames import convert_numbers, plain_column, read_timestamp_column
from almanac.joins import bar_lag_us
from almanac.study.options import Bars, Stamp
from almanac.user_files import (
    PARQUET,
    CsvFile,
    explain_errors,
    local_path,
    open_parquet,
    plain_name,
)

Floats = np.ndarray[Any, np.dtype[np.float64]]
Integers = np.ndarray[Any, np.dtype[np.int64]]

_MISSING: Final = ("", "NA", "N/A", "#N/A", "n/a", "<NA>", "NaN", "nan", "-nan", "NULL", "null")
_MISSING_TOO: Final = ("None", "-")
"""Texts of a CSV file that are not a price; in a column of coins they are tickers."""
_FIELDS: Final = {
    *("open", "high", "low", "close", "adjclose", "price", "last", "volume", "vwap", "trades"),
    *("marketcap", "bid", "ask", "mid", "amount", "turnover", "dividends", "stocksplits"),
}
"""Names of columns that are not coins, unless the user says so: coins have tickers such as OPEN."""
_LAYOUTS: Final = (
    "expected the columns ts, coin, close and perhaps open, or a timestamp index and one column "
    "of prices per coin"
)
_TIME_INDEXES: Final = (pd.DatetimeIndex, pd.PeriodIndex)
_TIMES: Final = ("date", "datetime", "datetime64", "string", "categorical")
"""Kinds of an index of Python objects that may be timestamps."""
_NUMBER_KINDS: Final = (
    *("string", "floating", "integer", "mixed-integer-float", "decimal", "empty"),
)
"""Kinds of columns that may be numbers as they are, or texts of numbers."""
_NUMBERS: Final = (str, int, float, Decimal, np.integer, np.floating)
_NEGATIVE_MOST: Final = 0.1
"""The largest share of values below 0 in a column of prices. Of returns, about half are."""
_SHOWN: Final = 8
_MINUTE_US, _HOUR_US = 60_000_000, 3_600_000_000
_CLOCKS_US: Final = (0, _HOUR_US // 2, _HOUR_US)
"""How much shorter or longer a local bar may be when the clocks change."""
_COMMA_NUMBER: Final = r"\s*-?\d[\d.]*(?:,\d+)*\s*"


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices on bars: `close[bar, coin]`, NaN where there is none.

    Attributes:
        starts: the start of each bar, in order.
        bar_us: the length of a bar.
        coins: the names of the columns, as the user gave them.
        close: the last price of each bar.
        open: the first price of each bar; None if the user brought none.
        counts: rows read, bars, coins, and prices that are missing, not positive, or left out.
        has_gaps: whether a timestamp may lie between two bars, when the market was closed.
    """

    starts: Integers
    bar_us: int
    coins: tuple[str, ...]
    close: Floats
    open: Floats | None
    counts: dict[str, int]
    has_gaps: bool = False

    def find_bars(self, instants: Integers) -> Integers:
        """Return the bar in which each timestamp lies, or the next one where the market was closed.

        A timestamp before the first bar has -1, one after the last the number of bars.
        """
        found = np.searchsorted(self.starts, instants, side="right") - 1
        is_after = (found >= 0) & (instants >= self.starts[found] + self.bar_us)
        if not self.has_gaps:  # A local day may have 25 hours.
            is_after &= found == len(self.starts) - 1
        return np.where(is_after, found + 1, found).astype(np.int64)

    def find_next_bars(self, instants: Integers) -> Integers:
        """Return the first bar that starts at or after each timestamp."""
        return np.searchsorted(self.starts, instants, side="left").astype(np.int64)


def read_prices(
    given: Any,
    *,
    coins: Coins | None = None,
    bar: Duration | None = None,
    stamp: Stamp = "start",
    bars: Bars = "grid",
    tz: tzinfo = UTC,
    unit: TimeUnit | None = None,
    name: str = "prices",
    now: datetime | None = None,
) -> Prices:
    """Return the prices of a frame (pandas, Polars, Arrow), or of a Parquet or CSV file.

    The long layout has the columns `ts`, `coin`, `close` and perhaps `open`; others are not read.
    The wide layout has a timestamp index, or the column `ts`, and one column per coin. `coins` may
    name columns that are coins though they have the name of a price field. A last point of a coin
    that is not a whole bar is left out: one after its last bar, or a bar not over at `now`.
    """
    close, opened = _close_and_open(given, name, coins, tz, unit)
    _refuse_returns(close, name)
    stamps = np.asarray(close.index.tz_localize(None).to_numpy("datetime64[us]").astype(np.int64))
    fullest = close.iloc[:, close.count().argmax()].notna().to_numpy()
    bar_us = _bar(stamps[fullest], bar, name)
    place = _place(stamps, bar_us)
    is_off = place < 0
    if bars == "frame":
        is_off &= np.diff(stamps, prepend=0) < 0.9 * bar_us  # A month may have 28 of 31 days.
    if now is not None:
        now_us = (now - ORIGIN) // US + (bar_us if stamp == "end" else 0)
        is_off |= (stamps <= now_us) & (now_us < stamps + bar_us)
    close, is_kept, partial = _drop_last(close, is_off)
    stamps, place = stamps[is_kept], place[is_kept] if bars == "grid" else np.arange(len(close))
    steps = np.diff(stamps[fullest[is_kept]])
    if bar is not None and (steps <= bar_us // 2).any():
        raise InvalidArgument(f"bar={bar!r}, but {name} has bars that are {steps.min() * US} apart")
    if len(off := close.index[place < 0]):
        raise InvalidArgument(
            f"{name}: {len(off)} of {len(close)} timestamps are not whole bars of {bar_us * US} "
            f"after the first, such as {off[0].isoformat()}. Round them, as in frame.groupby("
            f"frame.index.floor('{bar_us // _MINUTE_US}min')).first(), name the bar, or use "
            "bars='frame' for a market that closes"
        )
    starts = stamps
    if stamp == "end":
        # A bar begins at the end of the one before, also on a day of 25 hours.
        slack = _CLOCKS_US[-1] if bar_us >= 4 * _HOUR_US else 0
        is_next = np.diff(stamps, prepend=-(2**62)) <= bar_us + slack
        starts = np.where(is_next, np.roll(stamps, 1), stamps - bar_us)
    # A bar that is missing begins at the end of the one before, which may be local.
    ends, every = starts + bar_us if stamp == "start" else stamps, np.arange(place[-1] + 1)
    before = np.searchsorted(place, every, side="right") - 1
    grid = ends[before] + (every - place[before] - 1) * bar_us
    grid[place] = starts
    prices, bad = _on_grid(close, place, len(grid))
    at_open = None if opened is None else _on_grid(opened.reindex_like(close), place, len(grid))[0]
    counts = {
        "rows": int(close.notna().to_numpy().sum()),
        "bars": len(grid),
        "coins": close.shape[1],
        "missing_prices": int(np.isnan(prices).sum()),
        "bad_prices": bad,
        "partial_bars": partial,
    }
    names = tuple(map(str, close.columns))
    return Prices(grid, bar_us, names, prices, at_open, counts, bars == "frame")


def read_market(
    given: Any, prices: Prices, *, stamp: Stamp, tz: tzinfo, unit: TimeUnit | None = None
) -> Floats:
    """Return the closes of a market series on the bars of the prices; NaN where it has none.

    `given` is the name of a coin in the prices, a Series, or a frame or file with one column of
    prices.
    """
    if isinstance(given, str) and given in prices.coins:
        return prices.close[:, prices.coins.index(given)]
    if isinstance(given, str) and not local_path(given, "market").is_file():
        raise InvalidArgument(
            f"market={given!r} is neither a coin of the prices nor a file; expected one of them, "
            "a Series of prices, or None for the mean of the other coins"
        )
    bar = prices.bar_us * US
    frame = given.to_frame("close") if isinstance(given, pd.Series) else read_frame(given, "market")
    if "close" in _lower_case(frame) and "coin" not in frame.columns:
        frame = frame.assign(coin="market")
    found = read_prices(frame, bar=bar, stamp=stamp, bars="frame", tz=tz, unit=unit, name="market")
    if len(found.coins) != 1:
        raise InvalidArgument(f"market has {len(found.coins)} series; expected one")
    series = pd.Series(found.close[:, 0], index=found.starts)
    on_bars: Floats = series.reindex(prices.starts).to_numpy(np.float64)
    if np.isnan(on_bars).all():
        raise InvalidArgument("market has no price on any bar of the prices")
    return on_bars


def _close_and_open(
    given: Any, name: str, coins: Coins | None, tz: tzinfo, unit: TimeUnit | None
) -> tuple[pd.DataFrame, pd.DataFrame | None]:
    frame = read_frame(given, name)
    if len(frame) == 0:
        raise InvalidArgument(f"{name} has no rows; {_LAYOUTS}")
    if frame.index.nlevels > 1:
        frame = frame.reset_index()
    if frame.columns.nlevels > 1:
        raise InvalidArgument(f"{name} has columns of several levels; {_LAYOUTS}")
    _refuse_repeated(frame, name)
    if "ts" in frame.columns:
        times, frame = frame["ts"], frame.drop(columns="ts")
    elif unit or isinstance(frame.index, _TIME_INDEXES) or frame.index.inferred_type in _TIMES:
        times = frame.index
    else:
        raise InvalidArgument(
            f"{name} has no timestamps; {_LAYOUTS}. Its columns are {shorten_names(frame.columns)}"
        )
    stamps = _timestamps(times, name, tz, unit)
    if {"coin", "close"} <= (lower := _lower_case(frame)).keys():
        frame = frame.rename(columns={given: name for name, given in lower.items()})
        prices = [frame[[field]] for field in ("close", "open") if field in frame.columns]
        found = [_long(frame["coin"], part, stamps, name) for part in prices]
        return found[0], found[1] if len(found) > 1 else None
    _refuse_other_columns(frame, name, coins)
    return _wide(frame, stamps, name), None


def _refuse_repeated(frame: pd.DataFrame, name: str) -> None:
    """Refuse a column that a frame has twice, unless it is not read."""
    columns = list(map(str, frame.columns))
    lower = [column.lower() for column in columns]
    if {"coin", "close"} <= set(lower):
        columns = [column for column in lower if column in ("ts", "coin", "close", "open")]
    repeated = pd.Index(columns, dtype=object)
    repeated = repeated[repeated.duplicated()]
    if len(repeated):
        times = columns.count(repeated[0])
        raise InvalidArgument(
            f"{name} has the column {repeated[0]!r} {times} times; rename or drop the others. To "
            "keep the first: frame.loc[:, ~frame.columns.duplicated()]"
        )


def _refuse_returns(prices: pd.DataFrame, name: str) -> None:
    """Refuse columns of which many values are below 0, and prices of which none is above 0."""
    values = prices.to_numpy()
    is_return = (values < 0).sum(axis=0) > _NEGATIVE_MOST * (~np.isnan(values)).sum(axis=0)
    if is_return.any() or ((values <= 0).any() and not (values > 0).any()):
        is_wrong = is_return if is_return.any() else (values <= 0).any(axis=0)
        column = int(is_wrong.argmax())
        row = int((values[:, column] <= 0).argmax())
        raise InvalidArgument(
            f"{name}: {prices.columns[column]!r} has {int((values[:, column] <= 0).sum())} of "
            f"{len(values)} values that are not above 0, such as {values[row, column]:g} at "
            f"{prices.index[row].isoformat()}; expected prices. Prices from simple returns: "
            "(1 + frame.fillna(0)).cumprod()"
        )


def _lower_case(frame: pd.DataFrame) -> dict[str, Any]:
    """Return the columns of the long layout by their names in lower case."""
    return {str(c).lower(): c for c in frame.columns if str(c).lower() in ("coin", "close", "open")}


def _refuse_other_columns(frame: pd.DataFrame, name: str, coins: Coins | None) -> None:
    said = {str(coin) for coin in ((coins,) if isinstance(coins, str | Coin) else coins or ())}
    fields = [c for c in frame.columns if plain_name(str(c)) in _FIELDS and str(c) not in said]
    if fields:
        raise InvalidArgument(
            f"{name} has columns with the names of price fields: {shorten_names(fields)}. For bars "
            "of one coin, add a column coin: frame.assign(coin='slug:bitcoin'). If the columns are "
            f"coins, name them: coins={{{str(fields[0])!r}: 'its-slug', …}}. Otherwise drop them"
        )
    strange = [column for column in frame.columns if not isinstance(column, str)]
    if strange:
        raise InvalidArgument(
            f"{name} has columns whose names are not texts: {shorten_names(strange)}. A coin may "
            "be called NA, TRUE or 1E5: read the file with names as texts"
        )
    if frame.shape[1] == 0:
        raise InvalidArgument(f"{name} has no column of prices; {_LAYOUTS}")


def shorten_names(names: Iterable[Any]) -> str:
    """Return the first names of a list, and the number of the others."""
    listed = [str(name) for name in names]
    more = f" and {len(listed) - _SHOWN} more" if len(listed) > _SHOWN else ""
    return ", ".join(listed[:_SHOWN]) + more or "none"


def read_frame(given: Any, name: str, times: tuple[str, ...] = ("ts",)) -> pd.DataFrame:
    """Return a frame, or a Parquet or CSV file, in which the columns `times` stay texts."""
    if isinstance(given, str | Path):
        path = local_path(given, name)
        if not path.is_file():
            raise InvalidArgument(f"{name}={str(given)!r}: there is no such file")
        if path.suffix.lower() in PARQUET:
            return _parquet(path)
        return _csv(path, times)
    if isinstance(given, pd.DataFrame):
        return given
    if isinstance(given, pd.Series):
        return given.to_frame()
    if hasattr(given, "to_pandas"):
        with explain_errors(name):
            frame = given.to_pandas()
        if isinstance(frame, pd.DataFrame):
            return frame
    raise InvalidArgument(
        f"{name} is a {type(given).__name__}; expected a frame, or a path of a CSV or Parquet file"
    )


def _parquet(path: Path) -> pd.DataFrame:
    # The names of coins repeat: as categories they take no time.
    with explain_errors(path), open_parquet(path) as file:
        frame: pd.DataFrame = file.read().to_pandas(strings_to_categorical=True)
    return frame


def _csv(path: Path, times: tuple[str, ...]) -> pd.DataFrame:
    missing = (*_MISSING, *_MISSING_TOO)
    coins = ("coin",)
    table = CsvFile(path).table((*coins, *times), missing)
    numbers = [pa.float64() if pa.types.is_null(kind) else kind for kind in table.schema.types]
    table = table.cast(pa.schema(list(zip(table.column_names, numbers, strict=True))))
    frame: pd.DataFrame = table.to_pandas(date_as_object=False)
    for column, kind in zip(table.column_names, table.schema.types, strict=True):
        if column not in coins and pa.types.is_string(kind):
            frame[column] = frame[column].mask(frame[column].isin(missing), None)
            _refuse_decimal_commas(frame[column], path)
    return _with_named_index(frame)


def _refuse_decimal_commas(column: pd.Series, path: Path) -> None:
    given = column.dropna().astype(str)
    with_comma = given[given.str.contains(",", regex=False)]
    if len(with_comma) and given.str.fullmatch(_COMMA_NUMBER).all():
        raise InvalidArgument(
            f"{path}: column {column.name!r} has numbers with a comma, as {with_comma.iloc[0]!r}. "
            "Save them with a decimal point, or read the file with pandas.read_csv(…, decimal=',')"
        )


def _with_named_index(frame: pd.DataFrame) -> pd.DataFrame:
    """Name the index that `to_csv` wrote without a name, and drop parts that are not a column.

    These are the row number, and the empty column after a delimiter at the end of each line.
    """
    empty = [
        name for name in frame.columns if name.startswith("column ") and frame[name].isna().all()
    ]
    frame = frame.drop(columns=empty)
    if "" not in frame.columns:
        return frame
    is_number = pd.api.types.is_integer_dtype(frame[""])
    if is_number and (frame[""] == np.arange(len(frame))).all():
        return frame.drop(columns="")
    return frame.rename(columns={"": "ts"}) if "ts" not in frame.columns else frame


def _long(coin: Any, prices: pd.DataFrame, stamps: pd.DatetimeIndex, name: str) -> pd.DataFrame:
    row, bars = pd.factorize(stamps, sort=True)
    with explain_errors("the column 'coin'"):
        column, names = pd.factorize(coin)
        names = pd.Index(names).astype(object)
    if (column < 0).any():
        raise InvalidArgument(
            f"{name} has {int((column < 0).sum())} rows without a coin. If they are of coins "
            "called NA or null, read the file with keep_default_na=False"
        )
    strange = [value for value in names if not isinstance(value, str)]
    if strange:
        raise InvalidArgument(
            f"{name} has coins that are not texts, such as {strange[0]!r}; a coin may be called "
            "TRUE or 1E5: read the column as texts"
        )
    names = np.asarray(names, dtype=str)
    order = np.argsort(names)
    column, names = np.argsort(order)[column], names[order]
    place = row.astype(np.int64) * len(names) + column
    times = np.bincount(place, minlength=len(bars) * len(names))
    if len(place) and times.max() > 1:
        when, which = divmod(int(times.argmax()), len(names))
        raise InvalidArgument(
            f"{name} has {times.max()} rows of {names[which]} at {bars[when].isoformat()}; "
            "expected at most one a bar and coin"
        )
    values = np.full(len(times), np.nan)
    values[place] = _numbers(prices, stamps, name)[:, 0]
    return pd.DataFrame(values.reshape(len(bars), -1), bars, names)


def _wide(prices: pd.DataFrame, stamps: pd.DatetimeIndex, name: str) -> pd.DataFrame:
    wide = pd.DataFrame(_numbers(prices, stamps, name), stamps, prices.columns).sort_index()
    if wide.index.has_duplicates:
        when = wide.index[wide.index.duplicated()][0]
        raise InvalidArgument(f"{name} has two rows at {when.isoformat()}; expected one a bar")
    return wide


def _numbers(prices: pd.DataFrame, stamps: pd.DatetimeIndex, name: str) -> Floats:
    """Return columns of numbers, decimals, or texts of these as prices, `[row, column]`."""
    read = {
        place: _read_numbers(prices.iloc[:, place], stamps, name)
        for place, kind in enumerate(prices.dtypes)
        if not _is_number(kind)
    }
    if not read:
        return np.asarray(prices.to_numpy(np.float64, na_value=np.nan))
    columns = [
        read[place] if place in read else column.to_numpy(np.float64, na_value=np.nan)
        for place, (_, column) in enumerate(prices.items())
    ]
    return np.column_stack(columns)


def _is_number(kind: Any) -> bool:
    types = pd.api.types
    is_other = types.is_bool_dtype(kind) or types.is_complex_dtype(kind)
    return types.is_numeric_dtype(kind) and not is_other


def _read_numbers(column: pd.Series, stamps: pd.DatetimeIndex, name: str) -> Floats:
    """Return a column of another type as numbers; an error names the first value that is none."""
    if pd.api.types.infer_dtype(column, skipna=True) in _NUMBER_KINDS:
        with suppress(ArithmeticError, LookupError, TypeError, ValueError, pa.ArrowException):
            return np.asarray(column.to_numpy(np.float64, na_value=np.nan))
    with explain_errors(f"{name}: column {column.name!r} ({column.dtype})"):
        objects = column.astype(object)
        is_number = objects.map(
            lambda value: isinstance(value, _NUMBERS) and not isinstance(value, bool)
        )
        found = pd.to_numeric(objects.where(is_number), errors="coerce").astype(np.float64)
    if len(wrong := np.flatnonzero(found.isna() & ~objects.isna())):
        first = int(wrong[0])
        value = objects.iloc[first]
        raise InvalidArgument(
            f"{name}: column {column.name!r} ({column.dtype}) has values that are not numbers: "
            f"row {first}, at {stamps[first].isoformat()}, has {reprlib.repr(value)}, a "
            f"{type(value).__name__}. Rows like this: {len(wrong)}; {_LAYOUTS}"
        )
    return np.asarray(found)


def _timestamps(values: Any, name: str, tz: tzinfo, unit: TimeUnit | None) -> pd.DatetimeIndex:
    with explain_errors(f"the column 'ts' of {name}"):
        times = convert_numbers(plain_column(values, "ts", "timestamps"), "ts", unit)
        try:
            is_text, given = pa.types.is_string(times.type), times.to_pandas()
            found = pd.DatetimeIndex(pd.to_datetime(given, format="ISO8601") if is_text else given)
        except (ValueError, TypeError):
            # Texts of several forms: each is of its own offset, or of the zone of the database.
            moments = read_timestamp_column(times, "ts", tz)
            stamps = pd.Series(moments.microseconds.view("datetime64[us]"))
            found = pd.DatetimeIndex(stamps.where(moments.is_known)).tz_localize("UTC")
    if found.hasnans:
        raise InvalidArgument(f"{name} has rows without a timestamp")
    if found.tz is not None:
        return found.tz_convert("UTC")
    zoned = found.tz_localize(tz, ambiguous="NaT", nonexistent="NaT")
    if zoned.hasnans:
        raise InvalidArgument(
            f"{name}: the clocks of {tz} show {found[zoned.isna()][0]} twice or never; expected "
            "timestamps with a zone, such as pandas.to_datetime(…, utc=True)"
        )
    return zoned.tz_convert("UTC")


def _bar(instants: Integers, bar: Duration | None, name: str) -> int:
    if bar is not None:
        return bar_lag_us(bar, "bar_close")
    if len(instants) < 2:
        raise InvalidArgument(f"{name} has one bar; expected more, since returns need two")
    steps = np.diff(instants)
    lengths, times = np.unique(steps, return_counts=True)
    usual = int(lengths[times.argmax()])
    if np.mean(steps % usual != 0) > 0.5:  # The timestamps jitter: no distance is usual.
        unit = _HOUR_US if np.median(steps) > 45 * _MINUTE_US else _MINUTE_US
        usual = max(1, round(float(np.median(steps)) / unit)) * unit
    return usual


def _place(stamps: Integers, bar_us: int) -> Integers:
    """Return the number of the bar of each timestamp, -1 if it is not at a whole bar.

    Bars are counted from the first. Local ones begin earlier or later after a change of clocks.
    """
    place, rest = np.divmod(stamps - stamps[0] + bar_us // 2, bar_us)
    rest -= bar_us // 2
    is_whole = np.isin(np.abs(rest), _CLOCKS_US if bar_us >= 4 * _HOUR_US else 0)
    is_whole[1:] &= np.diff(np.maximum.accumulate(np.where(is_whole, place, -1))) > 0
    changes = stamps[is_whole][1:][np.diff(rest[is_whole]) != 0]
    if len(changes) > 1 and np.diff(changes).min() < 20 * 24 * _HOUR_US:  # Not of clocks.
        is_whole &= rest == 0
    return np.where(is_whole, place, -1)


def _drop_last(close: pd.DataFrame, is_off: Any) -> tuple[pd.DataFrame, Any, int]:
    """Leave out last prices of coins in such rows; return also the rows kept, and their number."""
    values, has = close.to_numpy(copy=True), close.notna().to_numpy()
    last = len(has) - 1 - has[::-1].argmax(axis=0)
    out = np.flatnonzero(is_off[last] & (has.sum(axis=0) > 1))
    values[last[out], out] = np.nan
    is_kept = ~is_off | ~np.isnan(values).all(axis=1)
    return pd.DataFrame(values, close.index, close.columns)[is_kept], is_kept, len(out)


def _on_grid(frame: pd.DataFrame, place: Integers, bars: int) -> tuple[Floats, int]:
    values = frame.to_numpy(np.float64, na_value=np.nan)
    is_bad = ~np.isnan(values) & ~((values > 0) & np.isfinite(values))
    found = np.full((bars, values.shape[1]), np.nan)
    found[place] = np.where(is_bad, np.nan, values)
    return found, int(is_bad.sum())
