"""Compares each value of a row with what was known at its decision, before it and after it.

The user's rows stay in Arrow; every statement joins whole tables on unique keys.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from almanac.audit.fields import (
    COIN,
    COIN_FIELD,
    JUDGED,
    SEVERITY,
    VERDICTS,
    AuditVerdict,
    JudgedField,
    mismatch,
)
from almanac.audit.row_events import (
    SQL,
    Places,
    Pulls,
    as_text,
    known_keys,
    near_values,
    place,
    used_keys,
    with_slugs,
)
from almanac.audit.user_rows import Signals
from almanac.reader import Reader
from almanac.reading.named_sql import quoted

_PERIODS: Final = ("is_estimated", "date_type", "date_precision")


@dataclass(frozen=True, slots=True)
class JudgedRows:
    """The verdicts on rows, in tables.

    Attributes:
        findings: one row per value that is not clean: row, event_id, decided_at, field, verdict,
            used, known_then, knowable_from, reason; by row.
        verdicts: one row per row of the caller: row, event_id, decided_at, verdict.
        naive: for each field with timestamps that name no zone, how many.
        used: for each field, how many rows with an event that was known have a value.
        before_first: the places, in the caller's table, of the rows that were decided before the
            first observation of their event.
    """

    findings: pa.Table
    verdicts: pa.Table
    naive: dict[str, int]
    used: dict[str, int]
    before_first: pa.Array


def judge(
    reader: Reader,
    signals: Signals,
    pulls: Pulls,
    *,
    claimed: bool,
    progress: Callable[[str], None],
) -> JudgedRows:
    """Return the verdicts on rows under one basis: what was observed, or also what is claimed."""
    progress("finding what was known at each decision")
    places = place(reader, signals, pulls, claimed=claimed)
    placed, naive = places.placed, dict(places.naive)
    # In the table itself: a statement may give its rows in another order.
    placed = placed.append_column("is_period", _periods(reader, signals, placed["index"]))
    found = [_no_findings(str(reader.tz))]
    used_counts: dict[str, int] = {}
    for name in signals.fields:
        progress(f"judging {name}")
        values = signals.table[name]
        given = placed.append_column("value", values.take(placed["index"]))
        used_counts[name] = pc.count(given["value"]).as_py()
        field, column = JUDGED[name], signals.columns[name]
        if field.kind == "days":
            departed = _days_departures(reader, field, given, places, pulls)
        else:
            if name == "coins":
                slugs = with_slugs(reader, given["value"])
                given = given.set_column(given.schema.get_field_index("value"), "value", slugs)
            uses, unzoned = used_keys(reader, field, given, column)
            naive[name] = naive.get(name, 0) + unzoned
            departed = _departures(reader, field, uses, places, pulls)
            departed = _near_departures(reader, field, given, departed, places, column)
        used = as_text(values.take(departed["index"]))
        found.append(departed.append_column("used", used))
    if COIN in signals.columns:
        has_coin = pc.is_valid(placed["slug"])
        given = placed.append_column("value", placed["slug"]).filter(has_coin)
        uses, _ = used_keys(reader, COIN_FIELD, given, COIN)
        departed = _departures(reader, COIN_FIELD, uses, places, pulls)
        frames = {"findings": departed, "rows": places.rows}
        departed = reader.query(SQL["findings_of_coins"], frames=frames)
        found.append(departed.append_column("used", departed["slug"]))
    progress("counting")
    frames = {"uses": places.uses, "unplaced": places.unplaced}
    frames["value_findings"] = pa.concat_tables(found, promote_options="default")
    frames["severities"] = _severities()
    frames["all_findings"] = reader.query(SQL["all_findings"], frames=frames)
    frames["worst"] = reader.query(SQL["worst"], frames=frames)
    is_chosen = places.uses.num_rows > signals.table.num_rows
    chosen = places.uses.select(["use"])
    if is_chosen:
        chosen = reader.query(SQL["chosen"], frames=frames)
    frames["chosen"] = chosen
    early = reader.query(
        SQL["before_first"],
        frames={"unplaced": places.unplaced, "placed": placed, "versions": places.versions},
    )
    return JudgedRows(
        reader.query(SQL["chosen_findings"], {"is_chosen": is_chosen}, frames=frames),
        _row_verdicts(places, frames["worst"], chosen),
        {name: count for name, count in naive.items() if count},
        used_counts,
        _rows_of(places, chosen, early),
    )


def _row_verdicts(places: Places, worst: pa.Table, chosen: pa.Table) -> pa.Table:
    """Return the verdict of each row of the caller, in its order."""
    names = pa.array(SEVERITY)
    severities = np.full(len(places.uses), len(names) - 1, np.int32)
    severities[worst["use"].to_numpy()] = worst["severity"].to_numpy()
    kept = chosen["use"].to_numpy()
    uses = places.uses.select(["row", "event_id", "decided_at"])
    if len(kept) < len(uses):
        uses, severities = uses.take(chosen["use"]), severities[kept]
    return uses.append_column("verdict", names.take(pa.array(severities)))


def _rows_of(places: Places, chosen: pa.Table, wanted: pa.Table) -> pa.Array:
    """Return the places, in the caller's table, of uses that count."""
    is_wanted = np.zeros(len(places.uses), bool)
    is_wanted[wanted["use"].to_numpy()] = True
    kept = chosen["use"].to_numpy()
    return pa.array(places.uses["index"].to_numpy()[kept[is_wanted[kept]]])


