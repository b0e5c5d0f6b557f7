"""Checks responses of a server against the OpenAPI document that the same server publishes."""

from collections.abc import Iterator
from functools import cache
from typing import Any

import httpx
from openapi_schema_validator import OAS30Validator, oas30_format_checker

Node = dict[str, Any]
CONTRACT_HEADERS = {
    *("x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset", "retry-after", "etag"),
    *("last-modified", "content-disposition", "deprecation", "sunset", "x-as-of", "date"),
}


def resolve(document: Node, node: Any) -> Any:
    """Return a node with every reference in it resolved."""
    if isinstance(node, dict):
        if "$ref" in node:
            found: Any = document
            for step in node["$ref"].removeprefix("#/").split("/"):
                found = found[step]
            return resolve(document, found)
        return {key: resolve(document, value) for key, value in node.items()}
    return [resolve(document, each) for each in node] if isinstance(node, list) else node


def validator(schema: Node) -> OAS30Validator:
    return OAS30Validator(schema, format_checker=oas30_format_checker)


class Documented:
    """The document of a server, and which of its statuses and headers were seen."""

    def __init__(self, client: httpx.Client) -> None:
        self.document: Node = client.get("/v2/openapi.json").json()
        self._client = client
        self.count = 0
        self.seen_statuses: set[tuple[str, str]] = set()
        self.seen_headers: set[str] = set()
        self._described = cache(self._describe)

    def _describe(self, path: str, status: str) -> tuple[set[str], set[str], dict[str, Any]]:
        responses = self.document["paths"][path]["get"]["responses"]
        assert status in responses, f"{path} is answered with {status}"
        found = resolve(self.document, responses[status])
        headers = {name.lower(): each for name, each in found.get("headers", {}).items()}
        required = {name for name, each in headers.items() if each.get("required")}
        bodies = {
            kind: validator(media["schema"]) for kind, media in found.get("content", {}).items()
        }
        return set(headers), required, bodies

    def get(self, path: str, *, names: Node | None = None, **options: Any) -> httpx.Response:
        """Request a path of the document, and check the response."""
        answer = self._client.get(path.format(**(names or {})), **options)
        self.check(path, answer)
        return answer

    def check(self, path: str, answer: httpx.Response) -> None:
        """Fail if a response of a path is not one that the document describes."""
        status, sent = str(answer.status_code), set(answer.headers)
        headers, required, bodies = self._described(path, status)
        case = f"{answer.request.url} {status}"
        assert required <= sent, f"{case} has no {required - sent}"
        undescribed = sent & CONTRACT_HEADERS - headers - {"date"}
        assert not undescribed, f"{case} has {undescribed}"
        kind = answer.headers.get("content-type", "").partition(";")[0]
        assert (kind in bodies) if bodies else not answer.content, f"{case} has {kind}"
        if kind == "application/json":
            for error in bodies[kind].iter_errors(answer.json()):
                raise AssertionError(f"{case}: {error.message} at {list(error.path)}")
        self.count += 1
        self.seen_statuses.add((path, status))
        self.seen_headers |= sent & headers

    def unseen_headers(self) -> set[str]:
        """Return headers that the document has, and no checked response had."""
        return {name.lower() for name in self.document["components"]["headers"]} - self.seen_headers

    def operations(self) -> Iterator[tuple[str, Node]]:
        for path, item in self.document["paths"].items():
            yield path, item["get"]
