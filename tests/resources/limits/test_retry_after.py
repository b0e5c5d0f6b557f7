"""Retry-After in every form, through the real client and limiter: the wait is always sensible."""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from email.utils import format_datetime
from pathlib import Path

import pytest

from resources.errors import Defer
from resources.http.client import CatalogClient
from resources.limits.ledger import Pace
from resources.limits.limiter import LONGEST_HOLD_S, RATE_LIMITED_WAIT_S, Limiter
from resources.waits import listening
from tests.resources.fakes import KEY, head, raw_server
from tests.resources.limits.moved_clock import MARCH, RESET, Machine, with_usage

QUICK = Pace(1_000.0, 10)
NEARLY_S = 0.05
DATE = f"Date: {format_datetime(MARCH, usegmt=True)}"
USAGE = json.dumps({"used": 1, "limit": 1_000, "resetAt": "2026-04-01T00:00:00Z"}).encode()
FINE = head(DATE, "Content-Type: application/json", f"Content-Length: {len(USAGE)}") + USAGE
MakeClient = Callable[..., CatalogClient]


def at(seconds: float) -> str:
    return format_datetime(MARCH + timedelta(seconds=seconds), usegmt=True)


READ = [
    ("0", 0), ("7", 7), ("3600", 3600), ("1.5", 1.5), ("120", 120), ("121", 121), ("1e2", 100),
    (at(30), 30), (at(600), 600),
    ("Tue, 10 Mar 2026 00:00:30 -0000", 30), ("Tue Mar 10 00:00:30 2026", 30),
    ("2026-03-10T00:00:30Z", 30), ("2026-03-10 00:10:00", 600), ("2026-03-10T01:00:30+01:00", 30),
    ("2026-03-09", 0), (f"{MARCH.timestamp() + 30:.0f}", 30), (f"{MARCH.timestamp() + 30:.3f}", 30),
    (f"{MARCH.timestamp() * 1000 + 30_000:.0f}", 30), ("1000000001", 0), ("1e9", 0),
    (f"{(MARCH.timestamp() + 30) * 1e6:.0f}", 30), (f"{(MARCH.timestamp() + 30) * 1e9:.0f}", 30),
    (f"{MARCH.timestamp() + 30:.9e}", 30), ('"30"', 30), ('"2026-03-10T00:00:30Z"', 30),
    ("2026-03-10 00:00:30 UTC", 30), ("2026-03-10 00:00:30 GMT", 30), ("20260310T000030Z", 30),
    ("2026-03-10t00:00:30z", 30),
    (at(0), 0), (at(-1), 0), (at(-10**8), 0), ("Thu, 01 Jan 1970 00:00:00 GMT", 0),
]  # fmt: skip
ENDLESS = [
    "86400",
    "90000",
    "2026-03-12T00:00:00Z",
    "1e999",
    "9" * 300,
    "Fri, 31 Dec 9999 23:59:59 GMT",
    at(1e8),
]
UNREADABLE = [
    "", "soon", "-5", "-1e9", "nan", "inf", "infinity", "-inf", "0x10", "1_000", "5, 7", "7;",
    "9" * 400, "9" * 20_000, "Mon, 99 Foo 2026", "Tue, 10 Mar 2026 25:61:61 GMT", "\xb2",
    "\xff\xfe", "Fri, 31 Dec 99999 23:59:59 GMT",
]  # fmt: skip


def refusal(status: str, retry_after: str | None, body: bytes = b"{}") -> bytes:
    wait = [] if retry_after is None else [f"Retry-After: {retry_after}"]
    plain = [DATE, "Content-Type: application/json", f"Content-Length: {len(body)}"]
    lines = head(*plain, status=status).removesuffix(b"\r\n")
    return lines + "".join(f"{line}\r\n" for line in wait).encode("latin-1") + b"\r\n" + body


@pytest.fixture
def machine() -> Machine:
    return Machine()


@pytest.fixture
def limiter(machine: Machine, tmp_path: Path) -> Limiter:
    limiter = with_usage(machine.limiter(tmp_path / "key.sqlite", QUICK))
    machine.ns += 10**9  # an unknown bucket is empty
    return limiter


