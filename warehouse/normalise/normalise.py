"""Turn one landed batch into typed rows in canonical form, in temporary tables of a connection.

    seen              export, events, event, cancellations, deliveries
    unchanged         export: the events whose records are the same as before
    seen_coins        coins
    seen_categories   categories
    rejected          every feed: what can't be read, with the reason

Belongs here: the choice of a reader, and whether a batch is quarantined. Does not: the effect of a
batch on the history (fold.py). Nothing is kept between two calls; run twice, a batch gives the
same. Call it outside a transaction: if one reader fails, another is used.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Final

import duckdb
import msgspec

from catalog.contract.plans import Plan
from warehouse import bounds
from warehouse.errors import LandingError
from warehouse.landing.batches import Manifest
from warehouse.landing.landing import Landing
from warehouse.normalise.csv_lists import KnownLists, ListSeparators
from warehouse.normalise.export import read_export
from warehouse.normalise.json_feeds import (
    read_cancellations,
    read_deliveries,
    read_lists,
    read_look_ups,
)
from warehouse.normalise.json_rows import CoinRows, EventRows, category_row
from warehouse.normalise.payloads import Unreadable, pages
from warehouse.normalise.sink import BatchCounts, Sink
from warehouse.normalise.staging import EventTables
from warehouse.normalise.unchanged import UnchangedRecords
from warehouse.normalise.values import storable_text
from warehouse.schema.columns import GROUPS, plan_named, shown_by
from warehouse.sql import Statements

_SQL = Statements(__package__, GROUPS)

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
        sink = tables.sink()
        bodies = pages(landing, manifest)
        with _noting(counts):
            match manifest.feed:
                case "events":
                    read_lists(bodies, rows.row, sink, counts)
                case "event":
                    read_look_ups(bodies, manifest, rows, sink, counts)
                case "cancellations":
                    read_cancellations(bodies, sink, counts)
                case _:
                    read_deliveries(bodies, rows, sink, counts)
        sink.close()
        counts.rejected = sink.rejected
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
    sink = Sink(connection, manifest.batch_id, _SQL[f"insert_{manifest.feed}"], {})
    counts = BatchCounts()
    make = CoinRows(_plan(manifest)).row if manifest.feed == "coins" else category_row
    with _noting(counts):
        read_lists(pages(landing, manifest), make, sink, counts)
    sink.close()
    count = _SQL[f"count_{manifest.feed}"]
    good, ids = connection.execute(count).fetchall()[0]
    counts.rejected = sink.rejected
    return _account(counts, good, counts.rejected, good - ids)


@contextmanager
def _noting(counts: BatchCounts) -> Iterator[None]:
    """Record a body that can't be read to its end as a fault of the batch."""
    try:
        yield
    except Unreadable as error:
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
