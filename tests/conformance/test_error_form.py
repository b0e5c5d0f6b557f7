"""Every error that the service can send has the documented body, status and headers.

One walk over all of them, on the running sandbox: what is sent is judged by the OpenAPI document
that the same server answers with.
"""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from openapi_schema_validator import OAS30Validator, oas30_format_checker

from catalog.contract import constants
from catalog.sandbox.sandbox import Sandbox
from tests.contract.api_errors import ALL_ERRORS
from tests.hangs import HANGS_AFTER_S

NOW = datetime(2018, 3, 1, 12, tzinfo=UTC)
Send = Callable[[Sandbox, httpx.Client], httpx.Response]


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox(now=NOW) as sandbox:
        yield sandbox


@pytest.fixture(scope="module")
def client(sandbox: Sandbox) -> Iterator[httpx.Client]:
    headers = {"x-api-key": sandbox.keys["elite"]}
    with httpx.Client(base_url=sandbox.base_url, headers=headers, timeout=HANGS_AFTER_S) as client:
        yield client


def get(path: str, *, key: str = "elite", faults: str = "", **headers: str) -> Send:
    def send(sandbox: Sandbox, client: httpx.Client) -> httpx.Response:
        own = {"x-api-key": sandbox.keys.get(key, key), **headers}
        if faults:
            own["Sandbox-Faults"] = faults
        return client.get(path, headers=own)

    return send


def with_limits(**limits: Any) -> Send:
    """Request with a new key until the answer is 429."""

    def send(sandbox: Sandbox, client: httpx.Client) -> httpx.Response:
        key = sandbox.new_key("enterprise", **limits)
        answers = [client.get("/v2/usage", headers={"x-api-key": key}) for _ in range(2)]
        return answers[-1]

    return send


def second_export(sandbox: Sandbox, client: httpx.Client) -> httpx.Response:
    own = {"x-api-key": sandbox.new_key("elite")}
    path = "/v2/events/export?from=2018-03-01&to=2018-03-02"
    answers = [client.get(path, headers=own) for _ in range(2)]
    assert answers[0].status_code == 200
    return answers[-1]


def cancelled_event(sandbox: Sandbox, client: httpx.Client) -> httpx.Response:
    since = {"since": (NOW - timedelta(days=400)).date().isoformat()}
    listed = client.get("/v2/events/cancellations", params=since).json()["data"]
    return client.get(f"/v2/events/{listed[0]['id']}")


def coin_below_the_top(sandbox: Sandbox, client: httpx.Client) -> httpx.Response:
    coins = client.get("/v2/coins?limit=200").json()["data"]
    slug = next(coin["slug"] for coin in coins if coin["rank"] is None or coin["rank"] > 110)
    return client.get(f"/v2/coins/{slug}", headers={"x-api-key": sandbox.keys["free"]})


CASES: dict[str, tuple[str, Send]] = {
    "a parameter of the wrong form": ("InvalidParameter", get("/v2/events?limit=0")),
    "a header of the sandbox of the wrong form": (
        "InvalidParameter",
        get("/v2/events", faults="typo"),
    ),
    "a cursor of nobody": ("InvalidCursor", get("/v2/events?cursor=x")),
    "an unknown key": ("Forbidden", get("/v2/events", key="nobody")),
    "a filter of a higher plan": ("PlanRequired", get("/v2/events?impactMin=1", key="pro")),
    "an export of a higher plan": ("PlanRequired", get("/v2/events/export", key="pro")),
    "a coin outside the plan's coverage": ("PlanRequired", coin_below_the_top),
    "a path of V1": ("VersionRetired", get("/v1/events")),
    "an unknown path": ("NotFound", get("/v2/nothing")),
    "an unknown coin": ("NotFound", get("/v2/coins/no-such-coin")),
    "an unknown event": ("NotFound", get("/v2/events/nope")),
    "a wrong method": ("MethodNotAllowed", lambda _, client: client.post("/v2/events")),
    "a cancelled event": ("EventCancelled", cancelled_event),
    "a long path": ("UriTooLong", get("/v2/events/" + "x" * constants.PATH_LENGTH_MAX)),
    "a long query": ("UriTooLong", get("/v2/events?y=" + "x" * constants.QUERY_LENGTH_MAX)),
    "too fast": ("RateLimited", with_limits(rate_per_s=0.001, burst=1)),
    "told to be too fast": ("RateLimited", get("/v2/events", faults="storm")),
    "a second export within a minute": ("RateLimited", second_export),
    "no request left": ("QuotaExceeded", with_limits(monthly_quota=0)),
    "big headers": ("HeadersTooLarge", get("/v2/events", filler="x" * 17_000)),
    "a failing route": ("InternalError", get("/v2/events", faults="error")),
    "a slow route": ("RequestTimeout", get("/v2/events", faults="error=0.01")),
    "a service that is down": (
        "ServiceUnavailable",
        get("/v2/events", faults="unavailable=service"),
    ),
}


