"""A service in front of a sandbox that differs from the decisions in chosen points.

with different_service(sandbox, DIFFERENCES) as service:
    ...  # service.base_url, service.requests

It answers over real HTTP on loopback: it asks the sandbox, and changes the answer. A client accepts
every form, or has a setting for it.
"""

import csv
import io
import json
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Any, Final

import httpx
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from catalog.sandbox.sandbox import Sandbox
from catalog.server.hosting import HostedApp
from tests.hangs import HANGS_AFTER_S

EXPORT_PATH: Final = "/v2/export/events.csv"
LIMIT_MAX: Final = 20
DIFFERENCES: Final = frozenset(
    {
        "another export path",
        "bare array of categories",
        "coins of the export joined with a bar",
        "epoch in the reset header",
        "error pages in HTML",
        "export columns in another order",
        "extra event field",
        "key refused with 401",
        "lists of at most 20",
        "numeric category ids",
        "offset cursor",
        "other names in usage",
        "parameter refused with 422",
        "single event in data",
    }
)
MORE: Final = frozenset({"no limit headers", "retry after as a date", "retired version is gone"})
"""These exclude one of the others, or show in a refusal."""
_OWN: Final = (
    *("connection", "content-encoding", "content-length", "server", "transfer-encoding"),
)
_PATH: Final = "/v2/events/export"


