"""Turn one landed batch into typed rows in canonical form, in temporary tables of a connection.

    seen              export, events, event, cancellations, deliveries
    unchanged         export: the events whose records are as last accepted; not in `seen`
    seen_coins        coins
    seen_categories   categories
    rejected          every feed: unreadable rows, with the reason

This module chooses the reader, compares the rows read with the bytes, and decides whether a batch
is quarantined. Nothing is kept between two calls; a second run gives the same result. Do not read
an export in a transaction: a file that DuckDB refuses would abort it.
"""

import codecs
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import islice
from typing import Final

import duckdb
import msgspec

from almanac.core.statements import Statements
from almanac.reading.csv_file import CsvSource, read_chunks
from almanac.user_files import find_kind
from catalog.contract.plans import Plan
from warehouse import size_limits
from warehouse.codecs import (
    GZIP_MAGIC,
    UTF_16,
    HtmlBody,
    UnreadableBody,
    as_utf8,
    detect_kind,
    gunzip,
    storable_text,
)
from warehouse.errors import LandingError
from warehouse.landing.batches import Manifest
from warehouse.landing.body_files import find_base
from warehouse.landing.landing import Landing
from warehouse.normalise.csv_reader import KnownLists, read_csv, temporary_file
from warehouse.normalise.json_feeds import (
    read_cancellations,
    read_deliveries,
    read_lists,
    read_look_ups,
)
from warehouse.normalise.rows import CoinRows, EventRows, category_row
from warehouse.normalise.staging import BatchCounts, EventTables, Sink
from warehouse.schema.columns import GROUPS, find_plan, mask_shown_fields

_SQL = Statements(__package__, GROUPS)

_HEAD_BYTES: Final = 4_096
_RENAMED: Final = ("missing columns: ", "unknown columns: ")


def _read_export(
    landing: Landing,
    manifest: Manifest,
    tables: EventTables,
    rows: EventRows,
    counts: BatchCounts,
    known: KnownLists,
    *,
    finds_unchanged: bool,
) -> None:
    with _noting(counts, "the export is"), _body(landing, manifest, counts) as body:
        head = _head(body.chunks())
        if head.startswith(codecs.BOM_UTF8):
            counts.note("BOM")
        match detect_kind(head):
            case "empty":
                raise UnreadableBody("an empty body")
            case "html":
                raise HtmlBody
            case "json":
                counts.note("JSON in place of CSV")
                bodies = landing.pages(manifest, max_bytes=size_limits.PAGE_BYTES)
                with tables.sink().filling(counts) as sink:
                    if read_lists(bodies, rows.row, sink, counts):
                        counts.faults.append("the export is one page of a list: more pages follow")
            case _ if (kind := find_kind(head)) is not None:
                raise UnreadableBody(kind.partition(";")[0])
            case _:
                renamed = manifest.export_columns or {}
                visible = rows.visible
                read_csv(
                    body, tables, visible, counts, known, renamed, finds_unchanged=finds_unchanged
                )


@contextmanager
def _body(landing: Landing, manifest: Manifest, counts: BatchCounts) -> Iterator[CsvSource]:
    """Yield the body as a file for DuckDB: the stored file, or a copy of what it can't read."""
    with ExitStack() as stack:
        body = CsvSource(
            landing.body_path(manifest), lambda: landing.body(manifest), compression="zstd"
        )
        if find_base(landing.body_path(manifest)) is not None:
            body = stack.enter_context(_copied(body.chunks()))
        is_gzip = _head(body.chunks()).startswith(GZIP_MAGIC)

        def unpack() -> Iterator[bytes]:
            chunks = body.chunks()
            return gunzip(chunks, max_bytes=size_limits.BODY_BYTES) if is_gzip else chunks

        is_utf16 = _head(unpack()).startswith(UTF_16)
        for words in ("gzip",) * is_gzip + ("UTF-16",) * is_utf16:
            counts.note(words)
        if is_gzip or is_utf16:
            yield stack.enter_context(_copied(as_utf8(unpack())))
        else:
            yield body


@contextmanager
def _copied(chunks: Iterator[bytes]) -> Iterator[CsvSource]:
    with temporary_file(chunks) as path:
        yield CsvSource(path, lambda: read_chunks(path))


def _head(chunks: Iterator[bytes]) -> bytes:
    """Return the first bytes of a body; a chunk may have any size."""
    head = b""
    for chunk in chunks:
        head += chunk
        if len(head) >= _HEAD_BYTES:
            break
    return head


REJECTED_SHARE: Final = 0.01
REJECTED_LEAST: Final = 10
"""A batch with more than this share of rows rejected, and at least so many, is quarantined: it is
probably no catalog. Does not apply to deliveries, which are independent of each other."""
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
    """Deliveries of an unknown type: stored and counted, but not applied."""
    quarantine: str | None
    """Why the batch is quarantined, None if it is not."""
    notes: tuple[str, ...]
    """The accepted variants that occurred in the batch."""
    learnt: str | None = None
    """The separator of lists, if none was known and this export shows it."""


