"""The files that a publication reads, and the events by month that it writes to the lake.

    state/requests/*.jsonl    state/usage.jsonl       this machine's logs, which no replay rebuilds
    lake/events/event_month=YYYY-MM/events.parquet    for engines that read Parquet
    lake/events/_sha256.json                          the hash of each month's file

The events have the columns of `events_as_of` without `missing_since` and `last_pull_at`. A month is
rewritten if an event in it differs from the published one. During the write a marker names the
months: after a crash the next publication rewrites them too, whatever the comparison finds.
"""

from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec

from warehouse.errors import LakeDamaged, WarehouseError
from warehouse.files import lake_paths
from warehouse.files.documents import find_damage, format_document, hash_file, read_sealed, seal
from warehouse.files.storage import Storage
from warehouse.phases import report_phase
from warehouse.publish.published_file import StagedFile
from warehouse.schema.columns import GROUPS
from warehouse.sql import Statements, literal

STATE_OF_EVENTS: Final = ("seen", "content", "content_changes")
"""When and how events were seen; the content file; the content that differs from that file."""
STATE: Final = (*STATE_OF_EVENTS, "coins", "categories", "cancellations", "labels")
"""The tables of a checkpoint; also the parameters that their files are bound to."""
_SQL = Statements(__package__, GROUPS)
_SIDE_BY_SIDE: Final = 4
"""Months written in parallel: while one waits for the disk, others are compressed."""


