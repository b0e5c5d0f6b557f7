"""Each landed feed: its scope, times and claimed rows; pulls that stop early or get no list."""

import json
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest

from almanac.core.progress import listening
from catalog.contract.plans import ELITE, FREE, STANDARD
from catalog.sandbox.sandbox import Sandbox
from resources.errors import ContractBroken, RetryLater
from resources.ingest.puller import Puller
from tests.resources.conftest import MakeClient
from tests.resources.fakes import FaultScript, answering, counted, mocked
from tests.resources.pulls import AT, MACHINE_AT, SOURCE, all_manifests, puller_of, rows_of
from warehouse.landing.batches import Scope
from warehouse.landing.landing import Landing

MARCH = (date(2026, 3, 1), date(2026, 3, 31))
MARCH_SCOPE = Scope(
    lower=datetime(2026, 3, 1, tzinfo=UTC),
    upper=datetime(2026, 3, 31, 23, 59, 59, 999_999, tzinfo=UTC),
)
MINUTE = timedelta(minutes=1)
STEP = timedelta(microseconds=1)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "landing"


@pytest.fixture
def puller(make_client: MakeClient, root: Path) -> Puller:
    return puller_of(make_client(), root)


def params_of(sandbox: Sandbox) -> list[dict[str, str]]:
    return [dict(httpx.QueryParams(request.query)) for request in sandbox.requests]


