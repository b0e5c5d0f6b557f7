"""Which error a response is (interface section 7, decisions on errors, keys, plans and quota)."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal

import httpx

from almanac.forms import plain_line
from catalog.contract.plans import day_start
from resources.errors import (
    CatalogError,
    ContractBroken,
    Defer,
    KeyRejected,
    NotModified,
    Period,
    PlanLacksAccess,
    RateHeld,
    RequestRejected,
    ServiceFailing,
    TooSlow,
    TruncatedBody,
    Unreachable,
    VersionGone,
)
from resources.http.network import Proxy, connection_error, proxy_refused
from resources.limits.allowance import QuotaHeaders, next_reset
from resources.limits.limiter import RATE_LIMITED_WAIT_S
from resources.service_clock import read_http_date, retry_after_s
from resources.waits import RetryPolicy
from warehouse.codecs import detect_kind

BodyShape = Literal["json", "text", "html", "empty"]

_TRANSIENT: Final = frozenset({408, 425, 500, 502, 503, 504})
_PLAN_CODES: Final = frozenset({"tier_required", "plan_required"})
_SLOW: Final = frozenset({500, 504})
_MESSAGE_CHARS: Final = 200
_LONGEST_MONTH_S: Final = 31 * 86_400.0
_TIMEOUT_MESSAGE: Final = re.compile(r"\bran longer than\b")
_LONGEST_PERIOD_S: Final = 366 * 86_400
_COUNTS: Final = ("limit", "remaining")
_DIGITS: Final = 12
_EPOCH_FROM: Final = 1_000_000_000
"""A larger number of seconds is since 1970."""
_ID_CHARS: Final = 100
_DAILY: Final = re.compile(
    r"\b(daily|per day|24[ -]?h(ours)?)\b.*\b(quota|limit|requests?|calls?|allowance)\b"
    r"|\b(quota|limit|requests?|calls?|allowance)\b.*\b(daily|(per|for the|a) day|today)\b"
    r"|daily[_-]?(request[_-]?)?(quota|limit)|(quota|limit)[a-z]*[_-]daily",
    re.I | re.S,
)
"""A code or message that means that the quota of the day is used up."""
_QUOTA: Final = re.compile(r"quota", re.I)
_RATE: Final = re.compile(r"rate|burst|per[ _-]?(second|minute|hour)", re.I)
_LEAST_DAY_WAIT_S: Final = 60.0
_LONGEST_DAY_S: Final = 25 * 3_600.0
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
    request_id: str = ""


@dataclass(frozen=True, slots=True)
class ErrorResponse:
    """A response that is not data. `seconds` is how long it took, `now` the service's time.

    `month_left_s` is when the month ends as heard before, in seconds; None if it isn't known.
    """

    call: str
    status: int
    headers: Mapping[str, str]
    body: bytes
    seconds: float
    now: datetime
    month_left_s: float | None = None


def looks_like_html(body: bytes, content_type: str = "") -> bool:
    """Whether a body is HTML, by its header or its beginning."""
    return "html" in content_type.lower() or detect_kind(body) == "html"


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
    request_id = inner.get("requestId", fields.get("requestId", ""))
    named = request_id if isinstance(request_id, str) else ""
    return ErrorBody("json", str(code), str(message), fields, named)


def read_request_id(
    body: bytes, headers: Mapping[str, str], *, redact: Callable[[str], str] = str
) -> str | None:
    """Return the id that the service gave a request that failed, None if it gave none."""
    found = read_error_body(body, headers.get("content-type", "")).request_id
    found = found or headers.get("x-request-id", "")
    return plain_line(redact(found))[:_ID_CHARS] or None


def read_quota_headers(headers: Mapping[str, str]) -> QuotaHeaders | None:
    """Return what `X-RateLimit-*` say of the month (decisions, rate headers); None if nothing.

    The reset is a timestamp, seconds since 1970, or seconds from the response. A reset in the past,
    or more than a year ahead, is doubted and left out. An unreadable reset counts as not stated.
    """
    limit, remaining = (_count(headers.get(f"x-ratelimit-{name}")) for name in _COUNTS)
    date = read_http_date(headers.get("date"))
    reset_at, resets_in_s = _reset(headers.get("x-ratelimit-reset", ""), date)
    is_doubted = resets_in_s is not None and not 0 < resets_in_s <= _LONGEST_PERIOD_S
    if is_doubted:
        reset_at = resets_in_s = None
    if limit is not None and remaining is not None and remaining > limit:
        limit = remaining = None
    if limit is None and remaining is None and reset_at is None and resets_in_s is None:
        return None
    return QuotaHeaders(limit, remaining, reset_at, resets_in_s, is_doubted)


def _reset(text: str, date: datetime | None) -> tuple[datetime | None, float | None]:
    """Return the stated end of the month, and in how many seconds it is; None is not known."""
    seconds = _count(text)
    try:
        if seconds is not None and seconds < _EPOCH_FROM:
            reset_at = None if date is None else date + timedelta(seconds=seconds)
            return reset_at, float(seconds)
        if seconds is not None:
            reset_at = datetime.fromtimestamp(seconds, UTC)
        else:
            reset_at = datetime.fromisoformat(text.strip())
        if reset_at.tzinfo is None:
            return None, None
        left_s = None if date is None else (reset_at - date).total_seconds()
        return reset_at.astimezone(UTC), left_s
    except (ValueError, OverflowError, OSError):
        return None, None


def _count(text: str | None) -> int | None:
    """Return a header's count, None if it is none, or larger than any month has."""
    read = (text or "").strip()
    return int(read) if read.isascii() and read.isdecimal() and len(read) <= _DIGITS else None