class LakeDay(Protocol):
    """The required attributes of a day of the change log (change_log.py)."""

    @property
    def day(self) -> date: ...
    @property
    def sha256(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def meta(self) -> dict[str, Any]: ...


@dataclass(frozen=True, slots=True)
class Inputs:
    """Some days of the lake, and the state after the newest day, with the sha256 of its files."""

    days: tuple[LakeDay, ...]
    state: dict[str, str]
    changes: list[str]
    snapshots: list[str]
    rejects: list[str]
    absences: list[str]
    hashes: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # An empty lake has no files; any other lake has all of them.
        if len(self.changes) != len(self.days) or set(self.state) not in (set(), set(STATE)):
            raise ValueError(
                f"{len(self.days)} days have {len(self.changes)} files of changes, and the state "
                f"has {', '.join(self.state)}, expected one a day, and {', '.join(STATE)} or none"
            )

    def files(self) -> dict[str, Any]:
        """Return the values to bind, with None or an empty list for missing files."""
        lists = {
            **{"changes": self.changes, "snapshots": self.snapshots},
            **{"rejects": self.rejects, "absences": self.absences},
        }
        return {**dict.fromkeys(STATE), **self.state, **lists}


def find_inputs(lake: Storage, chain: Sequence[LakeDay], days: Sequence[LakeDay]) -> Inputs:
    """Find the files of some days of a chain, and of its newest checkpoint.

    Raises:
        WarehouseError: a file that the chain names is missing, or changed after it was written.
    """
    return Inputs(
        days=tuple(days),
        state=_state(lake, chain[-1]) if chain else {},
        changes=[
            _checked_file(lake, day_file.name, {day_file.name: day_file.sha256})
            for day_file in days
        ],
        snapshots=_files_of_kind(lake, days, lake_paths.COIN_SNAPSHOTS),
        rejects=_files_of_kind(lake, days, lake_paths.REJECTS),
        absences=_files_of_kind(lake, days, lake_paths.EVENT_ABSENCES),
        hashes=_state_hashes(chain[-1]) if chain else {},
    )


def _files_of_kind(lake: Storage, days: Sequence[LakeDay], kind: str) -> list[str]:
    """Return the files of one kind that days have in addition to their changes."""
    found: list[str] = []
    for day_file in days:
        recorded = day_file.meta["files"]
        folder = lake_paths.day_folder(kind, day_file.day)
        found += [
            _checked_file(lake, name, recorded) for name in recorded if name.startswith(folder)
        ]
    return found


def _state(lake: Storage, newest: LakeDay) -> dict[str, str]:
    checkpoint = newest.meta["checkpoint"]
    if checkpoint is None:
        raise WarehouseError(
            f"the newest day of the change log, {newest.day}, names no checkpoint, so the state "
            "after it is not known. The published warehouse is kept; run `almanac replay`."
        )
    files = newest.meta["files"]
    names = name_state_files(checkpoint, files)
    paths = {name: _checked_file(lake, name, files) for name in {*names.values()}}
    return {table: paths[name] for table, name in names.items()}


def _state_hashes(newest: LakeDay) -> dict[str, str]:
    recorded = newest.meta["files"]
    names = name_state_files(newest.meta["checkpoint"], recorded)
    return {table: recorded[name] for table, name in names.items() if name in recorded}


def name_state_files(checkpoint: str, recorded: Collection[str]) -> dict[str, str]:
    """Return the file of each table of a checkpoint, from the names that its day recorded.

    A home of 0.1 has the whole state of events in one file, which serves as each of the three.
    """
    names = {table: lake_paths.checkpoint_table(checkpoint, table) for table in STATE}
    if names["seen"] not in recorded:
        names |= dict.fromkeys(STATE_OF_EVENTS, lake_paths.checkpoint_table(checkpoint, "events"))
    return names


def _checked_file(lake: Storage, name: str, files: Mapping[str, str]) -> str:
    """Return the path of a file as DuckDB's readers take it, after a check of its hash."""
    path = lake.path(name)
    if not path.exists():
        raise LakeDamaged(
            f"{name} is not in the lake, though the change log names it. The published warehouse "
            "is kept; run `almanac replay`."
        )
    if (why := find_damage(lake, name, files)) is not None:
        raise LakeDamaged(
            f"{why}. It was changed since it was written. The published warehouse is kept; run "
            "`almanac replay`."
        )
    return literal(path)


@dataclass(frozen=True, slots=True)
class LocalState:
    """The files by the parameter they are bound to, and a fingerprint that changes with them."""

    files: dict[str, list[str]]
    fingerprint: str


def find_local_state(folder: Path | None) -> LocalState:
    """Find the logs of a state folder; it may have none."""
    found = {
        "requests": [] if folder is None else sorted(folder.glob("requests/*.jsonl")),
        "usage": [] if folder is None else sorted(folder.glob("usage.jsonl")),
    }
    found = {name: [path for path in paths if path.is_file()] for name, paths in found.items()}
    stats = [(path, path.stat()) for paths in found.values() for path in paths]
    return LocalState(
        files={name: [literal(path) for path in paths] for name, paths in found.items()},
        fingerprint=" ".join(
            f"{path.name}:{stat.st_size}:{stat.st_mtime_ns}" for path, stat in stats
        ),
    )


class _MonthHashes(msgspec.Struct, frozen=True, kw_only=True):
    months: dict[str, str]


def changed_months(staged: StagedFile) -> set[str]:
    """Return the months of events that a delta found to differ."""
    return {month for (month,) in staged.run(_SQL["find_changed_months"])}


@dataclass(frozen=True, slots=True)
class RewrittenMonths:
    """The months that were rewritten; `differing` are those whose events may have changed."""

    months: frozenset[str]
    differing: frozenset[str]


def write_events(staged: StagedFile, lake: Storage, months: set[str] | None) -> RewrittenMonths:
    """Rewrite some months, or all; a month without events is removed.

    The staged data must be committed.
    """
    unsettled = unsettled_months(lake)
    if months is not None:
        months = months | unsettled
        if not months:
            return RewrittenMonths(frozenset(), frozenset())
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
    same = {month for month, sha256 in written.items() if known.get(month) == sha256} - unsettled
    return RewrittenMonths(frozenset(touched), frozenset(touched - same))


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
    staged.run(_SQL["create_lake_events"])

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
