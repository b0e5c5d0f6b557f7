"""Backfills against the real sandbox: whole, cheap, in parallel, and resumed."""

import json
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from math import ceil
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from catalog.contract.plans import ELITE, FREE, PRO, STANDARD, Plan
from catalog.sandbox.sandbox import Sandbox
from resources.backfill.backfill import Backfill, Price
from resources.backfill.state import ABANDONED_AFTER, BackfillStates, RequestedList
from resources.errors import (
    BackfillInProgress,
    ContractBroken,
    Defer,
    PlanLacksAccess,
    RetryLater,
)
from resources.http.client import CatalogClient
from resources.limits.ledger import Pace
from resources.limits.limiter import Limiter, Permit
from resources.request_log import RequestLog
from resources.service_clock import ServiceClock
from resources.session import CatalogSession
from tests.resources.conftest import MakeClient
from tests.resources.pulls import AT, SOURCE, puller_of
from tests.unlimited import Unlimited
from warehouse.files.storage import Storage
from warehouse.landing.batches import Scope
from warehouse.landing.landing import Landing

YEARS = (date(2024, 1, 1), date(2026, 12, 31))
YEARS_OF = range(2024, 2027)
DAY = timedelta(days=1)
KEY = SecretStr("a-key-that-is-logged-nowhere")


class Counted(Unlimited):
    """Allows so many requests, then defers since the month is used up."""

    def __init__(self, allowed: int) -> None:
        self.allowed = allowed

    def acquire(self, *, for_usage: bool = False, for_export: bool = False) -> Permit:
        if self.allowed <= 0:
            refused = Defer("the month is used up", resume_at=AT + 30 * DAY, reason="quota")
            refused.attempts = 0
            raise refused
        self.allowed -= 1
        return super().acquire()


@pytest.fixture
def months(tmp_path: Path, make_client: MakeClient) -> "Months":
    return Months(tmp_path, make_client)


class Months:
    """The landing and the backfill states of a home, and its backfills."""

    def __init__(self, root: Path, make_client: MakeClient) -> None:
        self.landing = Landing(root / "landing")
        self.states = BackfillStates(Storage(root / "state"), self.landing)
        self.root = root
        self._make_client = make_client

    def backfill(
        self,
        span: tuple[date, date | None] = YEARS,
        *,
        plan: Plan = ELITE,
        partly: bool = False,
        coins: tuple[str, ...] | None = None,
        counted: Limiter | None = None,
        **options: Any,
    ) -> Backfill:
        options.setdefault("service_clock", ServiceClock(lambda: AT))
        client: CatalogClient = self._make_client(**options)
        service = CatalogSession(
            client=client,
            plan=plan,
            source=SOURCE,
            landing=self.landing,
            clock=lambda: AT,
            log=RequestLog(self.root / "state", lambda: AT, key=KEY),
            pace=Pace(plan.rate_per_s, plan.burst),
            coins=coins,
            limiter=counted,
        )
        return Backfill(service, self.states, *span, partly=partly)

    def ids(self) -> set[str]:
        """Return the ids of all events landed."""
        found: set[str] = set()
        for batch_id in self.landing.batch_ids():
            manifest = self.landing.manifest(batch_id)
            for _, body in self.landing.pages(manifest):
                found.update(row["id"] for row in json.loads(body)["data"])
        return found


def pages_requested(sandbox: Sandbox) -> int:
    return sum(
        request.path == "/v2/events" and "limit=1&" not in f"{request.query}&"
        for request in sandbox.requests
    )


def all_of(backfill: Backfill) -> list[datetime]:
    return [month for months in backfill.run("list") for month in months]


@pytest.fixture(scope="module")
def truth(almanac_sandbox: Sandbox, unlimited_key: str) -> Iterator[set[str]]:
    """The ids of the events of YEARS, by one list."""
    with CatalogClient(almanac_sandbox.base_url, unlimited_key, limiter=Unlimited()) as client:
        yield {row for page in client.events_pages(*YEARS) for row in page.ids}


