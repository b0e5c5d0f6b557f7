"""One page of a list, as received: raw bytes, read only as far as paging needs it.

catalog/contract/bodies.py defines which forms of a list are accepted; parts of `meta` may be
absent. Unknown fields stay in the body.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from catalog.contract.bodies import ListBody, ListShape, list_body
from resources.errors import NotData, NotDataKind, TooLarge, TruncatedBody
from resources.http.calls import Answer
from resources.http.responses import looks_like_html
from warehouse.codecs import Oversized, Unreadable, decoded, raw_text, storable_text

CURSOR_CHARS: Final = 4_096
"""A longer cursor is an error: it would not fit into a request."""
COUNT_MAX: Final = 10**12
"""A larger count is impossible: no list and no month has as many."""
ROWS_FACTOR: Final = 4
ROWS_LEAST: Final = 1_000
"""A page may have ROWS_FACTOR times the requested rows, and in any case ROWS_LEAST, since a service
may not support small pages."""
_KEY_CHARS: Final = 200


@dataclass(frozen=True, slots=True)
class RawPage:
    """A page as the service sent it, with its request and its headers.

    `body` is decompressed, `wire_bytes` is its size as sent. `total`, `limit` and `cursor_out` are
    None if the page has none. `ids` has a key for every row, in order. `date` is the service's
    time, `date_doubt` why it is not the Date of the answer. `attempts` counts the requests sent.
    """

    path: str
    params: Mapping[str, str]
    cursor_in: str | None
    cursor_out: str | None
    body: bytes = field(repr=False)
    ids: tuple[str, ...] = field(repr=False)
    total: int | None
    limit: int | None
    shape: ListShape
    status: int
    headers: dict[str, str] = field(repr=False)
    date: datetime
    date_doubt: str
    received_at: datetime
    attempts: int
    wire_bytes: int

    @property
    def date_known(self) -> bool:
        return not self.date_doubt

    @property
    def rows(self) -> int:
        return len(self.ids)


def read_page(
    answer: Answer,
    *,
    path: str,
    params: Mapping[str, str],
    cursor: str | None,
    key_fields: tuple[str, ...],
) -> RawPage:
    """Read a list's answer.

    Raises:
        TruncatedBody: it is no complete JSON.
        NotData: it is HTML, nothing, or JSON that is no list.
        TooLarge: it has far more rows than requested.
    """
    call = f"GET {path}"
    found = _list_of(answer, decoded_json(answer, call), call)
    meta = found.meta or {}
    _check_rows(len(found.rows), params, call)
    return RawPage(
        path=path,
        params=params,
        cursor_in=cursor,
        cursor_out=_cursor(meta.get("cursor")),
        body=answer.body,
        ids=tuple(row_key(row, key_fields) for row in found.rows),
        total=_count(meta.get("total")),
        limit=_count(meta.get("limit")),
        shape=found.shape,
        status=answer.status,
        headers=answer.headers,
        date=answer.date,
        date_doubt=answer.date_doubt,
        received_at=answer.received_at,
        attempts=answer.attempts,
        wire_bytes=answer.wire_bytes,
    )


def decoded_json(answer: Answer, call: str) -> Any:
    """Return the body as Python values.

    Raises:
        TruncatedBody: it ends early, or is otherwise no JSON.
        NotData: it is HTML, empty, or of another content type.
        TooLarge: its values would not fit into memory.
    """
    try:
        return decoded(answer.body)[0]
    except Oversized as oversized:
        raise TooLarge(f"{call} was answered with {oversized}") from oversized
    except Unreadable:
        pass
    content_type = answer.headers.get("content-type", "")
    if not answer.body.strip():
        raise _not_data(answer, call, "empty", "an empty body")
    if looks_like_html(answer.body, content_type):
        raise _not_data(answer, call, "html", "an HTML page")
    if content_type and "json" not in content_type and answer.body.lstrip()[:1] not in b"{[":
        raise _not_data(answer, call, "content_type", f"{content_type[:60]!r}")
    error = TruncatedBody(
        f"{call} was answered with {len(answer.body)} bytes that are not complete JSON"
    )
    error.evidence = answer.evidence()
    raise error


def row_key(row: Any, key_fields: tuple[str, ...]) -> str:
    """Return the key of a row: its key fields, or the whole row if one is missing."""
    if isinstance(row, dict):
        values = [row.get(name) for name in key_fields]
        if values and all(isinstance(value, str | int) for value in values):
            return _short("\x1f".join(map(str, values)))
    try:
        return _short(json.dumps(row, sort_keys=True))
    except RecursionError:
        return _short(raw_text(row))


def _short(key: str) -> str:
    """Return a key, or its hash if it is long."""
    if len(key) <= _KEY_CHARS:
        return key
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


def rows_requested(params: Mapping[str, str]) -> int:
    """Return how many rows a request names, 0 if it leaves that to the service."""
    return int(params.get("limit", 0))


def _check_rows(rows: int, params: Mapping[str, str], call: str) -> None:
    if rows > max(ROWS_LEAST, ROWS_FACTOR * rows_requested(params)):
        raise TooLarge(
            f"{call} was answered with {rows} rows",
            expected=f"Expected were {params.get('limit', 'some')}",
        )


def _list_of(answer: Answer, content: Any, call: str) -> ListBody:
    found = list_body(content)
    if found is not None:
        return found
    if isinstance(content, dict) and ("error" in content or "message" in content):
        raise _not_data(answer, call, "json_error", "an error under status 200")
    raise _not_data(answer, call, "json", "JSON that has no list in `data`")


def _not_data(answer: Answer, call: str, kind: NotDataKind, what: str) -> NotData:
    return NotData(
        f"{call} was answered with {what}",
        kind=kind,
        expected="Expected was a JSON list with `data` and `meta`",
        evidence=answer.evidence(),
    )


def _cursor(value: Any) -> str | None:
    """Return a cursor as text; one that is too long to be sent is cut."""
    if value is None or value == "" or isinstance(value, bool):
        return None
    text = value if isinstance(value, str) else raw_text(value)
    return storable_text(text[: CURSOR_CHARS + 1])[: CURSOR_CHARS + 1]


def _count(value: Any) -> int | None:
    if isinstance(value, str) and value.isascii() and value.isdecimal():
        value = int(value[:18])
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if 0 <= value <= COUNT_MAX else None