@pytest.fixture
def make_client(machine: Machine, limiter: Limiter) -> Iterator[MakeClient]:
    """Creates a client of a server that refuses once and then answers."""
    with ExitStack() as stack:

        def make(*refusals: bytes) -> CatalogClient:
            server = stack.enter_context(raw_server(*([answer] for answer in (*refusals, FINE))))
            client = CatalogClient(server.base_url, KEY, limiter=limiter, ambient=machine.ambient())
            return stack.enter_context(client)

        yield make


def waited_s(machine: Machine, client: CatalogClient) -> float:
    """Return how long it took until the service answered, with a new call after each Defer."""
    for _ in range(3):
        try:
            assert client.usage().used == 1
        except Defer as deferred:
            assert deferred.reason == "asked_to_wait"
            assert machine.slept_s <= NEARLY_S, "a long wait is not slept through"
            wait_s = (deferred.resume_at - machine.wall).total_seconds()
            machine.sleep(min(wait_s, LONGEST_HOLD_S))
            continue
        return machine.slept_s
    raise AssertionError("deferred too often")


@pytest.mark.parametrize(("text", "seconds"), READ)
def test_the_wait_after_a_429_is_as_long_as_requested(
    make_client: MakeClient, machine: Machine, text: str, seconds: float
) -> None:
    waited = waited_s(machine, make_client(refusal("429 Too Many", text)))
    assert seconds <= waited <= seconds + NEARLY_S


@pytest.mark.parametrize(("text", "seconds"), [("0", 0), ("7", 7), (at(30), 30), ("121", 121)])
def test_the_wait_after_a_503_is_as_long_as_requested(
    make_client: MakeClient, machine: Machine, text: str, seconds: float
) -> None:
    waited = waited_s(machine, make_client(refusal("503 Busy", text)))
    assert seconds <= waited <= seconds + NEARLY_S


@pytest.mark.parametrize("text", UNREADABLE)
def test_the_wait_after_a_429_with_an_unreadable_retry_after_is_a_second(
    make_client: MakeClient, machine: Machine, text: str
) -> None:
    waited = waited_s(machine, make_client(refusal("429 Too Many", text)))
    assert RATE_LIMITED_WAIT_S <= waited <= RATE_LIMITED_WAIT_S + NEARLY_S


@pytest.mark.parametrize("status", ["429 Too Many", "503 Busy"])
@pytest.mark.parametrize("text", ENDLESS)
def test_no_wait_is_longer_than_the_longest_hold(
    make_client: MakeClient, machine: Machine, text: str, status: str
) -> None:
    waited = waited_s(machine, make_client(refusal(status, text)))
    assert LONGEST_HOLD_S <= waited <= LONGEST_HOLD_S + NEARLY_S


@pytest.mark.parametrize("text", [None, "", "soon", "-5", "nan", "9" * 400])
def test_a_503_with_an_unreadable_retry_after_is_retried_by_backoff_only(
    make_client: MakeClient, machine: Machine, text: str | None
) -> None:
    assert waited_s(machine, make_client(refusal("503 Busy", text))) <= NEARLY_S


@pytest.mark.parametrize(
    "text", [None, "", "soon", "-5", "0", at(-1), "7", "1e9", "9" * 300, ENDLESS[-2]]
)
def test_a_used_up_quota_names_a_time_to_resume_within_the_month(
    make_client: MakeClient, machine: Machine, text: str | None
) -> None:
    client = make_client(refusal("429 Too Many", text, b'{"message": "Limit Exceeded"}'))
    with pytest.raises(Defer) as refused:
        client.usage()
    assert refused.value.reason == "quota"
    assert MARCH < refused.value.resume_at <= max(RESET, MARCH + timedelta(days=31))
    assert machine.slept_s <= NEARLY_S


