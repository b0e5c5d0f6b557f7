"""Connections that can't be made: reported once with what to set, also by alerts; no secret."""

import logging
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from catalog.sandbox.sandbox import Sandbox
from pipeline.health.notices import NotPosted, post_json
from resources.errors import CatalogError, RetryLater, Stop
from resources.http.client import CatalogClient
from resources.http.network import Network
from resources.http.retry import Timeouts
from tests.hangs import HANGS_AFTER_S
from tests.pipeline.network.certificates import Authority, new_authority
from tests.pipeline.network.relay import Relay, relay
from tests.resources.fakes import FakeTime, head, raw_server
from tests.unlimited import Unlimited

PASSWORD = "canary-of-the-proxy-83"
KEY = "canary-5f1c9e7b2a44"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return new_authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def proxy(tmp_path: Path) -> Iterator[Relay]:
    with relay(tmp_path / "proxy.log", "proxy", f"user:{PASSWORD}") as running:
        yield running


def through(proxy: Relay, *, password: str = PASSWORD, **given: Any) -> Network:
    address = SecretStr(f"http://user:{password}@127.0.0.1:{proxy.port}")
    return Network(tuple((scheme, address, "ALL_PROXY") for scheme in ("http", "https")), **given)


@contextmanager
def secured(folder: Path, authority: Authority, sandbox: Sandbox, name: str) -> Iterator[Relay]:
    certificate, key = authority.issue(name, is_expired=name.startswith("expired"))
    with relay(folder / "tls.log", "tls", certificate, key, sandbox.port) as running:
        yield running


def failure_of(address: str, network: Network, key: str = KEY) -> CatalogError:
    client = CatalogClient(
        address, key, limiter=Unlimited(), ambient=FakeTime().ambient(), network=network
    )
    with client, pytest.raises(CatalogError) as raised:
        client.usage()
    return raised.value


@pytest.mark.parametrize(
    ("name", "host", "is_trusted", "advice"),
    [
        ("private.test", "private.test", False, "set ALMANAC_CA_FILE"),
        ("other.test", "private.test", True, "host name for which the certificate was issued"),
        ("expired.test", "expired.test", True, "has to renew its certificate"),
    ],
)
def test_a_certificate_that_cannot_be_verified_is_reported_once(
    tmp_path: Path,
    authority: Authority,
    almanac_sandbox: Sandbox,
    proxy: Relay,
    name: str,
    host: str,
    is_trusted: bool,
    advice: str,
) -> None:
    network = through(proxy, ca_file=authority.file if is_trusted else None)
    with secured(tmp_path, authority, almanac_sandbox, name) as front:
        error = failure_of(f"https://{host}:{front.port}", network)
        assert len(front.seen) == 1
    assert isinstance(error, Stop)
    assert error.attempts == 1
    assert advice in str(error)
    assert PASSWORD not in str(error)


def test_https_at_a_port_without_tls_is_reported_once(almanac_sandbox: Sandbox) -> None:
    error = failure_of(f"https://127.0.0.1:{almanac_sandbox.port}", Network())
    assert isinstance(error, Stop)
    assert "http:// or https://" in str(error)


def test_a_proxy_that_is_down_is_named_and_tried_again(tmp_path: Path) -> None:
    down = Relay(9, tmp_path / "none")
    error = failure_of("http://a.test", through(down))
    assert isinstance(error, RetryLater)
    assert "through the proxy http://127.0.0.1:9 (ALL_PROXY)" in str(error)
    assert error.attempts > 1
    assert PASSWORD not in str(error)


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_refusal_of_the_proxy_is_reported_once(proxy: Relay, scheme: str) -> None:
    error = failure_of(f"{scheme}://a.test", through(proxy, password="wrong"))
    assert isinstance(error, Stop)
    assert len(proxy.seen) == 1
    assert "Set user and password in ALL_PROXY" in str(error)
    assert b64encode(b"user:wrong").decode() not in str(error)


def test_alerts_take_the_proxy_and_say_what_to_set(
    tmp_path: Path, authority: Authority, almanac_sandbox: Sandbox, proxy: Relay
) -> None:
    with raw_server([head("Content-Length: 0")]) as receiver:
        address = SecretStr(receiver.base_url.replace("127.0.0.1", "hook.test") + "/hook-token-77")
        post_json(address, {}, "It", network=through(proxy))
        assert len(proxy.seen) == 1
        denied = through(proxy, password="wrong")
        with pytest.raises(NotPosted, match="Set user and password in ALL_PROXY") as raised:
            post_json(address, {}, "It", network=denied)
        assert "hook-token-77" not in str(raised.value)
    with secured(tmp_path, authority, almanac_sandbox, "private.test") as front:
        address = SecretStr(f"https://private.test:{front.port}/hook-token-77")
        with pytest.raises(NotPosted, match="set ALMANAC_CA_FILE") as raised:
            post_json(address, {}, "It", network=through(proxy))
        assert "hook-token-77" not in str(raised.value)


@pytest.mark.parametrize(
    "echoed",
    [KEY, KEY.upper(), KEY.encode().hex(), "".join(f"%{ord(letter):02x}" for letter in KEY)],
)
def test_no_log_of_the_http_libraries_shows_a_key_that_a_header_repeats(
    caplog: pytest.LogCaptureFixture, echoed: str
) -> None:
    caplog.set_level(logging.DEBUG)
    answer = head(f"X-Echo: {echoed}", f"Set-Cookie: k={echoed}", "Content-Length: 0")
    with raw_server([answer]) as server:
        failure_of(server.base_url, Network())
    logged = "\n".join(record.getMessage() + repr(record.args) for record in caplog.records)
    assert "receive_response_headers.complete" in logged
    assert "X-Echo" in logged
    assert echoed.lower() not in logged.lower()


@pytest.mark.parametrize("body", [b"x", b""], ids=["body", "head"])
def test_an_answer_that_arrives_drop_by_drop_is_cut(tmp_path: Path, body: bytes) -> None:
    """With real time, and a hundredth of the usual limit for the first bytes."""
    drops: list[bytes | float] = [part for _ in range(400) for part in (b"x", 0.05)]
    start = (
        head("Content-Length: 400", "Content-Type: text/csv") if body else b"HTTP/1.1 200 OK\r\nX: "
    )
    limits = Timeouts(read=HANGS_AFTER_S, export_total=HANGS_AFTER_S, first=0.6)
    with raw_server([start, *drops]) as server:
        client = CatalogClient(
            server.base_url, KEY, limiter=Unlimited(), ambient=FakeTime().ambient(), timeouts=limits
        )
        with client:
            with pytest.raises(RetryLater, match="came too slowly") as raised:
                client.export(tmp_path / "export")
            assert raised.value.attempts == 2
