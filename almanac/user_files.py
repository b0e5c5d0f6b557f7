"""The user's paths, and CSV and Parquet files: kind, header, rows."""

import codecs
import gzip
import os
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import unquote

from almanac.core.errors import AlmanacError, InvalidArgument
from almanac.reading.csv_file import (
    CHUNK_BYTES,
    RECORD_BYTES,
    CsvFault,
    RecordReader,
)

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq


_ADDRESS: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/+")
"""`Path` makes one slash of two. A scheme of one letter would be a drive of Windows."""


def local_path(given: Any, name: str) -> Path:
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


def path_to_write(given: Any, name: str = "path") -> Path:
    """Return the path of a file to write. Raises InvalidArgument: its folder does not exist."""
    path = local_path(given, name)
    if not path.parent.is_dir():
        raise InvalidArgument(
            f"{name}={str(given)!r}: the folder {path.parent} does not exist. Nothing was written; "
            "make it first"
        )
    return path


def plain_name(name: str) -> str:
    """Return the letters and digits of a name, in lower case; letters of full width are ASCII."""
    text = unicodedata.normalize("NFKC", name).casefold()
    return "".join(letter for letter in text if letter.isalnum())


def find_column(names: Iterable[str], wanted: str, where: str) -> str | None:
    """Return the column of a name: the exact name, else a name that is spelled alike."""
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
_KINDS: Final = {
    b"PK\x03\x04": "an Excel workbook or another zip archive",
    b"\xd0\xcf\x11\xe0": "an Excel workbook",
    b"PAR1": "Parquet; its name has to end in .parquet",
    b"ARROW1": "an Arrow file",
    b"\xff\xfe": "UTF-16 text; save it as UTF-8",
    b"\xfe\xff": "UTF-16 text; save it as UTF-8",
    b"\x28\xb5\x2f\xfd": "compressed with zstd; unpack it",
    b"BZh": "compressed with bzip2; unpack it",
    b"\xfd7zXZ": "compressed with xz; unpack it",
    b"SQLite format 3": "an SQLite database",
    b"%PDF-": "a PDF",
    b"<!DOCTYPE": "HTML",
    b"<html": "HTML",
    b"<?xml": "XML",
    b'{"': "JSON",
    b"[{": "JSON",
}
"""Kinds of files that are not text, by their first bytes."""
_DELIMITERS: Final = (",", ";", "\t", "|")
_HEAD_BYTES: Final = 1 << 16
_BATCH_ROWS: Final = 1 << 16
_GZIP: Final = b"\x1f\x8b"
_UNREADABLE: Final = (
    *(ArithmeticError, EOFError, LookupError, NotImplementedError, TypeError, ValueError),
)
_LINE: Final = re.compile(rb"[^\r\n]*(\r\n|\r|\n|\Z)")
_PREAMBLE: Final = re.compile(rb"\s*(#|https?://)")
_SEPARATOR: Final = re.compile(rb"sep=([^\w\s\"]|\t)", re.IGNORECASE)

OnBroken = Callable[[int, str], None]
"""Takes the number of a record, from 1, and why it can't be read."""


class CsvFile:
    """A CSV file that a user hands over; it may be compressed by gzip.

    Comments before the header are skipped. A comment is a line that begins with `#` or is an
    address, if its number of fields differs from the next line; or a line such as `sep=;`.

    Attributes:
        names: the names of the columns, as in the file.
        delimiter: comma, semicolon, tab or bar: the delimiter that gives the most header fields.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._opener, head = _open_head(path)
        header = find_header(path, head)
        self.names = _name_columns(path, header.names)
        self.delimiter = header.delimiter
        self._skip = header.line

    def batches(self, names: Sequence[str], on_broken: OnBroken) -> Iterator["pa.RecordBatch"]:
        """Yield some columns as texts, a few batches in memory at a time.

        A record with a wrong number of fields is a row of NULLs; `on_broken` is called for it
        before the batch is yielded.
        """
        import pyarrow as pa

        fields = len(self.names)
        places = [self.names.index(name) for name in names]
        rows: list[Sequence[str | None]] = []

        def batch() -> "pa.RecordBatch":
            columns = [pa.array([row[place] for row in rows], pa.string()) for place in places]
            return pa.RecordBatch.from_arrays(columns, list(names))

        with explain_errors(self._path), self._opener(self._path, "rb") as file:
            try:
                records = RecordReader(
                    iter(lambda: file.read(CHUNK_BYTES), b""),
                    delimiter=self.delimiter,
                    fields=fields,
                    skip=self._skip,
                    strict=True,
                )
                for number, (cells, _) in enumerate(records, 1):
                    if len(cells) == fields:
                        rows.append(cells)
                    else:
                        on_broken(number, f"it has {len(cells)} fields, and the header {fields}")
                        rows.append([None] * fields)
                    if len(rows) == _BATCH_ROWS:
                        yield batch()
                        rows = []
            except CsvFault as fault:
                raise InvalidArgument(f"{self._path}: {fault}") from fault
            yield batch()

    def table(self, texts: Iterable[str] = (), missing: Sequence[str] = ("",)) -> "pa.Table":
        """Return all columns; those that are not in `texts` have the type of their values.

        The texts of `missing` are NULL, but in columns of texts.
        """
        import pyarrow as pa

        def refuse(number: int, why: str) -> None:
            raise InvalidArgument(f"{self._path}: record {number} can't be read: {why}")

        table = pa.Table.from_batches(self.batches(self.names, refuse))
        kept = set(texts)
        columns = [
            column if name in kept else _typed(column, missing)
            for name, column in zip(self.names, table.columns, strict=True)
        ]
        return pa.table(columns, self.names)


def read_table(path: Path) -> "pa.Table":
    """Return a CSV or Parquet file as a table; in a CSV the values of a column give its type."""
    if path.name.lower().endswith(PARQUET):
        with explain_errors(path), open_parquet(path) as file:
            return file.read()
    return CsvFile(path).table()


class Header(NamedTuple):
    """The header of a CSV file: the names of the columns, and the delimiter."""

    names: list[str]
    delimiter: str
    line: int
    """Its number, from 1."""


def find_header(path: Path | str, head: bytes) -> Header:
    """Return the header in the first lines of a CSV file, as `CsvFile` describes it.

    Raises:
        InvalidArgument: there is none, or it can't be read; the message begins with `path`.
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


