"""What each plan shows: each row of the table of interface 8.3, asserted on answers."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from catalog.contract.plans import PLANS
from catalog.contract.records import EVENT_FIELDS
from catalog.server.gating import ViewNames, shown_event
from tests.server.small_catalog import (
    DAY,
    NOW,
    SECOND,
    TODAY,
    Service,
    TimedStore,
    event,
    serving,
    view,
)

TITLE_AND_DATE = {
    *("id", "slug", "title", "displayedDate", "date", "dateEnd", "dateType", "isEstimated"),
    *("coins", "createdAt", "updatedAt"),
}
ALL_FOUR = TITLE_AND_DATE | {"categories", "description"}
PROOF = {"impactSummary", "sourceUrl", "snapshotUrl", "lastVerifiedAt"}


@dataclass(frozen=True)
class Row:
    plan: str
    upcoming_days: int | None
    coverage: str
    past_days: int | None
    fields: set[str]
    impact: object
    proof: bool
    delay_s: int
    webhooks: bool
    export: bool


# Plan, upcoming, coins, past, fields, impact of 6.5, proof, freshness, webhooks, export
INTERFACE_8_3 = [
    Row("free", 7, "top 100", 0, TITLE_AND_DATE, None, False, 86_400, False, False),
    Row("standard", 90, "all", 0, ALL_FOUR, None, False, 60, False, False),
    Row("pro", None, "all", 30, ALL_FOUR, "High", True, 60, False, False),
    Row("elite", None, "all", None, ALL_FOUR, 6.5, True, 60, True, True),
    Row("enterprise", None, "all", None, ALL_FOUR, 6.5, True, 60, True, True),
]
# Plan, monthly quota, rate, burst, keys, seats
INTERFACE_8_1 = [
    ("free", 3_000, 1, 5, 1, 1),
    ("standard", 30_000, 3, 15, 5, 3),
    ("pro", 300_000, 10, 50, 10, 5),
    ("elite", 3_000_000, 25, 150, 20, 10),
    ("enterprise", None, 100, 500, None, None),
]

OFFSETS = {
    "of 2016": datetime(2016, 12, 31, 23, 59, 59, tzinfo=UTC) - TODAY,
    "of 2017": datetime(2017, 1, 1, tzinfo=UTC) - TODAY,
    "31 days ago": -30 * DAY - SECOND,
    "30 days ago": -30 * DAY,
    "yesterday": -SECOND,
    "today": timedelta(0),
    "in 7 days": 8 * DAY - SECOND,
    "in 8 days": 8 * DAY,
    "in 90 days": 91 * DAY - SECOND,
    "in 91 days": 91 * DAY,
    "in 2 years": 730 * DAY,
}


def past_names(row: Row) -> list[str]:
    return {0: [], 30: ["30 days ago", "yesterday"]}.get(
        -1 if row.past_days is None else row.past_days,
        ["of 2017", "31 days ago", "30 days ago", "yesterday"],
    )


def upcoming_names(row: Row) -> list[str]:
    names = list(OFFSETS)[list(OFFSETS).index("today") :]
    last = {7: "in 7 days", 90: "in 90 days", None: "in 2 years"}[row.upcoming_days]
    return names[: names.index(last) + 1]


pytestmark = pytest.mark.usefixtures("kept_in")


@pytest.fixture(scope="module")
def service(kept_in: str) -> Iterator[Service]:
    events = [event(name.replace(" ", "-"), TODAY + offset) for name, offset in OFFSETS.items()]
    events += [
        event("of-the-hundredth", TODAY + DAY, coins=("hundredth", "unranked")),
        event("of-the-next", TODAY + DAY, coins=("next",)),
        event("of-the-unranked", TODAY + DAY, coins=("unranked",)),
        event("unscored", TODAY + DAY, impact=None, coins=("next",)),
    ]
    with serving(view(events)) as service:
        yield service


def dated(ids: list[str]) -> list[str]:
    known = {name.replace(" ", "-"): name for name in OFFSETS}
    return [known[event_id] for event_id in ids if event_id in known]


@pytest.mark.parametrize("row", INTERFACE_8_3, ids=lambda row: row.plan)
class TestTableOfTheInterface:
    def test_upcoming_is_the_default_range(self, service: Service, row: Row) -> None:
        assert dated(service.all_ids("/v2/events", row.plan)) == upcoming_names(row)

    def test_past_is_as_deep_as_the_plan(self, service: Service, row: Row) -> None:
        ids = service.all_ids("/v2/events?from=2016-01-01&to=2100-01-01", row.plan)
        assert dated(ids) == past_names(row) + upcoming_names(row)

    def test_a_range_outside_the_plan_is_empty_and_no_error(
        self, service: Service, row: Row
    ) -> None:
        assert service.ids("/v2/events?from=2016-01-01&to=2016-12-31", row.plan) == []

    def test_a_single_event_is_found_inside_the_window_alone(
        self, service: Service, row: Row
    ) -> None:
        shown = set(past_names(row) + upcoming_names(row))
        statuses = {
            name: service.get(f"/v2/events/{name.replace(' ', '-')}", row.plan).status_code
            for name in OFFSETS
        }
        assert statuses == {name: 200 if name in shown else 404 for name in OFFSETS}

    def test_coin_coverage(self, service: Service, row: Row) -> None:
        free = row.coverage == "top 100"
        ids = set(service.all_ids("/v2/events", row.plan))
        assert "of-the-hundredth" in ids
        assert ("of-the-next" in ids, "of-the-unranked" in ids) == (not free, not free)
        slugs = [row["slug"] for row in service.get("/v2/coins", row.plan).json()["data"]]
        assert slugs == ["first", "hundredth"] + ([] if free else ["next", "unranked"])
        for name, status in (("first", 200), ("next", 403 if free else 200)):
            assert service.get(f"/v2/coins/{name}", row.plan).status_code == status
        assert service.get("/v2/events/of-the-next", row.plan).status_code == (404 if free else 200)

    def test_event_fields(self, service: Service, row: Row) -> None:
        for shown in (
            service.get("/v2/events?coins=first&limit=1", row.plan).json()["data"][0],
            service.get("/v2/events/today", row.plan).json(),
        ):
            hidden_key = {"categories"} if row.plan == "free" else set()
            assert list(shown) == [name for name in EVENT_FIELDS if name not in hidden_key]
            expected = row.fields | (PROOF if row.proof else set())
            valued = {name for name, value in shown.items() if value is not None}
            assert valued - {"impact"} == expected - {"dateEnd"}
            assert shown["impact"] == row.impact

    def test_values_are_those_of_the_catalog(self, service: Service, row: Row) -> None:
        shown = service.get("/v2/events/today", row.plan).json()
        whole = {
            "id": "today",
            "slug": "slug-today",
            "title": "Title of today",
            "description": "Description of today",
            "displayedDate": "16 Jun",
            "date": "2026-06-15T00:00:00Z",
            "dateEnd": None,
            "dateType": "date",
            "isEstimated": False,
            "categories": ["Release", "Hard Fork"],
            "coins": [
                {"slug": "first", "symbol": "fir", "name": "First"},
                {"slug": "hundredth", "symbol": "hun", "name": "Hundredth"},
            ],
            "impactSummary": "It matters.",
            "sourceUrl": "https://source.example/1",
            "snapshotUrl": "https://snapshot.example/1.png",
            "lastVerifiedAt": "2026-05-03T00:00:00Z",
            "createdAt": "2026-05-01T00:00:00Z",
            "updatedAt": "2026-05-02T00:00:00Z",
        }
        visible = row.fields | (PROOF if row.proof else set())
        assert {name: shown[name] for name in visible} == {name: whole[name] for name in visible}

    def test_freshness(self, service: Service, row: Row) -> None:
        lag = timedelta(seconds=row.delay_s)
        for path in (
            *("/v2/events", "/v2/events/today", "/v2/coins", "/v2/coins/first"),
            *("/v2/categories", "/v2/events/cancellations"),
        ):
            service.store.requested.clear()
            service.get(path, row.plan)
            assert service.store.requested == [NOW - lag], path

    def test_export(self, service: Service, row: Row) -> None:
        answer = service.get("/v2/events/export", row.plan)
        assert answer.status_code == (200 if row.export else 403)
        if not row.export:
            assert answer.json()["error"]["code"] == "tier_required"

    def test_a_coin_outside_the_coverage_is_refused_and_only_an_unknown_one_not_found(
        self, service: Service, row: Row
    ) -> None:
        for slug in ("next", "unranked"):
            answer = service.get(f"/v2/coins/{slug}", row.plan)
            assert answer.status_code == (403 if row.plan == "free" else 200), slug
            if row.plan == "free":
                assert answer.json()["error"]["code"] == "tier_required"
                assert "needs the plan Standard or above" in answer.json()["message"]
        assert service.get("/v2/coins/nope", row.plan).status_code == 404

    def test_webhooks(self, service: Service, row: Row) -> None:
        assert PLANS[row.plan].webhooks == row.webhooks

    def test_filters_of_a_higher_plan_are_refused(self, service: Service, row: Row) -> None:
        elite = row.plan in ("elite", "enterprise")
        for query, allowed in (
            ("categories=release", row.plan != "free"),
            ("impactMin=5", elite),
            ("sortBy=impact_desc", elite),
            ("sortBy=date_asc", True),
            ("coins=first", True),
            ("keyword=title", True),
        ):
            answer = service.get(f"/v2/events?{query}", row.plan)
            assert answer.status_code == (200 if allowed else 403), query
            if not allowed:
                assert answer.json()["error"]["code"] == "tier_required"

    def test_keyword_searches_only_what_the_plan_shows(self, service: Service, row: Row) -> None:
        assert "today" in service.all_ids("/v2/events?keyword=TITLE%20of%20today", row.plan)
        found = "today" in service.all_ids("/v2/events?keyword=description%20of", row.plan)
        assert found == ("description" in row.fields)

    def test_counters_of_a_coin(self, service: Service, row: Row) -> None:
        shown = service.get("/v2/coins/first", row.plan).json()
        listed = service.get("/v2/events?coins=first", row.plan).json()["meta"]["total"]
        assert shown["upcomingCount"] == listed == len(upcoming_names(row))
        scored = row.plan not in ("free", "standard")
        assert (shown["majorCount"], shown["peakImpact"]) == ((0, 6.5) if scored else (None, None))

    def test_usage_names_the_plan(self, service: Service, row: Row) -> None:
        assert service.get("/v2/usage", row.plan).json()["plan"] == row.plan


@pytest.mark.parametrize(
    ("score", "band"),
    [
        *((0.0, "Low"), (2.4, "Low"), (2.5, "Mid"), (4.9, "Mid"), (5.0, "High")),
        *((7.4, "High"), (7.5, "Critical"), (10.0, "Critical"), (None, None)),
    ],
)
def test_pro_sees_the_band_of_a_score(score: float | None, band: str | None) -> None:
    with serving(view([event("scored", impact=score)])) as service:
        assert service.get("/v2/events/scored", "pro").json()["impact"] == band
        assert service.get("/v2/events/scored", "elite").json()["impact"] == score


def test_an_event_without_a_score_counts_as_upcoming_and_never_as_major() -> None:
    events = [
        event("a", impact=None),
        event("b", impact=7.5),
        event("c", impact=7.4),
        event("past", TODAY - DAY, impact=9.9),
    ]
    with serving(view(events)) as service:
        shown = service.get("/v2/coins/first", "pro").json()
        assert (shown["upcomingCount"], shown["majorCount"], shown["peakImpact"]) == (3, 1, 7.5)


@pytest.mark.parametrize("limits", INTERFACE_8_1, ids=lambda limits: limits[0])
def test_limits_of_the_table_8_1(limits: tuple[str, int | None, int, int, int, int]) -> None:
    plan = PLANS[limits[0]]
    assert limits[1:] == (
        *(plan.monthly_quota, plan.rate_per_s, plan.burst),
        *(plan.keys_max, plan.seats),
    )


def test_free_ranks_its_coverage_by_the_day_it_sees() -> None:
    before, after = event("a", coins=("next",)), event("a", coins=("first",))
    store = TimedStore(view([before])).then(NOW - 23 * timedelta(hours=1), view([after]))
    with serving(store) as service:
        assert service.ids("/v2/events", "free") == []
        assert service.ids("/v2/events", "standard") == ["a"]


@pytest.mark.parametrize("hidden", sorted(PROOF))
def test_a_plan_that_hides_one_of_the_proof_fields_shows_the_others(hidden: str) -> None:
    """The table of the contract decides on each field; no field stands for another."""
    plan = replace(PLANS["pro"], event_fields=PLANS["pro"].event_fields - {hidden})
    shown = msgspec.to_builtins(shown_event(event("a"), plan, ViewNames(view(), ())))
    assert {name for name in PROOF if shown[name] is None} == {hidden}
