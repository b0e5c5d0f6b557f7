"""The user's paths, and CSV and Parquet files: kind, header, records."""

import bz2
import codecs
import csv
import gzip
import io
import lzma
import os
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self
from urllib.parse import unquote

from almanac.csv_check import LINE_BYTES_MAX, CsvCheck
from almanac.errors import InvalidArgument

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq


_ADDRESS: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/+")
"""`Path` makes one slash of two. A scheme of one letter would be a drive of Windows."""


def local_path(given: Any, name: str) -> Path:
    """Return a path, with `~` for the folder of the user.

    Raises:
        InvalidArgument: it is not a path, or is an address such as `s3://`. The message
            leaves out the rest of the address, which may hold a password.
    """
    if not isinstance(given, str | os.PathLike) or "\0" in os.fsdecode(given):
        raise InvalidArgument(f"{name}={given!r} is not a path; expected a text or a Path")
    text = os.fsdecode(given)
    found = _ADDRESS.match(text)
    if found is None or Path(text).exists():
        return Path(text).expanduser()
    if found[1].lower() == "file":
        path = unquote(text[found.end() :])
        raise InvalidArgument(f"{name} is a file:// address; expected the path alone: /{path}")
    raise InvalidArgument(
        f"{name} is an address ({found[1].lower()}://…); expected a path. Almanac reads and writes "
        "local files only: download or mount it, and give the path of the copy. Nothing was read "
        "or written."
    )


def plain_name(name: str) -> str:
    """Return the letters and digits of a name, in lower case; letters of full width are ASCII."""
    text = unicodedata.normalize("NFKC", name).casefold()
    return "".join(letter for letter in text if letter.isalnum())


def column_named(names: Iterable[str], wanted: str, where: str) -> str | None:
    """Return the column of a name: the exact name, else a name that is spelled alike.

    Raises:
        InvalidArgument: several columns are spelled alike.
    """
    listed = list(names)
    if listed.count(wanted) == 1:
        return wanted
    alike = [name for name in listed if plain_name(name) == plain_name(wanted)]
    if len(alike) > 1:
        shown = ", ".join(map(repr, alike))
        raise InvalidArgument(f"{where} has {len(alike)} columns for {wanted}: {shown}. Keep one")
    return alike[0] if alike else None


PARQUET: Final = (".parquet", ".pq")
TEXT: Final = (".csv", ".tsv", ".csv.gz", ".tsv.gz")
_DELIMITERS: Final = (",", ";", "\t", "|")
_HEAD_BYTES: Final = 1 << 16
_BLOCK_BYTES: Final = LINE_BYTES_MAX
_OPENERS: Final[dict[bytes, Callable[[Any], Any]]] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ": lzma.open,
}
_KINDS: Final = {
    b"PK\x03\x04": "an Excel workbook or another zip archive",
    b"\xd0\xcf\x11\xe0": "an Excel workbook",
    b"PAR1": "Parquet; its name has to end in .parquet",
    b"ARROW1": "an Arrow file",
    b"\xff\xfe": "UTF-16 text; save it as UTF-8",
    b"\xfe\xff": "UTF-16 text; save it as UTF-8",
    b"\x28\xb5\x2f\xfd": "compressed with zstd; unpack it",
    b"SQLite format 3": "an SQLite database",
    b"%PDF-": "a PDF",
    b"<!DOCTYPE": "HTML",
    b"<html": "HTML",
    b"<?xml": "XML",
    b'{"': "JSON",
    b"[{": "JSON",
}
_LINE: Final = re.compile(rb"[^\r\n]*(\r\n|\r|\n|\Z)")
_PREAMBLE: Final = re.compile(rb"\s*(#|https?://)")
_SEPARATOR: Final = re.compile(rb"sep=([^\w\s\"]|\t)", re.IGNORECASE)

OnBroken = Callable[[int, str], None]
"""Takes the number of a record, from 1, and why it can't be read."""


