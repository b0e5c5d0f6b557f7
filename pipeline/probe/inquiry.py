"""Sends the requests of a probe, one after another, and keeps each response.

Each request goes through the client and the limiter, without a retry. It stops at the first 429,
if the key is refused, and if the service fails twice in a row.
"""

import csv
import io
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from catalog.contract.bodies import list_body
from pipeline.probe.questions import EXPORT_PATHS, Question, explain_missing
from resources.answers import Answer, ResponseHead
from resources.errors import AccessDenied, CatalogError, Defer, RateHeld, Stop
from warehouse.codecs import UnreadableBody, decode_json, detect_kind

if TYPE_CHECKING:
    from pipeline.session import UnclaimedService
    from resources.http.client import InspectedAnswer

_MOST_BYTES: Final = 1 << 20
"""So much of a body is read: more of an export is not needed."""
_FAILURES: Final = 2
_VALUE_CHARS: Final = 2_000
"""A longer value of a response is not sent back."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A response, or the reason why there is none. `path` and `params` are those that were sent."""

    number: int
    question: Question
    path: str
    params: Mapping[str, str]
    status: int | None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    body: bytes = field(default=b"", repr=False)
    received_at: datetime | None = None
    is_cut: bool = False
    fault: str = ""

    @property
    def kind(self) -> str:
        """The form of the body: json, csv, html, text or empty."""
        if not self.body.strip():
            return "empty"
        if "html" in self.headers.get("content-type", "") or detect_kind(self.body) == "html":
            return "html"
        if self.json() is not None:
            return "json"
        return "csv" if "csv" in self.headers.get("content-type", "") else "text"

    def json(self) -> Any:
        """Return the value of the body, None if it is not JSON."""
        try:
            return decode_json(self.body)[0]
        except UnreadableBody:
            return None

    def rows(self) -> list[Any]:
        """Return the rows of a list, none if it is not a list."""
        found = list_body(self.json())
        return [] if found is None or self.status != 200 else found.rows

    def csv_rows(self) -> list[list[str]]:
        """Return the complete records of a CSV, the header first."""
        text = self.body.decode("utf-8-sig", "replace")
        try:
            rows = [row for row in csv.reader(io.StringIO(text, newline="")) if row]
        except csv.Error:
            return []
        return rows[:-1] if self.is_cut else rows


@dataclass(slots=True)
class Inquiry:
    """The responses of a probe. `stopped` is why it ended early, empty if it did not."""

    replies: dict[str, Reply] = field(default_factory=dict)
    sent: list[Reply] = field(default_factory=list)
    unasked: dict[str, str] = field(default_factory=dict)
    """Why a request was not sent, by its name."""
    values: dict[str, str] = field(default_factory=dict)
    stopped: str = ""

    @property
    def requests(self) -> int:
        return len(self.sent)


def ask(
    service: "UnclaimedService",
    questions: tuple[Question, ...],
    *,
    most: int,
    on_request: Callable[[Question], None],
    on_reply: Callable[[Reply], None],
) -> Inquiry:
    """Send at most so many requests, and return every response.

    `on_reply` gets each response as it comes.
    """
    inquiry, failures = Inquiry(), 0
    for place, question in enumerate(questions):
        if inquiry.stopped:
            inquiry.unasked[question.name] = inquiry.stopped
            continue
        missing = [name for name in question.needs if name not in inquiry.values]
        if question.kind == "export":
            missing = []
        if missing:
            inquiry.unasked[question.name] = explain_missing(missing[0])
            continue
        later = len(questions) - place - 1
        tries = max(1, min(question.tries, most - inquiry.requests - later))
        for path in _paths(question, inquiry)[:tries]:
            if inquiry.requests >= most:
                inquiry.unasked[question.name] = f"--max-requests {most} does not allow it"
                break
            on_request(question)
            reply, error = _send(service, question, path, inquiry)
            inquiry.sent.append(reply)
            on_reply(reply)
            if question.name not in inquiry.replies or _is_export(reply):
                inquiry.replies[question.name] = reply
            failures = failures + 1 if error is not None or (reply.status or 0) >= 500 else 0
            inquiry.stopped = _why_stop(reply, error, failures, inquiry)
            _learn(reply, inquiry.values)
            if inquiry.stopped or question.kind != "export" or not _is_elsewhere(reply):
                break
    return inquiry


def _paths(question: Question, inquiry: Inquiry) -> list[str]:
    if question.kind != "export":
        return [question.filled_path(inquiry.values)]
    document = inquiry.replies.get("openapi")
    found = document.json() if document is not None and document.status == 200 else None
    named = found.get("paths") if isinstance(found, dict) else None
    exports = [
        path
        for path in (named if isinstance(named, dict) else {})
        if isinstance(path, str) and "export" in path.lower() and "{" not in path
    ]
    base = exports if question.path not in exports else []
    paths = [question.path, *(path if path.startswith("/v") else f"/v2{path}" for path in base)]
    return list(dict.fromkeys((*paths, *EXPORT_PATHS)))


