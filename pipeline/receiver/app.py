"""The receiver's HTTP side (ASGI): reads a delivery, verifies it, stores it, acknowledges it.

    POST <path>    204 stored or received before; 401 not signed by a secret; 413 over 256 KiB;
                   400 incomplete; 408 too slow; 503 not stored: send it again
    GET /healthz   200 while deliveries can be stored

The signature is of the raw bytes, so nothing reads a body before it is verified. Belongs here: one
request. Does not: the forms of signatures (catalog.contract.verification), the inbox, the merge.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from typing import Final

import msgspec
from starlette.types import Receive, Scope, Send

from catalog.contract.verification import SignatureRejected, Verifier
from pipeline.receiver.group_commit import GroupCommit, NotStored
from pipeline.receiver.upkeep import Upkeep
from resources.inbox.inbox_file import Arrival, InboxWriter, Stored

BODY_MAX: Final = 262_144
"""Bytes of one delivery."""
BUFFERED_MAX: Final = 64 * 1024 * 1024
"""Bytes of all bodies that are being received."""
BODY_WITHIN_S: Final = 10.0
LAST_BODY_WITHIN_S: Final = 1.0
"""Of a request that arrives while the receiver stops."""
HEALTH_PATH: Final = "/healthz"
_RETRY_AFTER_S: Final = b"5"

Headers = list[tuple[bytes, bytes]]


class Refused(Exception):
    """A request that is answered with an error; `reason` is a word for people and counts."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


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
        self._reading: set[asyncio.Timeout] = set()
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
        for within in self._reading:
            if not within.expired():
                within.reschedule(0)

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
            await self._accept(scope["headers"], receive)
        except Refused as refusal:
            if self._commits is not None and refusal.status != 503:
                self._commits.count_refused(refusal.reason)
            await _send(send, refusal.status, {"error": refusal.reason})
        else:
            await _send(send, 204)

    async def _send_health(self, send: Send) -> None:
        if self._commits is None or self._commits.is_failing:
            await _send(send, 503, {"status": "not storing"})
        else:
            await _send(send, 200, {"status": "receiving"})

    def _check_target(self, scope: Scope) -> None:
        if scope["path"] != self._path:
            raise Refused(404, "not found")
        if scope["method"] != "POST":
            raise Refused(405, "method not allowed")

    async def _accept(self, headers: Iterable[tuple[bytes, bytes]], receive: Receive) -> None:
        """Read, verify and store one delivery.

        Raises:
            Refused: it was not stored.
        """
        raw: Headers = [(name.lower(), value) for name, value in headers]
        body = await self._body(raw, receive)
        try:
            verified = self._verifier().verify(raw, body, now=self._clock())
            result = await self._store(Arrival(body, verified.message_id))
        except SignatureRejected as rejection:
            raise Refused(401, rejection.reason) from None
        finally:
            self._buffered -= len(body)
        if result == "stored":
            self._on_stored()

    async def _store(self, arrival: Arrival) -> Stored:
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
        chunks, size, whole = list[bytes](), 0, False
        try:
            async with self._within():
                more = True
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise Refused(400, "incomplete")
                    chunk, more = message.get("body", b""), message.get("more_body", False)
                    chunks.append(chunk)
                    size += len(chunk)
                    self._buffered += len(chunk)
                    if size > BODY_MAX:
                        raise Refused(413, "too large")
                    if self._buffered > BUFFERED_MAX:
                        raise Refused(503, "too many bodies at once")
                    # All of it is here: the server's word of the end would be another wait.
                    more = more and size != announced
            # A server may end the body where the connection ended.
            if announced is not None and size != announced:
                raise Refused(400, "incomplete")
            whole = True
        except TimeoutError:
            if self._is_stopping:
                raise Refused(503, "stopping") from None
            raise Refused(408, "too slow") from None
        finally:
            if not whole:
                self._buffered -= size
        return b"".join(chunks)

    @asynccontextmanager
    async def _within(self) -> AsyncIterator[None]:
        """Limit the time of a body. Raises TimeoutError."""
        within_s = LAST_BODY_WITHIN_S if self._is_stopping else self._body_within_s
        async with asyncio.timeout(within_s) as within:
            self._reading.add(within)
            try:
                yield
            finally:
                self._reading.discard(within)


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
        headers.append((b"allow", b"POST"))
    if status == 503:
        headers.append((b"retry-after", _RETRY_AFTER_S))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
