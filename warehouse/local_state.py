"""What this machine wrote down of its own requests: outside the lake, and not made by a replay.

    state/requests/*.jsonl    state/usage.jsonl

Belongs here: which files there are, and whether they changed. Does not: their columns (tables.py).
"""

from dataclasses import dataclass
from pathlib import Path

from warehouse.statements import literal


@dataclass(frozen=True, slots=True)
class LocalState:
    """The files by the parameter they are bound to, and a mark that changes when they do."""

    files: dict[str, list[str]]
    mark: str


def find_local_state(folder: Path | None) -> LocalState:
    """Find the logs of a state folder; none is no error."""
    if folder is None:
        return LocalState({}, "")
    found = {
        "requests": sorted(folder.glob("requests/*.jsonl")),
        "usage": sorted(folder.glob("usage.jsonl")),
    }
    found = {name: [path for path in paths if path.is_file()] for name, paths in found.items()}
    stats = [(path, path.stat()) for paths in found.values() for path in paths]
    return LocalState(
        files={name: [literal(path) for path in paths] for name, paths in found.items() if paths},
        mark=" ".join(f"{path.name}:{stat.st_size}:{stat.st_mtime_ns}" for path, stat in stats),
    )
