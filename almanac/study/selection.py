"""Selects the events, coins and markets of a study."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, timedelta, tzinfo
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa

from almanac.coins import Coin, find_coins, refuse_ambiguous_coins, resolve_slugs
from almanac.core.errors import AmbiguousCoin, InvalidArgument
from almanac.core.statements import Statements
from almanac.core.timestamps import ORIGIN, US, TimeUnit
from almanac.events import (
    BANDS,
    Basis,
    Coins,
    MinImpact,
    Names,
    check_choice,
    make_impact_values,
    resolve_categories,
)
from almanac.frames import plain_column, read_timestamp_column
from almanac.reader import Reader
from almanac.study.options import Stamp
from almanac.study.prices import Floats, Integers, Prices, read_frame, read_market
from almanac.user_files import explain_errors

NamedCoins = Mapping[str, str | Coin]
"""The coin that the caller gives for a name in the data."""


@dataclass(frozen=True, slots=True)
class CoinNames:
    """The meaning of names.

    Attributes:
        slugs: the slug of each name that is one coin.
        unknown: the names that no coin has.
        ambiguous: the names that several coins have, each with what it may be.
    """

    slugs: dict[str, str]
    unknown: tuple[str, ...]
    ambiguous: dict[str, str]


def name_coins(reader: Reader, names: Iterable[str], said: NamedCoins) -> CoinNames:
    """Return the coins of names: from the caller's mapping, else as slugs, tickers, names or
    pairs."""
    texts = list(dict.fromkeys(names))
    found = find_coins(reader, texts, said)
    return CoinNames(
        slugs={text: coins[0].slug for text, coins in found.items() if len(coins) == 1},
        unknown=tuple(text for text in texts if text not in found),
        ambiguous={
            text: str(refuse_ambiguous_coins({text: coins}))
            for text, coins in found.items()
            if len(coins) > 1
        },
    )


def read_named_coins(coins: Coins | None) -> NamedCoins:
    """Return the mapping from names in the data to coins; a list of coins maps their slugs."""
    if isinstance(coins, Mapping):
        return {str(name): coin for name, coin in coins.items()}
    listed = [coins] if isinstance(coins, str | Coin) else coins or ()
    return {coin.slug: coin for coin in listed if isinstance(coin, Coin)}


def select_coins(coins: Coins | None) -> Coins | None:
    """Return the coins that an argument selects; a mapping names coins and selects none."""
    return None if isinstance(coins, Mapping) else coins


_OTHERS = "the equal-weighted mean of the other coins in the prices"


@dataclass(frozen=True, slots=True)
class Markets:
    """Markets that were given.

    Attributes:
        closes: their closes, `[market, bar]`; None if there are none.
        of_coin: the place of the market of each column of the prices; -1 is the mean of the others.
        names: what each is called.
        text: all of them in words.
    """

    closes: Floats | None = None
    of_coin: Integers | None = None
    names: tuple[str, ...] = ()
    text: str = _OTHERS


def read_markets(
    reader: Reader,
    given: Any,
    prices: Prices,
    said: NamedCoins,
    stamp: Stamp,
    unit: TimeUnit | None,
) -> Markets:
    """Return the market of each column of the prices.

    `given` is a market as `read_market` takes it, None, or a mapping from coins to these.
    """
    is_each = isinstance(given, Mapping)
    each: list[tuple[Any, Any]] = [*given.items()] if is_each else [(None, given)]
    others = [str(name) for pair in each for name in pair if isinstance(name, str | Coin)]
    columns = _columns(reader, prices, said, others) if others else {}
    of_coin = np.full(len(prices.coins), -1, np.int64)
    closes: list[Floats] = []
    names: list[str] = []
    seen: dict[Any, int] = {}
    for coin, market in each:
        if market is None:
            continue
        key = market if isinstance(market, str) else id(market)
        if key not in seen:
            seen[key] = len(closes)
            found = _in_prices(market, prices, columns)
            closes.append(read_market(found, prices, stamp=stamp, tz=reader.tz, unit=unit))
            names.append("market" if coin is None else f"market of {coin}")
        of_coin[slice(None) if coin is None else _column(coin, columns)] = seen[key]
    if (of_coin < 0).any() and len(prices.coins) == 1:
        raise InvalidArgument(
            "the prices have one coin, and its market would be the mean of the other coins; give a "
            "market=, such as a Series of prices, or use model='mean'"
        )
    text = _OTHERS
    if is_each:
        text = f"one per coin for {int((of_coin >= 0).sum())} coins; for the others {_OTHERS}"
    elif given is not None:
        text = given if isinstance(given, str) else "a series that was given"
    return Markets(np.stack(closes) if closes else None, of_coin, tuple(names), text)


def _columns(reader: Reader, prices: Prices, said: NamedCoins, others: list[str]) -> dict[str, int]:
    """Return the columns of the prices by name, by the slug of the coin, and by other names."""
    slugs = name_coins(reader, prices.coins, said).slugs
    found = {slugs[name]: place for place, name in enumerate(prices.coins) if name in slugs}
    found |= {name: place for place, name in enumerate(prices.coins)}
    meant = name_coins(reader, [name for name in others if name not in found], said).slugs
    return found | {name: found[slug] for name, slug in meant.items() if slug in found}


def _in_prices(market: Any, prices: Prices, columns: dict[str, int]) -> Any:
    """Return the name that the prices have for a coin, or the market as it was given."""
    if not isinstance(market, str) or Path(market).is_file() or market not in columns:
        return market
    return market if market in prices.coins else prices.coins[columns[market]]


def _column(coin: Any, columns: dict[str, int]) -> int:
    if str(coin) not in columns:
        raise InvalidArgument(
            f"market: the coin {str(coin)!r} has no prices; expected a coin with prices"
        )
    return columns[str(coin)]


_SQL = Statements("almanac.study")

COLUMNS: Final = (
    *("event_id", "coin", "title", "date", "entry", "known_from", "known_basis", "version"),
    *("categories", "impact", "band", "date_final", "status_final", "moved_after_entry"),
    "cancelled_after_entry",
)
ADVICE: Final = ". Or say which: coins={'name in the prices': 'its-slug', …}."
PRECISIONS: Final = {"exact": ["instant", "day"], "instant": ["instant"]}


@dataclass(frozen=True, slots=True)
class SelectedEvents:
    """The rows that enter, and the events that do not.

    Attributes:
        rows: one row per event and coin, with `COLUMNS` and `column`, its column in the prices.
        excluded: event_id, coin (None: all), title, date, reason.
        names: the coins of the names in the prices; a name that is not exactly one coin is used
        only for the market.
    """

    rows: pd.DataFrame
    excluded: pd.DataFrame
    names: CoinNames


def find_price_columns(names: CoinNames, columns: tuple[str, ...]) -> dict[str, int]:
    found: dict[str, int] = {}
    for column, name in enumerate(columns):
        slug = names.slugs.get(name)
        if slug is not None and slug in found:
            raise InvalidArgument(
                f"prices: {columns[found[slug]]!r} and {name!r} are both the coin {slug}; keep one"
            )
        if slug is not None:
            found[slug] = column
    return found


def select_events(
    reader: Reader,
    prices: Prices,
    *,
    coins: Coins | None,
    categories: Names | None,
    min_impact: MinImpact | None,
    lead: timedelta,
    basis: Basis,
    dates: str,
) -> tuple[SelectedEvents, SelectedEvents]:
    """Return two selections: the events as known at entry, and the events as known today."""
    names, starts = prices.coins, prices.starts
    with reader.pinned():
        named = name_coins(reader, names, read_named_coins(coins))
        columns = find_price_columns(named, names)
        if named.ambiguous and not columns:
            raise AmbiguousCoin(next(iter(named.ambiguous.values())) + ADVICE, {})
        wanted = resolve_slugs(reader, select_coins(coins))
        traded = [slug for slug in columns if wanted is None or slug in wanted]
        values: dict[str, Any] = {
            "coins": traded,
            "categories": resolve_categories(reader, categories),
            "lower": ORIGIN + int(starts[0]) * US,
            "upper": ORIGIN + int(starts[-1] + prices.bar_us - 1) * US,
            **make_impact_values(min_impact),
        }
        known = {
            "lead": lead,
            "basis": check_choice(basis, "basis", ("observed", "claimed")),
            "now": reader.now(),
            "precisions": PRECISIONS[dates],
        }
        then = _pandas(reader.query(_SQL["study_events"], {**values, **known}))
        today = _pandas(reader.query(_SQL["study_events_today"], values))
    by_coin = {slug: columns[slug] for slug in traded}
    without = [slug for slug in wanted or () if slug not in columns]
    extra = [(None, slug, None, None, "coin_without_prices") for slug in without]
    extra += [(None, name, None, None, "ambiguous_coin") for name in named.ambiguous]
    return _selection(then, by_coin, extra, named), _selection(today, by_coin, [], named)


def _pandas(table: pa.Table) -> pd.DataFrame:
    frame = table.to_pandas()
    for name in ("date", "entry", "known_from", "date_final"):
        frame[name] = pd.to_datetime(frame[name], utc=True).dt.as_unit("us")
    return frame


def _selection(
    frame: pd.DataFrame, columns: Mapping[str, int], extra: list[Any], named: CoinNames
) -> SelectedEvents:
    enters = frame["reason"].isna()
    rows = frame[enters].explode("coins").rename(columns={"coins": "coin"})
    rows = rows[rows["coin"].isin(list(columns))].drop_duplicates(["event_id", "coin"])
    rows["column"] = rows["coin"].map(columns).astype(np.int64)
    rows["band"] = name_bands(rows["impact"], rows["impact_band"])
    rows["moved_after_entry"] = (rows["date_final"] != rows["date"]) | ~rows["is_exact_final"]
    rows["cancelled_after_entry"] = rows["status_final"] != "scheduled"
    out = frame.loc[~enters, ["event_id", "title", "date", "reason"]].assign(coin=None)
    more = pd.DataFrame(extra, columns=["event_id", "coin", "title", "date", "reason"])
    kept = [part for part in (out, more) if len(part)]
    excluded = pd.concat(kept) if kept else out
    names = ["event_id", "coin", "title", "date", "reason"]
    return SelectedEvents(
        rows[[*COLUMNS, "column"]].reset_index(drop=True),
        excluded[names].reset_index(drop=True),
        named,
    )


def name_bands(impact: Any, band: Any) -> Any:
    """Return the band of each row: as the plan shows it, else the score's band, else None."""
    lows = [low for low, _ in BANDS]
    names = np.array([name for _, name in BANDS], dtype=object)
    score = pd.to_numeric(impact).to_numpy(np.float64, na_value=np.nan)
    place = np.searchsorted(lows, np.nan_to_num(score), side="right") - 1
    by_score = np.where(np.isnan(score), None, names[np.maximum(place, 0)])
    given = np.asarray(band, dtype=object)
    return np.where(pd.isna(given), by_score, given)


