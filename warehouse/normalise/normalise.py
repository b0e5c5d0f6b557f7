"""Turn one landed batch into typed rows in canonical form, in temporary tables of a connection.

    seen              export, events, event, cancellations, deliveries
    unchanged         export: the events whose records are the same as before
    seen_coins        coins
    seen_categories   categories
    rejected          every feed: unreadable rows, with the reason

This module chooses the reader, compares the rows read with the bytes, and decides whether a batch
is quarantined. Nothing is kept between two calls; a second run gives the same result. Call it
outside a transaction: if one reader fails, another is used.
"""

import codecs
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

import duckdb
import msgspec

from almanac.reading.temporary import own_folder
from catalog.contract.plans import Plan
from warehouse import bounds
from warehouse.codecs import (
    GZIP_MAGIC,
    HtmlBody,
    UnreadableBody,
    detect_kind,
    gunzip,
    storable_text,
)
from warehouse.errors import LandingError
from warehouse.landing.batches import Manifest
from warehouse.landing.landing import Landing
from warehouse.normalise.csv_lists import (
    LIST_COLUMNS,
    KnownLists,
    ListForm,
    ListSeparators,
    make_form,
    weigh,
)
from warehouse.normalise.csv_reader import (
    Columns,
    CsvSource,
    Reading,
    count_records,
    list_cells,
    read_header,
    read_quickly,
    read_tolerantly,
)
from warehouse.normalise.export_records import UnchangedRecords
from warehouse.normalise.json_feeds import (
    read_cancellations,
    read_deliveries,
    read_lists,
    read_look_ups,
)
from warehouse.normalise.rows import CoinRows, EventRows, category_row
from warehouse.normalise.staging import BatchCounts, EventTables, Sink
from warehouse.schema.columns import BIT, GROUPS, plan_named, shown_by
from warehouse.sql import Statements

_SQL = Statements(__package__, GROUPS)

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
            match detect_kind(head):
                case "empty":
                    raise UnreadableBody("an empty body")
                case "html":
                    raise HtmlBody
                case "json":
                    counts.note("JSON in place of CSV")
                    bodies = landing.pages(manifest, max_bytes=bounds.PAGE_BYTES)
                    with tables.sink().filling(counts) as sink:
                        read_lists(bodies, rows.row, sink, counts)
                case _:
                    _CsvExport(source, tables, rows, unchanged, counts, known, trusted).read()
    except UnreadableBody as error:
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
        yield CsvSource(path, "none", lambda: _read_chunks(path))


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

        If the separator of a column is in doubt, all its cells are weighed; if they give another
        separator, the file is read again. A column that contradicts the learnt separator is left
        out.
        """
        used = make_form(self.known)
        why = self._read_once(columns, used, self.rows)
        doubtful = self.tables.doubtful_lists(self.known.learnt)
        if self.trusted:
            doubtful = list(LIST_COLUMNS)
        if not doubtful:
            return why, used
        cells = list_cells(self.tables.connection, self.source, columns, doubtful)
        evidence = weigh(cells, self.known, trusted=self.trusted)
        self.counts.learnt = evidence.learnt
        self.counts.flagged = evidence.flag()
        if evidence.form == used and not evidence.contradicted:
            return why, used
        hidden = sum(BIT[column] for column in evidence.contradicted)
        # All rows are read in the form that was found, not only the new ones.
        self.unchanged.forget()
        self.tables.empty()
        rows = EventRows(self.rows.visible & ~hidden) if hidden else self.rows
        return self._read_once(columns, evidence.form, rows), evidence.form

    def _read_once(self, columns: Columns, lists: ListForm, rows: EventRows) -> str | None:
        """Read the file; return why the quick reader failed, or None."""
        counts = self.counts
        counts.rejected = 0
        why: str | None = "lists as JSON arrays"
        if not lists.json:
            reading = Reading(columns, lists, rows.visible)
            read = read_quickly(self.tables, self.source, reading, self.unchanged)
            if isinstance(read, int):
                counts.arrived = read
                return None
            why = read
            self.tables.empty()
        self.unchanged.forget()
        counts.arrived = 0
        with self.tables.sink().filling(counts) as sink:
            arrived = read_tolerantly(self.source, columns, rows, lists, sink, counts)
        counts.arrived = arrived
        return why


def _head(chunks: Iterator[bytes]) -> bytes:
    """Return the first bytes of a body; a chunk may have any size."""
    head = b""
    while len(head) < _HEAD_BYTES and (chunk := next(chunks, b"")):
        head += chunk
    return head


def _read_chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            yield chunk


REJECTED_SHARE: Final = 0.01
REJECTED_LEAST: Final = 10
"""A batch with more than this share of rows rejected, and at least so many, is quarantined: it is
probably no catalog. Not one of deliveries, each of which is a fact of its own."""
_NOTE_CHARS: Final = 500
_NOTES_MAX: Final = 20


class NormalisedBatch(msgspec.Struct, frozen=True, kw_only=True):
    """The counts of a batch: good + rejected + ignored = arrived, unless it is quarantined."""

    arrived: int
    """Rows, counted from the bytes, not by the reader that filled the tables."""
    good: int
    rejected: int
    duplicates: int
    """Good rows beyond the first of each id."""
    ignored: int
    """Deliveries of a type we don't know: stored, counted, not applied."""
    quarantine: str | None
    """Why the batch is quarantined, None if it is not."""
    notes: tuple[str, ...]
    """The accepted variants that occurred in the batch."""
    flagged: str | None = None
    """Why the batch proves no absence, None if it may."""
    learnt: ListSeparators | None = None
    """The list separators that are known after this export; None if it was not asked."""


