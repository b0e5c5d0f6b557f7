"""Checks the bytes of a CSV file independently of the parser that reads it.

A parser takes a quote that opens by accident as the start of a field that reaches to the next
quote, or to the end of the file: the records between them vanish. Here each record is counted, and
a file in which records may have vanished is refused, with the line.
"""

import codecs
import re
from collections.abc import Iterable
from typing import Final

from almanac.errors import InvalidArgument

LINE_BYTES_MAX: Final = 16 << 20
_ENCODINGS: Final = "Save the file as UTF-8 (in Excel: CSV UTF-8)"
_QUOTES: Final = (
    "Expected RFC 4180: a quoted field ends with a quote before the delimiter or the line end, and "
    "a quote inside it is doubled. Mend this line, or save the rows as Parquet"
)
_INSTANT: Final = re.compile(rb"""["'\s]*(?:\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}|\d{8})""")


class CsvCheck:
    """Counts the records of the bytes that it is fed, in chunks of any size.

    Line ends are LF, CRLF or CR; a blank line is not a record. `line` is the number of the line
    before the first one. It needs the memory of a chunk and a line. `tolerant` refuses only faults
    that hide records, for files whose odd rows are rejected later.

    Raises:
        InvalidArgument: the bytes are not UTF-8, have NUL, or a quote that does not end its field.
    """

    def __init__(
        self,
        path: object,
        delimiter: str,
        fields: int,
        line: int = 0,
        *,
        tolerant: bool = False,
    ) -> None:
        self.records = 0
        self._path = path
        self._delimiter = delimiter.encode()
        self._fields = fields
        self._tolerant = tolerant
        self._line = line
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._tail = b""
        self._opened = 0
        """The line in which the quoted field began that is still open; 0 if none is."""
        self._first = b""
        self._bytes = 0
        self._patterns = _Patterns(re.escape(self._delimiter))

    def feed(self, data: bytes) -> None:
        self._check_characters(data)
        data = self._tail + data
        whole, self._tail = _divided(data)
        if len(self._tail) > LINE_BYTES_MAX:
            raise self._error(self._line + 1, f"has more than {_size()}", "Expected CSV")
        if whole:
            self._take(whole.removesuffix(b"\n"))

    def finish(self) -> None:
        """End the input: a last record without a line end is counted.

        Raises:
            InvalidArgument: a quote is never closed, or the last character is cut.
        """
        self._check_characters(b"", final=True)
        if self._tail:
            self._take(self._tail.removesuffix(b"\r"))
            self._tail = b""
        if self._opened:
            raise self._error(
                self._opened,
                "opens a quote that is never closed: the rest of the file would be one field",
                _QUOTES,
            )

    def check_read(self, rows: int) -> None:
        """Compare with the number of rows that the parser found.

        Raises:
            InvalidArgument: they differ.
        """
        if rows != self.records:
            raise InvalidArgument(
                f"{self._path} has {self.records:,} records, but {rows:,} were read. Nothing was "
                "judged or kept. Look for stray quotes, or save the rows as Parquet."
            )

    def _take(self, text: bytes) -> None:
        lines = text.split(b"\n")
        if not self._opened and b'"' not in text:
            self.records += sum(map(bool, lines))
            self._line += len(lines)
            return
        for line in lines:
            self._line += 1
            if self._opened:
                self._continue(line)
            elif b'"' not in line:
                self.records += bool(line)
            elif self._patterns.whole.fullmatch(line):
                self.records += 1
            elif self._patterns.opening.fullmatch(line):
                self._opened, self._first, self._bytes = self._line, line, len(line)
            elif self._tolerant:
                self.records += 1
            else:
                raise self._error(self._line, "has text after a closing quote", _QUOTES)

    def _continue(self, line: bytes) -> None:
        """Take a line that begins inside a quoted field."""
        self._bytes += len(line) + 1
        if self._bytes > LINE_BYTES_MAX:
            raise self._error(self._opened, f"opens a quoted field of more than {_size()}", _QUOTES)
        if self._is_record(line):
            raise self._error(
                self._opened,
                f"opens a quote, and line {self._line}, which would be inside of it, is a record "
                "of its own: the records between the two would vanish",
                f"{_QUOTES}, where texts may have line breaks of any kind",
            )
        if self._patterns.closing.fullmatch(line):
            self._opened = 0
            self.records += 1
        elif not self._patterns.inside.fullmatch(line):
            raise self._error(
                self._line,
                f"has text after the quote that closes the one opened in line {self._opened}",
                _QUOTES,
            )

    def _is_record(self, line: bytes) -> bool:
        """Return whether this line, and the one in which the quote opened, are whole records.

        A quote that is there by accident leaves its own line a record: its timestamps are in the
        same places as in other records, counted from the left, or from the right if it has enough
        fields."""
        first, then = (text.split(self._delimiter) for text in (self._first, line))
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

    def _check_characters(self, data: bytes, *, final: bool = False) -> None:
        if self._tolerant:
            return
        if b"\0" in data:
            line = self._line_at(data, data.index(b"\0"))
            raise self._error(line, "has a NUL byte, as UTF-16 and damaged files have", _ENCODINGS)
        try:
            self._decoder.decode(data, final)
        except UnicodeDecodeError as error:
            at = max(0, error.start - (len(error.object) - len(data)))
            raise self._error(
                self._line_at(data, at),
                f"is not UTF-8 (byte 0x{error.object[error.start]:02x}); it may be Latin-1 or "
                "Windows-1252",
                _ENCODINGS,
            ) from None

    def _line_at(self, data: bytes, place: int) -> int:
        before = (self._tail + data[:place]).replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        return self._line + before.count(b"\n") + 1

    def _error(self, line: int, what: str, expected: str) -> InvalidArgument:
        return InvalidArgument(f"{self._path}: line {line} {what}. {expected}.")


class _Patterns:
    """The state of a line. A quote inside an unquoted field is text, as in `3.5" disk`."""

    def __init__(self, delimiter: bytes) -> None:
        quoted = rb'[^"]*+(?:""[^"]*+)*+'
        field = rb'(?:"%b"|[^"%b][^%b]*+|)' % (quoted, delimiter, delimiter)
        more = rb"(?:%b%b)*+" % (delimiter, field)
        opens = rb'(?:%b%b)*+"%b' % (field, delimiter, quoted)
        self.whole = re.compile(field + more)
        self.opening = re.compile(opens)
        self.closing = re.compile(quoted + b'"' + more)
        # It may also close a field, and open another one.
        self.inside = re.compile(rb'%b(?:"%b%b)?' % (quoted, delimiter, opens))


def _size() -> str:
    return f"{LINE_BYTES_MAX >> 20} MiB"


def _divided(data: bytes) -> tuple[bytes, bytes]:
    """Return the whole lines, with LF as line ends, and the rest."""
    if b"\r" in data:
        # A CR at the end may be half of a line end.
        held = data.endswith(b"\r")
        data = data[: len(data) - held].replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        data += b"\r" * held
    end = data.rfind(b"\n") + 1
    return data[:end], data[end:]


def _instants(fields: Iterable[bytes]) -> set[int]:
    """Return the places of the fields that look like timestamps."""
    return {place for place, text in enumerate(fields) if _INSTANT.match(text)}
