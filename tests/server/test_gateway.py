"""Keys, both kinds of 429, sizes, retired paths, the time limit, and which requests count."""

import asyncio
import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from catalog.contract import constants
from catalog.contract.plans import PLANS
from catalog.server.accounts import (
    JsonFile,
    KeyBook,
    KeyRing,
    ServiceDirError,
    UsageBook,
    UsageCounts,
    key_digest,
)
from catalog.server.app import Gateway, Metrics, RateLimiter, ServerOptions
from catalog.server.exchange import Exchange, Reply, attach
from catalog.server.memory_view import MemoryView
from tests.hangs import HANGS_AFTER_S, wait_for
from tests.server.small_catalog import NOW, ManualClock, Service, event, grant, serving, view

SECOND_NS = 1_000_000_000


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with serving(view([event("a")])) as service:
        yield service


def assert_error(answer: httpx.Response, status: int, code: str) -> None:
    assert answer.status_code == status, answer.text
    body = answer.json()
    assert body["error"]["code"] == code
    assert body["error"]["message"] == body["message"] != ""
    assert body["error"]["requestId"].startswith("req_")
    assert body["error"]["docs"] == f"/docs#error-{code}"
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["date"] == "Mon, 15 Jun 2026 10:00:00 GMT"


class TestKeys:
    def test_both_headers_are_accepted(self, service: Service) -> None:
        for headers in (
            {"x-api-key": "pro"},
            {"Authorization": "Bearer pro"},
            {"authorization": "bearer  pro"},
            {"x-api-key": "pro", "Authorization": "Bearer pro"},
        ):
            answer = service.client.get("/v2/usage", headers=headers)
            assert answer.status_code == 200, headers
            assert answer.json()["plan"] == "pro"

    @pytest.mark.parametrize(
        "headers",
        [
            {},
            {"x-api-key": ""},
            {"x-api-key": "nobody"},
            {"x-api-key": "pr"},
            {"Authorization": "Basic cHJv"},
            {"Authorization": "pro"},
            {"x-api-key": "pro", "Authorization": "Bearer elite"},
            {"x-api-key": "V1-0123456789"},
        ],
    )
    def test_no_key_a_wrong_one_or_two_are_forbidden(
        self, service: Service, headers: dict[str, str]
    ) -> None:
        answer = service.client.get("/v2/events", headers=headers)
        assert_error(answer, 403, "unauthorized")
        assert answer.json()["message"] == "Forbidden"

    def test_two_different_keys_in_one_header_name_are_forbidden(self, service: Service) -> None:
        pair = [("x-api-key", "pro"), ("x-api-key", "elite")]
        assert_error(service.client.get("/v2/events", headers=pair), 403, "unauthorized")

    def test_open_paths_need_no_key_and_count_nothing(self, service: Service) -> None:
        before = service.get("/v2/usage").json()["used"]
        for path in ("/v2/openapi.json", "/docs", "/healthz", "/metrics"):
            assert service.client.get(path).status_code == 200, path
            assert service.get(path).status_code == 200
        assert service.get("/v2/usage").json()["used"] == before + 1


class TestRefusedBeforeTheRoutes:
    @pytest.mark.parametrize(
        "path",
        [
            *("/v1", "/v1/events", "/v1/anything/else", "/events", "/events/12", "/coins"),
            *("/coins/bitcoin", "/categories"),
        ],
    )
    def test_retired_paths_are_forbidden_with_any_key(self, service: Service, path: str) -> None:
        for answer in (service.get(path), service.client.get(path)):
            assert_error(answer, 403, "version_retired")
            assert answer.json()["message"] == "Forbidden"

    def test_long_paths_and_queries(self, service: Service) -> None:
        longest = "/v2/events/" + "x" * (constants.PATH_LENGTH_MAX - len("/v2/events/"))
        assert_error(service.get(longest), 404, "not_found")
        assert_error(service.get(longest + "x"), 414, "uri_too_long")
        query = "/v2/events?unknown=" + "x" * (constants.QUERY_LENGTH_MAX - len("unknown="))
        assert service.get(query).status_code == 200
        assert_error(service.get(query + "x"), 414, "uri_too_long")

    def test_big_headers(self, service: Service) -> None:
        assert service.get("/v2/events", filler="x" * 15_000).status_code == 200
        assert_error(service.get("/v2/events", filler="x" * 17_000), 431, "headers_too_large")

    def test_unknown_paths(self, service: Service) -> None:
        for path in ("/v2", "/v2/", "/v2/event", "/v2/events/a/b", "/v3/events", "/v2/events/"):
            assert_error(service.get(path), 404, "not_found")

    @pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "BREW"])
    def test_wrong_methods(self, service: Service, method: str) -> None:
        for path in ("/v2/events", "/v2/events/a", "/v2/coins", "/v2/usage", "/v2/events/export"):
            answer = service.client.request(method, path, headers={"x-api-key": "elite"})
            assert_error(answer, 405, "method_not_allowed")
            assert "GET" in answer.headers["allow"]

    def test_head_answers_like_get_without_a_body(self, service: Service) -> None:
        for path in ("/v2/events", "/v2/events/export"):
            answer = service.client.head(path, headers={"x-api-key": "elite"})
            assert (answer.status_code, answer.content) == (200, b"")


