"""The OpenAPI document of a mirror: extensions, unknown fields, and responses that fit it."""

import json
from pathlib import Path

import httpx
import pytest
from openapi_spec_validator import OpenAPIV30SpecValidator

from application.web.mirror.mirror_document import mirror_document
from catalog.contract.openapi import openapi_document
from catalog.contract.plans import PLANS
from catalog.server.docs_page import render_docs
from tests.application.mirror.filled_home import STARTS, mirroring
from tests.application.mirror.replays import replaying
from tests.documented import Documented, Node
from tests.warehouse.landed_days import land
from tests.warehouse.normalise.catalog_bodies import json_event
from warehouse.history.merge import merge
from warehouse.home import Home

EVENT, COIN = "/v2/events/{id}", "/v2/coins/{slug}"
QUERIES = (
    *("", "as_of=2026-02-27", "as_of=2020-01-01", "as_of=yesterday", "as_of=0001-01-01"),
    *("as_of=9999-12-31", "limit=2", "limit=0", "cursor=x", "since=2026-02-26"),
    *("from=2026-03-01&to=2026-03-20", "impactMin=5", "sortBy=impact_desc", "keyword=a", "q=b"),
    *("categories=release",),
)  # fmt: skip


@pytest.mark.parametrize("plan", PLANS)
def test_answers_are_those_that_the_document_describes(
    filled_home: Home, tmp_path: Path, plan: str
) -> None:
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
                    again = documented.get(path, names=names, params=query, headers=tag)
                    assert again.status_code == 304
            if "{" in path:
                documented.get(path, names={"id": "-", "slug": "-"})
        assert documented.count > 150
        has_export = PLANS[plan].export
        assert documented.unseen_headers() == (
            set() if has_export else {"last-modified", "content-disposition"}
        )
        assert not {"429", "403" * has_export} & {s for _, s in documented.seen_statuses}
        assert {"422", "400", "404"} <= {s for _, s in documented.seen_statuses}


def test_a_replay_says_that_time_follows_its_clock(filled_home: Home, tmp_path: Path) -> None:
    with replaying(filled_home, tmp_path / "replay", STARTS) as (_, client):
        documented = Documented(client)
        assert "virtual clock" in documented.document["info"]["description"]
        assert "virtual clock" in client.get("/docs").text
        for path in ("/v2/events", "/v2/events/changes", "/v2/coins", "/healthz"):
            documented.get(path)


@pytest.mark.parametrize("name", ["slug", "createdAt", "updatedAt"])
def test_a_field_that_one_version_does_not_know_may_be_null(tmp_path: Path, name: str) -> None:
    home = Home(tmp_path / "home")
    unknown = {**json_event(), "id": "event-0", name: None}
    land(home, 0, body=json.dumps({"data": [unknown], "meta": {}}).encode())
    land(home, 1)
    merge(home)
    with mirroring(home, tmp_path / "mirror") as (_, client):
        documented = Documented(client)
        assert documented.document["x-never-known"] == []
        documented.get("/v2/events/{id}/history", names={"id": "event-0"})
        assert documented.get(EVENT, names={"id": "event-0"}).json()[name] is None
        # A coin that only events name has an empty address.
        assert documented.get(COIN, names={"slug": "bitcoin"}).json()["iconUrl"] == ""
        coin = documented.document["components"]["schemas"]["Coin"]["properties"]
        assert "format" not in coin["iconUrl"]


def made(*columns: str, needs_key: bool = False, clock_moves: bool = False) -> Node:
    made_document = mirror_document(frozenset(columns), needs_key, clock_moves)
    document: Node = json.loads(json.dumps(made_document))
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


def test_a_score_whose_band_is_known_is_not_named() -> None:
    before = json.dumps(openapi_document())
    assert made("impact", "impact_band", "source_url")["x-never-known"] == ["impact", "sourceUrl"]
    assert made("impact")["x-never-known"] == []
    assert json.dumps(openapi_document()) == before, "the document of the interface is shared"


HIDDEN_ON_FREE = {
    *("description", "impact", "impactSummary", "sourceUrl", "snapshotUrl", "lastVerifiedAt"),
    "categories",
}
TAGGED = ("/v2/events/free", "/v2/events?from=2026-01-01")


def statuses(client: httpx.Client, tags: dict[str, str]) -> list[int]:
    """Return the status of each path with the tag of an earlier answer."""
    return [
        client.get(path, headers={"if-none-match": tag}).status_code for path, tag in tags.items()
    ]


def test_fields_that_free_never_showed_are_null_until_a_publication_knows_them(
    tmp_path: Path,
) -> None:
    home = Home(tmp_path / "home")
    shown = {name: value for name, value in json_event().items() if name != "categories"}
    free = {**shown, **dict.fromkeys(HIDDEN_ON_FREE - {"categories"}), "id": "free"}
    land(home, 0, plan="free", body=json.dumps({"data": [free], "meta": {}}).encode())
    merge(home)
    with mirroring(home, tmp_path / "mirror") as (_, client):
        documented = Documented(client)
        assert set(documented.document["x-never-known"]) == HIDDEN_ON_FREE
        answer = documented.get(EVENT, names={"id": "free"})
        assert all(answer.json()[name] is None for name in HIDDEN_ON_FREE)
        assert "never knew it" in client.get("/docs").text
        tags = {path: client.get(path).headers["etag"] for path in TAGGED}
        assert statuses(client, tags) == [304, 304]
        land(home, 1)
        merge(home)
        assert client.get("/v2/openapi.json").json()["x-never-known"] == []
        assert "never knew it" not in client.get("/docs").text
        # Only the answers that changed have another tag.
        assert statuses(client, tags) == [304, 200]
