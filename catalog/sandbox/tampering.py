"""What a fault does to the body of an answer: cursors, rows, schema. JSON pages and CSV."""

import csv
import io
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs

import msgspec
from starlette.types import Scope

_REMEMBERED = 10_000
_DRIFTING = {"title": "headline", "name": "label"}


class PageMemory:
    """Remembers the cursors that were sent, so that pages can be made to repeat."""

    def __init__(self) -> None:
        self._before: dict[str, str] = {}
        self._last_row: dict[str, Any] = {}

    def tamper(self, name: str, value: str, scope: Scope, body: bytes) -> bytes:
        """Return the body with the fault applied; a body that it can't apply to is unchanged."""
        if name == "drift" and not body.startswith(b"{"):
            return _drift_csv(value, body)
        try:
            answer = msgspec.json.decode(body)
        except msgspec.DecodeError:
            return body
        if name == "drift":
            return msgspec.json.encode(_drift_json(value, answer))
        if not isinstance(answer, dict) or not isinstance(answer.get("data"), list):
            return body
        cursor = parse_qs(scope["query_string"].decode("latin-1")).get("cursor", [""])[0]
        self._remember(cursor, answer)
        TAMPERINGS[name](self, cursor, answer)
        return msgspec.json.encode(answer)

    def repeat_cursor(self, cursor: str, page: dict[str, Any]) -> None:
        if cursor:
            page["meta"]["cursor"] = cursor

    def cycle_cursor(self, cursor: str, page: dict[str, Any]) -> None:
        page["meta"]["cursor"] = self._before.get(cursor, page["meta"]["cursor"])

    def duplicate_rows(self, cursor: str, page: dict[str, Any]) -> None:
        if cursor in self._last_row:
            page["data"].insert(0, self._last_row[cursor])

    def shift_rows(self, cursor: str, page: dict[str, Any]) -> None:
        if cursor:
            del page["data"][:1]

    def _remember(self, cursor: str, page: dict[str, Any]) -> None:
        following = page["meta"].get("cursor")
        if following is None:
            return
        for memory in (self._before, self._last_row):
            if len(memory) >= _REMEMBERED:
                memory.clear()
        if cursor:
            self._before[following] = cursor
        if page["data"]:
            self._last_row[following] = page["data"][-1]


Tampering = Callable[[PageMemory, str, dict[str, Any]], None]


def _no_page_tampering(memory: PageMemory, cursor: str, page: dict[str, Any]) -> None:
    """Drift does not depend on the page; `tamper` applies it before."""


TAMPERINGS: dict[str, Tampering] = {
    "repeat_cursor": PageMemory.repeat_cursor,
    "cycle_cursor": PageMemory.cycle_cursor,
    "duplicate_rows": PageMemory.duplicate_rows,
    "shift_rows": PageMemory.shift_rows,
    "drift": _no_page_tampering,
}


def _drift_json(value: str, answer: Any) -> Any:
    rows = answer["data"] if isinstance(answer, dict) and "data" in answer else [answer]
    for row in rows:
        if isinstance(row, dict):
            _drift_row(value, row)
    return answer


def _drift_row(value: str, row: dict[str, Any]) -> None:
    if value == "extra":
        row["sentiment"] = {"score": 0.5, "votes": 3}
    for known, renamed in _DRIFTING.items():
        if known in row and value == "rename":
            row[renamed] = row.pop(known)
        elif known in row and value == "missing":
            del row[known]
        elif known in row and value == "retype":
            row[known] = {"text": row[known]}


def _drift_csv(value: str, body: bytes) -> bytes:
    rows = list(csv.reader(io.StringIO(body.decode(), newline="")))
    title = rows[0].index("title")
    for place, row in enumerate(rows):
        if value == "extra":
            row.append("0.5" if place else "sentiment")
        elif value == "missing":
            del row[title]
        elif value == "rename" and not place:
            row[title] = "headline"
        elif value == "retype" and place:
            row[title] = f"[{row[title]!r}]"
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\r\n").writerows(rows)
    return text.getvalue().encode()
