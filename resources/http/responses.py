"""Which error an answer is (interface section 7, decisions on errors, keys, plans and quota)."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, Literal

import httpx

from resources.errors import (
    CatalogError,
    ContractBroken,
    Defer,
    KeyRejected,
    PlanLacksAccess,
    RateHeld,
    RequestRejected,
    ServiceFailing,
    TooSlow,
    TruncatedBody,
    Unreachable,
    VersionGone,
)
from resources.http.retries import RetryPolicy
from resources.limits.allowance import next_reset
from resources.limits.limiter import RATE_LIMITED_WAIT_S
from resources.service_clock import retry_after_s
from warehouse.normalise.payloads import kind_of
from warehouse.plain_text import plain_line

BodyShape = Literal["json", "text", "html", "empty"]

_TRANSIENT: Final = frozenset({408, 425, 500, 502, 503, 504})
_PLAN_CODES: Final = frozenset({"tier_required", "plan_required"})
_SLOW: Final = frozenset({500, 504})
_MESSAGE_CHARS: Final = 200
_LONGEST_MONTH_S: Final = 31 * 86_400.0
_TIMEOUT_MESSAGE: Final = re.compile(r"\bran longer than\b")
_MONTH_MESSAGE: Final = re.compile(r"(?<!rate )(?<!burst )limit exceeded", re.I)
"""The message of a response that means that the quota of the month is used up. A gateway's "API
rate limit exceeded" does not mean that."""


@dataclass(frozen=True, slots=True)
class ErrorBody:
    """An error body, in any form: our two, a gateway's, text, HTML, nothing."""

    shape: BodyShape
    code: str = ""
    message: str = ""
    fields: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class ErrorResponse:
    """An answer that is not data. `seconds` is how long it took, `now` the service's time."""

    call: str
    status: int
    headers: Mapping[str, str]
    body: bytes
    seconds: float
    now: datetime


def looks_like_html(body: bytes, content_type: str = "") -> bool:
    """Whether a body is HTML, by its header or its beginning."""
    return "html" in content_type.lower() or kind_of(body) == "html"


def read_error_body(body: bytes, content_type: str = "") -> ErrorBody:
    """Read an error body liberally; it never fails."""
    if not body.strip():
        return ErrorBody("empty")
    if looks_like_html(body, content_type):
        return ErrorBody("html")
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError):
        return ErrorBody("text", message=body.decode("utf-8", "replace"))
    if not isinstance(fields, dict):
        return ErrorBody("json", message=str(fields))
    inner = fields.get("error")
    if not isinstance(inner, dict):
        inner = {"message": inner} if isinstance(inner, str) else {}
    code = inner.get("code", fields.get("code", ""))
    message = fields.get("message") or inner.get("message") or ""
    return ErrorBody("json", str(code), str(message), fields)


def error_from_response(
    response: ErrorResponse, *, policy: RetryPolicy, redact: Callable[[str], str] = str
) -> CatalogError:
    """Return the error for an answer; `redact` removes the key from the service's message."""
    content_type = response.headers.get("content-type", "")
    body = read_error_body(response.body, content_type)
    message_part = plain_line(redact(body.message))[:_MESSAGE_CHARS]
    message = f"{response.call} was answered {response.status}" + (
        f" ({message_part})" if message_part else ""
    )
    if response.status == 429 or response.status in _TRANSIENT:
        return _transient(response, body, message, policy)
    if response.status in (401, 402, 403):
        return _denied(response, body, message)
    if response.status == 410 or body.code == "version_retired":
        return VersionGone(message)
    if 300 <= response.status < 400:
        return RequestRejected(message, expected="The key is not sent to another address")
    if 200 <= response.status < 300:
        return ContractBroken(message, expected="Expected was 200")
    return RequestRejected(message)


def _transient(
    response: ErrorResponse, body: ErrorBody, message: str, policy: RetryPolicy
) -> CatalogError:
    wait_s = retry_after_s(response.headers.get("retry-after"), now=response.now)
    if response.status == 429 and _is_quota(body):
        return _quota_gone(response.now, wait_s, message)
    if wait_s is not None and wait_s > policy.retry_after_max_s:
        resume_at = response.now + timedelta(seconds=min(wait_s, policy.defer_max_s))
        return Defer(
            f"{message}, and requested a wait", resume_at=resume_at, reason="asked_to_wait"
        )
    if response.status == 429:
        return RateHeld(message, wait_s=RATE_LIMITED_WAIT_S if wait_s is None else wait_s)
    timed_out = response.seconds >= policy.slow_after_s or _says_timeout(body)
    if response.status in _SLOW and timed_out:
        return TooSlow(f"{message} within {response.seconds:.1f} s")
    return ServiceFailing(message, wait_s=wait_s or 0.0)


def _denied(response: ErrorResponse, body: ErrorBody, message: str) -> CatalogError:
    if body.code == "version_retired":
        return VersionGone(message)
    names_plan = body.code in _PLAN_CODES or re.search(r"\bplan\b", body.message, re.I)
    if response.status == 402 or (response.status == 403 and names_plan):
        return PlanLacksAccess(message)
    return KeyRejected(message)


def _says_timeout(body: ErrorBody) -> bool:
    return body.code == "timeout" or _TIMEOUT_MESSAGE.search(body.message) is not None


def _is_quota(body: ErrorBody) -> bool:
    return body.code == "quota_exceeded" or _MONTH_MESSAGE.search(body.message) is not None


def _quota_gone(now: datetime, wait_s: float | None, message: str) -> Defer:
    """Return the Defer to the reset: by Retry-After, else the first of the month, 00:00 UTC."""
    reset = next_reset(now)
    return Defer(
        f"{message}: the monthly quota is used up",
        resume_at=now + timedelta(seconds=min(wait_s, _LONGEST_MONTH_S)) if wait_s else reset,
        reason="quota",
        estimated=not wait_s,
    )


def error_from_transport(
    error: Exception, call: str, *, answered: bool, redact: Callable[[str], str] = str
) -> CatalogError:
    """Return the error for an exception of httpx; it is not chained to the exception.

    A chained one would keep the frames alive in which the request with its key can be read.
    """
    message = plain_line(redact(f"{type(error).__name__}: {error}".rstrip(": ")))
    if answered and isinstance(error, httpx.RemoteProtocolError | httpx.ReadError):
        return TruncatedBody(f"{call}: the connection broke inside the body ({message})")
    if isinstance(error, httpx.UnsupportedProtocol | httpx.InvalidURL | httpx.LocalProtocolError):
        return RequestRejected(f"{call} could not be sent ({message})")
    return Unreachable(f"{call} got no complete response ({message})")
