"""The receiver's HTTP side (ASGI): reads a delivery, verifies it, stores it, acknowledges it.

    POST <path>    204 stored or received before; 401 not signed by a secret; 413 over 256 KiB;
                   400 incomplete; 408 too slow; 503 not stored: send it again
    GET <path>     200, also for HEAD: a service that registers the endpoint may ask for it
    GET /healthz   200 while deliveries can be stored

The signature is of the raw bytes, so nothing decodes a body before it is verified, and a body whose
headers have no signature of an allowed form is not read. The exception is a short body without a
signature that has a `challenge`, which is sent back. Belongs here: one request. Does not: the forms
of signatures (catalog.contract.signatures), the inbox, the merge.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from typing import Final
from urllib.parse import parse_qsl

import msgspec
from starlette.types import Receive, Scope, Send

from catalog.contract.signatures import SignatureRejected, Verifier
from pipeline.receiver.group_commit import GroupCommit, NotStored
from pipeline.receiver.upkeep import Upkeep
from resources.inbox.inbox_file import Arrival, InboxWriter, StoreResult

BODY_MAX: Final = 262_144
"""Bytes of one delivery."""
BUFFERED_MAX: Final = 64 * 1024 * 1024
"""Bytes of all bodies that are being received."""
BODY_WITHIN_S: Final = 10.0
LAST_BODY_WITHIN_S: Final = 1.0
"""Of a request that arrives while the receiver stops."""
HEALTH_PATH: Final = "/healthz"
CHALLENGE_BODY_MAX: Final = 1_024
CHALLENGES_AT_ONCE: Final = 16
"""Bodies without a signature that are read at the same time, since one may be a challenge."""
_RETRY_AFTER_S: Final = b"5"
_CHALLENGE: Final = re.compile(r"[A-Za-z0-9._~+/=-]{1,256}")

Headers = list[tuple[bytes, bytes]]


class Refused(Exception):
    """A request that is answered with an error; `reason` is a word for people and counts."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


class IncomingBody:
    """A body that is being received; `is_dropped` says that others needed its memory."""

    def __init__(self, within: asyncio.Timeout) -> None:
        self.within = within
        self.chunks: list[bytes] = []
        self.size = 0
        self.is_dropped = False

    def end(self) -> None:
        """End the wait for the rest."""
        if not self.within.expired():
            self.within.reschedule(0)