def dereferenced(node: Any, document: dict[str, Any]) -> Any:
    if isinstance(node, dict):
        if "$ref" in node:
            found: Any = document
            for step in node["$ref"].removeprefix("#/").split("/"):
                found = found[step]
            return dereferenced(found, document)
        return {key: dereferenced(value, document) for key, value in node.items()}
    if isinstance(node, list):
        return [dereferenced(value, document) for value in node]
    return node


def test_every_error_that_is_sent_has_the_documented_form(
    sandbox: Sandbox, client: httpx.Client
) -> None:
    document = client.get("/v2/openapi.json").json()
    schemas = document["components"]["schemas"]
    body_form = OAS30Validator(
        dereferenced(schemas["ErrorBody"], document), format_checker=oas30_format_checker
    )
    page = client.get("/docs").text
    known = {error.__name__: error for error in ALL_ERRORS}
    request_ids = []
    for case, (name, send) in CASES.items():
        answer, error = send(sandbox, client), known[name]
        body = answer.json()
        body_form.validate(body)
        assert (answer.status_code, body["error"]["code"]) == (error.status, error.code), case
        assert schemas["ErrorCode"]["x-codes"][error.code]["status"] == answer.status_code
        assert body["error"]["message"] == body["message"], case
        assert answer.headers["content-type"] == "application/json", case
        assert answer.headers["cache-control"] == "no-store", case
        assert ("retry-after" in answer.headers) == (answer.status_code == 429), case
        _, _, anchor = body["error"]["docs"].partition("/docs#")
        assert f'id="{anchor}"' in page, case
        request_ids.append(body["error"]["requestId"])
    assert {name for name, _ in CASES.values()} == set(known), "a case for every error"
    assert len(set(request_ids)) == len(CASES)


@pytest.mark.parametrize("plan", ["free", "elite", "enterprise"])
@pytest.mark.parametrize(
    "path", ["/v2/events?limit=1", "/v2/usage", "/v2/nothing", "/v2/events?limit=0"]
)
def test_every_answer_to_a_key_has_the_headers_of_its_quota(
    sandbox: Sandbox, client: httpx.Client, plan: str, path: str
) -> None:
    key = {"x-api-key": sandbox.new_key(plan)}
    headers = client.get(path, headers=key).headers
    used = client.get("/v2/usage", headers=key)
    usage = used.json()
    assert headers["x-ratelimit-reset"] == usage["resetAt"] == "2018-04-01T00:00:00Z"
    for each in ("x-ratelimit-limit", "x-ratelimit-remaining"):
        assert (each in headers) == (usage["limit"] is not None)
    if usage["limit"] is not None:
        assert int(headers["x-ratelimit-limit"]) == usage["limit"]
        assert int(headers["x-ratelimit-remaining"]) == usage["remaining"] + 1
        assert int(used.headers["x-ratelimit-remaining"]) == usage["remaining"]


def test_an_answer_to_no_key_has_no_headers_of_a_quota(client: httpx.Client) -> None:
    for path in ("/docs", "/v2/openapi.json"):
        assert "x-ratelimit-reset" not in client.get(path).headers
    unknown = client.get("/v2/usage", headers={"x-api-key": "nobody"})
    assert "x-ratelimit-reset" not in unknown.headers
