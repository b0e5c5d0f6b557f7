"""Backfills against the real sandbox: whole, month by month, deferred and continued."""

import json
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pydantic import SecretStr

from catalog.contract.plans import ELITE, FREE, PRO, STANDARD, Plan
from catalog.sandbox.sandbox import Sandbox
from resources.calendar_backfill import (
    ABANDONED_AFTER,
    AHEAD,
    Backfill,
    OpenBackfill,
    read_open_backfill,
)
from resources.errors import ContractBroken, Defer, PlanLacksAccess, RetryLater
from resources.http.client import CatalogClient
from resources.limits.limiter import Permit
from resources.request_log import RequestLog
from resources.service_clock import ServiceClock
from resources.session import CatalogSession
from tests.resources.conftest import MakeClient
from tests.resources.fakes import days, paginated
from tests.resources.pulls import AT, SOURCE, puller_of
from tests.unlimited import Unlimited
from warehouse.errors import WarehouseError
from warehouse.files.documents import put_note
from warehouse.files.storage import Storage
from warehouse.landing.landing import Landing

YEAR = (date(2025, 1, 1), date(2025, 12, 31))
STARTS = [datetime(2025, month, 1, tzinfo=UTC) for month in range(1, 13)]
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


class Months:
    """The landing and state of a home, and its backfills."""

    def __init__(self, root: Path, make_client: MakeClient) -> None:
        self.landing = Landing(root / "landing")
        self.state = Storage(root / "state")
        self._make_client = make_client

    def backfill(
        self,
        span: tuple[date, date | None] = YEAR,
        *,
        plan: Plan = ELITE,
        coins: tuple[str, ...] | None = None,
        **options: Any,
    ) -> Backfill:
        options.setdefault("service_clock", ServiceClock(lambda: AT))
        service = CatalogSession(
            client=self._make_client(**options),
            plan=plan,
            source=SOURCE,
            landing=self.landing,
            clock=lambda: AT,
            log=RequestLog(self.state.root, lambda: AT, key=KEY),
            coins=coins,
        )
        return Backfill(service, self.state, *span)

    def begin(self, span: tuple[date, date | None] = YEAR, *, months: int = 1) -> OpenBackfill:
        """Run a backfill until so many months are landed; return its note."""
        running = self.backfill(span).run("list")
        for _ in range(months):
            next(running)
        running.close()
        return self.open()

    def open(self) -> OpenBackfill:
        found = read_open_backfill(self.state, AT)
        assert found is not None
        return found

    def ids(self) -> set[str]:
        """Return the ids of all events landed."""
        return {
            row["id"]
            for batch_id in self.landing.batch_ids()
            for _, body in self.landing.pages(self.landing.manifest(batch_id))
            for row in json.loads(body)["data"]
        }


@pytest.fixture
def months(tmp_path: Path, make_client: MakeClient) -> Months:
    return Months(tmp_path, make_client)


def all_of(backfill: Backfill) -> list[datetime]:
    return [month for months in backfill.run("list") for month in months]


@pytest.fixture(scope="module")
def truth(almanac_sandbox: Sandbox, unlimited_key: str) -> Iterator[set[str]]:
    """The ids of the events of YEAR, by one list."""
    with CatalogClient(almanac_sandbox.base_url, unlimited_key, limiter=Unlimited()) as client:
        yield {row for page in paginated(client, days(*YEAR)) for row in page.ids}


def test_each_month_is_a_complete_batch_and_together_they_are_the_range(
    months: Months, almanac_sandbox: Sandbox, truth: set[str]
) -> None:
    almanac_sandbox.forget_requests()
    backfill = months.backfill()
    price = backfill.prices()["list"]
    assert all_of(backfill) == STARTS
    assert months.ids() == truth
    manifests = [batch.manifest for batch in backfill.landed]
    assert all(manifest.complete for manifest in manifests)
    assert [manifest.scope.lower for manifest in manifests] == STARTS
    assert len(almanac_sandbox.requests) - 1 <= price, "one request counted the events"
    assert read_open_backfill(months.state, AT) is None


def test_a_month_is_the_same_batch_as_a_pull_of_its_dates(
    months: Months, tmp_path: Path, make_client: MakeClient
) -> None:
    span = (date(2026, 3, 1), date(2026, 3, 31))
    all_of(months.backfill(span))
    puller = puller_of(make_client(), tmp_path / "pulled", plan=ELITE, clock=lambda: AT)
    (batch_id,) = months.landing.batch_ids()
    batch, alike = months.landing.manifest(batch_id), puller.events(*span).manifest
    names = ("sha256", "scope", "plan", "source", "requests", "complete", "rows_claimed")
    assert [getattr(batch, name) for name in names] == [getattr(alike, name) for name in names]
    assert batch.observed_at - batch.content_at == alike.observed_at - alike.content_at


def test_an_interrupted_backfill_requests_only_the_months_that_are_not_landed(
    months: Months, almanac_sandbox: Sandbox, truth: set[str]
) -> None:
    months.begin(months=8)
    almanac_sandbox.forget_requests()
    second = months.backfill()
    assert second.resumed
    first, *rest = list(second.run("list"))
    assert first == STARTS[:8], "the landed months are yielded first"
    assert [month for (month,) in rest] == STARTS[8:]
    assert len(almanac_sandbox.requests) == sum(batch.requests for batch in second.landed)
    assert months.ids() == truth
    assert read_open_backfill(months.state, AT) is None


