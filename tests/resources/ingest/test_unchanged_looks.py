"""A second look on one day: the service answers 304, and the look refers to the body before."""

from datetime import date, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from catalog.contract.plans import ELITE
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
    assert facts() == [
        *((AT + hours * HOUR, rows) for hours in (1, 2, 3)),
        (before.batch_id, rows),
    ]
    merged = facts()
    replay(home)
    assert facts() == merged


def test_the_export_of_the_next_day_is_received_and_counted(looks: Looks) -> None:
    looks.at(HOUR).export(*MARCH)
    (next_day,) = looks.at(timedelta(days=1)).export(*MARCH)
    assert looks.cost[0] == [200, 200]
    assert not next_day.unchanged
    assert next_day.manifest.rows_claimed is not None


def test_categories_are_received_once_and_looked_at_every_day(looks: Looks) -> None:
    first = looks.at(HOUR).categories()
    size = looks.cost[1]
    assert size > 100
    for days in (0, 1, 2):
        look = looks.at(timedelta(days=days) + 2 * HOUR).categories()
        assert looks.cost == ([304], 0)
        assert (look.manifest.sha256, look.manifest.complete) == (first.manifest.sha256, True)
    assert looks.bodies() == 1
    assert looks.landing.journal.open_pulls() == []


def test_a_look_whose_body_is_damaged_or_whose_scope_differs_is_not_named(looks: Looks) -> None:
    (first,) = looks.at(HOUR).export(*MARCH)
    looks.at(2 * HOUR).export(*MARCH, coins=("bitcoin",))
    assert 304 not in looks.cost[0]
    looks.landing.body_path(first.manifest).write_bytes(b"damaged")
    (again,) = looks.at(3 * HOUR).export(*MARCH)
    assert looks.cost[0] == [200, 200]
    assert again.manifest.sha256 == first.manifest.sha256
    looks.landing.check(again.manifest)


def test_a_look_under_another_plan_is_not_named(make_client: MakeClient, home: Home) -> None:
    looks = Looks(make_client, home.landing)
    looks.at(HOUR).categories()
    other = puller_of(
        looks.puller.client, home.landing.storage.root, landing=home.landing, plan=ELITE
    )
    looks.sent.clear()
    assert not other.categories().unchanged


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


def listed(ids: str, cursor: str | None, total: int, **headers: str) -> httpx.Response:
    rows = [{"id": name, "name": name.upper()} for name in ids]
    body = {"data": rows, "meta": {"total": total, "limit": 2, "cursor": cursor}}
    return httpx.Response(200, json=body, headers=headers)


def test_only_the_first_page_of_a_list_names_what_was_received_before(home: Home) -> None:
    seen: list[bool] = []
    answers = answering(
        listed("ab", None, 2, Date=at(12), ETag='"1"'),
        listed("ab", "next", 3, Date=at(13), ETag='"2"'),
        listed("c", None, 3, Date=at(13)),
    )

    def handle(request: httpx.Request) -> httpx.Response:
        seen.append("if-none-match" in request.headers)
        return (
            httpx.Response(304, headers={"Date": at(13)})
            if seen[2:] == [True]
            else (answers(request))
        )

    puller = puller_of(mocked(handle), home.landing.storage.root, landing=home.landing)
    puller.client.service_clock.record_response_date([at(12)])
    puller.categories()
    second = puller.categories()
    assert seen == [False, True, False]
    assert (second.unchanged, second.manifest.complete, second.rows) == (False, True, 3)


def test_a_304_after_the_first_page_is_not_an_unchanged_list(home: Home) -> None:
    answers = answering(
        listed("ab", None, 2, Date=at(12), ETag='"1"'),
        listed("ab", "next", 3, Date=at(13), ETag='"2"'),
        httpx.Response(304, headers={"Date": at(13)}),
    )
    puller = puller_of(mocked(answers), home.landing.storage.root, landing=home.landing)
    puller.client.service_clock.record_response_date([at(12)])
    puller.categories()
    with pytest.raises(ContractBroken, match="304"):
        puller.categories()
    whole, part = (home.landing.manifest(batch_id) for batch_id in home.landing.batch_ids())
    assert (whole.complete, part.complete, part.unchanged) == (True, False, False)


def test_a_look_that_was_quarantined_is_not_named(home: Home) -> None:
    damaged = [{"id": None if n < 12 else f"c{n}", "name": f"C{n}"} for n in range(20)]
    good = [{"id": f"c{n}", "name": f"C{n}"} for n in range(20)]
    bodies = [damaged, good]

    def handle(request: httpx.Request) -> httpx.Response:
        headers = {"Date": at(12, days[0]), "ETag": '"1"'}
        if "if-none-match" in request.headers:
            return httpx.Response(304, headers=headers)
        body = {"data": bodies.pop(0), "meta": {"total": 20, "limit": 100, "cursor": None}}
        return httpx.Response(200, json=body, headers=headers)

    unchanged: list[bool] = []
    for day in (2, 3, 4):
        days = [day]
        puller = puller_of(mocked(handle), home.landing.storage.root, landing=home.landing)
        puller.client.service_clock.record_response_date([at(12, day)])
        unchanged.append(puller.categories().unchanged)
        merge(home)
    assert unchanged == [False, False, True]
    with reading(home) as warehouse:
        statuses = warehouse.sql("SELECT status FROM batches ORDER BY observed_at").fetchall()
        assert statuses == [("quarantined",), ("merged",), ("merged",)]
        assert warehouse.sql("SELECT count(*) FROM categories").fetchall() == [(20,)]


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
