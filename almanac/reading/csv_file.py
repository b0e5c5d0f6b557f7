"""CSV files: DuckDB reads them, and Python's `csv` module counts their records.

DuckDB reads all columns as texts and stores what it rejects, while the `csv` module counts. If the
counts differ, or DuckDB rejects anything, the `csv` module reads the file, record by record.

A quote that opens by accident ends at the next quote, and the records between the two vanish in a
field. So the lines of each record that has several are compared: a line inside it that looks like a
record of its own is a fault.
"""

import bz2
import codecs
import csv
import gzip
import lzma
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from almanac.errors import InvalidArgument
from almanac.user_files import KINDS, PARQUET, explained, open_parquet

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

RECORD_BYTES: Final = 16 << 20
CHUNK_BYTES: Final = 1 << 20
_ENCODINGS: Final = "Save the file as UTF-8 (in Excel: CSV UTF-8)"
_QUOTES: Final = (
    "Expected RFC 4180: a quoted field ends with a quote before the delimiter or the line end, and "
    "a quote inside it is doubled. Mend this line, or save the rows as Parquet"
)
_DELIMITERS: Final = (",", ";", "\t", "|")
_HEAD_BYTES: Final = 1 << 16
_BATCH_ROWS: Final = 1 << 16
_OPENERS: Final[dict[bytes, Callable[..., Any]]] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ": lzma.open,
}
_LINE: Final = re.compile(rb"[^\r\n]*(\r\n|\r|\n|\Z)")
_PREAMBLE: Final = re.compile(rb"\s*(#|https?://)")
_SEPARATOR: Final = re.compile(rb"sep=([^\w\s\"]|\t)", re.IGNORECASE)
_INSTANT: Final = re.compile(rb"""["'\s]*(?:\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}|\d{8})""")

OnBroken = Callable[[int, str], None]
"""Takes the number of a record, from 1, and why it can't be read."""


class CsvFault(InvalidArgument):
    """A line that can't be read, and what was expected there."""

    def __init__(self, line: int, what: str, expected: str) -> None:
        super().__init__(f"line {line} {what}. {expected}.")
        self.reason = f"line {line} {what}"


class Record(NamedTuple):
    """A record. `fault` says why it is none: its quote hides the records behind it."""

    cells: list[str]
    fault: CsvFault | None


