import asyncio
import logging
import time
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route, Router
from starlette.types import Message, Receive, Scope, Send

from catalog.contract import constants
from catalog.contract.errors import BodyTooSlow
from catalog.server.app import ServerOptions
from catalog.server.body_limit import BodyLimit, BodyReader
from tests.hangs import wait_for
from tests.server.bare_server import NOW, BareServer, BareStore, bare_server, grant

SECOND_NS = 1_000_000_000
_SILENT_S = 5.0


@pytest.fixture(scope="module")
def server() -> Iterator[BareServer]:
    with bare_server() as server:
        yield server


def assert_error(answer: Any, status: int, code: str) -> None:
    assert answer.status_code == status, answer.text
    body = answer.json()
    assert body["error"]["code"] == code
    assert body["error"]["message"] == body["message"] != ""
    assert body["error"]["requestId"].startswith("req_")
    assert body["error"]["docs"] == f"/docs#error-{code}"
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["date"] == "Mon, 15 Jun 2026 10:00:00 GMT"


class TestKeys:
    def test_both_headers_are_accepted(self, server: BareServer) -> None:
        bearers = ({"Authorization": "Bearer pro"}, {"authorization": "bearer  pro"})
        for headers in ({"x-api-key": "pro"}, *bearers, {"x-api-key": "pro", **bearers[0]}):
            answer = server.client.get("/v2/usage", headers=headers)
            assert answer.json()["plan"] == "pro", headers

    def test_no_key_a_wrong_one_or_two_are_forbidden(self, server: BareServer) -> None:
        refused: list[Any] = [{}, *({"x-api-key": key} for key in ("", "nobody", "pr"))]
        refused += [{"Authorization": value} for value in ("Basic cHJv", "pro")]
        refused.append({"x-api-key": "pro", "Authorization": "Bearer elite"})
        for headers in (*refused, [("x-api-key", "pro"), ("x-api-key", "elite")]):
            answer = server.client.get("/v2/events", headers=headers)
            assert_error(answer, 403, "unauthorized")
            assert answer.json()["message"] == "Forbidden"

    def test_open_paths_need_no_key_and_count_nothing(self, server: BareServer) -> None:
        before = server.get("/v2/usage").json()["used"]
        for path in ("/v2/openapi.json", "/docs", "/healthz", "/metrics"):
            assert server.client.get(path).status_code == 200, path
            assert server.get(path).status_code == 200
        assert server.get("/v2/usage").json()["used"] == before + 1


class TestRefusedBeforeTheRoutes:
    def test_retired_paths_are_forbidden_with_any_key(self, server: BareServer) -> None:
        paths = ("/v1", "/v1/events", "/v1/anything/else", "/events", "/events/12", "/coins")
        for path in (*paths, "/coins/bitcoin", "/categories"):
            for answer in (server.get(path), server.client.get(path)):
                assert_error(answer, 403, "version_retired")
                assert answer.json()["message"] == "Forbidden"

    def test_long_paths_and_queries_and_big_headers(self, server: BareServer) -> None:
        longest = "/v2/events/" + "x" * (constants.PATH_LENGTH_MAX - len("/v2/events/"))
        assert_error(server.get(longest), 404, "not_found")
        assert_error(server.get(longest + "x"), 414, "uri_too_long")
        query = "/v2/categories?unknown=" + "x" * (constants.QUERY_LENGTH_MAX - len("unknown="))
        answer = server.get(query)
        assert (answer.status_code, answer.headers["x-ignored-parameters"]) == (200, "unknown")
        assert_error(server.get(query + "x"), 414, "uri_too_long")

        assert server.get("/v2/usage", filler="x" * 15_000).status_code == 200
        assert_error(server.get("/v2/usage", filler="x" * 17_000), 431, "headers_too_large")

    def test_unknown_paths(self, server: BareServer) -> None:
        for path in (
            *("/v2", "/v2/", "/v2/event", "/v2/events/a/b", "/v3/events", "/v2/events/"),
            *("/v2/events%0A", "/v2/events/export%0A", "/v2/events/a%2Fb", "/v2/events/%00"),
        ):
            answer = server.get(path)
            assert_error(answer, 404, "not_found")
            assert "x-ratelimit-remaining" in answer.headers

    def test_wrong_methods_and_head(self, server: BareServer) -> None:
        for path in ("/v2/events", "/v2/usage", "/v2/events/export"):
            for method in ("POST", "OPTIONS", "BREW"):
                answer = server.client.request(method, path, headers={"x-api-key": "elite"})
                assert_error(answer, 405, "method_not_allowed")
                assert answer.headers["allow"] == "GET, HEAD"
        answer = server.client.head("/v2/events/export", headers={"x-api-key": "elite"})
        assert (answer.status_code, answer.content) == (200, b"")


