"""One call: a request with its retries, and its body, decoded, bounded, and complete or an error.

The caller gives the function that reads the response. The client requests `identity` and undoes
gzip itself, since httpx 0.28 accepts a truncated gzip body, or one without its trailer, as
complete.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import chain
from typing import Any, Final, TypeVar

import httpx

from resources.errors import (
    CatalogError,
    ContractBroken,
    Defer,
    Evidence,
    RateHeld,
    TooLarge,
    TruncatedBody,
)
from resources.http.network import Proxy
from resources.http.redaction import find_redactor
from resources.http.responses import ErrorResponse, error_from_response, error_from_transport
from resources.http.transport import CHARGED, FOR_EXPORT, FOR_USAGE, PACE, SENT_AT, TOTAL_S
from resources.limits.limiter import Limiter
from resources.service_clock import ServiceClock, useful_headers
from resources.waits import Ambient, RetryPolicy, with_retries
from warehouse import bounds
from warehouse.bounds import RATIO_FROM_BYTES
from warehouse.codecs import GZIP_MAGIC, DamagedGzip, Gunzip

_LAYERS_MAX: Final = 2
"""How often a body may be compressed: a gzip file, sent with gzip as its encoding."""


def _gunzip(chunks: Iterable[bytes]) -> Iterator[bytes]:
    gunzip = Gunzip()
    for chunk in chunks:
        try:
            yield from gunzip.pieces(chunk)
        except DamagedGzip as error:
            raise TruncatedBody(f"The gzip body is damaged ({error})") from error
    if gunzip.is_cut_off:
        raise TruncatedBody("The gzip body ended before its trailer")


class BodyReader:
    """Reads one response to its end, and removes the key if the service repeats it.

    `wire_bytes` counts the bytes that were sent.

    Raises (while read):
        TruncatedBody: shorter than its Content-Length, or a gzip body without a sound end.
        TooLarge: over `max_bytes`, or `max_ratio` times the bytes on the wire.
        ContractBroken: an encoding that was not requested and can't be undone.
    """

    def __init__(self, response: httpx.Response, *, max_bytes: int, max_ratio: float) -> None:
        self._response = response
        self._max_bytes = max_bytes
        self._max_ratio = max_ratio
        self.wire_bytes = 0

    def __iter__(self) -> Iterator[bytes]:
        redactor = find_redactor(self._response)
        if redactor is None:
            yield from self._unpacked()
            return
        body = redactor.body(is_data=self._response.status_code == 200)
        try:
            for piece in self._unpacked():
                yield body.feed(piece)
        except (CatalogError, httpx.HTTPError, httpx.StreamError):
            # Of a truncated body, all that was received is kept.
            yield body.finish()
            raise
        yield body.finish()

    def _unpacked(self) -> Iterator[bytes]:
        pieces = self._layer(self._wire(), self._response.headers.get("content-encoding", ""))
        for _ in range(_LAYERS_MAX - 1):
            pieces = self._layer(pieces)
        for number, piece in enumerate(_with_whole_head(pieces)):
            if number == 0 and piece.startswith(GZIP_MAGIC):
                raise TooLarge(f"The body is compressed more than {_LAYERS_MAX} times")
            yield piece
        self._check_length()

    def read(self) -> bytes:
        return b"".join(self)

    def _wire(self) -> Iterator[bytes]:
        for raw in self._response.iter_raw():
            self.wire_bytes += len(raw)
            self._check_bounds(self.wire_bytes)
            yield raw

    def _layer(self, chunks: Iterator[bytes], encoding: str = "") -> Iterator[bytes]:
        """Undo one layer: the encoding in the header, or gzip if the bytes are gzip without one."""
        chunks = _with_whole_head(chunks)
        if (first := next(chunks, None)) is None:
            return
        pieces: Iterable[bytes] = chain((first,), chunks)
        name = encoding.strip().lower()
        # Neither JSON nor CSV begins so: it is a gzip file without the header.
        if name in ("gzip", "x-gzip") or first.startswith(GZIP_MAGIC):
            pieces = _gunzip(pieces)
        elif name not in ("", "identity"):
            raise ContractBroken(
                f"The body is encoded as {name[:40]!r}", expected="Requested were identity and gzip"
            )
        size = 0
        for piece in pieces:
            size += len(piece)
            self._check_bounds(size)
            yield piece

    def _check_bounds(self, size: int) -> None:
        if size > self._max_bytes:
            raise TooLarge(f"The body is larger than {self._max_bytes} bytes")
        ratio = size / max(1, self.wire_bytes)
        if size > RATIO_FROM_BYTES and ratio > self._max_ratio:
            raise TooLarge(
                f"The body decompresses to more than {self._max_ratio:g} times the bytes that "
                "were sent"
            )

    def _check_length(self) -> None:
        stated = self._response.headers.get("content-length", "")
        if stated.isdecimal() and int(stated) != self.wire_bytes:
            raise TruncatedBody(f"The body has {self.wire_bytes} bytes of {stated}")


def _with_whole_head(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the chunks; the first is long enough to recognise gzip."""
    head: bytes | None = b""
    for chunk in chunks:
        if head is not None and len(head := head + chunk) < len(GZIP_MAGIC):
            continue
        yield chunk if head is None else head
        head = None
    if head:
        yield head


