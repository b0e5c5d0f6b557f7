"""CSV files: Python's `csv` module reads or counts their records; exports are also read by DuckDB.

A quote that opens by accident ends at the next quote, and the records between the two vanish in a
field. So the lines of each multi-line record are compared: a line that looks like a complete record
is a fault.
"""

import codecs
import csv
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from glob import escape
from itertools import chain
from pathlib import Path
from typing import Any, Final, NamedTuple

from almanac.core.errors import InvalidArgument

RECORD_BYTES: Final = 16 << 20
"""Longest record; a file with a longer one is not CSV."""
_SIZE: Final = f"{RECORD_BYTES >> 20} MiB"
CHUNK_BYTES: Final = 1 << 20
_ENCODINGS: Final = "Save the file as UTF-8 (in Excel: CSV UTF-8)"
_QUOTES: Final = (
    "Expected RFC 4180: a quoted field ends with a quote before the delimiter or the line end, and "
    "a quote inside it is doubled. Mend this line, or save the rows as Parquet"
)
_INSTANT: Final = re.compile(rb"""["'\s]*(?:\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}|\d{8})""")


class CsvFault(InvalidArgument):
    """A line that can't be read, and what was expected there."""

    def __init__(self, line: int, what: str, expected: str) -> None:
        super().__init__(f"line {line} {what}. {expected}.")
        self.reason = f"line {line} {what}"


class Record(NamedTuple):
    """The cells of a record. `fault` is set if its quote hides the records behind it."""

    cells: list[str]
    fault: CsvFault | None


