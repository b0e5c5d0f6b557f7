"""The OpenAPI document of a mirror: extensions, unknown fields, and responses that fit it."""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from openapi_schema_validator import OAS30Validator, oas30_format_checker
from openapi_spec_validator import OpenAPIV30SpecValidator

from catalog.contract.openapi import openapi_document
from catalog.contract.plans import PLANS
from pipeline.mirror.mirror_document import mirror_document, name_fields
from tests.hangs import wait_for
from tests.mirror.filled_home import STARTS, mirroring
from tests.mirror.replays import replaying
from tests.warehouse.landed_days import land
from tests.warehouse.normalise.catalog_bodies import json_event
from warehouse.history.merge import merge
from warehouse.home import Home

Node = dict[str, Any]
AS_OF = "2026-03-04T00:00:00Z"


def resolved(document: Node, node: Any) -> Any:
    """Return the node with every reference resolved."""
    if isinstance(node, dict):
        if "$ref" in node:
            found: Any = document
            for step in node["$ref"].removeprefix("#/").split("/"):
                found = found[step]
            return resolved(document, found)
        return {key: resolved(document, value) for key, value in node.items()}
    if isinstance(node, list):
        return [resolved(document, value) for value in node]
    return node


def check(document: Node, path: str, answer: httpx.Response) -> None:
    """Fail if a response is not one that the document describes."""
    responses = document["paths"][path]["get"]["responses"]
    described = resolved(document, responses[str(answer.status_code)])
    for name, header in described.get("headers", {}).items():
        assert name in answer.headers or not header.get("required"), name
    if "application/json" in described.get("content", {}):
        schema = described["content"]["application/json"]["schema"]
        OAS30Validator(schema, format_checker=oas30_format_checker).validate(answer.json())


@pytest.mark.parametrize("plan", PLANS)
def test_each_response_fits_the_document(filled_home: Home, tmp_path: Path, plan: str) -> None:
    with mirroring(filled_home, tmp_path, plan=PLANS[plan]) as (_, client):
        document = client.get("/v2/openapi.json").json()
        OpenAPIV30SpecValidator(document).validate()
        (event, *_) = client.get("/v2/events").json()["data"]
        names = {"{id}": event["id"], "{slug}": event["coins"][0]["slug"]}
        for path in document["paths"]:
            place = path
            for name, value in names.items():
                place = place.replace(name, value)
            check(document, path, client.get(place))
            if "{" in path:
                check(document, path, client.get(path.replace("{id}", "-").replace("{slug}", "-")))
            if path.startswith("/v2/") and path != "/v2/openapi.json":
                times = [AS_OF, "2020-01-01", "yesterday"]
                found = [client.get(place, params={"as_of": time}) for time in times]
                for answer in found:
                    check(document, path, answer)
                assert [answer.status_code for answer in found[1:]] == [422, 400]


def test_a_cancelled_event_fits_the_document(filled_home: Home, tmp_path: Path) -> None:
    with mirroring(filled_home, tmp_path) as (_, client):
        document = client.get("/v2/openapi.json").json()
        since = {"since": "2020-01-01"}
        (row, *_) = client.get("/v2/events/cancellations", params=since).json()["data"]
        answer = client.get(f"/v2/events/{row['id']}")
        assert answer.status_code == 410
        check(document, "/v2/events/{id}", answer)


def test_a_replay_says_that_time_follows_its_clock(filled_home: Home, tmp_path: Path) -> None:
    with replaying(filled_home, tmp_path / "replay", STARTS + timedelta(hours=1)) as (_, client):
        document = client.get("/v2/openapi.json").json()
        OpenAPIV30SpecValidator(document).validate()
        assert "virtual clock" in document["info"]["description"]
        assert "virtual clock" in client.get("/docs").text
        for path in ("/v2/events", "/v2/events/changes", "/v2/coins", "/healthz"):
            check(document, path, client.get(path))
    with mirroring(filled_home, tmp_path / "mirror") as (_, client):
        assert "virtual clock" not in client.get("/docs").text


@pytest.mark.parametrize("name", ["slug", "createdAt", "updatedAt"])
def test_a_field_that_one_version_does_not_know_may_be_null(tmp_path: Path, name: str) -> None:
    home = Home(tmp_path / "home")
    unknown = {**json_event(), "id": "event-0", name: None}
    land(home, 0, body=json.dumps({"data": [unknown], "meta": {}}).encode())
    land(home, 1)
    merge(home)
    with mirroring(home, tmp_path / "mirror") as (_, client):
        document = client.get("/v2/openapi.json").json()
        assert document["x-never-known"] == []
        for path in ("/v2/events/{id}", "/v2/events/{id}/history"):
            answer = client.get(path.replace("{id}", "event-0"))
            check(document, path, answer)
        assert client.get("/v2/events/event-0").json()[name] is None


