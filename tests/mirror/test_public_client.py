"""Public clients of the service work against a mirror when only the base address changes.

Two kinds of calls of open-source clients of CoinMarketCal's V2 interface are repeated here. One
searches coins and requests their events of a range, with timestamps as Python's `isoformat` writes
them. The other follows the pages of the coins by `meta.cursor`. The same calls go to the
service (a sandbox) and to a mirror of a warehouse that was filled from it.
"""

import logging
import shutil
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from catalog.contract.plans import ELITE, ENTERPRISE
from catalog.sandbox.sandbox import Sandbox
from catalog.server.state_dir import ServiceDir
from catalog.server.webhooks.sender import SenderOptions
from pipeline.mirror.replay_server import CONTROL_PATH
from resources.http.client import CatalogClient
from resources.ingest.puller import Puller
from tests.crashes.pulls import DAY, FIRST_DAY, SOURCE
from tests.hangs import HANGS_AFTER_S, wait_for
from tests.history.stories.disk import without_syncs
from tests.mirror.filled_home import DAYS, STARTS, mirroring
from tests.mirror.replays import order, replaying
from tests.server.webhooks.receiver import Receiver
from tests.unlimited import Unlimited
from warehouse.history.merge import merge
from warehouse.home import Home

PULLED = FIRST_DAY + (DAYS - 1) * DAY + timedelta(hours=18, seconds=30)
"""The last pull of the list."""
AT_PULL = f"{PULLED:%Y-%m-%dT%H:%M:%SZ}"


PATHS = ("/v2/events", "/v2/coins", "/v2/categories", "/v2/events/changes", "/v2/events/export")
REFUSED = ("/v2/events?limit=0", "/v2/nothing", "/v2/events?as_of=2020-01-01")


class ServiceCalls:
    """The calls of such a client: one request each, with a key and `Accept` in the headers."""

    def __init__(self, base_address: str, key: str, **headers: str) -> None:
        self._base = base_address
        self._headers = {"x-api-key": key, "Accept": "application/json", **headers}

    def search_coins(self, text: str) -> list[dict[str, Any]]:
        return self._rows("/coins", {"q": text, "limit": 200})

    def list_events(self, slugs: list[str], days: int) -> list[dict[str, Any]]:
        return self._rows(
            "/events",
            {
                "coins": ",".join(sorted(set(slugs))),
                "from": PULLED.isoformat(),
                "to": (PULLED + timedelta(days=days)).isoformat(),
                "limit": 100,
            },
        )

    def list_by_old_names(self) -> list[dict[str, Any]]:
        """Request events with the names of V1, which V2 ignores."""
        return self._rows("/events", {"max": 50, "page": 1, "dateRangeEnd": "2026-12-31"})

    def rank_coins(self, pages: int) -> dict[str, int | None]:
        found: dict[str, int | None] = {}
        cursor = None
        for _ in range(pages):
            body = self._get("/coins", {"cursor": cursor} if cursor else {})
            found |= {coin["slug"]: coin["rank"] for coin in body["data"]}
            cursor = body["meta"]["cursor"]
            if not cursor:
                break
        return found

    def status(self, path: str, **parameters: str) -> tuple[int, str]:
        answer = self._send(path, parameters)
        return answer.status_code, answer.json()["error"]["code"]

    def _rows(self, path: str, parameters: dict[str, Any]) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self._get(path, parameters)["data"]
        return rows

    def _get(self, path: str, parameters: dict[str, Any]) -> dict[str, Any]:
        answer = self._send(path, parameters)
        answer.raise_for_status()
        body: dict[str, Any] = answer.json()
        return body

    def _send(self, path: str, parameters: dict[str, Any]) -> httpx.Response:
        return httpx.get(
            self._base + path,
            params=parameters,
            headers=self._headers,
            timeout=HANGS_AFTER_S,
            verify=False,
        )


class AtPulledTime(httpx.BaseTransport):
    """A transport that requests the sandbox at the time of the last pull."""

    def __init__(self) -> None:
        self._network = httpx.HTTPTransport(verify=False)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        request.headers["Sandbox-Now"] = AT_PULL
        return self._network.handle_request(request)

    def close(self) -> None:
        self._network.close()


@pytest.fixture(scope="module")
def home(almanac_sandbox: Sandbox, filled_home: Home, tmp_path_factory: Any) -> Home:
    """The shared home, and all coins; the shared one has a few of them."""
    home = Home(tmp_path_factory.mktemp("all-coins") / "home")
    shutil.copytree(filled_home.root, home.root)
    key = almanac_sandbox.new_key("enterprise", rate_per_s=1e6, burst=1_000_000)
    with (
        without_syncs(),
        CatalogClient(
            almanac_sandbox.base_url, key, limiter=Unlimited(), transport=AtPulledTime()
        ) as client,
    ):
        clock = lambda: PULLED  # noqa: E731
        Puller(client, home.landing, plan=ENTERPRISE, source=SOURCE, clock=clock).coins()
        merge(home)
    return home


