"""Paging with a faulty service: loops, endless lists, shifts, slowness, odd forms; its cost."""

import itertools
import json
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.contract.plans import INSTANT_STEP
from resources.errors import ContractBroken, Defer, NotData, TooSlow
from resources.http.paginator import CURSOR_CHARS, ROWS_LEAST, ListProgress, Paginator
from resources.http.response_body import Bounds
from resources.response import Answer
from resources.scopes import halve_dates
from tests.resources.conftest import MakeClient
from tests.resources.fakes import FaultScript, days, mocked, paginated
from warehouse.landing.batches import Scope
from warehouse.size_limits import ELEMENTS

MARCH = days(date(2026, 3, 1), date(2026, 3, 31))
AT = datetime(2026, 3, 1, 1, tzinfo=UTC)
ONE_DAY = days(date(2026, 3, 1), date(2026, 3, 1))
SLOW = httpx.Response(500, json={"error": {"code": "timeout"}})


def page(ids: list[str], cursor: Any = None, **meta: Any) -> httpx.Response:
    rows = [{"id": event_id} for event_id in ids]
    return httpx.Response(200, json={"data": rows, "meta": {"cursor": cursor, **meta}})


def paginator_of(handler: Callable[[httpx.Request], httpx.Response], **options: Any) -> Paginator:
    return paginated(mocked(handler), MARCH, **options)


class Catalog:
    """One event a day in 2026, paged by offset; too slow for the requests that `slow` names."""

    def __init__(self, slow: Callable[[int, int], bool], limit_max: int = 100) -> None:
        self.slow = slow
        self.limit_max = limit_max
        self.requested: list[dict[str, str]] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        params = dict(request.url.params)
        self.requested.append(params)
        limit = min(int(params["limit"]), self.limit_max)
        first, last = (date.fromisoformat(params[name][:10]) for name in ("from", "to"))
        days = (last - first).days + 1
        if self.slow(limit, days):
            return SLOW
        ids = [str(first + timedelta(days=n)) for n in range(days)]
        at = int(params.get("cursor", "0"))
        following = str(at + limit) if at + limit < days else None
        return page(ids[at : at + limit], following, total=days, limit=limit)


def test_a_cursor_that_is_returned_twice_ends_the_list(make_client: MakeClient) -> None:
    client = make_client(extra_headers={"Sandbox-Faults": "repeat_cursor"})
    paginator = paginated(client, MARCH, limit=50)
    pages = []
    with pytest.raises(ContractBroken, match="already used") as raised:
        for page in paginator:
            pages.append(page)
    assert 2 <= len(pages) <= 4
    assert f"{len(pages)} pages" in str(raised.value)
    assert paginator.progress.why_incomplete()
    assert paginator.requests == len(pages)


def test_pages_past_the_total_end_the_list() -> None:
    count = iter(range(10_000))

    def handle(_: httpx.Request) -> httpx.Response:
        n = next(count)
        return page([f"{n}-{row}" for row in range(10)], f"c{n}", total=20, limit=10)

    paginator = paginator_of(handle, limit=10)
    with pytest.raises(ContractBroken, match=r"meta\.total promised 20"):
        list(paginator)
    assert paginator.progress.pages <= 2 + 4


@pytest.mark.parametrize("ids", [[], ["same"]])
def test_pages_without_a_new_row_end_the_list(ids: list[str]) -> None:
    count = iter(range(10_000))
    paginator = paginator_of(lambda _: page(ids, f"c{next(count)}"))
    with pytest.raises(ContractBroken, match="without a new row"):
        list(paginator)
    assert paginator.progress.pages <= 4


def test_a_page_with_far_more_rows_than_requested_is_refused() -> None:
    ids = [str(number) for number in range(ROWS_LEAST + 1)]
    with pytest.raises(ContractBroken, match="1001 rows, expected were 100"):
        list(paginator_of(lambda _: page(ids)))


@pytest.mark.parametrize("row", [b"[]", b'{"a":{}}'])
def test_millions_of_values_are_refused_before_they_are_created(row: bytes) -> None:
    body = b'{"data":[' + b",".join([row] * ELEMENTS) + b",{}]}"
    with pytest.raises(ContractBroken, match=r"values; expected at most|over \d+ bytes"):
        list(paginator_of(lambda _: httpx.Response(200, content=body)))


@pytest.mark.parametrize("cursor", ["x" * 5_000_000, {"at": "x" * CURSOR_CHARS}])
def test_a_cursor_too_long_for_an_address_ends_the_list(cursor: Any) -> None:
    with pytest.raises(ContractBroken, match="more than 4096"):
        list(paginator_of(lambda _: page(["a"], cursor, total=9)))


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

    with pytest.raises(ContractBroken, match="rows in"):
        list(paginated(mocked(another, bounds=Bounds(**bounds)), feed="coins"))


