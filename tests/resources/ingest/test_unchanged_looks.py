"""A second look on one day: the service answers 304, and the look refers to the body before."""

from datetime import date, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from resources.errors import ContractBroken
from resources.ingest.puller import Puller
from resources.request_log import SentRequest
from tests.history.stories.merged_story import reading
from tests.resources.conftest import MakeClient
from tests.resources.fakes import answering, counted, mocked
from tests.resources.pulls import AT, puller_of
from warehouse.history.merge import merge, replay
from warehouse.home import Home
from warehouse.landing.batches import Scope
from warehouse.landing.landing import Landing

MARCH = (date(2026, 3, 1), date(2026, 3, 31))
HOUR = timedelta(hours=1)
DATE = "Mon, 02 Mar 2026 12:00:00 GMT"


class Looks:
    """A puller of the sandbox whose time is set, and what its requests received."""

    def __init__(self, make_client: MakeClient, landing: Landing) -> None:
        self._headers: dict[str, str] = {}
        self.sent: list[SentRequest] = []
        client = make_client(extra_headers=self._headers, observer=self.sent.append)
        self.landing = landing
        self.puller = puller_of(client, landing.storage.root, landing=landing)

    def at(self, later: timedelta) -> Puller:
        self._headers["Sandbox-Now"] = (AT + later).isoformat()
        self.puller.client.events_total(Scope())
        self.sent.clear()
        return self.puller

    @property
    def cost(self) -> tuple[list[int | None], int]:
        """Return the statuses of the requests and the bytes received."""
        return [sent.status for sent in self.sent], sum(sent.bytes for sent in self.sent)

    def bodies(self) -> int:
        return len(list(self.landing.storage.path("bodies").rglob("*.zst")))


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


@pytest.fixture
def looks(make_client: MakeClient, home: Home) -> Looks:
    return Looks(make_client, home.landing)


def test_a_second_export_of_a_day_takes_one_request_and_no_bytes(looks: Looks, home: Home) -> None:
    (first,) = looks.at(HOUR).export(*MARCH)
    statuses, size = looks.cost
    assert statuses == [200, 200]
    assert size > 100_000
    (second,) = looks.at(2 * HOUR).export(*MARCH)
    assert looks.cost == ([304], 0)
    assert (second.unchanged, second.rows, second.requests) == (True, 0, 1)
    look, before = second.manifest, first.manifest
    assert (look.sha256, look.scope, look.rows_claimed) == (
        *(before.sha256, before.scope, before.rows_claimed),
    )
    assert (look.complete, look.unchanged, before.unchanged) == (True, True, False)
    assert (look.observed_at, look.content_at) == (AT + 2 * HOUR, before.content_at)
    assert looks.bodies() == 1
    looks.at(3 * HOUR).export(*MARCH)
    assert looks.cost == ([304], 0), "a 304 is a look that the next one can name"
    assert len(home.landing.batch_ids()) == 3
    merge(home)

    def facts() -> list[Any]:
        with reading(home) as warehouse:
            covered = warehouse.sql("SELECT observed_at, rows FROM coverage ORDER BY 1").fetchall()
            versions = warehouse.sql(
                "SELECT batch_id, count(*) FROM event_versions "
                "WHERE known_basis = 'observed' GROUP BY 1"
            )
            return [*covered, *versions.fetchall()]

    rows = first.rows
    assert facts() == [*((AT + hours * HOUR, rows) for hours in (1, 2, 3)), (before.batch_id, rows)]
    merged = facts()
    replay(home)
    assert facts() == merged


def test_a_look_whose_body_is_damaged_or_whose_scope_differs_is_not_named(looks: Looks) -> None:
    (first,) = looks.at(HOUR).export(*MARCH)
    looks.at(2 * HOUR).export(*MARCH, coins=("bitcoin",))
    assert 304 not in looks.cost[0]
    looks.landing.body_path(first.manifest).write_bytes(b"damaged")
    (again,) = looks.at(3 * HOUR).export(*MARCH)
    assert looks.cost[0] == [200, 200]
    assert again.manifest.sha256 == first.manifest.sha256
    looks.landing.check(again.manifest)


def test_a_service_without_etags_is_asked_by_the_date_of_its_answer(home: Home) -> None:
    seen: list[str | None] = []
    modified = "Mon, 02 Mar 2026 00:05:00 GMT"
    body = b"id,title,date\r\n" + b"".join(b"e%d,a,2026-03-05T00:00:00Z\r\n" % n for n in range(3))
    answers = answering(
        httpx.Response(200, content=body, headers={"Last-Modified": modified, "Date": DATE}),
        httpx.Response(304, headers={"Date": "Mon, 02 Mar 2026 13:00:00 GMT"}),
    )

    def handle(request: httpx.Request) -> httpx.Response:
        seen.append(request.headers.get("if-modified-since"))
        assert "if-none-match" not in request.headers
        return answers(request)

    puller = puller_of(mocked(counted(3, handle)), home.landing.storage.root, landing=home.landing)
    puller.client.service_clock.record_response_date([DATE])
    (first,) = puller.export(*MARCH)
    (second,) = puller.export(*MARCH)
    assert seen == [None, modified]
    assert second.unchanged
    assert second.manifest.content_at == first.manifest.content_at


def test_a_304_that_nobody_asked_for_is_an_error(home: Home) -> None:
    puller = puller_of(
        mocked(lambda _: httpx.Response(304, headers={"Date": DATE})),
        home.landing.storage.root,
        landing=home.landing,
    )
    with pytest.raises(ContractBroken, match="was answered 304"):
        puller.categories()
    assert home.landing.batch_ids() == []


def at(hour: int, day: int = 2) -> str:
    return (AT + timedelta(days=day - 2, hours=hour - 12)).strftime("%a, %d %b %Y %H:%M:%S GMT")


def test_an_export_that_was_flagged_is_not_named(home: Home) -> None:
    rows = b"".join(b"e%d,a,2026-03-05T00:00:00Z\r\n" % n for n in range(20))
    damaged = rows.replace(b"e7,", b",")
    sent: list[bool] = []

    def handle(request: httpx.Request) -> httpx.Response:
        hour = 12 + len(sent)
        sent.append("if-none-match" in request.headers)
        if sent[-1]:
            return httpx.Response(304, headers={"Date": at(hour)})
        body = b"id,title,date\r\n" + (damaged if len(sent) == 1 else rows)
        return httpx.Response(200, content=body, headers={"Date": at(hour), "ETag": '"1"'})

    puller = puller_of(mocked(counted(20, handle)), home.landing.storage.root, landing=home.landing)
    puller.client.service_clock.record_response_date([at(12)])
    for _ in range(3):
        puller.export(*MARCH)
        merge(home)
    assert sent == [False, False, True]
    with reading(home) as warehouse:
        flagged = warehouse.sql("SELECT flagged FROM batches ORDER BY observed_at").fetchall()
    assert [why is not None for (why,) in flagged] == [True, False, False]
