"""One page of a list, as it came: raw bytes, read just far enough to go on.

Accepted are the `data`/`meta` wrapper, with `meta` or parts of it absent, and a bare array
(decisions, what the client also accepts). Unknown fields stay in the body.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

import msgspec

from resources.calls import Answer
from resources.errors import NotData, NotDataKind, TruncatedBody
from resources.verdicts import looks_like_html

Shape = Literal["data", "array"]


@dataclass(frozen=True, slots=True)
class RawPage:
    """A page as the service sent it, and what it takes to account for it.

    `body` is unpacked, `wire_bytes` is its size on the wire. `total`, `limit` and `cursor_out`
    are None when the page does not say. `ids` has a key for every row, in order. `date` is the
    service's time, `date_doubt` why it is not the Date of the answer. `attempts` counts the
    requests it took.
    """

    path: str
    params: Mapping[str, str]
    cursor_in: str | None
    cursor_out: str | None
    body: bytes = field(repr=False)
    ids: tuple[str, ...] = field(repr=False)
    total: int | None
    limit: int | None
    shape: Shape
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
    """
    call = f"GET {path}"
    rows, meta, shape = _rows_and_meta(answer, decoded_json(answer, call), call)
    return RawPage(
        path=path,
        params=params,
        cursor_in=cursor,
        cursor_out=_cursor(meta.get("cursor")),
        body=answer.body,
        ids=tuple(row_key(row, key_fields) for row in rows),
        total=_count(meta.get("total")),
        limit=_count(meta.get("limit")),
        shape=shape,
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
    """
    try:
        return msgspec.json.decode(answer.body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    try:
        # The standard library also takes NaN, a BOM and lone surrogates.
        return json.loads(answer.body)
    except (ValueError, RecursionError):
        pass
    content_type = answer.headers.get("content-type", "")
    if not answer.body.strip():
        raise _not_data(answer, call, "empty", "an empty body")
    if looks_like_html(answer.body, content_type):
        raise _not_data(answer, call, "html", "an HTML page")
    if content_type and "json" not in content_type and answer.body.lstrip()[:1] not in b"{[":
        raise _not_data(answer, call, "content_type", f"{content_type[:60]!r}")
    error = TruncatedBody(
        f"{call} was answered with {len(answer.body)} bytes that are no complete JSON"
    )
    error.evidence = answer.evidence()
    raise error


def row_key(row: Any, key_fields: tuple[str, ...]) -> str:
    """Return what identifies a row: its key fields, or all of it where one is missing."""
    if isinstance(row, dict):
        values = [row.get(name) for name in key_fields]
        if values and all(isinstance(value, str | int) for value in values):
            return "\x1f".join(map(str, values))
    return json.dumps(row, sort_keys=True)


def _rows_and_meta(
    answer: Answer, content: Any, call: str
) -> tuple[list[Any], dict[str, Any], Shape]:
    if isinstance(content, list):
        return content, {}, "array"
    if isinstance(content, dict) and isinstance(content.get("data"), list):
        meta = content.get("meta")
        return content["data"], meta if isinstance(meta, dict) else {}, "data"
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
    if value is None or value == "" or isinstance(value, bool):
        return None
    return value if isinstance(value, str) else json.dumps(value)


def _count(value: Any) -> int | None:
    if isinstance(value, str) and value.isascii() and value.isdecimal():
        value = int(value[:18])
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        return None
    return value
