"""The sandbox's answers on all routes, plans, filters and errors are those of its document."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from catalog.contract import constants
from catalog.contract.errors import ERRORS
from catalog.sandbox.sandbox import Sandbox
from catalog.server.app import ServerOptions
from tests.documented import Documented, Node
from tests.hangs import HANGS_AFTER_S

NOW = datetime(2017, 3, 1, 12, tzinfo=UTC)
EVENT, COIN, LIST = "/v2/events/{id}", "/v2/coins/{slug}", constants.EVENTS_PATH
TOP, OPEN = "bitcoin", ("/v2/openapi.json", "/docs", "/healthz", "/metrics")
CONDITIONS = {"etag": "If-None-Match", "last-modified": "If-Modified-Since"}
BAD = ("limit=0", "limit=1&limit=2", "cursor=x")
QUERIES = {
    constants.COINS_PATH: ("", "limit=3", "q=b", "tracked=true", "tracked=false", "q=", *BAD),
    LIST: (
        *("", "limit=2", "from=2017-03-02&to=2017-03-20", "keyword=main", "to=0001-01-01"),
        *("coins=bitcoin,ethereum", "coins=nobody", "categories=upgrade", "impactMin=7.5", *BAD),
        *("from=0001-01-01&to=9999-12-31", "sortBy=impact_desc", "sortBy=x", "from=yesterday"),
    ),
    constants.CANCELLATIONS_PATH: ("", "limit=1", "since=2017-01-01", "since=2017-02-30", *BAD),
    constants.EXPORT_PATH: ("from=2017-03-01&to=2017-03-03", "coins=,", "keyword=fork"),
    **dict.fromkeys((constants.CATEGORIES_PATH, constants.USAGE_PATH), ("",)),
}  # fmt: skip


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox(now=NOW) as sandbox:
        yield sandbox


@pytest.fixture(scope="module")
def client(sandbox: Sandbox) -> Iterator[httpx.Client]:
    headers = {"x-api-key": sandbox.keys["elite"]}
    with httpx.Client(base_url=sandbox.base_url, headers=headers, timeout=HANGS_AFTER_S) as client:
        yield client


@pytest.fixture(scope="module")
def documented(client: httpx.Client) -> Documented:
    return Documented(client)


def asking(sandbox: Sandbox, documented: Documented, plan: str) -> Callable[..., httpx.Response]:
    """Return a request whose key is changed before any limit is reached."""
    key, used = sandbox.new_key(plan), 0

    def ask(path: str, query: str = "", names: Node | None = None, **more: str) -> httpx.Response:
        nonlocal key, used
        used += 1
        if used % 4 == 0 or path == constants.EXPORT_PATH:
            key = sandbox.new_key(plan)
        headers = {"x-api-key": key, **more}
        return documented.get(path, names=names, params=query, headers=headers)

    return ask


def test_every_answer_is_described_and_all_that_is_described_is_sent(
    sandbox: Sandbox, client: httpx.Client, documented: Documented
) -> None:
    for plan in ("free", "pro", "elite"):
        ask = asking(sandbox, documented, plan)
        (event, *_) = ask(LIST).json()["data"]
        asked = [(path, {}, query) for path, queries in QUERIES.items() for query in queries]
        asked += [(EVENT, event, ""), (EVENT, {"id": "-"}, "")]
        asked += [(COIN, {"slug": slug}, "") for slug in (TOP, "-")]
        asked += [(path, {}, "") for path in OPEN]
        for path, names, query in asked:
            answer = ask(path, query, names)
            for sent, asked_with in CONDITIONS.items():
                if answer.status_code == 200 and sent in answer.headers:
                    condition = {asked_with: answer.headers[sent]}
                    assert ask(path, query, names, **condition).status_code == 304
        assert ask(EVENT, names=event).json() == event
    send_every_error(sandbox, client, documented)
    retired = ServerOptions(deprecation="@1", sunset="Sat, 01 Jan 2028 00:00:00 GMT")
    with Sandbox(now=NOW, options=retired) as deprecated:
        documented.check("/healthz", httpx.get(f"{deprecated.base_url}/healthz"))
    described = {(p, status) for p, each in documented.operations() for status in each["responses"]}
    everywhere = {"403", "414", "429", "431", "500", "503"}
    assert {each for each in described if each[1] not in everywhere} <= documented.seen_statuses
    assert {status for _, status in documented.seen_statuses} >= everywhere
    assert documented.unseen_headers() == set()
    assert documented.count > 200


def send_every_error(sandbox: Sandbox, client: httpx.Client, documented: Documented) -> None:
    """Send requests that are answered with each error, and check its form."""

    def get(path: str, key: str = "elite", faults: str = "", **headers: str) -> httpx.Response:
        headers = {"x-api-key": sandbox.keys.get(key, key), "Sandbox-Faults": faults, **headers}
        return client.get(path, headers={name: each for name, each in headers.items() if each})

    def twice(path: str, plan: str, **limits: Any) -> httpx.Response:
        key = sandbox.new_key(plan, **limits)
        return [get(path, key) for _ in range(2)][-1]

    since = (NOW - timedelta(days=400)).date()
    cancelled = get(f"/v2/events/cancellations?since={since}").json()["data"][0]["id"]
    coins = get("/v2/coins?limit=200").json()["data"]
    below = next(coin["slug"] for coin in coins if coin["rank"] is None or coin["rank"] > 110)
    cases: tuple[tuple[str, str, httpx.Response], ...] = (
        ("InvalidParameter", LIST, get("/v2/events?limit=0")),
        ("InvalidParameter", LIST, get("/v2/events", faults="typo")),
        ("InvalidCursor", LIST, get("/v2/events?cursor=x")),
        ("Forbidden", LIST, get("/v2/events", key="nobody")),
        ("PlanRequired", LIST, get("/v2/events?impactMin=1", key="pro")),
        ("PlanRequired", constants.EXPORT_PATH, get("/v2/events/export", key="pro")),
        ("PlanRequired", COIN, get(f"/v2/coins/{below}", key="free")),
        ("VersionRetired", LIST, get("/v1/events")),
        ("NotFound", EVENT, get("/v2/events/nope")),
        ("NotFound", EVENT, get("/v2/nothing")),
        ("MethodNotAllowed", "", client.post("/v2/events")),
        ("EventCancelled", EVENT, get(f"/v2/events/{cancelled}")),
        ("UriTooLong", EVENT, get("/v2/events/" + "x" * constants.PATH_LENGTH_MAX)),
        ("UriTooLong", LIST, get("/v2/events?y=" + "x" * constants.QUERY_LENGTH_MAX)),
        ("RateLimited", "/v2/usage", twice("/v2/usage", "enterprise", rate_per_s=0.001, burst=1)),
        ("RateLimited", LIST, get("/v2/events", faults="storm")),
        ("RateLimited", constants.EXPORT_PATH, twice("/v2/events/export?to=2017-01-02", "elite")),
        ("QuotaExceeded", "/v2/usage", twice("/v2/usage", "enterprise", monthly_quota=0)),
        ("HeadersTooLarge", LIST, get("/v2/events", filler="x" * 17_000)),
        ("InternalError", LIST, get("/v2/events", faults="error")),
        ("RequestTimeout", LIST, get("/v2/events", faults="error=0.01")),
        ("ServiceUnavailable", LIST, get("/v2/events", faults="unavailable=service")),
    )
    page, request_ids, named = client.get("/docs").text, set(), {e.__name__: e for e in ERRORS}
    for name, path, answer in cases:
        error, body = named[name], answer.json()
        if path:
            documented.check(path, answer)
        assert (answer.status_code, body["error"]["code"]) == (error.status, error.code), name
        assert body["error"]["message"] == body["message"]
        assert answer.headers["cache-control"] == "no-store", name
        assert ("retry-after" in answer.headers) == (answer.status_code == 429), name
        assert f'id="{body["error"]["docs"].removeprefix("/docs#")}"' in page
        request_ids.add(body["error"]["requestId"])
    of_bodies = {"BodyTooSlow", "BodyTooLarge"}  # No route of the interface reads a body.
    assert {name for name, _, _ in cases} | of_bodies == set(named)
    assert len(request_ids) == len(cases)
