"""Errors of data at rest, sorted by what the caller does next.

WarehouseError        of almanac.errors
├── LandingError      a batch that can't be landed or read; nothing else is affected
│   ├── DamagedBatch  the files of the batch changed after landing
│   │   ├── DamagedBody      of the body
│   │   └── DamagedManifest  of the manifest
│   └── BatchFailed   the content of a batch made folding fail: the batch is quarantined
├── OwnFault          an error in Almanac; no batch is quarantined for it
├── UnknownBatch      no batch has this id
├── HomeRefused       the folder belongs to another source, or to a newer Almanac
│   └── DamagedStamp  home.json changed after it was written
├── RunRecordsUnusable  a Dagster database can't be used; it holds no warehouse data
│   ├── RunRecordsDamaged     it changed after it was written: `almanac doctor --fix`
│   ├── RunRecordsBusy        another program uses it: try again later
│   └── RunRecordsInaccessible  the disk is full, or this user may not use it
├── InboxUnusable     a file of the inbox of deliveries can't be read or written
├── CheckUnfinished   the machine could not finish a check; the data is not at fault
├── LockHeld          another process holds a lock of the home for longer than the wait
└── LakeDamaged       a file of the lake can't be read; `almanac replay` rebuilds it
"""

from typing import Final

from almanac.errors import WarehouseError

__all__ = [
    "QUERY_INTERRUPTED",
    "BatchFailed",
    "CheckUnfinished",
    "DamagedBatch",
    "DamagedBody",
    "DamagedManifest",
    "DamagedStamp",
    "HomeRefused",
    "InboxUnusable",
    "LakeDamaged",
    "LandingError",
    "LockHeld",
    "OwnFault",
    "RunRecordsBusy",
    "RunRecordsDamaged",
    "RunRecordsInaccessible",
    "RunRecordsUnusable",
    "UnknownBatch",
    "WarehouseError",
]

QUERY_INTERRUPTED: Final = "Query interrupted"
"""Text of the RuntimeError that DuckDB raises if a signal interrupts a query."""


class CheckUnfinished(WarehouseError):
    """The machine has too little disk or memory for a check, which says nothing of the data."""


class LandingError(WarehouseError):
    """A batch that can't be landed or read."""


class DamagedBatch(LandingError):
    """The files of a batch changed after landing, by a disk error or by hand."""


class DamagedBody(DamagedBatch):
    """The bytes of a batch are not those that were landed."""


class DamagedManifest(DamagedBatch):
    """The manifest of a batch is missing, or changed after it was written."""


class BatchFailed(LandingError):
    """Folding one batch failed because of its content. A merge always handles it."""

    def __init__(self, batch_id: str, why: str) -> None:
        super().__init__(f"batch {batch_id} could not be folded: {why}")
        self.batch_id = batch_id
        self.why = why


class OwnFault(WarehouseError):
    """An error in Almanac, independent of the data: nothing was quarantined or lost."""


class UnknownBatch(WarehouseError):
    """No batch has this id."""


class HomeRefused(WarehouseError):
    """The home can't be used as requested; it was not changed."""


class DamagedStamp(HomeRefused):
    """The stamp of a home changed after it was written; the landed batches record the source."""


class RunRecordsUnusable(WarehouseError):
    """A Dagster database with the history of runs can't be used."""


class RunRecordsDamaged(RunRecordsUnusable):
    """Its content changed after it was written."""


class RunRecordsBusy(RunRecordsUnusable):
    """Another program used it for the whole wait; a second try may succeed."""


class RunRecordsInaccessible(RunRecordsUnusable):
    """The disk is full, or this user lacks permission."""


class InboxUnusable(WarehouseError):
    """A file of the inbox can't be used; what was landed before is in landing."""


class LockHeld(WarehouseError):
    """Another process still holds the lock; nothing was done."""


class LakeDamaged(WarehouseError):
    """A file of the lake changed after it was written; landing still has all the data."""