def _send(
    service: "UnclaimedService", question: Question, path: str, inquiry: Inquiry
) -> tuple[Reply, CatalogError | None]:
    client = service.stranger if question.kind == "stranger" else service.client
    values, number = inquiry.values, inquiry.requests + 1
    params = question.filled_params(values)
    if question.kind == "export" and "event_day" not in values:
        params = {}
    try:
        answer = client.inspect(
            path,
            params,
            most_bytes=_MOST_BYTES,
            for_usage=question.kind == "usage",
            for_export=question.kind == "export",
        )
    except CatalogError as error:
        seen = error.evidence
        reply = Reply(number, question, path, params, None, fault=error.happened)
        return (reply if seen is None else _refused(reply, seen)), error
    return _received(Reply(number, question, path, params, None), answer), None


def _refused(reply: Reply, seen: ResponseHead) -> Reply:
    return Reply(
        *(reply.number, reply.question, reply.path, reply.params, seen.status),
        headers=seen.headers,
        body=seen.body if isinstance(seen, Answer) else b"",
        received_at=seen.received_at,
        fault=reply.fault,
    )


def _received(reply: Reply, answer: "InspectedAnswer") -> Reply:
    return Reply(
        *(reply.number, reply.question, reply.path, reply.params, answer.status),
        headers=answer.headers,
        body=answer.body,
        received_at=answer.received_at,
        is_cut=answer.is_cut,
        fault=answer.fault,
    )


def _is_export(reply: Reply) -> bool:
    return reply.question.kind == "export" and reply.status == 200 and reply.kind == "csv"


def _is_elsewhere(reply: Reply) -> bool:
    """Whether an export may be at another path: this one has none, and is not refused by plan."""
    return not _is_export(reply) and (reply.status or 0) < 500 and not says_plan(reply)


def says_plan(reply: Reply) -> bool:
    """Whether a refusal is about the plan of the key."""
    if reply.status == 402:
        return True
    text = reply.body.decode("utf-8", "replace").lower()
    return reply.status in (401, 403) and any(word in text for word in ("tier", "plan"))


def _why_stop(reply: Reply, error: CatalogError | None, failures: int, inquiry: Inquiry) -> str:
    """Return why no more is sent; empty if the probe goes on."""
    call = f"request {reply.number} (GET {reply.path})"
    if reply.status == 429:
        waits = reply.headers.get("retry-after")
        wait = f", Retry-After: {waits[:60]}" if waits else ""
        return f"{call} was answered 429{wait}: something else uses the key, or the limits differ"
    if isinstance(error, Defer | RateHeld):
        return f"{call} was not sent: {error.happened}"
    if isinstance(error, AccessDenied | Stop) and reply.status is None:
        return f"{call} failed: {error.happened}"
    is_first = not any(earlier.status == 200 for earlier in inquiry.sent)
    is_refused = reply.status in (401, 403) and not says_plan(reply)
    is_of_key = reply.question.kind != "stranger" and (is_first or reply.status == 401)
    if is_refused and is_of_key:
        return f"{call} was answered {reply.status}: the service refuses the key"
    if is_first and reply.status is not None and 300 <= reply.status < 400:
        where = reply.headers.get("location", "nowhere")[:200]
        return (
            f"{call} was redirected to {where}. The key was not sent there; set ALMANAC_BASE_URL "
            "to that address if it is the service's"
        )
    if failures >= _FAILURES or (error is not None and reply.status is None and is_first):
        how = reply.fault if error is not None else f"answered {reply.status}"
        return f"{call} failed: {how}"
    return ""


def _learn(reply: Reply, values: dict[str, str]) -> None:
    """Keep the values of a response that later requests need."""
    found = dict(_values_in(reply))
    for name, value in found.items():
        if len(value) <= _VALUE_CHARS and value.isprintable():
            values.setdefault(name, value)


def _values_in(reply: Reply) -> Iterator[tuple[str, str]]:
    rows = [row for row in reply.rows() if isinstance(row, dict)]
    match reply.question.name:
        case "events":
            yield from _event_values(rows)
            if etag := reply.headers.get("etag"):
                yield "etag", etag
        case "page":
            body = list_body(reply.json())
            if reply.status == 200 and body is not None and body.cursor not in (None, ""):
                cursor = body.cursor
                yield "cursor", cursor if isinstance(cursor, str) else json.dumps(cursor)
        case "categories":
            for row in rows:
                if isinstance(row.get("id"), str | int):
                    yield "category_id", str(row["id"])
                    return
        case "cancellations":
            for row in rows:
                if isinstance(row.get("id"), str | int):
                    yield "cancelled_id", str(row["id"])
                    if isinstance(row.get("cancelledAt"), str):
                        yield "cancelled_at", row["cancelledAt"]
                    return
        case "coins":
            for row in rows:
                slug, name = row.get("slug"), row.get("name")
                if isinstance(slug, str) and isinstance(name, str) and len(name) > 3:
                    yield "coin", slug
                    yield "coin_part", name[1:4]
                    return
        case _:
            return


def _event_values(rows: list[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    for row in rows:
        event_id, day = row.get("id"), row.get("date")
        if isinstance(event_id, str | int) and isinstance(day, str) and len(day) >= 10:
            yield "event_id", str(event_id)
            yield "event_day", day[:10]
            return