class RecordReader:
    """Reads or counts the records of a CSV file with Python's `csv` module, once.

    Line ends are LF, CRLF or CR; blank lines are no records. `fields` is the number of columns, and
    `skip` the number of lines to leave out. If `strict`, every fault is an error; else records that
    are hidden are a `fault`, and bytes that are not UTF-8 become lone surrogates.

    Attributes:
        records: how many were read.
        line: the number of the last line that was read.
        fault: the first record that hides others.
        is_open: whether the last record has a quote that is never closed.
        ends_with_line_end: whether the last line does, if all were read.
        has_nul: whether NUL was read.

    Raises:
        CsvFault: a record is longer than RECORD_BYTES, or there is a fault, and it is `strict`.
    """

    def __init__(
        self,
        chunks: Iterable[bytes],
        *,
        delimiter: str = ",",
        fields: int = 0,
        skip: int = 0,
        strict: bool = False,
    ) -> None:
        self.records = self.line = 0
        self.fault: CsvFault | None = None
        self.is_open = self.has_nul = False
        self.ends_with_line_end = True
        self._delimiter = delimiter.encode()
        self._fields = fields
        self._strict = strict
        self._lines = chain.from_iterable(self._blocks(chunks))
        self._given: bytes | None = None
        self._held: list[bytes] = []
        """The lines of the current record."""
        self._held_bytes = 0
        # It only grows, since another thread may be reading.
        csv.field_size_limit(max(csv.field_size_limit(), RECORD_BYTES))
        # As DuckDB, it takes a quote after spaces as the start of a quoted field.
        self._csv = csv.reader(
            self._wanted(), delimiter=delimiter, skipinitialspace=True, strict=strict
        )
        for _ in range(skip):
            self.line += next(self._lines, None) is not None

    def __iter__(self) -> Iterator[Record]:
        for line in self._lines:
            self.line += 1
            if b'"' in line:
                record = self._quoted(line, line)
            elif line.strip(b"\r\n"):
                self._held = [line]
                record = Record(_text(line.rstrip(b"\r\n")).split(_text(self._delimiter)), None)
            else:
                continue
            self.records += 1
            while len(record.cells) > self._fields > 0 and not record.cells[-1]:
                record.cells.pop()  # As DuckDB does.
            yield record

    def count(self) -> int:
        """Return the number of records."""
        for line in self._lines:
            self.line += 1
            quote = line.find(b'"')
            if quote >= 0:
                # What is before and behind the fields with quotes can't change where it ends.
                start = line.rfind(self._delimiter, 0, quote) + 1
                self._quoted(line, line[start : line.rfind(b'"') + 2])
            elif len(line) > 2 or line.strip(b"\r\n"):
                self._held = [line]
            else:
                continue
            self.records += 1
        return self.records

    @property
    def last_fields(self) -> int:
        """The number of fields of the last record."""
        return len(next(csv.reader(map(_text, self._held), skipinitialspace=True), []))

    def _blocks(self, chunks: Iterable[bytes]) -> Iterator[list[bytes]]:
        """Yield lines with their line ends, many at a time; the first without a byte order mark."""
        rest, is_first = b"", True
        for chunk in chain(chunks, (b"",)):
            block = rest + chunk
            if is_first and (len(block) >= len(codecs.BOM_UTF8) or not chunk):
                block, is_first = block.removeprefix(codecs.BOM_UTF8), False
            lines = block.splitlines(keepends=True)
            # A line end may be cut in half, and so may a byte order mark.
            is_whole = not chunk or (block.endswith(b"\n") and not is_first)
            rest = b"" if is_whole or not lines else lines.pop()
            self.has_nul = self.has_nul or b"\0" in chunk
            if self._strict:
                self._check_characters(lines)
            if not chunk:
                self.ends_with_line_end = not lines or lines[-1].endswith((b"\r", b"\n"))
            yield lines
            if len(rest) > RECORD_BYTES:
                raise CsvFault(self.line + 1, f"has more than {_size()}", "Expected CSV")

    def _check_characters(self, lines: list[bytes]) -> None:
        text = b"".join(lines)
        for number, line in enumerate([text] if _is_storable(text) else lines, self.line + 1):
            if b"\0" in line:
                raise CsvFault(
                    number, "has a NUL byte, as UTF-16 and damaged files have", _ENCODINGS
                )
            try:
                line.decode()
            except UnicodeDecodeError as error:
                raise CsvFault(
                    number,
                    f"is not UTF-8 (byte 0x{line[error.start]:02x}); it may be Latin-1 or "
                    "Windows-1252",
                    _ENCODINGS,
                ) from None

    def _quoted(self, line: bytes, text: bytes) -> Record:
        """Return the record that begins with a line with quotes; `text` is the part to be read."""
        first, self._held, self._given = self.line, [line], text
        self._held_bytes = len(line)
        cells: list[str] = []
        try:
            cells = next(self._csv)
        except csv.Error as error:
            if not self.is_open:
                raise CsvFault(self.line, "has text after a closing quote", _QUOTES) from error
        fault = self._hidden(first)
        self.fault = self.fault or fault
        if fault is not None and self._strict:
            raise fault
        return Record(cells, fault)

    def _wanted(self) -> Iterator[str]:
        """Yield the lines that the `csv` module asks for: after the first, it is inside quotes."""
        while True:
            if (line := self._given) is None:
                line = next(self._lines, None)
                if line is None:
                    self.is_open = True
                    return
                self.line += 1
                self._held.append(line)
                self._held_bytes += len(line)
                if self._held_bytes > RECORD_BYTES:
                    raise CsvFault(
                        self.line - len(self._held) + 1,
                        f"opens a quoted field of more than {_size()}",
                        _QUOTES,
                    )
            self._given = None
            yield _text(line)

    def _hidden(self, first: int) -> CsvFault | None:
        """Return what is wrong if the record that begins in line `first` hides others."""
        if self.is_open:
            return CsvFault(
                first,
                "opens a quote that is never closed: the rest of the file would be one field",
                _QUOTES,
            )
        opening, *inside = self._held
        for number, line in enumerate(inside, first + 1):
            if self._looks_like_record(opening, line):
                return CsvFault(
                    first,
                    f"opens a quote, and line {number}, which would be inside of it, is a record "
                    "of its own: the records between the two would vanish",
                    f"{_QUOTES}, where texts may have line breaks of any kind",
                )
        return None

    def _looks_like_record(self, opening: bytes, line: bytes) -> bool:
        """Return whether a line, and the one in which the quote opened, are whole records.

        A quote that is there by accident leaves its own line a record: its timestamps are in the
        same places as in other records, counted from the left, or from the right if it has enough
        fields."""
        first, then = (text.split(self._delimiter) for text in (opening, line))
        if len(then) < self._fields or self._fields < 2:
            return False
        if not _instants(first).isdisjoint(_instants(then)):
            return True
        if len(first) < self._fields:
            return False
        from_right = _instants(first[::-1])
        if from_right or _instants(first):
            return not from_right.isdisjoint(_instants(then[::-1]))
        # Prose often has one comma.
        return self._fields > 2 and len(first) == len(then) == self._fields


