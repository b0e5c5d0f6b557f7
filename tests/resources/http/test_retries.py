"""Which failures are retried, how long the waits are, and which error an answer becomes."""

from datetime import UTC, datetime
from email.utils import format_datetime

import httpx
import pytest

from almanac.core.progress import listening
from resources.errors import CatalogError, RetryLater, TooSlow
from resources.http.retry import RetryPolicy
from resources.request_log import SentRequest
from resources.service_clock import RETRY_AFTER_CEILING_S, retry_after_s
from tests.resources.conftest import MakeClient
from tests.resources.fakes import FakeTime, answering, mocked

NOW = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
DATE = {"Date": format_datetime(NOW, usegmt=True)}
FINE = httpx.Response(200, json={"used": 1})


def refusal(status: int, retry_after: str | None = None, **fields: object) -> httpx.Response:
    wait = {} if retry_after is None else {"Retry-After": retry_after}
    return httpx.Response(status, json=fields, headers={**DATE, **wait})


READ: dict[str | None, float] = {
    **{"0": 0, " 7 ": 7, "3600": 3600, "1.5": 1.5, "Mon, 02 Mar 2026 12:00:30 GMT": 30},
    **{"Mon Mar 02 12:00:30 2026": 30, "Thu, 01 Jan 1970 00:00:00 GMT": 0},
    **dict.fromkeys(("9" * 400, "Fri, 31 Dec 9999 23:59:59 GMT"), RETRY_AFTER_CEILING_S),
}
UNREADABLE = (
    *(None, "", "soon", "-5", "nan", "inf", "1_000", "5, 7", "Mon, 99 Foo 2026", "\xb2"),
    *("Tue, 10 Mar 2026 25:61:61 GMT", "Fri, 31 Dec 99999 23:59:59 GMT"),
)


@pytest.mark.parametrize(
    ("text", "seconds"), [*READ.items(), *((text, None) for text in UNREADABLE)]
)
def test_every_form_is_read(text: str | None, seconds: float | None) -> None:
    assert retry_after_s(text, now=NOW) == seconds


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504])
def test_a_transient_failure_is_retried(status: int) -> None:
    client = mocked(answering(refusal(status), refusal(status), FINE))
    assert client.usage().used == 1


@pytest.mark.parametrize(
    "error",
    [httpx.ConnectError, httpx.ConnectTimeout, httpx.ReadTimeout, httpx.ReadError,
     httpx.RemoteProtocolError, httpx.PoolTimeout, httpx.WriteError],
)  # fmt: skip
def test_a_lost_connection_is_retried(error: type[httpx.TransportError]) -> None:
    client = mocked(answering(error("gone"), FINE))
    assert client.usage().used == 1


def test_a_call_fails_after_the_attempts_of_the_policy() -> None:
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


def test_a_call_fails_after_the_total_time_of_the_policy() -> None:
    fake = FakeTime(chance=0.999)
    policy = RetryPolicy(attempts=1_000, total_s=60.0)
    client = mocked(answering(refusal(503)), policy=policy, timing=fake.timing())
    with pytest.raises(RetryLater):
        client.usage()
    assert sum(fake.slept) <= 60.0


def test_the_wait_doubles_with_full_jitter_up_to_a_cap() -> None:
    policy = RetryPolicy(base_s=1.0, cap_s=5.0)
    assert [policy.backoff_s(n, 1.0) for n in (1, 2, 3, 4, 500)] == [1, 2, 4, 5, 5]
    assert policy.backoff_s(3, 0.0) == 0.0
    assert policy.backoff_s(3, 0.25) == 1.0


def test_retry_after_is_a_floor_under_the_jitter() -> None:
    fake = FakeTime(chance=0.5)
    client = mocked(answering(refusal(503, "9"), FINE), timing=fake.timing())
    client.usage()
    assert fake.slept == [9.25]


def test_a_storm_without_end_is_an_error_that_says_what_to_do(make_client: MakeClient) -> None:
    client = make_client(extra_headers={"Sandbox-Faults": "storm=1"})
    with pytest.raises(RetryLater, match=r"Too Many Requests.*6 attempts.*lower the rate"):
        client.usage()


@pytest.mark.parametrize("status", [500, 504])
def test_a_failure_after_a_long_wait_is_not_retried(status: int) -> None:
    fake = FakeTime()

    def handle(_: httpx.Request) -> httpx.Response:
        fake.seconds += 25.0
        return refusal(status)

    with pytest.raises(TooSlow, match=r"25\.0 s.*smaller limit"):
        mocked(handle, timing=fake.timing()).usage()
    assert fake.slept == []


def test_the_message_of_the_service_is_cut_and_printable() -> None:
    answer = httpx.Response(400, json={"message": "a\x1b[31m\n" + "b" * 10_000})
    with pytest.raises(CatalogError) as raised:
        mocked(answering(answer)).usage()
    assert str(raised.value).isprintable()
    assert len(str(raised.value)) < 500


def test_short_waits_are_reported_once_a_call_has_waited_for_two_seconds() -> None:
    fake = FakeTime(chance=1.0)
    waits: list[str] = []
    client = mocked(answering(httpx.Response(500)), timing=fake.timing())
    with listening(wait=waits.append), pytest.raises(RetryLater):
        client.usage()
    assert [wait.split(",")[0] for wait in waits] == [f"Waiting {s} s" for s in (2, 4, 8)]
    assert "answered 500; then attempt 4 of 6" in waits[0]
    assert f"until {fake.clock():%H:%M:%S} UTC" in waits[-1]
    with listening(wait=waits.append), pytest.raises(RetryLater):
        mocked(answering(httpx.Response(500))).usage()
    assert len(waits) == 3
