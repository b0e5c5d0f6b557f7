"""The events of a study: from the warehouse as known at entry, or from a frame of the user's.

Belongs here: which event enters when, by which coins of the prices, and why another does not. Does
not: bars (study). A row is one event and one coin; rows are joined by event id and coin alone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from typing import Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa

from almanac.coins import resolve_coin, slugs_of
from almanac.errors import InvalidArgument, UnknownName
from almanac.events import BANDS, Basis, Coins, Names, category_names, impact_values, one_of
from almanac.frames import moments_of
from almanac.reader import Reader
from almanac.reading.named_sql import NamedStatements

_SQL = NamedStatements("almanac.study")

COLUMNS: Final = (
    *("event_id", "coin", "title", "date", "entry", "known_from", "known_basis", "version"),
    *("categories", "impact", "band", "date_final", "status_final", "moved_after_entry"),
    "cancelled_after_entry",
)
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
        unknown: names of the prices that no coin has; they count in the market alone.
    """

    rows: pd.DataFrame
    excluded: pd.DataFrame
    unknown: tuple[str, ...]


def columns_of(reader: Reader, names: Sequence[str]) -> tuple[dict[str, int], tuple[str, ...]]:
    """Return the column of each slug, and the names that no coin has.

    Raises:
        AmbiguousCoin: a name is the ticker of several coins.
        InvalidArgument: two names are one coin.
    """
    frame = pa.table({"name": pa.array(names, pa.string())})
    exact = set(
        reader.query(_SQL["study_coins"], frames={"given_names": frame})["name"].to_pylist()
    )
    found: dict[str, int] = {}
    unknown = []
    for column, name in enumerate(names):
        try:
            slug = name if name in exact else resolve_coin(reader, name).slug
        except UnknownName:
            unknown.append(name)
            continue
        if slug in found:
            raise InvalidArgument(
                f"prices: {names[found[slug]]!r} and {name!r} are both the coin {slug}; keep one"
            )
        found[slug] = column
    return found, tuple(unknown)


def select(
    reader: Reader, names: Sequence[str], filters: EventFilters, span: tuple[datetime, datetime]
) -> tuple[SelectedEvents, SelectedEvents]:
    """Return the events as known at entry, and those of today's table; by the coins of the prices.

    Raises:
        InvalidArgument, UnknownName, AmbiguousCoin: a filter is wrong.
    """
    with reader.pinned():
        columns, unknown = columns_of(reader, names)
        wanted = slugs_of(reader, filters.coins)
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
    return _selection(then, by_coin, extra, unknown), _selection(today, by_coin, [], unknown)


def _pandas(table: pa.Table) -> pd.DataFrame:
    frame = table.to_pandas()
    for name in ("date", "entry", "known_from", "date_final"):
        frame[name] = pd.to_datetime(frame[name], utc=True).dt.as_unit("us")
    return frame


def _selection(
    frame: pd.DataFrame, columns: Mapping[str, int], extra: list[Any], unknown: tuple[str, ...]
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
        unknown,
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
    events: Any, names: Sequence[str], lead: timedelta, tz: tzinfo
) -> tuple[SelectedEvents, SelectedEvents]:
    """Return the rows of a frame of the user's: event_id, coin, date, and known_from if it has it.

    `coin` is the name of a column of the prices. An event enters at its date less the lead if it
    was known by then; one without a `known_from` counts as known.

    Raises:
        InvalidArgument: a column is missing or can't be read, or an event has a coin twice.
    """
    frame = events if isinstance(events, pd.DataFrame) else pd.DataFrame(events)
    missing = [name for name in ("event_id", "coin", "date") if name not in frame.columns]
    if missing:
        raise InvalidArgument(f"events has no {', '.join(missing)}; expected event_id, coin, date")
    rows = pd.DataFrame({name: frame.get(name) for name in COLUMNS}, index=frame.index)
    rows["date"], rows["known_from"] = (
        _utc(rows[name], name, tz) for name in ("date", "known_from")
    )
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
    columns = {name: place for place, name in enumerate(names)}
    column = rows["coin"].map(columns)
    reason = np.full(len(rows), None, dtype=object)
    reason[(rows["known_from"] > rows["entry"]).to_numpy()] = "known_too_late"
    reason[column.isna().to_numpy()] = "coin_without_prices"
    out = rows.assign(reason=reason)[["event_id", "coin", "title", "date", "reason"]]
    enters = pd.isna(reason)
    kept = rows[enters].assign(column=column[enters].astype(np.int64)).reset_index(drop=True)
    known = SelectedEvents(kept, out[~enters].reset_index(drop=True), ())
    all_rows = rows[column.notna()].assign(column=column.dropna().astype(np.int64))
    return known, SelectedEvents(all_rows.reset_index(drop=True), out.iloc[:0], ())


def _utc(values: Any, name: str, tz: tzinfo) -> Any:
    if values.isna().all():  # Of a CSV without a value such a column is one of numbers.
        return pd.Series(pd.NaT, values.index, "datetime64[us, UTC]")
    moments = moments_of(values, name, tz)
    found = pd.Series(moments.microseconds.view("datetime64[us]"), values.index)
    return found.where(moments.is_known).dt.tz_localize("UTC")
