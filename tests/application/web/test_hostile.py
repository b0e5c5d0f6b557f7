import http.client
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import quote, urlsplit

import pytest
from starlette.testclient import TestClient

from application.web.site import WebSite
from tests.almanac.publications import NamedCoin
from tests.application.mirror.filled_home import mirroring
from tests.application.web.handmade_site import DAY, FIRST, NOW, serve_pages
from tests.hangs import HANGS_AFTER_S
from tests.warehouse.answers.handmade import Known
from warehouse.home import Home

TEXTS = {
    "script": "<script>alert(1)</script>",
    "cdata": "]]><!-- --><img src=x onerror=alert(1)>",
    "quote": "\"'><svg/onload=alert(1)> style=x",
    "template": "{{ 7 * 7 }}{% raw %}",
    "controls": "a\x00b\x07\x1b[31mc\x7f\x85",
    "bidi": "abc\u202egnp.exe\u2066x\u2028y",
    "rtl": "\u05d0\u05d9\u05e8\u05d5\u05e2 \u0645\u0631\u062d\u0628\u0627",
    "long": "x" * 10_000,
    "tag": "</title></main></body><h1>",
}
COIN = '<b>"co&in"</b>'
SOURCES = (
    "javascript:alert(1)",
    "data:text/html,<script>alert(1)</script>",
    "//evil.example/x",
    'https://news.example/"onmouseover="alert(1)',
    "https://news.example/<script>",
    "JaVaScRiPt:alert(1)//https://news.example",
)


def make_versions() -> Iterator[Known]:
    for number, (name, text) in enumerate(TEXTS.items()):
        # A name in a database has no null character.
        shown = text.replace("\x00", "")
        for version in (1, 2):
            yield Known(
                event_id=name,
                version=version,
                known_from=FIRST + (version - 1) * DAY,
                change_kinds=("rescheduled", "revised") if version == 2 else ("created",),
                title=shown + "." * version,
                displayed_date=shown[:300] + "." * version,
                date=NOW + version * DAY,
                coins=(COIN, "dash"),
                categories=(shown[:300], "AMA"),
                source_url=SOURCES[(number + version) % len(SOURCES)],
                impact_band=shown[:50],
            )


_SHAPES = {"svg", "rect", "title", "a", "text", "line", "path", "circle"}