T = TypeVar("T")
OK: Final = frozenset({200})
_ERROR_BODY_BYTES: Final = 65_536
_ANSWER_BYTES: Final = 16 << 20
_ROW_BYTES: Final = 65_536
"""For each requested row: some rows are larger, but no page has only such rows."""


@dataclass(frozen=True, slots=True)
class Timeouts:
    """In seconds. `read` allows the service its 30 s; the totals limit a whole attempt.

    An attempt may take `first` and after that as long as its bytes at `least_bytes_per_s`, so that
    a body that is sent drop by drop ends soon.
    """

    connect: float = 10.0
    read: float = 45.0
    write: float = 10.0
    total: float = 120.0
    export_total: float = 1_800.0
    first: float = 60.0
    least_bytes_per_s: float = 4_096.0


@dataclass(frozen=True, slots=True)
class Bounds:
    """How large a response may be: decompressed bytes, and their ratio to the bytes sent.

    `pull_bytes` and `pull_rows` are for all pages of a list together.
    """

    page_bytes: int = bounds.PAGE_BYTES
    export_bytes: int = bounds.BODY_BYTES
    ratio: float = bounds.RATIO
    pull_bytes: int = 2 << 30
    pull_rows: int = 2_000_000

    def page_of(self, rows: int) -> int:
        """Return how many bytes a response with so many rows may have."""
        return min(self.page_bytes, _ANSWER_BYTES + rows * _ROW_BYTES)


@dataclass(frozen=True, slots=True)
class ResponseHead:
    """A response whose headers are received. `date` is when it was sent, by the service's clock.

    `date_doubt` is why that is not the response's own Date; empty if it is. `headers` are those to
    keep, names in lower case.
    """

    status: int
    headers: dict[str, str] = field(repr=False)
    date: datetime
    date_doubt: str
    received_at: datetime
    attempts: int


@dataclass(frozen=True, slots=True)
class Answer(ResponseHead):
    """A response that is read: `body` is decompressed."""

    body: bytes = field(repr=False, default=b"")

    def evidence(self) -> Evidence:
        return replace(make_evidence(self), body=self.body)


@dataclass(frozen=True, slots=True)
class InspectedAnswer(Answer):
    """A response of any status. `headers` are all of them, names in lower case.

    `fault` is why the body can't be read to its end, empty if it can. `is_cut` is whether the body
    was longer than what was read; the rest was not received.
    """

    wire_bytes: int = 0
    is_cut: bool = False
    fault: str = ""


