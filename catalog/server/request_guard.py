"""Refuses requests from other sites to a server that is meant for people of this machine.

Any web page can make a browser send requests to loopback, and can give loopback a name of its own.
So a request is refused unless it has one known Host and, if the browser states its origin, comes
from the server's own pages.
"""

import ipaddress
import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from catalog.server.responses import METHODS

_PORT: Final = re.compile(r"|[1-9][0-9]{0,4}")
_HOST: Final = re.compile(r"(\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9._-]{1,253})(?::([0-9]{1,5}))?")
_ORIGIN: Final = re.compile(r"(https?)://([^/]+)")
_PORTS: Final = {"http": "80", "https": "443"}
_ANY_PORT: Final = re.compile(r"https?://(localhost|127\.0\.0\.1|\[::1\]):\*")
_ADVICE: Final = "Start the server with --cors and the origin of the site to allow it."


def find_refusal(
    scope: Scope, origins: Collection[str] = (), names: Collection[str] | None = None
) -> Response | None:
    """Return the refusal of a request, by its head alone; None if it may pass.

    The loopback names are accepted, with any port; with `names`, those and all addresses, too: a
    foreign page has a name. Pages of `origins`, such as `https://app.example` or
    `http://localhost:*`, may send requests, too. Granian hides the host of an absolute request
    target, which no browser sends to a server: the Host header alone decides.
    """
    headers = Headers(scope=scope)
    hosts, given = headers.getlist("host"), headers.getlist("origin")
    host = _split_host(hosts[0]) if len(hosts) == 1 else None
    if host is None:
        return _refusal(400, "Send one Host header, of the form name or name:port.")
    known = names is not None and (host[0] in names or _is_address(host[0]))
    if not known and not is_loopback(host[0]):
        return _refusal(421, f"This server is not known as {host[0]}.")
    if len(given) == 1 and re.fullmatch(origin_pattern(origins), given[0]):
        return None
    if not all(_is_origin(origin, host) for origin in given):
        return _refusal(403, f"Requests of other sites are refused (Origin). {_ADVICE}")
    sites = headers.getlist("sec-fetch-site")
    follows_link = (
        scope.get("method") in METHODS
        and headers.get("sec-fetch-mode") == "navigate"
        and headers.get("sec-fetch-dest") == "document"
    )
    if not follows_link and not {"same-origin", "none"}.issuperset(sites):
        return _refusal(403, f"Requests of other sites are refused (Sec-Fetch-Site). {_ADVICE}")
    return None


@dataclass(eq=False, repr=False)
class HostGuard:
    """Middleware that responds to refused requests and passes on all others."""

    app: ASGIApp
    origins: Collection[str] = ()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = find_refusal(scope, self.origins) if scope["type"] == "http" else None
        await (refusal or self.app)(scope, receive, send)


def origin_pattern(origins: Collection[str]) -> str:
    """Return a regular expression of the origins, in which `:*` is any port or none."""
    return (
        "|".join(re.escape(origin).replace(r":\*", "(:[0-9]{1,5})?") for origin in origins) or "-"
    )


def check_origin(origin: str) -> None:
    """Raise ValueError unless a browser can send this origin.

    It has scheme and host in lower case, and a port only if it is not the default of the scheme.
    The port of a loopback name may be `*`.
    """
    if _ANY_PORT.fullmatch(origin):
        return
    found = _ORIGIN.fullmatch(origin)
    host = None if found is None else _split_host(found[2])
    if (
        found is None
        or host is None
        or host[1] == _PORTS[found[1]]
        or not _PORT.fullmatch(host[1])
        or int(host[1] or 1) > 65_535
        or origin != origin.lower()
    ):
        raise ValueError(
            f"no page has the origin {origin!r}; expected scheme and host, and the port if it is "
            "not the usual one, such as https://app.example or http://localhost:3000; "
            "http://localhost:* is every port"
        )


def is_loopback(name: str) -> bool:
    """Return whether a host, as an address or `localhost`, is this machine."""
    return name == "localhost" or (_is_address(name) and ipaddress.ip_address(name).is_loopback)


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _refusal(status: int, message: str) -> Response:
    headers = {"Cache-Control": "no-store", "Connection": "close"}
    return PlainTextResponse(f"{message}\n", status, headers)


def _split_host(value: str) -> tuple[str, str] | None:
    """Return a host in lower case without brackets, and a port, empty if none was given."""
    found = _HOST.fullmatch(value)
    return None if found is None else (found[1].strip("[]").lower(), found[2] or "")


def _is_origin(origin: str, host: tuple[str, str]) -> bool:
    """Whether an Origin names the Host, on the same port; `null` never does."""
    found = _ORIGIN.fullmatch(origin)
    other = None if found is None else _split_host(found[2])
    if found is None or other is None:
        return False
    default = _PORTS[found[1]]
    return other[0] == host[0] and (other[1] or default) == (host[1] or default)