def error_from_response(
    response: ErrorResponse,
    *,
    policy: RetryPolicy,
    redact: Callable[[str], str] = str,
    proxy: Proxy | None = None,
) -> CatalogError:
    """Return the error for a response; `redact` removes the key from the service's message."""
    content_type = response.headers.get("content-type", "")
    body = read_error_body(response.body, content_type)
    message_part = plain_line(redact(body.message))[:_MESSAGE_CHARS]
    message = f"{response.call} was answered {response.status}" + (
        f" ({message_part})" if message_part else ""
    )
    request_id = read_request_id(response.body, response.headers, redact=redact)
    if request_id is not None and response.status >= 500:
        # What a person reports to the service.
        message += f", request {request_id}"
    if response.status == 429 or response.status in _TRANSIENT:
        return _transient(response, body, message, policy)
    if response.status == 407 and proxy is not None:
        return proxy_refused(response.call, message, proxy, needs_login=True)
    if response.status in (401, 402, 403):
        return _denied(response, body, message)
    if response.status == 410 or body.code == "version_retired":
        return VersionGone(message)
    if response.status == 304:
        return NotModified(message)
    if 300 <= response.status < 400:
        return RequestRejected(message, expected="The key is not sent to another address")
    if 200 <= response.status < 300:
        return ContractBroken(message, expected="Expected was 200")
    return RequestRejected(message)


def _transient(
    response: ErrorResponse, body: ErrorBody, message: str, policy: RetryPolicy
) -> CatalogError:
    wait_s = retry_after_s(response.headers.get("retry-after"), now=response.now)
    if response.status == 429 and (period := _quota_of(body)) is not None:
        return _quota_gone(response, wait_s, message, period)
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


def _quota_of(body: ErrorBody) -> Period | None:
    """Return the period of the quota that a response says is used up; None if it is not a quota."""
    text = f"{body.code} {body.message}"
    if _DAILY.search(text) is not None:
        return "day"
    says_quota = _QUOTA.search(text) is not None and _RATE.search(text) is None
    if says_quota or _MONTH_MESSAGE.search(body.message) is not None:
        return "month"
    return None


def _quota_gone(
    response: ErrorResponse, wait_s: float | None, message: str, period: Period
) -> Defer:
    """Return the Defer to the reset.

    Of a month: by Retry-After, else by the headers, else as heard before, else the first of the
    month, 00:00 UTC. Of a day: by Retry-After, else by the headers, else the next midnight UTC.
    """
    now, heard = response.now, read_quota_headers(response.headers)
    if period == "day":
        midnight_s = (day_start(now) + timedelta(days=1) - now).total_seconds()
        stated = (wait_s, None if heard is None else heard.resets_in_s)
        # A shorter wait is that of the rate, which many services state in every 429.
        left_s = next((s for s in stated if s and _LEAST_DAY_WAIT_S <= s <= _LONGEST_DAY_S), None)
        return Defer(
            f"{message}: the daily quota is used up",
            resume_at=now + timedelta(seconds=left_s or midnight_s),
            reason="quota",
            estimated=left_s is None,
            period="day",
        )
    left_s = wait_s or (None if heard is None else heard.resets_in_s) or response.month_left_s
    resume_at = next_reset(now)
    if left_s:
        resume_at = now + timedelta(seconds=min(left_s, _LONGEST_MONTH_S))
    return Defer(
        f"{message}: the monthly quota is used up",
        resume_at=resume_at,
        reason="quota",
        estimated=not left_s,
    )


def error_from_transport(
    error: Exception,
    call: str,
    *,
    answered: bool,
    redact: Callable[[str], str] = str,
    proxy: Proxy | None = None,
) -> CatalogError:
    """Return the error for an exception of httpx; it is not chained to the exception.

    A chained one would keep the frames alive in which the request with its key can be read.
    """
    message = plain_line(redact(f"{type(error).__name__}: {error}".rstrip(": ")))
    if (known := connection_error(error, call, message, proxy)) is not None:
        return known
    if answered and isinstance(error, httpx.RemoteProtocolError | httpx.ReadError):
        return TruncatedBody(f"{call}: the connection broke inside the body ({message})")
    if isinstance(error, httpx.UnsupportedProtocol | httpx.InvalidURL | httpx.LocalProtocolError):
        return RequestRejected(f"{call} could not be sent ({message})")
    return Unreachable(f"{call} got no complete response ({message})")
