"""Compares each value of a row with what was known at its decision, before it and after it.

The user's rows stay in Arrow; every statement joins whole tables on unique keys.
"""

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
    JudgedField,
    rank_mismatch,
)
from almanac.audit.row_events import (
    SQL,
    PullTimes,
    RowEvents,
    find_near_values,
    find_row_events,
    format_values,
    make_known_keys,
    make_used_keys,
    replace_coins_with_slugs,
)
from almanac.audit.user_rows import Signals
from almanac.core import progress
from almanac.core.statements import quoted
from almanac.reader import Reader

_PERIODS: Final = ("is_estimated", "date_type", "date_precision")


@dataclass(frozen=True, slots=True)
class JudgedRows:
    """The verdicts on rows, in tables.

    Attributes:
        findings: one row per value that is not clean, sorted by row: row, event_id, decided_at,
        field, verdict, used, known_then, knowable_from, reason.
        verdicts: one row per row of the caller: row, event_id, decided_at, verdict.
        naive: the number of timestamps without a zone, by field.
        used: the number of rows with a known event and a value, by field.
    """

    findings: pa.Table
    verdicts: pa.Table
    naive: dict[str, int]
    used: dict[str, int]


def judge(
    reader: Reader,
    signals: Signals,
    pulls: PullTimes,
    *,
    claimed: bool,
) -> JudgedRows:
    """Return the verdicts on rows under one basis: what was observed, or also what is claimed."""
    progress.phase("finding what was known at each decision")
    row_events = find_row_events(reader, signals, pulls, claimed=claimed)
    placed, naive = row_events.placed, dict(row_events.naive)
    # In the table itself: a statement may give its rows in another order.
    placed = placed.append_column("is_period", _periods(reader, signals, placed["index"]))
    found = [_no_findings(str(reader.tz))]
    used_counts: dict[str, int] = {}
    for name in signals.fields:
        progress.phase(f"judging {name}")
        values = signals.table[name]
        given = placed.append_column("value", values.take(placed["index"]))
        used_counts[name] = pc.count(given["value"]).as_py()
        field, column = JUDGED[name], signals.columns[name]
        if field.kind == "days":
            departed = _days_departures(reader, field, given, row_events, pulls)
        else:
            if name == "coins":
                slugs = replace_coins_with_slugs(reader, given["value"])
                given = given.set_column(given.schema.get_field_index("value"), "value", slugs)
            uses, unzoned = make_used_keys(reader, field, given, column)
            naive[name] = naive.get(name, 0) + unzoned
            departed = _departures(reader, field, uses, row_events, pulls)
            if field.kind == "number":
                departed = _rounded_departures(reader, field, given, departed, row_events, signals)
            departed = _near_departures(reader, field, given, departed, row_events, column)
        used = format_values(values.take(departed["index"]))
        found.append(departed.append_column("used", used))
    if COIN in signals.columns:
        has_coin = pc.is_valid(placed["slug"])
        given = placed.append_column("value", placed["slug"]).filter(has_coin)
        uses, _ = make_used_keys(reader, COIN_FIELD, given, COIN)
        departed = _departures(reader, COIN_FIELD, uses, row_events, pulls)
        frames = {"findings": departed, "rows": row_events.rows}
        departed = reader.query(SQL["findings_of_coins"], frames=frames)
        found.append(departed.append_column("used", departed["slug"]))
    progress.phase("counting")
    frames = {"uses": row_events.uses, "unplaced": row_events.unplaced}
    frames["value_findings"] = pa.concat_tables(found, promote_options="default")
    frames["severities"] = _SEVERITIES
    frames["all_findings"] = reader.query(SQL["all_findings"], frames=frames)
    frames["worst"] = reader.query(SQL["worst"], frames=frames)
    is_chosen = row_events.uses.num_rows > signals.table.num_rows
    chosen = row_events.uses.select(["use"])
    if is_chosen:
        chosen = reader.query(SQL["chosen"], frames=frames)
    frames["chosen"] = chosen
    return JudgedRows(
        reader.query(SQL["chosen_findings"], {"is_chosen": is_chosen}, frames=frames),
        _row_verdicts(row_events, frames["worst"], chosen),
        {name: count for name, count in naive.items() if count},
        used_counts,
    )


def _row_verdicts(row_events: RowEvents, worst: pa.Table, chosen: pa.Table) -> pa.Table:
    names = pa.array(SEVERITY)
    severities = np.full(len(row_events.uses), len(names) - 1, np.int32)
    severities[worst["use"].to_numpy()] = worst["severity"].to_numpy()
    kept = chosen["use"].to_numpy()
    uses = row_events.uses.select(["row", "event_id", "decided_at"])
    if len(kept) < len(uses):
        uses, severities = uses.take(chosen["use"]), severities[kept]
    return uses.append_column("verdict", names.take(pa.array(severities)))