class CsvFile:
    """A CSV file, open behind its header. Its bytes are checked while they are read, once.

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
        if not path.is_file():
            raise InvalidArgument(f"there is no file {path}")
        self._path = path
        self._file, head = _opened(path)
        try:
            header, self._line, self._rest = self._header_in(head)
            self.names, self.delimiter = header.named(path, renames=renames), header.delimiter
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._file.close()

    def batches(
        self, types: Mapping[str, "pa.DataType"], on_broken: OnBroken
    ) -> Iterator["pa.RecordBatch"]:
        """Yield the columns that `types` names, with these types, in the memory of a few blocks.

        `on_broken` is called for each record with a wrong number of fields, which is left out of
        the batches. For one call.

        Raises:
            InvalidArgument: as the class, or the parser found another number of records; known for
                certain only after the last batch.
        """
        from pyarrow import csv as arrow_csv

        with self._checked(on_broken) as reading:
            convert = arrow_csv.ConvertOptions(
                column_types=dict(types), include_columns=list(types)
            )
            if reading.has_rows:
                for batch in arrow_csv.open_csv(*reading.options, convert):
                    reading.rows += batch.num_rows
                    yield batch

    def table(
        self,
        types: Mapping[str, "pa.DataType"],
        on_broken: OnBroken | None = None,
        missing: Sequence[str] = ("",),
    ) -> "pa.Table":
        """Return all columns; those that `types` does not name have the type of their values.

        The texts of `missing` are NULL, but in columns of texts.

        Raises:
            InvalidArgument: as `batches`; without `on_broken` also for a record with a wrong number
                of fields.
        """
        import pyarrow as pa
        from pyarrow import csv as arrow_csv

        broken: list[str] = []

        def refuse(number: int, why: str) -> None:
            broken.append(f"record {number} can't be read: {why}")

        with self._checked(on_broken or refuse) as reading:
            if not reading.has_rows:
                fields = [(name, types.get(name, pa.null())) for name in self.names]
                return pa.schema(fields).empty_table()
            convert = arrow_csv.ConvertOptions(column_types=dict(types), null_values=missing)
            table = arrow_csv.read_csv(*reading.options, convert)
            reading.rows += table.num_rows
        if broken:
            raise InvalidArgument(f"{self._path}: {broken[0]}. Records like this: {len(broken):,}")
        return table

    @contextmanager
    def _checked(self, on_broken: OnBroken) -> Iterator["_Reading"]:
        """Yield what Arrow reads; at the end compare what it found with the bytes."""
        from pyarrow import csv as arrow_csv

        def keep(row: Any) -> str:
            reading.rows += 1
            on_broken(
                row.number,
                f"it has {row.actual_columns} fields, and the header {row.expected_columns}",
            )
            return "skip"

        check = CsvCheck(self._path, self.delimiter, len(self.names), self._line)
        with explained(self._path):
            stream = _CheckedStream(self._rest, self._file, check)
            options = (
                stream,
                # Records have numbers only where one thread reads.
                arrow_csv.ReadOptions(
                    use_threads=False, block_size=_BLOCK_BYTES, column_names=self.names
                ),
                arrow_csv.ParseOptions(
                    delimiter=self.delimiter, newlines_in_values=True, invalid_row_handler=keep
                ),
            )
            reading = _Reading(options, has_rows=stream.has_rows())
            yield reading
            stream.read_to_end()
        check.check_read(reading.rows)

    def _header_in(self, head: bytes) -> tuple["_Header", int, bytes]:
        """Return the header, the number of its line, and the bytes behind it."""
        lines = [
            (number, text, match.end())
            for number, match in enumerate(_LINE.finditer(head), 1)
            if (text := match[0].strip(b"\r\n"))
        ]
        for place, (number, text, end) in enumerate(lines):
            delimiter = None
            if place and (separator := _SEPARATOR.fullmatch(lines[place - 1][1])):
                delimiter = separator[1].decode()
            elif _SEPARATOR.fullmatch(text):
                continue
            header = self._header(number, text, delimiter)
            below = (line for line in lines[place + 1 :] if not _PREAMBLE.match(line[1]))
            after = next(below, None) if _PREAMBLE.match(text) else None
            if after and len(self._header(*after[:2], None).names) != len(header.names):
                continue
            return header, number, head[end:]
        raise InvalidArgument(f"{self._path} is empty; expected a header and rows")

    def _header(self, number: int, line: bytes, delimiter: str | None) -> "_Header":
        text = line.decode("utf-8", "replace")
        read = (
            _Header(next(csv.reader([text], delimiter=mark)), mark)
            for mark in (_DELIMITERS if delimiter is None else (delimiter,))
        )
        header = max(read, key=lambda found: len(found.names))
        check = CsvCheck(self._path, header.delimiter, 0, number - 1)
        check.feed(line)
        check.finish()
        return header


def refuse_hidden_records(path: Path, delimiter: str = ",") -> None:
    """Refuse a CSV file in which a quote hides records; what else is odd in it is not judged.

    Raises:
        InvalidArgument: it is such a file; the message has the line.
    """
    try:
        file, head = _opened(path)
    except InvalidArgument:
        return  # No CSV.
    header = next((line for match in _LINE.finditer(head) if (line := match[0].strip())), b"")
    check = CsvCheck(path, delimiter, header.count(delimiter.encode()) + 1, tolerant=True)
    # A file that can't be unpacked is another fault.
    with file, suppress(EOFError, OSError, lzma.LZMAError):
        while head:
            check.feed(head)
            head = file.read(_BLOCK_BYTES)
        check.finish()


def read_table(path: Path) -> "pa.Table":
    """Return a CSV or Parquet file as a table; in a CSV the values of a column give its type.

    Raises:
        InvalidArgument: it can't be read in full; the message names it.
    """
    if path.name.lower().endswith(PARQUET):
        with explained(path), open_parquet(path) as file:
            return file.read()
    with CsvFile(path) as csv_file:
        return csv_file.table({})


def open_parquet(path: Path, **options: Any) -> "pq.ParquetFile":
    """Open a Parquet file, with options of pyarrow.

    Raises:
        InvalidArgument: it is empty, cut, or no Parquet file; the message names it.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not path.is_file():
        raise InvalidArgument(f"there is no file {path}")
    try:
        return pq.ParquetFile(path, **options)
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
        what = "is empty" if not head else f"is damaged: {error}"
        if head and not head.startswith(b"PAR1"):
            kind = next((kind for magic, kind in _KINDS.items() if head.startswith(magic)), None)
            what = f"is {kind}" if kind else "is not a Parquet file"
        elif head:
            what = "is cut or damaged: the end of a Parquet file is missing"
        raise InvalidArgument(f"{path} {what}; expected a Parquet file") from error


