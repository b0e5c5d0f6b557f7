"""Finds the event that each row means, and the event version that was known at its decision."""

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from almanac.audit.fields import COIN, EVENT, FIELDS, JudgedField
from almanac.audit.user_rows import DECIDED_AT, Signals, is_category_set, is_next_event
from almanac.coins import find_coins
from almanac.core.errors import InvalidArgument
from almanac.core.statements import Statements
from almanac.frames import refuse_type
from almanac.reader import Reader

SQL: Final = Statements("almanac.audit")
_NEAR: Final = {
    "instant": "near_instant",
    "number": "near_number",
    "text": "near_text",
    "word": "near_text",
    "list": "near_list",
    "entry": "near_list",
}


def read_timestamps(reader: Reader, given: pa.Table, name: str) -> pa.Table:
    """Return `given` with `value` read: timestamp, is_empty, is_naive, is_day, midnight."""
    kind = given.schema.field("value").type
    frames = {"given": given}
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        written = pc.local_timestamp(given["value"])
        frames["given"] = given.append_column("written", written)
        return reader.query(SQL["read_aware"], frames=frames)
    tz = {"tz": str(reader.tz)}
    if pa.types.is_string(kind):
        frames["given"] = reader.query(SQL["read_texts"], frames=frames)
    elif pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        is_day = {"is_day": pa.types.is_date(kind)}
        frames["given"] = reader.query(SQL["read_naive"], is_day, frames=frames)
    else:
        raise refuse_type(name, kind, "timestamps")
    return reader.query(SQL["placed_in_zone"], tz, frames=frames)


def make_used_keys(
    reader: Reader, field: JudgedField, given: pa.Table, name: str
) -> tuple[pa.Table, int]:
    """Return `given` with `value` as key and is_read, and the number of values without a zone."""
    if field.kind != "instant":
        return _keys(reader, field, given, are_sets=is_category_set(name)), 0
    read = read_timestamps(reader, given, name)
    # A date alone is a calendar day, of no zone.
    naive = pc.sum(pc.and_not(read["is_naive"], read["is_day"])).as_py() or 0
    return reader.query(SQL["keys_of_instant"], frames={"given": read}), naive


def make_known_keys(reader: Reader, field: JudgedField, given: pa.Table) -> pa.Table:
    if field.kind == "instant":
        return reader.query(SQL["known_instant_keys"], frames={"given": given})
    if field.kind == "coin":
        return reader.query(SQL["known_coin_keys"], frames={"given": given})
    if field.kind in ("list", "entry"):
        sets = _keys(reader, FIELDS[field.source], given, are_sets=True)
        return reader.query(SQL["known_list_keys"], frames={"given": given, "sets": sets})
    return _keys(reader, field, given)


def find_near_values(
    reader: Reader, field: JudgedField, given: pa.Table, spans: pa.Table, name: str
) -> pa.Table | None:
    """Return the versions whose value is close to the used value: use, place, known_from, is_exact.

    None if values of this kind have no tolerance.
    """
    statement = _NEAR.get(field.kind)
    if statement is None:
        return None
    if field.kind == "instant":
        given = read_timestamps(reader, given, name)
    elif field.kind != "number":
        given = _with_texts(given)
    return reader.query(SQL[statement], frames={"uses": given, "spans": spans})