def _departures(
    reader: Reader, field: JudgedField, uses: pa.Table, places: Places, pulls: Pulls
) -> pa.Table:
    """Return the findings about the values of one field."""
    spans = _spans(reader, field, places)
    columns = ["place", "event_number", "known_from", "is_exact", "value"]
    shown = spans.filter(pc.invert(spans["is_hidden"])).select(columns)
    frames = {"uses": uses, "known": known_keys(reader, field, shown)}
    frames["departures"] = reader.query(SQL["departures"], frames=frames)
    frames["runs"] = reader.query(SQL["known_runs"], frames=frames)
    frames["spans"] = spans.select(["place", "is_hidden"])
    values = {"later": field.later, "last_pull_at": pulls.last, "field": field.name}
    return _with_known(reader.query(SQL["findings"], values, frames=frames), spans)


def _near_departures(
    reader: Reader,
    field: JudgedField,
    given: pa.Table,
    departed: pa.Table,
    places: Places,
    column: str,
) -> pa.Table:
    """Return the findings; a value that was never known is judged by the values close to it."""
    verdicts = pa.array(["never_known", "after_last_pull"])
    strange = departed.filter(pc.is_in(departed["verdict"], verdicts))["use"]
    if not len(strange):
        return departed
    uses = given.filter(pc.is_in(given["use"], strange))
    near = near_values(reader, field, uses, _spans(reader, field, places), column)
    if near is None or not near.num_rows:
        return departed
    frames = {"findings": departed, "near": near, "uses": uses}
    return reader.query(SQL["near_findings"], frames=frames)


def _days_departures(
    reader: Reader, field: JudgedField, given: pa.Table, places: Places, pulls: Pulls
) -> pa.Table:
    """Return the findings about the days from the decision until the event."""
    spans = _spans(reader, field, places)
    frames = {"uses": reader.query(SQL["days_read"], frames={"given": given}), "spans": spans}
    values = {"later": field.later, "last_pull_at": pulls.last, "field": field.name}
    return _with_known(reader.query(SQL["days_findings"], values, frames=frames), spans)


def _spans(reader: Reader, field: JudgedField, places: Places) -> pa.Table:
    """Return what each version says of a field, in the order of `place`."""
    return reader.query(
        SQL["known_values"].replace("{field}", quoted(field.source)),
        {"field": field.source, "is_date": field.source == "date"},
        frames={"versions": places.versions},
    )


def _with_known(found: pa.Table, spans: pa.Table) -> pa.Table:
    """Return findings with the value that was known at their decision."""
    known_then = pc.coalesce(
        spans["period"].take(found["place"]), as_text(spans["value"].take(found["place"]))
    )
    return found.append_column("known_then", known_then)


def _periods(reader: Reader, signals: Signals, index: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return for each use whether its row says that the date is a period or a deadline."""
    given = [name for name in _PERIODS if name in signals.fields]
    if not given:
        return pa.chunked_array([pa.repeat(False, len(index))])
    columns = {
        name: as_text(signals.table[name].take(index))
        if name in given
        else pa.nulls(len(index), pa.string())
        for name in _PERIODS
    }
    columns["number"] = pa.array(range(len(index)), pa.int64())
    rows = reader.query(SQL["period_uses"], frames={"periods": pa.table(columns)})
    return rows["is_period"]


def _no_findings(tz: str) -> pa.Table:
    texts = ("field", "verdict", "known_then", "used")
    return pa.schema(
        [
            *[pa.field(name, pa.string()) for name in texts],
            pa.field("use", pa.int64()),
            pa.field("knowable_from", pa.timestamp("us", tz)),
        ]
    ).empty_table()


def _reason(verdict: AuditVerdict) -> str | None:
    """Return why a value can't be judged, where the finding has no reason of its own."""
    return verdict.meaning if verdict.group == "unjudged" else None


def _severities() -> pa.Table:
    return pa.table(
        {
            "verdict": list(SEVERITY),
            "severity": list(SEVERITY.values()),
            "mismatch": [mismatch(verdict) for verdict in SEVERITY],
            "reason": pa.array([_reason(verdict) for verdict in VERDICTS], pa.string()),
        }
    )
