"""The files of a lake: which belong to it, their recorded hashes, and which exist.

    lake/head.json    the newest day of the change log, and the sha256 of its file

The hash of every other day is in the file of the next day. Belongs here: the list, the head, damage
by hand or disk, and making room for a replay. Does not: the content of a file (change_log,
checkpoints, lake_events).
"""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import msgspec

from warehouse.errors import LakeDamaged
from warehouse.files import lake_paths
from warehouse.files.hashes import damage, formatted, read_sealed, sealed
from warehouse.files.storage import Storage
from warehouse.history.change_log import ChangeLog, DayFile, records_of
from warehouse.history.checkpoints import Checkpoints, worth_keeping
from warehouse.home import Home
from warehouse.publish import lake_events


class LakeHead(msgspec.Struct, frozen=True, kw_only=True):
    """The end of the change log. It has the hash of the newest day, which no later file records."""

    day: date | None
    sha256: str | None
    unfinished_from: date | None
    """The first day that a fold in progress writes; None once it has written all days."""


def read_head(lake: Storage) -> LakeHead | None:
    """Return the head of a lake, None if none was written yet.

    Raises:
        LakeDamaged: it can't be read, or changed after it was written.
    """
    path = lake.path(lake_paths.HEAD)
    if not path.exists():
        return None
    try:
        return read_sealed(path.read_bytes(), LakeHead)
    except (OSError, ValueError) as error:
        raise LakeDamaged(
            f"{lake_paths.HEAD} of the lake can't be read: {error}. `almanac merge` makes it again."
        ) from error


def write_head(lake: Storage, newest: DayFile | None, *, unfinished_from: date | None) -> None:
    """Write which day is the newest. `unfinished_from`: a fold is about to write from that day."""
    head = LakeHead(
        day=None if newest is None else newest.day,
        sha256=None if newest is None else newest.sha256,
        unfinished_from=unfinished_from,
    )
    lake.put(lake_paths.HEAD, sealed(formatted(head)))


def doubtful_from(lake: Storage, days: list[DayFile]) -> date | None:
    """Return the first day to refold according to the head, None if nothing changed.

    A day is returned if a fold was interrupted, or the newest day is not the one in the head.
    """
    newest = days[-1] if days else None
    try:
        head = read_head(lake)
    except LakeDamaged:
        return None if newest is None else newest.day
    if head is None:
        # An older Almanac wrote the lake; or the head is missing, and the day may have changed.
        return None if newest is None or newest.head.files is None else newest.day
    if head.unfinished_from is not None:
        return head.unfinished_from
    if head.day is None or (newest is not None and newest.sha256 == head.sha256):
        return None
    return head.day if newest is None else min(head.day, newest.day)


_MENDED_BY = "`almanac replay` rebuilds it"


@dataclass(frozen=True, slots=True)
class LakeFiles:
    """The files that a lake should have, with their sha256; None if it is not recorded."""

    hashes: dict[str, str | None]
    sealed: tuple[str, ...]
    """Files that contain their own hash."""

    @property
    def unrecorded(self) -> int:
        return sum(sha256 is None for sha256 in self.hashes.values())

    def damaged(self, lake: Storage) -> Iterator[str]:
        """Yield a line for each file that is missing, changed, or does not belong to the lake."""
        there = set(_there(lake))
        for name, expected in self.hashes.items():
            if name not in there:
                yield f"{name} is missing; {_MENDED_BY}"
            elif expected is not None:
                why = damage(lake, name, {name: expected})
                if why is not None:
                    yield f"{why}; {_MENDED_BY}"
        for name in sorted(there - self.hashes.keys() - set(self.sealed)):
            yield f"{name} does not belong to the lake; `almanac replay` removes it"


def files_of(lake: Storage, days: list[DayFile]) -> LakeFiles:
    """Return the files of the days of a change log, and the published events by month.

    Raises:
        LakeDamaged: the record of the events by month can't be read.
    """
    hashes: dict[str, str | None] = {}
    kept = worth_keeping([day_file.day for day_file in days])
    for day_file in days:
        hashes[day_file.name] = day_file.sha256
        hashes.update(_of_day(lake, day_file, keeps_checkpoint=day_file.day in kept))
    months = lake_events.recorded(lake)
    unsettled = lake_events.unsettled_months(lake)
    if months is None:
        hashes.update(dict.fromkeys(lake_events.names(lake)))
    else:
        hashes.update(
            {
                lake_paths.month_name(month): None if month in unsettled else sha256
                for month, sha256 in months.items()
            }
        )
    own = (lake_paths.HEAD, lake_paths.EVENTS_HASHES, lake_paths.EVENTS_MARKER)
    return LakeFiles(hashes, own)


def is_whole(lake: Storage, day_file: DayFile) -> bool:
    """Whether the files of a day are unchanged, by hash: the index compares only size and times."""
    files = day_file.head.files or {}
    beside = (lake_paths.coins_name(day_file.day), lake_paths.absences_name(day_file.day))
    wrong = (
        damage(lake, day_file.name, {day_file.name: day_file.sha256}),
        *(damage(lake, name, files) for name in beside),
    )
    return not any(wrong)


def released_before(home: Home) -> list[str]:
    """Return the ids of the batches that were folded as released."""
    days, _ = ChangeLog.of(home).readable()
    return [str(record["batch_id"]) for record in records_of(days) if record["released"]]


def remove_obstacles(home: Home) -> None:
    """Remove whatever blocks a path where a replay makes a folder or a file."""
    root = home.lake.root
    for path in (root, *(root / name for name in lake_paths.FOLDERS)):
        _remove_unless_folder(path)
    for folder in lake_paths.FOLDERS:
        inside = (root / folder).iterdir() if (root / folder).is_dir() else ()
        for path in inside:
            if not path.name.startswith("_"):
                _remove_unless_folder(path)
    if home.warehouse.is_dir():
        shutil.rmtree(home.warehouse)


def remove_surplus(home: Home) -> None:
    """Remove files that belong to no day of the lake, once all days were rebuilt."""
    days = ChangeLog.of(home).days()
    files = files_of(home.lake, days)
    for name in _there(home.lake):
        if name not in files.hashes and name not in files.sealed:
            home.lake.remove(name)


def _of_day(lake: Storage, day_file: DayFile, *, keeps_checkpoint: bool) -> dict[str, str | None]:
    files = day_file.head.files
    if files is not None:
        return {
            name: sha256
            for name, sha256 in files.items()
            if keeps_checkpoint or not name.startswith(f"{lake_paths.CHECKPOINTS}/")
        }
    # An older Almanac wrote the day: return the files that it would have written.
    named = day_file.head.checkpoint if keeps_checkpoint else None
    checkpoint = [] if named is None else Checkpoints(lake).files(named)
    kinds = (lake_paths.REJECTS, lake_paths.COIN_SNAPSHOTS, lake_paths.EVENT_ABSENCES)
    beside = [
        name for kind in kinds for name in lake.names(lake_paths.day_folder(kind, day_file.day))
    ]
    return dict.fromkeys([*checkpoint, *beside])


def _there(lake: Storage) -> list[str]:
    """Return the names of all finished files of a lake, and of folders in place of a file."""
    found: list[str] = []
    for path in sorted(lake.root.rglob("*")) if lake.root.is_dir() else ():
        parts = path.relative_to(lake.root).parts
        is_file = not path.is_dir() or (path.suffix and not any(path.iterdir()))
        if is_file and not any(part.startswith(".unfinished-") for part in parts):
            found.append("/".join(parts))
    return found


def _remove_unless_folder(path: Path) -> None:
    if path.exists() and not path.is_dir():
        path.unlink()
