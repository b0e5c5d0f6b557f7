"""The rows of a CSV export: its columns, the separator of its lists, its unchanged records.

DuckDB reads the lines of the file, joins those within quotes to records, and compares them with the
records that the state last accepted, read in the same way. It reads the cells of the new records
only. If one of these is not RFC 4180 or hides others, the `csv` module reads the whole file. Either
way the cells are texts that `sql/` makes rows of.
"""

import codecs
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, Final

import duckdb

from almanac.core.connections import parse
from almanac.core.errors import InvalidArgument
from almanac.core.files import own_folder
from almanac.core.statements import Statements
from almanac.reading.csv_file import RECORD_BYTES, CsvFault, CsvSource
from almanac.user_files import find_header
from catalog.contract.bodies import fold
from catalog.contract.records import EVENT_FIELDS, LIST_SEPARATOR
from warehouse import size_limits
from warehouse.codecs import storable_text
from warehouse.normalise.rows import BadRow, match_columns, shows
from warehouse.normalise.staging import BatchCounts, EventTables
from warehouse.schema.columns import BIT, GROUPS, NAMES

SEPARATORS: Final = (LIST_SEPARATOR, "|", ",")
"""The possible list separators. If several fit equally well, the first is chosen."""
_LISTS: Final = ("categories", "coins")
_WIRE_FOLDED: Final = {fold(name): place for place, name in enumerate(EVENT_FIELDS)}
_SQL = Statements(__package__, GROUPS)
_HEADER_BYTES: Final = 1 << 16
_NAMES_MAX: Final = 200
_NAME_CHARS: Final = 200
"""The most category names with a separator in them that are kept whole."""
_CELLS_MAX: Final = 100_000
"""The most distinct cells searched for the separator if DuckDB can't read the file."""
_FIRST_CELLS: Final = 1_000
"""Records whose cells are searched for the separator before all are."""
_CELL: Final = r'(?:[^",\x00]*|"(?:[^"\x00]|"")*")'
_REGULAR: Final = f"{_CELL}(?:,{_CELL})*"
"""The pattern of a record that all readers read as this one record; `,` is the delimiter."""

Values = dict[str, Any]
"""Parameters of a statement by name."""


@dataclass(frozen=True, slots=True)
class KnownLists:
    """A home's knowledge of lists: the category names and ids, and the separator, if known."""

    names: frozenset[str] = frozenset()
    separator: str | None = None

    def element(self, separator: str) -> str:
        """Return the pattern of one list element; a known name that contains the separator is not
        split."""
        joined = [name for name in self.names if separator in name and len(name) <= _NAME_CHARS]
        whole = sorted(joined, key=lambda name: (-len(name), name))[:_NAMES_MAX]
        return f"(?:{'|'.join([*map(re.escape, whole), f'[^{separator}]'])})+"


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of a file: all names, and the positions of the known columns and the extras."""

    names: tuple[str, ...]
    places: dict[str, int]
    extras: dict[str, int]

    @property
    def duplicates(self) -> list[str]:
        """Return names that occur twice, even in another spelling."""
        times = Counter(fold(name) or name for name in self.names)
        return [name for name in self.names if times[fold(name) or name] > 1]

    @property
    def too_many(self) -> bool:
        return len(self.names) > size_limits.KEYS

    def notes(self) -> Iterator[str]:
        """Yield how these columns differ from the contract's."""
        ours = [name for name in self.names if fold(name) in _WIRE_FOLDED]
        order = [_WIRE_FOLDED[fold(name)] for name in ours]
        if order != sorted(order):
            yield "columns in another order"
        missing = [name for name in EVENT_FIELDS if fold(name) not in set(map(fold, ours))]
        if missing:
            yield f"missing columns: {', '.join(missing)}"
        if self.extras:
            yield f"unknown columns: {', '.join(sorted(self.extras))[:200]}"

    def fault(self) -> str | None:
        """Return why this is not a header of events, or None."""
        if self.too_many:
            return f"{len(self.names)} columns; expected at most {size_limits.KEYS}"
        if self.duplicates:
            return f"columns that occur twice: {', '.join(self.duplicates)[:200]}"
        found = f"its columns are {', '.join(self.names)[:200]}"
        if "event_id" not in self.places:
            return f"no column id; {found}"
        if "title" not in self.places and "date" not in self.places:
            return f"neither a column title nor a column date; {found}"
        return None


def make_columns(names: list[str]) -> Columns:
    described = tuple(
        storable_text(name.strip()) or f"column {place}" for place, name in enumerate(names, 1)
    )
    keys, extras = match_columns(described)
    at = {name: place for place, name in enumerate(described)}
    return Columns(
        described,
        {column: at[key] for column, key in keys.items()},
        {name: at[name] for name in extras},
    )


