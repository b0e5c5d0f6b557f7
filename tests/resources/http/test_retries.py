"""Which failures are retried, how long the waits are, and which error an answer becomes."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from resources.errors import (
    CatalogError,
    Defer,
    RetryLater,
    TooSlow,
)
from resources.limits.limiter import Permit
from resources.request_log import SentRequest
from resources.service_clock import RETRY_AFTER_CEILING_S, retry_after_s
from resources.waits import RetryPolicy
from tests.resources.conftest import MakeClient
from tests.resources.fakes import FakeTime, answering, mocked
from tests.unlimited import Unlimited

NOW = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
DATE = {"Date": format_datetime(NOW, usegmt=True)}
FINE = httpx.Response(200, json={"used": 1})


def refusal(status: int, retry_after: str | None = None, **fields: object) -> httpx.Response:
    wait = {} if retry_after is None else {"Retry-After": retry_after}
    return httpx.Response(status, json=fields, headers={**DATE, **wait})


class TestRetryAfter:
    @given(st.integers(0, 10**9 - 1))
    def test_seconds_are_read_up_to_a_maximum(self, seconds: int) -> None:
        assert retry_after_s(str(seconds), now=NOW) == min(seconds, RETRY_AFTER_CEILING_S)

    @given(st.integers(-(10**6), 10**6))
    def test_a_date_is_the_time_until_then_and_a_past_date_is_zero(self, seconds: int) -> None:
        text = format_datetime(NOW + timedelta(seconds=seconds), usegmt=True)
        assert retry_after_s(text, now=NOW) == max(0, seconds)

    @given(st.text(max_size=60))
    def test_no_text_raises(self, text: str) -> None:
        read = retry_after_s(text, now=NOW)
        assert read is None or 0 <= read <= RETRY_AFTER_CEILING_S

    @pytest.mark.parametrize(
        ("text", "seconds"),
        [(None, None), ("", None), ("soon", None), ("-5", None), ("nan", None), ("inf", None),
         ("²", None), ("Mon, 99 Foo 2026", None), ("0", 0), (" 7 ", 7), ("7\x1f", 7), ("1.5", 1.5),
         ("1e9", 0), ("5e8", RETRY_AFTER_CEILING_S), ("9" * 400, None),
         ("9" * 300, RETRY_AFTER_CEILING_S), ("1e999", RETRY_AFTER_CEILING_S)],
    )  # fmt: skip
    def test_odd_values_are_read(self, text: str | None, seconds: float | None) -> None:
        assert retry_after_s(text, now=NOW) == seconds


class TestRetrying:
    @pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504])
    def test_a_transient_failure_is_retried(self, status: int) -> None:
        client = mocked(answering(refusal(status), refusal(status), FINE))
        assert client.usage().used == 1

    @pytest.mark.parametrize(
        "error",
        [httpx.ConnectError, httpx.ConnectTimeout, httpx.ReadTimeout, httpx.ReadError,
         httpx.RemoteProtocolError, httpx.PoolTimeout, httpx.WriteError],
    )  # fmt: skip
    def test_a_lost_connection_is_retried(self, error: type[httpx.TransportError]) -> None:
        client = mocked(answering(error("gone"), FINE))
        assert client.usage().used == 1

    def test_a_call_fails_after_the_attempts_of_the_policy(self) -> None:
        sent: list[SentRequest] = []
        client = mocked(
            answering(httpx.ConnectError("refused")),
            policy=RetryPolicy(attempts=3),
            observer=sent.append,
        )
        with pytest.raises(RetryLater, match=r"refused\) after 3 attempts") as raised:
            client.usage()
        assert raised.value.attempts == len(sent) == 3
        assert {request.status for request in sent} == {None}

    def test_a_call_fails_after_the_total_time_of_the_policy(self) -> None:
        fake = FakeTime(chance=0.999)
        policy = RetryPolicy(attempts=1_000, total_s=60.0)
        client = mocked(answering(refusal(503)), policy=policy, ambient=fake.ambient())
        with pytest.raises(RetryLater):
            client.usage()
        assert sum(fake.slept) <= 60.0

    def test_the_wait_doubles_with_full_jitter_up_to_a_cap(self) -> None:
        policy = RetryPolicy(base_s=1.0, cap_s=5.0)
        assert [policy.backoff_s(n, 1.0) for n in (1, 2, 3, 4, 500)] == [1, 2, 4, 5, 5]
        assert policy.backoff_s(3, 0.0) == 0.0
        assert policy.backoff_s(3, 0.25) == 1.0

    def test_retry_after_is_a_floor_under_the_jitter(self) -> None:
        fake = FakeTime(chance=0.5)
        client = mocked(answering(refusal(503, "9"), FINE), ambient=fake.ambient())
        client.usage()
        assert fake.slept == [9.25]

    def test_retry_after_as_a_date_is_measured_on_the_service_s_clock(self) -> None:
        fake = FakeTime()
        date = format_datetime(NOW + timedelta(seconds=30), usegmt=True)
        client = mocked(answering(refusal(429, date), FINE), ambient=fake.ambient())
        fake.seconds += 7_777
        client.usage()
        assert fake.slept == [30.0]

    @pytest.mark.parametrize("text", ["soon", "-5", "Mon, 02 Mar 2026 11:00:00 GMT"])
    def test_a_past_or_unreadable_retry_after_is_no_wait(self, text: str) -> None:
        fake = FakeTime()
        mocked(answering(refusal(503, text), FINE), ambient=fake.ambient()).usage()
        assert fake.slept == [0.0]

    def test_a_429_without_retry_after_waits_a_second(self) -> None:
        fake = FakeTime()
        mocked(answering(refusal(429), FINE), ambient=fake.ambient()).usage()
        assert fake.slept == [1.0]

    def test_the_limiter_is_called_for_a_429_for_rate(self) -> None:
        class Listening(Unlimited):
            waits: list[float | None] = []  # noqa: RUF012

            def on_rate_limited(
                self, retry_after_s: float | None, *, for_export: bool = False
            ) -> None:
                self.waits.append(retry_after_s)

        limiter = Listening()
        mocked(answering(refusal(429, "4"), FINE), limiter=limiter).usage()
        assert limiter.waits == [4.0]

    def test_a_storm_without_end_is_an_error_that_says_what_to_do(
        self, make_client: MakeClient
    ) -> None:
        client = make_client(extra_headers={"Sandbox-Faults": "storm=1"})
        with pytest.raises(RetryLater, match=r"Too Many Requests.*6 attempts.*lower the rate"):
            client.usage()


class TestDefer:
    def test_a_used_up_quota_defers_to_the_reset_without_a_retry(
        self, make_client: MakeClient, fake_time: FakeTime
    ) -> None:
        with pytest.raises(Defer, match="quota is used up") as raised:
            make_client(extra_headers={"Sandbox-Faults": "quota"}).usage()
        assert raised.value.reason == "quota"
        reset = datetime(2026, 4, 1, tzinfo=UTC)
        assert abs(raised.value.resume_at - reset) <= timedelta(seconds=1)
        assert (fake_time.slept, raised.value.attempts) == ([], 1)

    @pytest.mark.parametrize(
        "answer",
        [
            refusal(429, message="Limit Exceeded"),
            refusal(429, error={"code": "quota_exceeded"}),
            httpx.Response(429, text="Limit Exceeded", headers=DATE),
        ],
    )
    def test_a_quota_without_retry_after_defers_to_the_next_month(
        self, answer: httpx.Response
    ) -> None:
        with pytest.raises(Defer) as raised:
            mocked(answering(answer)).usage()
        assert raised.value.resume_at == datetime(2026, 4, 1, tzinfo=UTC)
        assert raised.value.estimated

    @pytest.mark.parametrize("status", [429, 503])
    def test_a_wait_over_the_limit_defers(self, status: int) -> None:
        with pytest.raises(Defer) as raised:
            mocked(answering(refusal(status, "3600"))).usage()
        assert raised.value.resume_at == NOW + timedelta(hours=1)
        assert raised.value.reason == "asked_to_wait"

    @pytest.mark.parametrize(("fields", "days"), [({}, 1), ({"message": "Limit Exceeded"}, 31)])
    def test_an_absurd_wait_is_limited(self, fields: dict[str, str], days: int) -> None:
        with pytest.raises(Defer) as raised:
            mocked(answering(refusal(429, "5e8", **fields))).usage()
        assert raised.value.resume_at == NOW + timedelta(days=days)


class TestSlowness:
    @pytest.mark.parametrize("status", [500, 504])
    def test_a_failure_after_a_long_wait_is_not_retried(self, status: int) -> None:
        fake = FakeTime()

        def handle(_: httpx.Request) -> httpx.Response:
            fake.seconds += 25.0
            return refusal(status)

        with pytest.raises(TooSlow, match=r"25\.0 s.*smaller limit"):
            mocked(handle, ambient=fake.ambient()).usage()
        assert fake.slept == []

    def test_the_wait_for_the_limiter_does_not_count_as_a_slow_service(self) -> None:
        fake = FakeTime()

        class Slow(Unlimited):
            def acquire(self, *, for_usage: bool = False, for_export: bool = False) -> Permit:
                fake.seconds += 25.0
                return super().acquire()

        with pytest.raises(RetryLater):
            mocked(answering(refusal(500)), ambient=fake.ambient(), limiter=Slow()).usage()


class TestErrorBodies:
    @pytest.mark.parametrize(
        "answer",
        [
            httpx.Response(503),
            httpx.Response(503, text="upstream unavailable"),
            httpx.Response(503, html="<html>busy</html>"),
            httpx.Response(503, json={"message": "busy"}),
            httpx.Response(503, json={"error": "busy"}),
            httpx.Response(503, json=["busy"]),
            httpx.Response(503, content=b"\xff\xfe{"),
            httpx.Response(503, content=b"[" * 100_000),
            httpx.Response(503, content=b"x", headers={"Content-Encoding": "gzip"}),
        ],
    )
    def test_every_form_of_error_body_is_read(self, answer: httpx.Response) -> None:
        with pytest.raises(RetryLater, match="answered 503"):
            mocked(answering(answer)).usage()

    def test_the_message_of_the_service_is_cut_and_printable(self) -> None:
        answer = httpx.Response(400, json={"message": "a\x1b[31m\n" + "b" * 10_000})
        with pytest.raises(CatalogError) as raised:
            mocked(answering(answer)).usage()
        assert str(raised.value).isprintable()
        assert len(str(raised.value)) < 500