class TestRateAndBurst:
    def test_burst_requests_pass_and_the_next_has_a_retry_after_of_a_second(self) -> None:
        slow, other = (grant("free", name, rate_per_s=0.01, burst=5) for name in ("slow", "other"))
        with bare_server(keys=[slow, other]) as server:
            answers = [server.get("/v2/categories", "slow") for _ in range(8)]
            assert [answer.status_code for answer in answers] == [200] * 5 + [429] * 3
            assert_error(answers[-1], 429, "rate_limit_exceeded")
            assert answers[-1].json()["message"] == "Too Many Requests"
            assert answers[-1].headers["retry-after"] == "1"
            assert server.usage.used(slow, NOW) == 5
            assert server.get("/v2/categories", "other").status_code == 200

    def test_errors_of_the_routes_count_like_answers(self) -> None:
        with bare_server(keys=[grant("free", "key")]) as server:
            etag = server.get("/v2/categories", "key").headers["etag"]
            for path, status in (
                ("/v2/events?limit=0", 400),
                ("/v2/events/export", 403),
                ("/v2/events/nope", 404),
                ("/v2/nowhere", 404),
            ):
                assert server.get(path, "key").status_code == status
            assert server.get("/v2/categories", "key", if_none_match=etag).status_code == 304
            assert server.client.post("/v2/events", headers={"x-api-key": "key"}).is_error
            assert server.get("/v2/usage", "key").json()["used"] == 8

    @given(
        rate=st.sampled_from([0.3, 0.5, 1, 3, 10, 25]),
        burst=st.integers(1, 9),
        gaps_ns=st.lists(st.integers(0, 3 * SECOND_NS), max_size=60),
    )
    @example(rate=1, burst=1, gaps_ns=[0, 0, SECOND_NS])
    def test_a_key_has_exactly_its_burst_and_then_its_rate(
        self, rate: float, burst: int, gaps_ns: list[int]
    ) -> None:
        now_ns, tokens, full = 0, Fraction(burst), Fraction(burst)
        key = grant("elite", "key", rate_per_s=rate, burst=burst, monthly_quota=None)
        with bare_server(keys=[key], monotonic_ns=lambda: now_ns) as server:
            for gap_ns in gaps_ns:
                now_ns += gap_ns
                tokens = min(full, tokens + Fraction(gap_ns, SECOND_NS) * Fraction(str(rate)))
                passes = server.get("/v2/categories", "key").status_code == 200
                assert passes == (tokens >= 1)
                tokens -= passes


class TestExportInterval:
    def test_a_key_has_one_export_a_minute_and_a_refused_one_takes_nothing(self) -> None:
        clock_ns = 0
        keys = [
            grant("elite", name, rate_per_s=1e-3, burst=3, export_interval_s=None)
            for name in ("one", "two")
        ]
        with bare_server(keys=keys, monotonic_ns=lambda: clock_ns) as server:
            export = "/v2/events/export"
            assert server.get(export, "one").status_code == 200
            for passed_s, retry_after in ((0, "60"), (0.5, "60"), (59.001, "1")):
                clock_ns = int(passed_s * SECOND_NS)
                for method in ("GET", "HEAD"):
                    answer = server.client.request(method, export, headers={"x-api-key": "one"})
                    assert answer.status_code == 429
                    assert answer.headers["retry-after"] == retry_after
            assert_error(server.get(export, "one"), 429, "rate_limit_exceeded")
            # Neither the month nor the bucket of three has counted the seven that were refused.
            assert server.get("/v2/usage", "one").json()["used"] == 2
            assert server.get(export, "two").status_code == 200
            clock_ns = 60 * SECOND_NS
            assert server.get(export, "one").status_code == 200

    def test_a_request_refused_by_the_bucket_starts_no_interval(self) -> None:
        clock_ns = 0
        key = grant("elite", "key", rate_per_s=1, burst=1, export_interval_s=None)
        low = grant("pro", "low", export_interval_s=None)
        with bare_server(keys=[key, low], monotonic_ns=lambda: clock_ns) as server:
            for _ in range(2):
                assert_error(server.get("/v2/events/export", "low"), 403, "tier_required")
            assert server.get("/v2/usage", "key").status_code == 200
            refused = server.get("/v2/events/export", "key")
            assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
            clock_ns = SECOND_NS
            assert server.get("/v2/events/export", "key").status_code == 200