class TestCounting:
    """The machine counts what the service counts: all requests but those with a 429."""

    @pytest.mark.parametrize("text", ["2", "3600"])
    def test_a_429_is_not_counted(
        self, make_client: MakeClient, machine: Machine, limiter: Limiter, text: str
    ) -> None:
        waited_s(machine, make_client(refusal("429 Too Many", text)))
        assert limiter.ledger.peek().used == 1

    @pytest.mark.parametrize("text", ["2"])
    def test_a_503_is_counted(
        self, make_client: MakeClient, machine: Machine, limiter: Limiter, text: str
    ) -> None:
        waited_s(machine, make_client(refusal("503 Busy", text)))
        assert limiter.ledger.peek().used == 2


class TestMessages:
    @pytest.mark.parametrize(
        "message", ["Rate limit exceeded", "API rate limit exceeded", "Burst Limit Exceeded."]
    )
    def test_an_exceeded_rate_is_not_read_as_a_used_up_month(
        self, make_client: MakeClient, machine: Machine, message: str
    ) -> None:
        body = json.dumps({"message": message}).encode()
        assert waited_s(machine, make_client(refusal("429 Too Many", "3", body))) < 4

    @pytest.mark.parametrize(
        "message", ["Limit Exceeded", "limit exceeded.", "Monthly Limit Exceeded"]
    )
    def test_a_limit_without_a_name_is_read_as_the_month(
        self, make_client: MakeClient, message: str
    ) -> None:
        body = json.dumps({"message": message}).encode()
        with pytest.raises(Defer, match="quota is used up"):
            make_client(refusal("429 Too Many", None, body)).usage()

    @pytest.mark.parametrize(
        "fields",
        [
            {"message": "Daily quota exceeded"},
            {"message": "You have used all 500 requests per day of your plan."},
            {"code": "daily_limit_reached", "message": "Try again later"},
            {"error": {"code": "DAILY_QUOTA_EXCEEDED", "message": "no more"}},
            {"message": "Quota for today is used up"},
        ],
    )
    @pytest.mark.parametrize("retry_after", [None, "1", "soon"])
    def test_a_daily_quota_is_deferred_to_midnight_and_ends_no_month(
        self,
        make_client: MakeClient,
        machine: Machine,
        limiter: Limiter,
        fields: dict[str, object],
        retry_after: str | None,
    ) -> None:
        client = make_client(refusal("429 No", retry_after, json.dumps(fields).encode()))
        with pytest.raises(Defer, match="the daily quota is used up") as refused:
            client.usage()
        midnight = MARCH + timedelta(days=1)
        assert refused.value.reason == "quota"
        assert abs(refused.value.resume_at - midnight) < timedelta(seconds=5)
        with pytest.raises(Defer) as again:
            client.usage()
        assert abs(again.value.resume_at - midnight) < timedelta(seconds=5)
        assert machine.slept_s <= NEARLY_S
        left = limiter.left()
        assert left is not None
        assert left > 900

    def test_a_daily_quota_is_deferred_to_the_stated_time(self, make_client: MakeClient) -> None:
        body = b'{"message": "daily quota exceeded"}'
        with pytest.raises(Defer) as refused:
            make_client(refusal("429 No", "2026-03-10T09:30:00Z", body)).usage()
        assert refused.value.resume_at == MARCH + timedelta(hours=9, minutes=30)

    @pytest.mark.parametrize("message", ["Quota exceeded", "Your monthly quota is exhausted"])
    def test_a_quota_without_a_day_is_that_of_the_month(
        self, make_client: MakeClient, message: str
    ) -> None:
        body = json.dumps({"message": message}).encode()
        with pytest.raises(Defer, match="the monthly quota is used up"):
            make_client(refusal("429 No", None, body)).usage()


@pytest.mark.parametrize(("text", "lines"), [("30", 1), ("1", 0), ("86400", 0)])
def test_a_wait_of_more_than_two_seconds_is_reported_with_its_length_and_reason(
    make_client: MakeClient, machine: Machine, text: str, lines: int
) -> None:
    waits: list[str] = []
    with listening(waits.append):
        waited_s(machine, make_client(refusal("429 Too Many", text)))
    assert len(waits) == lines
    for wait in waits:
        assert wait.startswith("Waiting 30 s, until ")
        assert "GET /v2/usage was answered 429" in wait