class ReceiverApp:
    """An ASGI application over one inbox. `clock` returns the service's time,
    `verifier` the verifier of the current secrets.

    `stored` is called on the loop's thread after each new delivery is on the disk.
    """

    def __init__(
        self,
        verifier: Callable[[], Verifier],
        writer: InboxWriter,
        clock: Callable[[], datetime],
        *,
        path: str,
        stored: Callable[[], None] = lambda: None,
        body_within_s: float = BODY_WITHIN_S,
        upkeep: Upkeep | None = None,
    ) -> None:
        self._verifier = verifier
        self._writer = writer
        self._clock = clock
        self._path = path
        self._on_stored = stored
        self._body_within_s = body_within_s
        self._upkeep = upkeep
        self._buffered = 0
        self._reading: dict[IncomingBody, None] = {}
        """In the order in which they began."""
        self._challenges = 0
        self._is_stopping = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._commits: GroupCommit | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            await self._answer(scope, receive, send)

    def stop_reading(self) -> None:
        """Refuse the bodies that are still being received, so that a stop does not wait for slow
        clients; what is whole is stored. May be called from any thread."""
        if self._loop is not None and self._loop.is_running():
            self._loop.call_soon_threadsafe(self._stop_reading)

    def _stop_reading(self) -> None:
        self._is_stopping = True
        for body in self._reading:
            body.end()

    async def _live(self, receive: Receive, send: Send) -> None:
        """Commit in the background from startup to shutdown."""
        await receive()
        self._loop = asyncio.get_running_loop()
        commits = self._commits = GroupCommit(self._writer)
        running = [asyncio.create_task(commits.run())]
        if self._upkeep is not None:
            running.append(asyncio.create_task(self._upkeep.run(commits)))
        await send({"type": "lifespan.startup.complete"})
        await receive()
        for task in running:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        await commits.close()
        await send({"type": "lifespan.shutdown.complete"})

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            if scope["path"] == HEALTH_PATH and scope["method"] in ("GET", "HEAD"):
                await self._send_health(send)
                return
            self._check_target(scope)
            challenge = _challenge_in_query(scope)
            if scope["method"] == "POST":
                challenge = await self._accept(scope, receive)
            elif challenge is None:
                await self._send_health(send)
                return
        except Refused as refusal:
            if self._commits is not None and refusal.status != 503:
                self._commits.count_refused(refusal.reason)
            await _send(send, refusal.status, {"error": refusal.reason})
        else:
            await (_send(send, 204) if challenge is None else _send_text(send, challenge))

    async def _send_health(self, send: Send) -> None:
        if self._commits is None or self._commits.is_failing:
            await _send(send, 503, {"status": "not storing"})
        else:
            await _send(send, 200, {"status": "receiving"})

    def _check_target(self, scope: Scope) -> None:
        if scope["path"] not in (self._path, self._path + "/"):
            raise Refused(404, "not found")
        if scope["method"] not in ("POST", "GET", "HEAD"):
            raise Refused(405, "method not allowed")

    async def _accept(self, scope: Scope, receive: Receive) -> str | None:
        """Read, verify and store one delivery. Return a challenge to be sent back, if it is one.

        Raises:
            Refused: it was not stored.
        """
        raw: Headers = [(name.lower(), value) for name, value in scope["headers"]]
        try:
            self._verifier().check_head(raw)
        except SignatureRejected as rejection:
            if rejection.reason == "missing" and (
                challenge := await self._unsigned_challenge(scope, raw, receive)
            ):
                return challenge
            raise Refused(401, rejection.reason) from None
        body = await self._body(raw, receive)
        try:
            verified = self._verifier().verify(raw, body, now=self._clock())
            if challenge := _challenge_in_body(body):
                return challenge
            result = await self._store(Arrival(body, verified.message_id))
        except SignatureRejected as rejection:
            raise Refused(401, rejection.reason) from None
        finally:
            self._buffered -= len(body)
        if result == "stored":
            self._on_stored()
        return None

    async def _unsigned_challenge(
        self, scope: Scope, headers: Headers, receive: Receive
    ) -> str | None:
        """Return the challenge of a request without a signature, if it is short enough to read."""
        if challenge := _challenge_in_query(scope):
            return challenge
        announced = _content_length(headers)
        if announced is None or not 0 < announced <= CHALLENGE_BODY_MAX:
            return None
        if self._challenges >= CHALLENGES_AT_ONCE:
            return None
        self._challenges += 1
        try:
            body = await self._body(headers, receive)
            self._buffered -= len(body)
            return _challenge_in_body(body)
        finally:
            self._challenges -= 1

    async def _store(self, arrival: Arrival) -> StoreResult:
        if self._commits is None:
            raise Refused(503, "not ready")
        try:
            return await self._commits.store(arrival)
        except NotStored:
            raise Refused(503, "not stored") from None

    async def _body(self, headers: Headers, receive: Receive) -> bytes:
        """Return the whole raw body. The caller takes it out of `_buffered` when it is stored."""
        announced = _content_length(headers)
        if announced is not None and announced > BODY_MAX:
            raise Refused(413, "too large")
        is_whole = False
        async with self._incoming() as body:
            try:
                more = True
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise Refused(400, "incomplete")
                    chunk, more = message.get("body", b""), message.get("more_body", False)
                    self._add(body, chunk)
                    # All of it is here: the server's word of the end would be another wait.
                    more = more and body.size != announced
                # A server may end the body where the connection ended.
                if announced is not None and body.size != announced:
                    raise Refused(400, "incomplete")
                is_whole = not body.is_dropped
            finally:
                if not is_whole:
                    self._buffered -= body.size
        if not is_whole:
            raise Refused(408, "too slow")
        return b"".join(body.chunks)

    def _add(self, body: IncomingBody, chunk: bytes) -> None:
        """Add a chunk to a body. If memory is short, the bodies that began first are given up: what
        a service sends is here within milliseconds, and slow ones must not keep it out."""
        body.chunks.append(chunk)
        body.size += len(chunk)
        self._buffered += len(chunk)
        if body.size > BODY_MAX:
            raise Refused(413, "too large")
        while self._buffered > BUFFERED_MAX:
            oldest = next(iter(self._reading), body)
            if oldest is body:
                raise Refused(503, "too many bodies at the same time")
            del self._reading[oldest]
            self._buffered -= oldest.size
            oldest.chunks, oldest.size, oldest.is_dropped = [], 0, True
            oldest.end()

    @asynccontextmanager
    async def _incoming(self) -> AsyncIterator[IncomingBody]:
        """Limit the time of a body.

        Raises:
            Refused: it took too long.
        """
        within_s = LAST_BODY_WITHIN_S if self._is_stopping else self._body_within_s
        try:
            async with asyncio.timeout(within_s) as within:
                body = IncomingBody(within)
                self._reading[body] = None
                try:
                    yield body
                finally:
                    self._reading.pop(body, None)
        except TimeoutError:
            if self._is_stopping:
                raise Refused(503, "stopping") from None
            raise Refused(408, "too slow") from None


def _challenge_in_query(scope: Scope) -> str | None:
    parameters = dict(parse_qsl(scope.get("query_string", b"").decode("latin-1")))
    return _echoed(parameters.get("challenge") or parameters.get("hub.challenge"))


def _challenge_in_body(body: bytes) -> str | None:
    """Return the challenge of a registration: an object with a `challenge` that is not a
    delivery."""
    if len(body) > CHALLENGE_BODY_MAX:
        return None
    try:
        found = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if not isinstance(found, dict) or found.keys() & {"id", "data"}:
        return None
    return _echoed(found.get("challenge"))


def _echoed(challenge: object) -> str | None:
    """Return a challenge that can do no harm in an answer, None for any other value."""
    is_token = isinstance(challenge, str) and _CHALLENGE.fullmatch(challenge)
    return str(challenge) if is_token else None


def _content_length(headers: Headers) -> int | None:
    values = [value for name, value in headers if name == b"content-length"]
    if not values:
        return None
    if len(values) > 1 or not values[0].isdigit() or len(values[0]) > len(str(BODY_MAX)) + 12:
        raise Refused(400, "content-length")
    return int(values[0])


async def _send(send: Send, status: int, answer: dict[str, str] | None = None) -> None:
    body = b"" if answer is None else msgspec.json.encode(answer)
    headers = [(b"content-length", str(len(body)).encode())] if body else []
    if body:
        headers.append((b"content-type", b"application/json"))
    if status == 405:
        headers.append((b"allow", b"POST, GET, HEAD"))
    if status == 503:
        headers.append((b"retry-after", _RETRY_AFTER_S))
    await _send_all(send, status, headers, body)


async def _send_text(send: Send, text: str) -> None:
    headers = [
        (b"content-type", b"text/plain; charset=utf-8"),
        (b"content-length", str(len(text)).encode()),
        (b"x-content-type-options", b"nosniff"),
    ]
    await _send_all(send, 200, headers, text.encode())


async def _send_all(send: Send, status: int, headers: Headers, body: bytes) -> None:
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
