"""Proxies and certificates of settings and environment; failed connections; no secret in a text."""

import os
import subprocess
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from pydantic import SecretStr

from catalog.sandbox.sandbox import Sandbox
from pipeline.health.notices import NotPosted, post_json
from pipeline.secrecy import shareable
from pipeline.service_session import open_service
from pipeline.settings import SettingsError, described, read_settings
from resources.errors import CatalogError, RetryLater
from resources.http.client import CatalogClient
from resources.http.network import DIRECT, Network
from resources.session import pull
from tests.hangs import HANGS_AFTER_S
from tests.pipeline.homes_in_days import NOW, address_of, settings_of
from tests.pipeline.network.certificates import Authority, new_authority
from tests.pipeline.network.relay import Relay, faulty_front, forward_proxy, running, tls_front
from tests.resources.fakes import FakeTime, head, raw_server
from tests.test_cli import ALMANAC, environment
from tests.unlimited import Unlimited

PASSWORD = "canary-of-the-proxy-41"
KEY = "canary-5f1c9e7b2a44"
HOST = "catalog.test"
VARIABLES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy", "ssl_cert_file", "ssl_cert_dir")


@pytest.fixture(autouse=True)
def nothing_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in [*(name for name, _, _ in described()), *os.environ]:
        if name.lower() in VARIABLES or name.startswith("ALMANAC_"):
            monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return new_authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def proxy() -> Iterator[Relay]:
    with running(forward_proxy(f"user:{PASSWORD}")) as relay:
        yield relay


@pytest.fixture
def secured(authority: Authority, almanac_sandbox: Sandbox) -> Iterator[Relay]:
    """The sandbox behind TLS, with a certificate of the private authority."""
    with running(tls_front(*authority.issue(HOST), almanac_sandbox.port)) as relay:
        yield relay


def address_of_proxy(port: int, password: str = PASSWORD) -> SecretStr:
    return SecretStr(f"http://user:{password}@127.0.0.1:{port}")


def failure_of(address: str, network: Network) -> CatalogError:
    client = CatalogClient(
        address, KEY, limiter=Unlimited(), ambient=FakeTime().ambient(), network=network
    )
    with client, pytest.raises(CatalogError) as raised:
        client.usage()
    assert PASSWORD not in str(raised.value)
    return raised.value


def used_by(network: Network, address: str) -> None:
    """Send one request, which is refused for its key."""
    assert "answered 403" in str(failure_of(address, network))


