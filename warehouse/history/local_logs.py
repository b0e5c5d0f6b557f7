"""This machine's logs of requests and of the quota, as tables. A rebuild does not restore the logs.

state/requests/*.jsonl    state/usage.jsonl
"""

from dataclasses import dataclass
from glob import escape
from pathlib import Path

from warehouse.history.warehouse_file import NextFile

FACT = "local_logs"
"""The key under which the file stores the fingerprint of its logs."""


@dataclass(frozen=True, slots=True)
class LocalLogs:
    """The files of each table, and a fingerprint that changes with them."""

    files: dict[str, list[str]]
    fingerprint: str

    def load(self, file: NextFile) -> None:
        """Replace the tables that are made from the logs, if these changed."""
        if file.facts.get(FACT) == self.fingerprint:
            return
        for table, paths in self.files.items():
            file.run("empty_log", {"table": table})
            if paths:
                file.run(f"insert_{table}", files=paths)
        file.note_fact(FACT, self.fingerprint)


def find_local_logs(state: Path) -> LocalLogs:
    """Find the logs in a state folder; it may have none."""
    found = {
        "requests": sorted(state.glob("requests/*.jsonl")),
        "usage": sorted(state.glob("usage.jsonl")),
    }
    found = {table: [path for path in paths if path.is_file()] for table, paths in found.items()}
    stats = [(path.name, path.stat()) for paths in found.values() for path in paths]
    return LocalLogs(
        {table: [escape(str(path)) for path in paths] for table, paths in found.items()},
        " ".join(f"{name}:{stat.st_size}:{stat.st_mtime_ns}" for name, stat in stats),
    )
