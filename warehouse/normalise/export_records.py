"""The records of a CSV export as bytes, and which of them are unchanged.

The state keeps a digest of each record that it accepted from an export, until anything else about
its event is accepted. A record with such a digest is unchanged: it is counted and not parsed.
`write_new_records` writes the others to a file for DuckDB, each after its position and digest.
"""

import codecs
import copy
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import IO, Final, NamedTuple

import duckdb

from warehouse import bounds
from warehouse.landing.batches import Manifest
from warehouse.normalise.staging import BatchCounts
from warehouse.schema.columns import GROUPS
from warehouse.sql import Statements, parse

_SQL = Statements(__package__, GROUPS)
_DIGEST_BYTES: Final = 16
_DIGEST_CHARS: Final = 2 * _DIGEST_BYTES
_BLANK_BYTES: Final = 2
"""A line of at most so many bytes may be blank."""
_KEPT_BYTES: Final = 64 << 20
"""The records of a larger export are not kept in memory until the next export."""


class UnsplittableBody(Exception):
    """A body that can't be split into records here; the message is the reason."""


@dataclass(frozen=True, slots=True)
class RecordScan:
    """The records of an export without the header."""

    reading: bytes
    records: int
    new: int
    """Records that are not unchanged."""
    repeats: bool
    """Whether an unchanged record occurs twice."""
    digests: dict[bytes, str]
    """The digests by record; empty if the records need much memory."""


