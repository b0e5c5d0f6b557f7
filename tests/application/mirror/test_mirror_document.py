import json
from pathlib import Path

import pytest
from openapi_spec_validator import OpenAPIV30SpecValidator

from application.web.mirror.mirror_document import mirror_document
from catalog.contract.openapi import openapi_document
from catalog.contract.plans import PLANS
from catalog.server.docs_page import render_docs
from tests.application.mirror.filled_home import mirroring
from tests.documented import Documented, Node
from tests.warehouse.landed_days import land
from tests.warehouse.normalise.catalog_bodies import json_event
from warehouse.history.merge import merge
from warehouse.home import Home

EVENT, COIN = "/v2/events/{id}", "/v2/coins/{slug}"
QUERIES = (
    *("limit=2", "as_of=2026-02-27&limit=2", "as_of=2020-01-01", "as_of=yesterday", "limit=0"),
    *("as_of=9999-12-31", "cursor=x", "since=2026-02-26&limit=3", "impactMin=9&limit=3"),
    *("from=2026-03-01&to=2026-03-03", "sortBy=impact_desc&limit=2", "keyword=a&limit=2", "q=b"),
    "categories=release&limit=2",
)  # fmt: skip


@pytest.mark.parametrize("plan", ["free", "enterprise"])
def test_answers_are_those_of_the_document(filled_home: Home, tmp_path: Path, plan: str) -> None:
    with mirroring(filled_home, tmp_path, plan=PLANS[plan]) as (_, client):
        documented = Documented(client)
        OpenAPIV30SpecValidator(documented.document).validate()
        (event, *_) = client.get("/v2/events").json()["data"]
        gone = client.get("/v2/events/cancellations?since=2020-01-01").json()["data"]
        assert documented.get(EVENT, names=gone[0]).status_code == 410
        names = {"id": event["id"], "slug": event["coins"][0]["slug"]}
        for path, operation in documented.operations():
            is_open = operation.get("security") == []
            for query in QUERIES if not is_open else ("",):
                answer = documented.get(path, names=names, params=query)
            if "etag" in answer.headers:
                tag = {"if-none-match": answer.headers["etag"]}
                assert documented.get(path, names=names, params=query, headers=tag).content == b""
            if "{" in path:
                documented.get(path, names={"id": "-", "slug": "-"})
        assert documented.count > 100
        has_export = PLANS[plan].export
        assert documented.unseen_headers() == (
            set() if has_export else {"last-modified", "content-disposition"}
        )
        seen = {status for _, status in documented.seen_statuses}
        assert not {"429", "403" * has_export} & seen
        assert {"304", "422", "400", "404"} <= seen


def made(needs_key: bool = False) -> Node:
    document: Node = json.loads(json.dumps(mirror_document(needs_key, clock_moves=False)))
    return document


def test_extensions_are_marked_and_limits_are_not_described() -> None:
    document, interface = made(), openapi_document()
    added = set(document["paths"]) - set(interface["paths"])
    assert added == {"/v2/events/{id}/history", "/v2/events/changes"}
    assert set(interface["paths"]) < set(document["paths"])
    for path, item in document["paths"].items():
        assert item["get"].get("x-extension", False) == (path in added)
        assert "429" not in item["get"]["responses"]
    for kind in ("headers", "responses", "schemas"):
        for name, node in document["components"][kind].items():
            is_page = name in ("KnownVersionPage", "ChangeRecordPage")
            is_added = name not in interface["components"][kind] and not is_page
            assert node.get("x-extension", False) == is_added, name
    assert not {h for h in document["components"]["headers"] if h.startswith("X-RateLimit")}
    assert document["security"] == [{}, *interface["security"]]
    assert made(needs_key=True)["security"] == interface["security"]
    page = render_docs(document)
    assert "X-As-Of" in page and 'id="getEventHistory"' in page and "extension</span>" in page


HIDDEN_ON_FREE = {
    *("description", "impact", "impactSummary", "sourceUrl", "snapshotUrl", "lastVerifiedAt"),
    "categories",
}


def test_fields_that_free_hides_are_null(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    shown = {name: value for name, value in json_event().items() if name != "categories"}
    free = {**shown, **dict.fromkeys(HIDDEN_ON_FREE - {"categories"}), "id": "free"}
    land(home, 0, plan="free", body=json.dumps({"data": [free], "meta": {}}).encode())
    merge(home)
    with mirroring(home, tmp_path / "mirror") as (_, client):
        documented = Documented(client)
        answer = documented.get(EVENT, names={"id": "free"})
        assert all(answer.json()[name] is None for name in HIDDEN_ON_FREE)
