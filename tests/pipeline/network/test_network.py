"""Proxies and certificates of settings and environment; failed connections; no secret in a text."""

import base64
import os
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from pydantic import SecretStr

from catalog.sandbox.sandbox import Sandbox
from pipeline.health.notices import NotPosted, post_json
from pipeline.secrecy import remove_secrets
from pipeline.settings import SettingsError, describe_settings, read_settings
from resources.errors import CatalogError
from resources.http.client import CatalogClient
from resources.http.network import Network
from tests.resources.fakes import FakeTime, head, raw_server
from tests.unlimited import Unlimited

PASSWORD = "canary-of-the-proxy-41"
KEY = "canary-5f1c9e7b2a44"
HOST = "catalog.test"
VARIABLES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy", "ssl_cert_file", "ssl_cert_dir")


@dataclass
class Relay:
    """A running relay. `seen` has a line for each connection or request, `passed` all bytes."""

    serve: "Callable[[Relay, socket.socket], None]"
    port: int = 0
    seen: list[str] = field(default_factory=list)
    passed: bytearray = field(default_factory=bytearray)

    def accept(self, listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                threading.Thread(target=self._serve_one, args=(client,), daemon=True).start()

    def _serve_one(self, client: socket.socket) -> None:
        with client, suppress(OSError, ValueError):
            self.serve(self, client)

    def join(self, client: socket.socket, service: socket.socket) -> None:
        """Pass on what either side sends, until one of them ends."""

        def pass_on(source: socket.socket, target: socket.socket) -> None:
            with suppress(OSError):
                while chunk := source.recv(65_536):
                    self.passed.extend(chunk)
                    target.sendall(chunk)
            with suppress(OSError):
                target.shutdown(socket.SHUT_WR)

        back = threading.Thread(target=pass_on, args=(service, client), daemon=True)
        back.start()
        pass_on(client, service)
        back.join()


@contextmanager
def running(serve: Callable[[Relay, socket.socket], None]) -> Iterator[Relay]:
    relay = Relay(serve)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        relay.port = listener.getsockname()[1]
        threading.Thread(target=relay.accept, args=(listener,), daemon=True).start()
        yield relay
        listener.shutdown(socket.SHUT_RDWR)


def read_head(connection: socket.socket) -> bytes:
    head = b""
    while b"\r\n\r\n" not in head:
        received = connection.recv(65_536)
        if not received:
            raise OSError("no request")
        head += received
    return head


def connect(host: str, port: int) -> socket.socket:
    """Connect to a host; every name under `.test` is loopback."""
    return socket.create_connection(("127.0.0.1" if host.endswith(".test") else host, port))


def forward_proxy(login: str) -> Callable[[Relay, socket.socket], None]:
    """Return a proxy with a login. Its refusal repeats the login, as that of some proxies does."""
    expected = base64.b64encode(login.encode())

    def serve(relay: Relay, client: socket.socket) -> None:
        head = read_head(client)
        method, target, _ = head.split(b"\r\n")[0].decode().split(" ")
        relay.seen.append(f"{method} {target}")
        if expected not in head:
            given = next((x for x in head.split(b"\r\n") if x.lower().startswith(b"proxy-")), b"")
            start = b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: %d\r\n\r\n"
            client.sendall(start % len(given) + given)
            return
        if method == "CONNECT":
            host, _, port = target.rpartition(":")
            with connect(host, int(port)) as service:
                client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
                relay.join(client, service)
            return
        parts = urlsplit(target)
        with connect(parts.hostname or "", parts.port or 80) as service:
            path = f"{parts.path}?{parts.query}" if parts.query else parts.path
            head = head.replace(target.encode(), path.encode(), 1)
            # One request for each connection, so that each is counted.
            service.sendall(head.replace(b"Connection: keep-alive", b"Connection: close"))
            relay.join(client, service)

    return serve


def tls_front(certificate: Path, key: Path, port: int) -> Callable[[Relay, socket.socket], None]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)

    def serve(relay: Relay, client: socket.socket) -> None:
        relay.seen.append("connection")
        with (
            context.wrap_socket(client, server_side=True) as secured,
            connect("127.0.0.1", port) as service,
        ):
            relay.join(secured, service)

    return serve


_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")


@dataclass(frozen=True)
class Authority:
    """A private authority: `file` is its certificate (PEM)."""

    folder: Path

    @property
    def file(self) -> Path:
        return self.folder / "authority.pem"

    def issue(self, name: str) -> tuple[Path, Path]:
        """Return certificate and key for a host name."""
        certificate, key = self.folder / f"{name}.pem", self.folder / f"{name}.key"
        authority = ["-CA", self.file, "-CAkey", self.folder / "authority.key"]
        extended = ["-addext", f"subjectAltName=DNS:{name}"]
        extended += ["-addext", "basicConstraints=critical,CA:FALSE"]
        _new_certificate(f"/CN={name}", certificate, key, *authority, *extended)
        return certificate, key


def new_authority(folder: Path) -> Authority:
    """Return an authority in a folder; skips the test without openssl."""
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl, for a certificate")
    authority, key = Authority(folder), folder / "authority.key"
    usage = "keyUsage=critical,keyCertSign,cRLSign"
    _new_certificate("/CN=A private authority", authority.file, key, "-addext", usage)
    return authority


def _new_certificate(subject: str, certificate: Path, key: Path, *more: object) -> None:
    words = ["openssl", "req", "-x509", *_KEY, "-days", 30, "-subj", subject]
    words += ["-keyout", key, "-out", certificate, *more]
    subprocess.run([str(word) for word in words], check=True, capture_output=True)


@pytest.fixture(autouse=True)
def nothing_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in [*(name for name, _, _ in describe_settings()), *os.environ]:
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
        address, KEY, limiter=Unlimited(), timing=FakeTime().timing(), network=network
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
    assert PASSWORD not in remove_secrets(read_settings(), text)


@pytest.mark.parametrize("name", ["ALMANAC_PROXY", "https_proxy"])
@pytest.mark.parametrize(
    "value",
    [f"ftp://u:{PASSWORD}@p", f"http://u:{PASSWORD}@p:x/", f"http://u:{PASSWORD}/x@p"],
)
def test_a_wrong_proxy_is_named_without_its_password(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(SettingsError, match=name.upper()) as raised:
        read_settings().network()
    assert PASSWORD not in str(raised.value)


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
