"""The records of a CSV export: read by DuckDB if possible, else by Python, row by row.

DuckDB's reader is quick, but refuses a whole file for one odd row, takes columns by position, and
gives no error for input that is not CSV. So the header is read here, columns are matched by name
in any order, and the number of rows is compared with the bytes. `sql/` decides which rows are good.
"""

import csv
import hashlib
import io
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import duckdb

from almanac.reading.temporary import own_folder
from catalog.contract.records import EVENT_FIELDS
from warehouse import bounds
from warehouse.codecs import RecordCounter
from warehouse.normalise.csv_lists import LIST_COLUMNS, ListColumn, ListForm
from warehouse.normalise.export_records import (
    RecordScan,
    UnchangedRecords,
    UnsplittableBody,
    write_new_records,
)
from warehouse.normalise.rows import BadRow, EventRows, clean, fold_name, match_columns, shows
from warehouse.normalise.staging import BatchCounts, EventTables, Sink
from warehouse.schema.columns import BIT, GROUPS, NAMES
from warehouse.sql import Statements, literal, parse

_WIRE_FOLDED: Final = {fold_name(name): place for place, name in enumerate(EVENT_FIELDS)}
_SQL = Statements(__package__, GROUPS)
_LISTED: Final[dict[str, ListColumn]] = {column: column for column in LIST_COLUMNS}
_CELL_CHARS: Final = 2_000
_CELLS_MAX: Final = 100_000
"""So many different cells of a column are searched for its separator, none longer."""
_OTHER_TEXTS: Final = ("observed_text", "content_text", "cancelled_text")

Values = dict[str, Any]
"""Parameters of a statement by name."""


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of a file: all names, and the positions of the known columns and the extras."""

    names: tuple[str, ...]
    places: dict[str, int]
    extras: dict[str, int]

    @property
    def duplicates(self) -> list[str]:
        """Return names that occur twice, even in another spelling."""
        times = Counter(fold_name(name) or name for name in self.names)
        return [name for name in self.names if times[fold_name(name) or name] > 1]

    @property
    def too_many(self) -> bool:
        return len(self.names) > bounds.KEYS

    def notes(self) -> Iterator[str]:
        """Yield how these columns differ from the contract's."""
        ours = [name for name in self.names if fold_name(name) in _WIRE_FOLDED]
        order = [_WIRE_FOLDED[fold_name(name)] for name in ours]
        if order != sorted(order):
            yield "columns in another order"
        missing = [
            name for name in EVENT_FIELDS if fold_name(name) not in set(map(fold_name, ours))
        ]
        if missing:
            yield f"missing columns: {', '.join(missing)}"
        if self.extras:
            yield f"unknown columns: {', '.join(sorted(self.extras))[:200]}"

    def fault(self) -> str | None:
        """Return why this is not a header of events, or None."""
        if self.too_many:
            return f"{len(self.names)} columns; expected at most {bounds.KEYS}"
        if self.duplicates:
            return f"columns that occur twice: {', '.join(self.duplicates)[:200]}"
        if "event_id" not in self.places:
            return "no column id"
        if "title" not in self.places and "date" not in self.places:
            return "neither a column title nor a column date"
        return None


class _Chunks(io.RawIOBase):
    """Chunks of bytes as a file. `on_chunk` is called with each chunk when it is read."""

    def __init__(self, chunks: Iterable[bytes], on_chunk: Callable[[bytes], None]) -> None:
        self._chunks = iter(chunks)
        self._on_chunk = on_chunk
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        while not self._rest:
            chunk = next(self._chunks, None)
            if chunk is None:
                return 0
            self._on_chunk(chunk)
            self._rest = memoryview(chunk)
        size = min(len(buffer), len(self._rest))
        buffer[:size] = self._rest[:size]
        self._rest = self._rest[size:]
        return size


