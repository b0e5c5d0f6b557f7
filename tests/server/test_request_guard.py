from typing import Any

import pytest

from catalog.server.app import ServerOptions
from catalog.server.request_guard import find_refusal
from tests.server.bare_server import bare_server

HOST = ("host", "127.0.0.1:8000")
NAVIGATES = (("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "document"))
HOSTS = (
    *("evil.example", "evil.example:8000", "127.0.0.1.evil.example:8000", "xlocalhost"),
    *("localhost.evil.example", "127.0.0.1:8000, evil", "127.0.0.1 evil", "evil@127.0.0.1"),
    *("127.0.0.1@evil.example", "127.0.0.1:8000:80", "127.0.0.1:port", "127.0.0.1:", "[::1"),
    *("127.1", "2130706433", "0x7f000001", "0", "0.0.0.0:80", "10.0.0.1", "[::2]:80"),
    *("localhost.", "http://127.0.0.1", "127.0.0.1/evil", "", "*", "localhost\tevil"),
)
ORIGINS = (
    *("http://evil.example", "null", "http://127.0.0.1", "http://127.0.0.1:1", "127.0.0.1"),
    *("https://127.0.0.1:8000.evil.example", "http://127.0.0.1:8000@evil.example", "file://"),
    *("http://127.0.0.1:8000/", "http://localhost:8000", "", "http://", "http://e, http://e"),
)


def status_of(*headers: tuple[str, str], method: str = "GET") -> int:
    """Return the status with which a request is refused; 200 if it passes."""
    scope: dict[str, Any] = {
        "type": "http",
        "method": method,
        "path": "/",
        "headers": [(name.encode(), value.encode("latin-1")) for name, value in headers],
    }
    refusal = find_refusal(scope)
    return 200 if refusal is None else refusal.status_code


def test_anything_but_one_known_host_is_refused() -> None:
    assert [host for host in HOSTS if status_of(("host", host)) not in (400, 421)] == []
    assert status_of() == 400
    assert status_of(HOST, HOST) == 400
    assert status_of(("host", "evil.example"), ("x-forwarded-host", "127.0.0.1")) == 421


def test_a_request_of_another_page_is_refused() -> None:
    own = ("origin", "http://127.0.0.1:8000")
    for origin in ORIGINS:
        assert status_of(HOST, ("origin", origin), method="POST") == 403, origin
        assert status_of(HOST, own, ("origin", origin)) == 403, origin


def test_a_site_may_link_to_a_page_and_do_nothing_else() -> None:
    frame = (("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "iframe"))
    for site in ("cross-site", "same-site", "evil", ""):
        given = ("sec-fetch-site", site)
        assert status_of(HOST, given, ("sec-fetch-dest", "image")) == 403
        assert status_of(HOST, given, *frame) == 403
        assert status_of(HOST, given, *NAVIGATES, method="POST") == 403
        assert status_of(HOST, ("sec-fetch-site", "same-origin"), given) == 403
        assert status_of(HOST, given, *NAVIGATES) == 200


def test_own_pages_pass_under_each_name_of_loopback() -> None:
    for host in ("127.0.0.1", "localhost", "LOCALHOST:8000", "[::1]:80"):
        own = (("origin", f"http://{host.lower()}"), ("sec-fetch-site", "same-origin"))
        assert status_of(("host", host), *own, method="POST") == 200


def test_a_guarded_server_answers_the_origins_that_it_was_given_alone() -> None:
    known = ("https://app.example", "http://localhost:*")
    with bare_server(guard=True, options=ServerOptions(cors_origins=known)) as server:
        for origin in (known[0], "http://localhost:5173", "http://localhost"):
            answer = server.get("/v2/categories", origin=origin, sec_fetch_site="cross-site")
            assert answer.status_code == 200
            assert answer.headers["access-control-allow-origin"] == origin
        for origin in (
            "https://evil.example",
            "http://localhost:1.evil.example",
            "http://localhost:",
        ):
            answer = server.get("/v2/categories", origin=origin, sec_fetch_site="cross-site")
            assert (answer.status_code, "--cors" in answer.text) == (403, True)
        assert server.get("/healthz", host="evil.example").status_code == 421
    with bare_server() as server:
        assert server.get("/healthz", host="evil.example").status_code == 200


def test_an_origin_that_no_page_has_is_refused() -> None:
    for origin in (
        *("*", "null", "", "app.example", "https://app.example/", "https://app.example/path"),
        *("https://*.example", "https://app.example:443", "https://App.example", "ftp://a"),
        *("https://app.example:*", "http://localhost:*/", "http://localhost:8*"),
        *("https://app.example:0", "https://app.example:99999", "https://app.example:080"),
    ):
        with pytest.raises(ValueError, match=r"such as https://app\.example"):
            ServerOptions(cors_origins=(origin,))
    ServerOptions(cors_origins=("https://app.example", "http://localhost:3000", "http://[::1]:*"))
