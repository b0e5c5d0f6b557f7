"""The rows of a CSV export: its columns, the separator of its lists, its unchanged records.

DuckDB reads the file (almanac/reading/csv_file.py). If it can't read each record for certain, the
`csv` module reads all of them. Either way the cells are texts that `sql/` makes rows of.

A record is unchanged if the state last accepted the same texts for its event, read in the same way.
It is counted, and not read again.
"""

import codecs
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING, Any, Final

from almanac.errors import InvalidArgument
from almanac.reading.csv_file import RECORD_BYTES, CsvFault, CsvSource, read_chunks
from almanac.reading.temporary_files import own_folder
from almanac.user_files import find_header
from catalog.contract.bodies import fold
from catalog.contract.records import EVENT_FIELDS, LIST_SEPARATOR
from warehouse import size_limits
from warehouse.codecs import storable_text
from warehouse.normalise.csv_lines import Lines, numbers, split
from warehouse.normalise.rows import BadRow, match_columns, shows
from warehouse.normalise.staging import BatchCounts, EventTables
from warehouse.schema.columns import BIT, GROUPS, NAMES
from warehouse.sql import Statements, parse

if TYPE_CHECKING:
    import pyarrow as pa

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
_FIRST_CELLS: Final = 5_000
_OTHER_TEXTS: Final = ("observed_text", "content_text", "cancelled_text")

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


@dataclass(frozen=True, slots=True)
class CsvBody:
    """The body of an export as a file, and a function that reads its bytes from the start."""

    path: Path
    compression: str
    chunks: Callable[[], Iterator[bytes]]


def read_csv(
    body: CsvBody,
    tables: EventTables,
    visible: int,
    counts: BatchCounts,
    known: KnownLists,
    *,
    finds_unchanged: bool,
) -> None:
    """Read an export into the tables; `visible` has the bits of the fields that the plan shows."""
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
    names = list(header.names)
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
    source = CsvSource(
        body.path, body.chunks, len(names), header.line, header.delimiter, body.compression
    )
    if columns.too_many or columns.duplicates:
        records = source.records()
        with suppress(CsvFault):
            records.count()
        counts.arrived = records.records
        return
    export = _CsvExport(source, columns, tables, visible, counts, known)
    export.read(finds_unchanged=finds_unchanged)
    if not counts.arrived:
        counts.faults.append("the export is a header without rows")