@contextmanager
def csv_rows(
    chunks: Iterable[bytes], on_chunk: Callable[[bytes], None] = lambda chunk: None
) -> Iterator[Iterator[list[str]]]:
    """Yield the records of a CSV stream without blank lines; bytes that are not UTF-8 become lone
    surrogates.

    Reading a record raises csv.Error if it is longer than RECORD_CHARS.
    """
    raw = io.BufferedReader(_Chunks(chunks, on_chunk), 1 << 20)
    limit = csv.field_size_limit(bounds.RECORD_CHARS)
    try:
        with io.TextIOWrapper(raw, "utf-8-sig", errors="surrogateescape", newline="") as text:
            yield _records(text)
    finally:
        csv.field_size_limit(limit)


def _records(text: io.TextIOWrapper) -> Iterator[list[str]]:
    """Yield the records of a text; neither a line nor a record is read beyond RECORD_CHARS."""
    chars = 0

    def lines() -> Iterator[str]:
        nonlocal chars
        while line := text.readline(bounds.RECORD_CHARS):
            chars += len(line)
            if chars >= bounds.RECORD_CHARS:
                raise csv.Error(f"a record of over {bounds.RECORD_CHARS} characters")
            yield line

    # As DuckDB's reader, take a quote after spaces as the start of a quoted field.
    for cells in csv.reader(lines(), skipinitialspace=True):
        chars = 0
        if cells:
            yield cells


def read_header(chunks: Iterable[bytes]) -> Columns:
    """Return the columns of a file; none if its first record can't be read."""
    with csv_rows(chunks) as rows:
        try:
            return make_columns(next(rows, []))
        except csv.Error:
            return make_columns([])


def make_columns(names: list[str]) -> Columns:
    described = tuple(name.strip() or f"column {place}" for place, name in enumerate(names, 1))
    keys, extras = match_columns(described)
    at = {name: place for place, name in enumerate(described)}
    return Columns(
        described,
        {column: at[key] for column, key in keys.items()},
        {name: at[name] for name in extras},
    )


@dataclass(frozen=True, slots=True)
class CsvSource:
    """The file of an export, and a function that reads its bytes from the start."""

    path: Path
    compression: str
    chunks: Callable[[], Iterator[bytes]]


@dataclass(frozen=True, slots=True)
class Reading:
    """How the records of a file are read. `visible` has the bits of what the plan shows."""

    columns: Columns
    lists: ListForm
    visible: int

    @property
    def fingerprint(self) -> bytes:
        """A hash that two readings share only if they read the same record in the same way."""
        key = (self.columns.names, self.lists, self.visible)
        return hashlib.sha256(repr(key).encode()).digest()[:16]


def _file_query(source: CsvSource, names: Iterable[str]) -> tuple[str, Values]:
    """Return the end of a SELECT that reads a file with DuckDB, and its parameters."""
    values: Values = {
        "path": literal(source.path),
        "compression": source.compression,
        "columns": dict.fromkeys(names, "VARCHAR"),
    }
    return _SQL["csv_file"], values


def _cell_names(columns: Columns) -> list[str]:
    return [f"c{place}" for place in range(len(columns.names))]


def _insert_query(reading: Reading, file: str, position: str, digest: str) -> tuple[str, Values]:
    """Return the statement that makes events from records, and its own parameters."""
    columns, lists, visible = reading.columns, reading.lists, reading.visible
    values: Values = {
        "shown": sum(BIT[name] for name in columns.places if name in BIT and shows(visible, name))
    }
    lines = [
        f"{position} AS place",
        f"{digest} AS row_md5",
        f"{_clean(columns, 'event_id')} AS event_id",
    ]
    lines += [f"NULL::VARCHAR AS {name}" for name in _OTHER_TEXTS]
    for name in NAMES:
        place = columns.places.get(name) if shows(visible, name) else None
        if (listed := _LISTED.get(name)) is not None:
            if place is None:
                lines.append(f"NULL::VARCHAR[] AS {name}")
            else:
                lines.append(f"almanac_list(c{place}, ${name}_join, ${name}_element) AS {name}")
                values[f"{name}_join"] = lists.separator(listed)
                values[f"{name}_element"] = lists.element(listed)
        else:
            lines.append(
                f'{"NULL::VARCHAR" if place is None else _clean(columns, name)} AS "{name}"'
            )
    lines += [
        "$shown::BIGINT AS shown",
        f"{_extra(columns, values)} AS extra",
        "NULL::STRUCT(slug VARCHAR, symbol VARCHAR, name VARCHAR)[] AS coin_names",
        "'scheduled' AS status",
    ]
    select = "SELECT\n" + ",\n".join(lines) + "\n" + file
    return _SQL["insert_events"].replace("{arrived_rows}", select), values


