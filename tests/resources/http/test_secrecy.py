"""The key is in no repr, no error, no log and no report, in any failure."""

import logging
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from pydantic import SecretStr
from resources.http.transport import KeyTransport

from resources.errors import CatalogError
from resources.http.client import CatalogClient
from resources.request_log import SentRequest
from resources.service_address import checked_key
from resources.waits import RetryPolicy
from tests.resources.fakes import KEY, FakeTime, answering, chunked, head, raw_server
from tests.unlimited import Unlimited

ECHO = httpx.Response(
    403,
    json={"error": {"code": "forbidden", "message": f"no key {KEY} " + "x" * 175 + KEY}},
    headers={"X-Echo": KEY},
)
FAILURES: dict[str, httpx.Response | Exception] = {
    "refused": ECHO,
    "rate": httpx.Response(429),
    "quota": httpx.Response(429, json={"message": "Limit Exceeded"}),
    "failing": httpx.Response(500),
    "gone": httpx.ConnectError(f"could not send {KEY}"),
    "html": httpx.Response(200, html="<html>"),
    "cut": httpx.Response(200, content=b'{"data":['),
    "elsewhere": httpx.Response(302, headers={"Location": "https://evil.test/"}),
}


def all_texts_of(error: BaseException) -> Iterator[str]:
    """Yield the texts of an error, of its chain, and of the objects that they refer to."""
    seen: list[BaseException | None] = [error]
    while seen:
        current = seen.pop()
        if current is None:
            continue
        yield from (str(current), repr(current), repr(current.args), repr(vars(current)))
        yield "".join(traceback.format_exception(current))
        for name in ("request", "response"):
            thing = getattr(current, f"_{name}", None)
            if thing is not None:
                yield repr(thing) + repr(thing.headers) + repr(vars(thing))
        seen += [current.__cause__, current.__context__]


def client_of(handler: Callable[[httpx.Request], httpx.Response]) -> CatalogClient:
    return CatalogClient(
        "https://catalog.test",
        SecretStr(KEY),
        limiter=Unlimited(),
        ambient=FakeTime().ambient(),
        policy=RetryPolicy(attempts=2),
        transport=httpx.MockTransport(handler),
    )


@pytest.mark.parametrize("name", FAILURES)
def test_no_error_shows_the_key(name: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with pytest.raises(CatalogError) as raised:
        client_of(answering(FAILURES[name])).events_total()
    for text in all_texts_of(raised.value):
        assert KEY not in text
    assert raised.value.__cause__ is None
    assert raised.value.__context__ is None
    assert KEY not in caplog.text


@pytest.mark.parametrize(
    "answer",
    [[b""], [head(), b'id,t\n1,"a'], [head("Transfer-Encoding: chunked"), chunked(b"{", end=False)],
     [b"nonsense\r\n\r\n"], [head(status="500 Error"), b"no"]],
)  # fmt: skip
def test_errors_and_logs_of_a_real_connection_do_not_show_the_key(
    answer: list[bytes], caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    for name in ("", "httpx", "httpcore", "httpcore.http11", "httpcore.connection"):
        caplog.set_level(logging.DEBUG, logger=name or None)
    sent: list[SentRequest] = []
    with raw_server(answer) as server:
        client = CatalogClient(
            server.base_url,
            KEY,
            limiter=Unlimited(),
            ambient=FakeTime().ambient(),
            policy=RetryPolicy(attempts=2),
            observer=sent.append,
        )
        with client, pytest.raises(CatalogError) as raised:
            client.export(tmp_path / "export.csv")
        assert KEY in server.heads[0]
    for text in all_texts_of(raised.value):
        assert KEY not in text
    assert caplog.records
    for record in caplog.records:
        assert KEY not in record.getMessage() + repr(record.args) + repr(record.__dict__)
    assert len(sent) == 2
    assert KEY not in repr(sent)


def test_the_client_and_its_parts_do_not_show_the_key() -> None:
    client = client_of(answering(httpx.Response(200, json={"data": []})))
    paginator = client.events_pages()
    (page,) = paginator
    http = client._http
    for thing in (client, vars(client), paginator, vars(paginator), page, paginator.report,
                  http.headers, vars(http), vars(http._transport),
                  vars(client._caller)):  # fmt: skip
        assert KEY not in repr(thing)


def test_the_request_that_httpx_keeps_has_no_key() -> None:
    given: list[httpx.Request] = []

    def handle(request: httpx.Request) -> httpx.Response:
        given.append(request)
        return httpx.Response(200)

    transport = KeyTransport(
        httpx.MockTransport(handle),
        key=checked_key(KEY),
        origin=httpx.URL("https://catalog.test"),
        limiter=Unlimited(),
    )
    with httpx.Client(transport=transport) as http:
        response = http.get("https://catalog.test:443/v2/usage")
    assert given[0].headers["x-api-key"] == KEY
    assert "x-api-key" not in response.request.headers
    assert KEY not in repr(response.request.headers)


@pytest.mark.parametrize(
    "url", ["https://evil.test/", "http://catalog.test/", "https://catalog.test:8443/"]
)
def test_the_key_is_sent_to_only_one_origin(url: str) -> None:
    sent: list[httpx.Request] = []

    def handle(request: httpx.Request) -> httpx.Response:
        sent.append(request)
        return httpx.Response(200)

    transport = KeyTransport(
        httpx.MockTransport(handle),
        key=checked_key(KEY),
        origin=httpx.URL("https://catalog.test"),
        limiter=Unlimited(),
    )
    with httpx.Client(transport=transport) as http, pytest.raises(httpx.UnsupportedProtocol):
        http.get(url)
    assert sent == []
