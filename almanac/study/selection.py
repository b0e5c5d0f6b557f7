"""The events of a study: from the warehouse as known at entry, or from a frame of the user's.

Belongs here: which event enters when, by which coins of the prices, and why another does not. Does
not: bars (study). A row is one event and one coin; rows are joined by event id and coin alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa

from almanac.errors import AmbiguousCoin, InvalidArgument
from almanac.events import BANDS, Basis, Coins, Names, category_names, impact_values, one_of
from almanac.frames import moments_of
from almanac.reader import Reader
from almanac.reading.named_sql import NamedStatements
from almanac.study.named_coins import CoinNames, NamedCoins, name_coins, said_coins, selected_slugs
from almanac.study.prices import read_frame

_SQL = NamedStatements("almanac.study")

COLUMNS: Final = (
    *("event_id", "coin", "title", "date", "entry", "known_from", "known_basis", "version"),
    *("categories", "impact", "band", "date_final", "status_final", "moved_after_entry"),
    "cancelled_after_entry",
)
ADVICE: Final = ". Or say which: coins={'name in the prices': 'its-slug', …}."
PRECISIONS: Final = {"exact": ["instant", "day"], "instant": ["instant"]}


@dataclass(frozen=True, slots=True)
class EventFilters:
    """What the user selects; see `Database.event_study`."""

    coins: Coins | None
    categories: Names | None
    min_impact: float | None
    lead: timedelta
    basis: Basis
    dates: str


@dataclass(frozen=True, slots=True)
class SelectedEvents:
    """The rows that enter, and the events that do not.

    Attributes:
        rows: one row per event and coin, with `COLUMNS` and `column`, its column in the prices.
        excluded: event_id, coin (None: all), title, date, reason.
        names: the coins of the names in the prices; a name that is not one coin counts in the
            market alone.
    """

    rows: pd.DataFrame
    excluded: pd.DataFrame
    names: CoinNames


def price_columns(names: CoinNames, columns: tuple[str, ...]) -> dict[str, int]:
    """Return the column of each slug in the prices.

    Raises:
        InvalidArgument: two names are one coin.
    """
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


def select(
    reader: Reader,
    names: tuple[str, ...],
    filters: EventFilters,
    span: tuple[datetime, datetime],
) -> tuple[SelectedEvents, SelectedEvents]:
    """Return the events as known at entry, and those of today's table; by the coins of the prices.

    Raises:
        InvalidArgument, UnknownName: a filter is wrong.
        AmbiguousCoin: a filter is, or each name in the prices that is a coin at all.
    """
    with reader.pinned():
        named = name_coins(reader, names, said_coins(filters.coins))
        columns = price_columns(named, names)
        if named.ambiguous and not columns:
            raise AmbiguousCoin(next(iter(named.ambiguous.values())) + ADVICE, [])
        wanted = selected_slugs(reader, filters.coins)
        traded = [slug for slug in columns if wanted is None or slug in wanted]
        values: dict[str, Any] = {
            "coins": traded,
            "categories": category_names(reader, filters.categories),
            "lower": span[0],
            "upper": span[1],
            **impact_values(filters.min_impact),
        }
        known = {
            "lead": filters.lead,
            "basis": one_of(filters.basis, "basis", ("observed", "claimed")),
            "now": reader.now(),
            "precisions": PRECISIONS[one_of(filters.dates, "dates", tuple(PRECISIONS))],
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
    rows["band"] = bands_of(rows["impact"], rows["impact_band"])
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


def bands_of(impact: Any, band: Any) -> Any:
    """Return the band of each row: as the plan shows it, else that of the score, else None."""
    lows = [low for low, _ in BANDS]
    names = np.array([name for _, name in BANDS], dtype=object)
    score = pd.to_numeric(impact).to_numpy(np.float64, na_value=np.nan)
    place = np.searchsorted(lows, np.nan_to_num(score), side="right") - 1
    by_score = np.where(np.isnan(score), None, names[np.maximum(place, 0)])
    given = np.asarray(band, dtype=object)
    return np.where(pd.isna(given), by_score, given)


def select_given(
    reader: Reader, events: Any, names: tuple[str, ...], coins: Coins | None, lead: timedelta
) -> tuple[SelectedEvents, SelectedEvents]:
    """Return the rows of a frame of the user's: event_id, coin, date, and known_from if it has it.

    `coin` is a name as in the prices, or another name of the same coin. An event enters at its date
    less the lead if it was known by then; one without a `known_from` counts as known.

    Raises:
        InvalidArgument: a column is missing or can't be read, or an event has a coin twice.
    """
    frame = read_frame(events, "events", texts=("coin",))
    missing = [name for name in ("event_id", "coin", "date") if name not in frame.columns]
    if missing:
        raise InvalidArgument(f"events has no {', '.join(missing)}; expected event_id, coin, date")
    rows = pd.DataFrame({name: frame.get(name) for name in COLUMNS}, index=frame.index)
    rows["date"], rows["known_from"] = (
        _utc(rows[name], name, reader.tz) for name in ("date", "known_from")
    )
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
    rows["band"] = bands_of(rows["impact"], frame.get("impact_band", rows["band"]))
    if (wanted := selected_slugs(reader, coins)) is not None:
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
    """Put the slug in place of each coin, and the column of its prices, or why there is none.

    A text that the prices have, too, is that column, also if no coin or several have it.
    """
    rows["coin"] = rows["coin"].astype(object)  # Of Parquet it is a dictionary.
    strange = [value for value in rows["coin"] if not isinstance(value, str)]
    if strange:
        raise InvalidArgument(
            f"events: the coin {strange[0]!r} is no text; a coin may be called NA or TRUE: read "
            "the column as texts, and missing values as they are"
        )
    with reader.pinned():
        said: NamedCoins = said_coins(coins)
        in_prices = name_coins(reader, names, said)
        found = name_coins(reader, rows["coin"], said)
    by_slug = price_columns(in_prices, names)
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


def _utc(values: Any, name: str, tz: tzinfo) -> Any:
    if values.isna().all():  # Of a CSV without a value such a column is one of numbers.
        return pd.Series(pd.NaT, values.index, "datetime64[us, UTC]")
    moments = moments_of(values, name, tz)
    found = pd.Series(moments.microseconds.view("datetime64[us]"), values.index)
    if name == "date":  # A date alone is a UTC day, as those of the warehouse are.
        shown = pd.Series(
            moments_of(values, name, UTC).microseconds.view("datetime64[us]"), values.index
        )
        found = found.where(shown != shown.dt.normalize(), shown)
    return found.where(moments.is_known).dt.tz_localize("UTC")
