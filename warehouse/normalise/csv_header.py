"""The header of an export and its list separators, which are needed before the rows are read.

Columns are matched by name, in any order. Belongs here: names, positions, separators. Does not:
rows (csv_reader.py).
"""

import csv
import io
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from typing import Final

from catalog.contract.csv_format import LIST_SEPARATOR
from catalog.contract.records import EVENT_FIELDS
from warehouse import bounds
from warehouse.normalise.json_rows import columns_of, folded

JSON_JOIN: Final = "["
JOINS: Final = (JSON_JOIN, LIST_SEPARATOR, "|", ",")
"""Possible list separators; the first of these that occurs in a column is used for all of it."""
_SAMPLE_ROWS: Final = 200
_JOINED: Final = ("categories", "coins")


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of a file: all names, and the positions of the known columns and the extras."""

    names: tuple[str, ...]
    places: dict[str, int]
    extras: dict[str, int]

    @property
    def duplicates(self) -> list[str]:
        """Return names that occur twice, even in another spelling."""
        times = Counter(folded(name) or name for name in self.names)
        return [name for name in self.names if times[folded(name) or name] > 1]

    @property
    def too_many(self) -> bool:
        return len(self.names) > bounds.KEYS

    def notes(self) -> Iterator[str]:
        """Yield how these columns differ from those of the contract."""
        ours = [name for name in self.names if folded(name) in _WIRE_FOLDED]
        order = [_WIRE_FOLDED[folded(name)] for name in ours]
        if order != sorted(order):
            yield "columns in another order"
        missing = [name for name in EVENT_FIELDS if folded(name) not in set(map(folded, ours))]
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


_WIRE_FOLDED: Final = {folded(name): place for place, name in enumerate(EVENT_FIELDS)}


@dataclass(frozen=True, slots=True)
class ListSeparators:
    """The list separators of a file."""

    categories: str = LIST_SEPARATOR
    coins: str = LIST_SEPARATOR

    def notes(self) -> Iterator[str]:
        for column in _JOINED:
            join = getattr(self, column)
            if join == JSON_JOIN:
                yield f"{column} as JSON arrays"
            elif join != LIST_SEPARATOR:
                yield f"{column} joined with {join}"


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


def read_header(chunks: Iterable[bytes]) -> tuple[Columns, ListSeparators]:
    """Return the columns of a file, and the list separators of its first rows."""
    with csv_rows(chunks) as rows:
        try:
            columns = columns_from(next(rows, []))
        except csv.Error:
            return columns_from([]), ListSeparators()
        return columns, separators_in(columns, islice(rows, _SAMPLE_ROWS))


def columns_from(names: list[str]) -> Columns:
    described = tuple(name.strip() or f"column {place}" for place, name in enumerate(names, 1))
    keys, extras = columns_of(described)
    at = {name: place for place, name in enumerate(described)}
    return Columns(
        described,
        {column: at[key] for column, key in keys.items()},
        {name: at[name] for name in extras},
    )


def separators_in(columns: Columns, rows: Iterable[list[str]]) -> ListSeparators:
    """Return the list separators of some rows, with one row in memory at a time."""
    places = {name: columns.places[name] for name in _JOINED if name in columns.places}
    separators: dict[str, set[str]] = {name: set() for name in places}
    # The full read finds the same unreadable row and rejects it.
    with suppress(csv.Error):
        for row in rows:
            for name, place in places.items():
                if len(row) > place:
                    separators[name] |= _separators_of(row[place])
    return ListSeparators(**{name: chosen(found) for name, found in separators.items()})


def _separators_of(cell: str) -> set[str]:
    separators = {join for join in JOINS[1:] if join in cell}
    return separators | {JSON_JOIN} if cell.lstrip().startswith(JSON_JOIN) else separators


def chosen(separators: set[str]) -> str:
    """Return the separator of a column among those that occur in it."""
    return next((join for join in JOINS if join in separators), LIST_SEPARATOR)