def _text(line: bytes) -> str:
    return line.decode("utf-8", "surrogateescape")


def _size() -> str:
    return f"{RECORD_BYTES >> 20} MiB"


def _is_storable(text: bytes) -> bool:
    """Return whether it is UTF-8 without NUL."""
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return b"\0" not in text


def _instants(fields: Iterable[bytes]) -> set[int]:
    """Return the places of the fields that look like timestamps."""
    return {place for place, text in enumerate(fields) if _INSTANT.match(text)}


@dataclass(frozen=True, slots=True)
class CsvSource:
    """A CSV file as bytes: `chunks` returns them unpacked, from the start.

    It has `fields` columns, and `skip` lines up to the header and with it.
    """

    path: Path
    chunks: Callable[[], Iterable[bytes]]
    fields: int
    skip: int = 1
    delimiter: str = ","
    compression: str = "none"

    @property
    def cells(self) -> list[str]:
        """The names of the columns for DuckDB."""
        return [f"c{place}" for place in range(self.fields)]

    def records(self, *, strict: bool = False) -> RecordReader:
        """Return a reader of the records behind the header."""
        return RecordReader(
            self.chunks(),
            delimiter=self.delimiter,
            fields=self.fields,
            skip=self.skip,
            strict=strict,
        )

    def rows(self, *, stores_rejects: bool = False) -> tuple[str, dict[str, Any]]:
        """Return the FROM of a SELECT over the records, and its parameters."""
        from almanac.reading.named_sql import NamedStatements

        return NamedStatements(__package__)["csv_rows"], {
            "path": literal(self.path),
            "compression": self.compression,
            "delimiter": self.delimiter,
            "columns": dict.fromkeys(self.cells, "VARCHAR"),
            "skip": self.skip,
            "stores_rejects": stores_rejects,
        }

    def read(
        self,
        connection: "duckdb.DuckDBPyConnection",
        select: str,
        values: Mapping[str, Any] | None = None,
        *,
        strict: bool = False,
    ) -> "pa.Table | None":
        """Return a row for each record, by DuckDB; None if it can't read each of them for certain.

        `select` has the columns. An error leaves the connection's transaction aborted, so it needs
        a connection of its own.

        Raises:
            CsvFault: as RecordReader, if `strict`.
        """
        import duckdb

        rows, own = self.rows(stores_rejects=True)
        with ThreadPoolExecutor(1) as beside:
            counting = beside.submit(self._count, strict=strict)
            try:
                found = connection.sql(f"{rows}\nSELECT {select}", params={**own, **(values or {})})
                table = found.to_arrow_table()
                rejects = connection.execute("SELECT count(*) FROM reject_errors").fetchall()
            except (duckdb.InterruptException, duckdb.OutOfMemoryException):
                raise
            except duckdb.Error:
                table, rejects = None, []
        is_whole = counting.result() == (table and table.num_rows) and rejects == [(0,)]
        return table if is_whole else None

    def _count(self, *, strict: bool) -> int | None:
        """Return the number of records; None if some are not to be read by DuckDB."""
        reader = self.records(strict=strict)
        try:
            found = reader.count()
        except CsvFault:
            if strict:
                raise
            return None
        return None if reader.fault or reader.has_nul else found


