"""The key is removed from all that a service repeats, in any spelling, before it is stored."""

import base64
import gzip
import html
import json
from collections.abc import Iterable, Iterator
from datetime import date
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import SecretStr
from resources.http.redaction import Redactor

from catalog.contract.plans import PLANS
from resources.errors import CatalogError, RequestRejected, TruncatedBody
from resources.http.client import CatalogClient
from resources.ingest.puller import Puller
from resources.waits import RetryPolicy
from tests.resources.fakes import FakeTime, Handler, answering
from tests.unlimited import Unlimited
from warehouse.batch_problems import list_landed_problems
from warehouse.landing.batches import KEY_MARK
from warehouse.landing.landing import Landing

KEY = 'canary-5f1c9e7b2a/Q"x\\9+K='
REDACTOR = Redactor(SecretStr(KEY))


def _each(form: str) -> str:
    return "".join(form.format(ord(item)) for item in KEY)


SPELLINGS = {
    "exact": KEY,
    "lower": KEY.lower(),
    "upper": KEY.upper(),
    "url": quote(KEY, safe=""),
    "url, small letters": quote(KEY, safe="").lower(),
    "url, every character": _each("%{:02X}"),
    "url, twice": quote(quote(KEY, safe=""), safe=""),
    "json": json.dumps(KEY)[1:-1],
    "json, slashes": json.dumps(KEY)[1:-1].replace("/", "\\/"),
    "json, every character": _each("\\u{:04x}"),
    "html": html.escape(KEY),
    "html, decimal": _each("&#{};"),
    "html, hex": _each("&#x{:X};"),
    "hex": KEY.encode().hex(),
    "base64": base64.b64encode(KEY.encode()).decode(),
    "base64, after one": base64.b64encode(b":" + KEY.encode() + b":").decode(),
    "base64, after two": base64.b64encode(b"a:" + KEY.encode()).decode(),
    "base64, for urls": base64.urlsafe_b64encode(b"key=" + KEY.encode() + b"&").decode(),
}
IN_MESSAGES = {
    "split by zero width": "\u200b".join(KEY),
    "split by white space": f"{KEY[:9]}\n  {KEY[9:]}",
    "escaped in part": KEY.replace("a", "%61").replace("c", "\\u0063"),
    "hex of capitals": KEY.upper().encode().hex(),
    "base64 of small letters": base64.b64encode(KEY.lower().encode()).decode(),
}
spellings = pytest.mark.parametrize("name", SPELLINGS)


def repeats(text: str) -> bool:
    """Whether enough of a spelling is left in a text to recognise the key."""
    every = {**SPELLINGS, **IN_MESSAGES}.values()
    core = [item.strip("=")[3:-4].lower() for item in every]
    return any(item in text.lower() for item in core)


def through(pieces: list[bytes], *, is_data: bool = True) -> bytes:
    body = REDACTOR.body(is_data=is_data)
    return b"".join([*map(body.feed, pieces), body.finish()])


def client_of(answer: httpx.Response | Handler, key: str = KEY) -> CatalogClient:
    return CatalogClient(
        "https://catalog.test",
        key,
        limiter=Unlimited(),
        ambient=FakeTime().ambient(),
        policy=RetryPolicy(attempts=1),
        transport=httpx.MockTransport(
            answering(answer) if isinstance(answer, httpx.Response) else answer
        ),
    )


@pytest.mark.parametrize("name", {**SPELLINGS, **IN_MESSAGES})
def test_no_message_repeats_the_key(name: str) -> None:
    spelling = {**SPELLINGS, **IN_MESSAGES}[name]
    shown = REDACTOR(f"no access for {spelling}, sorry")
    assert not repeats(shown)
    assert shown.startswith("no access for ")
    assert KEY_MARK in shown
    assert shown.endswith(", sorry")


@spellings
def test_no_error_header_or_evidence_repeats_the_key(name: str) -> None:
    spelling = SPELLINGS[name].encode()
    fields = [(field, spelling) for field in (b"Sunset", b"Deprecation", b"ETag", b"Content-Type")]
    refused = httpx.Response(400, headers=fields, content=b'{"message": "' + spelling + b'"}')
    client = client_of(refused)
    with pytest.raises(RequestRejected) as raised:
        client.events_total()
    seen = raised.value.evidence
    assert seen is not None
    kept = [str(raised.value), str(seen.headers), (seen.body or b"").decode()]
    kept += [client.sunset or "", client.deprecation or ""]
    assert all(KEY_MARK in item for item in kept)
    assert not repeats("".join(kept))


