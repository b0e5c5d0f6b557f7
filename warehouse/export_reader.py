"""The body of an export, whatever it turns out to be: CSV as a rule, gzip, JSON, or no catalog.

Belongs here: which reader is taken, and the comparison of what it read with what the bytes
hold. Does not: the readers (csv_reader.py, json_feeds.py).
"""

import codecs
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from warehouse.batches import Manifest
from warehouse.bodies import GZIP_MAGIC, Unreadable, gunzip, kind_of, pages
from warehouse.csv_header import JOINS, JSON_JOIN, Columns, Joins, read_header
from warehouse.csv_reader import (
    Source,
    count_records,
    insert_query,
    read_quickly,
    read_tolerantly,
)
from warehouse.csv_records import QuickCounter
from warehouse.event_tables import EventTables
from warehouse.json_feeds import read_lists
from warehouse.json_rows import EventRows
from warehouse.landing import Landing
from warehouse.tally import Tally

_CHUNK_BYTES: Final = 1 << 20
_HEAD_BYTES: Final = 4_096


def read_export(
    landing: Landing, manifest: Manifest, tables: EventTables, rows: EventRows
) -> Tally:
    """Read an export into the tables; return its account."""
    tally = Tally()
    try:
        with _source(landing, manifest) as source:
            head = _head(source.chunks())
            if source.compression == "none":
                tally.note("gzip")
            if head.startswith(codecs.BOM_UTF8):
                tally.note("BOM")
            match kind_of(head):
                case "empty":
                    raise Unreadable("an empty body")
                case "html":
                    raise Unreadable("an HTML page")
                case "json":
                    tally.note("JSON in place of CSV")
                    sink = tables.sink()
                    read_lists(pages(landing, manifest), rows.row, sink, tally)
                    sink.close()
                    tally.rejected = sink.rejected
                case _:
                    _read_csv(source, tables, rows, tally)
    except Unreadable as error:
        tally.faults.append(f"the export is {error}")
    return tally


@contextmanager
def _source(landing: Landing, manifest: Manifest) -> Iterator[Source]:
    """Lend the body as a file that DuckDB reads: as it lies, or unpacked where it is gzip."""
    if not _head(landing.body(manifest)).startswith(GZIP_MAGIC):
        yield Source(landing.body_path(manifest), "zstd", lambda: landing.body(manifest))
        return
    with tempfile.NamedTemporaryFile(prefix="almanac-", suffix=".csv") as file:
        for chunk in gunzip(landing.body(manifest)):
            file.write(chunk)
        file.flush()
        path = Path(file.name)
        yield Source(path, "none", lambda: _chunks_of(path))


def _read_csv(source: Source, tables: EventTables, rows: EventRows, tally: Tally) -> None:
    columns, joins = read_header(source.chunks())
    for words in columns.notes():
        tally.note(words)
    if (fault := columns.fault()) is not None:
        tally.faults.append(f"the export has {fault}")
    if columns.duplicates:
        tally.arrived = count_records(source)
        return
    for _ in JOINS:
        why = _read(source, columns, joins, tables, rows, tally)
        joined = tables.joins(joins)
        if joined == joins:
            break
        joins = joined
        tables.empty()
    if why is not None:
        tally.note(f"read by the tolerant reader: {why}")
    for words in joins.notes():
        tally.note(words)
    if not tally.arrived:
        tally.faults.append("the export is a header without rows")


def _read(
    source: Source,
    columns: Columns,
    joins: Joins,
    tables: EventTables,
    rows: EventRows,
    tally: Tally,
) -> str | None:
    """Read a file once; return why the quick reader did not do, or None."""
    tally.rejected = 0
    why: str | None = "lists as JSON arrays"
    if JSON_JOIN not in (joins.categories, joins.coins):
        why = _read_quickly(source, columns, joins, tables, rows.visible, tally)
        if why is None:
            return None
        tables.empty()
    tally.arrived = 0
    sink = tables.sink()
    arrived = read_tolerantly(source, columns, rows, joins, sink, tally)
    sink.close()
    tally.arrived, tally.rejected = arrived, sink.rejected
    return why


def _read_quickly(
    source: Source,
    columns: Columns,
    joins: Joins,
    tables: EventTables,
    visible: int,
    tally: Tally,
) -> str | None:
    """Let DuckDB read a file while its records are counted beside it; return why that failed."""
    query, values = insert_query(columns, visible, joins)
    with ThreadPoolExecutor(1) as pool:
        counting = pool.submit(_counted, source)
        read = read_quickly(tables.connection, source, query, {**tables.values(), **values})
        counter = counting.result()
    if isinstance(read, str):
        return read
    if counter.has_nul:
        return "it contains NUL"
    tally.arrived = max(0, counter.records - 1)
    if read != tally.arrived:
        tally.arrived = count_records(source)
    return None if read == tally.arrived else f"{read} rows read of {tally.arrived}"


def _counted(source: Source) -> QuickCounter:
    counter = QuickCounter()
    for chunk in source.chunks():
        counter.feed(chunk)
    return counter


def _head(chunks: Iterator[bytes]) -> bytes:
    """Return the first bytes of a body; a chunk may be of any size."""
    head = b""
    while len(head) < _HEAD_BYTES and (chunk := next(chunks, b"")):
        head += chunk
    return head


def _chunks_of(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            yield chunk
