"""The running server agrees with the plain model for any sequence of changes and requests."""

import string
from contextlib import ExitStack
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlencode

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from catalog.contract.plans import PLANS
from tests.server import plain_model, small_catalog
from tests.server.plain_model import Catalog, PlainBucket
from tests.server.published_store import published
from tests.server.small_catalog import (
    DAY,
    NOW,
    TODAY,
    Service,
    TimedStore,
    event,
    grant,
    serving,
    view,
)

IDS = [f"e{n}" for n in range(12)]
# Instants at the edges of every window: days from today, and a second before and after.
DAYS = st.sampled_from([-400, -31, -30, -29, -2, -1, 0, 1, 6, 7, 8, 9, 89, 90, 91, 92, 500])
EDGES = st.sampled_from([-1, 0, 1, 43_200, 86_399])
INSTANTS = st.builds(lambda d, s: TODAY + timedelta(days=d, seconds=s), DAYS, EDGES)
SLUGS = st.lists(
    st.sampled_from(["first", "hundredth", "next", "unranked"]), min_size=1, max_size=3, unique=True
)
CATEGORIES = st.lists(
    st.sampled_from(["release", "airdrop", "fork"]), min_size=1, max_size=2, unique=True
)
SCORES = st.one_of(st.none(), st.sampled_from([0.0, 2.4, 2.5, 4.9, 5.0, 7.4, 7.5, 10.0]))
WORDS = st.text(string.ascii_letters, min_size=1, max_size=3)
LIMITED = {"free": (1, 5, 40), "standard": (3, 15, 60)}


@st.composite
def contents(draw: st.DrawFn) -> dict[str, Any]:
    date = draw(INSTANTS)
    span = draw(st.sampled_from([None, timedelta(seconds=1), DAY, 45 * DAY]))
    return {
        "date": date,
        "date_end": None if span is None else date + span,
        # A warehouse keeps them sorted.
        "coins": tuple(sorted(draw(SLUGS))),
        "categories": tuple(sorted(draw(CATEGORIES))),
        "impact": draw(SCORES),
        "title": draw(WORDS),
        "description": draw(st.one_of(st.none(), WORDS)),
        "is_estimated": draw(st.booleans()),
    }


@st.composite
def filters(draw: st.DrawFn) -> dict[str, Any]:
    chosen: dict[str, Any] = {}
    lower, upper = sorted((draw(INSTANTS), draw(INSTANTS)))
    for name, value in (
        ("from", st.just(lower)),
        ("to", st.just(upper)),
        ("coins", SLUGS),
        ("categories", CATEGORIES),
        ("impactMin", st.sampled_from([0.0, 2.5, 7.5, 10.0])),
        ("keyword", st.text(string.ascii_letters, min_size=1, max_size=1)),
        ("sortBy", st.sampled_from(["date_asc", "impact_desc"])),
    ):
        if draw(st.integers(0, 3)) == 0:
            chosen[name] = draw(value)
    return chosen


def query_of(chosen: dict[str, Any]) -> str:
    values = {
        name: plain_model.text(value)
        if isinstance(value, datetime)
        else ",".join(value)
        if isinstance(value, list)
        else value
        for name, value in chosen.items()
    }
    return urlencode(values)