def test_a_coin_that_only_events_name_has_an_empty_icon(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    land(home, 0)
    merge(home)
    with mirroring(home, tmp_path / "mirror") as (_, client):
        document = client.get("/v2/openapi.json").json()
        answer = client.get("/v2/coins/bitcoin")
        check(document, "/v2/coins/{slug}", answer)
        assert answer.json()["iconUrl"] == ""
    # The validator of the tests does not check the format `uri`, so the schema is read.
    assert "format" not in document["components"]["schemas"]["Coin"]["properties"]["iconUrl"]


def test_extensions_are_marked_and_the_rest_is_the_interface(
    filled_home: Home, tmp_path: Path
) -> None:
    with mirroring(filled_home, tmp_path) as (_, client):
        document = client.get("/v2/openapi.json").json()
        page = client.get("/docs").text
    interface = openapi_document()
    added = set(document["paths"]) - set(interface["paths"])
    assert added == {"/v2/events/{id}/history", "/v2/events/changes"}
    assert set(interface["paths"]) < set(document["paths"])
    for path in added:
        assert document["paths"][path]["x-extension"]
        assert document["paths"][path]["get"]["description"].startswith("Extension: ")
    for kind in ("parameters", "headers", "responses", "schemas"):
        for name, node in document["components"][kind].items():
            assert node.get("x-extension", False) == (name not in interface["components"][kind])
    assert document["security"] == [{}, *interface["security"]]
    assert document["x-never-known"] == []
    assert "X-As-Of" in page
    assert 'id="getEventHistory"' in page


def test_a_mirror_that_other_machines_reach_needs_a_key() -> None:
    assert mirror_document((), needs_key=True)["security"] == openapi_document()["security"]


def test_the_shared_document_of_the_interface_stays_unchanged() -> None:
    before = json.dumps(openapi_document())
    mirror_document(("impact", "sourceUrl"), needs_key=False)
    assert json.dumps(openapi_document()) == before


def test_impact_is_known_if_its_band_is() -> None:
    assert name_fields({"impact", "source_url"}) == ("sourceUrl",)
    assert name_fields({"impact", "impact_band"}) == ("impact",)


def test_fields_that_the_plan_never_showed_are_named() -> None:
    document = mirror_document(("impact", "sourceUrl"), needs_key=False)
    assert document["x-never-known"] == ["impact", "sourceUrl"]
    assert "null: `impact`, `sourceUrl`." in " ".join(document["info"]["description"].split())
    for schema in ("Event", "CancelledEvent"):
        for name, field in document["components"]["schemas"][schema]["properties"].items():
            assert field.get("x-never-known", False) == (name in ("impact", "sourceUrl"))
            assert field["description"].count("never knew it") == field.get("x-never-known", False)


HIDDEN_ON_FREE = {
    *("description", "impact", "impactSummary", "sourceUrl", "snapshotUrl", "lastVerifiedAt"),
    "categories",
}


def test_fields_that_free_never_showed_are_null_until_a_publication_knows_them(
    tmp_path: Path,
) -> None:
    home = Home(tmp_path / "home")
    shown = {name: value for name, value in json_event().items() if name != "categories"}
    hidden = dict.fromkeys(HIDDEN_ON_FREE - {"categories"})
    free = {**shown, **hidden, "id": "free"}
    land(home, 0, plan="free", body=json.dumps({"data": [free], "meta": {}}).encode())
    merge(home)
    with mirroring(home, tmp_path / "mirror") as (mirror, client):
        first = client.get("/v2/openapi.json").json()
        assert set(first["x-never-known"]) == HIDDEN_ON_FREE
        answer = client.get("/v2/events/free")
        assert all(answer.json()[name] is None for name in HIDDEN_ON_FREE)
        check(first, "/v2/events/{id}", answer)
        assert "never knew it" in client.get("/docs").text

        tags = {path: client.get(path).headers["etag"] for path in TAGGED}
        assert set(statuses(client, tags).values()) == {304}
        land(home, 1)
        merge(home)
        wait_for(lambda: mirror.store.bounds.events >= 2)
        assert client.get("/v2/openapi.json").json()["x-never-known"] == []
        assert "never knew it" not in client.get("/docs").text
        # Only the answers that changed have another tag.
        assert statuses(client, tags) == {"/v2/events/free": 304, TAGGED[1]: 200}


TAGGED = ("/v2/events/free", "/v2/events?from=2026-01-01")


def statuses(client: httpx.Client, tags: dict[str, str]) -> dict[str, int]:
    """Return the status of each path with the tag of an earlier answer."""
    return {
        path: client.get(path, headers={"if-none-match": tag}).status_code
        for path, tag in tags.items()
    }
