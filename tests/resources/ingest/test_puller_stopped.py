"""Pulls that stop early or get no list: the pages are landed and marked, the rest is named."""

from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest

from resources.errors import ContractBroken, Defer, RetryLater, TruncatedBody
from tests.resources.conftest import MakeClient
from tests.resources.fakes import FaultScript, answering, counted, mocked
from tests.resources.ingest.test_puller import MARCH, MARCH_SCOPE
from tests.resources.pulls import AT, all_manifests, puller_of, rows_of
from warehouse.landing.batches import Scope
from warehouse.landing.landing import Landing

STEP = timedelta(microseconds=1)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "landing"


def no_journal(root: Path) -> bool:
    return Landing(root).journal.open_pulls() == []


class TestStops:
    def test_a_quota_used_up_in_the_middle_lands_the_pages_and_names_when_to_resume(
        self, make_client: MakeClient, root: Path
    ) -> None:
        landed = puller_of(make_client(transport=FaultScript("", "", "", "quota")), root).events(
            *MARCH
        )
        assert landed.deferred is not None
        assert landed.deferred.resume_at > AT
        assert not landed.manifest.complete
        assert "quota" in (landed.manifest.why_incomplete or "")
        assert (landed.rows, landed.requests, len(landed.manifest.pages)) == (300, 4, 3)
        assert landed.manifest.rows_claimed is not None
        assert landed.manifest.rows_claimed > 600
        assert no_journal(root)

    def test_a_quota_used_up_before_the_first_page_is_an_error_and_nothing_is_landed(
        self, make_client: MakeClient, root: Path
    ) -> None:
        with pytest.raises(Defer):
            puller_of(make_client(transport=FaultScript("quota")), root).events(*MARCH)
        assert all_manifests(root) == []
        assert no_journal(root)

    def test_a_failing_service_lands_the_pages_and_the_error_names_the_batch(
        self, make_client: MakeClient, root: Path
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

    def test_a_cursor_returned_twice_lands_a_partial_batch_and_is_an_error(
        self, make_client: MakeClient, root: Path
    ) -> None:
        client = make_client(extra_headers={"Sandbox-Faults": "cycle_cursor"})
        with pytest.raises(ContractBroken):
            puller_of(client, root).events(*MARCH)
        (manifest,) = all_manifests(root)
        assert not manifest.complete
        assert "already used" in (manifest.why_incomplete or "")
        assert no_journal(root)


class TestNoLists:
    @pytest.mark.parametrize(
        "answer",
        [httpx.Response(200, html="<html>back soon</html>"), httpx.Response(200),
         httpx.Response(200, json={"error": {"code": "oops"}})],
    )  # fmt: skip
    def test_an_answer_that_is_no_list_is_landed_with_a_warning(
        self, root: Path, answer: httpx.Response
    ) -> None:
        landed = puller_of(mocked(answering(answer)), root).events(*MARCH)
        assert not landed.manifest.complete
        assert landed.manifest.scope == MARCH_SCOPE
        assert landed.manifest.why_incomplete in landed.warnings
        assert b"".join(Landing(root).body(landed.manifest)) == answer.content
        assert (landed.rows, landed.requests, landed.manifest.rows_claimed) == (0, 1, None)
        assert no_journal(root)

    def test_an_answer_in_the_middle_that_is_no_list_is_a_batch_of_its_own(
        self, make_client: MakeClient, root: Path
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

    def test_a_page_that_stays_truncated_is_landed_as_received(
        self, make_client: MakeClient, root: Path
    ) -> None:
        client = make_client(transport=FaultScript(*["truncate"] * 6))
        landed = puller_of(client, root).events(*MARCH)
        assert not landed.manifest.complete
        assert landed.manifest.requests == 6
        assert b"".join(Landing(root).body(landed.manifest)).startswith(b'{"data":[')

    def test_an_error_without_a_body_lands_nothing(
        self, make_client: MakeClient, root: Path
    ) -> None:
        with pytest.raises(TruncatedBody):
            puller_of(make_client(transport=FaultScript(*["drop"] * 6)), root).events(*MARCH)
        assert all_manifests(root) == []


class TestExports:
    def test_an_export_has_the_time_of_its_snapshot_and_claims_the_counted_rows(
        self, make_client: MakeClient, root: Path
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
        self, root: Path, expected: int, complete: bool
    ) -> None:
        rows = "\r\n".join(["id", *map(str, range(100)), ""])
        answer = answering(httpx.Response(200, text=rows))
        (landed,) = puller_of(mocked(counted(expected, answer)), root).export(*MARCH)
        assert landed.manifest.complete is complete
        reason = " ".join(landed.warnings) if complete else landed.manifest.why_incomplete
        assert f"100 rows of {expected} expected" in (reason or "")

    def test_an_export_without_bounds_covers_the_window_of_the_plan(
        self, make_client: MakeClient, root: Path
    ) -> None:
        (landed,) = puller_of(make_client(), root).export(None, None, coins=["bitcoin"])
        assert landed.manifest.scope == Scope(
            lower=datetime(2017, 1, 1, tzinfo=UTC), coins=("bitcoin",)
        )

    @pytest.mark.parametrize(
        ("answer", "word"),
        [(httpx.Response(200, html="<html>"), "HTML"), (httpx.Response(200), "empty body"),
         (httpx.Response(200, json={"error": {"code": "x"}}), "JSON"),
         (httpx.Response(200, text="id,title\r\n"), "header without rows")],
    )  # fmt: skip
    def test_an_export_that_is_no_catalog_is_landed_and_flagged(
        self, root: Path, answer: httpx.Response, word: str
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

    def test_an_export_truncated_inside_a_record_is_landed_as_received(
        self, make_client: MakeClient, root: Path
    ) -> None:
        client = make_client(extra_headers={"Sandbox-Faults": "truncate=0.5~export"})
        (landed,) = puller_of(client, root).export(*MARCH)
        assert not landed.manifest.complete
        assert landed.manifest.bytes > 10_000

    def test_a_broken_connection_lands_the_received_part(
        self, make_client: MakeClient, root: Path
    ) -> None:
        client = make_client(extra_headers={"Sandbox-Faults": "drop=0.5~export"})
        (landed,) = puller_of(client, root).export(*MARCH)
        assert "connection broke" in (landed.manifest.why_incomplete or "")
        assert landed.manifest.bytes > 10_000
        assert landed.requests == 3
        assert landed.deferred is not None
        assert landed.deferred.reason == "failing"

    @pytest.mark.parametrize(
        ("fetched", "last_modified", "content"),
        [("09:00:00", None, "02T00:05:00"), ("00:09:59", None, "01T00:05:00"),
         ("00:10:00", None, "02T00:05:00"), ("09:00:00", "03:00:00", "02T03:00:00"),
         ("09:00:00", "10:00:00", "02T00:05:00")],
    )  # fmt: skip
    def test_an_export_without_a_valid_last_modified_is_the_snapshot_of_its_day(
        self, root: Path, fetched: str, last_modified: str | None, content: str
    ) -> None:
        headers = {"Date": f"Mon, 02 Mar 2026 {fetched} GMT"}
        if last_modified is not None:
            headers["Last-Modified"] = f"Mon, 02 Mar 2026 {last_modified} GMT"
        answer = httpx.Response(200, text="id\r\na\r\n", headers=headers)
        (landed,) = puller_of(mocked(counted(1, answering(answer))), root).export(*MARCH)
        assert landed.manifest.content_at == datetime.fromisoformat(f"2026-03-{content}+00:00")
        assert landed.manifest.complete
        assert bool(landed.warnings) == (f"02T{last_modified}" != content)

    def test_a_plan_that_may_not_count_pulls_an_export_without_claimed_rows(
        self, root: Path
    ) -> None:
        answers = [httpx.Response(403, json={"error": {"code": "plan_required"}}),
                   httpx.Response(200, text="id\r\na\r\n")]  # fmt: skip
        (landed,) = puller_of(mocked(answering(*answers)), root).export(*MARCH)
        assert landed.manifest.rows_claimed is None
        assert landed.manifest.complete
        assert landed.requests == 2

    def test_more_coins_than_a_request_takes_are_several_batches(
        self, make_client: MakeClient, root: Path
    ) -> None:
        puller = puller_of(make_client(), root)
        coins = [row["slug"] for row in rows_of(Landing(root), puller.coins().manifest)][:150]
        landed = puller.export(*MARCH, coins=coins)
        scopes = [outcome.manifest.scope.coins for outcome in landed]
        assert scopes == [tuple(sorted(coins)[:100]), tuple(sorted(coins)[100:])]
        assert all(page.rows > 50 for page in landed)


class SlowExports:
    """Exports one row a day; too slow for more than `days_max`, used up after `quota` answers."""

    def __init__(self, days_max: int, quota: int = 1_000) -> None:
        self.days_max = days_max
        self.quota = quota

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
        self.quota -= 1
        if self.quota < 0:
            return httpx.Response(429, json={"error": {"code": "quota_exceeded"}})
        rows = [str(first + timedelta(days=n)) for n in range(min(days, 400))]
        return httpx.Response(200, text="\r\n".join(["id", *rows, ""]), headers=headers)


class TestSlowExports:
    def test_the_dates_are_halved_and_each_part_is_a_batch_with_its_own_scope(
        self, root: Path
    ) -> None:
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

    def test_a_range_without_an_end_is_split_after_today(self, root: Path) -> None:
        slow = httpx.Response(500, json={"error": {"code": "timeout"}})
        answers = answering(slow, httpx.Response(200, text="id\r\na\r\n"))
        puller = puller_of(mocked(counted(1, answers)), root)
        parts = puller.export(AT - timedelta(days=3), None)
        assert [part.manifest.scope.upper for part in parts] == [
            datetime(2026, 3, 2, 23, 59, 59, 999_999, tzinfo=UTC),
            None,
        ]

    def test_a_quota_used_up_between_two_parts_is_returned(self, root: Path) -> None:
        landed = puller_of(mocked(SlowExports(10, quota=2)), root).export(*MARCH)
        assert len(landed) == 2
        assert landed[-1].deferred is not None

    def test_a_service_that_is_always_too_slow_is_an_error(self, root: Path) -> None:
        slow = httpx.Response(500, json={"error": {"code": "timeout"}})
        with pytest.raises(Exception, match="half the range"):
            puller_of(mocked(answering(slow)), root).export(date(2026, 3, 1), None)
        assert all_manifests(root) == []