def read_quickly(
    tables: EventTables, source: CsvSource, reading: Reading, unchanged: UnchangedRecords
) -> int | str:
    """Read a file with DuckDB, without unchanged records if they can be told from the others.

    Returns the number of records that arrived, or why DuckDB refused the file.
    """
    try:
        arrived = _read_new(tables, source, reading, unchanged)
        return _read_all(tables, source, reading, unchanged) if arrived is None else arrived
    except (duckdb.InterruptException, duckdb.OutOfMemoryException):
        raise
    except duckdb.Error as error:
        return str(error).strip().splitlines()[0][:120]


def _read_new(
    tables: EventTables, source: CsvSource, reading: Reading, unchanged: UnchangedRecords
) -> int | None:
    """Read the records that are not unchanged; return how many arrived.

    None if the body can't be split into records, or DuckDB finds others in it.
    """
    # If an event has several records, the second attempt reads all of them.
    for accepted in (unchanged.list_accepted(), set[str]()):
        scan = _insert_new(tables, source, reading, unchanged, accepted)
        if scan is None:
            return None
        if unchanged.use(scan, accepted):
            return scan.records
        tables.empty()
    return None


def _insert_new(
    tables: EventTables,
    source: CsvSource,
    reading: Reading,
    unchanged: UnchangedRecords,
    accepted: set[str],
) -> RecordScan | None:
    """Insert the records whose digest is not in `accepted`; remove the other digests from it."""
    with tempfile.NamedTemporaryFile(suffix=".csv", dir=own_folder()) as file:
        try:
            known = unchanged.known_digests(reading.fingerprint)
            scan = write_new_records(source.chunks(), reading.fingerprint, accepted, known, file)
        except UnsplittableBody:
            return None
        if not scan.new:
            return scan
        file.flush()
        written = CsvSource(Path(file.name), "none", source.chunks)
        text, values = _file_query(written, ["place", "digest", *_cell_names(reading.columns)])
        query, more = _insert_query(reading, text, "place::BIGINT", "digest")
        try:
            inserted = _insert(tables, query, values | more)
        except (duckdb.InvalidInputException, duckdb.ConversionException):
            return None
    return scan if inserted == scan.new else None


def _read_all(
    tables: EventTables, source: CsvSource, reading: Reading, unchanged: UnchangedRecords
) -> int | str:
    """Read all records of the file itself; return their number, or why they can't be read."""
    unchanged.forget()
    tables.empty()
    if any(b"\0" in chunk for chunk in source.chunks()):
        return "it contains NUL"
    text, values = _file_query(source, _cell_names(reading.columns))
    query, more = _insert_query(reading, text, "NULL::BIGINT", "NULL::VARCHAR")
    inserted = _insert(tables, query, values | more)
    arrived = count_records(source)
    return inserted if inserted == arrived else f"{inserted} rows read of {arrived}"


def _insert(tables: EventTables, query: str, values: Values) -> int:
    inserted: int = tables.connection.execute(parse(query), tables.values() | values).fetchall()[0][
        0
    ]
    return inserted


def read_tolerantly(
    source: CsvSource,
    columns: Columns,
    rows: EventRows,
    lists: ListForm,
    sink: Sink,
    counts: BatchCounts,
) -> int:
    """Read a file row by row; return the number of its records without the header."""
    counter = RecordCounter()
    builder = _RowBuilder(columns, rows, lists, sink, counts)
    previous: list[str] | None = None
    with csv_rows(source.chunks(), counter.feed) as records:
        try:
            next(records, None)
            for cells in records:
                if previous is not None:
                    builder.add(previous)
                previous = cells
        except csv.Error as error:
            if previous is not None:
                builder.add(previous)
            builder.refuse(f"the rest of the file: {error}", [])
            return count_records(source)
    counter.finish()
    if previous is not None and counter.in_quotes:
        builder.refuse("a quote is never closed, so the rest of the file is in one value", previous)
    elif previous is not None:
        builder.add(previous)
    return max(0, counter.records - 1)


