"""The files that a publication reads, by the names of the statements' parameters.

They are the files of the lake, and this machine's logs of its own requests, which are outside the
lake and not rebuilt by a replay:

    state/requests/*.jsonl    state/usage.jsonl

Belongs here: which files exist, and whether they changed. Does not: their columns (tables), their
use (publish).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any, Protocol

from warehouse.errors import LakeDamaged, WarehouseError
from warehouse.files import lake_paths
from warehouse.files.documents import find_damage
from warehouse.files.storage import Storage
from warehouse.sql import literal

STATE = ("events", "coins", "categories", "cancellations", "labels")
"""The files of a checkpoint that are read; also the parameters they are bound to."""


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
    """Find the files of some days of a chain, and those of its newest checkpoint.

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
    return {
        name: _checked_file(lake, lake_paths.checkpoint_table(checkpoint, name), files)
        for name in STATE
    }


def _state_hashes(newest: LakeDay) -> dict[str, str]:
    recorded = newest.meta["files"]
    names = {name: lake_paths.checkpoint_table(newest.meta["checkpoint"], name) for name in STATE}
    return {name: recorded[file] for name, file in names.items() if file in recorded}


def _checked_file(lake: Storage, name: str, files: Mapping[str, str] | None) -> str:
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
