"""The guard of webhook targets refuses addresses, and connects to the address that it checked."""

import asyncio
import ssl
import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from ipaddress import ip_address
from pathlib import Path

import pytest

from catalog import ServerError
from catalog.server.webhooks.delivery import (
    RESPONSE_BYTES_MAX,
    AttemptOutcome,
    Poster,
    check_target,
    check_url,
    is_local,
    is_public,
)
from tests.hangs import HANGS_AFTER_S

pytestmark = pytest.mark.anyio

OK_ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"
ENDLESS = b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n" + b"x" * RESPONSE_BYTES_MAX


class Names:
    """A resolver with fixed answers, one for each look-up; it records the look-ups."""

    def __init__(self, *answers: Sequence[str]) -> None:
        self._answers = list(answers)
        self.requested: list[tuple[str, int]] = []

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        self.requested.append((host, port))
        return self._answers[len(self.requested) - 1]


@asynccontextmanager
async def listening(
    answer: bytes = OK_ANSWER, *, tls: ssl.SSLContext | None = None
) -> AsyncIterator[tuple[int, list[bytes]]]:
    """Answer with fixed bytes on loopback; return the port, and the requests as they come."""
    requests: list[bytes] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            requests.append(await reader.readuntil(b"\r\n\r\n"))
            writer.write(answer)
            await writer.drain()
        finally:
            writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0, ssl=tls)
    try:
        yield server.sockets[0].getsockname()[1], requests
    finally:
        server.close()


async def post(url: str, *, allow_private: bool = True, **options: object) -> AttemptOutcome:
    poster = Poster(**{"timeout_s": HANGS_AFTER_S, **options})  # type: ignore[arg-type]
    return await poster.post(url, allow_private=allow_private, body=b"{}", headers={})


