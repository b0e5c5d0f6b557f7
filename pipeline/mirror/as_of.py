"""The request's `as_of` or `X-As-Of`: the answer that a client could have had at a past time."""

from collections.abc import Callable
from datetime import datetime
from typing import ClassVar, Final
from urllib.parse import quote

from starlette.types import Scope

from catalog.contract.errors import ApiError, InvalidParameter
from catalog.contract.parameters import QueryReader
from catalog.server.app import METHODS
from catalog.server.exchange import Exchange, Handler, Reply
from pipeline.mirror.published_catalog import KnownSpan, utc_text

PARAMETER: Final = "as_of"
HEADER: Final = b"x-as-of"
_HEADER_NAME: Final = "X-As-Of"
_KNOWN: Final = frozenset({PARAMETER})


class NotKnownThen(ApiError):
    """The warehouse has no answer for this time."""

    status: ClassVar[int] = 422
    code: ClassVar[str] = "as_of_out_of_range"
    default_message: ClassVar[str] = "The warehouse has no answer for this time"


def as_of_answers(
    handler: Handler,
    bounds: Callable[[], KnownSpan],
    now: Callable[[], datetime],
    *,
    clock_moves: bool = False,
) -> Handler:
    """Return a handler that reads the time of knowledge before another answers.

    If the clock moves otherwise than real time, clients may not reuse an answer without asking.
    It raises InvalidParameter if the time can't be read, and NotKnownThen before the first pull and
    in the future.
    """

    async def answer(scope: Scope, exchange: Exchange) -> Reply:
        # Other methods are answered with 405, whatever time they name.
        is_read = scope["method"] in METHODS
        exchange.as_of = requested_time(scope) if is_read else None
        if exchange.as_of is not None:
            check_known(exchange.as_of, bounds(), now())
        reply = await handler(scope, exchange)
        # Each answer has it. Otherwise a cache could reuse a current answer for a past time.
        reply.raw_headers.append((b"vary", HEADER))
        if exchange.as_of is not None:
            reply.raw_headers.append((HEADER, utc_text(exchange.as_of).encode()))
        elif clock_moves:
            _forbid_reuse(reply)
        return reply

    return answer


def _forbid_reuse(reply: Reply) -> None:
    """Make a client ask again with the tag: a cache knows real time, and not the clock's."""
    reply.raw_headers[:] = [
        (name, b"private, no-cache" if name == b"cache-control" and value != b"no-store" else value)
        for name, value in reply.raw_headers
    ]


def requested_time(scope: Scope) -> datetime | None:
    """Return the time that a request names, in its query or its header.

    Raises:
        InvalidParameter: it can't be read, or the two differ.
    """
    query: bytes = scope["query_string"]
    found = QueryReader(query.decode("utf-8", "replace"), _KNOWN).instant(PARAMETER)
    headers = [value for name, value in scope["headers"] if name == HEADER]
    for value in headers:
        pair = f"{_HEADER_NAME}={quote(value.decode('latin-1').strip())}"
        named = QueryReader(pair, frozenset({_HEADER_NAME})).instant(_HEADER_NAME)
        if found not in (None, named):
            raise InvalidParameter("as_of and X-As-Of name different times; give one of them")
        found = named
    return found


def check_known(ts: datetime, bounds: KnownSpan, now: datetime) -> None:
    """Raise NotKnownThen if the warehouse can't answer for a time."""
    if bounds.first is None:
        raise NotKnownThen("Nothing was pulled yet: this warehouse has no history")
    if ts < bounds.first:
        raise NotKnownThen(
            f"{utc_text(ts)} is before the first pull: history starts at {utc_text(bounds.first)}"
        )
    if ts > now:
        raise NotKnownThen(f"{utc_text(ts)} is in the future: the newest time is {utc_text(now)}")
