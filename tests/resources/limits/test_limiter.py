"""The limiter in memory: its burst, its rate, and what a 429 does."""

from datetime import UTC, datetime

import pytest

from catalog.sandbox.sandbox import Sandbox
from resources.errors import Defer
from resources.limits.limiter import Limiter, TokenBucketLimiter, usable_burst
from resources.request_log import SentRequest
from tests.resources.conftest import MakeClient
from tests.resources.fakes import FakeTime


def limiter(fake: FakeTime, rate: float, burst: int, jitter_s: float = 1.0) -> TokenBucketLimiter:
    return TokenBucketLimiter(
        rate_per_s=rate,
        burst=burst,
        jitter_s=jitter_s,
        monotonic=fake.monotonic,
        sleep=fake.sleep,
    )


@pytest.mark.parametrize(
    ("rate", "burst", "jitter_s", "usable"),
    [(1, 5, 1.0, 4), (25, 150, 1.0, 125), (25, 150, 0.0, 150), (10, 5, 1.0, 1), (0.5, 1, 9.0, 1)],
)
def test_the_usable_burst_leaves_room_for_requests_that_the_network_delays(
    rate: float, burst: int, jitter_s: float, usable: int
) -> None:
    assert usable_burst(rate, burst, jitter_s) == usable
    fake = FakeTime()
    bucket = limiter(fake, rate, burst, jitter_s)
    for _ in range(usable):
        bucket.acquire()
    assert fake.slept == []
    bucket.acquire()
    assert sum(fake.slept) == pytest.approx(1 / rate)


def test_the_full_rate_is_used_after_the_burst() -> None:
    fake = FakeTime()
    bucket = limiter(fake, 10, 50)
    for _ in range(40 + 1_000):
        bucket.acquire()
    assert fake.seconds - 1_000 == pytest.approx(100, rel=0.001)


def test_a_429_empties_the_bucket_and_makes_all_threads_wait() -> None:
    fake = FakeTime()
    bucket = limiter(fake, 2, 50)
    bucket.on_rate_limited(7.0)
    bucket.acquire()
    assert fake.seconds - 1_000 == pytest.approx(7.0)
    bucket.on_rate_limited(None)
    bucket.acquire()
    assert fake.seconds - 1_000 == pytest.approx(8.0)
    for _ in range(1 + 4):
        bucket.acquire()
    assert fake.seconds - 1_000 == pytest.approx(10.0)


@pytest.mark.parametrize(("rate", "burst", "jitter"), [(0, 1, 1), (1, 0, 1), (1, 1, -1)])
def test_impossible_limits_are_refused(rate: float, burst: int, jitter: float) -> None:
    with pytest.raises(ValueError, match="a limiter needs"):
        TokenBucketLimiter(rate_per_s=rate, burst=burst, jitter_s=jitter)


def test_retries_acquire_a_token_too(make_client: MakeClient, fake_time: FakeTime) -> None:
    bucket = limiter(fake_time, 1, 2, jitter_s=0)
    sent: list[SentRequest] = []
    client = make_client(
        limiter=bucket, extra_headers={"Sandbox-Faults": "error"}, observer=sent.append
    )
    with pytest.raises(Exception, match="answered 500"):
        client.usage()
    assert len(sent) == 6
    assert fake_time.seconds - 1_000 == pytest.approx(4.0)


def test_a_limiter_with_a_quota_may_defer_before_a_request_is_sent(
    make_client: MakeClient,
) -> None:
    resume_at = datetime(2026, 4, 1, tzinfo=UTC)

    class Empty(Limiter):
        def acquire(self, *, for_usage: bool = False, for_export: bool = False) -> None:
            error = Defer("The ledger is empty", resume_at=resume_at, reason="quota")
            error.attempts = 0
            raise error

        def on_rate_limited(self, retry_after_s: float | None) -> None:
            return None

    sent: list[SentRequest] = []
    paginator = make_client(limiter=Empty(), observer=sent.append).coins_pages()
    with pytest.raises(Defer, match="Resume at 2026-04-01 00:00:00 UTC"):
        list(paginator)
    assert sent == []
    assert paginator.requests == 0


def test_with_the_limits_of_the_plan_no_request_gets_a_429(
    almanac_sandbox: Sandbox, make_client: MakeClient
) -> None:
    key = almanac_sandbox.new_key("enterprise", rate_per_s=200, burst=40)
    sent: list[SentRequest] = []
    real = TokenBucketLimiter(rate_per_s=200, burst=40, jitter_s=0.1)
    client = make_client(key, limiter=real, observer=sent.append)
    for _ in range(120):
        client.usage()
    assert {request.status for request in sent} == {200}
