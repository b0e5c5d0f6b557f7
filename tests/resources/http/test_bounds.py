"""Answers that are too large: compressed twice, wide, long or endless. Each is refused in time."""

import gzip
import itertools
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import SecretStr

from catalog.contract.plans import ENTERPRISE
from resources.errors import ContractBroken, TooLarge
from resources.http.bodies import Bounds
from resources.http.paginator import CURSOR_CHARS, ROWS_LEAST
from resources.ingest.puller import Puller
from resources.request_log import RequestLog, last_usage
from tests.resources.fakes import KEY, mocked
from warehouse.bounds import ELEMENTS, RATIO
from warehouse.landing.landing import Landing

AT = datetime(2026, 3, 2, 6, tzinfo=UTC)
LIST = json.dumps({"data": [{"id": "a"}], "meta": {"total": 1, "cursor": None}}).encode()
CSV = b"id,title\r\n" + b"".join(b'%d,"T, %d"\r\n' % (n, n) for n in range(50))


def sent(body: bytes, **headers: str) -> httpx.Response:
    return httpx.Response(200, headers=headers, stream=_Sent(body))


class _Sent(httpx.SyncByteStream):
    """Bytes as they are sent: with `content=` httpx would undo their encoding."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    def __iter__(self) -> Iterator[bytes]:
        return iter([self._body])


def page(rows: list[Any], **meta: Any) -> httpx.Response:
    return httpx.Response(200, json={"data": rows, "meta": meta})


def packed(body: bytes, times: int) -> bytes:
    for _ in range(times):
        body = gzip.compress(body, 9)
    return body


@pytest.mark.parametrize("encoding", ["", "gzip"])
def test_a_gzip_file_sent_with_gzip_encoding_is_read(encoding: str, tmp_path: Path) -> None:
    headers = {"Content-Encoding": encoding} if encoding else {}
    with mocked(lambda _: sent(packed(CSV, 2), **headers)) as client:
        client.export(tmp_path / "export.csv")
    assert (tmp_path / "export.csv").read_bytes() == CSV


@pytest.mark.parametrize("times", [2, 3])
def test_gzip_inside_gzip_is_bounded_by_the_bytes_that_were_sent(
    times: int, tmp_path: Path
) -> None:
    bomb = packed(b"id,title\r\n" + b"x" * (100 << 20), times)
    assert len(bomb) < (100 << 20) / RATIO
    with (
        mocked(lambda _: sent(bomb)) as client,
        pytest.raises(TooLarge, match=r"200 times|compressed more than"),
    ):
        client.export(tmp_path / "export.csv")
    assert (tmp_path / "export.csv").stat().st_size < 32 << 20


def test_members_without_content_are_read_in_time_and_give_nothing() -> None:
    with (
        mocked(lambda _: sent(gzip.compress(b"") * 100_000)) as client,
        pytest.raises(ContractBroken, match="an empty body"),
    ):
        list(client.events_pages())


def test_a_page_with_far_more_rows_than_requested_is_refused() -> None:
    rows = [{"id": str(number)} for number in range(ROWS_LEAST + 1)]
    with (
        mocked(lambda _: page(rows)) as client,
        pytest.raises(TooLarge, match=r"1001 rows. Expected were 100"),
    ):
        list(client.events_pages())


def test_a_service_without_small_pages_is_accepted() -> None:
    rows = [{"id": str(number)} for number in range(100)]
    with mocked(lambda _: page(rows, total=100)) as client:
        assert client.events_total() == 100


@pytest.mark.parametrize("row", [b"{}", b"[]", b"[[]]", b"1", b'{"a":{}}'])
def test_millions_of_values_are_refused_before_they_are_created(row: bytes) -> None:
    body = b'{"data":[' + b",".join([row] * ELEMENTS) + b",{}]}"
    with (
        mocked(lambda _: sent(body)) as client,
        pytest.raises(TooLarge, match=r"values; expected at most|over \d+ bytes"),
    ):
        list(client.events_pages())


@pytest.mark.parametrize("cursor", ["x" * 5_000_000, {"at": "x" * CURSOR_CHARS}, ["x"] * 9_000])
def test_a_cursor_too_long_for_an_address_ends_the_list_and_its_pages_are_landed(
    cursor: Any, tmp_path: Path
) -> None:
    landing = Landing(tmp_path)
    with mocked(lambda _: page([{"id": "a"}], cursor=cursor, total=9)) as client:
        puller = Puller(client, landing, plan=ENTERPRISE, source="s", clock=lambda: AT)
        with pytest.raises(ContractBroken, match=r"cursor of more than 4096 .*partial batch"):
            puller.coins()
    (batch_id,) = landing.batch_ids()
    assert not landing.manifest(batch_id).complete
    assert landing.journal.open_pulls() == []


@pytest.mark.parametrize("total", [None, 10**11, 10**400, -1, "9" * 30, 1e300])
@pytest.mark.parametrize("bounds", [{"pull_rows": 50}, {"pull_bytes": 4_000}])
def test_endless_pages_are_stopped_with_any_total(total: Any, bounds: dict[str, int]) -> None:
    numbers = itertools.count()

    def another(_: httpx.Request) -> httpx.Response:
        number = next(numbers)
        assert number < 50, "it would go on for ever"
        rows = [{"id": f"{number}-{n}"} for n in range(10)]
        body = json.dumps({"data": rows, "meta": {"total": "?", "cursor": f"c{number}"}})
        return httpx.Response(200, text=body.replace('"?"', json.dumps(total)))

    with (
        mocked(another, bounds=Bounds(**bounds)) as client,
        pytest.raises(ContractBroken, match="rows in"),
    ):
        list(client.coins_pages())


def test_no_cookie_is_stored_or_sent_back() -> None:
    cookies: list[str | None] = []

    def setting(request: httpx.Request) -> httpx.Response:
        cookies.append(request.headers.get("cookie"))
        headers = [("Set-Cookie", f"c{len(cookies)}={'x' * 4_000}; Path=/")] * 3
        return httpx.Response(200, headers=headers, content=LIST)

    with mocked(setting) as client:
        for _ in range(3):
            list(client.coins_pages())
    assert cookies == [None] * 3


@pytest.mark.parametrize(
    "odd",
    [b'"\\ud800"', b"9" * 5_000, b"-" + b"9" * 5_000, b"1e999999", b"NaN", b"[" * 900 + b"]" * 900],
)
def test_an_odd_value_does_not_lose_the_page(odd: bytes, tmp_path: Path) -> None:
    body = b'{"data":[{"slug":"a","x":' + odd + b'}],"meta":{"total":' + odd + b"}}"
    landing = Landing(tmp_path)
    with mocked(lambda _: httpx.Response(200, content=body)) as client:
        puller = Puller(client, landing, plan=ENTERPRISE, source="s", clock=lambda: AT)
        assert puller.coins().rows == 1


@pytest.mark.parametrize("plan", ["\ud800lite", "caf\udce9", "p" * 5_000_000])
def test_a_plan_name_of_any_length_can_be_logged_and_is_cut(plan: str, tmp_path: Path) -> None:
    body = json.dumps({"plan": plan, "used": 1, "limit": 2})
    headers = {"Deprecation": "x" * 90_000, "Sunset": "y" * 90_000}
    with mocked(lambda _: httpx.Response(200, content=body.encode(), headers=headers)) as client:
        log = RequestLog(tmp_path, lambda: AT, key=SecretStr(KEY))
        answer = client.usage()
        log.usage(answer, deprecation=client.deprecation, sunset=client.sunset)
    usage = last_usage(tmp_path)
    assert usage is not None
    assert (usage.used, usage.quota) == (1, 2)
    assert (tmp_path / "usage.jsonl").stat().st_size < 5_000


def test_a_usage_partly_in_latin_1_is_read(tmp_path: Path) -> None:
    body = '{"plan":"\xe9lite","used":1,"limit":2}'.encode("latin-1")
    with mocked(lambda _: httpx.Response(200, content=body)) as client:
        RequestLog(tmp_path, lambda: AT, key=SecretStr(KEY)).usage(client.usage())
    assert last_usage(tmp_path) is not None
