"""The bulk export, streamed into a file and checked on the way (interface 4.8).

A broken export is retried, then an error; one that only looks truncated is reported, since the
merge knows better how many rows to expect. The file is kept in both cases.
"""

import csv
import hashlib
import io
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Final

import httpx

from resources.errors import Evidence, NotData, NotDataKind, TruncatedBody
from resources.http.bodies import BodyReader
from resources.http.calls import Caller, Opened, evidence_of
from resources.http.list_query import Validators
from resources.http.responses import looks_like_html
from resources.service_clock import read_http_date
from warehouse.codecs import RecordCounter, kind_of

_HEAD_BYTES: Final = 65_536
_STATUSES: Final = frozenset({200, 304})


@dataclass(frozen=True, slots=True)
class ExportPull:
    """A pulled export. `rows` leaves the header out; `bytes` and `sha256` are of the file.

    With `not_modified` (304) the copy with the given ETag is still valid, and nothing was written.
    `suspicions` are the reasons why it looks truncated. `last_modified` is None if absent.
    """

    file: Path
    not_modified: bool
    bytes: int
    wire_bytes: int
    sha256: str
    rows: int
    rows_expected: int | None
    columns: tuple[str, ...] = field(repr=False)
    etag: str | None
    last_modified: datetime | None
    content_type: str
    content_encoding: str
    date: datetime
    date_doubt: str
    received_at: datetime
    headers: dict[str, str] = field(repr=False)
    attempts: int
    suspicions: tuple[str, ...]

    @property
    def date_known(self) -> bool:
        return not self.date_doubt

    @property
    def looks_truncated(self) -> bool:
        return bool(self.suspicions)


def pull_export(
    caller: Caller,
    into: Path,
    *,
    path: str,
    params: Mapping[str, str],
    max_bytes: int,
    max_ratio: float,
    total_s: float,
    rows_expected: int | None = None,
    validators: Validators | None = None,
) -> ExportPull:
    """Stream the export into the file `into`; each attempt writes it anew.

    Raises:
        NotData: HTML, JSON, nothing, or a header without rows (unless none are expected).
        TruncatedBody: it ends inside quotes or inside a record, or the transfer broke.
        TooLarge: over `max_bytes`, or `max_ratio` times the bytes sent.
        TooSlow: it exceeded the service's 30 s: request half of the dates.
        CatalogError: any other of the tree.
    """
    conditional = {} if validators is None else validators.headers()

    def read(response: httpx.Response, opened: Opened) -> ExportPull:
        pull = _Pull(into, path, opened, rows_expected)
        if opened.status == 200:
            into.unlink(missing_ok=True)
            pull.write(BodyReader(response, max_bytes=max_bytes, max_ratio=max_ratio))
            pull.check()
        return pull.result()

    statuses = _STATUSES if conditional else _STATUSES - {304}
    return caller.stream(
        path,
        params,
        read,
        statuses=statuses,
        headers=conditional,
        total_s=total_s,
        for_export=True,
    )


class _Pull:
    """One attempt."""

    def __init__(self, into: Path, path: str, opened: Opened, rows_expected: int | None) -> None:
        self._into = into
        self._call = f"GET {path}"
        self._opened = opened
        self._rows_expected = rows_expected
        self._counter = RecordCounter()
        self._sha256 = hashlib.sha256()
        self._head = b""
        self._bytes = self._wire_bytes = 0

    def write(self, body: BodyReader) -> None:
        with self._into.open("wb") as file:
            for piece in body:
                file.write(piece)
                self._sha256.update(piece)
                self._counter.feed(piece)
                self._bytes += len(piece)
                if len(self._head) < _HEAD_BYTES:
                    self._head += piece[: _HEAD_BYTES - len(self._head)]
        self._counter.finish()
        self._wire_bytes = body.wire_bytes

    def check(self) -> None:
        """Raise if it is no CSV of events, or certainly truncated."""
        content_type = self._opened.headers.get("content-type", "")
        form = kind_of(self._head)
        if form == "empty":
            raise self._not_data("empty", "an empty body")
        if looks_like_html(self._head, content_type):
            raise self._not_data("html", "an HTML page")
        if form == "json":
            kind: NotDataKind = "json_error" if b'"error"' in self._head else "json"
            raise self._not_data(kind, "JSON")
        if self._counter.in_quotes:
            raise self._truncated("inside quotes")
        if not self._counter.ends_with_line_end and self._last_record_is_short():
            raise self._truncated("inside a record")
        if self._rows == 0 and self._rows_expected != 0:
            raise self._not_data("bare_header", "a header without rows")

    def result(self) -> ExportPull:
        opened = self._opened
        return ExportPull(
            file=self._into,
            not_modified=opened.status == 304,
            bytes=self._bytes,
            wire_bytes=self._wire_bytes,
            sha256=self._sha256.hexdigest() if opened.status == 200 else "",
            rows=self._rows,
            rows_expected=self._rows_expected,
            columns=self._columns(),
            etag=opened.headers.get("etag"),
            last_modified=read_http_date(opened.headers.get("last-modified")),
            content_type=opened.headers.get("content-type", ""),
            content_encoding=opened.headers.get("content-encoding", ""),
            date=opened.date,
            date_doubt=opened.date_doubt,
            received_at=opened.received_at,
            headers=opened.headers,
            attempts=opened.attempts,
            suspicions=self._suspicions() if opened.status == 200 else (),
        )

    @property
    def _rows(self) -> int:
        return max(0, self._counter.records - 1)

    def _columns(self) -> tuple[str, ...]:
        text = self._head.decode("utf-8-sig", "replace")
        rows = csv.reader(io.StringIO(text, newline=""))
        return tuple(next((row for row in rows if row), ()))

    def _last_record_is_short(self) -> bool:
        return self._counter.last_fields < len(self._columns())

    def _suspicions(self) -> tuple[str, ...]:
        found: list[str] = []
        if not self._counter.ends_with_line_end:
            found.append("the last line has no line end")
        if self._last_record_is_short():
            found.append("the last record has too few fields")
        if self._rows_expected is not None and self._rows < self._rows_expected:
            found.append(f"{self._rows} rows of {self._rows_expected} expected")
        return tuple(found)

    def _evidence(self) -> Evidence:
        return replace(evidence_of(self._opened), file=self._into)

    def _not_data(self, kind: NotDataKind, what: str) -> NotData:
        return NotData(
            f"{self._call} was answered with {what}",
            kind=kind,
            expected="Expected was CSV with a header and rows",
            evidence=self._evidence(),
        )

    def _truncated(self, where: str) -> TruncatedBody:
        return TruncatedBody(
            f"{self._call}: the CSV ends {where}, after {self._rows} rows",
            evidence=self._evidence(),
        )
