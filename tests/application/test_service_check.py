"""`almanac doctor --service` on a sandbox, and on a server that changes its responses."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from application.service_check import EndpointCheck, check_endpoints, describe_coins, look_up_coins
from catalog.contract.plans import PLANS
from catalog.sandbox.sandbox import Sandbox
from catalog.server.hosting import HostedApp
from resources.http.client import CatalogClient
from tests.application.cli.test_plain_errors import checks
from tests.hangs import HANGS_AFTER_S
from tests.pipeline.conftest import Almanac
from tests.resources.fakes import paginated
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


@pytest.mark.parametrize("plan", ["standard", "elite"])
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
        "ALMANAC_EXPORT_COLUMNS": "'summary=impactSummary'",
        "ALMANAC_LIST_SEPARATOR": "'|'",
    }
    assert "it is not at /v2/events/export" in str(check)
    assert "columns and their fields: id (id), " in str(check) and "summary (extra)" in str(check)
    assert "unknown field summary; missing field impactSummary" in str(check)
    assert found["/v2/openapi.json"].settings == {"ALMANAC_SIGNATURE_HEADER": "Acme-Signature"}


@pytest.fixture(scope="module")
def slugs(almanac_sandbox: Sandbox) -> dict[str, str]:
    """A slug of each kind: in the top 100, after it, and not tracked."""
    key = almanac_sandbox.new_key("enterprise", rate_per_s=1e6, burst=1_000_000)
    with CatalogClient(almanac_sandbox.base_url, key, limiter=Unlimited()) as client:
        pages = [json.loads(page.body)["data"] for page in paginated(client, feed="coins")]
    found = [coin for page in pages for coin in page]
    ranked = [coin for coin in found if coin["tracked"] and coin["rank"]]
    return {
        "top": ranked[0]["slug"],
        "later": next(coin["slug"] for coin in ranked if coin["rank"] > 150),
        "untracked": next(coin["slug"] for coin in found if not coin["tracked"]),
    }


@pytest.fixture
def free(almanac_sandbox: Sandbox) -> Iterator[CatalogClient]:
    key = almanac_sandbox.new_key("free")
    with CatalogClient(almanac_sandbox.base_url, key, limiter=Unlimited()) as client:
        yield client


def test_a_coin_outside_the_plan_is_told_from_a_slug_that_no_coin_has(
    free: CatalogClient, slugs: dict[str, str], tmp_path: Path
) -> None:
    asked = (slugs["top"], slugs["later"], "no-such-coin")
    watched = look_up_coins(asked, free, tmp_path / "none.duckdb")
    assert list(watched) == ["found", "not_covered", "unknown"]
    assert list(watched.values()) == [[slug] for slug in asked]
    text = describe_coins(watched, "free")
    assert "no coin has the slug no-such-coin" in text
    assert f"the plan free does not cover {slugs['later']}" in text


def test_doctor_checks_the_watchlist(
    almanac: Almanac, almanac_sandbox: Sandbox, slugs: dict[str, str]
) -> None:
    key = almanac_sandbox.new_key("elite")
    given = {"base_url": almanac_sandbox.base_url, "api_key": key}
    found = checks(almanac, code=0, **given, coins=f"{slugs['top']},{slugs['untracked']}")
    assert found["watchlist"]["holds"]
    assert found["watchlist"]["is_caution"]
    assert f"{slugs['untracked']} are not tracked" in found["watchlist"]["found"]
    found = checks(almanac, code=1, **given, coins=f"{slugs['top']},btc-misspelt")
    assert not found["watchlist"]["holds"]
    assert "no coin has the slug btc-misspelt: correct ALMANAC_COINS" in found["watchlist"]["found"]