class TestQuota:
    def test_the_quota_is_exact_and_its_429_has_the_time_to_the_reset(self) -> None:
        key = grant("free", "key", monthly_quota=3)
        with bare_server(keys=[key]) as server:
            answers = [server.get("/v2/categories", "key") for _ in range(5)]
            assert [answer.status_code for answer in answers] == [200] * 3 + [429] * 2
            left = [answer.headers["x-ratelimit-remaining"] for answer in answers]
            assert left == ["2", "1", "0", "0", "0"]
            assert_error(answers[-1], 429, "quota_exceeded")
            assert answers[-1].headers["x-ratelimit-limit"] == "3"
            assert answers[-1].headers["x-ratelimit-reset"] == "2026-07-01T00:00:00Z"
            wait = datetime(2026, 7, 1, tzinfo=UTC) - NOW
            assert answers[-1].headers["retry-after"] == str(int(wait.total_seconds()))
            assert server.usage.used(key, NOW) == 3

    def test_a_client_that_waits_for_retry_after_has_the_new_month(self) -> None:
        with bare_server(keys=[grant("free", "key", monthly_quota=1)]) as server:
            assert server.get("/v2/usage", "key").status_code == 200
            for left in (timedelta(seconds=1), timedelta(seconds=0.6)):
                server.clock.now = datetime(2026, 7, 1, tzinfo=UTC) - left
                assert server.get("/v2/usage", "key").headers["retry-after"] == "1"
            server.clock.now = datetime(2026, 7, 1, tzinfo=UTC)
            assert server.get("/v2/usage", "key").json()["used"] == 1

    def test_usage_counts_itself_and_has_the_remaining_requests(self) -> None:
        with bare_server(keys=[grant("standard", "key", rate_per_s=3, burst=15)]) as server:
            server.get("/v2/categories", "key")
            answer = server.get("/v2/usage", "key")
            assert answer.headers["cache-control"] == "no-store"
            end = "2026-07-01T00:00:00Z"
            assert answer.json() == {
                "plan": "standard",
                "period": {"start": "2026-06-01T00:00:00Z", "end": end},
                **{"used": 2, "limit": 30_000, "remaining": 29_998, "resetAt": end},
                **{"rate": 3.0, "burst": 15},
            }

    def test_without_a_quota_no_header_states_one(self, server: BareServer) -> None:
        """The decision "No quota": absent, not a number that means nothing."""
        for path in ("/v2/usage", "/v2/nope", "/v2/events?limit=0"):
            answer = server.get(path, "enterprise")
            assert not [name for name in answer.headers if name.startswith("x-ratelimit")]
        body = server.get("/v2/usage", "enterprise").json()
        assert (body["limit"], body["remaining"]) == (None, None)


class FailingStore(BareStore):
    """A store whose list of categories is slow, and whose search for coins raises."""

    def categories(self, ts: datetime) -> Any:
        time.sleep(0.5)
        return super().categories(ts)

    def coins(self, *_: Any, **__: Any) -> Any:
        raise RuntimeError("the store is broken: secret-canary")


async def stream(last: bytes | Exception) -> AsyncIterator[bytes]:
    yield b"first "
    await asyncio.sleep(0.1)
    if isinstance(last, Exception):
        raise last
    yield last


class TestFailures:
    def test_a_request_over_the_time_limit_is_a_500_with_the_next_step(self) -> None:
        options = ServerOptions(time_limit_s=0.05)
        with bare_server(store=FailingStore(), options=options) as server:
            answer = server.get("/v2/categories")
            assert_error(answer, 500, "internal_error")
            assert "reduce limit or narrow the filters" in answer.json()["message"]
            assert answer.headers["x-ratelimit-limit"] == "3000000"
            # The loop is not blocked; a busy machine may exceed the limit again.
            assert wait_for(lambda: server.get("/v2/usage").is_success)

    def test_the_time_limit_ends_with_the_first_byte(self) -> None:
        route = Route("/v2/drip", lambda request: StreamingResponse(stream(b"last")))
        with bare_server(options=ServerOptions(time_limit_s=0.05), routes=[route]) as server:
            answers = iter(lambda: server.get("/v2/drip"), None)
            assert next(a for a in answers if a.is_success).text == "first last"

    def test_an_error_in_a_route_shows_no_cause(self, caplog: pytest.LogCaptureFixture) -> None:
        with bare_server(store=FailingStore()) as server:
            answer = server.get("/v2/coins")
            assert_error(answer, 500, "internal_error")
            assert "canary" not in answer.text
            assert answer.json()["error"]["requestId"] in caplog.text
            assert server.get("/v2/usage").status_code == 200

    def test_a_broken_answer_closes_the_connection(self, caplog: pytest.LogCaptureFixture) -> None:
        broken = stream(TimeoutError("the store"))
        routes = [Route("/v2/breaks", lambda request: StreamingResponse(broken))]
        with bare_server(routes=routes, raises=True) as server:  # noqa: SIM117
            with pytest.raises(ConnectionAbortedError):
                server.get("/v2/breaks")
        assert "TimeoutError: the store" in caplog.text