def test_settings_go_before_the_environment(
    proxy: Relay, almanac_sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = almanac_sandbox.base_url
    monkeypatch.setenv("HTTP_PROXY", address_of_proxy(proxy.port).get_secret_value())
    used_by(read_settings().network(), address)
    assert proxy.seen == [f"GET {address}/v2/usage"]
    monkeypatch.setenv("NO_PROXY", "example.com,127.0.0.1")
    used_by(read_settings().network(), address)
    monkeypatch.delenv("NO_PROXY")
    monkeypatch.setenv("ALMANAC_PROXY", "none")
    used_by(read_settings().network(), address)
    assert len(proxy.seen) == 1
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALMANAC_PROXY", address_of_proxy(proxy.port).get_secret_value())
    network = read_settings().network()
    used_by(network, address)
    assert len(proxy.seen) == 2
    for text in (repr(network), str(network), repr(read_settings())):
        assert PASSWORD not in text
    text = f"could not reach {address_of_proxy(proxy.port).get_secret_value()}"
    assert PASSWORD not in shareable(read_settings(), text)


@pytest.mark.parametrize("name", ["ALMANAC_PROXY", "ALL_PROXY", "https_proxy"])
@pytest.mark.parametrize("value", [f"ftp://u:{PASSWORD}@p", f"http://u:{PASSWORD}@p:x/"])
def test_a_wrong_proxy_is_named_without_its_password(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(SettingsError, match=name.upper()) as raised:
        read_settings().network()
    assert PASSWORD not in str(raised.value)


@pytest.mark.parametrize("content", [None, "no certificate"])
def test_certificates_that_cannot_be_read_are_named(
    content: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "own.pem"
    monkeypatch.setenv("ALMANAC_CA_FILE", str(file))
    if content is not None:
        file.write_text(content)
    with pytest.raises(SettingsError, match=r"ALMANAC_CA_FILE.*expected a PEM file"):
        read_settings().network()


def test_a_proxy_in_a_received_env_file_is_refused_for_a_key_from_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".env").write_text("ALMANAC_PROXY=http://p.test:1\n")
    (tmp_path / ".env").chmod(0o600)
    monkeypatch.setenv("ALMANAC_BASE_URL", "https://a.test")
    monkeypatch.setenv("ALMANAC_API_KEY", "a-key-of-mine-123")
    with pytest.raises(SettingsError, match=r"ALMANAC_PROXY is set in .*, and the key is not set"):
        read_settings().network()


def test_the_embedded_sandbox_takes_no_proxy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "ALL_PROXY", "ALMANAC_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.setenv("ALMANAC_HOME", str(tmp_path / "data"))
    with open_service(read_settings(), now=NOW) as service:
        assert service.usage is not None


def test_a_private_authority_is_trusted_by_setting_and_the_proxy_sees_no_key(
    authority: Authority, proxy: Relay, secured: Relay
) -> None:
    address, through = f"https://{HOST}:{secured.port}", address_of_proxy(proxy.port)
    error = failure_of(address, Network(through))
    assert isinstance(error, CatalogError)
    assert "certificate can't be verified" in str(error)
    assert "set ALMANAC_CA_FILE" in str(error)
    assert len(secured.seen) == 1, "it is tried once"
    used_by(Network(through, authority.file), address)
    assert set(proxy.seen) == {f"CONNECT {HOST}:{secured.port}"}
    assert KEY.encode() in secured.passed
    assert KEY.encode() not in proxy.passed


def test_https_at_a_port_without_tls_is_reported_once(almanac_sandbox: Sandbox) -> None:
    error = failure_of(f"https://127.0.0.1:{almanac_sandbox.port}", DIRECT)
    assert isinstance(error, CatalogError)
    assert "Check the address" in str(error)


def test_a_proxy_that_is_down_is_tried_again() -> None:
    error = failure_of("http://a.test", Network(address_of_proxy(9)))
    assert isinstance(error, RetryLater)
    assert error.attempts > 1


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_refusal_of_the_proxy_is_reported_once(proxy: Relay, scheme: str) -> None:
    error = failure_of(f"{scheme}://a.test", Network(address_of_proxy(proxy.port, "wrong")))
    assert isinstance(error, CatalogError)
    assert len(proxy.seen) == 1
    assert "Check user, password and address in ALMANAC_PROXY" in str(error)
    assert "Basic" not in str(error)


def test_alerts_take_the_proxy_and_show_no_address(
    proxy: Relay, secured: Relay, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    network = Network(address_of_proxy(proxy.port))
    with raw_server([head("Content-Length: 0")]) as receiver:
        address = SecretStr(receiver.base_url.replace("127.0.0.1", "hook.test") + "/hook-token-77")
        post_json(address, {}, "It", network=network)
        assert len(proxy.seen) == 1
        denied = Network(address_of_proxy(proxy.port, "wrong"))
        with pytest.raises(NotPosted, match="407") as raised:
            post_json(address, {}, "It", network=denied)
    assert "hook-token-77" not in str(raised.value)
    address = SecretStr(f"https://{HOST}:{secured.port}/hook-token-77")
    with pytest.raises(NotPosted, match="set ALMANAC_CA_FILE") as raised:
        post_json(address, {}, "It", network=network)
    assert "hook-token-77" not in str(raised.value) + caplog.text


def test_a_command_through_a_proxy_stores_no_password(
    tmp_path: Path, almanac_sandbox: Sandbox, authority: Authority, proxy: Relay, secured: Relay
) -> None:
    env = {
        **environment(tmp_path / "data"),
        "ALMANAC_BASE_URL": f"https://{HOST}:{secured.port}",
        "ALMANAC_API_KEY": almanac_sandbox.new_key("enterprise", rate_per_s=1e6, burst=1_000_000),
        "ALMANAC_MAX_CLOCK_SKEW_DAYS": "36500",
        "ALMANAC_CA_FILE": str(authority.file),
        "HTTPS_PROXY": address_of_proxy(proxy.port).get_secret_value(),
    }
    done = subprocess.run(
        [*ALMANAC, "doctor"],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
        timeout=HANGS_AFTER_S,
    )
    output = " ".join((done.stdout + done.stderr).split())
    assert done.returncode == 0, output
    assert f"proxy https http://127.0.0.1:{proxy.port}" in output
    assert "authority.pem" in output
    assert PASSWORD not in output
    assert set(proxy.seen) == {f"CONNECT {HOST}:{secured.port}"}
    stored = [path for path in (tmp_path / "data").rglob("*") if path.is_file()]
    assert not [path for path in stored if PASSWORD.encode() in path.read_bytes()]


FAILING = b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n"
CUT = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/csv\r\nContent-Length: 9999\r\n\r\nid,title,date\r\n1,"
)


@pytest.mark.parametrize("answer", [CUT, FAILING], ids=["cut", "refused"])
def test_a_failing_export_is_deferred(
    tmp_path: Path, almanac_sandbox: Sandbox, answer: bytes
) -> None:
    with running(faulty_front("/v2/events/export", answer, almanac_sandbox.port)) as front:
        key = almanac_sandbox.new_key("enterprise", rate_per_s=1e6, burst=1_000_000)
        settings = settings_of(
            tmp_path,
            **address_of(f"http://127.0.0.1:{front.port}", key),
            export_interval_s=0,
            max_clock_skew_days=36_500,
        )
        with open_service(settings) as service:
            pulled = pull("export", service)
    assert pulled.deferred is not None
    assert pulled.deferred.reason == "failing"
    wait = pulled.deferred.resume_at - almanac_sandbox.clock.now()
    assert timedelta(hours=2) < wait < timedelta(hours=4)
    assert len([line for line in front.seen if line.startswith("/v2/events/export")]) == 2


@pytest.mark.parametrize("wait", ["7200", "Thu, 01 Jan 2099 00:00:00 GMT"])
def test_a_long_retry_after_defers_the_feed(
    tmp_path: Path, almanac_sandbox: Sandbox, wait: str
) -> None:
    refusal = f"HTTP/1.1 429 Too Many\r\nRetry-After: {wait}\r\nContent-Length: 0\r\n\r\n".encode()
    with running(faulty_front("/v2/coins", refusal, almanac_sandbox.port)) as front:
        key = almanac_sandbox.new_key("enterprise", rate_per_s=1e6, burst=1_000_000)
        given = address_of(f"http://127.0.0.1:{front.port}", key)
        settings = settings_of(tmp_path, **given, max_clock_skew_days=36_500)
        with open_service(settings) as service:
            pulled = pull("coins", service)
    assert pulled.deferred is not None
    assert pulled.deferred.reason == "asked_to_wait"
    assert len([line for line in front.seen if line.startswith("/v2/coins")]) == 1
