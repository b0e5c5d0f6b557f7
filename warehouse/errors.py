"""What goes wrong with data at rest, sorted by what the caller does.

WarehouseError
├── LandingError      a batch that can't be landed or read; nothing else is touched
│   ├── DamagedBatch  what was landed is not what is there
│   │   ├── DamagedBody      of the body
│   │   └── DamagedManifest  of the manifest
│   └── BatchFailed   folding a batch failed by what is in it, foreseen or not: it is set aside
├── OwnFault          a fault of Almanac's own; no batch is set aside for it
├── UnknownBatch      no batch has this id
├── HomeRefused       the folder is another source's, or a newer Almanac's
│   └── DamagedStamp  home.json is not what was written
├── RunRecordsUnusable  a database of Dagster's can't be used; nothing of the warehouse is in it
│   ├── RunRecordsDamaged     it is not what was written: `almanac doctor --fix`
│   ├── RunRecordsBusy        another program has it: the same again, later
│   └── RunRecordsInaccessible  the disk is full, or this user may not use it
├── LockHeld          another process holds a lock of the home for longer than the wait
└── LakeDamaged       a file of the lake can't be read; `almanac replay` makes it again
"""

from typing import Final

QUERY_INTERRUPTED: Final = "Query interrupted"
"""What DuckDB says in a RuntimeError, where a signal's KeyboardInterrupt comes during a query."""


class WarehouseError(Exception):
    """Data at rest is not as it should be. The message says what state is left."""


class LandingError(WarehouseError):
    """A batch that can't be landed or read."""


class DamagedBatch(LandingError):
    """What was landed is not what is there: the disk or a hand changed it."""


class DamagedBody(DamagedBatch):
    """The bytes of a batch are not those that were landed."""


class DamagedManifest(DamagedBatch):
    """The manifest of a batch is gone, or is not what was written."""


class BatchFailed(LandingError):
    """Folding one batch failed, for a reason that lies in it. Never leaves a merge."""

    def __init__(self, batch_id: str, why: str) -> None:
        super().__init__(f"batch {batch_id} could not be folded: {why}")
        self.batch_id = batch_id
        self.why = why


class OwnFault(WarehouseError):
    """Almanac failed, whatever the data: nothing was set aside, and nothing is lost."""


class UnknownBatch(WarehouseError):
    """No batch has this id."""


class HomeRefused(WarehouseError):
    """The home can't be used as it was asked for; it was left as it is."""


class DamagedStamp(HomeRefused):
    """The stamp of a home is not what was written; what is landed says the source."""


class RunRecordsUnusable(WarehouseError):
    """A database in which Dagster keeps the history of runs can't be used."""


class RunRecordsDamaged(RunRecordsUnusable):
    """What is in it is not what was written."""


class RunRecordsBusy(RunRecordsUnusable):
    """Another program has it, for longer than is waited for; the same again may work."""


class RunRecordsInaccessible(RunRecordsUnusable):
    """The machine does not let it be used: the disk, or permissions."""


class LockHeld(WarehouseError):
    """Another process has the turn that was waited for; nothing was done."""


class LakeDamaged(WarehouseError):
    """A file of the lake is not what was written; landing still has all of it."""
