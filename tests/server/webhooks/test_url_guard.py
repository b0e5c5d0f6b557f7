"""The guard of webhook targets refuses addresses, and connects to the address that it checked."""

import asyncio
import ssl
import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from ipaddress import ip_address
from pathlib import Path

import pytest

from catalog.server.webhooks.delivery import (
    RESPONSE_BYTES_MAX,
    Poster,
    Resolver,
    TargetRefused,
    check_target,
    check_url,
    is_local,
    is_public,
    parse_url,
    resolve_host,
)
from tests.hangs import HANGS_AFTER_S

pytestmark = pytest.mark.anyio

OK_ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Names:
    """A resolver with fixed answers that records the look-ups."""

    def __init__(self, *answers: Sequence[str]) -> None:
        self._answers = list(answers)
        self.requested: list[tuple[str, int]] = []

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        self.requested.append((host, port))
        return self._answers[min(len(self.requested), len(self._answers)) - 1]


class Listener:
    """A loopback server that answers with fixed bytes and keeps the requests."""

    def __init__(self, answer: bytes) -> None:
        self.answer = answer
        self.requests: list[bytes] = []
        self.port = 0

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            self.requests.append(await reader.readuntil(b"\r\n\r\n"))
            writer.write(self.answer)
            await writer.drain()
        finally:
            writer.close()


@asynccontextmanager
async def listening(
    answer: bytes = OK_ANSWER, *, tls: ssl.SSLContext | None = None
) -> AsyncIterator[Listener]:
    listener = Listener(answer)
    server = await asyncio.start_server(listener.handle, "127.0.0.1", 0, ssl=tls)
    listener.port = server.sockets[0].getsockname()[1]
    try:
        yield listener
    finally:
        server.close()


def poster(resolve: Resolver = resolve_host, **options: object) -> Poster:
    return Poster(resolve=resolve, **{"timeout_s": HANGS_AFTER_S, **options})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text",
    [
        *("127.0.0.1", "127.255.255.254", "10.0.0.1", "172.16.0.1", "192.168.1.1", "0.0.0.0"),
        *("0.1.2.3", "169.254.169.254", "100.64.0.1", "192.0.0.1", "192.0.2.1", "198.18.0.1"),
        *("203.0.113.9", "224.0.0.1", "239.255.255.250", "240.0.0.1", "255.255.255.255"),
        *("::", "::1", "fe80::1", "fec0::1", "fc00::1", "fd00:ec2::254", "ff02::1", "ff0e::1"),
        *("2001:db8::1", "3fff::1", "100::1", "64:ff9b:1::1", "5f00::1", "4000::1"),
        *("::ffff:127.0.0.1", "::ffff:10.0.0.1", "::127.0.0.1", "::ffff:0:127.0.0.1"),
        *("64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "2002:7f00:1::1", "2002:a00:1::1"),
        "2001:0:7f00:1::1",
        "2001:0:808:808:0:0:80ff:fffe",
        *("168.63.129.16", "::ffff:168.63.129.16"),  # Azure's own
    ],
)
def test_addresses_that_are_not_public_are_known(text: str) -> None:
    assert not is_public(ip_address(text))