class DifferentService:
    """The answers. `requests` are the methods and targets received, oldest first.

    The OpenAPI document has `export_path` if it `names_export`.
    Pages of the events of more than `refused_above` rows are refused.
    From request `limited_from` on every request gets 429. From `down_from` on none is answered.
    """

    def __init__(self, sandbox_url: str, differences: Collection[str]) -> None:
        unknown = set(differences) - DIFFERENCES - MORE
        assert not unknown, unknown
        self.differences = frozenset(differences)
        self.requests: list[tuple[str, str]] = []
        self.keys_seen: set[str] = set()
        self.limited_from: int | None = None
        self.down_from: int | None = None
        self.refused_above: int | None = None
        self.export_path = EXPORT_PATH
        self.names_export = False
        self.base_url = ""
        self._http = httpx.Client(base_url=sandbox_url, timeout=HANGS_AFTER_S, verify=False)
        self._cursors: dict[str, str] = {}
        self._categories: dict[str, str] = {}

    def __call__(self, request: Request) -> Response:
        """Answer one request; Starlette runs it on a thread."""
        target = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        self.requests.append((request.method, target))
        self.keys_seen.add(request.headers.get("x-api-key", ""))
        number = len(self.requests)
        if self.down_from is not None and number >= self.down_from:
            return Response(b"Bad gateway", status_code=502, media_type="text/plain")
        if self.limited_from is not None and number >= self.limited_from:
            return self._too_many()
        limit = request.query_params.get("limit", "")
        if self.refused_above is not None and limit.isdigit() and int(limit) > self.refused_above:
            text = f"limit must be an integer from 1 to {self.refused_above}"
            return Response(json.dumps({"message": text}), status_code=400)
        answer = self._ask(request)
        headers = {k: v for k, v in answer.headers.items() if k not in _OWN}
        status, body = answer.status_code, answer.content
        if status >= 400:
            status, body, media = self._refusal(request, answer)
            headers["content-type"] = media
        elif "json" in headers.get("content-type", ""):
            body = json.dumps(self._changed(request.url.path, answer.json())).encode()
        elif headers.get("content-type", "").startswith("text/csv"):
            body = self._export(body)
        self._change_headers(headers)
        return Response(body, status_code=status, headers=headers)

    def _has(self, difference: str) -> bool:
        return difference in self.differences

    def _ask(self, request: Request) -> httpx.Response:
        path, query = request.url.path, dict(request.query_params)
        if self._has("another export path"):
            # The path of the decisions is the identifier of an event that does not exist.
            path = {self.export_path: _PATH, _PATH: "/v2/events/none"}.get(path, path)
        if self._has("lists of at most 20") and path in ("/v2/events", "/v2/coins"):
            given = query.get("limit", str(LIMIT_MAX))
            query["limit"] = str(min(int(given), LIMIT_MAX)) if given.isdigit() else given
        if self._has("offset cursor") and "cursor" in query:
            query["cursor"] = self._cursors.get(query["cursor"], query["cursor"])
        if self._has("numeric category ids") and "categories" in query:
            given = query["categories"].split(",")
            query["categories"] = ",".join(self._categories.get(each, each) for each in given)
        kept = ("x-api-key", "authorization", "if-none-match", "accept", "user-agent")
        headers = {name: request.headers[name] for name in kept if name in request.headers}
        return self._http.request(request.method, path, params=query, headers=headers)

    def _changed(self, path: str, document: Any) -> Any:
        if path == "/v2/openapi.json" and self.names_export:
            paths = document["paths"].items()
            document["paths"] = {
                self.export_path if name.endswith("/export") else name: item for name, item in paths
            }
        if path == "/v2/categories":
            return self._category_list(document)
        if path == "/v2/usage" and self._has("other names in usage"):
            return {
                "tier": document["plan"],
                "requests": {"used": document["used"], "quota": document["limit"]},
                "periodEnd": document["resetAt"],
            }
        if path.startswith("/v2/events/") and "title" in document:
            self._add_field(document)
            return {"data": document} if self._has("single event in data") else document
        if isinstance(document, dict) and isinstance(document.get("data"), list):
            for row in document["data"]:
                if path == "/v2/events":
                    self._add_field(row)
            meta = document.get("meta", {})
            if self._has("offset cursor") and meta.get("cursor"):
                name = f"offset-{len(self._cursors) + 1}"
                self._cursors[name] = meta["cursor"]
                meta["cursor"] = name
        return document

    def _add_field(self, event: dict[str, Any]) -> None:
        if self._has("extra event field"):
            event["communityVotes"] = 7

    def _category_list(self, document: Any) -> Any:
        rows = document["data"]
        if self._has("numeric category ids"):
            self._categories = {str(n): row["id"] for n, row in enumerate(rows, start=1)}
            rows = [{**row, "id": n, "slug": row["id"]} for n, row in enumerate(rows, start=1)]
        return rows if self._has("bare array of categories") else {**document, "data": rows}

    def _export(self, body: bytes) -> bytes:
        rows = list(csv.reader(io.StringIO(body.decode("utf-8"), newline="")))
        head = rows[0]
        if self._has("coins of the export joined with a bar"):
            places = [head.index(name) for name in ("coins", "categories")]
            for row in rows[1:]:
                for place in places:
                    row[place] = row[place].replace(";", "|")
        if self._has("export columns in another order"):
            rows = [row[::-1] for row in rows]
        text = io.StringIO(newline="")
        csv.writer(text, lineterminator="\r\n").writerows(rows)
        return text.getvalue().encode()

    def _refusal(self, request: Request, answer: httpx.Response) -> tuple[int, bytes, str]:
        status, body = answer.status_code, answer.content
        code = ""
        if "json" in answer.headers.get("content-type", ""):
            code = (answer.json().get("error") or {}).get("code", "")
        if code == "unauthorized" and self._has("key refused with 401"):
            status = 401
        if status == 400 and self._has("parameter refused with 422"):
            status = 422
        if code == "version_retired" and self._has("retired version is gone"):
            status = 410
        if self._has("error pages in HTML"):
            page = f"<!doctype html><title>Error {status}</title><h1>Error {status}</h1>"
            return status, page.encode(), "text/html; charset=utf-8"
        return status, body, answer.headers.get("content-type", "application/json")

    def _too_many(self) -> Response:
        headers = {"retry-after": "3600"}
        if self._has("retry after as a date"):
            at = datetime(2999, 1, 1, tzinfo=UTC)
            headers["retry-after"] = format_datetime(at, usegmt=True)
        body = json.dumps({"message": "Too Many Requests"})
        return Response(body, status_code=429, headers=headers, media_type="application/json")

    def _change_headers(self, headers: dict[str, str]) -> None:
        reset = headers.get("x-ratelimit-reset")
        if reset is not None and self._has("epoch in the reset header"):
            seconds = datetime.fromisoformat(reset.replace("Z", "+00:00")).timestamp()
            headers["x-ratelimit-reset"] = str(int(seconds))
        if self._has("no limit headers"):
            for name in ("limit", "remaining", "reset"):
                headers.pop(f"x-ratelimit-{name}", None)


@contextmanager
def different_service(
    sandbox: Sandbox, differences: Collection[str] = DIFFERENCES
) -> Iterator[DifferentService]:
    """Yield a running service that differs in these points from a running sandbox."""
    service = DifferentService(sandbox.base_url, differences)
    methods = ["GET", "HEAD", "POST"]
    app = Starlette(routes=[Route("/{path:path}", service.__call__, methods=methods)])
    hosted = HostedApp(app, host="127.0.0.1", port=0).start()
    service.base_url = hosted.base_url
    try:
        yield service
    finally:
        hosted.stop()
