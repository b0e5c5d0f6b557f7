"""Retry-After and refusals through the client, the limiter and a socket: every wait is sensible.

`test_retries.py` has the table of all forms that Retry-After can have.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from email.utils import format_datetime
from pathlib import Path

import pytest

from resources.errors import Defer
from resources.http.client import CatalogClient
from resources.limits.decision import LONGEST_HOLD_S
from resources.limits.ledger import Pace
from resources.limits.limiter import RATE_LIMITED_WAIT_S, Limiter
from tests.resources.fakes import KEY, head, raw_server
from tests.resources.limits.moved_clock import MARCH, RESET, Machine, with_usage

QUICK = Pace(1_000.0, 10)
NEARLY_S = 0.05
DATE = f"Date: {format_datetime(MARCH, usegmt=True)}"
USAGE = json.dumps({"used": 1, "limit": 1_000, "resetAt": "2026-04-01T00:00:00Z"}).encode()
FINE = head(DATE, "Content-Type: application/json", f"Content-Length: {len(USAGE)}") + USAGE
MakeClient = Callable[..., CatalogClient]
IN_30_S = format_datetime(MARCH + timedelta(seconds=30), usegmt=True)
ENDLESS = ("90000", "9" * 300, "Fri, 31 Dec 9999 23:59:59 GMT")
UNREADABLE = (None, "", "-5", "\xff\xfe")


def refusal(status: str, retry_after: str | None, **fields: object) -> bytes:
    body = json.dumps(fields).encode()
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
            client = CatalogClient(server.base_url, KEY, limiter=limiter, timing=machine.timing())
            return stack.enter_context(client)

        yield make


def waited_s(machine: Machine, client: CatalogClient) -> float:
    """Return how long it took until the service answered, with a new call after each Defer."""
    for _ in range(3):
        try:
            assert client.usage().used == 1
        except Defer as deferred:
            assert deferred.reason.code == "asked_to_wait"
            assert machine.slept_s <= NEARLY_S, "a long wait is not slept through"
            wait_s = (deferred.resume_at - machine.wall).total_seconds()
            machine.sleep(min(wait_s, LONGEST_HOLD_S))
            continue
        return machine.slept_s
    raise AssertionError("deferred too often")


@pytest.mark.parametrize(
    ("status", "text", "seconds"),
    [
        *(("429", text, s) for text, s in (("0", 0), ("7", 7), ("120", 120), (IN_30_S, 30))),
        *(("503", text, s) for text, s in (("0", 0), ("7", 7), ("121", 121), (IN_30_S, 30))),
        *(("429", text, RATE_LIMITED_WAIT_S) for text in UNREADABLE),
        *(("503", text, 0) for text in UNREADABLE),
        *((status, text, LONGEST_HOLD_S) for status in ("429", "503") for text in ENDLESS),
    ],
)
def test_the_wait_is_as_long_as_requested_and_never_longer_than_the_longest_hold(
    make_client: MakeClient,
    machine: Machine,
    limiter: Limiter,
    status: str,
    text: str | None,
    seconds: float,
) -> None:
    waited = waited_s(machine, make_client(refusal(f"{status} No", text)))
    assert seconds <= waited <= seconds + NEARLY_S
    if text == "7":  # The service counts all requests but those with a 429.
        assert limiter.ledger.peek().used == (1 if status == "429" else 2)


@pytest.mark.parametrize("text", [None, "soon", "0", "7", "9" * 300, ENDLESS[-1]])
def test_a_used_up_quota_names_a_time_to_resume_within_the_month(
    make_client: MakeClient, machine: Machine, text: str | None
) -> None:
    client = make_client(refusal("429 No", text, message="Limit Exceeded"))
    with pytest.raises(Defer) as refused:
        client.usage()
    assert refused.value.reason.code == "quota"
    assert MARCH < refused.value.resume_at <= max(RESET, MARCH + timedelta(days=31))
    assert machine.slept_s <= NEARLY_S


@pytest.mark.parametrize(
    "message",
    ["Rate limit exceeded", "Burst Limit Exceeded.", "Daily quota exceeded", "Quota for today"],
)
def test_a_shorter_limit_is_not_read_as_a_used_up_month(
    make_client: MakeClient, machine: Machine, message: str
) -> None:
    assert waited_s(machine, make_client(refusal("429 No", "3", message=message))) < 4


@pytest.mark.parametrize("message", ["limit exceeded.", "Your monthly quota is exhausted"])
def test_a_quota_without_a_day_is_that_of_the_month(make_client: MakeClient, message: str) -> None:
    with pytest.raises(Defer, match="the monthly quota is used up"):
        make_client(refusal("429 No", None, message=message)).usage()