class _Tags(HTMLParser):
    """The tags and attributes of a page, as a browser reads them; tags of our plots are apart."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.names: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.of_plots: set[str] = set()
        self._in_plot = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._in_plot |= tag == "svg" and bool(
            {("role", "img"), ("role", "group"), ("aria-hidden", "true")} & {*attrs}
        )
        if self._in_plot:
            self.of_plots.add(tag)
        else:
            self.names.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        self._in_plot &= tag != "svg"


def check_page(page: str) -> None:
    """Check that a page has no element, handler or link that the site does not make."""
    tags = _Tags()
    tags.feed(page)
    assert tags.names.count("script") == 1
    assert tags.of_plots <= _SHAPES, tags.of_plots
    assert not {"svg", "img", "b", "style", "iframe", "object"} & set(tags.names)
    assert tags.names.count("h1") == tags.names.count("title") == 1
    for name, value in tags.attributes:
        assert not name.startswith("on")
        assert name not in ("style", "srcdoc")
        if name in ("href", "src", "action"):
            assert urlsplit(value or "").scheme in ("", "http", "https", "webcal")
            assert not (value or "").startswith("//")
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", page)
    assert "49" not in re.findall(r"<bdi>(\d+)", page)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    coins = [NamedCoin(COIN, "<i>", TEXTS["cdata"], 1), NamedCoin("dash", "dash", "x" * 5_000, 2)]
    with serve_pages(tmp_path_factory.mktemp("h"), list(make_versions()), coins=coins) as client:
        yield client


def test_hostile_content_stays_text_and_a_long_title_is_cut_in_lists(hostile: TestClient) -> None:
    lists = (
        "/",
        "/?when=all",
        "/?view=month",
        "/changes",
        "/coins",
        "/coin/dash",
        f"/coin/{quote(COIN)}",
    )
    for path in (*lists, *(f"/event/{name}" for name in TEXTS)):
        answer = hostile.get(path)
        assert answer.status_code == 200, path
        check_page(answer.text)
        assert len(answer.text) < 150_000
    # A category may have 300 characters, and a filter needs all of them.
    assert "x" * 301 not in hostile.get("/").text
    assert "x" * 10_000 in hostile.get("/event/long").text


_SCRIPT = "<script>alert(1)</script>"
_SQL_TRIES = (
    "' OR 1=1 --",
    "x'; DROP TABLE events; --",
    "') UNION SELECT value FROM _almanac.facts --",
    "$at",
    "read_csv('/etc/passwd')",
    "slug:' || getenv('HOME') || '",
)
_TARGETS = (
    *(f"/?{name}={quote(text)}" for name in ("coins", "categories", "q") for text in _SQL_TRIES),
    *(
        f"/?{name}={quote(text)}"
        for name in ("min_impact", "when", "from", "to", "view", "page", "as_of", "<b>")
        for text in (_SQL_TRIES[0], _SCRIPT)
    ),
    *(
        f"/{page}/{quote(text, safe='')}"
        for page in ("event", "coin")
        for text in (*_SQL_TRIES, _SCRIPT)
    ),
    *("/coins?q=" + quote(_SCRIPT), "/coins?q=%27%20OR%201%3D1", "/static/../site.py"),
    *("/static/%2e%2e/site.py", "/static/..%2fsite.py", "/static/%2fetc%2fpasswd", "/static/"),
    *("/static/..\\site.py", "/event/../../etc/passwd", "/coin/..%2f..%2fetc%2fpasswd"),
    *("/event/%2e%2e%2f%2e%2e%2fetc%2fpasswd", "//evil.example/", "http://evil.example/"),
    *("//evil.example/?as_of=2026-01-01", "/event//evil.example", "/event/a%00b", "/?q=a%00b"),
    *("/?coins=%00", "/?q=%ff%fe%ed%a0%80", "/event/%ff%ed%a0%80"),
    *("/?as_of=2026-01-01%0d%0aX-Injected:%201", "/event/x%0d%0aX-Injected:%201"),
    *("/?q=" + "a" * 100_000, "/event/" + "a" * 30_000, "/?page=-1", "/?page=1e3"),
    *("/?" + "&".join(f"p{number}=1" for number in range(400)), "/?page=99999999999999999999"),
    *("/?min_impact=inf", "/?min_impact=1e400", "/?coins=btc&coins=eth"),
    "/?as_of=2026-01-01&as_of=2026-02-01",
)
_HEADERS = (
    *({"Host": "evil.example"}, {"Host": "127.0.0.1\tevil"}, {"Origin": "https://evil.example"}),
    {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors"},
    {"X-Forwarded-Host": "evil.example", "X-Original-URL": "/metrics"},
    {"If-None-Match": '"' + "a" * 5_000 + '"'},
)
REQUESTS: tuple[tuple[str, str, dict[str, str]], ...] = (
    *(("GET", target, {}) for target in _TARGETS),
    *(("GET", "/", headers) for headers in _HEADERS),
    *(("POST", "/", {}), ("PUT", "/event/evt", {}), ("DELETE", "/coins", {}), ("TRACE", "/", {})),
    *(("PATCH", "/static/site.css", {}), ("OPTIONS", "/", {"Origin": "https://evil.example"})),
)


@pytest.fixture(scope="module")
def address(filled_home: Home, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    before = filled_home.warehouse.read_bytes()
    with mirroring(filled_home, tmp_path_factory.mktemp("m"), site=WebSite) as (mirror, _):
        yield urlsplit(mirror.base_url).netloc
    assert filled_home.warehouse.read_bytes() == before


def test_hostile_requests_are_refused_or_harmless(address: str) -> None:
    for method, target, headers in REQUESTS:
        check_request(address, method, target, headers)


def check_request(address: str, method: str, target: str, headers: dict[str, str]) -> None:
    connection = http.client.HTTPConnection(address, timeout=HANGS_AFTER_S)
    try:
        # As it is written: other clients correct a path with dots.
        connection.putrequest(method, target, skip_host="Host" in headers)
        for name, value in headers.items():
            connection.putheader(name, value)
        connection.endheaders()
        answer = connection.getresponse()
        body = answer.read().decode("utf-8", "replace")
    finally:
        connection.close()
    assert answer.status < 500, target[:200]
    assert answer.getheader("x-injected") is None
    assert answer.getheader("location") is None
    assert answer.getheader("access-control-allow-origin") is None
    for leaked in ("root:", "Traceback", "def get_static", str(Path.home()) + "/"):
        assert leaked not in body
    if (answer.getheader("content-type") or "").startswith("text/html"):
        check_page(body)
        assert "script-src 'self'" in (answer.getheader("content-security-policy") or "")
    if method != "GET" or {"Host", "Origin"} & headers.keys():
        assert answer.status in (400, 403, 405, 421)