def test_events_are_landed_with_the_requested_scope_and_the_times_of_the_service(
    puller: Puller, root: Path
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
    assert Landing(root).journal.ids() == []
    assert list((root / "journal").iterdir()) == []


def test_a_pull_is_observed_at_its_last_page_and_has_the_content_time_of_its_first(
    make_client: MakeClient, root: Path
) -> None:
    extra = {"Sandbox-Now": AT.isoformat()}

    def later(feed: str, rows: int, total: int | None) -> None:
        extra["Sandbox-Now"] = (AT + rows * timedelta(seconds=1)).isoformat()

    with listening(phase=later):
        landed = puller_of(make_client(extra_headers=extra), root).events(*MARCH)
    assert landed.manifest.content_at == AT - MINUTE
    assert landed.manifest.observed_at == AT + timedelta(seconds=600)


@pytest.mark.parametrize(
    ("plan", "upper"),
    [(FREE, datetime(2026, 3, 9, 23, 59, 59, 999_999, tzinfo=UTC)),
     (STANDARD, datetime(2026, 5, 31, 23, 59, 59, 999_999, tzinfo=UTC)), (ELITE, None)],
)  # fmt: skip
def test_absent_bounds_are_set_and_requested(
    almanac_sandbox: Sandbox, make_client: MakeClient, root: Path, plan: Any, upper: datetime | None
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


def test_an_impossible_scope_is_refused_before_a_request(
    almanac_sandbox: Sandbox, puller: Puller, root: Path
) -> None:
    almanac_sandbox.forget_requests()
    with pytest.raises(ValueError, match="before it begins"):
        puller.events(*reversed(MARCH))
    assert almanac_sandbox.requests == []
    assert not root.exists()


def test_cancellations_without_a_beginning_are_requested_for_ninety_days(
    almanac_sandbox: Sandbox, puller: Puller
) -> None:
    puller.categories()
    almanac_sandbox.forget_requests()
    landed = puller.cancellations()
    since = AT - timedelta(days=90)
    assert landed.manifest.scope == Scope(since=since)
    assert {params["since"] for params in params_of(almanac_sandbox)} == {"2025-12-02T12:00:00Z"}
    assert landed.manifest.rows_claimed == landed.rows > 100
    assert landed.manifest.content_at == AT - MINUTE


def test_promised_rows_that_do_not_arrive_make_a_batch_incomplete(
    make_client: MakeClient, root: Path
) -> None:
    client = make_client(extra_headers={"Sandbox-Faults": "shift_rows"})
    landed = puller_of(client, root).events(*MARCH)
    assert not landed.manifest.complete
    assert landed.manifest.why_incomplete == "6 rows that meta.total promised did not arrive"
    assert landed.manifest.rows_claimed == landed.rows + 6


def test_the_body_of_a_found_event_is_landed(puller: Puller, root: Path) -> None:
    known = rows_of(Landing(root), puller.events(*MARCH).manifest)[0]
    landed = puller.event(known["id"])
    assert landed.manifest.scope == Scope(event_id=known["id"])
    assert (landed.manifest.observed_at, landed.manifest.content_at) == (AT, AT - MINUTE)
    assert (landed.rows, landed.requests, landed.manifest.complete) == (1, 1, True)
    ((page, body),) = Landing(root).pages(landed.manifest)
    assert page.status == 200
    assert json.loads(body) == known


def test_a_cancelled_and_an_unknown_event_are_landed_with_their_status(
    puller: Puller, root: Path
) -> None:
    cancelled = rows_of(Landing(root), puller.cancellations().manifest)[0]["id"]
    for event_id, status in ((cancelled, 410), ("0" * 24, 404)):
        landed = puller.event(event_id)
        ((page, body),) = Landing(root).pages(landed.manifest)
        assert (page.status, landed.rows, landed.manifest.complete) == (status, 0, True)
        assert b"error" in body
        assert landed.manifest == Landing(root).manifest(landed.manifest.batch_id)
        assert landed.manifest.batch_id in Landing(root).pending()


def test_a_404_of_a_gateway_is_not_read_as_one_of_the_catalog(root: Path) -> None:
    client = mocked(answering(httpx.Response(404, html="<h1>no route</h1>")))
    landed = puller_of(client, root).event("some-id")
    assert landed.manifest.pages[0].status == 404
    assert not landed.manifest.complete
    assert "HTML page" in landed.warnings[0]


def no_journal(root: Path) -> bool:
    return Landing(root).journal.ids() == []


def test_a_quota_used_up_in_the_middle_lands_the_pages_and_names_when_to_resume(
    make_client: MakeClient, root: Path
) -> None:
    landed = puller_of(make_client(transport=FaultScript("", "", "", "quota")), root).events(*MARCH)
    assert landed.deferred is not None
    assert landed.deferred.resume_at > AT
    assert not landed.manifest.complete
    assert "quota" in (landed.manifest.why_incomplete or "")
    assert (landed.rows, landed.requests, len(landed.manifest.pages)) == (300, 4, 3)
    assert landed.manifest.rows_claimed is not None
    assert landed.manifest.rows_claimed > 600
    assert no_journal(root)


def test_a_failing_service_lands_the_pages_and_the_error_names_the_batch(
    make_client: MakeClient, root: Path
) -> None:
    client = make_client(transport=FaultScript("", "", *["unavailable"] * 6))
    with pytest.raises(RetryLater) as raised:
        puller_of(client, root).events(*MARCH)
    (manifest,) = all_manifests(root)
    assert not manifest.complete
    assert len(manifest.pages) == 2
    assert manifest.requests == 8
    assert f"200 rows are landed as the partial batch {manifest.batch_id}" in str(raised.value)
    assert no_journal(root)


@pytest.mark.parametrize(
    "answer",
    [httpx.Response(200, html="<html>back soon</html>"), httpx.Response(200)],
)  # fmt: skip
def test_an_answer_that_is_no_list_is_landed_with_a_warning(
    root: Path, answer: httpx.Response
) -> None:
    landed = puller_of(mocked(answering(answer)), root).events(*MARCH)
    assert not landed.manifest.complete
    assert landed.manifest.scope == MARCH_SCOPE
    assert landed.manifest.why_incomplete in landed.warnings
    assert b"".join(Landing(root).body(landed.manifest)) == answer.content
    assert (landed.rows, landed.requests, landed.manifest.rows_claimed) == (0, 1, None)
    assert no_journal(root)


def test_an_answer_in_the_middle_that_is_no_list_is_a_batch_of_its_own(
    make_client: MakeClient, root: Path
) -> None:
    landed = puller_of(make_client(transport=FaultScript("", "", "html")), root).events(*MARCH)
    good, bad = (
        landed.manifest,
        next(manifest for manifest in all_manifests(root) if manifest != landed.manifest),
    )
    assert len(rows_of(Landing(root), good)) == landed.rows == 200
    assert "page 3 was not a list" in (good.why_incomplete or "")
    assert b"<html>" in b"".join(Landing(root).body(bad))
    assert bad.scope == good.scope == MARCH_SCOPE
    assert not bad.complete
    assert any(bad.batch_id in warning for warning in landed.warnings)
    assert good.requests + bad.requests == landed.requests == 3


def test_an_export_has_the_time_of_its_snapshot_and_claims_the_counted_rows(
    make_client: MakeClient, root: Path
) -> None:
    (landed,) = puller_of(make_client(), root).export(*MARCH)
    manifest = landed.manifest
    assert (manifest.feed, manifest.scope) == ("export", MARCH_SCOPE)
    assert manifest.observed_at == AT
    assert manifest.content_at == datetime(2026, 3, 2, 0, 5, tzinfo=UTC)
    assert manifest.complete
    assert (manifest.requests, landed.requests) == (2, 2)
    assert manifest.rows_claimed is not None
    assert abs(manifest.rows_claimed - landed.rows) < 0.02 * landed.rows
    assert b"".join(Landing(root).body(manifest)).count(b"\r\n") > landed.rows


@pytest.mark.parametrize(("expected", "complete"), [(102, True), (103, False)])
def test_an_export_is_flagged_only_under_98_percent_of_the_expected_rows(
    root: Path, expected: int, complete: bool
) -> None:
    rows = "\r\n".join(["id", *map(str, range(100)), ""])
    answer = answering(httpx.Response(200, text=rows))
    (landed,) = puller_of(mocked(counted(expected, answer)), root).export(*MARCH)
    assert landed.manifest.complete is complete
    reason = " ".join(landed.warnings) if complete else landed.manifest.why_incomplete
    assert f"100 rows of {expected} expected" in (reason or "")


@pytest.mark.parametrize(
    ("answer", "word"),
    [(httpx.Response(200), "empty body"),
     (httpx.Response(200, text="id,title\r\n"), "header without rows")],
)  # fmt: skip
def test_an_export_that_is_no_catalog_is_landed_and_flagged(
    root: Path, answer: httpx.Response, word: str
) -> None:
    answer.headers["Date"] = "Mon, 02 Mar 2026 00:09:59 GMT"
    (landed,) = puller_of(mocked(counted(9, answering(answer))), root).export(*MARCH)
    manifest = landed.manifest
    assert not manifest.complete
    assert word in (manifest.why_incomplete or "")
    assert landed.warnings == (manifest.why_incomplete,)
    assert b"".join(Landing(root).body(manifest)) == answer.content
    assert manifest.content_at == datetime(2026, 3, 1, 0, 5, tzinfo=UTC)
    assert (landed.rows, manifest.rows_claimed) == (0, 9)


def test_a_broken_connection_lands_the_received_part(make_client: MakeClient, root: Path) -> None:
    client = make_client(extra_headers={"Sandbox-Faults": "drop=0.5~export"})
    (landed,) = puller_of(client, root).export(*MARCH)
    assert "connection broke" in (landed.manifest.why_incomplete or "")
    assert landed.manifest.bytes > 10_000
    assert landed.requests == 3
    assert landed.deferred is not None
    assert landed.deferred.reason.code == "failing"


@pytest.mark.parametrize(
    ("fetched", "last_modified", "content"),
    [("09:00:00", None, "02T00:05:00"), ("00:09:59", None, "01T00:05:00"),
     ("00:10:00", None, "02T00:05:00"), ("09:00:00", "03:00:00", "02T03:00:00"),
     ("09:00:00", "10:00:00", "02T00:05:00")],
)  # fmt: skip
def test_an_export_without_a_valid_last_modified_is_the_snapshot_of_its_day(
    root: Path, fetched: str, last_modified: str | None, content: str
) -> None:
    headers = {"Date": f"Mon, 02 Mar 2026 {fetched} GMT"}
    if last_modified is not None:
        headers["Last-Modified"] = f"Mon, 02 Mar 2026 {last_modified} GMT"
    answer = httpx.Response(200, text="id\r\na\r\n", headers=headers)
    (landed,) = puller_of(mocked(counted(1, answering(answer))), root).export(*MARCH)
    assert landed.manifest.content_at == datetime.fromisoformat(f"2026-03-{content}+00:00")
    assert landed.manifest.complete
    assert bool(landed.warnings) == (f"02T{last_modified}" != content)


class SlowExports:
    """Exports one row a day; too slow for more than `days_max`."""

    def __init__(self, days_max: int) -> None:
        self.days_max = days_max

    def __call__(self, request: httpx.Request) -> httpx.Response:
        params: dict[str, Any] = dict(request.url.params)
        first = date.fromisoformat(params["from"][:10])
        last = date.fromisoformat(params["to"][:10]) if "to" in params else date(2400, 1, 1)
        days = (last - first).days + 1
        headers = {"Date": "Mon, 02 Mar 2026 12:00:00 GMT"}
        if not request.url.path.endswith("export"):
            meta = {"total": min(days, 400)}
            return httpx.Response(200, json={"data": [], "meta": meta}, headers=headers)
        if days > self.days_max and days < 100_000:
            return httpx.Response(500, json={"error": {"code": "timeout"}})
        rows = [str(first + timedelta(days=n)) for n in range(min(days, 400))]
        return httpx.Response(200, text="\r\n".join(["id", *rows, ""]), headers=headers)


def test_the_dates_are_halved_and_each_part_is_a_batch_with_its_own_scope(root: Path) -> None:
    landed = puller_of(mocked(SlowExports(10)), root).export(*MARCH)
    scopes = [outcome.manifest.scope for outcome in landed]
    assert len(scopes) == 4
    assert (scopes[0].lower, scopes[-1].upper) == (MARCH_SCOPE.lower, MARCH_SCOPE.upper)
    for scope, following in pairwise(scopes):
        assert scope.upper is not None
        assert scope.upper + STEP == following.lower
    assert sum(page.rows for page in landed) == 31
    assert all(outcome.manifest.complete for outcome in landed)
    # Three too slow and four good exports, each counted before.
    assert sum(pull.requests for pull in landed) == 14


def test_a_304_that_nobody_asked_for_is_an_error(root: Path) -> None:
    date_header = {"Date": "Mon, 02 Mar 2026 12:00:00 GMT"}
    puller = puller_of(mocked(lambda _: httpx.Response(304, headers=date_header)), root)
    with pytest.raises(ContractBroken, match="was answered 304"):
        puller.categories()
    assert Landing(root).batch_ids() == []
