"""The head of a lake: which day of the change log is the newest, and the sha256 of its file.

    lake/head.json

Of every other day the day after it has the hash. Belongs here: writing it, and what a merge is to
do again by it. Does not: the days (change_log.py).
"""

from datetime import date
from typing import Final

import msgspec

from warehouse.change_log import DayFile
from warehouse.errors import LakeDamaged
from warehouse.hashes import formatted, read_sealed, sealed
from warehouse.storage import Storage

HEAD: Final = "head.json"


class LakeHead(msgspec.Struct, frozen=True, kw_only=True):
    """Where the change log ends. Nothing follows the newest day that would have its hash."""

    day: date | None
    sha256: str | None
    unfinished_from: date | None
    """The first day that a fold set out to write; None once it has written them all."""


def read_head(lake: Storage) -> LakeHead | None:
    """Return the head of a lake, None where none was written yet.

    Raises:
        LakeDamaged: it can't be read, or is not what was written.
    """
    path = lake.path(HEAD)
    if not path.exists():
        return None
    try:
        return read_sealed(path.read_bytes(), LakeHead)
    except (OSError, ValueError) as error:
        raise LakeDamaged(
            f"{HEAD} of the lake can't be read: {error}. `almanac merge` makes it again."
        ) from error


def write_head(lake: Storage, newest: DayFile | None, *, unfinished_from: date | None) -> None:
    """Write which day is the newest. `unfinished_from`: a fold sets out to write from there on."""
    head = LakeHead(
        day=None if newest is None else newest.day,
        sha256=None if newest is None else newest.sha256,
        unfinished_from=unfinished_from,
    )
    lake.put(HEAD, sealed(formatted(head)))


def doubtful_from(lake: Storage, days: list[DayFile]) -> date | None:
    """Return the first day to fold again by what the head says, None where all is as written.

    A fold was cut short, or the newest day is not the one that was written.
    """
    newest = days[-1] if days else None
    try:
        head = read_head(lake)
    except LakeDamaged:
        return None if newest is None else newest.day
    if head is None:
        # An older Almanac wrote the lake; or the head is gone, and the day may be another.
        return None if newest is None or newest.head.files is None else newest.day
    if head.unfinished_from is not None:
        return head.unfinished_from
    if head.day is None or (newest is not None and newest.sha256 == head.sha256):
        return None
    return head.day if newest is None else min(head.day, newest.day)