class ServerAgainstModel(RuleBasedStateMachine):
    """Changes take effect at the instant of the clock; answers lag by the freshness of a plan."""

    service: Service
    store: TimedStore

    def __init__(self) -> None:
        super().__init__()
        self.undo = ExitStack()

    @initialize()
    def start(self) -> None:
        self.monotonic_ns = 0
        self.store = TimedStore(view())
        keys = [
            grant(plan, f"limited-{plan}", rate_per_s=rate, burst=burst, monthly_quota=quota)
            for plan, (rate, burst, quota) in LIMITED.items()
        ]
        self.service = self.undo.enter_context(
            serving(self.store, keys=keys, monotonic_ns=lambda: self.monotonic_ns)
        )
        self.now = NOW
        self.catalogs: list[tuple[datetime, Catalog]] = [(NOW - 3000 * DAY, Catalog())]
        self.buckets = {
            plan: PlainBucket(rate, burst, burst, quota)
            for plan, (rate, burst, quota) in LIMITED.items()
        }
        self.pages: list[tuple[str, dict[str, Any], int, str, tuple[Any, ...]]] = []

    def teardown(self) -> None:
        self.undo.close()

    def catalog_of(self, plan: str) -> Catalog:
        seen = self.now - timedelta(seconds=plain_model.LAG_S.get(plan, 60))
        return next(known for since, known in reversed(self.catalogs) if since <= seen)

    def change(self, catalog: Catalog) -> None:
        self.catalogs.append((self.now, catalog))
        self.store.then(self.now, view(list(catalog.events.values()), cancelled=catalog.cancelled))

    @rule(seconds=st.sampled_from([1, 59, 60, 61, 3600, 86_399, 86_400]))
    def pass_time(self, seconds: int) -> None:
        self.now += timedelta(seconds=seconds)
        self.service.clock.now = self.now

    @rule(event_id=st.sampled_from(IDS), fields=contents())
    def publish_or_update(self, event_id: str, fields: dict[str, Any]) -> None:
        catalog = self.catalogs[-1][1].copy()
        if event_id in catalog.cancelled:
            return
        known = catalog.events.get(event_id) or event(event_id)
        catalog.events[event_id] = replace(known, **fields)
        self.change(catalog)

    @rule(event_id=st.sampled_from(IDS), cancel=st.booleans())
    def cancel_or_withdraw(self, event_id: str, cancel: bool) -> None:
        catalog = self.catalogs[-1][1].copy()
        if catalog.events.pop(event_id, None) is None:
            return
        if cancel:
            catalog.cancelled[event_id] = self.now
        self.change(catalog)

    @rule(plan=st.sampled_from(list(PLANS)), chosen=filters(), limit=st.integers(1, 5))
    def list_all_pages(self, plan: str, chosen: dict[str, Any], limit: int) -> None:
        path = f"/v2/events?limit={limit}&{query_of(chosen)}"
        if plain_model.refused(plan, chosen):
            assert self.service.get(path, plan).json()["error"]["code"] == "tier_required"
            return
        expected = plain_model.listed(self.catalog_of(plan), plan, self.now, chosen)
        pages = self.service.pages(path, plan)
        rows = [row for page in pages for row in page["data"]]
        assert rows == [plain_model.shown(found, plan) for found in expected]
        assert {page["meta"]["total"] for page in pages} == {len(expected)}

    @rule(plan=st.sampled_from(list(PLANS)), chosen=filters(), limit=st.integers(1, 3))
    def open_a_list(self, plan: str, chosen: dict[str, Any], limit: int) -> None:
        """Keep a cursor, to follow it after the catalog changed."""
        chosen.pop("sortBy", None)
        if plain_model.refused(plan, chosen):
            return
        page = self.service.get(f"/v2/events?limit={limit}&{query_of(chosen)}", plan).json()
        if page["meta"]["cursor"] is not None:
            last = page["data"][-1]
            key = (last["date"], last["id"])
            self.pages.append((plan, chosen, limit, page["meta"]["cursor"], key))

    @precondition(lambda self: self.pages)
    @rule()
    def follow_a_cursor(self) -> None:
        plan, chosen, limit, cursor, key = self.pages.pop(0)
        path = f"/v2/events?limit={limit}&{query_of(chosen)}&cursor={cursor}"
        expected = [
            found.id
            for found in plain_model.listed(self.catalog_of(plan), plan, self.now, chosen)
            if (plain_model.text(found.date), found.id) > key
        ]
        page = self.service.get(path, plan).json()
        assert [row["id"] for row in page["data"]] == expected[:limit]
        assert (page["meta"]["cursor"] is not None) == (len(expected) > limit)

    @rule(plan=st.sampled_from(list(PLANS)), event_id=st.sampled_from([*IDS, "unknown"]))
    def look_up(self, plan: str, event_id: str) -> None:
        status, body = plain_model.single(self.catalog_of(plan), plan, self.now, event_id)
        answer = self.service.get(f"/v2/events/{event_id}", plan)
        assert answer.status_code == status
        if status == 200:
            assert answer.json() == body
        if status == 410:
            at = plain_model.text(self.catalog_of(plan).cancelled[event_id])
            assert (answer.json()["id"], answer.json()["cancelledAt"]) == (event_id, at)

    @rule(plan=st.sampled_from(list(PLANS)), days=st.integers(0, 100))
    def list_cancellations(self, plan: str, days: int) -> None:
        since = (self.now - timedelta(days=days)).replace(microsecond=0)
        expected = sorted(
            (at, event_id)
            for event_id, at in self.catalog_of(plan).cancelled.items()
            if at >= since
        )
        path = f"/v2/events/cancellations?limit=2&since={plain_model.text(since)}"
        rows = [row for page in self.service.pages(path, plan) for row in page["data"]]
        assert [(row["cancelledAt"], row["id"]) for row in rows] == [
            (plain_model.text(at), event_id) for at, event_id in expected
        ]

    @rule(
        plan=st.sampled_from(list(LIMITED)),
        requests=st.integers(1, 20),
        gap_s=st.sampled_from([0, 0.25, 0.5, 1, 4]),
    )
    def spend(self, plan: str, requests: int, gap_s: float) -> None:
        month = (self.now.year, self.now.month)
        if month != (NOW.year, NOW.month):
            self.buckets[plan].used = self.service.usage.used(
                grant(plan, f"limited-{plan}"), self.now
            )
        for _ in range(requests):
            self.monotonic_ns += int(gap_s * 1_000_000_000)
            for bucket in self.buckets.values():
                bucket.passed(gap_s)
            answer = self.service.get("/v2/categories", f"limited-{plan}")
            expected = self.buckets[plan].request()
            code = "ok" if answer.status_code == 200 else answer.json()["error"]["code"]
            assert code == expected

    @invariant()
    def counters_are_the_totals(self) -> None:
        if not hasattr(self, "service"):
            return
        for plan in ("free", "pro"):
            coin = self.service.get("/v2/coins/first", plan).json()
            found = plain_model.listed(self.catalog_of(plan), plan, self.now, {"coins": ["first"]})
            scores = [event.impact for event in found if event.impact is not None]
            assert coin["upcomingCount"] == len(found)
            if plan == "pro":
                assert coin["majorCount"] == sum(score >= 7.5 for score in scores)
                assert coin["peakImpact"] == (max(scores) if scores else None)


SUPPRESSED = [HealthCheck.too_slow, HealthCheck.data_too_large]
ServerAgainstModel.TestCase.settings = settings(
    max_examples=40, stateful_step_count=30, deadline=None, suppress_health_check=SUPPRESSED
)
TestServerAgainstModel = ServerAgainstModel.TestCase


@pytest.mark.long
@pytest.mark.timeout(1_800)
def test_many_more_sequences_find_no_divergence() -> None:
    from hypothesis.stateful import run_state_machine_as_test

    run_state_machine_as_test(
        ServerAgainstModel,
        settings=settings(
            max_examples=1_000,
            stateful_step_count=50,
            deadline=None,
            suppress_health_check=SUPPRESSED,
        ),
    )


@pytest.mark.parametrize(
    ("examples", "steps"),
    [(2, 12), pytest.param(20, 25, marks=[pytest.mark.long, pytest.mark.timeout(1_800)])],
)
def test_a_published_warehouse_agrees_with_the_model(
    examples: int, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hypothesis.stateful import run_state_machine_as_test

    monkeypatch.setattr(small_catalog, "keep", published)
    run_state_machine_as_test(
        ServerAgainstModel,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            derandomize=True,
            suppress_health_check=SUPPRESSED,
        ),
    )
