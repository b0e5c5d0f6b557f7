"""Errors of stored data. Each says whether the caller repairs, waits, rebuilds or stops."""

import errno
import os
from typing import Final

from almanac.core.errors import WarehouseError

_OF_THE_DISK: Final = tuple(
    map(os.strerror, (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO))
)
DISK_ADVICE: Final = (
    "Finished work is kept, and the warehouse is as last published. Check the free space of the "
    "disk, its permissions and the limit of file sizes (`ulimit -f`), then run the command again."
)


def is_of_the_disk(error: Exception) -> bool:
    """Whether an error says that the disk is full, read-only or damaged."""
    return any(text in str(error) for text in _OF_THE_DISK)


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
