"""The key is in no repr, error, log or landed file, as it is or URL-encoded, in any failure."""

import gzip
import logging
import traceback
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from resources.credentials import Redactor
from resources.errors import CatalogError
from resources.http.client import CatalogClient
from resources.http.retry import OriginKey, RetryPolicy
from resources.request_log import SentRequest
from tests.resources.fakes import FakeTime, answering, chunked, head, raw_server
from tests.unlimited import Unlimited
from warehouse.landing.batches import KEY_MARK, Scope

KEY = "canary-5f1c9e7b2a/Q+K="
SPELLINGS = (KEY, quote(KEY, safe=""))
REDACTOR = Redactor(SecretStr(KEY))
ECHO = httpx.Response(
    403,
    json={"error": {"code": "x", "message": f"no key {KEY} {quote(KEY)} " + "x" * 160 + KEY}},
    headers={"X-Request-Id": KEY, "ETag": quote(KEY, safe="")},
)
FAILURES: dict[str, httpx.Response | Exception] = {
    "refused": ECHO,
    "rate": httpx.Response(429),
    "failing": httpx.Response(500, headers={"X-Request-Id": KEY}),
    "waiting": httpx.Response(503, headers={"Retry-After": KEY}),
    "encoding": httpx.Response(200, headers={"Content-Encoding": KEY}),
    "gone": httpx.ConnectError(f"could not send {KEY}"),
    "html": httpx.Response(200, html=f"<html>{KEY}"),
    "cut": httpx.Response(200, content=b'{"data":["' + KEY.encode()),
    "elsewhere": httpx.Response(302, headers={"Location": f"https://evil.test/{KEY}"}),
}


def has_key(text: str) -> bool:
    return any(spelling in text for spelling in SPELLINGS)


def all_texts_of(error: BaseException) -> Iterator[str]:
    """Yield the texts of an error, of its chain, and of the objects that they refer to."""
    seen: list[BaseException | None] = [error]
    while seen:
        current = seen.pop()
        if current is None:
            continue
        yield from (str(current), repr(current), repr(current.args), repr(vars(current)))
        yield "".join(traceback.format_exception(current))
        seen += [current.__cause__, current.__context__]


def client_of(
    handler: Callable[[httpx.Request], httpx.Response],
    observer: Callable[[SentRequest], None] | None = None,
) -> CatalogClient:
    return CatalogClient(
        "https://catalog.test",
        SecretStr(KEY),
        limiter=Unlimited(),
        timing=FakeTime().timing(),
        policy=RetryPolicy(attempts=2),
        transport=httpx.MockTransport(handler),
        observer=observer,
    )


@pytest.mark.parametrize("name", FAILURES)
def test_no_error_shows_the_key(name: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    sent: list[SentRequest] = []
    with pytest.raises(CatalogError) as raised:
        client_of(answering(FAILURES[name]), sent.append).events_total(Scope())
    error = raised.value
    assert not [text for text in all_texts_of(error) if has_key(text)]
    assert (error.__cause__, error.__context__) == (None, None)
    assert not has_key(caplog.text + repr(sent))
    evidence = error.evidence
    assert evidence is None or not has_key(repr(evidence.headers) + repr(evidence))
    assert not has_key(str(getattr(evidence, "body", b"")))


@pytest.mark.parametrize(
    "answer",
    [[b""], [head(f"X-Echo: {KEY}"), b'id,t\n1,"a'],
     [head("Transfer-Encoding: chunked"), chunked(b"{", end=False)],
     [b"nonsense\r\n\r\n"], [head(f"Location: /{quote(KEY)}", status="500 Error"), b"no"]],
)  # fmt: skip
def test_errors_and_logs_of_a_real_connection_do_not_show_the_key(
    answer: list[bytes], caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    for name in ("", "httpx", "httpcore", "httpcore.http11", "httpcore.connection"):
        caplog.set_level(logging.DEBUG, logger=name or None)
    with raw_server(answer) as server:
        client = CatalogClient(
            server.base_url,
            KEY,
            limiter=Unlimited(),
            timing=FakeTime().timing(),
            policy=RetryPolicy(attempts=2),
        )
        with client, pytest.raises(CatalogError) as raised:
            client.export(tmp_path / "export.csv", Scope())
        assert KEY in server.heads[0]
    assert not [text for text in all_texts_of(raised.value) if has_key(text)]
    assert caplog.records
    for record in caplog.records:
        assert not has_key(record.getMessage() + repr(record.args) + repr(record.__dict__))


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("encode", [bytes, gzip.compress])
def test_a_body_that_repeats_the_key_is_kept_without_it(
    spelling: str, encode: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    body = encode(f"id,t\n1,{spelling}\n2,b\n".encode())
    with raw_server([head(), *(body[n : n + 5] for n in range(0, len(body), 5))]) as server:
        client = CatalogClient(server.base_url, KEY, limiter=Unlimited())
        with client:
            assert client.export(tmp_path / "export.csv", Scope()).rows == 2
    assert (tmp_path / "export.csv").read_text() == f"id,t\n1,{KEY_MARK}\n2,b\n"


@given(
    st.lists(st.sampled_from([KEY, SPELLINGS[1], "a", KEY[:9], "%2", "\n"]), max_size=9),
    st.integers(1, 40),
)
def test_a_body_in_pieces_has_the_same_redaction_as_a_text(parts: list[str], size: int) -> None:
    text = "".join(parts)
    body = text.encode()
    pieces: Iterable[bytes] = [body[at : at + size] for at in range(0, len(body), size)]
    assert b"".join(REDACTOR.body(pieces)).decode() == REDACTOR(text)


@pytest.mark.parametrize(
    "url", ["https://evil.test/", "http://catalog.test/", "https://catalog.test:8443/"]
)
def test_the_key_is_sent_to_only_one_origin(url: str) -> None:
    key = OriginKey(SecretStr(KEY), "https://catalog.test/v2")
    request = httpx.Request("GET", url)
    with pytest.raises(httpx.UnsupportedProtocol):
        next(key.auth_flow(request))
    assert not has_key(str(request.headers.raw))
    own = next(key.auth_flow(httpx.Request("GET", "https://catalog.test:443/v2/usage")))
    assert own.headers["x-api-key"] == KEY