def read_csv(
    body: CsvSource,
    tables: EventTables,
    visible: int,
    counts: BatchCounts,
    known: KnownLists,
    renamed: Mapping[str, str],
    *,
    finds_unchanged: bool,
) -> None:
    """Read the bytes of an export into the tables.

    `visible` has the bits of the fields that the plan shows, `renamed` the field of each column
    with another name.
    """
    head = b""
    for chunk in body.chunks():
        head += chunk
        if len(head) > (_HEADER_BYTES if b"\n" in head or b"\r" in head else RECORD_BYTES):
            break
    try:
        header = find_header("the export", head.removeprefix(codecs.BOM_UTF8))
    except InvalidArgument as error:
        counts.faults.append(str(error))
        return
    names = [renamed.get(name.strip(), name) for name in header.names]
    while names and not names[-1].strip():
        names.pop()  # A spreadsheet also saves empty columns.
    columns = make_columns(names)
    if header.delimiter != ",":
        counts.note(f"fields separated by {header.delimiter!r}")
    if not columns.too_many:
        for words in columns.notes():
            counts.note(words)
    if (fault := columns.fault()) is not None:
        counts.faults.append(f"the export has {fault}")
    if not names:
        return
    source = replace(body, fields=len(names), skip=header.line, delimiter=header.delimiter)
    if columns.too_many or columns.duplicates:
        records = source.records()
        with suppress(CsvFault):
            records.count()
        counts.arrived = records.records
        return
    export = CsvExport(source, columns, tables, visible, counts, known)
    export.read(finds_unchanged=finds_unchanged)
    if not counts.arrived:
        counts.faults.append("the export is a header without rows")


