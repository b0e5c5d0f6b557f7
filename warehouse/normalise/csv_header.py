"""The header of an export, which is needed before its rows are read.

Columns are matched by name, in any order. Belongs here: names and positions. Does not: rows
(csv_reader.py), list separators (csv_lists.py).
"""

import csv
import io
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from catalog.contract.records import EVENT_FIELDS
from warehouse import bounds
from warehouse.normalise.json_rows import columns_of, folded


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
            return columns_from(next(rows, []))
        except csv.Error:
            return columns_from([])


def columns_from(names: list[str]) -> Columns:
    described = tuple(name.strip() or f"column {place}" for place, name in enumerate(names, 1))
    keys, extras = columns_of(described)
    at = {name: place for place, name in enumerate(described)}
    return Columns(
        described,
        {column: at[key] for column, key in keys.items()},
        {name: at[name] for name in extras},
    )