class RecordReader:
    """Reads or counts the records of a CSV file with Python's `csv` module, once.

    Line ends are LF, CRLF or CR; blank lines are skipped. `fields` is the number of columns, and
    `skip` the number of lines to leave out. If `strict`, each fault is an error. Otherwise a record
    that hides others has a `fault`, and bytes that are not UTF-8 become lone surrogates.

    Attributes:
        records: how many were read.
        line: the number of the last line that was read.
        fault: the first record that hides others.
        is_open: whether the last record has a quote that is never closed.
        ends_with_line_end: whether the last line does, if all were read.
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
        self.is_open = False
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
        # As for DuckDB, a quote after spaces starts a quoted field; other spaces are text.
        self._late_quote = re.compile(rb"(?:^|%b) +\"" % re.escape(self._delimiter))
        wanted = self._wanted()
        self._csv = {
            skips: csv.reader(wanted, delimiter=delimiter, skipinitialspace=skips, strict=strict)
            for skips in (False, True)
        }
        for _ in range(skip):
            self.line += next(self._lines, None) is not None

    def __iter__(self) -> Iterator[Record]:
        for line in self._lines:
            self.line += 1
            if not line.strip(b"\r\n"):
                continue
            self._held = [line]
            fault = None
            if b'"' in line:
                cells, fault = self._parse(line), self._find_hidden()
            else:
                cells = _text(line.rstrip(b"\r\n")).split(_text(self._delimiter))
            self.records += 1
            while len(cells) > self._fields > 0 and not cells[-1]:
                cells.pop()  # As DuckDB does.
            yield Record(cells, fault)

    def count(self) -> int:
        """Return the number of records."""
        deque(self, maxlen=0)
        return self.records

    @property
    def last_fields(self) -> int:
        delimiter = _text(self._delimiter)
        held = csv.reader(map(_text, self._held), delimiter=delimiter, skipinitialspace=True)
        return len(next(held, []))

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
            if self._strict:
                self._check_characters(lines)
            if not chunk:
                self.ends_with_line_end = not lines or lines[-1].endswith((b"\r", b"\n"))
            yield lines
            if len(rest) > RECORD_BYTES:
                raise CsvFault(self.line + 1, f"has more than {_SIZE}", "Expected CSV")

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

    def _parse(self, text: bytes) -> list[str]:
        """Return the cells of the record that begins with this text, which has a quote."""
        self._given = text
        try:
            return next(self._csv[self._late_quote.search(text) is not None])
        except csv.Error as error:
            if self.is_open:
                return []
            raise CsvFault(self.line, "has text after a closing quote", _QUOTES) from error

    def _wanted(self) -> Iterator[str]:
        """Yield the lines that the `csv` module asks for: after the first, it is inside quotes."""
        while True:
            if (line := self._given) is None:
                line = next(self._lines, None)
                if line is None:
                    self.is_open = True
                    return
                self.line += 1
                self._held_bytes += len(line)
                self._held.append(line)
                if self._held_bytes > RECORD_BYTES:
                    what = f"opens a quoted field of more than {_SIZE}"
                    raise CsvFault(self.line - len(self._held) + 1, what, _QUOTES)
            else:
                self._given, self._held_bytes = None, len(line)
            yield _text(line)

    def _find_hidden(self) -> CsvFault | None:
        """Return the fault if the current record hides others."""
        found = self._hidden(self.line - len(self._held) + 1)
        if found is not None and self._strict:
            raise found
        self.fault = self.fault or found
        return found

    def _hidden(self, first: int) -> CsvFault | None:
        opening, *inside = self._held
        if self.is_open:
            what = "opens a quote that is never closed: the rest of the file would be one field"
            return CsvFault(first, what, _QUOTES)
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

        After an accidental quote, its line still looks like a record: its timestamps are in the
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


def _is_storable(text: bytes) -> bool:
    """Return whether it is UTF-8 without NUL."""
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return b"\0" not in text


def _instants(fields: Iterable[bytes]) -> set[int]:
    """Return the positions of the fields that look like timestamps."""
    return {place for place, text in enumerate(fields) if _INSTANT.match(text)}


@dataclass(frozen=True, slots=True)
class CsvSource:
    """A CSV file as bytes: `chunks` returns them unpacked, from the start.

    It has `fields` columns, and `skip` lines up to the header and with it.
    """

    path: Path
    chunks: Callable[[], Iterator[bytes]]
    fields: int = 0
    skip: int = 1
    delimiter: str = ","
    compression: str = "none"

    @property
    def cells(self) -> list[str]:
        """The names of the columns for DuckDB."""
        return [f"c{place}" for place in range(self.fields)]

    def records(self) -> RecordReader:
        return RecordReader(
            self.chunks(), delimiter=self.delimiter, fields=self.fields, skip=self.skip
        )

    def rows(self) -> tuple[str, dict[str, Any]]:
        """Return the FROM of a SELECT over the records, and its parameters."""
        from almanac.core.statements import Statements

        return Statements(__package__)["csv_rows"], {
            "path": escape(str(self.path)),
            "compression": self.compression,
            "delimiter": self.delimiter,
            "columns": dict.fromkeys(self.cells, "VARCHAR"),
            "skip": self.skip,
        }


def count_plain_records(data: bytes, delimiter: str, skip: int) -> tuple[int, int]:
    """Return the number of records before the last, and where the last begins.

    `data` is a whole file in UTF-8, of which `skip` lines are left out. Returns zeros unless each
    quote is at the edge of a field, each line end is LF or CRLF, and no line is blank.
    """
    import numpy as np

    start = 0
    for _ in range(skip):
        start = data.find(b"\n", start) + 1
    # So that each quote has a byte on both sides.
    text = np.frombuffer(b"\n" + data[start:] + b"\n", np.uint8)
    quotes = np.flatnonzero(text == ord('"'))
    ends = np.flatnonzero(text[:-1] == ord("\n"))
    ends = ends[np.searchsorted(quotes, ends) % 2 == 0]  # Not those in a quoted field.
    is_edge = np.isin(np.arange(256), list(f'{delimiter}\r\n"'.encode()))
    if (
        len(ends) < 3
        or data.count(b"\r") != data.count(b"\r\n")
        or (np.diff(ends) < 3).any()
        or not is_edge[text[quotes[::2] - 1]].all()
        or not is_edge[text[quotes[1::2] + 1]].all()
    ):
        return 0, 0
    last = len(ends) - (2 if ends[-1] == len(text) - 2 else 1)
    return last, start + int(ends[last])


def read_chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            yield chunk
