"""The rows of an export: by DuckDB's reader where it can, else by Python's, row by row.

DuckDB's reader is quick, but refuses a whole file for one odd row, takes columns by position,
and gives no error for what is no CSV: so the header is read here, and what it read is counted
against the bytes. Belongs here: the two readers. Does not: what makes a row good (sql/).
"""

import csv
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import duckdb

from catalog.contract.csv_form import LIST_SEPARATOR
from warehouse.cells import BadRow, clean
from warehouse.csv_header import JSON_JOIN, Columns, Joins, csv_rows
from warehouse.csv_records import RecordCounter
from warehouse.fields import BIT, NAMES
from warehouse.json_rows import EventRows, shows
from warehouse.sink import Sink
from warehouse.statements import statement
from warehouse.tally import Tally

_TEXTS_BESIDE: Final = ("observed_text", "content_text", "cancelled_text")


@dataclass(frozen=True, slots=True)
class Source:
    """The file of an export, and its bytes as often as they are wanted."""

    path: Path
    compression: str
    chunks: Callable[[], Iterator[bytes]]


def insert_query(columns: Columns, visible: int, joins: Joins) -> tuple[str, dict[str, Any]]:
    """Return the statement that reads a file with DuckDB, and the parameters of its reader."""
    values: dict[str, Any] = {
        "columns": {f"c{place}": "VARCHAR" for place in range(len(columns.names))},
        "shown": sum(BIT[name] for name in columns.places if name in BIT and shows(visible, name)),
    }
    lines = ["NULL::BIGINT AS place", f"{_clean(columns, 'event_id')} AS event_id"]
    lines += [f"NULL::VARCHAR AS {name}" for name in _TEXTS_BESIDE]
    for name in NAMES:
        place = columns.places.get(name) if shows(visible, name) else None
        if name in ("categories", "coins"):
            if place is None:
                lines.append(f"NULL::VARCHAR[] AS {name}")
            else:
                lines.append(f"almanac_list(c{place}, ${name}_join) AS {name}")
                values[f"{name}_join"] = getattr(joins, name)
        else:
            lines.append(
                f'{"NULL::VARCHAR" if place is None else _clean(columns, name)} AS "{name}"'
            )
    lines += [
        "$shown::BIGINT AS shown",
        f"{_extra(columns, values)} AS extra",
        "NULL::STRUCT(slug VARCHAR, symbol VARCHAR, name VARCHAR)[] AS coin_names",
        "'scheduled' AS status",
    ]
    select = "SELECT\n" + ",\n".join(lines) + "\n" + statement("normalise_csv_file")
    return statement("normalise_events").replace("{arrived_rows}", select), values


def read_quickly(
    connection: duckdb.DuckDBPyConnection, source: Source, query: str, values: dict[str, Any]
) -> int | str:
    """Read a file with DuckDB; return how many rows it took, or why it would not."""
    file = {"path": str(source.path), "compression": source.compression}
    try:
        taken: int = connection.execute(query, {**values, **file}).fetchall()[0][0]
    except (duckdb.InterruptException, duckdb.OutOfMemoryException):
        raise
    except duckdb.Error as error:
        return str(error).strip().splitlines()[0][:120]
    return taken


def read_tolerantly(
    source: Source, columns: Columns, rows: EventRows, joins: Joins, sink: Sink, tally: Tally
) -> int:
    """Read a file row by row; return how many records its bytes hold, the header left out."""
    counter = RecordCounter()
    taker = _Taker(columns, rows, joins, sink, tally)
    held: list[str] | None = None
    with csv_rows(source.chunks(), counter.feed) as records:
        try:
            next(records, None)
            for cells in records:
                if held is not None:
                    taker.take(held)
                held = cells
        except csv.Error as error:
            if held is not None:
                taker.take(held)
            taker.refuse(f"the rest of the file: {error}", [])
            return count_records(source)
    counter.finish()
    if held is not None and counter.in_quotes:
        taker.refuse("a quote that is never closed, with the rest of the file in it", held)
    elif held is not None:
        taker.take(held)
    return max(0, counter.records - 1)


def count_records(source: Source) -> int:
    """Return how many records a file holds, the header left out."""
    counter = RecordCounter()
    for chunk in source.chunks():
        counter.feed(chunk)
    counter.finish()
    return max(0, counter.records - 1)


class _Taker:
    """Makes rows of records."""

    def __init__(
        self, columns: Columns, rows: EventRows, joins: Joins, sink: Sink, tally: Tally
    ) -> None:
        self._names = columns.names
        self._joins = [
            (columns.names[columns.places[name]], getattr(joins, name))
            for name in ("categories", "coins")
            if name in columns.places
        ]
        self._rows = rows
        self._sink = sink
        self._tally = tally

    def take(self, cells: list[str]) -> None:
        while len(cells) > len(self._names) and not cells[-1]:
            cells = cells[:-1]  # as DuckDB's reader does
        if len(cells) != len(self._names):
            self.refuse(f"expected {len(self._names)} columns, met {len(cells)}", cells)
            return
        event: dict[str, Any] = {
            name: clean(cell) for name, cell in zip(self._names, cells, strict=True)
        }
        for name, join in self._joins:
            event[name] = _parted(event[name] or "", join)
        try:
            row = self._rows.row(event, self._tally.arrived)
            row["coin_names"] = None
            self._sink.add(row)
        except BadRow as error:
            self.refuse(str(error), cells)
        else:
            self._tally.arrived += 1

    def refuse(self, reason: str, cells: list[str]) -> None:
        self._sink.reject(self._tally.arrived, reason, cells)
        self._tally.arrived += 1


def _parted(cell: str, join: str) -> list[Any]:
    if join != JSON_JOIN:
        return cell.split(join)
    try:
        listed = json.loads(cell) if cell.lstrip().startswith(JSON_JOIN) else None
    except (ValueError, RecursionError):
        listed = None
    return listed if isinstance(listed, list) else cell.split(LIST_SEPARATOR)


def _clean(columns: Columns, name: str) -> str:
    place = columns.places.get(name)
    return "NULL::VARCHAR" if place is None else f"almanac_clean(c{place})"


def _extra(columns: Columns, values: dict[str, Any]) -> str:
    if not columns.extras:
        return "NULL::VARCHAR"
    pairs = []
    for number, name in enumerate(sorted(columns.extras)):
        values[f"extra_{number}"] = name
        pairs.append(f"$extra_{number}::VARCHAR, almanac_clean(c{columns.extras[name]})")
    return f"json_object({', '.join(pairs)})::VARCHAR"
