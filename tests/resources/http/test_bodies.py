"""Bodies: cut, packed, endless, slow, or not data; and the export in a file."""

import gzip
import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from resources.errors import ContractBroken, NotData, RequestRejected, RetryLater, TruncatedBody
from resources.http.client import CatalogClient, ExportPull
from resources.http.paginator import RawPage
from resources.http.retry import RetryPolicy, Timeouts, Timing
from tests.resources.fakes import (
    KEY,
    Chunk,
    FakeTime,
    RawServer,
    answering,
    chunked,
    head,
    mocked,
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
        timing=options.pop("timing", FakeTime().timing()),
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


def test_a_body_that_drips_has_a_time_limit() -> None:
    drops: list[Chunk] = [head(length(LIST))]
    for n in range(200):
        drops += [LIST[n : n + 1], 0.02]
    with raw_server(drops) as server, pytest.raises(RetryLater, match="too slowly"):
        pages_of(server, attempts=1, timeouts=Timeouts(total=0.15), timing=Timing())


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


CSV = b"id,title\r\n" + b"".join(b'%d,"T, %d"\r\n' % (n, n) for n in range(500))
PACKED_CSV = gzip.compress(CSV)


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
        pytest.raises(ContractBroken, match="200 times"),
    ):
        client.export(tmp_path / "export.csv", Scope())
    assert (tmp_path / "export.csv").stat().st_size < 5_000_000


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "export.csv"


def pull_of(text: bytes | str, file: Path, *, may_be_empty: bool = False) -> ExportPull:
    content = text if isinstance(text, bytes) else text.encode()
    answer = httpx.Response(200, content=content, headers={"Content-Type": "text/csv"})
    return mocked(answering(answer)).export(file, Scope(), may_be_empty=may_be_empty)


@pytest.mark.parametrize(
    "text", ["id,t\r\n1,a\r\n2,b\r\n", "id,t\n1,a\n2,b\n", "\ufeffid,t\n1,a\n2,b\n",
             '"id","t"\n"1","a\n""x"""\n2,b\n', "id,t\n\n1,a\n2,b\n\n",
             'sep=;\nid;t\n1;"a\n""x"", b"\n2;b\n'],
)  # fmt: skip
def test_line_ends_quotes_and_a_byte_order_mark_are_read(text: str, file: Path) -> None:
    pull = pull_of(text, file)
    assert (pull.rows, pull.suspicions) == (2, ())
    assert file.read_bytes() == text.encode()


@pytest.mark.parametrize(
    ("text", "where"), [("id,t\n1,a\n2,", ""), ('id,t\n1,a\n2,"b', "inside quotes"),
                        ("id,t\n1,a\n2", "inside a record")],
)  # fmt: skip
def test_an_end_inside_a_record_is_a_truncated_body(text: str, where: str, file: Path) -> None:
    if where:
        with pytest.raises(TruncatedBody, match=f"{where}, after 2 rows"):
            pull_of(text, file)
    else:
        assert pull_of(text, file).suspicions == ("the last line has no line end",)


def test_a_short_last_line_with_a_line_end_is_reported(file: Path) -> None:
    pull = pull_of("id,t\n1,a\n2\n", file)
    assert pull.suspicions == ("the last record has too few fields",)


@pytest.mark.parametrize(
    ("text", "kind"),
    [("", "empty"), ("\ufeff \n", "empty"), ("id,t\r\n", "bare_header"),
     ("id,t", "bare_header"), ('{"error": {}}', "json"), ("[1]", "json"),
     (" <html>", "html")],
)  # fmt: skip
def test_an_answer_that_is_no_catalog_is_named(text: str, kind: str, file: Path) -> None:
    with pytest.raises(NotData) as raised:
        pull_of(text, file)
    assert raised.value.kind == kind


def test_a_header_without_rows_is_accepted_if_no_rows_are_expected(file: Path) -> None:
    assert pull_of("id,t\r\n", file, may_be_empty=True).rows == 0
