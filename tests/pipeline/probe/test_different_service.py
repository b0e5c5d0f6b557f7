"""The service that the probe is tried on really differs, in each point."""

import httpx

from catalog.sandbox.sandbox import Sandbox
from tests.hangs import HANGS_AFTER_S
from tests.pipeline.probe.different_service import (
    DIFFERENCES,
    EXPORT_PATH,
    LIMIT_MAX,
    different_service,
)


def test_the_service_differs_in_each_point(almanac_sandbox: Sandbox) -> None:
    key = almanac_sandbox.keys["elite"]
    with (
        different_service(almanac_sandbox, DIFFERENCES) as service,
        httpx.Client(base_url=service.base_url, verify=False, timeout=HANGS_AFTER_S) as client,
    ):
        assert client.get("/v2/usage").status_code == 401
        client.headers["x-api-key"] = key
        usage = client.get("/v2/usage")
        assert set(usage.json()) == {"tier", "requests", "periodEnd"}
        assert usage.headers["x-ratelimit-reset"].isdigit()
        categories = client.get("/v2/categories").json()
        assert [row["id"] for row in categories] == list(range(1, len(categories) + 1))
        refused = client.get("/v2/events", params={"limit": "x"})
        assert (refused.status_code, refused.text[:9]) == (422, "<!doctype")
        page = client.get("/v2/events", params={"limit": 100}).json()
        assert (len(page["data"]), page["meta"]["cursor"]) == (LIMIT_MAX, "offset-1")
        second = client.get("/v2/events", params={"limit": 100, "cursor": "offset-1"}).json()
        assert second["data"][0]["id"] != page["data"][0]["id"]
        event = client.get(f"/v2/events/{page['data'][0]['id']}").json()
        assert event["data"]["communityVotes"] == 7
        named = {"categories": "1", "limit": 1}
        assert (
            categories[0]["name"]
            in client.get("/v2/events", params=named).json()["data"][0]["categories"]
        )
        assert client.get("/v2/events/export").status_code == 404
        days = {"from": "2026-03-01", "to": "2026-03-02"}
        export = client.get(EXPORT_PATH, params=days)
        assert export.text.split("\r\n")[0].split(",")[-1] == "id"
        assert len(service.requests) == 10
