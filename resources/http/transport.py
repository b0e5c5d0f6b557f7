"""The innermost transport: key, limiter, deadline and count of every attempt.

The key is added only to a copy of the request that is made and dropped here: httpx shows
`x-api-key` in the repr of headers, and passes its own request to errors, hooks and logs. The
deadline is for the whole request: httpx limits only each read, so a response that sends a byte
before each timeout would never end.
"""

import ssl
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from threading import local
from typing import Any, Final

import httpcore
import httpx
from pydantic import SecretStr

from catalog.contract.constants import KEY_HEADER
from resources.http.network import DIRECT, Network
from resources.http.redaction import REDACTOR, Redactor, conceal_in_logs, redactor_for
from resources.http.responses import read_quota_headers, read_request_id
from resources.limits.allowance import ChargedRequest, QuotaHeaders
from resources.limits.limiter import Limiter

_FAILED: Final = 400
_TOO_MANY: Final = 429
_HEAD_BYTES: Final = 16_384
"""The request id of an error is searched in so many bytes of its body."""


_TOO_SLOW: Final = "the whole request took too long, or its bytes came too slowly"


class Deadlines(local):
    """When the request of this thread must end, on `time.monotonic`."""

    at: float = float("inf")

    def left_s(self, timeout: float | None, failure: type[Exception]) -> float | None:
        """Return the timeout for one operation. Raises `failure` when no time is left."""
        left = self.at - time.monotonic()
        if left <= 0:
            raise failure(_TOO_SLOW)
        if left == float("inf"):
            return timeout
        return left if timeout is None else min(timeout, left)


class _Stream(httpcore.NetworkStream):
    def __init__(self, stream: httpcore.NetworkStream, deadlines: Deadlines) -> None:
        self._stream = stream
        self._deadlines = deadlines

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        left = self._deadlines.left_s(timeout, httpcore.ReadTimeout)
        try:
            return self._stream.read(max_bytes, left)
        except httpcore.ReadTimeout as error:
            if left == timeout:
                raise
            raise httpcore.ReadTimeout(_TOO_SLOW) from error

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.write(buffer, self._deadlines.left_s(timeout, httpcore.WriteTimeout))

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore.NetworkStream:
        left = self._deadlines.left_s(timeout, httpcore.ConnectTimeout)
        secured = self._stream.start_tls(ssl_context, server_hostname, left)
        return _Stream(secured, self._deadlines)

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


class _Backend(httpcore.NetworkBackend):
    def __init__(self, backend: httpcore.NetworkBackend, deadlines: Deadlines) -> None:
        self._backend = backend
        self._deadlines = deadlines

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.NetworkStream:
        left = self._deadlines.left_s(timeout, httpcore.ConnectTimeout)
        stream = self._backend.connect_tcp(host, port, left, local_address, socket_options)
        return _Stream(stream, self._deadlines)

    def sleep(self, seconds: float) -> None:
        self._backend.sleep(seconds)


class DeadlineTransport(httpx.HTTPTransport):
    """httpx's own transport, with `deadlines` in force on its sockets."""

    def __init__(self, address: str, network: Network = DIRECT, *, connections: int = 32) -> None:
        self.deadlines = Deadlines()
        self.proxy = network.proxy_for(address)
        conceal_in_logs(*(() if self.proxy is None else self.proxy.secrets))
        limits = httpx.Limits(max_connections=connections, max_keepalive_connections=connections)
        # Proxies and certificates are arguments: only the settings read the environment.
        trust = network.trust()
        proxy = None
        if self.proxy is not None:
            address = self.proxy.address.get_secret_value()
            own_trust = trust if address.startswith("https://") else None
            proxy = httpx.Proxy(address, ssl_context=own_trust)
        super().__init__(verify=trust, proxy=proxy, trust_env=False, limits=limits)
        # httpx has no argument for the backend; a test with a slow answer guards this line.
        self._pool._network_backend = _Backend(self._pool._network_backend, self.deadlines)


TOTAL_S: Final = "almanac.total_s"
"""Request extension: the time limit of the whole request, in seconds, from when it is sent."""
PACE: Final = "almanac.pace"
"""Request extension: the seconds that a response may take, and the bytes a second after them."""
FOR_USAGE: Final = "almanac.for_usage"
"""Request extension: whether the request is for the usage."""
FOR_EXPORT: Final = "almanac.for_export"
"""Request extension: whether the request is for the export, which has a limit of its own."""
CHARGED: Final = "almanac.charged"
"""Response extension: the charged request, None if answers are not counted."""
SENT_AT: Final = "almanac.sent_at"
"""Response extension: when the request was sent, on the monotonic clock."""


@dataclass(frozen=True, slots=True)
class SentRequest:
    """One attempt. `status` is None if no response was received.

    `seconds` run from sending to the last byte read. `bytes` is the size of the body as sent,
    `quota` the month by the headers, `request_id` the service's name of a failed request.
    """

    method: str
    path: str
    status: int | None
    seconds: float
    bytes: int
    quota: QuotaHeaders | None = None
    request_id: str | None = None


Observer = Callable[[SentRequest], None]


