"""Requests that a foreign web page, or a foreign host name, can make a browser send.

Each is given as the bytes of its head. A protected server answers none of them with success.
"""

import json
import socket
from collections.abc import Iterator
from typing import NamedTuple
from urllib.parse import quote

from tests.hangs import HANGS_AFTER_S

JSON = "Content-Type: application/json"
PLAIN = "Content-Type: text/plain"
EVIL = "Origin: http://evil.example"
WEBSOCKET = (
    *("Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13"),
    *("Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Protocol: graphql-ws"),
)
REFUSED = (400, 403, 405, 421)


class Foreign(NamedTuple):
    """A request; `<port>` stands for the port of the server, `<query>` for a change as a query
    string."""

    name: str
    method: str
    target: str
    lines: tuple[str, ...]
    host: tuple[str, ...] = ("Host: 127.0.0.1:<port>",)


def _hosts() -> Iterator[Foreign]:
    for host in (
        *("evil.example", "evil.example:<port>", "127.0.0.1.evil.example:<port>"),
        *("localhost.evil.example", "evil-localhost", "localhostevil.example", "xlocalhost"),
        *("127.0.0.1:<port>, evil", "evil, 127.0.0.1:<port>", "127.0.0.1 evil", "evil@127.0.0.1"),
        *("127.0.0.1@evil.example", "127.0.0.1:<port>:80", "127.0.0.1:port", "127.0.0.1:", "[::1"),
        *("127.1", "2130706433", "0x7f000001", "0", "0.0.0.0:<port>", "10.0.0.1", "[::2]:<port>"),
        *("localhost.", "http://127.0.0.1", "127.0.0.1/evil", "", "*", "localhost\tevil"),
    ):
        yield Foreign(f"Host {host!r}", "POST", "/graphql", (JSON,), (f"Host: {host}",))
    good, evil = "Host: 127.0.0.1:<port>", "Host: evil.example"
    yield Foreign("no Host", "POST", "/graphql", (JSON,), ())
    yield Foreign("two Hosts, good first", "POST", "/graphql", (JSON,), (good, evil))
    yield Foreign("two Hosts, good last", "POST", "/graphql", (JSON,), (evil, good))
    yield Foreign("two good Hosts", "POST", "/graphql", (JSON,), (good, good))
    forwarded = ("X-Forwarded-Host: 127.0.0.1:<port>", "Forwarded: host=127.0.0.1")
    yield Foreign("evil behind a forged proxy", "POST", "/graphql", (JSON, *forwarded), (evil,))
    yield Foreign("a page by another name", "GET", "/", (), (evil,))


def _gets() -> Iterator[Foreign]:
    for target in ("/graphql?<query>", "/graphql/?<query>", "/%67raphql?<query>"):
        yield Foreign(f"GET {target}", "GET", target, ())
        yield Foreign(f"HEAD {target}", "HEAD", target, ())
    yield Foreign("GET as a page", "GET", "/graphql?<query>", ("Accept: text/html",))
    followed = (
        "Sec-Fetch-Site: cross-site",
        "Sec-Fetch-Mode: navigate",
        "Sec-Fetch-Dest: document",
    )
    yield Foreign("a link to a change", "GET", "/graphql?<query>", followed)
    yield Foreign("a query with a POST", "POST", "/graphql?<query>", (PLAIN,))
    yield Foreign("a query beside a name", "POST", "/graphql?op=x&<query>", (PLAIN,))


def _sites() -> Iterator[Foreign]:
    for origin in (
        *("http://evil.example", "null", "http://127.0.0.1", "http://127.0.0.1:1", "127.0.0.1"),
        *("https://127.0.0.1:<port>.evil.example", "http://127.0.0.1:<port>@evil.example"),
        *("http://127.0.0.1:<port>/", "http://localhost:<port>", "file://", "", "http://"),
        "http://evil.example, http://127.0.0.1:<port>",
    ):
        yield Foreign(f"Origin {origin!r}", "POST", "/graphql", (JSON, f"Origin: {origin}"))
    both = (JSON, "Origin: http://127.0.0.1:<port>", EVIL)
    yield Foreign("two Origins", "POST", "/graphql", both)
    yield Foreign("a form", "POST", "/graphql", ("Content-Type: text/plain", EVIL))
    form = "Content-Type: application/x-www-form-urlencoded"
    yield Foreign("a form of the web", "POST", "/graphql", (form, EVIL))
    for site in ("cross-site", "same-site", "evil", ""):
        line = f"Sec-Fetch-Site: {site}"
        yield Foreign(f"a POST of {site!r}", "POST", "/graphql", (JSON, line))
        yield Foreign(f"an image of {site!r}", "GET", "/logs/x", (line, "Sec-Fetch-Dest: image"))
    frame = ("Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: iframe")
    yield Foreign("a frame", "GET", "/", frame)
    posted = (JSON, "Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate")
    yield Foreign(
        "a form that navigates", "POST", "/graphql", (*posted, "Sec-Fetch-Dest: document")
    )
    sites = (JSON, "Sec-Fetch-Site: same-origin", "Sec-Fetch-Site: cross-site")
    yield Foreign("two sites", "POST", "/graphql", sites)
    preflight = (EVIL, "Access-Control-Request-Method: POST")
    yield Foreign("a preflight", "OPTIONS", "/graphql", preflight)
    yield Foreign("a report", "POST", "/report_asset_materialization/events", (JSON, EVIL))


def _websockets() -> Iterator[Foreign]:
    yield Foreign("a websocket", "GET", "/graphql", (*WEBSOCKET, EVIL))
    yield Foreign("a websocket of nobody", "GET", "/graphql", (*WEBSOCKET, "Origin: null"))
    evil = ("Host: evil.example",)
    yield Foreign("a websocket by another name", "GET", "/graphql", WEBSOCKET, evil)
    site = "Sec-Fetch-Site: cross-site"
    yield Foreign("a websocket of a site", "GET", "/graphql", (*WEBSOCKET, site))
    followed = (site, "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: document")
    yield Foreign("a websocket that navigates", "GET", "/graphql", (*WEBSOCKET, *followed))


FOREIGN = (*_hosts(), *_gets(), *_sites(), *_websockets())


def status_of(foreign: Foreign, port: int, change: str) -> int:
    """Send a request with a GraphQL change in body or query string; return the status."""
    body = json.dumps({"query": change}).encode()
    if foreign.method in ("GET", "HEAD", "OPTIONS"):
        body = b""
    lines = [
        f"{foreign.method} {foreign.target} HTTP/1.1",
        *foreign.host,
        *foreign.lines,
        *([f"Content-Length: {len(body)}"] if body else []),
        *([] if foreign.lines[: len(WEBSOCKET)] == WEBSOCKET else ["Connection: close"]),
    ]
    head = "\r\n".join(lines).replace("<port>", str(port))
    head = head.replace("<query>", f"query={quote(change)}")
    with socket.create_connection(("127.0.0.1", port), timeout=HANGS_AFTER_S) as connection:
        connection.sendall(head.encode("latin-1") + b"\r\n\r\n" + body)
        answer = connection.recv(65_536)
    return int(answer.split(b" ", 2)[1])