@pytest.mark.parametrize(
    "text",
    ["8.8.8.8", "100.63.255.255", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"],
)
def test_public_addresses_are_known(text: str) -> None:
    assert is_public(ip_address(text))


@pytest.mark.parametrize(
    ("text", "local"),
    [
        *((text, True) for text in ("127.0.0.1", "10.1.2.3", "::1", "fd12::1", "::ffff:10.0.0.1")),
        *((text, False) for text in ("169.254.169.254", "fe80::1", "0.0.0.0", "::", "224.0.0.1")),
        *((text, False) for text in ("100.100.100.200", "168.63.129.16", "::ffff:100.100.100.200")),
        *((text, False) for text in ("fd00:ec2::254", "fd00:ec2::1", "fd20:ce::254")),
        *((text, False) for text in ("fd00:42::42", "fe80::a9fe:a9fe")),
    ],
)
def test_private_targets_do_not_include_metadata_services(text: str, local: bool) -> None:
    assert is_local(ip_address(text)) is local


@pytest.mark.parametrize(
    "url",
    [
        *("ftp://example.com/", "file:///etc/passwd", "//example.com/", "example.com", ""),
        *("http:8.8.8.8", "https:a.example", "http:/a.example/", "http:", "https:?x"),
        *("http:///path", "http://u@example.com/", "http://u:p@example.com/", "http://@a.example/"),
        *("http://a.example\\@127.0.0.1/", "http://a.example:0/", "http://a.example:65536/"),
        *("http://a.example:x/", "http://a.example:-1/", "http://a.ex%61mple/", "http://a b/"),
        *("http://a.example/\r\nX: 1", "http://ex\u0430mple.com/", "http://a..example/"),
        *("http://2130706433/", "http://0x7f000001/", "http://0x7f.1/", "http://127.1/"),
        *("http://0177.0.0.1/", "http://127.0.0.1.2130706433/", "http://127.1./"),
        *("http://[::1/", "http://[::1%25lo]/", f"http://{'a' * 64}.example/"),
        "https://a.example/" + "a" * 2_048,
    ],
)
def test_urls_of_a_bad_form_are_refused_without_a_look_up(url: str) -> None:
    with pytest.raises(TargetRefused):
        check_url(url, allow_private=False)


def test_a_private_address_is_refused_when_the_endpoint_is_added_unless_allowed() -> None:
    with pytest.raises(TargetRefused, match="--allow-private"):
        check_url("http://[::ffff:127.0.0.1]:8080/", allow_private=False)
    check_url("http://[::ffff:127.0.0.1]:8080/", allow_private=True)
    with pytest.raises(TargetRefused, match="no endpoint may use it"):
        check_url("http://169.254.169.254/latest/meta-data", allow_private=True)


def test_a_plain_url_is_unchanged() -> None:
    assert str(parse_url("https://hooks.example:8443/a?b=c")) == "https://hooks.example:8443/a?b=c"


@pytest.mark.parametrize(
    "addresses", [["8.8.8.8", "127.0.0.1"], ["8.8.8.8", "64:ff9b::7f00:1"], ["169.254.169.254"]]
)
async def test_a_name_with_any_address_that_is_not_public_is_refused(addresses: list[str]) -> None:
    with pytest.raises(TargetRefused):
        await check_target("https://mixed.example/", allow_private=False, resolve=Names(addresses))


async def test_a_name_is_looked_up_once_with_its_port() -> None:
    names = Names(["8.8.8.8", "2606:4700::1111", "8.8.8.8"])
    target = await check_target("https://a.example/x#part", allow_private=False, resolve=names)
    assert names.requested == [("a.example", 443)]
    assert [str(target.url_at(address)) for address in target.addresses] == [
        "https://8.8.8.8/x",
        "https://[2606:4700::1111]/x",
    ]
    assert (target.host_header, target.tls_name) == ("a.example", "a.example")


async def test_a_name_without_addresses_is_an_error_of_the_network() -> None:
    with pytest.raises(OSError, match="no address"):
        await check_target("https://a.example/", allow_private=False, resolve=Names([]))


async def test_the_connection_goes_to_the_checked_address_when_the_name_is_rebound() -> None:
    names = Names(["127.0.0.1"], ["127.0.0.2"])
    async with listening() as listener:
        url = f"http://rebound.example:{listener.port}/hook"
        outcome = await poster(names).post(url, allow_private=True, body=b"{}", headers={})
    assert outcome.delivered
    assert names.requested == [("rebound.example", listener.port)]
    assert b"POST /hook HTTP/1.1" in listener.requests[0]
    assert f"Host: rebound.example:{listener.port}".encode() in listener.requests[0]


async def test_a_name_rebound_to_this_host_is_refused_and_not_connected_to() -> None:
    names = Names(["127.0.0.1"])
    async with listening() as listener:
        url = f"http://rebound.example:{listener.port}/"
        outcome = await poster(names).post(url, allow_private=False, body=b"{}", headers={})
    assert outcome.status is None
    assert "refused" in str(outcome.error)
    assert listener.requests == []


async def test_the_next_address_is_tried_when_one_accepts_no_connection() -> None:
    async with listening() as listener:
        url = f"http://two.example:{listener.port}/"
        names = Names(["127.0.0.9", "127.0.0.1"])
        outcome = await poster(names).post(url, allow_private=True, body=b"{}", headers={})
    assert outcome.delivered


async def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    async with listening() as listener:
        url = f"http://127.0.0.1:{listener.port}/"
        assert (await poster().post(url, allow_private=True, body=b"{}", headers={})).delivered


async def test_redirects_are_not_followed() -> None:
    async with listening() as inner:
        location = f"http://127.0.0.1:{inner.port}/".encode()
        moved = b"HTTP/1.1 307 Moved\r\nLocation: " + location + b"\r\nContent-Length: 0\r\n\r\n"
        async with listening(moved) as outer:
            url = f"http://127.0.0.1:{outer.port}/"
            outcome = await poster().post(url, allow_private=True, body=b"{}", headers={})
    assert (outcome.status, outcome.delivered) == (307, False)
    assert inner.requests == []


async def test_an_endless_answer_is_not_read_to_its_end() -> None:
    endless = b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n" + b"x" * RESPONSE_BYTES_MAX
    async with listening(endless) as listener:
        url = f"http://127.0.0.1:{listener.port}/"
        assert (await poster().post(url, allow_private=True, body=b"{}", headers={})).delivered


async def test_no_answer_in_time_is_a_failure_slow_name_servers_included() -> None:
    async def never(host: str, port: int) -> Sequence[str]:
        await asyncio.Event().wait()
        raise AssertionError

    slow = poster(never, timeout_s=0.1)
    outcome = await slow.post("http://a.example/", allow_private=True, body=b"{}", headers={})
    assert (outcome.status, outcome.error) == (None, "no answer within 0.1 s")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A self-signed certificate for hooks.example, and its key."""
    directory = tmp_path_factory.mktemp("tls")
    certificate, key = directory / "certificate.pem", directory / "key.pem"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2"
    names = ["-subj", "/CN=hooks.example", "-addext", "subjectAltName=DNS:hooks.example"]
    subprocess.run(
        [*command.split(), *names, "-keyout", key, "-out", certificate],
        check=True,
        capture_output=True,
    )
    return certificate, key


@pytest.mark.parametrize(("name", "accepted"), [("hooks.example", True), ("other.example", False)])
async def test_the_certificate_is_checked_for_the_name_though_the_connection_uses_the_address(
    certificate: tuple[Path, Path], name: str, accepted: bool
) -> None:
    requested: list[str | None] = []
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(*certificate)
    server.sni_callback = lambda _, sni, __: requested.append(sni)
    trusting = ssl.create_default_context(cafile=str(certificate[0]))
    async with listening(tls=server) as listener:
        sender = poster(Names(["127.0.0.1"]), tls=trusting)
        url = f"https://{name}:{listener.port}/"
        outcome = await sender.post(url, allow_private=True, body=b"{}", headers={})
    assert requested == [name]
    assert outcome.delivered is accepted
    if not accepted:
        assert "certificate" in str(outcome.error).lower()
