"""One call: sends a request with retries, updates the limiter, and maps the response to an error.

The key is added when a request is sent, and to the configured origin only; redirects are not
followed. An attribute of the error (`CatalogError.transient`) states whether it is retried. Rules:
interface section 7.
"""

import json
import re
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import count
from random import SystemRandom
from typing import Any, Final, TypeVar

import httpx
from pydantic import SecretStr

from almanac.core.text import plain_line
from almanac.core.timestamps import utc_now
from catalog.contract.constants import KEY_HEADER
from resources.credentials import Redactor
from resources.errors import (
    AccessDenied,
    CatalogError,
    ContractBroken,
    Defer,
    PlanLacksAccess,
    RequestRejected,
    RetryLater,
    TooSlow,
    TruncatedBody,
)
from resources.http.network import connection_error, proxy_refused
from resources.http.response_body import (
    EPOCH,
    Body,
    Bounds,
    looks_like_html,
    read_count,
    read_instant,
)
from resources.limits.decision import read_deferral
from resources.limits.ledger import QuotaHeaders
from resources.limits.limiter import NOTICED_S, RATE_LIMITED_WAIT_S, Limiter, Permit, report_wait
from resources.request_log import Observer, SentRequest
from resources.response import Answer, ResponseHead
from resources.service_clock import ServiceClock, read_http_date, retry_after_s

T = TypeVar("T")
OK: Final = frozenset({200})
_TRANSIENT: Final = frozenset({408, 425, 500, 502, 503, 504})
_SLOW: Final = frozenset({500, 504})
_PLAN_CODES: Final = frozenset({"tier_required", "plan_required"})
RETIRED: Final = "version_retired"
"""The code of an error about the version of the interface, not about the requested resource."""
_ERROR_BODY_BYTES: Final = 65_536
_MESSAGE_CHARS: Final = 200
_ID_CHARS: Final = 100
_HTTP_ERRORS: Final = (httpx.HTTPError, httpx.StreamError, httpx.InvalidURL)
_TIMEOUT_MESSAGE: Final = re.compile(r"\bran longer than\b")
_LONGEST_PERIOD_S: Final = 366 * 86_400


