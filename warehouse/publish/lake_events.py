"""The current events in the lake, by event month, for engines that read Parquet.

    lake/events/event_month=YYYY-MM/events.parquet
    lake/events/_sha256.json          the hash of each of them when it was written

Their columns are those of `events_as_of` without `missing_since` and `last_pull_at`. A month is
rewritten if an event in it differs from the published one. During the write a marker names the
months: after a crash the next publication rewrites them too, whatever the comparison finds.
"""

from concurrent.futures import ThreadPoolExecutor
from typing import Final

import msgspec

from warehouse.errors import LakeDamaged
from warehouse.files import lake_paths
from warehouse.files.documents import format_document, hash_file, read_sealed, seal
from warehouse.files.storage import Storage
from warehouse.phases import report_phase
from warehouse.publish.staged_file import StagedFile
from warehouse.schema.columns import GROUPS
from warehouse.sql import Statements

_SQL = Statements(__package__, GROUPS)

SORTED_ABOVE: Final = 8
"""With more months than this, sorting all events once is cheaper than one scan per month."""
_SIDE_BY_SIDE: Final = 4
"""Months written in parallel: while one waits for the disk, others are compressed."""


class _MonthHashes(msgspec.Struct, frozen=True, kw_only=True):
    months: dict[str, str]


def changed_months(staged: StagedFile) -> set[str]:
    """Return the months of events that a delta found to differ."""
    return {month for (month,) in staged.run(_SQL["find_changed_months"])}


def write_events(staged: StagedFile, lake: Storage, months: set[str] | None) -> int:
    """Rewrite some months, or all, and return their number; a month without events is removed.

    The staged data must be committed.
    """
    if months is not None:
        months = months | unsettled_months(lake)
        if not months:
            return 0
    try:
        known = read_hashes(lake)
    except LakeDamaged:
        known = {}
    if not known:
        months = None  # It is not known which of them are unchanged.
    filled = {month for (month,) in staged.run(_SQL["list_months"])}
    touched = months if months is not None else filled | _existing_months(lake)
    lake.put(lake_paths.EVENTS_MARKER, msgspec.json.encode(sorted(touched)))
    for month in touched - filled:
        lake.remove_folder(lake_paths.month_folder(month))
    written = _write_months(staged, lake, sorted(touched & filled))
    kept = {month: sha256 for month, sha256 in known.items() if month not in touched}
    months_now = dict(sorted({**kept, **written}.items()))
    lake.put(lake_paths.EVENTS_HASHES, seal(format_document(_MonthHashes(months=months_now))))
    return len(touched)


def read_hashes(lake: Storage) -> dict[str, str]:
    """Return the sha256 of each month's file; none if none is recorded.

    Raises:
        LakeDamaged: the record changed after it was written.
    """
    path = lake.path(lake_paths.EVENTS_HASHES)
    if not path.exists():
        return {}
    try:
        return read_sealed(path.read_bytes(), _MonthHashes).months
    except (OSError, ValueError) as error:
        raise LakeDamaged(
            f"{lake_paths.EVENTS_HASHES} of the lake can't be read: {error}. "
            "`almanac replay` makes it again."
        ) from error


def settle(lake: Storage) -> None:
    """Remove the marker of rewritten months, once the matching warehouse is published."""
    lake.remove(lake_paths.EVENTS_MARKER)


def unsettled_months(lake: Storage) -> set[str]:
    """Return the months that may differ from the published ones, since a publication failed."""
    if not lake.exists(lake_paths.EVENTS_MARKER):
        return set()
    try:
        return set(msgspec.json.decode(lake.read(lake_paths.EVENTS_MARKER), type=list[str]))
    except (OSError, ValueError):
        return _existing_months(lake)  # It is not known which months it named.


def _write_months(staged: StagedFile, lake: Storage, months: list[str]) -> dict[str, str]:
    """Write some months; return the sha256 of each file."""
    is_sorted = len(months) > SORTED_ABOVE
    staged.run(_SQL["create_lake_events_by_date" if is_sorted else "create_lake_events"])

    def write(month: str) -> str:
        with lake.writing(lake_paths.month_name(month)) as file:
            values = {"month": month, "file": str(file)}
            staged.run_beside(_SQL["write_month"], values)
            return hash_file(file)

    hashes: dict[str, str] = {}
    with ThreadPoolExecutor(_SIDE_BY_SIDE) as pool:
        for month, sha256 in zip(months, pool.map(write, months), strict=True):
            report_phase("write months", len(hashes), len(months))
            hashes[month] = sha256
    return hashes


def _existing_months(lake: Storage) -> set[str]:
    months = map(lake_paths.parse_month, lake.folders(lake_paths.EVENTS))
    return {month for month in months if month is not None}
