"""The body of an export, whatever its form: usually CSV, or gzip, JSON, or no catalog at all.

Belongs here: the choice of a reader, and the comparison of the rows it read with the number in
the bytes. Does not: the readers (csv_reader.py, json_feeds.py).
"""

import codecs
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from almanac.reading.temporary import own_folder
from warehouse import bounds
from warehouse.landing.batches import Manifest
from warehouse.landing.landing import Landing
from warehouse.normalise.csv_counter import QuickCounter
from warehouse.normalise.csv_header import Columns, read_header
from warehouse.normalise.csv_lists import KnownLists, ListForm, form_of, weigh
from warehouse.normalise.csv_reader import (
    CsvSource,
    Reading,
    count_records,
    list_cells,
    read_quickly,
    read_tolerantly,
)
from warehouse.normalise.json_feeds import read_lists
from warehouse.normalise.json_rows import EventRows
from warehouse.normalise.payloads import (
    GZIP_MAGIC,
    HtmlBody,
    Unreadable,
    gunzip,
    kind_of,
    pages,
)
from warehouse.normalise.sink import BatchCounts
from warehouse.normalise.staging import EventTables
from warehouse.normalise.unchanged import UnchangedRecords
from warehouse.schema.columns import BIT

_CHUNK_BYTES: Final = 1 << 20
_HEAD_BYTES: Final = 4_096


def read_export(
    landing: Landing,
    manifest: Manifest,
    tables: EventTables,
    rows: EventRows,
    unchanged: UnchangedRecords,
    known: KnownLists,
    *,
    trusted: bool = False,
) -> BatchCounts:
    """Read an export into the tables; return its counts.

    `known` says how lists were read so far; with `trusted`, the file's own evidence replaces it.
    """
    if (before := unchanged.same_body_as_before(manifest)) is not None:
        return before
    counts = BatchCounts()
    try:
        with _source(landing, manifest) as source:
            head = _head(source.chunks())
            if source.compression == "none":
                counts.note("gzip")
            if head.startswith(codecs.BOM_UTF8):
                counts.note("BOM")
            match kind_of(head):
                case "empty":
                    raise Unreadable("an empty body")
                case "html":
                    raise HtmlBody
                case "json":
                    counts.note("JSON in place of CSV")
                    sink = tables.sink()
                    read_lists(pages(landing, manifest), rows.row, sink, counts)
                    sink.close()
                    counts.rejected = sink.rejected
                case _:
                    _CsvExport(source, tables, rows, unchanged, counts, known, trusted).read()
    except Unreadable as error:
        counts.faults.append(f"the export is {error}")
    unchanged.note(manifest, counts)
    return counts


@contextmanager
def _source(landing: Landing, manifest: Manifest) -> Iterator[CsvSource]:
    """Yield the body as a file for DuckDB: the stored file, or an unpacked copy if it is gzip."""
    if not _head(landing.body(manifest)).startswith(GZIP_MAGIC):
        yield CsvSource(landing.body_path(manifest), "zstd", lambda: landing.body(manifest))
        return
    with tempfile.NamedTemporaryFile(suffix=".csv", dir=own_folder()) as file:
        for chunk in gunzip(landing.body(manifest), max_bytes=bounds.BODY_BYTES):
            file.write(chunk)
        file.flush()
        path = Path(file.name)
        yield CsvSource(path, "none", lambda: _chunks_of(path))


@dataclass(slots=True)
class _CsvExport:
    """A CSV export, and the tables that its rows go to."""

    source: CsvSource
    tables: EventTables
    rows: EventRows
    unchanged: UnchangedRecords
    counts: BatchCounts
    known: KnownLists
    trusted: bool

    def read(self) -> None:
        counts = self.counts
        columns = read_header(self.source.chunks())
        if not columns.too_many:
            for words in columns.notes():
                counts.note(words)
        if (fault := columns.fault()) is not None:
            counts.faults.append(f"the export has {fault}")
        if columns.too_many or columns.duplicates:
            counts.arrived = count_records(self.source)
            return
        why, lists = self._read(columns)
        if why is not None:
            counts.note(f"read by the tolerant reader: {why}")
        for words in lists.notes():
            counts.note(words)
        if not counts.arrived:
            counts.faults.append("the export is a header without rows")

    def _read(self, columns: Columns) -> tuple[str | None, ListForm]:
        """Read the file; return why the quick reader failed, and how its lists are read.

        If the rows leave a doubt, all cells of the file are weighed, and it is read again if they
        say otherwise. A column that contradicts what was learnt is not read at all.
        """
        used = form_of(self.known)
        why = self._read_once(columns, used, self.rows)
        if not self.trusted and not self.tables.has_doubtful_lists(self.known.learnt):
            return why, used
        cells = list_cells(self.tables.connection, self.source, columns)
        evidence = weigh(cells, self.known, trusted=self.trusted)
        self.counts.learnt = evidence.learnt
        self.counts.flagged = evidence.flag()
        if evidence.form == used and not evidence.contradicted:
            return why, used
        hidden = sum(BIT[column] for column in evidence.contradicted)
        # All rows are read in the form that was found, not only the new ones.
        self.unchanged.forget()
        rows = EventRows(self.rows.visible & ~hidden) if hidden else self.rows
        return self._read_once(columns, evidence.form, rows), evidence.form

    def _read_once(self, columns: Columns, lists: ListForm, rows: EventRows) -> str | None:
        """Read the file; return why the quick reader failed, or None."""
        counts = self.counts
        counts.rejected = 0
        self.tables.empty()
        why: str | None = "lists as JSON arrays"
        if not lists.json:
            why = self._read_quickly(Reading(columns, lists, rows.visible))
            if why is None:
                return None
            self.tables.empty()
        self.unchanged.forget()
        counts.arrived = 0
        sink = self.tables.sink()
        arrived = read_tolerantly(self.source, columns, rows, lists, sink, counts)
        sink.close()
        counts.arrived, counts.rejected = arrived, sink.rejected
        return why

    def _read_quickly(self, reading: Reading) -> str | None:
        """Read with DuckDB and count the records in parallel; return why that failed, or None."""
        counts = self.counts
        with ThreadPoolExecutor(1) as pool:
            counting = pool.submit(_counted, self.source)
            read = read_quickly(self.tables, self.source, reading, self.unchanged)
            counter = counting.result()
        if isinstance(read, str):
            return read
        if counter.has_nul:
            return "it contains NUL"
        counts.arrived = max(0, counter.records - 1)
        if read != counts.arrived:
            counts.arrived = count_records(self.source)
        return None if read == counts.arrived else f"{read} rows read of {counts.arrived}"


def _counted(source: CsvSource) -> QuickCounter:
    counter = QuickCounter()
    for chunk in source.chunks():
        counter.feed(chunk)
    return counter


def _head(chunks: Iterator[bytes]) -> bytes:
    """Return the first bytes of a body; a chunk may have any size."""
    head = b""
    while len(head) < _HEAD_BYTES and (chunk := next(chunks, b"")):
        head += chunk
    return head


def _chunks_of(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            yield chunk
