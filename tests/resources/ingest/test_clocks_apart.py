"""Pulls by a machine whose clock is hours from the service's: no time of a batch is by it."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from catalog.contract.plans import ENTERPRISE
from resources.errors import CatalogError
from resources.http.client import CatalogClient
from resources.http.retry import RetryPolicy, Timing
from resources.ingest.puller import Puller
from resources.service_clock import ServiceClock
from tests.resources.fakes import RawServer, head, mocked, raw_server
from tests.resources.pulls import SOURCE
from tests.unlimited import Unlimited
from warehouse.files.storage import Storage
from warehouse.landing.landing import Landing

SERVICE_AT = datetime(2026, 3, 2, 23, 0, tzinfo=UTC)
DATE = "Date: Mon, 02 Mar 2026 23:00:00 GMT"
AHEAD = timedelta(hours=3, minutes=30)
"""The machine's clock is already on the service's next day."""
HEADER = b"id,slug,title,date,isEstimated\r\n"
ROW = b"65a000000000000000000001,a,A,2026-06-01T00:00:00Z,false\r\n"
ONCE = RetryPolicy(attempts=1)


def machine() -> datetime:
    return SERVICE_AT + AHEAD


def clock_in(root: Path) -> ServiceClock:
    service_clock = ServiceClock(machine, state=Storage(root / "state"))
    service_clock.keep()
    return service_clock


def puller_of(client: CatalogClient, root: Path) -> Puller:
    landing = Landing(root / "landing")
    return Puller(client, landing, plan=ENTERPRISE, source=SOURCE, clock=machine)


def client_of(server: RawServer, root: Path, **options: Any) -> CatalogClient:
    return CatalogClient(
        server.base_url,
        "canary",
        limiter=Unlimited(),
        timing=Timing(machine, sleep=lambda seconds: None),
        policy=ONCE,
        service_clock=clock_in(root),
        **options,
    )


@pytest.fixture
def cut_export() -> Iterator[RawServer]:
    """A service that closes the connection inside the body of each answer."""
    answer = head("Content-Type: text/csv", "Content-Length: 9000", DATE) + HEADER + ROW
    with raw_server([answer]) as server:
        yield server


def test_a_truncated_export_has_the_date_of_its_headers(
    cut_export: RawServer, tmp_path: Path
) -> None:
    with client_of(cut_export, tmp_path) as client:
        (landed,) = puller_of(client, tmp_path).export(None, None)
    assert landed.manifest.observed_at == SERVICE_AT
    assert landed.manifest.content_at == SERVICE_AT.replace(hour=0, minute=5)
    assert not landed.manifest.complete
    assert landed.manifest.date_doubt is None


def test_a_broken_body_sets_the_clock_for_later_pulls_and_processes(
    cut_export: RawServer, tmp_path: Path
) -> None:
    with client_of(cut_export, tmp_path) as client:
        with pytest.raises(CatalogError) as raised:
            client.usage()
        assert raised.value.evidence is not None
        assert (raised.value.evidence.status, raised.value.evidence.date) == (200, SERVICE_AT)
        # Another pull of the same process, of its default window.
        with pytest.raises(CatalogError):
            puller_of(client, tmp_path).events(None, None)
    assert "from=2026-03-02" in cut_export.heads[-1]
    assert clock_in(tmp_path).now() == SERVICE_AT


@pytest.mark.parametrize("date", ["Fri, 31 Dec 9999 23:59:59 GMT", "Tue, 01 Jan 2030 00:00:00 GMT"])
def test_a_page_with_an_impossible_date_gets_the_expected_time(date: str, tmp_path: Path) -> None:
    dates = [DATE.split(": ", 1)[1], date]

    def answer(request: httpx.Request) -> httpx.Response:
        date_text = dates.pop(0) if len(dates) > 1 else dates[0]
        body = {"data": [], "meta": {"total": 0, "cursor": None}}
        return httpx.Response(200, headers={"Date": date_text}, json=body)

    with mocked(answer, service_clock=clock_in(tmp_path)) as client:
        puller = puller_of(client, tmp_path)
        right, wrong = puller.cancellations(), puller.cancellations()
    assert right.manifest.observed_at == wrong.manifest.observed_at == SERVICE_AT
    assert right.manifest.date_doubt is None
    assert "is ignored" in (wrong.manifest.date_doubt or "")
    assert wrong.manifest.scope.since == SERVICE_AT - timedelta(days=90)


def test_a_content_time_after_the_observed_time_is_set_to_it(tmp_path: Path) -> None:
    headers = dict([DATE.split(": ", 1)])
    headers |= {"Last-Modified": "Tue, 01 Jan 2030 00:00:00 GMT", "Content-Type": "text/csv"}
    with mocked(
        lambda request: httpx.Response(200, headers=headers, content=HEADER + ROW),
        service_clock=clock_in(tmp_path),
    ) as client:
        (landed,) = puller_of(client, tmp_path).export(None, None)
    assert landed.manifest.content_at <= landed.manifest.observed_at == SERVICE_AT