def read_given_events(
    reader: Reader,
    events: Any,
    names: tuple[str, ...],
    coins: Coins | None,
    lead: timedelta,
    unit: TimeUnit | None = None,
) -> tuple[SelectedEvents, SelectedEvents]:
    """Return the rows of a frame of the user's: event_id, coin, date, and known_from if it has it.

    `coin` is a name as in the prices, or another name of the same coin. An event enters at its date
    less the lead if it was known by then; one without a `known_from` counts as known.
    """
    frame = read_frame(events, "events", ("date", "known_from"))
    missing = [name for name in ("event_id", "coin", "date") if name not in frame.columns]
    if missing:
        raise InvalidArgument(f"events has no {', '.join(missing)}; expected event_id, coin, date")
    rows = pd.DataFrame({name: frame.get(name) for name in COLUMNS}, index=frame.index)
    rows["date"], rows["known_from"] = (
        _utc(rows[name], name, reader.tz, unit) for name in ("date", "known_from")
    )
    for name in ("event_id", "coin", "title"):
        plain_column(rows[name], name, "texts")
    with explain_errors("the column 'impact'"):
        scores = plain_column(rows["impact"], "impact", "numbers").cast(pa.float64())
    rows["impact"] = np.asarray(scores.to_pandas())
    named = _name_rows(reader, rows, names, coins)
    if rows.duplicated(["event_id", "coin"]).any() or rows["date"].isna().any():
        raise InvalidArgument(
            "events: an event has a coin twice, or no date; expected one row each"
        )
    rows["entry"] = rows["date"] - lead
    rows["date_final"], rows["status_final"] = rows["date"], "scheduled"
    rows["moved_after_entry"] = rows["cancelled_after_entry"] = False
    rows["known_basis"] = np.where(rows["known_from"].isna(), "assumed", "given")
    rows["version"] = 1
    if "categories" not in frame.columns:
        single = frame.get("category")
        rows["categories"] = (
            [np.array([], dtype=object)] * len(frame)
            if single is None
            else [np.array([name], dtype=object) for name in single]
        )
    rows["band"] = name_bands(rows["impact"], frame.get("impact_band", rows["band"]))
    if (wanted := resolve_slugs(reader, select_coins(coins))) is not None:
        rows = rows[rows["coin"].isin(wanted)]
    reason = rows["reason"].to_numpy(object, copy=True)
    reason[pd.isna(reason) & (rows["known_from"] > rows["entry"]).to_numpy()] = "known_too_late"
    out = rows.assign(reason=reason)[["event_id", "coin", "title", "date", "reason"]]
    enters, has_prices = pd.isna(reason), (rows["column"] >= 0).to_numpy()
    rows = rows.drop(columns="reason")
    kept = rows[enters].reset_index(drop=True)
    known = SelectedEvents(kept, out[~enters].reset_index(drop=True), named)
    return known, SelectedEvents(rows[has_prices].reset_index(drop=True), out.iloc[:0], named)


