"""Each landed feed: its scope, its observed and content time, and its claimed rows."""

import json
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
import zstandard

from catalog.contract.plans import ELITE, FREE, STANDARD
from catalog.sandbox.sandbox import Sandbox
from resources.errors import AccessDenied
from resources.ingest.puller import Puller
from resources.service_clock import ServiceClock
from tests.resources.conftest import MakeClient
from tests.resources.fakes import answering, mocked
from tests.resources.pulls import AT, MACHINE_AT, SOURCE, puller_of, rows_of
from warehouse.landing.batches import Scope
from warehouse.landing.landing import Landing

MARCH = (date(2026, 3, 1), date(2026, 3, 31))
MARCH_SCOPE = Scope(
    lower=datetime(2026, 3, 1, tzinfo=UTC),
    upper=datetime(2026, 3, 31, 23, 59, 59, 999_999, tzinfo=UTC),
)
MINUTE = timedelta(minutes=1)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "landing"


@pytest.fixture
def puller(make_client: MakeClient, root: Path) -> Puller:
    return puller_of(make_client(), root)


def params_of(sandbox: Sandbox) -> list[dict[str, str]]:
    return [dict(httpx.QueryParams(request.query)) for request in sandbox.requests]


class TestLists:
    def test_events_are_landed_with_the_requested_scope_and_the_times_of_the_service(
        self, puller: Puller, root: Path
    ) -> None:
        landed = puller.events(*MARCH)
        manifest = landed.manifest
        assert (manifest.feed, manifest.scope) == ("events", MARCH_SCOPE)
        assert (manifest.plan, manifest.source) == ("enterprise", SOURCE)
        assert (manifest.observed_at, manifest.content_at) == (AT, AT - MINUTE)
        assert manifest.landed_at == MACHINE_AT
        assert manifest.complete
        ids = [row["id"] for row in rows_of(Landing(root), manifest)]
        assert len(set(ids)) == len(ids) == landed.rows == manifest.rows_claimed > 600
        assert manifest.requests == landed.requests == len(manifest.pages) == 7
        assert landed.warnings == ()
        assert Landing(root).pending() == [manifest.batch_id]
        assert Landing(root).journal.open_pulls() == []
        assert list((root / "journal").iterdir()) == []

    def test_a_pull_is_observed_at_its_last_page_and_has_the_content_time_of_its_first(
        self, make_client: MakeClient, root: Path
    ) -> None:
        extra = {"Sandbox-Now": AT.isoformat()}

        def later(feed: str, rows: int, total: int | None) -> None:
            extra["Sandbox-Now"] = (AT + rows * timedelta(seconds=1)).isoformat()

        landed = puller_of(make_client(extra_headers=extra), root, on_page=later).events(*MARCH)
        assert landed.manifest.content_at == AT - MINUTE
        assert landed.manifest.observed_at == AT + timedelta(seconds=600)

    def test_progress_names_feed_rows_and_total(self, make_client: MakeClient, root: Path) -> None:
        progress: list[tuple[str, int, int | None]] = []
        landed = puller_of(make_client(), root, on_page=lambda *page: progress.append(page)).events(
            *MARCH
        )
        assert [rows for _, rows, _ in progress] == [100, 200, 300, 400, 500, 600, landed.rows]
        assert {(feed, total) for feed, _, total in progress} == {("events", landed.rows)}

    @pytest.mark.parametrize(
        ("plan", "upper"),
        [(FREE, datetime(2026, 3, 9, 23, 59, 59, 999_999, tzinfo=UTC)),
         (STANDARD, datetime(2026, 5, 31, 23, 59, 59, 999_999, tzinfo=UTC)), (ELITE, None)],
    )  # fmt: skip
    def test_absent_bounds_are_set_and_requested(
        self,
        almanac_sandbox: Sandbox,
        make_client: MakeClient,
        root: Path,
        plan: Any,
        upper: datetime | None,
    ) -> None:
        client = make_client(almanac_sandbox.new_key(plan.name))
        almanac_sandbox.forget_requests()
        landed = puller_of(client, root, plan=plan).events(None, None, coins=["bitcoin"])
        assert landed.manifest.scope == Scope(
            lower=datetime(2026, 3, 2, tzinfo=UTC), upper=upper, coins=("bitcoin",)
        )
        assert landed.manifest.content_at == AT - timedelta(seconds=plan.freshness_s)
        to = None if upper is None else upper.date().isoformat()
        bounds = {(params["from"], params.get("to")) for params in params_of(almanac_sandbox)}
        assert bounds == {("2026-03-02", to)}

    def test_today_is_the_day_of_the_service_once_a_date_is_recorded(
        self, make_client: MakeClient, root: Path
    ) -> None:
        client = make_client(service_clock=ServiceClock(lambda: AT - timedelta(days=1)))
        puller = puller_of(client, root, clock=lambda: AT - timedelta(days=1))
        filters = {"coins": ["bitcoin"]}
        assert puller.events(None, None, **filters).manifest.scope.lower == datetime(
            2026, 3, 1, tzinfo=UTC
        )
        assert puller.events(None, None, **filters).manifest.scope.lower == datetime(
            2026, 3, 2, tzinfo=UTC
        )

    def test_an_impossible_scope_is_refused_before_a_request(
        self, almanac_sandbox: Sandbox, puller: Puller, root: Path
    ) -> None:
        almanac_sandbox.forget_requests()
        with pytest.raises(ValueError, match="before it begins"):
            puller.events(*reversed(MARCH))
        assert almanac_sandbox.requests == []
        assert not root.exists()

    def test_more_coins_than_a_request_takes_are_one_batch(
        self, puller: Puller, root: Path
    ) -> None:
        slugs = [row["slug"] for row in rows_of(Landing(root), puller.coins().manifest)][:230]
        landed = puller.events(*MARCH, coins=slugs)
        assert landed.manifest.complete
        assert landed.manifest.scope.coins == tuple(sorted(slugs))
        assert landed.manifest.rows_claimed == landed.rows
        assert len(landed.manifest.pages) >= 3

    def test_cancellations_without_a_beginning_are_requested_for_ninety_days(
        self, almanac_sandbox: Sandbox, puller: Puller
    ) -> None:
        puller.categories()
        almanac_sandbox.forget_requests()
        landed = puller.cancellations()
        since = AT - timedelta(days=90)
        assert landed.manifest.scope == Scope(since=since)
        assert {params["since"] for params in params_of(almanac_sandbox)} == {
            "2025-12-02T12:00:00Z"
        }
        assert landed.manifest.rows_claimed == landed.rows > 100
        assert landed.manifest.content_at == AT - MINUTE

    def test_coins_and_categories_cover_the_whole_list(self, puller: Puller) -> None:
        for landed in (puller.coins(), puller.categories()):
            assert landed.manifest.scope == Scope()
            assert landed.manifest.complete
            assert (landed.manifest.observed_at, landed.manifest.content_at) == (AT, AT - MINUTE)
            assert landed.rows > 20

    def test_a_plan_without_categories_is_an_error_and_nothing_is_landed(self, root: Path) -> None:
        refusal = httpx.Response(403, json={"error": {"code": "plan_required"}})
        with pytest.raises(AccessDenied):
            puller_of(mocked(answering(refusal)), root, plan=FREE).categories()
        assert Landing(root).batch_ids() == []
        assert Landing(root).journal.open_pulls() == []

    def test_after_a_change_of_plan_a_batch_names_the_new_one(
        self, almanac_sandbox: Sandbox, make_client: MakeClient, root: Path
    ) -> None:
        for plan in (FREE, ELITE):
            client = make_client(almanac_sandbox.new_key(plan.name))
            manifest = puller_of(client, root, plan=plan).events(None, None).manifest
            assert manifest.plan == plan.name
            assert manifest.content_at == AT - timedelta(seconds=plan.freshness_s)

    def test_an_answer_without_a_date_is_landed_with_a_warning(self, root: Path) -> None:
        answer = httpx.Response(200, json={"data": [{"id": "a"}]})
        client = mocked(answering(answer))
        landed = puller_of(client, root).events(*MARCH)
        assert landed.manifest.complete
        assert landed.manifest.rows_claimed is None
        assert landed.manifest.observed_at == AT
        assert any("no Date" in warning for warning in landed.warnings)

    def test_promised_rows_that_do_not_arrive_make_a_batch_incomplete(
        self, make_client: MakeClient, root: Path
    ) -> None:
        client = make_client(extra_headers={"Sandbox-Faults": "shift_rows"})
        landed = puller_of(client, root).events(*MARCH)
        assert not landed.manifest.complete
        assert landed.manifest.why_incomplete == "6 rows that meta.total promised did not arrive"
        assert landed.manifest.rows_claimed == landed.rows + 6

    def test_an_empty_list_is_a_complete_batch(self, puller: Puller) -> None:
        landed = puller.events(date(2039, 1, 1), date(2039, 1, 2))
        assert landed.manifest.complete
        assert (landed.rows, landed.manifest.rows_claimed) == (0, 0)


