"""Who may ask a server that only people of this machine are meant to use.

A web page of anybody can make a browser send requests to loopback, and a name of its own can be
made to lead there. So a request is refused unless it has one Host that is known, and, where a
browser says from where it comes, comes from the server's own pages. Plain ASGI: it stands before
any application. Belongs here: rules on a request's head. Does not: keys (gateway).
"""

import ipaddress
import re
from collections.abc import Collection, Iterable
from typing import Final, NamedTuple
from urllib.parse import parse_qsl

from starlette.types import ASGIApp, Receive, Scope, Send

_HOST: Final = re.compile(rb"(\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9._-]{1,253})(?::([0-9]{1,5}))?")
_ORIGIN: Final = re.compile(rb"(https?)://([^/]+)")
_PORTS: Final = {b"http": "80", b"https": "443"}
_OWN_SITES: Final = frozenset({b"same-origin", b"none"})
_READING: Final = frozenset({"GET", "HEAD"})


class Refusal(NamedTuple):
    """What is answered in place of the application: a status and one line."""

    status: int
    message: str


class Authority(NamedTuple):
    """A host in small letters without brackets, and a port, empty where none was named."""

    name: str
    port: str


class RequestRules:
    """Which requests are refused, by their head alone.

    Known are the names of loopback and `names`, with any port; with `own_addresses` also the
    address that the request came to, if it is named as an address. The paths of `graphql` take a
    query in a body alone: there a GET could change something.
    """

    def __init__(
        self,
        names: Iterable[str] = (),
        *,
        own_addresses: bool = False,
        graphql: Collection[str] = (),
    ) -> None:
        self._names = frozenset(name.strip("[]").lower() for name in names)
        self._own_addresses = own_addresses
        self._graphql = frozenset(graphql)

    def refusal(self, scope: Scope) -> Refusal | None:
        """Return why a request is refused, None where it may pass."""
        hosts = _values(scope, b"host")
        if len(hosts) != 1 or (host := _authority(hosts[0])) is None:
            return Refusal(400, "Send one Host header, of the form name or name:port.")
        if not self._is_known(host.name, scope):
            return Refusal(421, f"This server is not known as {host.name}.")
        if not all(_is_origin(origin, host) for origin in _values(scope, b"origin")):
            return Refusal(403, "Requests of other sites are refused (Origin).")
        if not _comes_from_here(scope):
            return Refusal(403, "Requests of other sites are refused (Sec-Fetch-Site).")
        if scope["path"].rstrip("/") in self._graphql and _asks_in_address(scope):
            return Refusal(405, "Nothing is asked here in an address: send it as a POST body.")
        return None

    def _is_known(self, name: str, scope: Scope) -> bool:
        if name == "localhost" or name in self._names:
            return True
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            return False
        if address.is_loopback:
            return True
        server = scope.get("server")
        return self._own_addresses and server is not None and server[0] == str(address)


class RequestGuard:
    """ASGI layer that answers what the rules refuse, and hands on the rest."""

    def __init__(self, app: ASGIApp, rules: RequestRules) -> None:
        self._app = app
        self.rules = rules

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = None if scope["type"] == "lifespan" else self.rules.refusal(scope)
        if refusal is None:
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            # Before it was accepted, which the client hears as 403.
            await send({"type": "websocket.close", "code": 1008, "reason": refusal.message})
        else:
            body = f"{refusal.message}\n".encode()
            headers = [
                (b"content-type", b"text/plain; charset=utf-8"),
                (b"content-length", str(len(body)).encode()),
                (b"cache-control", b"no-store"),
                (b"connection", b"close"),
            ]
            await send(
                {"type": "http.response.start", "status": refusal.status, "headers": headers}
            )
            await send({"type": "http.response.body", "body": body})


def _values(scope: Scope, name: bytes) -> list[bytes]:
    return [value for key, value in scope["headers"] if key.lower() == name]


def _authority(value: bytes) -> Authority | None:
    found = _HOST.fullmatch(value)
    if found is None:
        return None
    name, port = found.groups()
    return Authority(name.decode().strip("[]").lower(), (port or b"").decode())


def _asks_in_address(scope: Scope) -> bool:
    text = scope["query_string"].decode("latin-1")
    if scope["type"] == "http" and scope["method"] in _READING:
        return bool(text)
    return any(name == "query" for name, _ in parse_qsl(text, keep_blank_values=True))


def _is_origin(origin: bytes, host: Authority) -> bool:
    """Whether an Origin is that of the Host, on the same port; `null` is nobody's."""
    found = _ORIGIN.fullmatch(origin)
    if found is None or (other := _authority(found[2])) is None:
        return False
    default = _PORTS[found[1]]
    return other.name == host.name and (other.port or default) == (host.port or default)


def _comes_from_here(scope: Scope) -> bool:
    """Whether a browser says that a page of this server asks, or a person who follows a link."""
    sites = _values(scope, b"sec-fetch-site")
    if all(site in _OWN_SITES for site in sites):
        return True
    return (
        scope["type"] == "http"
        and scope["method"] in _READING
        and _values(scope, b"sec-fetch-mode") == [b"navigate"]
        and _values(scope, b"sec-fetch-dest") == [b"document"]
    )
