"""Finds the timestamps, coins and prices in a frame: long, wide, or bars (OHLCV) of one coin.

Column names are compared without case, spaces and punctuation. A column with the name of a price
field is a coin only if the user says so: coins have tickers such as OPEN and HIGH.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd

from almanac.coins import Coin
from almanac.errors import InvalidArgument
from almanac.events import Coins

_TS: Final = (
    *("ts", "timestamp", "time", "datetime", "date", "opentime", "timeopen", "unix"),
    *("unixtimestamp", "snappedat", "dateutc"),
)
_COIN: Final = ("coin", "symbol", "slug", "ticker", "pair", "asset", "instrument")
_CLOSE: Final = ("close", "adjclose", "adjustedclose", "price", "last")
_BAR: Final = ("open", "high", "low")
_FIELDS: Final = {
    *_CLOSE,
    *_BAR,
    *("volume", "vwap", "trades", "marketcap", "marketcaps", "totalvolumes"),
    *("bid", "ask", "mid", "amount", "turnover"),
    *("dividends", "stocksplits"),
}
_LETTERS: Final = {"o": "open", "h": "high", "l": "low", "c": "close", "v": "volume"}
_UNITS: Final = (("s", 1), ("ms", 1_000), ("us", 1_000_000), ("ns", 1_000_000_000))
_EPOCH: Final = (600_000_000, 4_300_000_000)
"""Seconds since 1970 of the years 1989 to 2106: no two units have a number in common."""
_ROW: Final = ("ts", "open", "high", "low", "close", "volume")
_SHOWN: Final = 8


@dataclass(frozen=True, slots=True)
class PriceColumns:
    """Prices by what they are.

    Attributes:
        times: the timestamps as given, one per row.
        coin: the coin of each row; None where each column is a coin.
        close, open: the prices, one column per coin, or a single one; no opens is None.
        beside: columns that were not read, beside the bars of one coin.
    """

    instants: Any
    coin: Any
    close: pd.DataFrame
    open: pd.DataFrame | None
    beside: tuple[str, ...] = ()


def plain(label: Any) -> str:
    """Return the name of a column in small letters, without spaces and punctuation."""
    return "".join(letter for letter in str(label).lower() if letter.isalnum())


def find_column(columns: Iterable[Any], names: Iterable[str]) -> Any:
    """Return the first column that has one of the names, in the order of the names, or None."""
    found: dict[str, Any] = {}
    for column in columns:
        found.setdefault(plain(column), column)
    return next((found[name] for name in names if name in found), None)


def coin_columns(columns: Iterable[Any]) -> list[Any]:
    """Return the columns of a file that hold names of coins, which are texts whatever they say."""
    names = list(columns)
    if find_column(names, _CLOSE) is None:
        return []
    return [column for column in names if plain(column) in _COIN]


def frame_of_rows(given: Any, name: str) -> pd.DataFrame | None:
    """Return a frame made from lists of numbers, the bars of ccxt and exchanges.

    None if the argument has another layout. A row is ts, open, high, low, close, and maybe volume
    and more.
    """
    if isinstance(given, Mapping) and isinstance(given.get("prices"), list):
        return pd.DataFrame(given["prices"], columns=["ts", "price"])  # CoinGecko.
    if isinstance(given, np.ndarray) and given.ndim == 2:
        given = given.tolist()
    if not isinstance(given, list | tuple) or not given:
        return None
    if not all(isinstance(row, list | tuple) for row in given):
        return None
    return _named_fields(pd.DataFrame(given), name)


def arrange(frame: pd.DataFrame, name: str, coins: Coins | None) -> PriceColumns:
    """Return prices by what they are."""
    if frame.index.nlevels > 1:
        frame = frame.reset_index()
    if frame.columns.nlevels > 1:
        return _by_field(frame, name)
    if _has_ticker_row(frame):
        return _by_field(_with_ticker_row(frame), name)
    has_times = isinstance(frame.index, pd.DatetimeIndex)
    if len(frame) and not has_times and list(frame.columns) == list(range(len(frame.columns))):
        frame = _named_fields(frame, name)
    ts = _ts_column(frame)
    instants = frame.index if ts is None else frame[ts]
    if ts is None and not has_times:
        raise InvalidArgument(
            f"{name} has no timestamps: expected a column ts or a timestamp index; its columns "
            f"are {_some(frame.columns)}"
        )
    kept = [ts is None or column != ts for column in frame.columns]
    values = frame.loc[:, kept]
    values = values.loc[:, [not _is_time(values, column) for column in values.columns]]
    letters = {c: _LETTERS[plain(c)] for c in values.columns if plain(c) in _LETTERS}
    if {"open", "high", "low", "close"} <= set(letters.values()) and not isinstance(coins, Mapping):
        values = values.rename(columns=letters)
    _refuse_same_fields(values.columns, name)
    close, coin = find_column(values.columns, _CLOSE), find_column(_texts(values), _COIN)
    if close is not None and coin is not None:
        opened = find_column(values.columns, ("open",))
        return PriceColumns(
            instants, values[coin], values[[close]], None if opened is None else values[[opened]]
        )
    return _one_or_wide(values, instants, close, name, coins)


def epoch_unit(values: Any) -> str | None:
    """Return the unit of numbers, or texts of digits, that count from 1970; None if they do not."""
    given = pd.Series(values)
    is_text = len(given) > 0 and isinstance(given.iloc[0], str) and given.iloc[0].isdigit()
    if not len(given) or not (pd.api.types.is_numeric_dtype(given) or is_text):
        return None
    numbers = pd.to_numeric(given, errors="coerce").to_numpy(np.float64, na_value=np.nan)
    if not np.isfinite(numbers).all():
        return None
    low, high = numbers.min(), numbers.max()
    return next((u for u, n in _UNITS if _EPOCH[0] * n <= low and high <= _EPOCH[1] * n), None)


def only_coin(coins: Coins | None) -> str | None:
    """Return the name of the one coin that a call names, None if it names none or several."""
    if isinstance(coins, str | Coin):
        return str(coins)
    listed = list(coins or ())
    return str(listed[0]) if len(listed) == 1 else None


def _one_or_wide(
    values: pd.DataFrame, instants: Any, close: Any, name: str, coins: Coins | None
) -> PriceColumns:
    only = only_coin(coins)
    fields = [c for c in values.columns if _is_field(c)]
    has_bars = close is not None and all(find_column(fields, (part,)) is not None for part in _BAR)
    said: set[str] = set()
    if isinstance(coins, Mapping) or not has_bars:
        listed = (coins,) if isinstance(coins, str | Coin) else coins or ()
        said = {str(coin) for coin in listed}
    fields = [c for c in fields if str(c) not in said]
    others = [c for c in values.columns if c not in fields]
    if not fields:
        return _wide(values, instants, name)
    is_named = close is not None and [str(close)] == [str(c) for c in others]
    if not is_named and (close not in fields or (others and not has_bars)):
        raise InvalidArgument(
            f"{name} has columns with the names of price fields: {_some(fields)}. If they "
            f"are coins, name them: coins={{{str(fields[0])!r}: 'its-slug', …}}; otherwise drop "
            "these columns"
        )
    if only is None:
        raise InvalidArgument(
            f"{name} has the columns {_some(values.columns)}: bars of one coin, but the coin is "
            "not named. Give coins='slug:bitcoin'; or add a column 'coin'; or give the bars of "
            "several coins as {'slug:bitcoin': frame, …}. If the columns are coins themselves, "
            f"name them: coins={{{str(fields[0])!r}: 'its-slug', …}}"
        )
    opened = find_column([c for c in fields if c != close], ("open",))
    return PriceColumns(
        instants,
        None,
        values[[close]].set_axis([only], axis=1),
        None if opened is None else values[[opened]].set_axis([only], axis=1),
        tuple(str(c) for c in others if c != close),
    )


def _wide(values: pd.DataFrame, instants: Any, name: str) -> PriceColumns:
    strange = [c for c in values.columns if isinstance(c, float | bool) or c is None or pd.isna(c)]
    if strange:
        raise InvalidArgument(
            f"{name} has columns whose names are not texts: {_some(strange)}. A coin may be called "
            "NA, TRUE or 1E5: read the file with keep_default_na=False and names as texts"
        )
    names = {str(column) for column in values.columns}
    twice = [n for n in names if n.rpartition(".")[2].isdigit() and n.rpartition(".")[0] in names]
    if twice:
        raise InvalidArgument(
            f"{name} has two columns called {twice[0].rpartition('.')[0]!r}; the second was read "
            f"as {twice[0]!r}. Keep one"
        )
    wrong = [str(column) for column in _texts(values)]
    if wrong or values.shape[1] == 0:
        raise InvalidArgument(
            f"{name} has columns that are not prices ({', '.join(wrong[:5]) or 'none at all'}); "
            "expected ts, coin, close, or one column of prices a coin"
        )
    return PriceColumns(instants, None, values, None)


def _by_field(frame: pd.DataFrame, name: str) -> PriceColumns:
    """Read columns of two levels, as Yahoo has them: the field and the coin, in any order."""
    # A level may be called 0 or 1; numbers here are places.
    frame = frame.set_axis(frame.columns.set_names([None] * frame.columns.nlevels), axis=1)
    levels = range(frame.columns.nlevels)
    level = next((i for i in levels if _close_of(frame, i) is not None), None)
    if frame.columns.nlevels != 2 or level is None:
        raise InvalidArgument(
            f"{name} has columns of {frame.columns.nlevels} levels; expected one, or two of "
            "which one has the fields, with 'Close', and the other the coins"
        )
    by_ts = frame.index
    if not isinstance(by_ts, pd.DatetimeIndex):
        ts = next((c for c in frame.columns if any(plain(part) in _TS for part in c)), None)
        if ts is None:
            raise InvalidArgument(f"{name} has no timestamps: expected an index of timestamps")
        by_ts, frame = frame[ts], frame.drop(columns=[ts])
    opened = find_column(frame.columns.get_level_values(level), ("open",))
    close = frame.xs(_close_of(frame, level), axis=1, level=level)
    opens = None if opened is None else frame.xs(opened, axis=1, level=level)
    return PriceColumns(by_ts, None, close, opens)


def _close_of(frame: pd.DataFrame, level: int) -> Any:
    return find_column(frame.columns.get_level_values(level), _CLOSE)


def _has_ticker_row(frame: pd.DataFrame) -> bool:
    """Whether it is a CSV of yfinance, whose second line has the tickers."""
    return len(frame) > 2 and plain(frame.columns[0]) == "price" and frame.iloc[0, 0] == "Ticker"


def _with_ticker_row(frame: pd.DataFrame) -> pd.DataFrame:
    fields = [str(c).partition(".")[0] for c in frame.columns[1:]]  # Close.1 is a second Close.
    values = frame.iloc[2:].set_index(frame.columns[0])
    values.columns = pd.MultiIndex.from_arrays([fields, frame.iloc[0, 1:].astype(str)])
    return values.apply(pd.to_numeric).set_axis(pd.to_datetime(values.index, format="ISO8601"))


def _named_fields(frame: pd.DataFrame, name: str) -> pd.DataFrame:
    """Name the columns of rows without names, if they can be bars in the usual order."""
    count = len(frame.columns)
    if count < 5:
        raise InvalidArgument(f"{name} has rows of {count} values; expected {', '.join(_ROW)}")
    names = [*_ROW[:count], *(f"more {place}" for place in range(len(_ROW), count))]
    bars = frame.set_axis(names[:count], axis=1)
    opened, high, low, close = (pd.to_numeric(bars[part], errors="coerce") for part in _ROW[1:5])
    is_bar = ~((high < opened) | (high < close) | (low > opened) | (low > close))
    if epoch_unit(bars["ts"]) is None or not is_bar.all():
        raise InvalidArgument(
            f"{name} has columns without names, and its values are not in the order "
            f"{', '.join(_ROW)}; name the columns"
        )
    return bars


def _ts_column(frame: pd.DataFrame) -> Any:
    """Return the column of timestamps, None if the index has them.

    Numbers are prices of coins called TIME or DATE, unless they count from 1970.
    """
    if (text := find_column(_texts(frame), _TS)) is not None:
        return text
    if isinstance(frame.index, pd.DatetimeIndex):
        return None
    counted = [column for column in frame.columns if _is_time(frame, column)]
    return find_column(counted or frame.columns, _TS)


def _is_time(frame: pd.DataFrame, column: Any) -> bool:
    is_number = pd.api.types.is_numeric_dtype(frame[column])
    return plain(column) in _TS and is_number and epoch_unit(frame[column]) is not None


def _texts(frame: pd.DataFrame) -> list[Any]:
    """Return the columns that hold no numbers."""
    return [
        column
        for place, column in enumerate(frame.columns)
        if not pd.api.types.is_numeric_dtype(frame.dtypes.iloc[place])
    ]


def _refuse_same_fields(columns: Iterable[Any], name: str) -> None:
    fields = [str(column) for column in columns if plain(column) in _CLOSE]
    same = [c for c in fields if [plain(other) for other in fields].count(plain(c)) > 1]
    if same:
        raise InvalidArgument(f"{name} has several columns of one field: {_some(same)}; keep one")


def _is_field(column: Any) -> bool:
    name = plain(column)
    return name in _FIELDS or name.startswith("volume") or name.endswith("volume")


def _some(columns: Iterable[Any]) -> str:
    names = [str(column) for column in columns]
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