@dataclass(frozen=True, slots=True)
class CsvExport:
    """A CSV export, and the tables that its records go to."""

    source: CsvSource
    columns: Columns
    tables: EventTables
    visible: int
    counts: BatchCounts
    known: KnownLists

    def read(self, *, finds_unchanged: bool) -> None:
        separator = None
        try:
            separator = self._read_records(self.source, finds_unchanged=finds_unchanged)
        except duckdb.InvalidInputException:
            with temporary_file(_unify_line_ends(self.source.chunks())) as path:
                source = replace(self.source, path=path, compression="none")
                with suppress(duckdb.InvalidInputException):
                    separator = self._read_records(source, finds_unchanged=finds_unchanged)
        self.tables.connection.execute("DROP TABLE IF EXISTS records")
        if separator is None:
            self.tables.empty()
            self.counts.note("read by the tolerant reader")
            separator = self._read_tolerantly()
        if separator != LIST_SEPARATOR:
            self.counts.note(f"lists joined with {separator}")

    def _read_records(self, source: CsvSource, *, finds_unchanged: bool) -> str | None:
        """Read the new records, and list the unchanged ones.

        Returns the separator of lists; None if not all records are certain.

        Raises:
            duckdb.InvalidInputException: the reader refuses a record.
        """
        rows, file = source.rows()
        cells = {name: self._cell(name) for name in _LISTS}
        first = _SQL.fill("first_list_cells", rows=rows, **cells)
        separator = (
            self._find_separator(first, file | {"first": _FIRST_CELLS})
            or self._find_separator(first, file | {"first": None})
            or LIST_SEPARATOR
        )
        reading = self._reading(separator)
        if not self._find_records(source, reading, finds_unchanged=finds_unchanged):
            return None
        ((arrived, unchanged),) = self._run("count_records")
        with ExitStack() as stack:
            new = source
            if unchanged:
                lines = _as_lines(self._run("list_new_records"))
                path = stack.enter_context(temporary_file(lines))
                new = replace(source, path=path, compression="none", skip=0)
            if unchanged < arrived:
                rows, file = new.rows()
                records = _SQL.fill("take_new_records", rows=rows, cells=", ".join(new.cells))
                select, values = self._select(records, reading)
                self.tables.insert(select, file | values)
        ((read, repeated),) = self._run("count_read")
        if repeated:  # The content of all records of an event decides which is used.
            self.tables.empty()
            return self._read_records(source, finds_unchanged=False)
        if read != arrived - unchanged:
            return None
        self.counts.arrived, self.counts.unchanged = arrived, unchanged
        return separator

    def _find_records(self, source: CsvSource, reading: Values, *, finds_unchanged: bool) -> bool:
        """Fill `records` and `unchanged`; return whether all records may be certain."""
        values = {name: source.rows()[1][name] for name in ("path", "compression", "skip")}
        digest = {"reading": reading["reading"]}
        accepted = _SQL["list_accepted" if finds_unchanged else "list_none_accepted"]
        self._run("read_lines", values | digest, accepted=accepted)
        ((odd,),) = self._run("count_odd_lines")
        if odd:
            self._run("join_lines", digest, accepted=accepted)
            regular = _REGULAR.replace(",", re.escape(source.delimiter))
            ((irregular,),) = self._run("count_irregular", {"regular": regular})
            if irregular or self._hides_records():
                return False
        self._run("take_unchanged")
        return True

    def _run(self, name: str, values: Values | None = None, **parts: str) -> list[tuple[Any, ...]]:
        statement = parse(_SQL.fill(name, **parts))
        return self.tables.connection.execute(statement, values).fetchall()

    def _hides_records(self) -> bool:
        """Whether a line within a new record looks like a record of its own."""
        source = self.source
        values = {"delimiter": source.delimiter, "fields": source.fields}
        doubtful = _as_lines(self._run("list_doubtful_records", values))
        reader = replace(source, chunks=lambda: iter(doubtful), skip=0).records()
        try:
            reader.count()
        except CsvFault:
            return True
        return reader.fault is not None

    def _find_separator(self, list_cells: str, values: Values) -> str | None:
        """Return the known separator, or else the separator that splits most cells into known
        elements."""
        if self.known.separator is not None:
            return self.known.separator
        separators = [
            {"mark": mark, "element": self.known.element(mark), "place": place}
            for place, mark in enumerate(SEPARATORS)
        ]
        values = values | {"names": sorted(self.known.names), "separators": separators}
        found = self._run("find_separator", values, list_cells=list_cells)
        self.counts.learnt = found[0][0] if found else None
        return self.counts.learnt

    def _list_cells(self) -> list[list[str | None]]:
        """Return the distinct cells of lists, as the `csv` module reads them."""
        found: dict[tuple[str | None, ...], None] = {}
        places = [self.columns.places.get(name) for name in _LISTS]
        with suppress(CsvFault):
            for cells, fault in self.source.records():
                if fault is None and len(cells) == self.source.fields and len(found) < _CELLS_MAX:
                    found[tuple(p if p is None else storable_text(cells[p]) for p in places)] = None
        return list(map(list, found))

    def _read_tolerantly(self) -> str:
        """Read record by record. Records that are not rows are rejected, each with its position.

        Returns the separator of lists.
        """
        counts, fields = self.counts, self.source.fields
        cells = [] if self.known.separator else self._list_cells()
        separator = (
            self._find_separator(_SQL["given_list_cells"], {"cells": cells}) or LIST_SEPARATOR
        )
        records = _SQL.fill(
            "json_records",
            cells=", ".join(f"record[{place + 2}] AS c{place}" for place in range(fields)),
        )
        select, values = self._select(records, self._reading(separator))
        with self.tables.sink(select, values).filling(counts) as sink:
            try:
                for cells_read, fault in self.source.records():
                    if fault is None and not any(cells_read):
                        continue
                    reason = None if fault is None else fault.reason
                    if reason is None and len(cells_read) != fields:
                        reason = f"expected {fields} columns, got {len(cells_read)}"
                    if reason is None:
                        try:
                            sink.add([str(counts.arrived), *cells_read])
                        except BadRow as error:
                            reason = str(error)
                    if reason is not None:
                        sink.reject(counts.arrived, reason, cells_read)
                    counts.arrived += 1
            except CsvFault as end:
                sink.reject(counts.arrived, f"the rest of the file: {end.reason}", [])
                counts.arrived += 1
        return separator

    def _reading(self, separator: str) -> Values:
        """Return how records are read: a digest of a record depends on it."""
        lists = {"separator": separator, "element": self.known.element(separator)}
        return {"reading": repr((self.columns.names, self.visible, lists)), **lists}

    def _select(self, records: str, reading: Values) -> tuple[str, Values]:
        places = self.columns.places
        shown = sum(BIT[name] for name in places if name in BIT and shows(self.visible, name))
        values = {"shown": shown, **reading}
        cells = ", ".join(f'{self._cell(name)} AS "{name}"' for name in ("event_id", *NAMES))
        parts = {"records": records, "cells": cells, "extra": self._extra(values)}
        return _SQL.fill("csv_events", **parts), values

    def _cell(self, name: str) -> str:
        """Return the cell of a column that the plan shows, else NULL."""
        place = self.columns.places.get(name)
        if place is None or (name != "event_id" and not shows(self.visible, name)):
            return "NULL::VARCHAR"
        return f"c{place}"

    def _extra(self, values: Values) -> str:
        if not self.columns.extras:
            return "NULL::VARCHAR"
        pairs = []
        for number, name in enumerate(sorted(self.columns.extras)):
            values[f"extra_{number}"] = name
            pairs.append(f"$extra_{number}::VARCHAR, almanac_clean(c{self.columns.extras[name]})")
        return f"json_object({', '.join(pairs)})::VARCHAR"


def _as_lines(rows: list[tuple[str]]) -> list[bytes]:
    return [f"{text}\n".encode() for (text,) in rows]


@contextmanager
def temporary_file(chunks: Iterable[bytes]) -> Iterator[Path]:
    """Yield a file with these bytes, which ends with the context."""
    with NamedTemporaryFile(suffix=".csv", dir=own_folder()) as file:
        file.writelines(chunks)
        file.flush()
        yield Path(file.name)


def _unify_line_ends(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Replace CRLF with LF: files with CRLF between records often have LF within texts."""
    held = b""
    for chunk in chunks:
        block = held + chunk
        held = b"\r" if block.endswith(b"\r") else b""
        yield block.removesuffix(held).replace(b"\r\n", b"\n")
    yield held