def test_a_used_up_quota_defers_a_backfill_that_continues_with_its_month(
    months: Months, almanac_sandbox: Sandbox, truth: set[str]
) -> None:
    almanac_sandbox.forget_requests()
    limited = months.backfill(limiter=Counted(20))
    done = all_of(limited)
    assert limited.deferred is not None
    assert len(almanac_sandbox.requests) == 20
    assert 0 < len(done) < 12
    assert not limited.landed[-1].manifest.complete, "the pages before it are kept"
    note = months.open()
    assert note.resume_at == limited.deferred.resume_at
    assert "used up" in note.why
    again = months.backfill(limiter=Counted(0))
    assert all_of(again) == done
    assert again.deferred is not None
    assert all_of(months.backfill()) == STARTS
    assert months.ids() == truth
    assert len(months.landing.batch_ids()) == 13, "each month once, and the pages before the quota"
    assert read_open_backfill(months.state, AT) is None


def test_a_deferred_backfill_stays_deferred_if_continuing_fails(
    months: Months, almanac_sandbox: Sandbox
) -> None:
    all_of(months.backfill(limiter=Counted(20)))
    note = months.open()
    almanac_sandbox.faults.set("unavailable~events")
    try:
        with pytest.raises(RetryLater):
            all_of(months.backfill())
    finally:
        almanac_sandbox.faults.clear()
    assert months.open() == note
    assert all_of(months.backfill()) == STARTS


def test_the_second_of_two_backfills_at_once_is_refused_and_sends_nothing(
    months: Months, almanac_sandbox: Sandbox
) -> None:
    first, second = months.backfill(), months.backfill()
    running = first.run("list")
    next(running)
    almanac_sandbox.forget_requests()
    with pytest.raises(WarehouseError):
        next(second.run("list"))
    assert almanac_sandbox.requests == []
    running.close()
    assert all_of(second) == STARTS


def test_months_whose_rows_shift_are_an_error_and_are_requested_again(months: Months) -> None:
    shifting = {"extra_headers": {"Sandbox-Faults": "shift_rows@0.2~events"}}
    done: list[datetime] = []
    with pytest.raises(ContractBroken, match=r"months are incomplete: \d+ rows"):
        for landed in months.backfill(**shifting).run("list"):
            done += landed
    assert len(done) < 12
    second = months.backfill()
    assert all_of(second) == [*done, *(month for month in STARTS if month not in done)]
    assert len(second.landed) == 12 - len(done)


def test_a_backfill_without_an_end_continues_up_to_its_first_end(months: Months) -> None:
    open_ended = (date(2026, 1, 1), None)
    note = months.begin(open_ended)
    assert note.last == AT.date() + AHEAD
    begun = msgspec.structs.replace(note, last=note.last - 3 * DAY, started_at=AT - 3 * DAY)
    put_note(months.state, "backfill.json", begun)
    assert months.backfill(open_ended).resumed
    put_note(months.state, "backfill.json", msgspec.structs.replace(begun, open_ended=False))
    assert not months.backfill(open_ended).resumed


@pytest.mark.parametrize(
    "other", [{"plan": "enterprise"}, {"source": "elsewhere"}, {"coins": ("a",)}]
)
def test_a_backfill_of_another_kind_starts_over(other: dict[str, Any], months: Months) -> None:
    put_note(months.state, "backfill.json", msgspec.structs.replace(months.begin(), **other))
    second = months.backfill()
    assert not second.resumed
    assert all_of(second) == STARTS
    assert len(second.landed) == 12, "the landed month is requested again"
    assert read_open_backfill(months.state, AT) is None


def test_an_abandoned_backfill_starts_over(months: Months) -> None:
    long_ago = AT - ABANDONED_AFTER - DAY
    note = msgspec.structs.replace(months.begin(), started_at=long_ago, resumed_at=long_ago)
    put_note(months.state, "backfill.json", note)
    assert read_open_backfill(months.state, AT) is None
    assert not months.backfill().resumed
    put_note(months.state, "backfill.json", msgspec.structs.replace(note, resume_at=AT))
    assert months.backfill().resumed, "a small quota may spread it over months"


def test_a_filter_of_more_coins_than_a_request_takes_is_one_batch_a_month(
    months: Months, almanac_sandbox: Sandbox
) -> None:
    coins = tuple(coin.slug for coin in almanac_sandbox.truth().coins_at(AT)[:150])
    backfill = months.backfill((date(2026, 1, 1), date(2026, 3, 31)), coins=coins)
    assert len(all_of(backfill)) == 3
    assert [len(batch.manifest.scope.coins or ()) for batch in backfill.landed] == [150] * 3


def test_the_price_is_for_what_is_missing_and_the_cheaper_way_is_first(months: Months) -> None:
    prices = months.backfill().prices()
    assert list(prices) == ["export", "list"]
    assert prices["export"] == 2
    months.begin(months=6)
    assert months.backfill().prices()["list"] < prices["list"] - 10
    assert list(months.backfill((date(2026, 3, 2), None), plan=PRO).prices()) == ["list"]


def test_the_export_lands_every_month_together(
    months: Months, almanac_sandbox: Sandbox, truth: set[str]
) -> None:
    almanac_sandbox.forget_requests()
    backfill = months.backfill()
    assert list(backfill.run("export")) == [STARTS]
    assert len(almanac_sandbox.requests) <= 2
    assert sum(batch.rows for batch in backfill.landed) == pytest.approx(len(truth), rel=0.01)


@pytest.mark.parametrize(
    ("plan", "begin", "message"),
    [
        (FREE, "2026-03-10", "shows events from 2026-03-02 to 2026-03-09"),
        (STANDARD, "2026-07-01", "and the range is 2026-07-01 to 2026-12-31"),
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
    backfill = months.backfill(span, plan=STANDARD)
    assert backfill.notes == [
        "the plan standard shows nothing before 2026-03-02",
        "the plan standard shows nothing after 2026-05-31",
    ]
    assert [month.month for month in all_of(backfill)] == [3, 4, 5]
