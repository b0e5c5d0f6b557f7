"""`almanac doctor --service` on a sandbox, and on a server that changes its responses."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from application.service_check import EndpointCheck, check_endpoints
from catalog.contract.plans import PLANS
from catalog.sandbox.sandbox import Sandbox
from catalog.server.hosting import HostedApp
from resources.http.client import CatalogClient
from tests.hangs import HANGS_AFTER_S
from tests.pipeline.conftest import Almanac
from tests.unlimited import Unlimited

EXPORT = "/v2/events/export"
Change = Callable[[httpx.Request, Any], Any]
"""Changes the JSON, or the text, of a response; an integer is a status in its place."""


class ChangedService:
    """Asks the sandbox, and changes its responses. `requests` are the targets received."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.change: Change = lambda _, body: body
        self.paths: dict[str, str] = {}
        self.requests: list[str] = []
        self._http = httpx.Client(base_url=sandbox.base_url, timeout=HANGS_AFTER_S)

    def __call__(self, request: Request) -> Response:
        self.requests.append(request.url.path)
        path = self.paths.get(request.url.path, request.url.path)
        key = {"x-api-key": request.headers["x-api-key"]}
        asked = self._http.build_request("GET", path, params=request.query_params, headers=key)
        answer = self._http.send(asked)
        kind = answer.headers["content-type"]
        body = answer.json() if "json" in kind else answer.text
        changed = self.change(asked, body)
        if isinstance(changed, int):
            return Response(status_code=changed)
        text = json.dumps(changed) if "json" in kind else changed
        kept = {
            name: given
            for name, given in answer.headers.items()
            if name.startswith(("x-rate", "etag", "last"))
        }
        return Response(text, answer.status_code, {**kept, "content-type": kind})


@pytest.fixture(scope="module")
def server(almanac_sandbox: Sandbox) -> Iterator[tuple[ChangedService, str]]:
    service = ChangedService(almanac_sandbox)
    hosted = HostedApp(
        Starlette(routes=[Route("/{path:path}", service.__call__)]), host="127.0.0.1", port=0
    ).start()
    yield service, hosted.base_url
    hosted.stop()


@pytest.fixture
def service(server: tuple[ChangedService, str], almanac_sandbox: Sandbox) -> Any:
    """Return a function that checks the server with a change, and returns the checks by path."""
    changed, base_url = server

    def check(
        change: Change, plan: str = "elite", paths: dict[str, str] | None = None
    ) -> dict[str, EndpointCheck]:
        changed.change, changed.paths, changed.requests = change, paths or {}, []
        key = almanac_sandbox.new_key(plan)
        with CatalogClient(base_url, key, limiter=Unlimited()) as client:
            found = list(check_endpoints(client, PLANS[plan]))
        assert len(changed.requests) <= 11
        return {check.call.removeprefix("GET "): check for check in found}

    return check


def differing(found: dict[str, EndpointCheck]) -> dict[str, str]:
    return {path: str(check) for path, check in found.items() if check.differences}


def test_a_sandbox_is_as_expected(almanac: Almanac, almanac_sandbox: Sandbox) -> None:
    given = {"base_url": almanac_sandbox.base_url, "api_key": almanac_sandbox.new_key("elite")}
    found = json.loads(almanac("doctor", "--service", "--json", **given).stdout)
    texts = {row["what"]: row["found"] for row in found if row["what"].startswith("GET ")}
    assert len(texts) == 9
    assert set(texts.values()) == {"as expected"}


@pytest.mark.parametrize("plan", ["standard", "pro", "enterprise"])
def test_each_plan_is_as_expected(plan: str, service: Any) -> None:
    lacking = {} if PLANS[plan].export else {EXPORT: f"the plan {plan} has no export"}
    assert differing(service(lambda _, body: body, plan)) == lacking


def rename(body: Any, old: str, new: str) -> Any:
    body[new] = body.pop(old)
    return body


@pytest.mark.parametrize(
    ("path", "change", "text"),
    [
        (
            *("/v2/usage", lambda body: rename(body, "used", "consumed")),
            "unknown field consumed; missing field used",
        ),
        ("/v2/usage", lambda body: {**body, "burst": "5"}, "burst: Expected `int`, got `str`"),
        (
            *("/v2/categories", lambda body: body["data"]),
            "expected an object of data and meta, got list",
        ),
        ("/v2/events/cancellations", lambda _: 500, "status 500"),
        (
            *("/v2/coins", lambda body: rename(body, "meta", "paging")),
            "expected an object of data and meta, got an object of data, paging",
        ),
    ],
)
def test_a_changed_response_is_named(
    path: str, change: Callable[[Any], Any], text: str, service: Any
) -> None:
    found = service(lambda sent, body: change(body) if sent.url.path == path else body)
    assert differing(found) == {path: text}
    assert found[path].is_usable == (text != "status 500")


def test_a_changed_field_of_an_event_is_named_in_the_list_and_the_single_event(
    service: Any,
) -> None:
    def change(_: httpx.Request, body: Any) -> Any:
        for event in body.get("data", [body]) if isinstance(body, dict) else ():
            if "coins" in event:
                event["votes"] = 7
                event["date"] = event["date"].replace("Z", "+00:00")
                event["coins"] = [{**coin, "rank": 1} for coin in event["coins"]]
        return body

    found = differing(service(change))
    assert len(found) == 2
    for text in found.values():
        assert text == (
            "unknown field votes; date is not of the form YYYY-MM-DDThh:mm:ssZ; "
            "unknown field coins.rank"
        )


def test_a_refused_page_size_names_the_setting(service: Any) -> None:
    found = service(
        lambda sent, body: (
            400 if sent.url.path == "/v2/events" and "limit" in sent.url.params else body
        )
    )
    assert str(found["/v2/events"]) == "limit=100 is refused; set ALMANAC_PAGE_SIZE=50"


def test_an_export_at_another_path_and_in_another_form_names_the_settings(service: Any) -> None:
    def change(sent: httpx.Request, body: Any) -> Any:
        if sent.url.path == EXPORT:
            return body.replace(";", "|").replace("impactSummary", "summary")
        if "openapi" in body:
            text = json.dumps(body).replace(EXPORT, "/v2/export.csv")
            return json.loads(text.replace("SVC-Signature", "Acme-Signature"))
        return body

    found = service(change, paths={"/v2/export.csv": EXPORT, EXPORT: "/v2/events/none"})
    check = found["/v2/export.csv"]
    assert check.settings == {
        "ALMANAC_EXPORT_PATH": "/v2/export.csv",
        "ALMANAC_LIST_SEPARATOR": "'|'",
    }
    assert "it is not at /v2/events/export" in str(check)
    assert "unknown field summary; missing field impactSummary" in str(check)
    assert found["/v2/openapi.json"].settings == {"ALMANAC_SIGNATURE_HEADER": "Acme-Signature"}
