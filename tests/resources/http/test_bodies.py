"""Bodies over a loopback socket: cut, packed, endless, slow, or not data."""

import gzip
import json
import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resources.errors import (
    ContractBroken,
    Defer,
    NotData,
    RequestRejected,
    RetryLater,
    TruncatedBody,
)
from resources.http.client import CatalogClient
from resources.http.paginator import RawPage
from resources.http.response_body import Bounds
from resources.http.retry import Timeouts
from resources.waits import Ambient, RetryPolicy
from tests.resources.fakes import (
    KEY,
    Chunk,
    FakeTime,
    RawServer,
    chunked,
    head,
    paginated,
    raw_server,
)
from tests.unlimited import Unlimited
from warehouse.landing.batches import Scope

ROWS = [{"id": f"event-{n}", "title": "x" * 50} for n in range(40)]
LIST = json.dumps({"data": ROWS, "meta": {"total": 40, "limit": 100, "cursor": None}}).encode()
PACKED = gzip.compress(LIST)
GZIP = "Content-Encoding: gzip"
CHUNKED = "Transfer-Encoding: chunked"


def length(body: bytes) -> str:
    return f"Content-Length: {len(body)}"


def client_of(server: RawServer, attempts: int = 2, **options: Any) -> CatalogClient:
    return CatalogClient(
        server.base_url,
        KEY,
        limiter=Unlimited(),
        ambient=options.pop("ambient", FakeTime().ambient()),
        policy=RetryPolicy(attempts=attempts),
        **options,
    )


def pages_of(server: RawServer, **options: Any) -> list[RawPage]:
    with client_of(server, **options) as client:
        return list(paginated(client))


WHOLE: dict[str, list[Chunk]] = {
    "with its length": [head(length(LIST)), LIST],
    "chunked": [head(CHUNKED), chunked(LIST)],
    "without a length": [head(), LIST],
    "gzip": [head(GZIP, length(PACKED)), PACKED],
    "gzip chunked": [head(GZIP, CHUNKED), chunked(PACKED)],
    "gzip in two members": [head(GZIP), gzip.compress(LIST[:99]) + gzip.compress(LIST[99:])],
    "gzip that no header names": [head(), PACKED[:1], 0.02, PACKED[1:]],
    "a byte at a time": [head(length(LIST)), *(LIST[n : n + 1] for n in range(len(LIST)))],
}
BROKEN: dict[str, list[Chunk]] = {
    "chunks without an end": [head(CHUNKED), chunked(LIST, end=False)],
    "gzip with another's trailer": [head(GZIP), PACKED[:-8] + gzip.compress(b"other")[-8:]],
    "gzip that is none": [head(GZIP), LIST],
    "no answer": [b""],
    "half a header": [b"HTTP/1.1 200 OK\r\nContent-Le"],
    "no HTTP": [b"220 mail.test ESMTP\r\n\r\n"],
}
CUT = {
    "with its length": (head(length(LIST)), LIST),
    "without a length": (head(), LIST),
    "gzip": (head(GZIP), PACKED),
    "gzip with its length": (head(GZIP, length(PACKED)), PACKED),
}


@pytest.mark.parametrize("name", WHOLE)
def test_a_complete_body_is_read_in_every_encoding(name: str) -> None:
    with raw_server(WHOLE[name]) as server:
        (page,) = pages_of(server)
    assert page.body == LIST
    assert page.rows == 40


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_body_is_never_accepted_as_complete(name: str) -> None:
    with raw_server(BROKEN[name]) as server:
        with pytest.raises((TruncatedBody, RetryLater), match="after 2 attempts"):
            pages_of(server)
        assert len(server.heads) == 2


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(sorted(CUT)), st.floats(0, 1, exclude_max=True))
def test_a_body_cut_at_any_byte_is_never_accepted_and_is_fetched_again(
    name: str, share: float
) -> None:
    start, body = CUT[name]
    cut: list[Chunk] = [start, body[: int(share * len(body))]]
    with raw_server(cut, WHOLE["with its length"]) as server:
        try:
            (page,) = pages_of(server)
        except NotData as error:  # Nothing at all, and no length that says there was more.
            assert (error.kind, cut[1]) == ("empty", b"")
        else:
            assert (page.body, page.attempts) == (LIST, 2)


def test_identity_is_requested_and_the_key_is_sent_once() -> None:
    with raw_server(WHOLE["chunked"]) as server:
        pages_of(server)
    lines = server.heads[0].lower().splitlines()
    assert lines.count("accept-encoding: identity") == 1
    assert lines.count(f"x-api-key: {KEY}") == 1
    assert not [line for line in lines if line.startswith("authorization")]


