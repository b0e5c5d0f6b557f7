"""The measured sides: how each is installed and run, and where it keeps its history."""

import json
import subprocess
import sys
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Self

from bench.children import ROOT, ChildFailed, environment_without_settings, make_environment

HERE: Final = Path(__file__).parent
ALMANAC: Final = "Almanac"
ONE_FILE: Final = "one_file"
ONE_FILE_ALSO: Final = "one_file+"
LATE: Final = "a late day"
_LOG_CHARS: Final = 2_000


@dataclass(frozen=True, slots=True)
class Side:
    """A measured side. `rows` is the table of its history, or the statement that selects it."""

    name: str
    module: str
    rows: str
    requirements: str = ""
    words: tuple[str, ...] = ()
    cannot: tuple[str, ...] = (LATE,)
    """What it cannot do; the comparison confirms it."""


SIDES: Final = (
    Side(ALMANAC, "almanac_side", rows="rows_of_almanac", cannot=()),
    Side(ONE_FILE, "one_file", rows="event_versions"),
    Side(ONE_FILE_ALSO, "one_file", rows="event_versions", words=("--also",)),
    Side("dlt", "dlt_side", rows="history.events", requirements="dlt.txt"),
    Side("dbt", "dbt_side", rows="rows_of_dbt", requirements="dbt.txt"),
)


class RunningSide:
    """A side in a process of its own, which takes exports one after another."""

    def __init__(self, side: Side, folder: Path) -> None:
        """Start it in a folder that has the exports as `incoming.csv`."""
        self.side = side
        self.folder = folder / side.name
        self.folder.mkdir()
        self._log = self.folder.with_suffix(".log")
        has_pins = bool(side.requirements)
        python = make_environment(HERE / side.requirements) if has_pins else sys.executable
        command = [python, "-m", f"bench.peers.{side.module}", self.folder]
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [*map(str, command), *side.words],
                cwd=folder,
                env={**environment_without_settings(), "PYTHONPATH": str(ROOT)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self.versions: dict[str, str] = self._read_answer()

    def take(self, known_at: datetime) -> dict[str, float]:
        """Return the figures of the export in `incoming.csv`.

        Raises:
            ChildFailed: the side ended.
        """
        assert self._process.stdin is not None
        self._process.stdin.write(known_at.isoformat() + "\n")
        self._process.stdin.flush()
        figures: dict[str, float] = self._read_answer()
        return figures

    def measure_bytes(self) -> dict[str, float]:
        """Return the size of its file and of its folder in MB."""
        files = [path.stat() for path in self.folder.rglob("*") if path.is_file()]
        sizes = {entry.st_ino: entry.st_size for entry in files}  # Hard links count once.
        return {
            "warehouse.duckdb, MB": self.file.stat().st_size / 1e6,
            "all files, MB": sum(sizes.values()) / 1e6,
        }

    @property
    def file(self) -> Path:
        return self.folder / "warehouse.duckdb"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def _read_answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        if not (line := self._process.stdout.readline()):
            raise ChildFailed(f"{self.side.name} ended:\n{self._log.read_text()[-_LOG_CHARS:]}")
        answer: dict[str, Any] = json.loads(line)
        return answer