def normalise(
    connection: duckdb.DuckDBPyConnection,
    landing: Landing,
    manifest: Manifest,
    *,
    known: KnownLists | None = None,
    finds_unchanged: bool = False,
) -> NormalisedBatch:
    """Fill the tables of the batch's feed as far as its rows can be read; return the counts.

    With `finds_unchanged`, records of an export that the state (`current_versions`) last accepted
    are not in `seen`: they are counted as good, and are in the table `unchanged`. `known` describes
    the lists of exports, as far as they are known.

    Raises:
        DamagedBatch: the bytes are not those that were landed.
        LandingError: the plan is not known.
    """
    connection.execute("SET TimeZone = 'UTC'")
    try:
        if manifest.feed in ("coins", "categories"):
            read = _lists(connection, landing, manifest)
        else:
            read = _events(
                connection,
                landing,
                manifest,
                known or KnownLists(),
                finds_unchanged=finds_unchanged,
            )
    except Exception:
        # A failure of every reader may come from damage on disk.
        landing.check(manifest)
        raise
    if read.quarantine is not None:
        landing.check(manifest)
    return read


def judge_export(
    connection: duckdb.DuckDBPyConnection, landing: Landing, manifest: Manifest
) -> tuple[NormalisedBatch, str | None]:
    """Return an export as a merge reads it, and why a part of it is lost or in doubt, or None."""
    read = normalise(connection, landing, manifest)
    if read.rejected:
        ((position, reason),) = connection.execute(_SQL["first_reject"]).fetchall()
        why = read.quarantine or f"{read.rejected} of {read.arrived} rows can't be read"
        return read, f"{why}; the first is row {position + 1}: {reason}"
    if read.quarantine is not None:
        return read, read.quarantine
    end = b""
    with _body(landing, manifest, BatchCounts()) as body:
        for chunk in body.chunks():
            end = chunk or end
    if not read.arrived:
        return read, "the list is empty"
    columns = [words for words in read.notes if words.startswith(_RENAMED)]
    if len(columns) == len(_RENAMED):
        return read, f"{'; '.join(columns)}: a column may be renamed"
    is_whole = end.endswith((b"\n", b"\r", b'"', b"}", b"]"))
    return read, None if is_whole else "the last line has no line end: the file may be cut off"


def _events(
    connection: duckdb.DuckDBPyConnection,
    landing: Landing,
    manifest: Manifest,
    known: KnownLists,
    *,
    finds_unchanged: bool,
) -> NormalisedBatch:
    tables = EventTables(connection, manifest)
    rows = EventRows(mask_shown_fields(_plan(manifest)))
    counts = BatchCounts()
    if manifest.feed == "export":
        _read_export(
            landing, manifest, tables, rows, counts, known, finds_unchanged=finds_unchanged
        )
    else:
        bodies = landing.pages(manifest, max_bytes=size_limits.PAGE_BYTES)
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
    good = read - unread + counts.unchanged
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
    bodies = landing.pages(manifest, max_bytes=size_limits.PAGE_BYTES)
    target = Sink(connection, manifest.batch_id, _SQL[f"insert_{manifest.feed}"], {})
    with target.filling(counts) as sink, _noting(counts):
        read_lists(bodies, make, sink, counts)
    ((good, ids),) = connection.execute(_SQL[f"count_{manifest.feed}"]).fetchall()
    return _account(counts, good, counts.rejected, good - ids)


@contextmanager
def _noting(counts: BatchCounts, what: str = "the batch has") -> Iterator[None]:
    """Record a body that can't be read to its end as a fault of the batch."""
    try:
        yield
    except UnreadableBody as error:
        counts.faults.append(f"{what} {error}")


def _account(
    counts: BatchCounts, good: int, rejected: int, duplicates: int, *, of_catalog: bool = True
) -> NormalisedBatch:
    accounted = good + rejected + counts.ignored
    if accounted != counts.arrived:
        counts.faults.append(f"{counts.arrived} rows arrived, and {accounted} were read")
    too_many = counts.rejected > size_limits.REJECTS or rejected > REJECTED_SHARE * counts.arrived
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
        learnt=counts.learnt,
    )


def _shortened(words: str) -> str:
    """Return text that quotes the input, in a form and length that can be stored."""
    return storable_text(words[:_NOTE_CHARS])


def _plan(manifest: Manifest) -> Plan:
    try:
        return find_plan(manifest.plan)
    except ValueError as error:
        raise LandingError(f"batch {manifest.batch_id}: its plan {error}") from error