@pytest.mark.parametrize("latency_s", [0.0, 0.05])
def test_a_range_is_landed_whole_for_hardly_more_requests_than_pages_at_any_latency(
    latency_s: float, months: Months, almanac_sandbox: Sandbox, truth: set[str]
) -> None:
    slow = {"extra_headers": {"Sandbox-Faults": f"slow={latency_s}"}} if latency_s else {}
    almanac_sandbox.forget_requests()
    backfill = months.backfill(**slow)
    done = all_of(backfill)
    assert not latency_s or done != sorted(done), "several are paged in parallel"
    assert sorted(done) == [datetime(y, m, 1, tzinfo=UTC) for y in YEARS_OF for m in range(1, 13)]
    assert len(done) == len(set(done))
    assert months.ids() == truth
    pages = ceil(len(truth) / 100)
    assert pages <= pages_requested(almanac_sandbox) == backfill.requests <= ceil(pages * 1.02)
    assert months.states.open(AT) == []
    assert all(manifest.complete for manifest in backfill.manifests)


def test_a_backfill_lands_the_same_batch_as_a_pull_of_the_same_pages(
    months: Months, tmp_path: Path, make_client: MakeClient
) -> None:
    span = (date(2026, 3, 1), date(2026, 3, 14))
    all_of(months.backfill(span))
    pulled = puller_of(make_client(), tmp_path / "pulled", plan=ELITE, clock=lambda: AT).events(
        *span
    )
    (batch_id,) = months.landing.batch_ids()
    batch, alike = months.landing.manifest(batch_id), pulled.manifest
    assert batch.sha256 == alike.sha256
    assert len(batch.pages) > 1
    assert (batch.scope, batch.plan, batch.source) == (alike.scope, alike.plan, alike.source)
    assert (batch.requests, batch.complete) == (alike.requests, alike.complete)
    assert batch.observed_at - batch.content_at == alike.observed_at - alike.content_at
    assert (batch.rows_claimed, alike.rows_claimed) == (None, pulled.rows)


def test_months_are_recorded_before_the_backfill_ends(months: Months) -> None:
    running = months.backfill().run("list")
    assert len(next(running)) == 1
    assert 0 < len(months.landing.batch_ids()) < 10
    assert len(months.states.open(AT)) == 1
    running.close()


def test_an_interrupted_backfill_requests_only_what_is_not_landed(
    months: Months, almanac_sandbox: Sandbox, truth: set[str]
) -> None:
    almanac_sandbox.forget_requests()
    running = months.backfill().run("list")
    first = [month for _ in range(10) for month in next(running)]
    running.close()
    second = months.backfill()
    assert second.resumed
    reported_first, *later = second.run("list")
    assert set(reported_first) >= set(first), "months that were landed before are yielded first"
    assert len({*reported_first, *(month for months in later for month in months)}) == 36
    assert months.ids() == truth
    assert pages_requested(almanac_sandbox) <= ceil(len(truth) / 100) * 1.02 + 2
    assert months.states.open(AT) == []


def test_a_part_of_an_open_backfill_is_resumed(months: Months) -> None:
    running = months.backfill().run("list")
    for _ in range(6):
        next(running)
    running.close()
    (state,) = months.states.open(AT)
    part = months.backfill((date(2024, 1, 1), date(2024, 3, 31)))
    assert part.resumed
    assert len(all_of(part)) == 3
    assert part.requests == 0
    assert months.states.open(AT) == [state], "the rest is not landed yet"


@pytest.mark.parametrize("days", [3, 70])
def test_a_backfill_without_an_end_is_resumed_up_to_its_first_end(
    months: Months, days: int
) -> None:
    """The next day, and if a cap spreads it over months."""
    running = months.backfill((date(2026, 1, 1), None)).run("list")
    next(running)
    running.close()
    (state,) = months.states.open(AT)
    assert state.scope.upper is not None
    days_less = msgspec.structs.replace(state.scope, upper=state.scope.upper - days * DAY)
    begun = AT - days * DAY
    months.states.end(state)
    months.states.put(
        msgspec.structs.replace(state, scope=days_less, started_at=begun, resumed_at=AT)
    )
    assert months.backfill((date(2026, 1, 1), None)).resumed


def test_a_given_end_is_not_read_as_an_open_end(months: Months) -> None:
    running = months.backfill((date(2026, 1, 1), date(2026, 12, 31))).run("list")
    next(running)
    running.close()
    assert not months.backfill((date(2026, 1, 1), None)).resumed


def test_a_deferred_backfill_stays_deferred_if_resuming_fails(
    months: Months, almanac_sandbox: Sandbox
) -> None:
    all_of(months.backfill(limiter=Counted(20)))
    (state,) = months.states.open(AT)
    assert state.resume_at is not None
    almanac_sandbox.faults.set("unavailable~events")
    try:
        with pytest.raises(RetryLater):
            all_of(months.backfill())
    finally:
        almanac_sandbox.faults.clear()
    assert months.states.open(AT) == [state]