class TestLifespan:
    def test_tasks_run_beside_any_layer_and_their_failure_is_shown_at_the_end(self) -> None:
        runs = []

        async def run() -> None:
            runs.append("begun")
            raise RuntimeError("the sender failed")

        page = Route("/page", lambda request: Response("a page"))
        with pytest.raises(RuntimeError, match="the sender failed"):  # noqa: SIM117
            with bare_server(
                around=[lambda app: Router([page], default=app)], background=[run]
            ) as server:
                assert server.client.get("/page").text == "a page"
                assert server.client.post("/page").status_code == 405
                assert server.get("/v2/usage").status_code == 200
        assert runs == ["begun"]


class TestBodyLimit:
    """Bodies of any door: here an application that returns the body that it was sent."""

    async def echo(self, scope: Scope, receive: Receive, send: Send) -> None:
        message = await receive()
        await Response(message["body"])(scope, receive, send)

    def post(self, reader: BodyReader, chunks: list[bytes], *, ends: bool = True) -> Any:
        """Return the status and body of the response to chunks with an end, or with silence."""
        waiting = list(chunks)
        sent: list[Message] = []

        async def receive() -> Message:
            if waiting:
                chunk = waiting.pop(0)
                more = bool(waiting) or not ends
                return {"type": "http.request", "body": chunk, "more_body": more}
            await asyncio.sleep(_SILENT_S)
            raise AssertionError

        async def send(message: Message) -> None:
            sent.append(message)

        scope = {"type": "http", "method": "POST", "headers": [], "state": {"request_id": "req_1"}}
        asyncio.run(BodyLimit(self.echo, reader)(scope, receive, send))
        return sent[0]["status"], sent[1]["body"]

    def test_a_body_is_whole_and_413_over_the_size(self) -> None:
        reader = BodyReader(body_max=4)
        assert self.post(reader, [b"ab", b"", b"cd"]) == (200, b"abcd")
        assert self.post(reader, [b"ab", b"cde"])[0] == 413

    def test_a_body_that_stops_is_408(self) -> None:
        status, body = self.post(BodyReader(within_s=0.05), [b"a"], ends=False)
        assert (status, b"not complete within 0.05 s" in body) == (408, True)

    def test_a_new_body_ends_the_oldest_when_there_are_too_many(self) -> None:
        reader = BodyReader(bodies_max=2)

        async def receive() -> Message:
            await asyncio.sleep(_SILENT_S)
            raise AssertionError

        async def read_four() -> None:
            scope = {"type": "http", "headers": []}
            tasks = [asyncio.create_task(reader.read(scope, receive)) for _ in range(4)]
            await asyncio.wait(tasks[:2])
            assert [task.done() for task in tasks] == [True, True, False, False]
            assert isinstance(tasks[0].exception(), BodyTooSlow)
            for task in tasks:
                task.cancel()

        asyncio.run(read_four())

    def test_every_path_has_the_limit(self, server: BareServer) -> None:
        for path in ("/v2/events", "/healthz", "/nowhere"):
            answer = server.client.post(path, content=b"x" * 1_048_577)
            assert_error(answer, 413, "body_too_large")

    def test_an_aborted_body_logs_one_line(self, caplog: pytest.LogCaptureFixture) -> None:
        async def receive() -> Message:
            return {"type": "http.disconnect"}

        with bare_server() as server:
            scope = {"type": "http", "method": "POST", "path": "/mcp", "headers": []}
            asyncio.run(server.client.app(scope, receive, None))  # type: ignore[arg-type]
        lines = [record for record in caplog.records if record.levelno >= logging.WARNING]
        assert [(line.message[:15], line.exc_info) for line in lines] == [("The client left", None)]
