"""Backfills against the real sandbox: whole, month by month, deferred and continued."""

import json
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pydantic import SecretStr

from almanac.core.errors import WarehouseError
from catalog.contract.plans import ELITE, FREE, PRO, STANDARD, Plan
from catalog.sandbox.sandbox import Sandbox
from resources.calendar_backfill import Backfill, OpenBackfill, read_open_backfill
from resources.errors import ContractBroken, Defer, PlanLacksAccess, Reason
from resources.http.client import CatalogClient
from resources.limits.limiter import Permit
from resources.request_log import RequestLog
from resources.service_clock import ServiceClock
from resources.session import CatalogSession
from tests.resources.conftest import MakeClient
from tests.resources.fakes import days, paginated
from tests.resources.pulls import AT, SOURCE
from tests.unlimited import Unlimited
from warehouse.files.documents import put_note
from warehouse.files.storage import Storage
from warehouse.landing.landing import Landing

QUARTER = (date(2017, 2, 1), date(2017, 4, 30))
STARTS = [datetime(2017, month, 1, tzinfo=UTC) for month in (2, 3, 4)]
DAY = timedelta(days=1)
KEY = SecretStr("a-key-that-is-logged-nowhere")


class Counted(Unlimited):
    """Allows so many requests, then defers since the month is used up."""

    def __init__(self, allowed: int) -> None:
        self.allowed = allowed

    def acquire(self, *, for_usage: bool = False, for_export: bool = False) -> Permit:
        if self.allowed <= 0:
            raise Defer(Reason("quota", "the month is used up", AT + 30 * DAY), attempts=0)
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
        span: tuple[date, date | None] = QUARTER,
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

    def begin(self, span: tuple[date, date | None] = QUARTER, *, months: int = 1) -> OpenBackfill:
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
    """The ids of the events of QUARTER, by one list."""
    with CatalogClient(almanac_sandbox.base_url, unlimited_key, limiter=Unlimited()) as client:
        yield {row for page in paginated(client, days(*QUARTER)) for row in page.ids}


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


def test_an_interrupted_backfill_requests_only_the_months_that_are_not_landed(
    months: Months, almanac_sandbox: Sandbox, truth: set[str]
) -> None:
    months.begin(months=2)
    almanac_sandbox.forget_requests()
    second = months.backfill()
    assert second.resumed
    first, *rest = list(second.run("list"))
    assert first == STARTS[:2], "the landed months are yielded first"
    assert [month for (month,) in rest] == STARTS[2:]
    assert len(almanac_sandbox.requests) == sum(batch.requests for batch in second.landed)
    assert months.ids() == truth
    assert read_open_backfill(months.state, AT) is None


def test_a_used_up_quota_defers_a_backfill_that_continues_with_its_month(
    months: Months, almanac_sandbox: Sandbox, truth: set[str]
) -> None:
    almanac_sandbox.forget_requests()
    limited = months.backfill(limiter=Counted(2))
    done = all_of(limited)
    assert limited.deferred is not None
    assert len(almanac_sandbox.requests) == 2
    assert done == STARTS[:1]
    assert not limited.landed[-1].manifest.complete, "the pages before it are kept"
    note = months.open()
    assert note.resume_at == limited.deferred.resume_at
    assert "used up" in note.why
    again = months.backfill(limiter=Counted(0))
    assert all_of(again) == done
    assert again.deferred is not None
    assert all_of(months.backfill()) == STARTS
    assert months.ids() == truth
    assert len(months.landing.batch_ids()) == 4, "each month once, and the pages before the quota"
    assert read_open_backfill(months.state, AT) is None


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
    shifting = months.backfill(extra_headers={"Sandbox-Faults": "shift_rows~events"})
    done: list[datetime] = []
    with pytest.raises(ContractBroken, match=r"incomplete: \d+ rows"):
        for landed in shifting.run("list"):
            done += landed
    assert STARTS[0] in done, "it has one page, so nothing shifts"
    second = months.backfill()
    assert all_of(second) == [*done, *(month for month in STARTS if month not in done)]
    assert len(second.landed) == 3 - len(done)


@pytest.mark.parametrize(
    "other", [{"plan": "enterprise"}, {"source": "elsewhere"}, {"coins": ("a",)}]
)
def test_a_backfill_of_another_kind_starts_over(other: dict[str, Any], months: Months) -> None:
    put_note(months.state, "backfill.json", msgspec.structs.replace(months.begin(), **other))
    second = months.backfill()
    assert not second.resumed
    assert all_of(second) == STARTS
    assert len(second.landed) == 3, "the landed month is requested again"
    assert read_open_backfill(months.state, AT) is None


def test_the_price_is_for_what_is_missing_and_the_cheaper_way_is_first(months: Months) -> None:
    prices = months.backfill().prices()
    assert list(prices) == ["export", "list"]
    assert prices["export"] == 2
    months.begin(months=2)
    assert months.backfill().prices()["list"] < prices["list"] - 2
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