@dataclass(frozen=True, slots=True)
class Timing:
    """Sources of time and randomness: `clock` gives aware UTC times, `monotonic` seconds, `random`
    a number from 0 to 1."""

    clock: Callable[[], datetime] = utc_now
    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], object] = time.sleep
    random: Callable[[], float] = SystemRandom().random


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Limits of retrying, in seconds. No further attempt begins after `total_s`."""

    attempts: int = 6
    export_attempts: int = 2
    """An export is large and its attempts are a minute apart, so the other pulls of the day do not
    wait for it."""
    total_s: float = 180.0
    base_s: float = 0.5
    cap_s: float = 30.0
    slow_after_s: float = 20.0
    """A 500 that took this long is TooSlow (the service's own limit is 30 s)."""

    def backoff_s(self, failures: int, chance: float) -> float:
        """Return the wait with jitter after so many failures: from 0 to a limit that doubles."""
        return float(chance * min(self.cap_s, self.base_s * 2 ** min(failures - 1, 60)))


@dataclass(frozen=True, slots=True)
class Timeouts:
    """In seconds. `read` allows the service its 30 s. The totals limit a whole attempt, so that a
    very slow body ends."""

    connect: float = 10.0
    read: float = 45.0
    total: float = 120.0
    export_total: float = 1_800.0


@dataclass(frozen=True, slots=True)
class Call:
    """A GET. All other statuses are errors."""

    path: str
    params: Mapping[str, str]
    statuses: frozenset[int] = OK
    headers: Mapping[str, str] = field(default_factory=dict)
    for_usage: bool = False
    for_export: bool = False

    def __str__(self) -> str:
        return f"GET {self.path}"


class OriginKey(httpx.Auth):
    """Adds the key to requests for one origin, and to no other."""

    def __init__(self, key: SecretStr, base_url: str) -> None:
        self._key = key
        self._origin = _origin(httpx.URL(base_url))

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        if _origin(request.url) != self._origin:
            raise httpx.UnsupportedProtocol("the key is sent to the base address only")
        request.headers[KEY_HEADER] = self._key.get_secret_value()
        yield request


def _origin(url: httpx.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port


def with_retries(
    attempt: Callable[[int], T], *, policy: RetryPolicy, timing: Timing, for_export: bool = False
) -> T:
    """Call `attempt(number)` until it returns, and return that. A noticeable wait is reported.

    Raises:
        CatalogError: the first failure that is not transient, or the last transient one, with
            `attempts` set to the requests sent.
    """
    began = timing.monotonic()
    attempts = min(policy.attempts, policy.export_attempts) if for_export else policy.attempts
    for number in count(1):
        try:
            return attempt(number)
        except CatalogError as error:
            # `attempts` is 0 in an error of the limiter: nothing was sent this time.
            error.attempts += number - 1
            asked_s = error.wait_s if isinstance(error, RetryLater) else 0.0
            wait_s = asked_s + policy.backoff_s(number, timing.random())
            waited_s = timing.monotonic() - began + wait_s
            is_last = number >= attempts or waited_s > policy.total_s
            if not error.transient or is_last:
                raise
            # The next export also waits for the interval, which the limiter reports.
            if for_export or waited_s > NOTICED_S:
                again = f"{error.happened}; then attempt {number + 1} of {attempts}"
                report_wait(wait_s, again, now=timing.clock())
            timing.sleep(wait_s)
    raise AssertionError("unreachable")


@dataclass(eq=False, repr=False, slots=True)
class Caller:
    """Sends GETs through one httpx client. Thread-safe."""

    http: httpx.Client
    limiter: Limiter
    policy: RetryPolicy
    timing: Timing
    timeouts: Timeouts
    bounds: Bounds
    redact: Redactor
    extra_headers: Mapping[str, str]
    service_clock: ServiceClock
    observer: Observer | None = None

    def get(self, call: Call, read: Callable[[Answer], T]) -> T:
        """Return the result of `read` for the whole response; if it is a transient error, retry."""

        def read_whole(head: ResponseHead, body: Body) -> T:
            pieces = body.pieces(self.bounds.page_bytes)
            return read(Answer(*head.fields(), b"".join(pieces)))

        return self.stream(call, read_whole)

    def stream(self, call: Call, read: Callable[[ResponseHead, Body], T]) -> T:
        """Return the result of `read` for a response whose body is not read yet.

        Raises:
            CatalogError: any of the tree, after the retries that the policy allows.
        """
        return with_retries(
            lambda number: self._attempt(call, read, number),
            policy=self.policy,
            timing=self.timing,
            for_export=call.for_export,
        )

    def _attempt(self, call: Call, read: Callable[[ResponseHead, Body], T], number: int) -> T:
        charged = self.limiter.acquire(for_usage=call.for_usage, for_export=call.for_export)
        sent = SentRequest(path=call.path, attempt=number)
        began = self.timing.monotonic()
        total_s = self.timeouts.export_total if call.for_export else self.timeouts.total

        def check_time(wire_bytes: int) -> None:
            sent.bytes, sent.seconds = wire_bytes, self.timing.monotonic() - began
            if sent.seconds > total_s:  # httpx limits only each read.
                raise RetryLater(f"{call} was answered too slowly: after {total_s:g} s not whole")

        head: ResponseHead | None = None
        failure: CatalogError
        try:
            with self._send(call, charged, sent) as response:
                head = self._open(response, number)
                body = Body(response, self.redact, check_time)
                if head.status in call.statuses:
                    return read(head, body)
                answer = Answer(*head.fields(), _error_body(body))
                failure = self._error(call, answer, sent, self.timing.monotonic() - began)
                self._hold_back(failure, call, answer, charged)
                failure.evidence = answer
        except _HTTP_ERRORS as error:
            text = plain_line(self.redact(f"{type(error).__name__}: {error}".rstrip(": ")))
            failure = connection_error(error, str(call), text)
            if head is not None and isinstance(error, httpx.RemoteProtocolError | httpx.ReadError):
                failure = TruncatedBody(f"{call}: the connection broke inside the body ({text})")
            failure.evidence = head
        except CatalogError as error:
            error.evidence = error.evidence or head
            raise
        finally:
            sent.seconds = self.timing.monotonic() - began
            if self.observer is not None:
                self.observer(sent)
        # Outside of the handler, so the error is not chained to an object with the key.
        raise failure

    @contextmanager
    def _send(self, call: Call, charged: Permit, sent: SentRequest) -> Iterator[httpx.Response]:
        """Send a request, and tell the limiter what its headers say of the month."""
        limits = self.timeouts
        request = self.http.build_request(
            "GET",
            call.path,
            params=dict(call.params) or None,
            headers={**self.extra_headers, **call.headers},
            timeout=httpx.Timeout(limits.read, connect=limits.connect, pool=limits.total),
        )
        response = self.http.send(request, stream=True)
        sent.status, sent.quota = response.status_code, read_quota_headers(response.headers)
        with closing(response):
            self.limiter.on_answer(charged, sent.quota, counted=sent.status != 429)
            yield response

    def _open(self, response: httpx.Response, number: int) -> ResponseHead:
        received_at = self.timing.clock()
        answer_date = self.service_clock.record_response_date(response.headers.get_list("date"))
        return ResponseHead(
            status=response.status_code,
            headers={name: self.redact(text) for name, text in response.headers.items()},
            date=answer_date.instant,
            date_doubt=answer_date.doubt,
            received_at=received_at,
            attempts=number,
        )

    def _error(self, call: Call, answer: Answer, sent: SentRequest, seconds: float) -> CatalogError:
        status, body = answer.status, read_error_body(answer)
        request_id = body.request_id or answer.headers.get("x-request-id", "")
        sent.request_id = plain_line(self.redact(request_id))[:_ID_CHARS] or None
        message = plain_line(self.redact(body.message))[:_MESSAGE_CHARS]
        text = f"{call} was answered {status}" + (f" ({message})" if message else "")
        if sent.request_id is not None and status >= 500:
            # What a person reports to the service.
            text += f", request {sent.request_id}"
        if status == 429 or status in _TRANSIENT:
            return self._transient(answer, body, text, sent.quota, seconds)
        if status == 407:
            # Without the message, in which some proxies repeat the login.
            return proxy_refused(str(call), "status 407")
        if status == 410 or body.code == RETIRED:
            return RequestRejected(text, next_step="Update Almanac, and check the base address")
        if status in (401, 402, 403):
            names_plan = body.code in _PLAN_CODES or re.search(r"\bplan\b", body.message, re.I)
            lacks = status == 402 or (status == 403 and names_plan)
            return (PlanLacksAccess if lacks else AccessDenied)(text)
        if status == 304 or status < 300:
            return ContractBroken(text)
        elsewhere = ". The key is not sent to another address" if status < 400 else ""
        return RequestRejected(f"{text}{elsewhere}")

    def _transient(
        self,
        answer: Answer,
        body: "ErrorFields",
        text: str,
        heard: QuotaHeaders | None,
        seconds: float,
    ) -> RetryLater | Defer:
        wait_s = retry_after_s(answer.headers.get("retry-after"), now=answer.date)
        heard_s = None if heard is None else heard.resets_in_s
        reason = read_deferral(
            answer.status,
            f"{body.code} {body.message}",
            text,
            wait_s=wait_s,
            month_left_s=heard_s or self.limiter.resets_in_s(),
            now=answer.date,
        )
        if reason is not None:
            return Defer(reason)
        if answer.status == 429:
            return RetryLater(
                text,
                wait_s=RATE_LIMITED_WAIT_S if wait_s is None else wait_s,
                next_step="If it recurs, lower the rate or burst setting: something else uses the "
                "key",
            )
        says_timeout = body.code == "timeout" or _TIMEOUT_MESSAGE.search(body.message) is not None
        if answer.status in _SLOW and (seconds >= self.policy.slow_after_s or says_timeout):
            return TooSlow(f"{text} within {seconds:.1f} s")
        return RetryLater(text, wait_s=wait_s or 0.0)

    def _hold_back(
        self, failure: CatalogError, call: Call, answer: Answer, charged: Permit
    ) -> None:
        """Tell the limiter of a refusal. The export may have a limit of its own."""
        limiter = self.limiter
        if answer.status == 429 and isinstance(failure, RetryLater):
            wait_s = failure.wait_s if "retry-after" in answer.headers else None
            limiter.on_rate_limited(wait_s, for_export=call.for_export)
        if not isinstance(failure, Defer):
            return
        wait_s = (failure.resume_at - answer.date).total_seconds()
        if failure.reason.code == "quota":
            limiter.on_quota_exhausted(wait_s if failure.reason.is_stated else None, charged)
        else:
            limiter.on_rate_limited(wait_s, for_export=call.for_export and answer.status == 429)


def _error_body(body: Body) -> bytes:
    """Return an error body as far as it can be read, since the status is more important."""
    read = b""
    with suppress(CatalogError, *_HTTP_ERRORS):
        for piece in body.pieces(_ERROR_BODY_BYTES):
            read += piece
    return read


@dataclass(frozen=True, slots=True)
class ErrorFields:
    """An error body: either form of the interface, a gateway's form, or text. HTML and nothing have
    no message."""

    code: str = ""
    message: str = ""
    request_id: str = ""


def read_error_body(answer: Answer) -> ErrorFields:
    """Read an error body of any form; never fails."""
    if not answer.body.strip() or looks_like_html(answer.body, answer.headers):
        return ErrorFields()
    try:
        fields: Any = json.loads(answer.body)
    except (ValueError, RecursionError):
        return ErrorFields(message=answer.body.decode("utf-8", "replace"))
    if not isinstance(fields, dict):
        return ErrorFields(message=str(fields))
    inner = fields.get("error")
    if not isinstance(inner, dict):
        inner = {"message": inner} if isinstance(inner, str) else {}
    code = inner.get("code", fields.get("code", ""))
    message = fields.get("message") or inner.get("message") or ""
    request_id = inner.get("requestId", fields.get("requestId", ""))
    return ErrorFields(str(code), str(message), request_id if isinstance(request_id, str) else "")


def read_quota_headers(headers: Mapping[str, str]) -> QuotaHeaders | None:
    """Return what `X-RateLimit-*` say of the month (decisions, rate headers); None if nothing.

    The reset is a timestamp, seconds since 1970, or seconds from the response. With a reset in the
    past, or more than a year ahead, they say nothing. An unreadable reset counts as not stated.
    """
    limit, remaining = (read_count(headers.get(f"x-ratelimit-{n}")) for n in ("limit", "remaining"))
    if limit is not None and remaining is not None and remaining > limit:
        limit = remaining = None
    text, date = headers.get("x-ratelimit-reset", "").strip(), read_http_date(headers.get("date"))
    number = read_count(text)
    reset_at = read_instant(text if number is None else number)
    if reset_at is None and number is not None and number < EPOCH.start and date is not None:
        reset_at = date + timedelta(seconds=number)
    resets_in_s = None
    if reset_at is not None and date is not None:
        resets_in_s = (reset_at - date).total_seconds()
    if resets_in_s is not None and not 0 < resets_in_s <= _LONGEST_PERIOD_S:
        return None
    if limit is None and remaining is None and reset_at is None:
        return None
    return QuotaHeaders(limit, remaining, reset_at, resets_in_s)