def _name_rows(
    reader: Reader, rows: pd.DataFrame, names: tuple[str, ...], coins: Coins | None
) -> CoinNames:
    """Replace each coin by its slug and its price column, or by the reason why it has no column.

    A text that is also a column of the prices means this column, whether it names one coin, several
    or none.
    """
    rows["coin"] = rows["coin"].astype(object)  # Of Parquet it is a dictionary.
    strange = [value for value in rows["coin"] if not isinstance(value, str)]
    if strange:
        raise InvalidArgument(
            f"events: the coin {strange[0]!r} is not a text; a coin may be called NA or TRUE: read "
            "the column as texts, and missing values as they are"
        )
    with reader.pinned():
        said: NamedCoins = read_named_coins(coins)
        in_prices = name_coins(reader, names, said)
        found = name_coins(reader, rows["coin"], said)
    by_slug = find_price_columns(in_prices, names)
    by_text = {name: column for column, name in enumerate(names)}
    why = dict.fromkeys(found.unknown, "unknown_coin") | dict.fromkeys(
        found.ambiguous, "ambiguous_coin"
    )
    column, reason = {}, {}
    for text in rows["coin"].unique():
        slug = found.slugs.get(text)
        column[text] = by_text.get(text, by_slug.get(slug or "", -1))
        reason[text] = None if column[text] >= 0 else why.get(text, "coin_without_prices")
    rows["column"] = rows["coin"].map(column).astype(np.int64)
    rows["reason"] = rows["coin"].map(reason).astype(object)
    rows["coin"] = rows["coin"].map(lambda text: found.slugs.get(text, text))
    return in_prices


def _utc(values: Any, name: str, tz: tzinfo, unit: TimeUnit | None) -> Any:
    if values.isna().all():  # Of a CSV without a value such a column is one of numbers.
        return pd.Series(pd.NaT, values.index, "datetime64[us, UTC]")
    moments = read_timestamp_column(values, name, tz, unit=unit)
    found = pd.Series(moments.microseconds.view("datetime64[us]"), values.index)
    if name == "date":  # A date alone is a UTC day, as those of the warehouse are.
        shown = pd.Series(
            read_timestamp_column(values, name, UTC, unit=unit).microseconds.view("datetime64[us]"),
            values.index,
        )
        found = found.where(shown != shown.dt.normalize(), shown)
    return found.where(moments.is_known).dt.tz_localize("UTC")