@dataclass(frozen=True, slots=True)
class _CsvExport:
    """A CSV export, and the tables that its records go to."""

    source: CsvSource
    columns: Columns
    tables: EventTables
    visible: int
    counts: BatchCounts
    known: KnownLists

    def read(self, *, finds_unchanged: bool) -> None:
        counts = self.counts
        lines = split(b"".join(self.source.chunks()), self.source.skip, self.source.delimiter)
        if lines is not None and self._read_lines(lines, finds_unchanged=finds_unchanged):
            return
        del lines
        digest = f"hash({', '.join(self.source.cells)})"
        columns = {"id": self._cell("event_id"), "digest": digest}
        if self.known.separator is None:
            columns |= {name: self._cell(name) for name in _LISTS}
        # A connection of its own: DuckDB refuses some files with an error.
        with self.tables.connection.cursor() as beside:
            select = ", ".join(f"{text} AS {name}" for name, text in columns.items())
            # An empty row, as spreadsheets save, is left to the tolerant reader.
            select += f" WHERE coalesce({', '.join(self.source.cells)}) IS NOT NULL"
            arrived = self.source.read(beside, select)
        separator = self.known.separator
        if separator is None:
            cells = self._read_list_cells() if arrived is None else arrived
            separator = counts.learnt = self._find_separator(cells)
        separator = separator or LIST_SEPARATOR
        if separator != LIST_SEPARATOR:
            counts.note(f"lists joined with {separator}")
        lists = {"separator": separator, "element": self.known.element(separator)}
        reading = {"reading": repr((self.columns.names, self.visible, lists))}
        if arrived is None:
            counts.note("read by the tolerant reader")
            self._read_tolerantly(lists, reading)
            return
        counts.arrived = arrived.num_rows
        if finds_unchanged:
            self._find_unchanged(arrived, reading)
        if counts.unchanged == counts.arrived:
            return
        del arrived  # The rows need its memory.
        rows, values = self.source.rows()
        if counts.unchanged:
            records = f"{rows}\nSELECT {digest} AS digest, *"
            records = _SQL["take_new_records"].replace("{records}", records)
        else:
            records = f"{rows}\nSELECT NULL::BIGINT AS place, {digest} AS digest, *"
        select, more = self._select(records, lists, reading)
        self.tables.insert(select, values | more)

    def _read_lines(self, lines: Lines, *, finds_unchanged: bool) -> bool:
        """Read an export whose lines are records; return whether all were certain."""
        import numpy as np

        connection, counts = self.tables.connection, self.counts
        every = np.arange(len(lines))
        separator, cells = self.known.separator, None
        if separator is None:
            if (cells := self._read_cells(lines, every)) is None:
                return False
            separator = counts.learnt = self._find_separator(self._list_cells(cells))
        separator = separator or LIST_SEPARATOR
        if separator != LIST_SEPARATOR:
            counts.note(f"lists joined with {separator}")
        listed = {"separator": separator, "element": self.known.element(separator)}
        reading = {"reading": repr(("lines", self.columns.names, self.visible, listed))}
        counts.arrived = len(lines)
        connection.register("arrived", lines.table())
        connection.execute(parse(_SQL["hash_lines"]))
        connection.unregister("arrived")
        if finds_unchanged:
            self._find_unchanged(None, reading)
        while True:
            new = connection.execute(parse(_SQL["list_new_lines"])).fetchnumpy()
            places = new["place"]
            counts.unchanged = len(lines) - len(places)
            if not len(places):
                return True
            if cells is None or counts.unchanged:
                cells = self._read_cells(lines, places)
            if cells is None:
                counts.unchanged = counts.arrived = 0
                self.tables.empty()
                return False
            cells = cells.append_column("place", numbers(places))
            cells = cells.append_column("digest", numbers(new["digest"]))
            connection.register("new_cells", cells)
            if not counts.unchanged:
                break
            forget = _SQL["forget_repeated"].replace("{id}", self._cell("event_id"))
            ((repeated,),) = connection.execute(parse(forget)).fetchall()
            if not repeated:
                break
            cells = None
        records = "SELECT place, digest, * EXCLUDE (place, digest) FROM new_cells"
        select, more = self._select(records, listed, reading)
        self.tables.insert(select, more)
        connection.unregister("new_cells")
        return True

    def _list_cells(self, cells: "pa.Table") -> "pa.Table":
        import pyarrow as pa

        columns = {}
        for name in _LISTS:
            cell = self._cell(name)
            is_shown = cell.startswith("c")
            columns[name] = cells[cell] if is_shown else pa.nulls(len(cells), pa.string())
        return pa.table(columns)

    def _read_cells(self, lines: Lines, places: Any) -> "pa.Table | None":
        """Return the cells of some records; None if DuckDB may misread one."""
        select = ", ".join(self.source.cells)
        # An empty row, as spreadsheets save, is left to the tolerant reader.
        select += f" WHERE coalesce({select}) IS NOT NULL"
        source, taken = self.source, None
        with ExitStack() as stack:
            beside = stack.enter_context(self.tables.connection.cursor())
            if len(places) < len(lines):
                taken = stack.enter_context(NamedTemporaryFile(suffix=".csv", dir=own_folder()))
                taken.write(lines.take(places))
                taken.flush()
                path = Path(taken.name)
                source = replace(
                    source, path=path, chunks=lambda: read_chunks(path), skip=0, compression="none"
                )
            cells = source.read(beside, select)
        return None if cells is None or cells.num_rows != len(places) else cells

    def _find_separator(self, cells: "pa.Table") -> str | None:
        """Return the separator that splits most cells into known elements.

        The first cells are enough if they show one.
        """
        if cells.num_rows > _FIRST_CELLS:
            found = self._find_separator(cells.slice(0, _FIRST_CELLS))
            if found is not None:
                return found
        connection = self.tables.connection
        values = {
            "names": sorted(self.known.names),
            "separators": [
                {"mark": mark, "element": self.known.element(mark), "place": place}
                for place, mark in enumerate(SEPARATORS)
            ],
        }
        connection.register("list_cells", cells)
        found = connection.execute(parse(_SQL["find_separator"]), values).fetchall()
        connection.unregister("list_cells")
        return found[0][0] if found else None

    def _read_list_cells(self) -> "pa.Table":
        import pyarrow as pa

        found: dict[tuple[str | None, ...], None] = {}
        places = [self.columns.places.get(name) for name in _LISTS]
        with suppress(CsvFault):
            for cells, fault in self.source.records():
                if fault is None and len(cells) == self.source.fields and len(found) < _CELLS_MAX:
                    found[tuple(p if p is None else storable_text(cells[p]) for p in places)] = None
        texts = [pa.array(column, pa.string()) for column in zip(*found, strict=True)]
        return pa.table(texts or [pa.array([], pa.string())] * len(_LISTS), list(_LISTS))

    def _find_unchanged(self, arrived: "pa.Table | None", reading: Values) -> None:
        """Fill the table `unchanged`, and `new_records` with the others; count them.

        Without `arrived`, the lines are compared.
        """
        import numpy as np

        connection = self.tables.connection
        if arrived is None:
            connection.execute(parse(_SQL["find_unchanged_lines"]), reading)
        else:
            places = numbers(np.arange(arrived.num_rows))
            connection.register("arrived", arrived.append_column("place", places))
            connection.execute(parse(_SQL["find_unchanged"]), reading)
            connection.execute(parse(_SQL["find_new_records"]))
            connection.unregister("arrived")
        count = parse(_SQL["count_unchanged"])
        ((self.counts.unchanged,),) = connection.execute(count).fetchall()

    def _read_tolerantly(self, lists: Values, reading: Values) -> None:
        """Read record by record. Records that are not rows are rejected, each with its position."""
        counts, fields = self.counts, self.source.fields
        cells = ", ".join(f"record[{place + 2}] AS c{place}" for place in range(fields))
        records = _SQL["json_records"].replace("{cells}", cells)
        select, values = self._select(records, lists, reading)
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

    def _select(self, records: str, lists: Values, reading: Values) -> tuple[str, Values]:
        places = self.columns.places
        shown = sum(BIT[name] for name in places if name in BIT and shows(self.visible, name))
        values = {"shown": shown, **reading}
        lines = [
            "place",
            "if(digest IS NULL, NULL, hash(digest, $reading::VARCHAR))::VARCHAR AS row_md5",
            f"almanac_clean({self._cell('event_id')}) AS event_id",
            *(f"NULL::VARCHAR AS {name}" for name in _OTHER_TEXTS),
        ]
        for name in NAMES:
            cell = self._cell(name)
            if name in _LISTS and cell.startswith("c"):
                is_coin = str(name == "coins").lower()
                text = f"almanac_list({cell}, $separator::VARCHAR, $element::VARCHAR, {is_coin})"
                values |= lists
            elif name in _LISTS:
                text = "NULL::VARCHAR[]"
            else:
                text = f"almanac_clean({cell})"
            lines.append(f'{text} AS "{name}"')
        lines += [
            "$shown::BIGINT AS shown",
            f"{self._extra(values)} AS extra",
            "NULL::STRUCT(slug VARCHAR, symbol VARCHAR, name VARCHAR)[] AS coin_names",
            "'scheduled' AS status",
        ]
        columns = ",\n".join(lines)
        return f"SELECT\n{columns}\nFROM ({records})", values

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
