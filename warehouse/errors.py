"""Errors of stored data. Each says whether the caller repairs, waits, replays or stops."""

from typing import Final

from almanac.errors import WarehouseError as WarehouseError

QUERY_INTERRUPTED: Final = "Query interrupted"
"""Text of the RuntimeError that DuckDB raises if a signal interrupts a query."""


class LandingError(WarehouseError):
    """A batch that does not exist, or can't be landed or read; nothing else is affected."""


class DamagedBatch(LandingError):
    """The files of a batch changed after landing, by a disk error or by a person."""


class BatchFailed(LandingError):
    """The merge of a batch failed because of its content. A merge quarantines the batch."""

    def __init__(self, batch_id: str, why: str) -> None:
        super().__init__(f"batch {batch_id} could not be folded: {why}")
        self.batch_id = batch_id
        self.why = why
