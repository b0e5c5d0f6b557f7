"""A month that is used up in the middle of a list: landed, deferred, and resumed after the reset.

The machine counts the month like the service; here another machine also sends requests.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import httpx
import pytest

from catalog.sandbox.sandbox import Sandbox
from resources.errors import Defer
from resources.http.client import CatalogClient
from resources.ingest.context import LandedBatch
from resources.ingest.puller import Puller
from resources.limits.ledger import Ledger, Pace
from resources.limits.limiter import Limiter
from resources.waits import Ambient
from tests.resources.ingest.test_puller import MARCH, MARCH_SCOPE
from tests.resources.pulls import puller_of
from tests.unlimited import Unlimited

NOW = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
RESET = datetime(2026, 4, 1, tzinfo=UTC)
QUOTA = 8


class WithoutHeaders(httpx.BaseTransport):
    """The network, with a service whose answers do not say what is left of the month."""

    def __init__(self) -> None:
        # The certificates of the machine are not read, which takes 20 ms.
        self._network = httpx.HTTPTransport(verify=False)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        answer = self._network.handle_request(request)
        for name in ("limit", "remaining", "reset"):
            answer.headers.pop(f"x-ratelimit-{name}", None)
        return answer

    def close(self) -> None:
        self._network.close()


class SaysLimitExceeded(WithoutHeaders):
    """As that, with a service that reports a used-up month in other words, without a wait."""

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        answer = super().handle_request(request)
        if answer.status_code != 429:
            return answer
        answer.close()
        body = {"message": "Limit Exceeded"}
        return httpx.Response(429, json=body, headers={"Date": answer.headers["Date"]})


@pytest.fixture(scope="module")
def own_sandbox() -> Iterator[Sandbox]:
    with Sandbox(seed=1, now=NOW, export_interval_s=0) as sandbox:
        yield sandbox


@pytest.fixture
def sandbox(own_sandbox: Sandbox) -> Sandbox:
    own_sandbox.set_clock(NOW)
    return own_sandbox


@pytest.fixture
def key(sandbox: Sandbox) -> str:
    return sandbox.new_key("enterprise", monthly_quota=QUOTA, rate_per_s=1e5, burst=1_000)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "landing"


Opening = Callable[..., Puller]


@pytest.fixture
def opened(sandbox: Sandbox, key: str, root: Path, tmp_path: Path) -> Iterator[Opening]:
    """Opens pullers like a process: the limiter requests the usage if it is not known."""
    with ExitStack() as stack:

        def make(transport: httpx.BaseTransport | None = None) -> Puller:
            ledger = Ledger(tmp_path / "key.sqlite")
            limiter = Limiter(ledger, lambda state: Pace(1e4, 100), clock=sandbox.clock.now)
            client = CatalogClient(
                sandbox.base_url,
                key,
                limiter=limiter,
                ambient=Ambient(clock=sandbox.clock.now),
                transport=transport,
            )
            limiter.request_account = client.usage
            stack.enter_context(client)
            return puller_of(client, root, clock=sandbox.clock.now)

        yield make


REST = (date(2026, 3, 28), MARCH[1])


def spend(sandbox: Sandbox, key: str, count: int) -> None:
    """Use the key from another machine."""
    with CatalogClient(sandbox.base_url, key, limiter=Unlimited()) as elsewhere:
        for _ in range(count):
            elsewhere.event("nothing")


def go_on_after_the_reset(sandbox: Sandbox, first: LandedBatch, puller: Puller) -> LandedBatch:
    """Pull the last days too early, in vain, then after the reset."""
    assert first.manifest.scope == MARCH_SCOPE
    sandbox.forget_requests()
    sandbox.set_clock(RESET - timedelta(seconds=2))
    with pytest.raises(Defer) as refused:
        puller.events(*REST)
    assert abs(refused.value.resume_at - RESET) <= timedelta(seconds=1)
    assert sandbox.requests == []
    sandbox.set_clock(RESET + timedelta(seconds=1))
    second = puller.events(*REST)
    assert sandbox.requests[0].path == "/v2/usage"
    assert {request.status for request in sandbox.requests} == {200}
    assert len(sandbox.requests) == 1 + second.requests
    return second


@pytest.mark.parametrize("says", [None, WithoutHeaders, SaysLimitExceeded])
def test_received_pages_are_landed_and_the_rest_resumes_after_the_reset(
    sandbox: Sandbox,
    key: str,
    root: Path,
    opened: Opening,
    says: type[WithoutHeaders] | None,
) -> None:
    puller = opened(None if says is None else says())
    puller.event("nothing")
    spend(sandbox, key, 3)
    first = puller.events(*MARCH)
    assert first.deferred is not None
    assert first.deferred.reason == "quota"
    assert not first.deferred.estimated, "the usage named the reset"
    assert abs(first.deferred.resume_at - RESET) <= timedelta(seconds=1)
    assert not first.manifest.complete
    # One was for the usage, one for an event, three were another's. The last was refused, unless
    # the headers said before that nothing is left.
    refused = 0 if says is None else 1
    assert (len(first.manifest.pages), first.requests) == (QUOTA - 5, QUOTA - 5 + refused)
    assert go_on_after_the_reset(sandbox, first, puller).manifest.complete


def test_no_request_is_sent_after_our_own_count_reaches_the_quota(
    sandbox: Sandbox, root: Path, opened: Opening
) -> None:
    puller = opened()
    puller.event("nothing")
    puller.event("nothing")
    sandbox.forget_requests()
    first = puller.events(*MARCH)
    assert first.deferred is not None
    assert first.deferred.resume_at == RESET
    assert len(first.manifest.pages) == first.requests == QUOTA - 3
    assert {request.status for request in sandbox.requests} == {200}
    assert go_on_after_the_reset(sandbox, first, puller).manifest.complete