def _read_header(path: Path | str, number: int, line: bytes, delimiter: str | None) -> Header:
    """Return a line as a header, with the delimiter that gives the most fields."""

    def read(mark: str, *, strict: bool = False) -> list[str]:
        reader = RecordReader((line,), delimiter=mark, strict=strict)
        reader.line = number - 1
        return next(iter(reader)).cells

    marks = _DELIMITERS if delimiter is None else (delimiter,)
    try:
        best = max(marks, key=lambda mark: len(read(mark)))
        return Header(read(best, strict=True), best, number)
    except CsvFault as error:
        fault = error
        if line.count(b'"') % 2:
            fault = CsvFault(number, "has a quote that is not closed", "A header has one line")
        raise InvalidArgument(f"{path}: {fault}") from error


def _name_columns(path: Path, given: list[str]) -> list[str]:
    """Return a name for each column. Unnamed columns except the first get a generated name."""
    names = [
        name if name.strip() or place == 1 else f"column {place}"
        for place, name in enumerate(given, 1)
    ]
    times = Counter(names)
    if repeated := [name for name in times if times[name] > 1]:
        raise InvalidArgument(f"{path} has two columns {', '.join(map(repr, repeated))}")
    return names


def _typed(column: "pa.ChunkedArray", missing: Sequence[str]) -> "pa.ChunkedArray":
    """Return texts as numbers, dates or another type, if all texts that are not missing have this
    type."""
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


def find_kind(head: bytes) -> str | None:
    """Return the kind of a file that is not text, from its first bytes; None if it may be text."""
    return next((kind for known, kind in _KINDS.items() if head.startswith(known)), None)


def _open_head(path: Path) -> tuple[Callable[..., Any], bytes]:
    """Return the function that opens a file, which may be compressed, and its first lines."""
    if not path.is_file():
        raise InvalidArgument(f"there is no file {path}")
    with path.open("rb") as file:
        magic = file.read(8)
    opener: Callable[..., Any] = gzip.open if magic.startswith(_GZIP) else open
    with explain_errors(path), opener(path, "rb") as opened:
        head: bytes = opened.read(_HEAD_BYTES)
        while b"\n" not in head and b"\r" not in head and len(head) < RECORD_BYTES:
            if not (more := opened.read(_HEAD_BYTES)):
                break
            head += more
    if (kind := find_kind(head)) is not None:
        raise InvalidArgument(f"{path} is {kind}; expected CSV text")
    return opener, head.removeprefix(codecs.BOM_UTF8)


def open_parquet(path: Path, **options: Any) -> "pq.ParquetFile":
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
            head = file.read(64)
        what = "is empty" if not head else f"is damaged: {error}"
        if head and not head.startswith(b"PAR1"):
            what = f"is {kind}" if (kind := find_kind(head)) else "is not a Parquet file"
        elif head:
            what = "is cut or damaged: the end of a Parquet file is missing"
        raise InvalidArgument(f"{path} {what}; expected a Parquet file") from error


@contextmanager
def explain_errors(what: object) -> Iterator[None]:
    """Turn an error of a file, or of values of odd types, into an InvalidArgument that names it."""
    import pyarrow as pa

    try:
        yield
    except AlmanacError:
        raise
    except (pa.ArrowException, OSError, *_UNREADABLE) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise InvalidArgument(f"{what} can't be read: {error}") from error