def format_values(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return values as the findings show them; timestamps in UTC."""
    if pa.types.is_timestamp(column.type):
        zone = column.type.tz and "UTC"
        seconds = column.cast(pa.timestamp("s", column.type.tz), safe=False)
        # Each distinct date once: strftime takes a microsecond.
        coded = seconds.cast(pa.timestamp("s", zone)).combine_chunks().dictionary_encode()
        texts = pc.strftime(coded.dictionary, "%Y-%m-%dT%H:%M:%S" + ("Z" if zone else ""))
        return pa.chunked_array([texts.take(coded.indices)])
    return join_lists(column) if pa.types.is_list(column.type) else column.cast(pa.string())


def _keys(
    reader: Reader, field: JudgedField, given: pa.Table, *, are_sets: bool = False
) -> pa.Table:
    are_sets = are_sets or pa.types.is_list(given.schema.field("value").type)
    if field.kind != "number":
        given = _with_texts(given)
    values = {}
    if field.kind == "list":
        values["form"] = "sets"
        if not are_sets:
            (row,) = reader.query(SQL["has_lists"], frames={"given": given}).to_pylist()
            values["form"] = "texts" if row["has_lists"] else "entries"
    return reader.query(SQL[f"keys_of_{field.kind}"], values, frames={"given": given})


def _with_texts(given: pa.Table) -> pa.Table:
    """Return a table with its column `value` as texts; lists are joined with commas."""
    place = given.schema.get_field_index("value")
    column = given.column(place)
    if pa.types.is_list(column.type):
        column = join_lists(column)
    return given.set_column(place, "value", column.cast(pa.string()))


def join_lists(column: Any) -> pa.ChunkedArray:
    """Return lists of texts as texts with commas; NULL stays NULL."""
    return pc.binary_join(column.cast(pa.list_(pa.string())), ", ")


_LISTED: Final = re.compile(r"[\[\]{}()\"';|,]+")


@dataclass(frozen=True, slots=True)
class PullTimes:
    """When events were pulled. `now` is the clock, or the last pull if it is later."""

    first: datetime | None
    last: datetime | None
    now: datetime


@dataclass(frozen=True, slots=True)
class RowEvents:
    """The uses: each row with the event that it means, or with each event that it may mean.

    Attributes:
        rows: one row per row of the signals: index, event_id (NULL if it names none), and others.
        uses: use, index (of the row in the signals), row, event_id, decided_at, slug (of its coin);
            verdict and reason where it is not judged any further.
        placed: those whose event was known; `place` is the number of its version in `versions`,
        event_number the number of its event.
        unplaced: use, verdict, knowable_from, reason of those whose event was not known.
        versions: one row per version of these events that was known at some time.
        naive: the number of timestamps without a zone, by column.
    """

    rows: pa.Table
    uses: pa.Table
    placed: pa.Table
    unplaced: pa.Table
    versions: pa.Table
    naive: dict[str, int]


def find_row_events(
    reader: Reader, signals: Signals, pulls: PullTimes, *, claimed: bool
) -> RowEvents:
    """Return the uses of all rows and the versions that were known at their decisions."""
    naive: dict[str, int] = {}
    rows = _rows(reader, signals, pulls, naive)
    if COIN in signals.columns:
        coin_uses = _coin_uses(reader, signals, rows, pulls, claimed)
        frames = {"rows": rows, "coin_uses": coin_uses}
        frames["slugs"] = _find_slugs(reader, rows["coin"].filter(pc.is_valid(rows["event_id"])))
        uses = reader.query(SQL["uses"], frames=frames)
        uses = _with_columns(uses, use=pa.array(np.arange(len(uses))))
    else:
        uses = _with_columns(rows, use=rows["index"], slug=rows["coin"])
    versions = reader.query(SQL["versions"], {"claimed": claimed}, frames={"uses": uses})
    found = reader.query(SQL["places"], frames={"uses": uses, "versions": versions})
    placed, unknown = _divide_uses(uses, found)
    values = {"claimed": claimed, "last_pull_at": pulls.last}
    unplaced = reader.query(SQL["unplaced"], values, frames={"unknown": unknown})
    return RowEvents(rows, uses, placed, unplaced, versions, naive)


def replace_coins_with_slugs(reader: Reader, column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return lists of coins, as lists or texts, with slugs in place of tickers and names.

    A text that names no coin, or several, is not changed.
    """
    is_list = pa.types.is_list(column.type)
    if not is_list and not pa.types.is_string(column.type):
        return column
    parts = pc.list_flatten(column) if is_list else pc.unique(column)
    texts = {text: _LISTED.split(text) for text in pc.unique(parts).drop_null().to_pylist()}
    entries = sorted({entry.strip() for found in texts.values() for entry in found} - {""})
    found_coins = find_coins(reader, entries)
    slugs = {text: coins[0].slug for text, coins in found_coins.items() if len(coins) == 1}
    changed = {
        text: ", ".join(slugs.get(entry.strip(), entry.strip()) for entry in found)
        for text, found in texts.items()
        if any(entry.strip() in slugs for entry in found)
    }
    if is_list:
        lists = [
            None if row is None else [changed.get(entry, entry) for entry in row]
            for row in column.to_pylist()
        ]
        return pa.chunked_array([pa.array(lists, pa.list_(pa.string()))])
    given = pa.array(changed, pa.string())
    place = pc.index_in(column, given)
    return pc.coalesce(pa.array(changed.values(), pa.string()).take(place), column)


def _divide_uses(uses: pa.Table, found: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Return the uses whose event was known, with the index of its version, and the other uses.

    Both tables keep the order of the uses. Neither has the uses that already have a verdict.
    """
    places = np.full(len(uses), -1, np.int32)
    places[found["use"].to_numpy()] = found["place"].to_numpy()
    events = np.full(len(uses), -1, np.int32)
    events[found["use"].to_numpy()] = found["event_number"].to_numpy()
    is_known = places >= 0
    is_open = uses["verdict"].is_null().to_numpy(zero_copy_only=False)
    kept = uses.select(["use", "index", "row", "event_id", "decided_at", "slug"])
    placed = _with_columns(kept, place=pa.array(places), event_number=pa.array(events))
    if not is_known.all():
        placed = placed.filter(pa.array(is_known))
    return placed, kept.filter(pa.array(is_open & ~is_known))


def _with_columns(table: pa.Table, **columns: Any) -> pa.Table:
    for name, column in columns.items():
        table = table.append_column(name, column)
    return table


def _rows(reader: Reader, signals: Signals, pulls: PullTimes, naive: dict[str, int]) -> pa.Table:
    count = signals.table.num_rows
    columns = {"index": pa.array(np.arange(count)), "row": signals.table["row"]}
    for name in (EVENT, COIN):
        columns[name] = pa.nulls(count, pa.string())
        if name in signals.columns:
            given = signals.table[name]
            if pa.types.is_nested(given.type):
                raise InvalidArgument(
                    f"the column {signals.columns[name]!r} holds {given.type}; expected one {name} "
                    "a row. In pandas: frame.explode(…)"
                )
            columns[name] = given.cast(pa.string())
    if EVENT in signals.columns:
        columns[EVENT] = _read_ids(reader, signals.table[EVENT], signals.columns[EVENT])
    broken: list[str | None] = [None] * count
    first = signals.table["row"][0].as_py() if count else 1
    for row, reason in signals.broken.items():
        broken[row - first] = reason
    columns["broken"] = pa.array(broken, pa.string())
    columns["is_unused"] = _is_unused(signals)
    given = pa.table({**columns, "value": signals.table[DECIDED_AT]})
    read = read_timestamps(reader, given, signals.columns[DECIDED_AT])
    naive[DECIDED_AT] = pc.sum(read["is_naive"]).as_py() or 0
    return reader.query(SQL["rows"], {"now": pulls.now}, frames={"given": read})


def _read_ids(reader: Reader, given: pa.ChunkedArray, column: str) -> pa.ChunkedArray:
    """Return ids of events as texts, each in the case that its event has."""
    is_text = pa.types.is_string(given.type) or given.null_count == len(given)
    ids = given.cast(pa.string())
    texts = pc.unique(ids).drop_null()
    if is_text:
        texts = texts.filter(pc.not_equal(texts, pc.utf8_lower(texts)))
    rows = reader.rows(SQL["ids_in_any_case"], {"ids": texts.to_pylist()}) if len(texts) else []
    if not is_text and not rows:
        raise InvalidArgument(
            f"the column {column!r} holds {given.type}, and no event has such an id; expected "
            f"texts, the ids of events. Read it as text: pandas.read_csv(…, dtype={{{column!r}: "
            "str})"
        )
    if not rows:
        return ids
    named = pa.array([row["given"] for row in rows], pa.string())
    known = pa.array([row["event_id"] for row in rows], pa.string())
    return pc.coalesce(known.take(pc.index_in(ids, named)), ids)


def _find_slugs(reader: Reader, texts: pa.ChunkedArray) -> pa.Table:
    """Return one row per text that names coins: coin, slugs, coins (their number), slug (one)."""
    found = find_coins(reader, pc.unique(texts).drop_null().to_pylist())
    rows = [
        {"coin": text, "slugs": (slugs := sorted(coin.slug for coin in coins)), "slug": slugs[0]}
        for text, coins in found.items()
    ]
    columns = {"coin": pa.string(), "slugs": pa.list_(pa.string()), "slug": pa.string()}
    table = pa.Table.from_pylist(rows, pa.schema(columns))
    return table.append_column("coins", pc.list_value_length(table["slugs"]))


def _is_unused(signals: Signals) -> pa.Array:
    count = signals.table.num_rows
    if not is_next_event(signals.columns.get(EVENT)):
        return pa.repeat(False, count)
    is_used = pa.repeat(False, count)
    for name in (EVENT, *signals.fields):
        column = signals.table[name]
        has_value = pc.is_valid(column)
        if pa.types.is_floating(column.type):
            has_value = pc.and_(has_value, pc.invert(pc.is_nan(column).fill_null(False)))
        if pa.types.is_string(column.type):
            has_value = pc.not_equal(pc.utf8_trim_whitespace(column), "").fill_null(False)
        is_used = pc.or_(is_used, has_value)
    return pc.invert(is_used)


def _coin_uses(
    reader: Reader, signals: Signals, rows: pa.Table, pulls: PullTimes, claimed: bool
) -> pa.Table:
    unnamed = rows.filter(pc.and_(pc.is_null(rows["event_id"]), pc.is_null(rows["verdict"])))
    count = unnamed.num_rows
    dates = (
        signals.table["date"].take(unnamed["index"])
        if "date" in signals.columns
        else pa.nulls(count, pa.string())
    )
    # The timestamp says whether a pull covered the date, the key which events had it.
    dated = read_timestamps(reader, unnamed.append_column("value", dates), "date")
    dated = dated.append_column("instant_read", dated["instant"])
    keyed = reader.query(SQL["keys_of_instant"], frames={"given": dated})
    named = keyed.rename_columns({"instant_read": "instant"})
    slugs = _find_slugs(reader, named["coin"])
    found = reader.query(SQL["coin_rows"], frames={"named_coins": named, "slugs": slugs})
    frames = {
        "coin_rows": found,
        "candidates": reader.query(
            SQL["candidates"], {"claimed": claimed}, frames={"coin_rows": found}
        ),
        "covered": reader.query(SQL["covered_days"]),
    }
    frames["not_covered"] = reader.query(SQL["not_covered"], frames=frames)
    return reader.query(SQL["uses_of_coins"], {"last_pull_at": pulls.last}, frames=frames)
