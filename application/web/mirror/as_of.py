"""The request's `as_of` or `X-As-Of`: the answer that a client could have had at a past time."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar, Final

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from almanac.core.timestamps import utc_text
from catalog.contract.errors import ApiError, InvalidParameter
from catalog.contract.parameters import AS_OF, AS_OF_HEADER, read_query, resembles
from catalog.server.catalog_store import KnownSpan

_HEADER: Final = AS_OF_HEADER.name


class AsOfOutOfRange(ApiError):
    """The warehouse has no answer for this time."""

    status: ClassVar[int] = 422
    code: ClassVar[str] = "as_of_out_of_range"
    default_message: ClassVar[str] = "The warehouse has no answer for this time"
    when: ClassVar[str] = "Extension: `as_of` is before the first pull, or in the future."


@dataclass(eq=False, repr=False)
class AsOfLayer:
    """Middleware that reads the time of knowledge from a request and states it in the response.

    With `clock_moves`, the clock may differ from real time, so clients must revalidate cached
    responses.
    """

    app: ASGIApp
    span: Callable[[], KnownSpan]
    now: Callable[[], datetime]
    clock_moves: bool = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Other methods are answered with 405, whatever time they name.
        as_of = read_requested_time(scope) if scope["method"] in ("GET", "HEAD") else None
        if as_of is not None:
            self._check(as_of)
        scope["state"]["as_of"] = as_of

        async def send_with_time(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                # Otherwise a cache could reuse a current answer for a past time.
                headers.append("vary", _HEADER)
                if as_of is not None:
                    headers[_HEADER] = utc_text(as_of)
                elif self.clock_moves and headers.get("cache-control", "no-store") != "no-store":
                    # A cache knows real time, and not the clock's: it must ask with the tag.
                    headers["cache-control"] = "private, no-cache"
            await send(message)

        await self.app(scope, receive, send_with_time)

    def _check(self, ts: datetime) -> None:
        first, now, shown = self.span().first, self.now(), utc_text(ts)
        if first is None:
            raise AsOfOutOfRange("Nothing was pulled yet: this warehouse has no history")
        if ts < first:
            start = utc_text(first)
            raise AsOfOutOfRange(f"{shown} is before the first pull: history starts at {start}")
        if ts > now:
            raise AsOfOutOfRange(f"{shown} is in the future: the newest time is {utc_text(now)}")


def read_requested_time(scope: Scope) -> datetime | None:
    """Return the time that a request names, in its query or its header.

    Raises:
        InvalidParameter: it can't be read, or the two differ.
    """
    query: bytes = scope["query_string"]
    found: datetime | None = read_query(query.decode("utf-8", "replace"), (AS_OF,))[AS_OF.name]
    refuse_misspelt_header(scope)
    for name, value in scope["headers"]:
        if name == _HEADER.lower().encode():
            named = AS_OF_HEADER.value(value.decode("latin-1").strip())
            if found not in (None, named):
                raise InvalidParameter("as_of and X-As-Of name different times; give one of them")
            found = named
    return found


def refuse_misspelt_header(scope: Scope) -> None:
    """Raise InvalidParameter if a header resembles X-As-Of: the answer would show the present."""
    for name in (name.decode("latin-1") for name, _ in scope["headers"]):
        if name != _HEADER.lower() and resembles(name, _HEADER):
            raise InvalidParameter(f"the header {name[:60]!a} is unknown; write {_HEADER}")