def test_another_encoding_is_named() -> None:
    with (
        raw_server([head("Content-Encoding: br"), LIST]) as server,
        pytest.raises(ContractBroken, match=r"'br'.*identity"),
    ):
        pages_of(server)


def test_a_body_over_the_limit_is_stopped_at_once() -> None:
    endless: list[Chunk] = [head(), *[b" " * 65_536] * 4_000]
    with (
        raw_server(endless) as server,
        pytest.raises(ContractBroken, match="larger than 1000000 bytes"),
    ):
        pages_of(server, bounds=Bounds(page_bytes=1_000_000))


def test_a_body_that_decompresses_to_too_much_is_stopped() -> None:
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    bomb = b"".join(packer.compress(b" " * 1_000_000) for _ in range(200)) + packer.flush()
    with (
        raw_server([head(GZIP, length(bomb)), bomb]) as server,
        pytest.raises(ContractBroken, match="200 times"),
    ):
        pages_of(server)


def test_a_body_that_drips_has_a_time_limit() -> None:
    drops: list[Chunk] = [head(length(LIST))]
    for n in range(200):
        drops += [LIST[n : n + 1], 0.02]
    with raw_server(drops) as server, pytest.raises(RetryLater, match="too slowly"):
        pages_of(server, attempts=1, timeouts=Timeouts(total=0.15), ambient=Ambient())


def test_a_redirect_is_not_followed_with_the_key() -> None:
    with raw_server(WHOLE["chunked"]) as elsewhere:
        moved = head(f"Location: {elsewhere.base_url}/v2/events", status="301 Moved")
        with (
            raw_server([moved]) as server,
            pytest.raises(RequestRejected, match="not sent to another address"),
        ):
            pages_of(server)
        assert len(server.heads) == 1
        assert elsewhere.heads == []


PAGE = b"<html><body>Too many requests</body></html>"


@pytest.mark.parametrize(
    ("status", "wait", "error"),
    [
        ("200 OK", "", NotData),
        ("429 Busy", "Retry-After: 2", RetryLater),
        ("429 Busy", "Retry-After: Fri, 31 Dec 2100 23:59:59 GMT", Defer),
        ("429 Busy", "Retry-After: 7200", Defer),
        ("503 Down", "", RetryLater),
    ],
)
def test_a_page_of_a_gateway_ends_by_its_status(
    status: str, wait: str, error: type[Exception]
) -> None:
    lines = (length(PAGE), "Content-Type: text/html", *([wait] if wait else []))
    with raw_server([head(*lines, status=status), PAGE]) as server:
        with pytest.raises(error) as raised:
            pages_of(server)
        assert type(raised.value) is error
        assert len(server.heads) == (1 if error in (NotData, Defer) else 2)


CSV = b"id,title\r\n" + b"".join(b'%d,"T, %d"\r\n' % (n, n) for n in range(500))
PACKED_CSV = gzip.compress(CSV)


@pytest.mark.parametrize(
    "answer",
    [
        [head(length(CSV)), CSV],
        [head(GZIP, length(PACKED_CSV)), PACKED_CSV],
        [head("Content-Type: application/gzip"), PACKED_CSV],
    ],
    ids=["plain", "gzip", "a gzip file"],
)
def test_an_export_is_decompressed_into_the_file(answer: list[Chunk], tmp_path: Path) -> None:
    file = tmp_path / "export.csv"
    with raw_server(answer) as server, client_of(server) as client:
        pull = client.export(file, Scope())
    assert file.read_bytes() == CSV
    assert (pull.rows, pull.attempts) == (500, 1)


@pytest.mark.parametrize(
    "broken",
    [
        [head(length(CSV)), CSV[:3000]],
        [head(CHUNKED), chunked(CSV, end=False)],
        [head(GZIP), PACKED_CSV[:-8]],
        [head(GZIP), PACKED_CSV[:500]],
    ],
    ids=["short", "no last chunk", "no trailer", "half a gzip"],
)
def test_a_broken_export_is_requested_again(broken: list[Chunk], tmp_path: Path) -> None:
    file = tmp_path / "export.csv"
    with raw_server(broken, [head(), CSV]) as server, client_of(server) as client:
        pull = client.export(file, Scope())
    assert file.read_bytes() == CSV
    assert (pull.rows, pull.attempts) == (500, 2)


def test_an_export_that_decompresses_to_too_much_is_stopped(tmp_path: Path) -> None:
    bomb = gzip.compress(b"id,title\n" + b"1,a\n" * 5_000_000)
    with (
        raw_server([head(GZIP), bomb]) as server,
        client_of(server) as client,
        pytest.raises(ContractBroken),
    ):
        client.export(tmp_path / "export.csv", Scope())
    assert (tmp_path / "export.csv").stat().st_size < 5_000_000
