"""Responses read as values: a page of a list, a single event or coin, the usage of a key.

Each is read only as far as paging, landing and limits need it; unknown fields stay in the body.
`catalog/contract/bodies.py` defines the accepted forms. Parts of `meta` and of the usage may be
absent.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal

from catalog.contract.bodies import ListBody, list_body, single_body, usage_fields
from resources.errors import NotData, NotDataKind, TooLarge, TruncatedBody, VersionGone
from resources.http.calls import Answer
from resources.http.responses import BodyShape, looks_like_html, read_error_body
from resources.limits.allowance import ReportedLimits, next_reset
from warehouse.codecs import OversizedBody, UnreadableBody, decode_json, raw_text, storable_text

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
    """A page as the service sent it, with its parameters and its headers.

    `body` is decompressed. `total`, `limit` and the cursors are None if the page has none. `ids`
    has a key for every row, in order. `date` is the service's time, `date_doubt` the reason if it
    is not the Date of the response. `attempts` counts the requests sent.
    """

    params: Mapping[str, str]
    cursor_in: str | None
    cursor_out: str | None
    body: bytes = field(repr=False)
    ids: tuple[str, ...] = field(repr=False)
    total: int | None
    limit: int | None
    headers: dict[str, str] = field(repr=False)
    date: datetime
    date_doubt: str
    attempts: int
    is_open_ended: bool = False
    """Whether it is full, and has no `meta` that could name a next page."""

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
        TruncatedBody: it is not complete JSON.
        NotData: it is HTML, nothing, or JSON that is not a list.
        TooLarge: it has far more rows than requested.
    """
    call = f"GET {path}"
    found = _list_of(answer, decoded_json(answer, call), call)
    _check_rows(len(found.rows), params, call)
    return RawPage(
        params=params,
        cursor_in=cursor,
        cursor_out=_cursor(found.cursor),
        body=answer.body,
        ids=tuple(row_key(row, key_fields) for row in found.rows),
        total=_count(found.total),
        limit=_count(found.limit),
        headers=answer.headers,
        date=answer.date,
        date_doubt=answer.date_doubt,
        attempts=answer.attempts,
        is_open_ended=found.meta is None and 0 < rows_requested(params) <= len(found.rows),
    )


def decoded_json(answer: Answer, call: str) -> Any:
    """Return the body as Python values.

    Raises:
        TruncatedBody: it ends early, or is otherwise no JSON.
        NotData: it is HTML, empty, or of another content type.
        TooLarge: its values would not fit into memory.
    """
    try:
        return decode_json(answer.body)[0]
    except OversizedBody as oversized:
        raise TooLarge(f"{call} was answered with {oversized}") from oversized
    except UnreadableBody:
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
    """Return a cursor as text; a cursor that is too long to be sent is cut."""
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


EventStatus = Literal["found", "gone", "not_found"]
EVENT_STATUSES: Final = frozenset({200, 404, 410})
_PLAN_CHARS: Final = 200
_PERIOD_MAX: Final = timedelta(days=366)
_YEARS: Final = range(1900, 2201)
_EPOCH: Final = range(1_000_000_000, 7_000_000_000)


@dataclass(frozen=True, slots=True)
class EventAnswer:
    """The response for one event: `found`, `gone` (410, cancelled) or `not_found` (404).

    `shape` is the form of the body. A `not_found` in `html` may come from a gateway and not from
    the catalog, so it is not evidence of a withdrawal.
    """

    event_id: str
    status: EventStatus
    body: bytes = field(repr=False)
    shape: BodyShape
    date: datetime
    date_doubt: str
    attempts: int


def read_event(answer: Answer, *, event_id: str, call: str) -> EventAnswer:
    """Read the response to a single look-up (interface 4.4, decisions).

    Raises:
        TruncatedBody, NotData: a 200 that is not a JSON object.
        VersionGone: a 410 that is about the interface, not the event.
    """
    status: EventStatus = "found"
    shape: BodyShape = "json"
    if answer.status == 200:
        if not isinstance(decoded_json(answer, call), dict):
            raise _not_an_object(answer, call)
    else:
        error_body = read_error_body(answer.body, answer.headers.get("content-type", ""))
        if error_body.code == "version_retired":
            raise VersionGone(f"{call} was answered {answer.status}")
        status = "gone" if answer.status == 410 else "not_found"
        shape = error_body.shape
    return EventAnswer(
        event_id=event_id,
        status=status,
        body=answer.body,
        shape=shape,
        date=answer.date,
        date_doubt=answer.date_doubt,
        attempts=answer.attempts,
    )


CoinStatus = Literal["found", "unknown", "not_covered"]
COIN_STATUSES: Final = frozenset({200, 404})