def list_cells(
    connection: duckdb.DuckDBPyConnection,
    source: CsvSource,
    columns: Columns,
    names: Iterable[ListColumn],
) -> dict[ListColumn, set[str]]:
    """Return the different cells of columns with lists, with DuckDB if it can read the file."""
    places = {name: columns.places[name] for name in names if name in columns.places}
    if not places:
        return {}
    cells = (f"if(length(c{n}) <= $chars, c{n}, NULL) AS {name}" for name, n in places.items())
    file, values = _file_query(source, _cell_names(columns))
    text = _SQL["keep_list_cells"].replace("{cells}", ", ".join(cells)).replace("{file}", file)
    found: dict[ListColumn, set[str]] = {}
    try:
        connection.execute(text, {**values, "chars": _CELL_CHARS})
        for column in places:
            query = _SQL["list_cells"].replace("{cell}", column)
            rows = connection.execute(query, {"most": _CELLS_MAX}).fetchall()
            found[column] = {cell for (cell,) in rows}
    except (duckdb.InterruptException, duckdb.OutOfMemoryException):
        raise
    except duckdb.Error:
        return _list_cells(source, places)
    return found


def _list_cells(source: CsvSource, places: dict[ListColumn, int]) -> dict[ListColumn, set[str]]:
    found: dict[ListColumn, set[str]] = {column: set() for column in places}
    # The full read finds the same unreadable record and rejects it.
    with csv_rows(source.chunks()) as records, suppress(csv.Error):
        next(records, None)
        for cells in records:
            for column, place in places.items():
                kept = found[column]
                is_short = place < len(cells) and len(cells[place]) <= _CELL_CHARS
                if is_short and len(kept) < _CELLS_MAX:
                    kept.add(cells[place])
    return found


def count_records(source: CsvSource) -> int:
    """Return the number of records in a file, without the header."""
    counter = RecordCounter()
    for chunk in source.chunks():
        counter.feed(chunk)
    counter.finish()
    return max(0, counter.records - 1)


class _RowBuilder:
    """Makes rows from records."""

    def __init__(
        self, columns: Columns, rows: EventRows, lists: ListForm, sink: Sink, counts: BatchCounts
    ) -> None:
        self._names = columns.names
        self._lists = lists
        self._list_columns: list[tuple[str, ListColumn]] = [
            (columns.names[columns.places[column]], column)
            for column in LIST_COLUMNS
            if column in columns.places
        ]
        self._rows = rows
        self._sink = sink
        self._counts = counts

    def add(self, cells: list[str]) -> None:
        while len(cells) > len(self._names) and not cells[-1]:
            cells = cells[:-1]  # as DuckDB's reader does
        if len(cells) != len(self._names):
            self.refuse(f"expected {len(self._names)} columns, got {len(cells)}", cells)
            return
        event: dict[str, Any] = {
            name: clean(cell) for name, cell in zip(self._names, cells, strict=True)
        }
        for name, column in self._list_columns:
            event[name] = self._lists.split(event[name] or "", column)
        try:
            row = self._rows.row(event, self._counts.arrived)
            row["coin_names"] = None
            self._sink.add(row)
        except BadRow as error:
            self.refuse(str(error), cells)
        else:
            self._counts.arrived += 1

    def refuse(self, reason: str, cells: list[str]) -> None:
        self._sink.reject(self._counts.arrived, reason, cells)
        self._counts.arrived += 1


def _clean(columns: Columns, name: str) -> str:
    place = columns.places.get(name)
    return "NULL::VARCHAR" if place is None else f"almanac_clean(c{place})"


def _extra(columns: Columns, values: Values) -> str:
    if not columns.extras:
        return "NULL::VARCHAR"
    pairs = []
    for number, name in enumerate(sorted(columns.extras)):
        values[f"extra_{number}"] = name
        pairs.append(f"$extra_{number}::VARCHAR, almanac_clean(c{columns.extras[name]})")
    return f"json_object({', '.join(pairs)})::VARCHAR"
