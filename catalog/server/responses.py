"""The responses of the interface: JSON with an ETag or a 304, and errors in their one form."""

import hashlib
import logging
from datetime import datetime
from email.utils import parsedate_to_datetime

import msgspec
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from catalog.contract import errors
from catalog.contract.errors import ApiError
from catalog.contract.records import Record

log = logging.getLogger(__name__)
METHODS = ("GET", "HEAD")
VARY = "x-api-key, Authorization, Accept-Encoding"


def make_etag(content: bytes) -> str:
    """Return a tag of the content: weak, since gzip changes the bytes and not the meaning."""
    return f'W/"{hashlib.blake2b(content, digest_size=12).hexdigest()}"'


def json_response(request: Request, record: Record, *, max_age_s: int) -> Response:
    """Return the record, or a 304 when the client has it already."""
    body = msgspec.json.encode(record)
    headers = {
        "ETag": make_etag(body),
        "Cache-Control": f"private, max-age={max_age_s}",
        "Vary": VARY,
    }
    if is_not_modified(request, headers["ETag"]):
        return Response(status_code=304, headers=headers)
    return Response(body, media_type="application/json", headers=headers)


def is_not_modified(request: Request, etag: str, changed_at: datetime | None = None) -> bool:
    """Whether If-None-Match names this tag, by weak comparison.

    Without that header, whether If-Modified-Since is not before the last change, if that is known.
    """
    lines = request.headers.getlist("if-none-match")
    if lines:
        tags = {tag.strip().removeprefix("W/") for line in lines for tag in line.split(",")}
        return "*" in tags or etag.removeprefix("W/") in tags
    since = request.headers.get("if-modified-since")
    if changed_at is None or since is None:
        return False
    try:
        return changed_at.replace(microsecond=0) <= parsedate_to_datetime(since)
    except (ValueError, TypeError):
        return False  # an invalid date is ignored (RFC 9110, 13.1.3)


def error_response(error: ApiError, scope: Scope) -> Response:
    return Response(
        error.body(scope["state"]["request_id"]),
        status_code=error.status,
        media_type="application/json",
        headers={"Cache-Control": "no-store", **error.headers},
    )


async def answer_exception(request: Request, error: Exception) -> Response:
    """Return the response to an exception of a handler. An unforeseen exception is logged."""
    if isinstance(error, HTTPException) and error.status_code == 404:
        error = errors.NotFound("No such path")
    elif isinstance(error, HTTPException) and error.status_code == 405:
        allowed = Headers(error.headers).get("allow", "").split(", ")
        error = errors.MethodNotAllowed(headers={"Allow": ", ".join(sorted(allowed))})
    if not isinstance(error, ApiError):
        log_failure(request.scope, error)
        error = errors.InternalError()
    return error_response(error, request.scope)


def log_failure(scope: Scope, error: BaseException) -> None:
    """Log a failure by its request id. The path is left out, since it may contain a secret."""
    route, state = scope.get("route"), scope["state"]
    name = "other" if route is None else route.name
    log.error(
        "%s %s failed: request=%s", scope["method"], name, state["request_id"], exc_info=error
    )