def split_records(chunks: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Yield the records of a CSV body with their line ends, many at a time, without blank lines.

    A record ends at a line end before which the number of quotes is even. A quote inside an
    unquoted cell breaks this rule, so the reader's rows must be counted.

    Raises:
        UnsplittableBody: it contains NUL, or a record is too long.
    """
    rest = b""
    for chunk in chunks:
        if b"\0" in chunk:
            raise UnsplittableBody("it contains NUL")
        block = rest + chunk
        end = block.rfind(b"\n") + 1
        records, rest = _join_lines(block[:end].splitlines(keepends=True))
        rest += block[end:]
        if len(rest) > bounds.RECORD_CHARS:
            raise UnsplittableBody(f"a record of over {bounds.RECORD_CHARS} bytes")
        yield records
    records, rest = _join_lines(rest.splitlines(keepends=True))
    if rest:
        raise UnsplittableBody("a quote is never closed")
    yield records


def _join_lines(lines: list[bytes]) -> tuple[list[bytes], bytes]:
    """Return records made of lines, and the bytes of an open last record."""
    if not lines:
        return [], b""
    if any(line.count(b'"') & 1 for line in lines):
        records: list[bytes] = []
        open_record: list[bytes] = []
        for line in lines:
            if line.count(b'"') & 1:
                open_record.append(line)
                if len(open_record) > 1:
                    records.append(b"".join(open_record))
                    open_record = []
            elif open_record:
                open_record.append(line)
            else:
                records.append(line)
    else:
        records, open_record = lines, []
    if records and min(map(len, records)) <= _BLANK_BYTES:
        records = [record for record in records if record.strip(b"\r\n")]
    return records, b"".join(open_record)


def write_new_records(
    chunks: Iterable[bytes],
    reading: bytes,
    accepted: set[str],
    known: Mapping[bytes, str],
    target: IO[bytes],
) -> RecordScan:
    """Write the header, and the records that are not unchanged, as CSV: position, digest, cells.

    `reading` is a fingerprint of how records are read. `accepted` has the digests of the state;
    those that arrive are removed from it. `known` has digests of records that were read so before.

    Raises:
        UnsplittableBody: the body can't be split into records.
    """
    position, written, repeats, is_first, size = 0, 0, False, True, 0
    kept: dict[bytes, str] = {}
    for records in split_records(chunks):
        if is_first and records:
            is_first = False
            # DuckDB takes the first line end of a file as that of all its records.
            target.write(b"place,digest," + records.pop(0).removeprefix(codecs.BOM_UTF8))
        digests = [
            known.get(record)
            or blake2b(record, digest_size=_DIGEST_BYTES, person=reading).hexdigest()
            for record in records
        ]
        if size <= _KEPT_BYTES:
            size += sum(map(len, records))
            kept.update(zip(records, digests, strict=True))
        new = [
            b"%d,%s,%s" % (position + place, digests[place].encode(), record)
            for place, record in enumerate(records)
            if digests[place] not in accepted
        ]
        target.writelines(new)
        if unchanged := len(records) - len(new):
            before = len(accepted)
            accepted.difference_update(digests)
            repeats = repeats or before - len(accepted) != unchanged
        position += len(records)
        written += len(new)
    return RecordScan(reading, position, written, repeats, kept if size <= _KEPT_BYTES else {})


class _Body(NamedTuple):
    """The last export that was searched: its hash, its plan, its counts."""

    sha256: str
    plan: str
    counts: BatchCounts


class UnchangedRecords:
    """The unchanged records of an export, as the view `unchanged` of the table `event_seen`."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection
        self._body: _Body | None = None
        self._is_allowed = False
        self._is_on = False
        self._last: RecordScan | None = None
        self.count = 0
        """Number of unchanged records in the current batch."""

    def begin(self) -> None:
        """Begin a batch, without any unchanged record so far."""
        self._is_allowed, self._is_on, self.count = True, False, 0
        self._connection.execute(parse(_SQL["nothing_unchanged"]))

    def forget(self) -> None:
        """Treat every record of the current batch as new."""
        self.begin()
        self._body, self._is_allowed = None, False

    def list_accepted(self) -> set[str]:
        """Return the digests that the state has; none if every record is to be treated as new."""
        self._body = None
        if not self._is_allowed:
            return set()
        ((text,),) = self._connection.execute(parse(_SQL["join_accepted"])).fetchall()
        joined = text or ""
        return {
            joined[start : start + _DIGEST_CHARS] for start in range(0, len(joined), _DIGEST_CHARS)
        }

    def known_digests(self, reading: bytes) -> Mapping[bytes, str]:
        """Return digests of records of the export before, if it was read in the same way."""
        return self._last.digests if self._last and self._last.reading == reading else {}

    def use(self, scan: RecordScan, absent: set[str]) -> bool:
        """Make the view of a scan; `absent` has the accepted digests that did not arrive.

        Returns False if an unchanged record is not the only one of its event: the content of all
        of them decides which is used.
        """
        if not self._is_allowed:
            return True
        self._last = scan
        unchanged = scan.records - scan.new
        # Without unchanged records the view is empty, and every digest is absent.
        self._connection.execute(
            parse(_SQL["keep_absent_records"]), {"absent": list(absent) if unchanged else []}
        )
        if unchanged:
            self._connection.execute(parse(_SQL["view_unchanged"]))
            if scan.repeats or self._count("count_unchanged_and_new"):
                self.begin()
                return False
        self.count, self._is_on = unchanged, True
        return True

    def note(self, manifest: Manifest, counts: BatchCounts) -> None:
        """Remember the body of the batch if some of its records were unchanged, without a fault.

        Without unchanged records it is not known which digests of the state were absent.
        """
        if self._is_on and self.count and not counts.faults:
            kept = copy.deepcopy(counts)
            kept.learnt = None
            self._body = _Body(manifest.sha256, manifest.plan, kept)

    def same_body_as_before(self, manifest: Manifest) -> BatchCounts | None:
        """Return the counts of the previous export if this body is the same and still valid.

        Each digest of the state is of that body, or was absent from it. So if as many others are
        left as the body has records, the state still has every record.
        """
        body = self._body
        if body is None or (body.sha256, body.plan) != (manifest.sha256, manifest.plan):
            return None
        self._connection.execute(parse(_SQL["view_unchanged"]))
        unchanged = self._count("count_unchanged")
        if unchanged != body.counts.arrived:
            self.begin()
            return None
        self.count, self._is_on = unchanged, True
        return copy.deepcopy(body.counts)

    def _count(self, name: str) -> int:
        ((count,),) = self._connection.execute(parse(_SQL[name])).fetchall()
        return int(count)