def test_the_second_of_two_backfills_at_once_is_refused_and_sends_nothing(
    months: Months, almanac_sandbox: Sandbox
) -> None:
    first, second = months.backfill(), months.backfill()
    running = first.run("list")
    next(running)
    almanac_sandbox.forget_requests()
    with pytest.raises(BackfillInProgress, match="another process runs a backfill"):
        next(second.run("list"))
    running.close()
    assert len(set(all_of(second))) == 36


def test_rows_that_shift_between_pages_are_an_error_and_nothing_counts_as_landed(
    months: Months,
) -> None:
    shifting = {"extra_headers": {"Sandbox-Faults": "shift_rows@0.2~events"}}
    backfill = months.backfill(**shifting)
    with pytest.raises(ContractBroken, match=r"\d+ rows that meta.total promised did not arrive"):
        all_of(backfill)
    (state,) = months.states.open(AT)
    assert state.started_at > AT
    assert months.states.landed(state) == []


def test_a_new_backfill_requests_all_dates_again(months: Months) -> None:
    year = (date(2025, 1, 1), date(2025, 12, 31))
    all_of(months.backfill(year))
    second = months.backfill(year)
    assert not second.resumed
    all_of(second)
    assert second.requests > 10


def test_a_used_up_quota_defers_a_backfill_after_landing_what_was_received(
    months: Months, almanac_sandbox: Sandbox, truth: set[str]
) -> None:
    almanac_sandbox.forget_requests()
    limited = months.backfill(limiter=Counted(20))
    done = all_of(limited)
    assert limited.deferred is not None
    assert limited.requests == 20
    assert 0 < len(done) < 36
    (state,) = months.states.open(AT)
    assert state.resume_at == limited.deferred.resume_at
    assert "used up" in state.why
    later = all_of(months.backfill())
    assert len(set(later)) == 36
    assert months.ids() == truth
    # Inside a month it resumes from the last date that is whole.
    assert pages_requested(almanac_sandbox) <= ceil(len(truth) / 100) * 1.02 + 2
    assert months.states.open(AT) == []


def test_an_abandoned_backfill_starts_over(months: Months) -> None:
    running = months.backfill().run("list")
    next(running)
    running.close()
    (state,) = months.states.open(AT)
    long_ago = AT - ABANDONED_AFTER - DAY
    left = msgspec.structs.replace(state, started_at=long_ago, resumed_at=long_ago)
    months.states.put(left)
    assert months.states.open(AT) == []
    assert not months.backfill().resumed
    # Homes of any version name it so.
    assert b'"gone_on_at"' in (months.root / "state" / left.name).read_bytes()
    # A cap may spread a backfill over many months: it resumes until it is abandoned.
    for known in ("resume_at", "resumed_at"):
        months.states.put(msgspec.structs.replace(left, **{known: AT}))
        assert months.backfill().resumed


def test_a_backfill_of_another_plan_is_superseded(months: Months) -> None:
    running = months.backfill().run("list")
    next(running)
    running.close()
    (begun,) = months.states.open(AT)
    months.states.put(msgspec.structs.replace(begun, plan="enterprise"))
    second = months.backfill((date(2024, 2, 1), date(2024, 3, 31)))
    assert not second.resumed
    assert len(all_of(second)) == 2
    assert months.states.open(AT) == []


def test_an_error_is_raised_after_landing_what_was_received(
    months: Months, almanac_sandbox: Sandbox
) -> None:
    running = months.backfill().run("list")
    done = next(running)
    almanac_sandbox.faults.set("unavailable~events")
    try:
        with pytest.raises(RetryLater, match="those of complete dates are landed"):
            for finished in running:
                done += finished
    finally:
        almanac_sandbox.faults.set("")
    assert len(months.landing.batch_ids()) >= len(done)
    assert len(set(all_of(months.backfill()))) == 36


def test_a_month_with_more_coins_than_one_request_takes_is_whole_when_every_list_is(
    months: Months, almanac_sandbox: Sandbox
) -> None:
    coins = tuple(coin.slug for coin in almanac_sandbox.truth().coins_at(AT)[:150])
    span = (date(2026, 1, 1), date(2026, 6, 30))
    backfill = months.backfill(span, coins=coins)
    assert len(all_of(backfill)) == 6
    assert {len(manifest.scope.coins or ()) for manifest in backfill.manifests} == {100, 50}