@spellings
@pytest.mark.parametrize("packed", [False, True])
def test_no_data_repeat_the_key_at_any_end_of_a_piece(
    name: str, packed: bool, tmp_path: Path
) -> None:
    spelling = SPELLINGS[name].encode().replace(b'"', b'""')
    body = b'id,title\nev_1,"before ' + spelling + b' after"\nev_2,"plain"\n'
    sent = gzip.compress(body) if packed else body
    for size in (1, 7, 4096):
        pieces = (sent[at : at + size] for at in range(0, len(sent), size))
        answer = httpx.Response(200, stream=_Stream(pieces))
        file = tmp_path / "e.csv"
        pull = client_of(lambda _, answer=answer: answer).export(file)
        kept = file.read_bytes()
        assert not repeats(kept.decode().replace('""', '"'))
        assert kept.startswith(b'id,title\nev_1,"before ')
        assert kept.endswith(b' after"\nev_2,"plain"\n')
        assert pull.rows == 2


class _Stream(httpx.SyncByteStream):
    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = pieces

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._pieces)


@settings(deadline=None)
@given(
    before=st.binary(max_size=40),
    after=st.binary(max_size=40),
    name=st.sampled_from(sorted(SPELLINGS)),
    cuts=st.lists(st.integers(0, 400), max_size=6),
)
def test_the_size_of_pieces_makes_no_difference(
    before: bytes, after: bytes, name: str, cuts: list[int]
) -> None:
    body = before + SPELLINGS[name].encode() + after
    ends = sorted(min(cut, len(body)) for cut in cuts)
    pieces = [body[a:b] for a, b in zip([0, *ends], [*ends, len(body)], strict=True)]
    cleaned = through(pieces)
    assert cleaned == through([body])
    assert not repeats(cleaned.decode("latin-1"))


@settings(deadline=None)
@given(st.binary(max_size=2_000), st.integers(1, 300))
def test_text_without_the_key_is_unchanged(body: bytes, size: int) -> None:
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    for is_data in (True, False):
        assert through(pieces, is_data=is_data) == body


def test_a_truncated_key_at_the_end_is_removed() -> None:
    assert through([b'{"data":[{"title":"', KEY[:20].encode()]).endswith(KEY_MARK.encode())
    sent = httpx.Response(
        200, headers={"Content-Length": "500"}, content=f'id,title\n1,"{KEY[:20]}'
    )
    with pytest.raises(TruncatedBody) as raised:
        client_of(sent).usage()
    assert not repeats(str(raised.value))


def test_html_is_searched_for_every_spelling() -> None:
    page = f"<html>{IN_MESSAGES['split by zero width']} {IN_MESSAGES['escaped in part']}".encode()
    assert not repeats(through([page]).decode().replace("\u200b", ""))


@pytest.mark.parametrize("key", ["a", "id", "title", "ev_1,plain"])
def test_a_short_key_changes_no_data(key: str, tmp_path: Path) -> None:
    body = b"id,title\nev_1,plain\n"
    answer = httpx.Response(
        200, content=body, headers={"Date": "Mon, 02 Mar 2026 12:00:00 GMT", "ETag": "title"}
    )
    pull = client_of(answer, key=key).export(tmp_path / "export.csv")
    assert (tmp_path / "export.csv").read_bytes() == body
    assert not pull.date_doubt


def test_a_batch_notes_that_the_key_was_removed(tmp_path: Path) -> None:
    row = {"slug": "bitcoin", "name": KEY, "more": KEY}
    client = client_of(httpx.Response(200, json={"data": [row], "meta": {"total": 1}}))
    landing = Landing(tmp_path)
    puller = Puller(
        client, landing, plan=PLANS["elite"], source="https://catalog.test", clock=FakeTime().clock
    )
    landed = puller.coins()
    assert landed.manifest.redacted == 2
    assert landed.manifest.complete
    problems = [str(problem) for problem in list_landed_problems([landed.manifest])]
    assert any("repeated the API key" in problem for problem in problems)
    assert KEY_MARK.encode() in b"".join(landing.body(landed.manifest))
    assert landing.manifest(landed.manifest.batch_id).redacted == 2


def test_a_reason_phrase_and_an_illegal_head_do_not_repeat_the_key() -> None:
    odd = httpx.Response(
        418, content=b"no", extensions={"reason_phrase": KEY.encode(), "http_version": b"HTTP/1.1"}
    )
    with client_of(lambda _: odd) as client:
        response = client._http.get("/v2/usage")
        assert response.reason_phrase == KEY_MARK
        with pytest.raises(CatalogError) as raised:
            client.events_total(date(2026, 3, 1))
    assert not repeats(str(raised.value))


@pytest.mark.parametrize("filler", ["\\", " ", "\u200b", "&#0", "%25", "0", '"', "c", "c\\", "%"])
def test_no_body_makes_the_search_hang(filler: str) -> None:
    text = KEY[0] + filler * (200_000 // len(filler))
    assert REDACTOR(text) == text
    assert through([text.encode()], is_data=False) == text.encode()