class KeyTransport(httpx.BaseTransport):
    """Sends only to one origin, with the key, when the limiter allows it."""

    def __init__(
        self,
        inner: httpx.BaseTransport,
        *,
        key: SecretStr,
        origin: httpx.URL,
        limiter: Limiter,
        observer: Observer | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        redactor: Redactor | None = None,
    ) -> None:
        self._inner = inner
        self._redactor = redactor or redactor_for(key)
        conceal_in_logs(key)
        self._deadlines = inner.deadlines if isinstance(inner, DeadlineTransport) else Deadlines()
        self._key = key
        self._origin = _origin(origin)
        self._limiter = limiter
        self._observer = observer
        self._monotonic = monotonic

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        if _origin(request.url) != self._origin:
            raise httpx.UnsupportedProtocol("the key is sent to the base address only")
        sent = self._limiter.acquire(
            for_usage=request.extensions.get(FOR_USAGE, False),
            for_export=request.extensions.get(FOR_EXPORT, False),
        )
        sent_at = self._monotonic()
        deadline = _Deadline(
            time.monotonic(),
            request.extensions.get(TOTAL_S, float("inf")),
            *request.extensions.get(PACE, (float("inf"), 1.0)),
        )
        self._deadlines.at = deadline.after(0)
        try:
            response = self._inner.handle_request(self._with_key(request))
        except BaseException:
            if sent is not None:
                self._limiter.on_answer(sent, None)
            self._report(SentRequest(request.method, request.url.path, None, 0.0, 0), sent_at)
            raise
        response.extensions[CHARGED] = sent
        quota = self._pass_on(sent, response)
        return self._counted(request, response, sent_at, deadline, quota)

    def _pass_on(
        self, sent: ChargedRequest | None, response: httpx.Response
    ) -> QuotaHeaders | None:
        """Tell the limiter of a response, and return what its headers say of the month."""
        quota = read_quota_headers(response.headers)
        if sent is not None:
            self._limiter.on_answer(sent, quota, counted=response.status_code != _TOO_MANY)
        return quota

    def _counted(
        self,
        request: httpx.Request,
        response: httpx.Response,
        sent_at: float,
        deadline: "_Deadline",
        quota: QuotaHeaders | None,
    ) -> httpx.Response:
        """Return a new answer with an unread body: a mocked answer has read its own.

        Its headers do not repeat the key; the reader of the body removes it there.
        """

        status = response.status_code

        def report(count: int, head: bytes) -> None:
            request_id = None
            if status >= _FAILED:
                request_id = read_request_id(head, response.headers, redact=self._redactor)
            path = request.url.path
            self._report(
                SentRequest(request.method, path, status, 0.0, count, quota, request_id), sent_at
            )

        assert isinstance(response.stream, httpx.SyncByteStream)
        extensions = {**response.extensions, SENT_AT: sent_at, REDACTOR: self._redactor}
        if "reason_phrase" in extensions:
            extensions["reason_phrase"] = self._redactor.field(extensions["reason_phrase"])
        return httpx.Response(
            status,
            headers=self._redactor.headers(response.headers.raw),
            stream=_CountedStream(response.stream, report, self._deadlines, deadline),
            extensions=extensions,
        )

    def close(self) -> None:
        self._inner.close()

    def _with_key(self, request: httpx.Request) -> httpx.Request:
        headers = request.headers.copy()
        headers[KEY_HEADER] = self._key.get_secret_value()
        return httpx.Request(
            request.method,
            request.url,
            headers=headers,
            stream=request.stream,
            extensions=request.extensions,
        )

    def _report(self, sent: SentRequest, sent_at: float) -> None:
        if self._observer is not None:
            self._observer(replace(sent, seconds=self._monotonic() - sent_at))


@dataclass(frozen=True, slots=True)
class _Deadline:
    """When a request must end: `total_s` after it was sent, and sooner if its bytes are slow."""

    sent_at: float
    total_s: float
    first_s: float
    least_bytes_per_s: float

    def after(self, count: int) -> float:
        """Return the deadline after so many bytes of the body, on `time.monotonic`."""
        return self.sent_at + min(self.total_s, self.first_s + count / self.least_bytes_per_s)


class _CountedStream(httpx.SyncByteStream):
    """A body that reports its length and its beginning once, when it is closed."""

    def __init__(
        self,
        stream: httpx.SyncByteStream,
        report: Callable[[int, bytes], None],
        deadlines: Deadlines,
        deadline: _Deadline,
    ) -> None:
        self._stream = stream
        self._report: Callable[[int, bytes], None] | None = report
        self._deadlines = deadlines
        self._deadline = deadline
        self._count = 0
        self._head = b""

    def __iter__(self) -> Iterator[bytes]:
        self._deadlines.at = self._deadline.after(0)
        for chunk in self._stream:
            self._count += len(chunk)
            if len(self._head) < _HEAD_BYTES:
                self._head += chunk[: _HEAD_BYTES - len(self._head)]
            yield chunk
            # Another request of this thread may have begun in the meantime.
            self._deadlines.at = self._deadline.after(self._count)

    def close(self) -> None:
        self._stream.close()
        report, self._report = self._report, None
        if report is not None:
            report(self._count, self._head)


def _origin(url: httpx.URL) -> tuple[str, str, int | None]:
    default = {"http": 80, "https": 443}.get(url.scheme)
    return url.scheme, url.host, url.port or default