@dataclass(slots=True)
class _Reading:
    """A source for Arrow, and the number of records in it."""

    options: tuple[Any, ...]
    has_rows: bool
    rows: int = 0


@dataclass(frozen=True, slots=True)
class _Header:
    names: list[str]
    delimiter: str

    def named(self, path: Path, *, renames: bool) -> list[str]:
        """Return a name for each column, also for those without one, but for the first.

        Raises:
            InvalidArgument: two columns have the same name, and it is not to be changed.
        """
        names = [
            name if name.strip() or place == 1 else f"column {place}"
            for place, name in enumerate(self.names, 1)
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


class _CheckedStream(io.RawIOBase):
    """A file whose bytes are checked when they are read."""

    def __init__(self, head: bytes, file: Any, check: CsvCheck) -> None:
        self._head, self._file, self._check = head, file, check

    def readable(self) -> bool:
        return True

    def read(self, size: int | None = -1) -> bytes:
        size = _BLOCK_BYTES if size is None or size < 0 else size
        data, self._head = self._head[:size], self._head[size:]
        data = data or self._file.read(size)
        if data:
            self._check.feed(data)
        else:
            self._check.finish()
        return data

    def has_rows(self) -> bool:
        """Return whether anything but blank lines is left; they are skipped."""
        while not self._head.strip(b"\r\n"):
            self._head = self._file.read(_HEAD_BYTES)
            if not self._head:
                return False
        return True

    def read_to_end(self) -> None:
        while self.read(_BLOCK_BYTES):
            pass


def _opened(path: Path) -> tuple[Any, bytes]:
    """Open a file that may be compressed; return it and its first lines.

    Raises:
        InvalidArgument: it is something else than text.
    """
    with path.open("rb") as file:
        magic = file.read(8)
    opener = next((found for known, found in _OPENERS.items() if magic.startswith(known)), None)
    opened: Any = opener(path) if opener else path.open("rb")
    try:
        with explained(path):
            head: bytes = opened.read(_HEAD_BYTES)
            while b"\n" not in head and b"\r" not in head and len(head) < LINE_BYTES_MAX:
                if not (more := opened.read(_HEAD_BYTES)):
                    break
                head += more
        kind = next((kind for known, kind in _KINDS.items() if head.startswith(known)), None)
        if kind is not None:
            raise InvalidArgument(f"{path} is {kind}; expected CSV text")
    except BaseException:
        opened.close()
        raise
    return opened, head.removeprefix(codecs.BOM_UTF8)


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn errors about the content of a file into an error that names the file."""
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, EOFError, OSError, lzma.LZMAError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise InvalidArgument(f"{path} can't be read: {error}") from error
