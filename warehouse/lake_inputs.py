"""The files of the lake that a publication reads, by the names of the statements' parameters.

Belongs here: which files, of which days. Does not: what is done with them (publish.py).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, Protocol

from warehouse.errors import WarehouseError
from warehouse.storage import Storage

STATE = ("events", "coins", "categories", "cancellations", "labels")
"""The files of a checkpoint that are read; also the parameters they are bound to."""


class DayFile(Protocol):
    """What is needed of a day of the change log (change_log.py)."""

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
    """Some days of the lake, and the state after the last day of all."""

    days: tuple[DayFile, ...]
    state: dict[str, str]
    changes: list[str]
    snapshots: list[str]
    rejects: list[str]

    def files(self) -> dict[str, Any]:
        """Return what can be bound; a parameter that would have no file is left out."""
        lists = {"changes": self.changes, "snapshots": self.snapshots, "rejects": self.rejects}
        return {**self.state, **{name: files for name, files in lists.items() if files}}


def find_inputs(lake: Storage, chain: Sequence[DayFile], days: Sequence[DayFile]) -> Inputs:
    """Find the files of some days of a chain, and those of its newest checkpoint.

    Raises:
        WarehouseError: a file that the chain speaks of is not there.
    """
    shown = [f"coin_snapshots/observed_date={one.day.isoformat()}/coins.parquet" for one in days]
    rejects = [f"rejects/observed_date={one.day.isoformat()}" for one in days]
    return Inputs(
        days=tuple(days),
        state=_state(lake, chain[-1]) if chain else {},
        changes=[str(_present(lake, one.name)) for one in days],
        snapshots=[str(lake.path(name)) for name in shown if lake.exists(name)],
        rejects=[str(lake.path(name)) for folder in rejects for name in lake.names(folder)],
    )


def _state(lake: Storage, newest: DayFile) -> dict[str, str]:
    checkpoint = newest.meta["checkpoint"]
    if checkpoint is None:
        raise WarehouseError(
            f"the newest day of the change log, {newest.day}, names no checkpoint, so the state "
            "after it is not known. The published warehouse stands; run `almanac replay`."
        )
    return {name: str(_present(lake, f"checkpoints/{checkpoint}/{name}.parquet")) for name in STATE}


def _present(lake: Storage, name: str) -> Path:
    path = lake.path(name)
    if not path.exists():
        raise WarehouseError(
            f"{name} is not in the lake, though the change log speaks of it. The published "
            "warehouse stands; run `almanac replay`."
        )
    return path