def normalise(
    connection: duckdb.DuckDBPyConnection,
    landing: Landing,
    manifest: Manifest,
    unchanged: UnchangedRecords | None = None,
    *,
    known: KnownLists | None = None,
    trusted: bool = False,
) -> NormalisedBatch:
    """Fill the tables of the batch's feed as far as its rows can be read; return the counts.

    With `unchanged`, records of an export that the state accepted before are not in `seen`: they
    are counted as good, and are in the view `unchanged`. `known` says how the lists of an export
    are read; with `trusted`, what the batch itself says of them goes first.

    Raises:
        DamagedBody: the bytes are not those that were landed.
        LandingError: the plan is not known.
    """
    connection.execute("SET TimeZone = 'UTC'")
    try:
        if manifest.feed in ("coins", "categories"):
            read = _lists(connection, landing, manifest)
        else:
            read = _events(connection, landing, manifest, unchanged, known or KnownLists(), trusted)
    except Exception:
        # A failure of every reader may come from damage on disk.
        landing.check(manifest)
        raise
    if read.quarantine is not None:
        landing.check(manifest)
    return read


def _events(
    connection: duckdb.DuckDBPyConnection,
    landing: Landing,
    manifest: Manifest,
    unchanged: UnchangedRecords | None,
    known: KnownLists,
    trusted: bool,
) -> NormalisedBatch:
    tables = EventTables(connection, manifest)
    if unchanged is None:
        unchanged = UnchangedRecords(connection)
        unchanged.forget()
    else:
        unchanged.begin()
    rows = EventRows(shown_by(_plan(manifest)))
    if manifest.feed == "export":
        counts = read_export(landing, manifest, tables, rows, unchanged, known, trusted=trusted)
    else:
        counts = BatchCounts()
        bodies = landing.pages(manifest, max_bytes=bounds.PAGE_BYTES)
        with tables.sink().filling(counts) as sink, _noting(counts):
            match manifest.feed:
                case "events":
                    read_lists(bodies, rows.row, sink, counts)
                case "event":
                    read_look_ups(bodies, manifest, rows, sink, counts)
                case "cancellations":
                    read_cancellations(bodies, sink, counts)
                case _:
                    read_deliveries(bodies, rows, sink, counts)
    read, unread, ids = tables.counts()
    if unread:
        tables.reject()
    good = read - unread + unchanged.count
    of_catalog = manifest.feed != "deliveries"
    rejected = counts.rejected + unread
    return _account(counts, good, rejected, read - unread - ids, of_catalog=of_catalog)


def _lists(
    connection: duckdb.DuckDBPyConnection, landing: Landing, manifest: Manifest
) -> NormalisedBatch:
    for name in ("rejected", manifest.feed):
        connection.execute(_SQL[f"create_{name}"])
    counts = BatchCounts()
    make = CoinRows(_plan(manifest)).row if manifest.feed == "coins" else category_row
    bodies = landing.pages(manifest, max_bytes=bounds.PAGE_BYTES)
    target = Sink(connection, manifest.batch_id, _SQL[f"insert_{manifest.feed}"], {})
    with target.filling(counts) as sink, _noting(counts):
        read_lists(bodies, make, sink, counts)
    ((good, ids),) = connection.execute(_SQL[f"count_{manifest.feed}"]).fetchall()
    return _account(counts, good, counts.rejected, good - ids)


@contextmanager
def _noting(counts: BatchCounts) -> Iterator[None]:
    """Record a body that can't be read to its end as a fault of the batch."""
    try:
        yield
    except UnreadableBody as error:
        counts.faults.append(f"the batch has {error}")


def _account(
    counts: BatchCounts, good: int, rejected: int, duplicates: int, *, of_catalog: bool = True
) -> NormalisedBatch:
    accounted = good + rejected + counts.ignored
    if accounted != counts.arrived:
        counts.faults.append(f"{counts.arrived} rows arrived, and {accounted} were read")
    too_many = counts.rejected > bounds.REJECTS or rejected > REJECTED_SHARE * counts.arrived
    if of_catalog and rejected >= REJECTED_LEAST and too_many:
        counts.faults.append(f"{rejected} of {counts.arrived} rows can't be read")
    return NormalisedBatch(
        arrived=counts.arrived,
        good=good,
        rejected=rejected,
        duplicates=duplicates,
        ignored=counts.ignored,
        quarantine=_shortened("; ".join(counts.faults[:5])) or None,
        notes=tuple(_shortened(words) for words in islice(counts.notes, _NOTES_MAX)),
        flagged=counts.flagged,
        learnt=counts.learnt,
    )


def _shortened(words: str) -> str:
    """Return text that quotes the input, in a form and length that can be stored."""
    return storable_text(words[:_NOTE_CHARS])


def _plan(manifest: Manifest) -> Plan:
    try:
        return plan_named(manifest.plan)
    except ValueError as error:
        raise LandingError(f"batch {manifest.batch_id}: its plan {error}") from error
