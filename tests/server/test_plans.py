"""What each plan shows: each row of the tables of interface 8.1 and 8.3, asserted on answers."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from catalog.contract.openapi import openapi_document
from catalog.contract.plans import PLANS, Plan, clamp_window, find_plan_window
from catalog.contract.records import EVENT_FIELDS
from catalog.server.gating import project_event
from tests.server.bare_server import NOW, BareServer, BareStore, bare_server, event, linked

TODAY = datetime(2026, 6, 15, tzinfo=UTC)
DAY = timedelta(days=1)
SECOND = timedelta(seconds=1)
SINCE_2017 = datetime(2017, 1, 1, tzinfo=UTC)
TITLE_AND_DATE = {
    *("id", "slug", "title", "displayedDate", "date", "dateEnd", "dateType", "isEstimated"),
    *("coins", "createdAt", "updatedAt"),
}
ALL_FOUR = TITLE_AND_DATE | {"categories", "description"}
PROOF = {"impactSummary", "sourceUrl", "snapshotUrl", "lastVerifiedAt"}
SHOWN = {
    "free": (TITLE_AND_DATE, None),
    "standard": (ALL_FOUR, None),
    "pro": (ALL_FOUR | PROOF, "High"),
    "elite": (ALL_FOUR | PROOF, 6.5),
    "enterprise": (ALL_FOUR | PROOF, 6.5),
}
"""The fields with a value, and an impact of 6.5."""
TABLES = {
    "free": (3_000, 1, 5, 1, 1, 7, 0, 100, 86_400, "none", False, False, None),
    "standard": (30_000, 3, 15, 5, 3, 90, 0, None, 60, "none", False, False, None),
    "pro": (300_000, 10, 50, 10, 5, None, 30, None, 60, "banded", False, False, None),
    "elite": (3_000_000, 25, 150, 20, 10, None, None, None, 60, "precise", True, True, 60),
    "enterprise": (None, 100, 500, None, None, None, None, None, 60, "precise", True, True, 60),
}
COLUMNS = (
    *("monthlyQuota", "ratePerS", "burst", "keysMax", "seats", "horizonDays", "pastDays"),
    *("coverageTop", "freshnessS", "impact", "webhooks", "export", "exportIntervalS"),
)
OFFSETS = [
    *(datetime(2016, 12, 31, 23, 59, 59, tzinfo=UTC) - TODAY, SINCE_2017 - TODAY),
    *(-30 * DAY - SECOND, -30 * DAY, -SECOND, timedelta(0)),
    *(8 * DAY - SECOND, 8 * DAY, 91 * DAY - SECOND, 91 * DAY, 730 * DAY),
]


@pytest.fixture(scope="module")
def server() -> Iterator[BareServer]:
    events = [
        event("a"),
        event("of-the-next", coins=(linked("next"),)),
        event("of-the-unranked", coins=(linked("unranked"),)),
        event("of-both", coins=(linked("unranked"), linked("hundredth"))),
        event("cancelled"),
        event("withdrawn"),
        *(event(f"at-{n}", TODAY + offset) for n, offset in enumerate(OFFSETS)),
    ]
    with bare_server(store=BareStore(*events)) as server:
        yield server


def test_limits_are_those_of_the_tables_also_in_the_document() -> None:
    rows = openapi_document()["x-plans"]
    assert {plan: tuple(row[name] for name in COLUMNS) for plan, row in rows.items()} == TABLES


@pytest.mark.parametrize("plan", PLANS.values(), ids=lambda plan: plan.name)
class TestTableOfTheInterface:
    def test_a_single_event_is_found_inside_the_window(
        self, server: BareServer, plan: Plan
    ) -> None:
        for n, offset in enumerate(OFFSETS):
            status = 200 if find_plan_window(plan, NOW).overlaps(TODAY + offset, None) else 404
            assert server.get(f"/v2/events/at-{n}", plan.name).status_code == status, offset

    def test_coverage_hides_events_and_refuses_coins(self, server: BareServer, plan: Plan) -> None:
        top = plan.coverage_top
        for path in ("/v2/events", "/v2/coins"):
            assert server.get(path, plan.name).status_code == 200
            assert server.store.queries[-1].coverage_top == top
        for event_id, is_covered in (
            *(("a", True), ("of-both", True), ("of-the-next", not top)),
            ("of-the-unranked", not top),
        ):
            status = 200 if is_covered else 404
            assert server.get(f"/v2/events/{event_id}", plan.name).status_code == status
        assert server.get("/v2/coins/hundredth", plan.name).status_code == 200
        for slug in ("next", "unranked"):
            answer = server.get(f"/v2/coins/{slug}", plan.name)
            assert answer.status_code == (403 if top else 200), slug
            if top:
                assert answer.json()["error"]["code"] == "tier_required"
                assert "needs the plan Standard or above" in answer.json()["message"]
        assert server.get("/v2/coins/nope", plan.name).status_code == 404

    def test_a_cancelled_event_is_gone(self, server: BareServer, plan: Plan) -> None:
        gone = server.get("/v2/events/cancelled", plan.name)
        assert (gone.status_code, gone.json()["error"]["code"]) == (410, "event_cancelled")
        assert gone.json()["id"] == "cancelled"
        assert gone.json()["cancelledAt"] == "2026-06-15T10:00:00Z"
        assert server.get("/v2/events/withdrawn", plan.name).status_code == 404

    def test_event_fields(self, server: BareServer, plan: Plan) -> None:
        fields, impact = SHOWN[plan.name]
        for shown in (
            server.get("/v2/events?limit=1", plan.name).json()["data"][0],
            server.get("/v2/events/a", plan.name).json(),
        ):
            hidden_key = {"categories"} if plan.name == "free" else set()
            assert list(shown) == [name for name in EVENT_FIELDS if name not in hidden_key]
            valued = {name for name, value in shown.items() if value is not None}
            assert valued - {"impact"} == fields - {"dateEnd"}
            assert shown["impact"] == impact
        schema = openapi_document()["components"]["schemas"]["Event"]["properties"]
        stated = {name: each.get("x-plans", {}).get(plan.name) for name, each in schema.items()}
        assert {name for name, form in stated.items() if form == "absent"} == hidden_key
        unstated = {name for name, form in stated.items() if form in (None, "value")}
        assert unstated - {"impact"} == fields
        form = "null" if impact is None else "band" if impact == "High" else "value"
        assert (stated["impact"] or "value") == form

    def test_freshness(self, server: BareServer, plan: Plan) -> None:
        for path in (
            *("/v2/events", "/v2/events/a", "/v2/coins", "/v2/coins/first"),
            *("/v2/categories", "/v2/events/cancellations"),
        ):
            server.store.times.clear()
            server.get(path, plan.name)
            assert server.store.times == [NOW - timedelta(seconds=TABLES[plan.name][8])], path

    def test_filters_of_a_higher_plan_are_refused(self, server: BareServer, plan: Plan) -> None:
        elite = plan.name in ("elite", "enterprise")
        for query, allowed in (
            ("?categories=release", plan.name != "free"),
            ("/export", elite),
            ("?impactMin=5", elite),
            ("?sortBy=impact_desc", elite),
            ("?sortBy=date_asc", True),
            ("?coins=first", True),
            ("?keyword=TITLE", True),
        ):
            answer = server.get(f"/v2/events{query}", plan.name)
            assert answer.status_code == (200 if allowed else 403), query
            if not allowed:
                assert answer.json()["error"]["code"] == "tier_required"
        listing = openapi_document()["paths"]["/v2/events"]["get"]["parameters"]
        documented = {each["name"]: each["x-plans"] for each in listing if "x-plans" in each}
        assert {name: plans[plan.name] for name, plans in documented.items()} == {
            **{"categories": plan.name != "free", "impactMin": elite}
        }
        query = server.store.queries[-1]
        assert (query.keyword, query.keyword_in_description) == ("title", plan.name != "free")

    def test_counters_of_a_coin(self, server: BareServer, plan: Plan) -> None:
        assert server.get("/v2/coins", plan.name).status_code == 200
        window = clamp_window(plan, NOW, lower=None, upper=None)
        assert server.store.queries[-1].upcoming == window
        shown = server.get("/v2/coins/first", plan.name).json()
        scored = plan.name not in ("free", "standard")
        assert shown["upcomingCount"] == 4
        assert (shown["majorCount"], shown["peakImpact"]) == ((2, 9.5) if scored else (None, None))


def test_pro_sees_the_band_of_a_score_and_all_a_band_where_the_score_is_unknown() -> None:
    for score, band in (
        *((0.0, "Low"), (2.4, "Low"), (2.5, "Mid"), (4.9, "Mid"), (5.0, "High")),
        *((7.4, "High"), (7.5, "Critical"), (10.0, "Critical"), (None, None)),
    ):
        scored = event("scored", impact=score)
        assert project_event(scored, PLANS["pro"]).impact == band
        assert project_event(scored, PLANS["elite"]).impact == score
    banded = event("banded", impact=None, impact_band="High")
    assert {project_event(banded, PLANS[plan]).impact for plan in ("pro", "elite")} == {"High"}