def inspect_answer(
    response: httpx.Response, opened: ResponseHead, most_bytes: int
) -> InspectedAnswer:
    """Read the beginning of a body; a broken body is a fault and no error."""
    reader = BodyReader(response, max_bytes=_ANSWER_BYTES, max_ratio=bounds.RATIO)
    body, fault, is_cut = b"", "", False
    try:
        for piece in reader:
            body += piece
            if is_cut := len(body) > most_bytes:
                break
    except CatalogError as error:
        fault = error.happened
    headers = {name.lower(): text for name, text in response.headers.items()}
    return InspectedAnswer(
        **(_fields(opened) | {"headers": headers}),
        body=body[:most_bytes],
        wire_bytes=reader.wire_bytes,
        is_cut=is_cut,
        fault=fault,
    )


Reading = Callable[[httpx.Response, ResponseHead], T]


class Caller:
    """Sends GETs through one httpx client. Thread-safe."""

    def __init__(
        self,
        http: httpx.Client,
        *,
        limiter: Limiter,
        policy: RetryPolicy,
        ambient: Ambient,
        timeouts: Timeouts,
        bounds: Bounds,
        redact: Callable[[str], str],
        proxy: Proxy | None = None,
        extra_headers: Mapping[str, str],
        service_clock: ServiceClock,
    ) -> None:
        self._http = http
        self._limiter = limiter
        self._policy = policy
        self._ambient = ambient
        self._timeouts = timeouts
        self._redact = redact
        self._proxy = proxy
        self._extra_headers = extra_headers
        self._service_clock = service_clock
        self.bounds = bounds
        self.deprecation: str | None = None
        self.sunset: str | None = None

    def get(
        self,
        path: str,
        params: Mapping[str, str],
        read: Callable[[Answer], T],
        *,
        rows: int = 1,
        statuses: frozenset[int] = OK,
        for_usage: bool = False,
        headers: Mapping[str, str] | None = None,
    ) -> T:
        """Return the result of `read` for the whole response; if it is a transient error, retry.

        `rows` is how many rows the response may have; it limits the bytes that are read.
        """
        max_bytes = self.bounds.page_of(rows)

        def whole_body(response: httpx.Response, opened: ResponseHead) -> T:
            body = BodyReader(response, max_bytes=max_bytes, max_ratio=self.bounds.ratio)
            return read(Answer(**_fields(opened), body=body.read()))

        return self.stream(
            path, params, whole_body, statuses=statuses, for_usage=for_usage, headers=headers
        )

    def stream(
        self,
        path: str,
        params: Mapping[str, str],
        read: Reading[T],
        *,
        statuses: frozenset[int] = OK,
        headers: Mapping[str, str] | None = None,
        total_s: float | None = None,
        for_usage: bool = False,
        for_export: bool = False,
    ) -> T:
        """Return the result of `read` for a response whose body is not read yet.

        Raises:
            CatalogError: any of the tree, after the retries that the policy allows.
        """

        def attempt(number: int) -> T:
            request = self._request(path, params, headers or {}, total_s)
            request.extensions |= {FOR_USAGE: for_usage, FOR_EXPORT: for_export}
            return self._attempt(request, read, statuses, number)

        return with_retries(
            attempt, policy=self._policy, ambient=self._ambient, for_export=for_export
        )

    def _request(
        self,
        path: str,
        params: Mapping[str, str],
        headers: Mapping[str, str],
        total_s: float | None,
    ) -> httpx.Request:
        limits = self._timeouts
        return self._http.build_request(
            "GET",
            path,
            params=dict(params) or None,
            headers={**self._extra_headers, **headers},
            timeout=httpx.Timeout(
                connect=limits.connect, read=limits.read, write=limits.write, pool=limits.total
            ),
            extensions={
                TOTAL_S: total_s or limits.total,
                PACE: (limits.first, limits.least_bytes_per_s),
            },
        )

    def _attempt(
        self, request: httpx.Request, read: Reading[T], statuses: frozenset[int], number: int
    ) -> T:
        call = f"GET {request.url.path}"
        opened: ResponseHead | None = None
        try:
            response = self._http.send(request, stream=True)
            try:
                opened = self._open(response, number)
                if response.status_code not in statuses:
                    raise self._refused(call, response, opened)
                return read(response, opened)
            finally:
                response.close()
        except (httpx.HTTPError, httpx.StreamError, httpx.InvalidURL) as error:
            answered = opened is not None
            failure = error_from_transport(
                error, call, answered=answered, redact=self._redact, proxy=self._proxy
            )
        except CatalogError as error:
            if opened is not None and error.evidence is None:
                error.evidence = make_evidence(opened)
            raise
        # The headers are complete even if the body is broken: they give its time.
        failure.evidence = None if opened is None else make_evidence(opened)
        # Outside of the handler, so the error is not chained to an object with the key.
        raise failure

    def _open(self, response: httpx.Response, number: int) -> ResponseHead:
        self.deprecation = response.headers.get("deprecation", self.deprecation)
        self.sunset = response.headers.get("sunset", self.sunset)
        received_at = self._ambient.clock()
        answer_date = self._service_clock.record_response_date(response.headers.get_list("date"))
        return ResponseHead(
            status=response.status_code,
            headers=useful_headers(response.headers),
            date=answer_date.instant,
            date_doubt=answer_date.doubt,
            received_at=received_at,
            attempts=number,
        )

    def _refused(self, call: str, response: httpx.Response, opened: ResponseHead) -> CatalogError:
        sent_at = response.extensions.get(SENT_AT, self._ambient.monotonic())
        refusal = ErrorResponse(
            call=call,
            status=opened.status,
            headers=opened.headers,
            body=_error_body(response),
            seconds=self._ambient.monotonic() - sent_at,
            now=opened.date,
            month_left_s=self._limiter.resets_in_s(),
        )
        failure = error_from_response(
            refusal, policy=self._policy, redact=self._redact, proxy=self._proxy
        )
        failure.evidence = replace(make_evidence(opened), body=refusal.body)
        self._hold_back(failure, opened, response)
        return failure

    def _hold_back(
        self, failure: CatalogError, opened: ResponseHead, response: httpx.Response
    ) -> None:
        """Tell the limiter of a refusal. The export may have a limit of its own."""
        on_limited = self._limiter.on_rate_limited
        if response.request.extensions.get(FOR_EXPORT, False):
            on_limited = self._limiter.on_export_limited
        if isinstance(failure, RateHeld):
            on_limited(failure.wait_s if "retry-after" in opened.headers else None)
        elif isinstance(failure, Defer):
            wait_s = (failure.resume_at - opened.date).total_seconds()
            if failure.reason == "quota":
                if failure.period == "day":
                    # The month is not over: until midnight no process sends anything.
                    self._limiter.on_long_wait(wait_s)
                    return
                resets_in_s = None if failure.estimated else wait_s
                self._limiter.on_quota_exhausted(resets_in_s, response.extensions.get(CHARGED))
            else:
                uncounted = opened.status == 429
                (on_limited if uncounted else self._limiter.on_long_wait)(wait_s)


def make_evidence(opened: ResponseHead) -> Evidence:
    """Return the evidence that the headers of a response give, without its body."""
    return Evidence(
        opened.status, opened.headers, opened.date, opened.received_at, opened.date_doubt
    )


def _fields(opened: ResponseHead) -> dict[str, Any]:
    return {name: getattr(opened, name) for name in ResponseHead.__dataclass_fields__}


def _error_body(response: httpx.Response) -> bytes:
    """Return an error body as far as it can be read: the status matters more."""
    reader = BodyReader(response, max_bytes=_ERROR_BODY_BYTES, max_ratio=1_000.0)
    body = b""
    try:
        for piece in reader:
            body += piece
    except (CatalogError, httpx.HTTPError, httpx.StreamError):
        pass
    return body