class TestLookUps:
    def test_the_body_of_a_found_event_is_landed(self, puller: Puller, root: Path) -> None:
        known = rows_of(Landing(root), puller.events(*MARCH).manifest)[0]
        landed = puller.event(known["id"])
        assert landed.manifest.scope == Scope(event_id=known["id"])
        assert (landed.manifest.observed_at, landed.manifest.content_at) == (AT, AT - MINUTE)
        assert (landed.rows, landed.requests, landed.manifest.complete) == (1, 1, True)
        ((page, body),) = Landing(root).pages(landed.manifest)
        assert page.status == 200
        assert json.loads(body) == known

    def test_a_cancelled_and_an_unknown_event_are_landed_with_their_status(
        self, puller: Puller, root: Path
    ) -> None:
        cancelled = rows_of(Landing(root), puller.cancellations().manifest)[0]["id"]
        for event_id, status in ((cancelled, 410), ("0" * 24, 404)):
            landed = puller.event(event_id)
            ((page, body),) = Landing(root).pages(landed.manifest)
            assert (page.status, landed.rows, landed.manifest.complete) == (status, 0, True)
            assert b"error" in body
            assert landed.manifest == Landing(root).manifest(landed.manifest.batch_id)
            assert landed.manifest.batch_id in Landing(root).pending()

    def test_a_404_of_a_gateway_is_not_read_as_one_of_the_catalog(self, root: Path) -> None:
        client = mocked(answering(httpx.Response(404, html="<h1>no route</h1>")))
        landed = puller_of(client, root).event("some-id")
        assert landed.manifest.pages[0].status == 404
        assert not landed.manifest.complete
        assert "HTML page" in landed.warnings[0]

    def test_html_instead_of_an_event_is_landed_with_a_warning(
        self, make_client: MakeClient, root: Path
    ) -> None:
        landed = puller_of(make_client(extra_headers={"Sandbox-Faults": "html"}), root).event(
            "some-id"
        )
        assert not landed.manifest.complete
        assert "HTML page" in landed.warnings[0]
        assert b"<html>" in b"".join(Landing(root).body(landed.manifest))


class TestSecrecy:
    def test_the_key_is_in_no_file_of_the_landing(
        self, make_client: MakeClient, unlimited_key: str, root: Path
    ) -> None:
        extra: dict[str, str] = {}
        client = make_client(extra_headers=extra)
        puller = puller_of(client, root)
        puller.coins()
        puller.events(*MARCH)
        puller.export(*MARCH)
        puller.event("0" * 24)
        for fault in ("html", "empty", "truncate"):
            extra["Sandbox-Faults"] = fault
            puller.coins()
            puller.export(*MARCH)
        files = [path for path in root.rglob("*") if path.is_file()]
        assert len(files) > 20
        for path in files:
            assert unlimited_key.encode() not in unpacked(path), path


def unpacked(path: Path) -> bytes:
    data = path.read_bytes()
    if path.suffix != ".zst":
        return data
    with path.open("rb") as file:
        return zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True).read()