@pytest.fixture
def both(
    almanac_sandbox: Sandbox, home: Home, tmp_path: Path
) -> Iterator[tuple[ServiceCalls, ServiceCalls]]:
    """The calls to the service and to the mirror, both at the time of the last pull."""
    key = almanac_sandbox.new_key("enterprise", rate_per_s=1e6, burst=1_000_000)
    with mirroring(home, tmp_path / "mirror") as (mirror, _):
        yield (
            ServiceCalls(almanac_sandbox.base_url + "/v2", key, **{"Sandbox-Now": AT_PULL}),
            ServiceCalls(mirror.base_url + "/v2", key, **{"X-As-Of": AT_PULL}),
        )


def comparable(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return events without the two known differences of a mirror.

    A warehouse sorts categories and coins, and an event that was merely verified again has no new
    version.
    """
    return [
        {
            **event,
            "categories": sorted(event["categories"]),
            "coins": sorted(event["coins"], key=lambda coin: coin["slug"]),
            "lastVerifiedAt": None,
        }
        for event in events
    ]


Both = tuple[ServiceCalls, ServiceCalls]


def test_search_and_events_of_a_range_are_the_same(both: Both) -> None:
    service, mirror = both
    coins = service.search_coins("bit")
    assert coins
    assert [coin["slug"] for coin in mirror.search_coins("bit")] == [c["slug"] for c in coins]
    ranked = [*service.rank_coins(pages=1)]
    events = service.list_events(ranked, days=7)
    assert len(events) > 5
    assert comparable(mirror.list_events(ranked, days=7)) == comparable(events)


def test_coin_pages_by_cursor_are_the_same(both: Both) -> None:
    service, mirror = both
    ranks = service.rank_coins(pages=3)
    assert len(ranks) > 50
    assert mirror.rank_coins(pages=3) == ranks


def test_parameters_of_v1_are_ignored(both: Both) -> None:
    service, mirror = both
    listed = mirror.list_by_old_names()
    assert listed
    assert [*listed[0]] == [*service.list_by_old_names()[0]]


@pytest.mark.parametrize(
    ("path", "parameters"),
    [
        ("/events", {"limit": "101"}),
        ("/events", {"from": "tomorrow"}),
        ("/coins", {"cursor": "1"}),
        ("/coins/no-such-coin", {}),
        ("/events/no-such-event", {}),
        ("/nothing", {}),
    ],
)
def test_errors_are_the_same(both: Both, path: str, parameters: dict[str, str]) -> None:
    service, mirror = both
    assert mirror.status(path, **parameters) == service.status(path, **parameters)


def test_a_key_that_a_client_sends_is_kept_nowhere(
    filled_home: Home, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    key = "canary-0123456789abcdef"
    caplog.set_level(logging.DEBUG)
    shown = []
    with mirroring(filled_home, tmp_path) as (mirror, client):
        for headers in ({"x-api-key": key}, {"authorization": f"Bearer {key}"}):
            for path in (*PATHS, *REFUSED):
                answer = client.get(path, headers=headers)
                shown.append(answer.text + str(answer.headers))
        usage = client.get("/v2/usage", headers={"x-api-key": key})
        shown.append(repr(mirror) + client.get("/metrics").text + usage.text)
    assert usage.json()["limit"] is None
    assert "x-ratelimit-reset" in usage.headers
    for name in ("x-ratelimit-limit", "x-ratelimit-remaining", "deprecation"):
        assert name not in usage.headers
    kept = [file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()]
    assert len(kept) > 2
    assert not any(key.encode() in content for content in kept)
    assert not any(key in text for text in (*shown, caplog.text))
    assert (tmp_path / "cursor.key").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("replays", [False, True], ids=["live", "replay"])
def test_no_key_is_kept_whether_known_unknown_or_refused(
    filled_home: Home, tmp_path: Path, caplog: pytest.LogCaptureFixture, replays: bool
) -> None:
    caplog.set_level(logging.DEBUG)
    receiver = Receiver()
    receiver.answer = lambda _: 500
    known, _ = ServiceDir(tmp_path).key_book().create("bot", ELITE)
    keys = (known, known[:-1] + ("a" if known[-1] != "a" else "b"), "canary-0123456789abcdef")
    _, secret = (
        ServiceDir(tmp_path).endpoint_book().add(receiver.url, account="bot", allow_private=True)
    )
    push = SenderOptions(retry_after_s=(0.05,) * 200, poll_s=0.02)
    shown = []
    with (
        replaying(filled_home, tmp_path, STARTS, push=push)
        if replays
        else mirroring(filled_home, tmp_path, push=push)
    ) as (server, client):
        if replays:
            order(client, advance_s=12 * 3600)
            wait_for(lambda: receiver.received)
        for key in keys:
            for headers in ({"x-api-key": key}, {"authorization": f"Bearer {key}"}):
                for path in (*PATHS, *REFUSED, "/v2/usage", "/healthz", "/metrics", CONTROL_PATH):
                    answer = client.get(path, headers=headers)
                    shown.append(answer.text + str(answer.headers))
                refused = client.post("/v2/events", headers=headers, content=b"{")
                assert refused.status_code >= 400
                shown.append(refused.text + str(refused.headers))
        shown.append(repr(server) + client.get("/metrics").text)
        # The write-ahead logs are read as well: they are deleted when the mirror stops.
        kept = [file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()]
    receiver.close()
    kept += [file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()]
    kept += [str(each.headers).encode() + each.body for each in receiver.received]
    for key in keys:
        assert not any(key.encode() in content for content in kept)
    for hidden in (*keys, secret):
        assert not any(hidden in text for text in (*shown, caplog.text))