def _departures(
    reader: Reader, field: JudgedField, uses: pa.Table, row_events: RowEvents, pulls: PullTimes
) -> pa.Table:
    """Return the findings about the values of one field."""
    spans = _spans(reader, field, row_events)
    columns = ["place", "event_number", "known_from", "is_exact", "value"]
    shown = spans.filter(pc.invert(spans["is_hidden"])).select(columns)
    frames = {"uses": uses, "known": make_known_keys(reader, field, shown)}
    frames["departures"] = reader.query(SQL["departures"], frames=frames)
    frames["runs"] = reader.query(SQL["known_runs"], frames=frames)
    frames["spans"] = spans.select(["place", "is_hidden"])
    values = {"later": field.later, "last_pull_at": pulls.last, "field": field.name}
    return _with_known(reader.query(SQL["findings"], values, frames=frames), spans)


def _rounded_departures(
    reader: Reader,
    field: JudgedField,
    given: pa.Table,
    departed: pa.Table,
    row_events: RowEvents,
    signals: Signals,
) -> pa.Table:
    """Return the findings. The known value, rounded as the column is, counts as close to it."""
    (most,) = reader.query(
        SQL["most_decimals"], frames={"given": pa.table({"value": signals.table[field.name]})}
    ).to_pylist()
    decimals = max(most["decimals"], signals.decimals.get(field.name, 0))
    signals.decimals[field.name] = decimals
    frames = {"findings": departed, "uses": given, "spans": _spans(reader, field, row_events)}
    values = {"later": field.later, "decimals": decimals}
    return reader.query(SQL["rounded_findings"], values, frames=frames)


def _near_departures(
    reader: Reader,
    field: JudgedField,
    given: pa.Table,
    departed: pa.Table,
    row_events: RowEvents,
    column: str,
) -> pa.Table:
    """Return the findings; a value that was never known is judged by the values close to it."""
    verdicts = pa.array(["never_known", "after_last_pull"])
    strange = departed.filter(pc.is_in(departed["verdict"], verdicts))["use"]
    if not len(strange):
        return departed
    uses = given.filter(pc.is_in(given["use"], strange))
    near = find_near_values(reader, field, uses, _spans(reader, field, row_events), column)
    if near is None or not near.num_rows:
        return departed
    frames = {"findings": departed, "near": near, "uses": uses}
    return reader.query(SQL["near_findings"], frames=frames)


def _days_departures(
    reader: Reader, field: JudgedField, given: pa.Table, row_events: RowEvents, pulls: PullTimes
) -> pa.Table:
    """Return the findings about the days from the decision until the event."""
    spans = _spans(reader, field, row_events)
    frames = {"uses": reader.query(SQL["days_read"], frames={"given": given}), "spans": spans}
    values = {"later": field.later, "last_pull_at": pulls.last, "field": field.name}
    return _with_known(reader.query(SQL["days_findings"], values, frames=frames), spans)


def _spans(reader: Reader, field: JudgedField, row_events: RowEvents) -> pa.Table:
    return reader.query(
        SQL.fill("known_values", field=quoted(field.source)),
        {"field": field.source, "is_date": field.source == "date"},
        frames={"versions": row_events.versions},
    )


def _with_known(found: pa.Table, spans: pa.Table) -> pa.Table:
    """Return findings with the value that was known at their decision."""
    known_then = pc.coalesce(
        spans["period"].take(found["place"]), format_values(spans["value"].take(found["place"]))
    )
    return found.append_column("known_then", known_then)


def _periods(reader: Reader, signals: Signals, index: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return for each use whether its row says that the date is a period or a deadline.

    NULL if no column says it.
    """
    given = [name for name in _PERIODS if name in signals.fields]
    if not given:
        return pa.chunked_array([pa.nulls(len(index), pa.bool_())])
    columns = {
        name: format_values(signals.table[name].take(index))
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


_SEVERITIES: Final = pa.table(
    {
        "verdict": list(SEVERITY),
        "severity": list(SEVERITY.values()),
        "mismatch": [rank_mismatch(verdict) for verdict in SEVERITY],
        "reason": pa.array([v.meaning if v.group == "unjudged" else None for v in VERDICTS]),
    }
)
"""`reason` is why a value can't be judged, where the finding has no reason of its own."""