def read_chunks(path: Path, opener: Callable[..., Any] = open) -> Iterator[bytes]:
    """Yield the bytes of a file."""
    with opener(path, "rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            yield chunk


def literal(path: Path) -> str:
    """Return a path escaped for DuckDB's readers, so that it names only this file.

    They read `*`, `?` and `[` as a pattern; a character in brackets stands for itself.
    """
    return re.sub(r"([*?\[])", r"[\1]", str(path))


class CsvFile:
    """A CSV file that a user hands over; it may be compressed by gzip, bzip2 or xz.

    Comments before the header are skipped: lines that begin with `#`, or are an address, and have
    another number of fields than the next line; and `sep=;`.

    Attributes:
        names: the names of the columns, as in the file.
        delimiter: comma, semicolon, tab or bar: the delimiter that gives the most header fields.

    With `renames` the second column with a name, such as `Close`, is `Close.1`.

    Raises:
        InvalidArgument: it is empty, no CSV file, or damaged; the message names file and line.
    """

    def __init__(self, path: Path, *, renames: bool = False) -> None:
        self._path = path
        self._opener, head = _open_head(path)
        header = _find_header(path, head)
        self.names = _name_columns(path, header.names, renames=renames)
        self.delimiter = header.delimiter
        self._skip = header.line

    def batches(self, names: Sequence[str], on_broken: OnBroken) -> Iterator["pa.RecordBatch"]:
        """Yield some columns as texts, in the memory of a few batches.

        A record with a wrong number of fields is a row of NULLs; `on_broken` is called for it
        before the batch is yielded.

        Raises:
            InvalidArgument: as the class, before the first batch.
        """
        import pyarrow as pa

        from almanac.reading.connections import open_memory

        with explained(self._path), self._source() as source, open_memory() as connection:
            if self._read(source, connection, "true") is None:
                yield from self._read_tolerantly(source, names, on_broken)
                return
            rows, values = source.rows()
            found = connection.sql(f"{rows}\nSELECT {self._texts(names)}", params=values)
            for batch in pa.RecordBatchReader.from_stream(found):
                yield pa.RecordBatch.from_arrays(batch.columns, list(names))

    def table(self, texts: Iterable[str] = (), missing: Sequence[str] = ("",)) -> "pa.Table":
        """Return all columns; those that are not in `texts` have the type of their values.

        The texts of `missing` are NULL, but in columns of texts.

        Raises:
            InvalidArgument: as the class, or a record has a wrong number of fields.
        """
        import pyarrow as pa

        from almanac.reading.connections import open_memory

        broken: list[str] = []

        def refuse(number: int, why: str) -> None:
            broken.append(f"record {number} can't be read: {why}")

        with explained(self._path), self._source() as source, open_memory() as connection:
            table = self._read(source, connection, self._texts(self.names))
            if table is None:
                schema = pa.schema([(name, pa.string()) for name in self.names])
                batches = self._read_tolerantly(source, self.names, refuse)
                table = pa.Table.from_batches(batches, schema)
        if broken:
            raise InvalidArgument(f"{self._path}: {broken[0]}. Records like this: {len(broken):,}")
        kept = set(texts)
        columns = [
            column if name in kept else _typed(column, missing)
            for name, column in zip(self.names, table.columns, strict=True)
        ]
        return pa.table(columns, self.names)

    def _read(
        self, source: CsvSource, connection: "duckdb.DuckDBPyConnection", select: str
    ) -> "pa.Table | None":
        try:
            return source.read(connection, select, strict=True)
        except CsvFault as fault:
            raise InvalidArgument(f"{self._path}: {fault}") from fault

    def _read_tolerantly(
        self, source: CsvSource, names: Sequence[str], on_broken: OnBroken
    ) -> Iterator["pa.RecordBatch"]:
        """Yield the records that the `csv` module reads; those of a wrong length are broken."""
        import pyarrow as pa

        places = [self.names.index(name) for name in names]
        rows: list[Sequence[str | None]] = []

        def batch() -> "pa.RecordBatch":
            columns = [pa.array([row[place] for row in rows], pa.string()) for place in places]
            return pa.RecordBatch.from_arrays(columns, list(names))

        for number, (cells, _) in enumerate(source.records(strict=True), 1):
            if len(cells) == source.fields:
                rows.append(cells)
            else:
                on_broken(number, f"it has {len(cells)} fields, and the header {source.fields}")
                rows.append([None] * source.fields)
            if len(rows) == _BATCH_ROWS:
                yield batch()
                rows = []
        yield batch()

    def _texts(self, names: Sequence[str]) -> str:
        return ", ".join(f"coalesce(c{self.names.index(name)}, '')" for name in names)

    @contextmanager
    def _source(self) -> Iterator[CsvSource]:
        """Yield the file, or an unpacked copy of it."""
        from almanac.reading.temporary import own_folder

        fields = len(self.names)
        if self._opener is open:
            yield _source_of(self._path, fields, self._skip, self.delimiter)
            return
        with (
            NamedTemporaryFile(suffix=".csv", dir=own_folder()) as copy,
            self._opener(self._path) as packed,
        ):
            shutil.copyfileobj(packed, copy, CHUNK_BYTES)
            copy.flush()
            yield _source_of(Path(copy.name), fields, self._skip, self.delimiter)


def refuse_hidden_records(path: Path) -> None:
    """Refuse a CSV file in which a quote hides records; what else is odd in it is not judged.

    Raises:
        InvalidArgument: it is such a file; the message has the line.
    """
    try:
        opener, head = _open_head(path)
    except InvalidArgument:
        return  # No CSV.
    header = next((line for match in _LINE.finditer(head) if (line := match[0].strip())), b"")
    # A file that can't be unpacked is another fault.
    with suppress(EOFError, OSError, lzma.LZMAError):
        reader = RecordReader(read_chunks(path, opener), fields=header.count(b",") + 1)
        try:
            reader.count()
        except CsvFault as fault:
            reader.fault = fault
        if reader.fault is not None:
            raise InvalidArgument(f"{path}: {reader.fault}")


def read_table(path: Path) -> "pa.Table":
    """Return a CSV or Parquet file as a table; in a CSV the values of a column give its type.

    Raises:
        InvalidArgument: it can't be read in full; the message names it.
    """
    if path.name.lower().endswith(PARQUET):
        with explained(path), open_parquet(path) as file:
            return file.read()
    return CsvFile(path).table()


class _Header(NamedTuple):
    names: list[str]
    delimiter: str
    line: int
    """Its number, from 1."""


def _find_header(path: Path, head: bytes) -> _Header:
    """Return the header among the first lines of a file.

    Raises:
        InvalidArgument: there is none, or it can't be read.
    """
    lines = [
        (number, text)
        for number, match in enumerate(_LINE.finditer(head), 1)
        if (text := match[0].strip(b"\r\n"))
    ]
    for place, (number, text) in enumerate(lines):
        delimiter = None
        if place and (separator := _SEPARATOR.fullmatch(lines[place - 1][1])):
            delimiter = separator[1].decode()
        elif _SEPARATOR.fullmatch(text):
            continue
        header = _read_header(path, number, text, delimiter)
        below = (line for line in lines[place + 1 :] if not _PREAMBLE.match(line[1]))
        after = next(below, None) if _PREAMBLE.match(text) else None
        if after and len(_read_header(path, *after, None).names) != len(header.names):
            continue
        return header
    raise InvalidArgument(f"{path} is empty; expected a header and rows")


def _read_header(path: Path, number: int, line: bytes, delimiter: str | None) -> _Header:
    """Return a line as a header, with the delimiter that gives the most fields."""

    marks = _DELIMITERS if delimiter is None else (delimiter,)
    text = line.decode("utf-8", "replace")
    best = max(marks, key=lambda mark: len(next(csv.reader([text], delimiter=mark))))
    reader = RecordReader((line,), delimiter=best, strict=True)
    reader.line = number - 1
    try:
        return _Header(next(iter(reader)).cells, best, number)
    except CsvFault as fault:
        raise InvalidArgument(f"{path}: {fault}") from fault


def _name_columns(path: Path, given: list[str], *, renames: bool) -> list[str]:
    """Return a name for each column, also for those without one, but for the first.

    Raises:
        InvalidArgument: two columns have the same name, and it is not to be changed.
    """
    names = [
        name if name.strip() or place == 1 else f"column {place}"
        for place, name in enumerate(given, 1)
    ]
    times = Counter(names)
    if not renames and (repeated := [name for name in times if times[name] > 1]):
        raise InvalidArgument(f"{path} has two columns {', '.join(map(repr, repeated))}")
    before: Counter[str] = Counter()
    for place, name in enumerate(names):
        if before[name]:
            names[place] = f"{name}.{before[name]}"
        before[name] += 1
    return names


def _typed(column: "pa.ChunkedArray", missing: Sequence[str]) -> "pa.ChunkedArray":
    """Return texts as numbers, dates or another type, if all but the missing ones are."""
    import pyarrow as pa
    import pyarrow.compute as pc

    is_missing = pc.is_in(column, value_set=pa.array(missing))
    given = pc.if_else(is_missing, pa.scalar(None, pa.string()), column)
    if given.null_count == len(given):
        return pa.chunked_array([pa.nulls(len(given))])
    instants = [pa.timestamp(unit, tz) for tz in (None, "UTC") for unit in ("us", "ns")]
    for kind in (pa.int64(), pa.bool_(), pa.date32(), *instants, pa.float64()):
        try:
            return given.cast(kind)
        except pa.ArrowInvalid:
            continue
    return column


def _open_head(path: Path) -> tuple[Callable[..., Any], bytes]:
    """Return the function that opens a file, which may be compressed, and its first lines.

    Raises:
        InvalidArgument: it is something else than text.
    """
    if not path.is_file():
        raise InvalidArgument(f"there is no file {path}")
    with path.open("rb") as file:
        magic = file.read(8)
    opener = next((found for known, found in _OPENERS.items() if magic.startswith(known)), open)
    with explained(path), opener(path, "rb") as opened:
        head: bytes = opened.read(_HEAD_BYTES)
        while b"\n" not in head and b"\r" not in head and len(head) < RECORD_BYTES:
            if not (more := opened.read(_HEAD_BYTES)):
                break
            head += more
    kind = next((kind for known, kind in KINDS.items() if head.startswith(known)), None)
    if kind is not None:
        raise InvalidArgument(f"{path} is {kind}; expected CSV text")
    return opener, head.removeprefix(codecs.BOM_UTF8)


def _source_of(path: Path, fields: int, skip: int, delimiter: str) -> CsvSource:
    return CsvSource(path, lambda: read_chunks(path), fields, skip, delimiter)