def test_the_price_is_for_what_is_missing_and_the_better_way_is_first(
    months: Months, truth: set[str]
) -> None:
    backfill = months.backfill()
    export, listed = backfill.prices()
    assert (export.by, export.requests) == ("export", 2)
    assert (listed.by, listed.requests, listed.rows) == ("list", ceil(len(truth) / 100), len(truth))
    running = backfill.run("list")
    for _ in range(12):
        next(running)
    running.close()
    (rest,) = [price for price in months.backfill().prices() if price.by == "list"]
    assert rest.requests < listed.requests - 10


def price(
    by: Literal["list", "export"], requests: int, seconds: float, available: int | None
) -> Price:
    return Price(by, requests, seconds, rows=1_800, left=available, kept=0, available=available)


@pytest.mark.parametrize(
    ("listed", "exported", "available", "best"),
    [
        ((18, 3.3), (2, 25.0), 3_000_000, "list"),
        ((18, 3.3), (2, 25.0), 1_000, "export"),
        ((18, 3.3), (2, 1.2), 3_000_000, "export"),
        ((18, 3.3), (2, 25.0), 10, "export"),
        ((18, 3.3), (2, 25.0), None, "list"),
        ((10_000, 395.0), (2, 80.0), 3_000_000, "export"),
    ],
)
def test_the_faster_way_is_first_unless_it_takes_much_of_the_quota(
    listed: tuple[int, float], exported: tuple[int, float], available: int | None, best: str
) -> None:
    prices = [price("list", *listed, available), price("export", *exported, available)]
    assert min(prices, key=lambda each: each.rank).by == best


def test_the_export_makes_every_month_whole_at_once(months: Months, truth: set[str]) -> None:
    backfill = months.backfill()
    found = list(backfill.run("export"))
    assert [len(finished) for finished in found] == [36]
    assert backfill.requests <= 2
    assert backfill.rows == pytest.approx(len(truth), rel=0.01), "it is of midnight"


@pytest.mark.parametrize(
    ("plan", "begin", "message"),
    [
        (FREE, "2026-03-01", "shows events from 2026-03-02 on"),
        (STANDARD, "2017-01-01", "shows events from 2026-03-02 on"),
        (PRO, "2026-01-01", "shows events from 2026-01-31 on"),
        (STANDARD, "2026-07-01", "shows events up to 2026-05-31"),
    ],
)
def test_a_range_that_the_plan_does_not_show_is_refused_with_the_reason(
    plan: Plan, begin: str, message: str, months: Months, almanac_sandbox: Sandbox
) -> None:
    almanac_sandbox.forget_requests()
    with pytest.raises(PlanLacksAccess, match=message):
        months.backfill((date.fromisoformat(begin), date(2026, 12, 31)), plan=plan)
    assert almanac_sandbox.requests == []


def test_a_month_that_the_plan_shows_in_part_is_landed_in_part_with_a_note(months: Months) -> None:
    span = (date(2026, 3, 1), date(2026, 6, 30))
    backfill = months.backfill(span, plan=STANDARD, partly=True)
    assert backfill.notes == [
        "the plan standard shows nothing before 2026-03-02",
        "the plan standard shows nothing after 2026-05-31",
    ]
    assert [month.month for month in all_of(backfill)] == [3, 4, 5]


def test_the_export_is_refused_on_a_plan_without_it(months: Months) -> None:
    backfill = months.backfill((date(2026, 3, 2), None), plan=PRO)
    with pytest.raises(PlanLacksAccess, match="--source list"):
        list(backfill.run("export"))


spans = st.lists(
    st.tuples(st.integers(0, 30), st.integers(0, 10)).map(lambda at: (at[0], at[0] + at[1])),
    max_size=8,
)


@given(spans=spans, first=st.integers(0, 30), length=st.integers(0, 30))
def test_the_missing_scopes_of_a_requested_list_are_all_instants_outside_its_spans(
    spans: list[tuple[int, int]], first: int, length: int
) -> None:
    def at(day: int) -> datetime:
        return AT + day * DAY

    step = timedelta(microseconds=1)
    requested = RequestedList(Scope(), tuple((at(a), at(b + 1) - step) for a, b in spans))
    lacking = requested.missing_scopes(at(first), at(first + length + 1) - step)
    found = {
        day
        for scope in lacking
        for day in range(70)
        if scope.lower is not None
        and scope.upper is not None
        and scope.lower <= at(day) <= scope.upper
    }
    held = {day for a, b in spans for day in range(a, b + 1)}
    assert found == set(range(first, first + length + 1)) - held