class TestRateAndBurst:
    def test_burst_requests_pass_and_the_next_has_a_retry_after_of_a_second(self) -> None:
        slow = grant("free", "slow", rate_per_s=0.01, burst=5)
        with serving(view(), keys=[slow]) as service:
            answers = [service.get("/v2/categories", "slow") for _ in range(8)]
            assert [answer.status_code for answer in answers] == [200] * 5 + [429] * 3
            assert_error(answers[-1], 429, "rate_limit_exceeded")
            assert answers[-1].json()["message"] == "Too Many Requests"
            assert answers[-1].headers["retry-after"] == "1"
            assert service.usage.used(slow, NOW) == 5

    def test_keys_have_buckets_of_their_own(self) -> None:
        pair = [grant("free", name, rate_per_s=0.01, burst=1) for name in ("one", "two")]
        with serving(view(), keys=pair) as service:
            statuses = [
                service.get("/v2/categories", key).status_code for key in ("one", "one", "two")
            ]
            assert statuses == [200, 429, 200]

    def test_errors_of_the_routes_count_like_answers(self) -> None:
        key = grant("free", "key")
        with serving(view([event("a")]), keys=[key]) as service:
            etag = service.get("/v2/events", "key").headers["etag"]
            for path, status in (
                ("/v2/events?limit=0", 400),
                ("/v2/events/export", 403),
                ("/v2/events/nope", 404),
                ("/v2/nowhere", 404),
            ):
                assert service.get(path, "key").status_code == status
            assert service.get("/v2/events", "key", if_none_match=etag).status_code == 304
            assert (
                service.client.post("/v2/events", headers={"x-api-key": "key"}).status_code == 405
            )
            assert service.get("/v2/usage", "key").json()["used"] == 8

    @given(
        rate=st.sampled_from([0.3, 1, 3, 10, 25, 100]),
        burst=st.integers(1, 200),
        gaps_ns=st.lists(st.integers(0, 3 * SECOND_NS), max_size=200),
    )
    def test_a_bucket_never_gives_more_than_burst_and_rate_times_time(
        self, rate: float, burst: int, gaps_ns: list[int]
    ) -> None:
        bucket, now = RateLimiter(rate_per_s=rate, burst=burst), 0
        taken = 0
        for gap in gaps_ns:
            now += gap
            taken += bucket.take(now)
            assert taken <= burst + rate * now / SECOND_NS + 1e-9

    @pytest.mark.parametrize(("rate", "burst"), [(1, 5), (3, 15), (10, 50), (25, 150), (0.5, 2)])
    def test_a_bucket_gives_exactly_burst_and_then_the_rate(self, rate: float, burst: int) -> None:
        bucket = RateLimiter(rate_per_s=rate, burst=burst)
        assert sum(bucket.take(7) for _ in range(burst + 5)) == burst
        # 1,000 s in steps that do not divide a second: rounding neither adds nor loses a token.
        steps = range(1, 10_001)
        taken = sum(bucket.take(7 + step * SECOND_NS // 10) for step in steps for _ in range(8))
        assert taken == 1_000 * rate

    def test_a_monotonic_clock_that_stands_still_adds_no_token(self) -> None:
        bucket = RateLimiter(rate_per_s=1, burst=1)
        assert [bucket.take(10), bucket.take(5), bucket.take(10)] == [True, False, False]


class TestExportLimiter:
    def test_a_key_has_one_export_a_minute_and_a_refused_one_takes_nothing(self) -> None:
        clock_ns = 0
        keys = [
            grant("elite", name, rate_per_s=1e-3, burst=3, export_interval_s=None)
            for name in ("one", "two")
        ]
        with serving(view(), keys=keys, monotonic_ns=lambda: clock_ns) as service:
            export = "/v2/events/export"
            assert service.get(export, "one").status_code == 200
            for passed_s, retry_after in ((0, "60"), (0.5, "60"), (59.001, "1")):
                clock_ns = int(passed_s * SECOND_NS)
                for method in ("GET", "HEAD"):
                    answer = service.client.request(method, export, headers={"x-api-key": "one"})
                    assert answer.status_code == 429
                    assert answer.headers["retry-after"] == retry_after
            assert_error(service.get(export, "one"), 429, "rate_limit_exceeded")
            # Neither the month nor the bucket of three has counted the seven that were refused.
            assert service.get("/v2/usage", "one").json()["used"] == 2
            assert service.get(export, "two").status_code == 200
            clock_ns = 60 * SECOND_NS
            assert service.get(export, "one").status_code == 200

    def test_a_request_refused_by_the_bucket_starts_no_interval(self) -> None:
        clock_ns = 0
        key = grant("elite", "key", rate_per_s=1, burst=1, export_interval_s=None)
        with serving(view(), keys=[key], monotonic_ns=lambda: clock_ns) as service:
            assert service.get("/v2/usage", "key").status_code == 200
            refused = service.get("/v2/events/export", "key")
            assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
            clock_ns = SECOND_NS
            assert service.get("/v2/events/export", "key").status_code == 200

    def test_a_plan_without_the_export_is_told_so_each_time(self) -> None:
        key = grant("pro", "key", export_interval_s=None)
        with serving(view(), keys=[key]) as service:
            for _ in range(3):
                assert_error(service.get("/v2/events/export", "key"), 403, "tier_required")


class TestQuota:
    def test_the_quota_is_exact_and_its_429_has_the_time_to_the_reset(self) -> None:
        key = grant("free", "key", monthly_quota=3)
        with serving(view(), keys=[key]) as service:
            answers = [service.get("/v2/categories", "key") for _ in range(5)]
            assert [answer.status_code for answer in answers] == [200] * 3 + [429] * 2
            assert_error(answers[-1], 429, "quota_exceeded")
            wait = datetime(2026, 7, 1, tzinfo=UTC) - NOW
            assert answers[-1].headers["retry-after"] == str(int(wait.total_seconds()))
            assert service.usage.used(key, NOW) == 3

    def test_a_client_that_waits_for_retry_after_has_the_new_month(self) -> None:
        now = datetime(2026, 6, 30, 23, 59, 59, 400_000, tzinfo=UTC)
        key = grant("free", "key", monthly_quota=0)
        with serving(view(), keys=[key], now=now) as service:
            assert service.get("/v2/usage", "key").headers["retry-after"] == "1"

    def test_a_past_month_is_counted_after_many_later_ones(self) -> None:
        key, book = grant("free", "key"), UsageBook()
        for month in range(30):
            book.charge(key, datetime(2023 + month // 12, month % 12 + 1, 5, tzinfo=UTC))
        long_past = datetime(2020, 1, 5, tzinfo=UTC)
        for count in (1, 2, 3):
            book.charge(key, long_past)
            assert book.used(key, long_past) == count

    def test_the_next_month_starts_at_zero(self) -> None:
        key = grant("free", "key", monthly_quota=1)
        with serving(view(), keys=[key]) as service:
            assert service.get("/v2/usage", "key").status_code == 200
            service.clock.now = datetime(2026, 6, 30, 23, 59, 59, tzinfo=UTC)
            assert service.get("/v2/usage", "key").headers["retry-after"] == "1"
            service.clock.now = datetime(2026, 7, 1, tzinfo=UTC)
            assert service.get("/v2/usage", "key").json()["used"] == 1

    def test_usage_counts_itself_and_has_the_remaining_requests(self, service: Service) -> None:
        key = grant("standard", "counted", rate_per_s=3, burst=15)
        with serving(view(), keys=[key]) as service:
            service.get("/v2/categories", "counted")
            answer = service.get("/v2/usage", "counted")
            assert answer.headers["cache-control"] == "no-store"
            assert answer.json() == {
                "plan": "standard",
                "period": {"start": "2026-06-01T00:00:00Z", "end": "2026-07-01T00:00:00Z"},
                "used": 2,
                "limit": 30_000,
                "remaining": 29_998,
                "resetAt": "2026-07-01T00:00:00Z",
                "rate": 3.0,
                "burst": 15,
            }

    def test_enterprise_has_no_limit_unless_its_key_has_one(self, service: Service) -> None:
        body = service.get("/v2/usage", "enterprise").json()
        assert (body["limit"], body["remaining"]) == (None, None)


class TestUsageFile:
    def test_counts_survive_a_restart(self, tmp_path: Path) -> None:
        key, file = grant("free", "key"), JsonFile(tmp_path / "usage.json", UsageCounts)
        book = UsageBook(file)
        book.charge(key, NOW, 3)
        book.flush()
        assert UsageBook(file).used(key, NOW) == 3

    def test_a_write_that_fails_is_tried_again(self, tmp_path: Path) -> None:
        folder = tmp_path / "gone"
        folder.write_text("a file where the folder should be")
        key, file = grant("free", "key"), JsonFile(folder / "usage.json", UsageCounts)
        book = UsageBook()
        book._file = file
        book.charge(key, NOW)
        book.flush()
        folder.unlink()
        book.flush()
        assert UsageBook(file).used(key, NOW) == 1


class TestKeyBook:
    def book(self, folder: Path, clock: ManualClock) -> KeyBook:
        return KeyBook(folder / "keys.json", wall=clock)

    def test_a_key_works_until_it_is_revoked_while_the_server_runs(self, tmp_path: Path) -> None:
        clock = ManualClock()
        book = self.book(tmp_path, clock)
        with serving(view(), ring=KeyRing(book=book, wall=clock)) as service:
            key, stored = book.create("acme", PLANS["standard"])
            assert service.get("/v2/usage", key).json()["plan"] == "standard"
            book.revoke(stored.id)
            assert service.get("/v2/usage", key).status_code == 403

    def test_a_rotated_key_works_beside_its_successor_for_the_overlap(self, tmp_path: Path) -> None:
        clock = ManualClock()
        book = self.book(tmp_path, clock)
        ring = KeyRing(book=book, wall=clock)
        old, stored = book.create("acme", PLANS["free"])
        new, _ = book.rotate(stored.id, overlap=timedelta(hours=1))
        assert ring.find(old) and ring.find(new)
        clock.now += timedelta(hours=1)
        assert ring.find(old) is None
        assert ring.find(new)

    @pytest.mark.parametrize(
        ("plan", "keys"), [("free", 1), ("standard", 5), ("pro", 10), ("elite", 20)]
    )
    def test_an_account_has_at_most_its_plans_number_of_keys(
        self, tmp_path: Path, plan: str, keys: int
    ) -> None:
        book = self.book(tmp_path, ManualClock())
        made = [book.create("acme", PLANS[plan])[1] for _ in range(keys)]
        with pytest.raises(ServiceDirError, match="revoke one first"):
            book.create("acme", PLANS[plan])
        book.revoke(made[0].id)
        book.create("acme", PLANS[plan])
        book.create("another", PLANS[plan])

    def test_rotating_does_not_add_a_key(self, tmp_path: Path) -> None:
        book = self.book(tmp_path, ManualClock())
        _, stored = book.create("acme", PLANS["free"])
        book.rotate(stored.id, overlap=timedelta(hours=1))
        with pytest.raises(ServiceDirError):
            book.create("acme", PLANS["free"])
        with pytest.raises(ServiceDirError, match="another account"):
            book.create("acme", PLANS["pro"])

    def test_a_key_with_a_successor_is_not_rotated_again(self, tmp_path: Path) -> None:
        book = self.book(tmp_path, ManualClock())
        _, first = book.create("acme", PLANS["free"])
        _, second = book.rotate(first.id, overlap=timedelta(hours=1))
        with pytest.raises(ServiceDirError, match="was already replaced"):
            book.rotate(first.id, overlap=timedelta(hours=1))
        book.rotate(second.id, overlap=timedelta(hours=1))

    def test_a_successor_uses_the_bucket_and_quota_of_the_replaced_key(
        self, tmp_path: Path
    ) -> None:
        clock = ManualClock()
        book = self.book(tmp_path, clock)
        with serving(view(), ring=KeyRing(book=book, wall=clock)) as service:
            old, stored = book.create(
                "acme", PLANS["enterprise"], rate_per_s=0.001, burst=5, monthly_quota=4
            )
            assert service.get("/v2/usage", old).json()["used"] == 1
            second, stored = book.rotate(stored.id, overlap=timedelta(hours=1))
            third, _ = book.rotate(stored.id, overlap=timedelta(hours=1))
            assert service.get("/v2/usage", second).json()["used"] == 2
            last = service.get("/v2/usage", third).json()
            assert (last["used"], last["burst"], last["limit"]) == (3, 5, 4)
            assert service.get("/v2/usage", old).status_code == 200
            assert service.get("/v2/usage", third).json()["error"]["code"] == "quota_exceeded"

    def test_enterprise_keys_of_one_account_have_limits_of_their_own(self, tmp_path: Path) -> None:
        book = self.book(tmp_path, ManualClock())
        ring = KeyRing(book=book)
        for rate in (10.0, 99.0):
            key, _ = book.create("big", PLANS["enterprise"], rate_per_s=rate)
            found = ring.find(key)
            assert found is not None
            assert found.rate_per_s == rate

    def test_only_enterprise_sets_its_limits(self, tmp_path: Path) -> None:
        book = self.book(tmp_path, ManualClock())
        with pytest.raises(ServiceDirError, match="only Enterprise"):
            book.create("acme", PLANS["elite"], rate_per_s=50)
        key, _ = book.create("big", PLANS["enterprise"], rate_per_s=7, burst=9, monthly_quota=11)
        found = KeyRing(book=book).find(key)
        assert found is not None
        assert (found.rate_per_s, found.burst, found.monthly_quota) == (7, 9, 11)

    def test_the_file_holds_no_key_and_only_its_owner_reads_it(self, tmp_path: Path) -> None:
        book = self.book(tmp_path, ManualClock())
        key, _ = book.create("acme", PLANS["free"])
        path = tmp_path / "keys.json"
        assert key not in path.read_text()
        assert key_digest(key) in path.read_text()
        assert path.stat().st_mode & 0o077 == 0
        assert key not in repr(book.read())

    def test_a_damaged_file_prevents_changes_and_known_keys_stay_valid(
        self, tmp_path: Path
    ) -> None:
        clock = ManualClock()
        book = self.book(tmp_path, clock)
        ring = KeyRing(book=book, wall=clock)
        key, _ = book.create("acme", PLANS["free"])
        assert ring.find(key)
        (tmp_path / "keys.json").write_text("{damaged")
        assert ring.find(key)
        with pytest.raises(Exception, match="was not changed"):
            book.create("other", PLANS["free"])
        assert (tmp_path / "keys.json").read_text() == "{damaged"

    def test_an_unknown_plan_makes_the_file_unreadable_and_the_server_continues(
        self, tmp_path: Path
    ) -> None:
        book = self.book(tmp_path, ManualClock())
        key, _ = book.create("acme", PLANS["free"])
        path = tmp_path / "keys.json"
        path.write_text(path.read_text().replace('"free"', '"gold"'))
        with pytest.raises(ServiceDirError, match="gold"):
            book.read()
        assert KeyRing(book=book).find(key) is None

    @pytest.mark.parametrize(
        "limits",
        [{"rate_per_s": 1e-300}, {"burst": 10**30}, {"monthly_quota": -1}, {"rate_per_s": 0}],
    )
    def test_limits_out_of_bounds_are_refused(
        self, tmp_path: Path, limits: dict[str, float]
    ) -> None:
        book = self.book(tmp_path, ManualClock())
        with pytest.raises(ServiceDirError, match="must"):
            book.create("big", PLANS["enterprise"], **limits)  # type: ignore[arg-type]
        with pytest.raises(ServiceDirError, match="name"):
            book.create(" ", PLANS["free"])

    def test_keys_are_random_and_long(self, tmp_path: Path) -> None:
        book = self.book(tmp_path, ManualClock())
        keys = {book.create("acme", PLANS["elite"])[0] for _ in range(20)}
        assert len(keys) == 20
        assert min(map(len, keys)) >= 40


class TestTimeLimit:
    def test_a_request_over_the_time_limit_is_a_500_with_the_next_step(self) -> None:
        async def never(scope: Scope, exchange: Exchange) -> Reply:
            await asyncio.Event().wait()
            raise AssertionError

        sent: list[dict[str, object]] = []

        async def send(message: dict[str, object]) -> None:
            sent.append(message)

        scope = {
            "type": "http",
            "method": "GET",
            "path": "/v2/events",
            "query_string": b"",
            "headers": [(b"x-api-key", b"elite")],
        }
        attach(scope, Exchange(now=NOW))
        ring = KeyRing(fixed=[grant("elite", "elite")])
        gateway = Gateway(never, keys=ring, usage=UsageBook(), metrics=Metrics(), time_limit_s=0.05)
        asyncio.run(gateway(scope, None, send))  # type: ignore[arg-type]
        assert sent[0]["status"] == 500
        body = json.loads(sent[1]["body"])  # type: ignore[arg-type]
        assert body["error"]["code"] == "internal_error"
        assert "reduce limit or narrow the filters" in body["message"]

    def test_an_answer_that_fails_on_its_way_breaks_the_connection_and_names_the_cause(
        self,
    ) -> None:
        """Only the exception reaches the log of the server: nothing else was answered."""

        class BrokenResponse(Response):
            async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
                await send({"type": "http.response.start", "status": 200, "headers": []})
                raise TimeoutError("the store")

        async def breaks(scope: Scope, exchange: Exchange) -> Reply:
            return BrokenResponse()

        sent: list[Message] = []

        async def send(message: Message) -> None:
            sent.append(message)

        scope = {
            "type": "http",
            "method": "GET",
            "path": "/v2/events",
            "query_string": b"",
            "headers": [(b"x-api-key", b"elite")],
        }
        attach(scope, Exchange(now=NOW))
        ring = KeyRing(fixed=[grant("elite", "elite")])
        gateway = Gateway(
            breaks, keys=ring, usage=UsageBook(), metrics=Metrics(), time_limit_s=HANGS_AFTER_S
        )
        with pytest.raises(ConnectionAbortedError) as failed:
            asyncio.run(gateway(scope, None, send))  # type: ignore[arg-type]
        assert [message["type"] for message in sent] == ["http.response.start"]
        assert str(failed.value.__cause__) == "the store"

    def test_work_that_never_awaits_is_late_too(self) -> None:
        class Slow(MemoryView):
            def categories(self):  # type: ignore[no-untyped-def]
                time.sleep(0.1)
                return super().categories()

        plain = view([event("a")])
        slow = Slow(plain._index, coins=plain.book, categories=(), cancelled={})
        with serving(slow, options=ServerOptions(time_limit_s=0.05)) as service:
            assert_error(service.get("/v2/categories"), 500, "internal_error")
            # The short time limit may refuse more requests on a busy machine.
            wait_for(lambda: service.get("/v2/events/cancellations").status_code == 200)

    def test_an_error_in_a_route_is_a_500_of_the_error_shape_and_the_next_request_is_served(
        self,
    ) -> None:
        class Broken(MemoryView):
            def categories(self):  # type: ignore[no-untyped-def]
                raise RuntimeError("the store is broken: secret-canary")

        whole = view([event("a")])
        broken = Broken(whole._index, coins=whole.book, categories=(), cancelled={})
        with serving(broken) as service:
            answer = service.get("/v2/categories")
            assert_error(answer, 500, "internal_error")
            assert "canary" not in answer.text
            assert service.get("/v2/events/cancellations").status_code == 200