@pytest.mark.parametrize(("totals", "complete"), [((4, 5), True), ((5, 4), True), ((5, 5), False)])
def test_a_catalog_that_changes_while_paged_needs_only_the_smaller_total(
    totals: tuple[int, int], complete: bool
) -> None:
    pages = [page(["a", "b"], "x", total=totals[0]), page(["c", "d"], total=totals[1])]
    paginator = paginator_of(lambda _: pages.pop(0))
    list(paginator)
    assert (not paginator.progress.why_incomplete()) is complete


@pytest.mark.parametrize(
    "meta",
    [None, [], {}, {"cursor": ""}, {"cursor": None, "total": "x", "limit": -1},
     {"total": True, "limit": 1.5, "cursor": False}],
)  # fmt: skip
def test_a_poor_meta_is_a_last_page_without_a_total(meta: object) -> None:
    paginator = paginator_of(
        lambda _: httpx.Response(200, json={"data": [{"id": "a"}], "meta": meta})
    )
    (item,) = paginator
    assert (item.cursor_out, item.total) == (None, None)
    assert not paginator.progress.why_incomplete()


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (httpx.Response(200, html="<html>"), "html"),
        (httpx.Response(200, content=b" <!doctype html>"), "html"),
        (httpx.Response(200), "empty"),
        (httpx.Response(200, json={"error": {"code": "x"}}), "json"),
        (httpx.Response(200, json={"data": None}), "json"),
        (httpx.Response(200, json="text"), "json"),
        (httpx.Response(200, text="a,b\n", headers={"Content-Type": "text/csv"}),
         "text"),
    ],
)  # fmt: skip
def test_an_answer_that_is_no_list_is_named(answer: httpx.Response, kind: str) -> None:
    with pytest.raises(NotData) as raised:
        list(paginator_of(lambda _: answer))
    assert raised.value.kind == kind
    assert isinstance(raised.value.evidence, Answer)
    assert raised.value.evidence.body == answer.content


def test_the_limit_is_halved_at_the_same_cursor() -> None:
    catalog = Catalog(lambda limit, days: limit > 12)
    paginator = paginator_of(catalog, limit=50)
    rows = [event_id for got in paginator for event_id in got.ids]
    assert rows == [f"2026-03-{day:02}" for day in range(1, 32)]
    limits = [int(request["limit"]) for request in catalog.requested]
    assert limits == [50, 25, 12, 12, 12]
    assert paginator.requests == 5
    assert not paginator.progress.why_incomplete()


def test_after_the_least_limit_the_dates_are_halved() -> None:
    catalog = Catalog(lambda limit, days: days > 8)
    paginator = paginator_of(catalog, limit=10)
    rows = sorted(event_id for got in paginator for event_id in got.ids)
    assert rows == [f"2026-03-{day:02}" for day in range(1, 32)]
    assert not paginator.progress.why_incomplete()
    assert paginator.progress.total_last == 31


def test_a_day_is_split_by_time_until_that_is_impossible() -> None:
    catalog = Catalog(lambda limit, days: True)
    paginator = paginated(mocked(catalog), ONE_DAY, limit=5)
    with pytest.raises(TooSlow):
        list(paginator)
    last = catalog.requested[-1]
    assert (last["from"], last["to"]) == ("2026-03-01", "2026-03-01T00:00:00Z")
    assert paginator.requests == len(catalog.requested) < 25


@pytest.mark.parametrize("longest", [31, 20, 8, 1])
def test_the_progress_follows_from_the_pages_alone(longest: int) -> None:
    paginator = paginator_of(Catalog(lambda limit, days: days > longest), limit=7)
    followed = ListProgress([MARCH])
    for got in paginator:
        followed.follow(got)
        own = paginator.progress
        assert followed.current == own.current
        assert (followed.rows, followed.pages) == (own.rows, own.pages)
        assert followed.total_last == own.total_last
        assert followed.why_incomplete() == paginator.progress.why_incomplete()
    assert followed.ended


def test_after_a_defer_the_same_paginator_resumes_where_it_stopped(make_client: MakeClient) -> None:
    client = make_client(transport=FaultScript("", "", "quota"))
    paginator = paginated(client, MARCH, limit=50)
    pages = []
    with pytest.raises(Defer, match=r"2 pages \(100 rows\)") as raised:
        for page in paginator:
            pages.append(page)
    assert raised.value.cursor == pages[-1].cursor_out
    pages += paginator
    assert not paginator.progress.why_incomplete()
    assert paginator.requests == len(pages) + 1
    assert len({page.cursor_in for page in pages}) == len(pages)


@given(st.integers(0, 400 * 86_400), st.integers(1, 400 * 86_400))
def test_halves_meet_and_are_the_whole(begin: int, seconds: int) -> None:
    lower = AT + timedelta(seconds=begin)
    whole = Scope(lower=lower, upper=lower + timedelta(seconds=seconds), coins=("a",))
    first, second = halve_dates(whole) or ()
    assert (first.lower, second.upper) == (whole.lower, whole.upper)
    assert first.upper is not None
    assert first.upper + INSTANT_STEP == second.lower
    assert (first.coins, second.coins) == (("a",), ("a",))
