"""Refuses requests from other sites to a server that is meant for people of this machine.

Any web page can make a browser send requests to loopback, and can give loopback a name of its own.
So a request is refused unless it has one known Host and, if the browser states its origin, comes
from the server's own pages. Plain ASGI: it works before any application.
"""

import ipaddress
import re
from collections.abc import Collection, Iterable
from typing import Final, NamedTuple

from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

_HOST: Final = re.compile(rb"(\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9._-]{1,253})(?::([0-9]{1,5}))?")
_ORIGIN: Final = re.compile(rb"(https?)://([^/]+)")
_PORTS: Final = {b"http": "80", b"https": "443"}
_OWN_SITES: Final = frozenset({b"same-origin", b"none"})
_READING: Final = frozenset({"GET", "HEAD"})


class Refusal(NamedTuple):
    """The response to a refused request: a status and one line."""

    status: int
    message: str


class Authority(NamedTuple):
    """A host in lower case without brackets, and a port, empty if none was given."""

    name: str
    port: str


def find_refusal(scope: Scope, origins: Collection[bytes] = ()) -> Refusal | None:
    """Return why a request is refused, by its head alone; None if it may pass.

    The names of loopback are known, with any port. Pages of `origins`, such as
    `https://app.example`, may send requests, too.
    """
    hosts = _values(scope, b"host")
    if len(hosts) != 1 or (host := _authority(hosts[0])) is None:
        return Refusal(400, "Send one Host header, of the form name or name:port.")
    if not is_loopback(host.name):
        return Refusal(421, f"This server is not known as {host.name}.")
    given = _values(scope, b"origin")
    if len(given) == 1 and given[0] in origins:
        return None
    if not all(_is_origin(origin, host) for origin in given):
        return Refusal(403, "Requests of other sites are refused (Origin).")
    if not _is_from_own_site(scope):
        return Refusal(403, "Requests of other sites are refused (Sec-Fetch-Site).")
    return None


class RequestGuard:
    """ASGI layer that answers the requests that are refused, and passes on the others."""

    def __init__(self, app: ASGIApp, origins: Iterable[str]) -> None:
        self._app = app
        self._origins = frozenset(origin.encode() for origin in origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_request = scope["type"] != "lifespan"
        refusal = find_refusal(scope, self._origins) if is_request else None
        if refusal is None:
            await self._app(scope, receive, send)
        else:
            headers = {"cache-control": "no-store", "connection": "close"}
            answer = PlainTextResponse(f"{refusal.message}\n", refusal.status, headers)
            await answer(scope, receive, send)


def _values(scope: Scope, name: bytes) -> list[bytes]:
    return [value for key, value in scope["headers"] if key.lower() == name]


def _authority(value: bytes) -> Authority | None:
    found = _HOST.fullmatch(value)
    if found is None:
        return None
    name, port = found.groups()
    return Authority(name.decode().strip("[]").lower(), (port or b"").decode())


def is_loopback(name: str) -> bool:
    """Return whether a host, as an address or `localhost`, is this machine."""
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == "localhost"


def _is_origin(origin: bytes, host: Authority) -> bool:
    """Whether an Origin names the Host, on the same port; `null` never does."""
    found = _ORIGIN.fullmatch(origin)
    if found is None or (other := _authority(found[2])) is None:
        return False
    default = _PORTS[found[1]]
    return other.name == host.name and (other.port or default) == (host.port or default)


def _is_from_own_site(scope: Scope) -> bool:
    """Whether Sec-Fetch-Site names this server's own pages, or a person follows a link."""
    sites = _values(scope, b"sec-fetch-site")
    if all(site in _OWN_SITES for site in sites):
        return True
    return (
        scope["method"] in _READING
        and _values(scope, b"sec-fetch-mode") == [b"navigate"]
        and _values(scope, b"sec-fetch-dest") == [b"document"]
    )