PRIVATE = (
    *("127.0.0.1", "127.255.255.254", "10.0.0.1", "172.16.0.1", "192.168.1.1", "0.0.0.0"),
    *("0.1.2.3", "169.254.169.254", "100.64.0.1", "192.0.0.1", "192.0.2.1", "198.18.0.1"),
    *("203.0.113.9", "224.0.0.1", "239.255.255.250", "240.0.0.1", "255.255.255.255"),
    *("::", "::1", "fe80::1", "fec0::1", "fc00::1", "fd00:ec2::254", "ff02::1", "ff0e::1"),
    *("2001:db8::1", "3fff::1", "100::1", "64:ff9b:1::1", "5f00::1", "4000::1"),
    *("::ffff:127.0.0.1", "::ffff:10.0.0.1", "::127.0.0.1", "::ffff:0:127.0.0.1"),
    *("64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "2002:7f00:1::1", "2002:a00:1::1"),
    *("2001:0:7f00:1::1", "2001:0:808:808:0:0:80ff:fffe"),
    *("168.63.129.16", "::ffff:168.63.129.16"),
)
PUBLIC = ("8.8.8.8", "100.63.255.255", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808")
LOCAL = ("127.0.0.1", "10.1.2.3", "::1", "fd12::1", "::ffff:10.0.0.1")
NEVER = (
    *("169.254.169.254", "fe80::1", "0.0.0.0", "::", "224.0.0.1", "fe80::a9fe:a9fe"),
    *("100.100.100.200", "168.63.129.16", "::ffff:100.100.100.200", "fd00:42::42"),
    *("fd00:ec2::254", "fd00:ec2::1", "fd20:ce::254"),
)


def test_addresses_are_public_local_or_never_allowed() -> None:
    assert [text for text in PRIVATE if is_public(ip_address(text))] == []
    assert [text for text in PUBLIC if not is_public(ip_address(text))] == []
    assert [text for text in LOCAL if not is_local(ip_address(text))] == []
    assert [text for text in NEVER if is_local(ip_address(text))] == []


BAD_FORMS = (
    *("ftp://example.com/", "file:///etc/passwd", "//example.com/", "example.com", ""),
    *("http:8.8.8.8", "https:a.example", "http:/a.example/", "http:", "https:?x"),
    *("http:///path", "http://u@example.com/", "http://u:p@example.com/", "http://@a.example/"),
    *("http://a.example\\@127.0.0.1/", "http://a.example:0/", "http://a.example:65536/"),
    *("http://a.example:x/", "http://a.example:-1/", "http://a.ex%61mple/", "http://a b/"),
    *("http://a.example/\r\nX: 1", "http://ex\u0430mple.com/", "http://a..example/"),
    *("http://2130706433/", "http://0x7f000001/", "http://0x7f.1/", "http://127.1/"),
    *("http://0177.0.0.1/", "http://127.0.0.1.2130706433/", "http://127.1./"),
    *("http://[::1/", "http://[::1%25lo]/", f"http://{'a' * 64}.example/"),
    *("https://a.example/" + "a" * 2_048, "http://a?@b/", "http://[::ffff:127.0.0.1]:80/"),
)


def test_urls_of_a_bad_form_are_refused_without_a_look_up() -> None:
    for url in BAD_FORMS:
        try:
            check_url(url, allow_private=False)
        except ServerError:
            continue
        pytest.fail(url)


def test_a_private_address_needs_permission_and_a_metadata_service_is_never_allowed() -> None:
    with pytest.raises(ServerError, match="--allow-private"):
        check_url("http://127.0.0.1:8080/", allow_private=False)
    check_url("http://[::ffff:127.0.0.1]:8080/", allow_private=True)
    with pytest.raises(ServerError, match="no endpoint may use it"):
        check_url("http://169.254.169.254/latest/meta-data", allow_private=True)
    plain = "https://hooks.example:8443/a?b=c"
    assert str(check_url(plain, allow_private=False)) == plain


async def test_a_name_is_looked_up_once_and_all_of_its_addresses_are_checked() -> None:
    names = Names(["8.8.8.8", "2606:4700::1111", "8.8.8.8"])
    _, addresses = await check_target("https://a.example/x", allow_private=False, resolve=names)
    assert names.requested == [("a.example", 443)]
    assert [str(address) for address in addresses] == ["8.8.8.8", "2606:4700::1111"]
    for found in (["8.8.8.8", "127.0.0.1"], ["8.8.8.8", "64:ff9b::7f00:1"], ["169.254.169.254"]):
        with pytest.raises(ServerError):
            await check_target("https://a.example/", allow_private=False, resolve=Names(found))
    with pytest.raises(OSError, match="no address"):
        await check_target("https://a.example/", allow_private=False, resolve=Names([]))


async def test_the_connection_goes_to_an_address_that_was_checked() -> None:
    async with listening() as (port, requests):
        url = f"http://rebound.example:{port}/hook"
        refused = await post(url, allow_private=False, resolve=Names(["127.0.0.1"]))
        assert (refused.status, requests) == (None, [])
        assert "not a public address" in str(refused.error)
        names = Names(["127.0.0.9", "127.0.0.1"], ["127.0.0.2"])
        assert (await post(url, resolve=names)).delivered, "the first accepts no connection"
        assert names.requested == [("rebound.example", port)]
    (request,) = requests
    assert b"POST /hook HTTP/1.1" in request
    assert f"Host: rebound.example:{port}".encode() in request


async def test_proxies_and_redirects_are_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    async with listening() as (inner, requests):
        location = f"http://127.0.0.1:{inner}/".encode()
        moved = b"HTTP/1.1 307 Moved\r\nLocation: " + location + b"\r\nContent-Length: 0\r\n\r\n"
        async with listening(moved) as (outer, _):
            outcome = await post(f"http://127.0.0.1:{outer}/")
    assert (outcome.status, outcome.delivered, requests) == (307, False, [])


async def test_an_endless_answer_is_not_read_and_no_answer_in_time_is_a_failure() -> None:
    async def never(host: str, port: int) -> Sequence[str]:
        await asyncio.Event().wait()
        raise AssertionError

    async with listening(ENDLESS) as (port, _):
        assert (await post(f"http://127.0.0.1:{port}/")).delivered
    outcome = await post("http://a.example/", timeout_s=0.1, resolve=never)
    assert outcome == AttemptOutcome(None, "no answer within 0.1 s")


def make_certificate(folder: Path) -> tuple[Path, Path]:
    """Return a self-signed certificate for hooks.example, and its key."""
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2"
    names = ["-subj", "/CN=hooks.example", "-addext", "subjectAltName=DNS:hooks.example"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*command.split(), *names, *files], check=True, capture_output=True)
    return certificate, key


async def test_the_certificate_is_checked_for_the_name(tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path)
    requested: list[str | None] = []
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificate, key)
    server.sni_callback = lambda _, sni, __: requested.append(sni)
    trusting = ssl.create_default_context(cafile=str(certificate))
    async with listening(tls=server) as (port, _):
        right, wrong = [
            await post(f"https://{name}:{port}/", tls=trusting, resolve=Names(["127.0.0.1"]))
            for name in ("hooks.example", "other.example")
        ]
    assert (requested, right.delivered) == (["hooks.example", "other.example"], True)
    assert not wrong.delivered and "certificate" in str(wrong.error).lower()