@dataclass(frozen=True, slots=True)
class CoinAnswer:
    """The response for one coin: `found`, `unknown` (404: no coin has the slug), or `not_covered`
    (403: the plan does not include it). `tracked` is None if it is not known."""

    slug: str
    status: CoinStatus
    name: str | None = None
    tracked: bool | None = None


def read_coin(answer: Answer, *, slug: str, call: str) -> CoinAnswer:
    """Read the response to the look-up of a coin (interface section 4.2).

    Raises:
        TruncatedBody, NotData: a 200 that is not a JSON object.
        VersionGone: a 404 that is about the interface, not the coin.
    """
    if answer.status == 404:
        error_body = read_error_body(answer.body, answer.headers.get("content-type", ""))
        if error_body.code == "version_retired":
            raise VersionGone(f"{call} was answered {answer.status}")
        return CoinAnswer(slug, "unknown")
    content = decoded_json(answer, call)
    if not isinstance(content, dict):
        raise _not_an_object(answer, call)
    content = single_body(content)
    name, tracked = content.get("name"), content.get("tracked")
    return CoinAnswer(
        slug,
        "found",
        storable_text(name) if isinstance(name, str) else None,
        tracked if isinstance(tracked, bool) else None,
    )


@dataclass(frozen=True, slots=True)
class UsageAnswer:
    """The usage of the month that the service reports; None is not reported.

    `is_unlimited`: the service reports that there is no quota (Enterprise), and does not just leave
    it out.
    """

    plan: str | None
    used: int | None
    limit: int | None
    remaining: int | None
    reset_at: datetime | None
    period_start: datetime | None
    period_end: datetime | None
    rate: float | None
    burst: int | None
    is_unlimited: bool
    date: datetime
    received_at: datetime

    @property
    def account(self) -> ReportedLimits | None:
        """The month's limit, use and reset, None if too little of it is reported.

        The reset is by the machine's clock: the service's may differ, as a sandbox's does.
        """
        used, limit = self.used, self.limit
        if limit is None and used is not None and self.remaining is not None:
            limit = used + self.remaining
        if used is None and limit is not None and self.remaining is not None:
            used = limit - self.remaining
        if used is None or (limit is None and not self.is_unlimited):
            return None
        reset_at = self.reset_at or self.period_end
        # A reset in the past, or years ahead, would allow no request until then.
        is_to_come = reset_at is not None and self.date < reset_at <= self.date + _PERIOD_MAX
        resets_at = reset_at if reset_at is not None and is_to_come else next_reset(self.date)
        return ReportedLimits(limit, used, self.received_at + (resets_at - self.date))


def read_usage(answer: Answer, *, call: str) -> UsageAnswer:
    """Read the usage, of which any field may be absent (interface 4.7, decisions)."""
    content = decoded_json(answer, call)
    if not isinstance(content, dict):
        raise _not_an_object(answer, call)
    content = usage_fields(single_body(content))
    period = content.get("period")
    span = period if isinstance(period, dict) else {}
    plan = content.get("plan")
    return UsageAnswer(
        plan=storable_text(plan[:_PLAN_CHARS].lower()) if isinstance(plan, str) else None,
        used=_integer(content.get("used")),
        limit=(limit := _integer(content.get("limit"))),
        remaining=_integer(content.get("remaining")),
        reset_at=read_instant(content.get("resetAt")),
        period_start=read_instant(span.get("start")),
        period_end=read_instant(span.get("end")),
        rate=_number(content.get("rate")),
        burst=_integer(content.get("burst")),
        is_unlimited=limit is None and "limit" in content,
        date=answer.date,
        received_at=answer.received_at,
    )


def read_instant(value: Any) -> datetime | None:
    """Return an ISO 8601 text with a zone, or seconds since 1970, as aware UTC, else None.

    Also None for impossible years: arithmetic with the year 1 or 9999 overflows.
    """
    if isinstance(value, int) and not isinstance(value, bool) and value in _EPOCH:
        return datetime.fromtimestamp(value, UTC)
    if not isinstance(value, str):
        return None
    try:
        read = datetime.fromisoformat(value)
    except ValueError:
        return None
    return None if read.tzinfo is None or read.year not in _YEARS else read.astimezone(UTC)


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        read = float(value)
    except (ValueError, OverflowError):
        return None
    return read if 0 <= read < float("inf") else None


def _integer(value: Any) -> int | None:
    """Return a count, at most COUNT_MAX, so that no sum overflows."""
    if isinstance(value, int) and not isinstance(value, bool):
        return min(value, COUNT_MAX) if value >= 0 else None
    read = _number(value)
    return None if read is None else int(min(read, COUNT_MAX))


def _not_an_object(answer: Answer, call: str) -> NotData:
    return NotData(
        f"{call} was answered with JSON that is not an object",
        kind="json",
        evidence=answer.evidence(),
    )
