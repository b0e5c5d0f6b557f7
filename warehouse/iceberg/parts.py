"""The parts of the Iceberg tables in the published file, and their files.

A part has a fingerprint: of the rows, or of the file of the lake that has them. The name of its
file in the table is `<part>--<fingerprint>--<random>.parquet`, so that a listing of the table's
files tells which parts are up to date, whatever was interrupted before.

`event_versions` has the versions before a time, the *cut*, in base files sorted by event, and the
others in one recent file that each commit replaces. The history of an event is in at most two
files. When the recent file grows, all versions are written to new base files.
"""

import hashlib
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import duckdb

from warehouse.files import lake_paths
from warehouse.files.storage import Storage
from warehouse.iceberg.lake_tables import LakeTable
from warehouse.sql import Statements

if TYPE_CHECKING:
    from warehouse.iceberg.step_parts import StepPart

_SQL: Final = Statements(__package__)
_SEPARATOR: Final = "--"
_SUFFIX: Final = ".parquet"
_DIGITS: Final = 16
RECENT_ROWS: Final = 20_000
RECENT_SHARE: Final = 50
"""The recent file grows up to this many versions, or one of so many of the base."""
BASE_ROWS: Final = 1_000_000
"""The most versions in a base file, except of a single event."""
_RECENT: Final = "recent"
_BASE: Final = "base"


@dataclass(frozen=True, slots=True)
class PartName:
    """The name of a part and the fingerprint of its rows, as in the name of its file."""

    part: str
    fingerprint: str

    def file_name(self) -> str:
        """Return a new name for the file of the part."""
        names = (self.part, self.fingerprint, uuid.uuid4().hex[:8])
        return _SEPARATOR.join(names) + _SUFFIX


def parse_part(path: str) -> PartName | None:
    """Return the part in the name of a data file; None if another program wrote the file."""
    names = path.rpartition("/")[2].removesuffix(_SUFFIX).split(_SEPARATOR)
    return PartName(names[0], names[1]) if len(names) == 3 else None


Write = Callable[[Path], Path]
"""Writes a part to a path, or returns the path of a file that has it and never changes."""
Parts = Mapping[PartName, Write]


class LoggedDay(NamedTuple):
    """A published day of the change log, with its file's sha256 and number of versions."""

    day: date
    sha256: str
    versions: int


class PublishedParts:
    """The parts of the published file, which is attached to a connection and in use."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, lake: Storage) -> None:
        self._connection = connection
        self._lake = lake
        rows = connection.execute(_SQL["list_days"]).fetchall()
        self.days = [LoggedDay(*row) for row in rows]

    def find(self, table: LakeTable, there: Collection[PartName]) -> Parts:
        """Return the parts that a table should have; `there` are those that it has."""
        if table.parts == "days":
            return {
                PartName(logged.day.isoformat(), logged.sha256[:_DIGITS]): self._day_file(logged)
                for logged in self.days
            }
        if table.parts == "versions":
            return self._find_versions(table, there)
        if table.parts == "steps":
            # Imported here, since it imports PyArrow.
            from warehouse.iceberg.step_parts import find_step_parts

            form = hash_form(table)
            return {
                PartName(part.name, digest(form, part)): self._step_file(part)
                for part in find_step_parts(self._connection)
            }
        rows = self._connection.execute(_SQL[f"list_{table.name}"]).fetchall()
        form = hash_form(table)
        return {
            PartName(str(part), digest(form, count, total)): self._write(
                f"write_{table.name}", {"part": str(part)}
            )
            for part, count, total in rows
        }

    def _day_file(self, logged: LoggedDay) -> Write:
        return lambda _: self._lake.path(lake_paths.changes_name(logged.day))

    def _step_file(self, part: "StepPart") -> Write:
        return lambda file: part.write(self._connection, file)

    def _write(self, statement: str, values: Mapping[str, object]) -> Write:
        def write(file: Path) -> Path:
            self._connection.execute(_SQL[statement], {**values, "file": str(file)})
            return file

        return write

    def _find_versions(self, table: LakeTable, there: Collection[PartName]) -> Parts:
        """Return base and recent parts: the base that the table has, if it can be kept."""
        if not self.days:
            return {}
        form = hash_form(table)
        base = {name for name in there if name.part.startswith(_BASE)}
        cut = self._kept_cut(form, base)
        found: dict[PartName, Write] = {}
        if cut is None:
            cut = self.days[-1].day
            found |= dict(self._new_base(form, cut))
        else:
            found |= dict.fromkeys(base, _kept)
        recent = PartName(_RECENT, digest(form, cut, self.days[-1].sha256))
        found[recent] = self._write("write_recent_event_versions", {"cut": _midnight(cut)})
        return found

    def _kept_cut(self, form: str, base: Collection[PartName]) -> date | None:
        """Return the cut of the base that a table has; None if it must be written again."""
        cuts = {name.part.split("_")[1] for name in base}
        if len(cuts) != 1:
            return None if base or sum(self._counts(date.min)) > RECENT_ROWS else date.min
        cut = date.fromisoformat(cuts.pop())
        expected = self._base_fingerprint(form, cut)
        if any(name.fingerprint != expected for name in base):
            return None
        before, after = self._counts(cut)
        return cut if after <= max(RECENT_ROWS, before // RECENT_SHARE) else None

    def _counts(self, cut: date) -> tuple[int, int]:
        """Return the number of versions before a day, and from it on."""
        before = sum(logged.versions for logged in self.days if logged.day < cut)
        return before, sum(logged.versions for logged in self.days) - before

    def _base_fingerprint(self, form: str, cut: date) -> str:
        """Return the fingerprint of all versions before a day: its file's hash has all before."""
        before = [logged.sha256 for logged in self.days if logged.day < cut]
        return digest(form, cut, before[-1] if before else "")

    def _new_base(self, form: str, cut: date) -> Iterator[tuple[PartName, Write]]:
        values = {"cut": _midnight(cut), "rows": BASE_ROWS}
        rows = self._connection.execute(_SQL["list_base_bounds"], values).fetchall()
        bounds: list[str | None] = [str(event_id) for (event_id,) in rows]
        fingerprint = self._base_fingerprint(form, cut)
        # No version is before the cut on the first day of a home.
        ends = [*bounds, None][1:]
        for number, (low, high) in enumerate(zip(bounds, ends, strict=True)):
            name = PartName(f"{_BASE}_{cut.isoformat()}_{number:04}", fingerprint)
            bound = {"cut": _midnight(cut), "low": low, "high": high}
            yield name, self._write("write_base_event_versions", bound)


def _kept(file: Path) -> Path:
    raise LookupError(f"{file.name} would be written, but the table has this part")


def _midnight(day: date) -> datetime:
    return datetime.combine(day, time(), UTC)


def digest(*values: object) -> str:
    """Return a fingerprint of some values."""
    text = "\0".join(map(str, values))
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]


def hash_form(table: LakeTable) -> str:
    """Return a hash of the statements and columns of a table, and of what computes hashes."""
    texts = [text for name, text in _SQL.texts.items() if name.endswith(table.name)]
    if table.parts == "steps":
        from warehouse.iceberg.step_parts import list_step_rules

        texts += list_step_rules()
    return digest(duckdb.__version__, table, *texts)
