"""Pulls whose process was killed: no page is requested twice, no batch is landed twice, and a
batch that may lack rows is never complete."""

import itertools
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from almanac.core.progress import listening
from catalog.contract.plans import ELITE
from catalog.sandbox.sandbox import Sandbox
from resources.ingest.paged_pull import LandedBatch
from resources.ingest.puller import Puller
from resources.service_clock import ServiceClock
from tests.resources.conftest import MakeClient
from tests.resources.fakes import mocked
from tests.resources.ingest.test_puller import MARCH, MARCH_SCOPE
from tests.resources.pulls import AT, MACHINE_AT, SOURCE, all_manifests, puller_of
from warehouse.errors import LandingError
from warehouse.landing.batches import Manifest, Pull, Scope
from warehouse.landing.journal import Intent, PageNote
from warehouse.landing.landing import Landing

Kill = Callable[..., None]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "landing"


class Killed(BaseException):
    """Nothing handles it, as nothing handles a kill. tests/crashes kills processes."""


class KilledLanding(Landing):
    point = ""

    def land(self, pull: Pull, bodies: Iterable[tuple[bytes, datetime | None]]) -> Manifest:
        if self.point == "before":
            raise Killed
        manifest = super().land(pull, bodies)
        if self.point == "after":
            raise Killed
        return manifest


def pull_feed(puller: Puller, feed: str) -> LandedBatch:
    if feed == "events":
        return puller.events(*MARCH)
    return puller.coins() if feed == "coins" else puller.cancellations()


@pytest.fixture
def kill(make_client: MakeClient, root: Path) -> Kill:
    """Pull until the journal has some pages, or until before or after the landing."""

    def kill(feed: str, point: str, page: int = 0) -> None:
        pages = itertools.count(1)

        def on_page(*_: object) -> None:
            if next(pages) == page:
                raise Killed

        landing = KilledLanding(root)
        landing.point = point
        with listening(phase=on_page), pytest.raises(Killed):
            pull_feed(puller_of(make_client(), root, landing=landing), feed)

    return kill


def bought(sandbox: Sandbox) -> Counter[tuple[str, str]]:
    """Count the pages that were sent, whatever their limit was."""
    pages: Counter[tuple[str, str]] = Counter()
    for request in sandbox.requests:
        params = httpx.QueryParams(request.query).remove("limit")
        if request.status == 200:
            pages[request.path, str(params)] += 1
    return pages


POINTS = [
    *(("events", "page", number) for number in (1, 4, 7)),
    ("events", "before", 0),
    ("events", "after", 0),
    ("coins", "page", 15),
    ("cancellations", "page", 2),
]


@pytest.mark.parametrize(("feed", "point", "page"), POINTS)
def test_a_killed_pull_resumes_and_lands_the_same_batch(
    almanac_sandbox: Sandbox,
    make_client: MakeClient,
    kill: Kill,
    root: Path,
    feed: str,
    point: str,
    page: int,
) -> None:
    almanac_sandbox.forget_requests()
    kill(feed, point, page=page)
    before = sum(bought(almanac_sandbox).values())
    (landed,) = puller_of(make_client(), root).resume_open()
    pages = bought(almanac_sandbox)
    assert set(pages.values()) == {1}
    assert len(pages) == landed.requests == len(landed.manifest.pages)
    assert before == (page or len(pages))
    assert landed.manifest.complete
    assert all_manifests(root) == [landed.manifest]
    assert Landing(root).journal.ids() == []
    assert puller_of(make_client(), root).resume_open() == []
    aside = root.with_name("aside")
    whole = pull_feed(puller_of(make_client(), aside), feed)
    assert landed.manifest.batch_id == whole.manifest.batch_id
    assert landed.manifest.rows_claimed == whole.manifest.rows_claimed == landed.rows


@pytest.mark.parametrize("feed", ["events", "cancellations"])
def test_the_pull_that_asks_for_the_same_next_pays_no_page_twice(
    almanac_sandbox: Sandbox, make_client: MakeClient, kill: Kill, root: Path, feed: str
) -> None:
    almanac_sandbox.forget_requests()
    kill(feed, "page", page=2)
    puller = puller_of(make_client(), root)
    (resumed,) = puller.resume_open()
    paid = bought(almanac_sandbox)
    assert pull_feed(puller, feed) == resumed
    assert bought(almanac_sandbox) == paid
    # Only the next one: a pull after it looks again.
    pull_feed(puller, feed)
    assert sum(bought(almanac_sandbox).values()) == 2 * sum(paid.values())


@pytest.mark.parametrize(
    "options",
    [{"clock": lambda: MACHINE_AT + timedelta(days=3)}, {"source": "other"}, {"plan": ELITE}],
    ids=["days later", "another source", "another plan"],
)
def test_a_pull_that_had_ended_long_ago_or_elsewhere_does_not_stand_for_one_of_now(
    almanac_sandbox: Sandbox,
    make_client: MakeClient,
    kill: Kill,
    root: Path,
    options: dict[str, Any],
) -> None:
    kill("cancellations", "before")
    almanac_sandbox.forget_requests()
    puller = puller_of(make_client(), root, **options)
    (resumed,) = puller.resume_open()
    assert resumed.manifest.complete
    assert (resumed.manifest.plan, resumed.manifest.source) == ("enterprise", SOURCE)
    assert bought(almanac_sandbox) == {}
    pull_feed(puller, "cancellations")
    assert bought(almanac_sandbox)


def test_a_pull_that_had_ended_before_midnight_does_not_stand_for_one_of_the_next_day(
    tmp_path: Path,
) -> None:
    asked: list[str] = []

    def stop(feed: str, rows: int, total: int | None) -> None:
        raise KeyboardInterrupt

    def at(date: str) -> Callable[[httpx.Request], httpx.Response]:
        def answer(request: httpx.Request) -> httpx.Response:
            asked.append(date)
            body = {"data": [{"slug": "a"}], "meta": {"total": 1, "cursor": None}}
            return httpx.Response(200, headers={"Date": date}, json=body)

        return answer

    before, after = "Sat, 28 Feb 2026 23:59:00 GMT", "Sun, 01 Mar 2026 00:01:00 GMT"
    machine = datetime(2026, 2, 28, 23, 59, tzinfo=UTC)
    with (
        mocked(at(before), service_clock=ServiceClock(lambda: machine)) as client,
        listening(phase=stop),
        pytest.raises(KeyboardInterrupt),
    ):
        puller_of(client, tmp_path, clock=lambda: machine).coins()
    later = machine + timedelta(minutes=2)
    with mocked(at(after), service_clock=ServiceClock(lambda: later)) as client:
        puller = puller_of(client, tmp_path, clock=lambda: later)
        (resumed,) = puller.resume_open()
        assert resumed.manifest.observed_at.date() == date(2026, 2, 28)
        assert puller.coins().manifest.observed_at.date() == date(2026, 3, 1)
    assert asked == [before, after]


def test_a_pull_of_a_live_process_is_not_touched(make_client: MakeClient, root: Path) -> None:
    other, seen = puller_of(make_client(), root), []

    def on_page(feed: str, rows: int, total: int | None) -> None:
        pages = sorted((root / "journal").rglob("*.page"))
        before, newest = [page.read_bytes() for page in pages], pages[-1]
        whole = newest.read_bytes()
        newest.write_bytes(b"")  # Like a write that is half done.
        assert other.resume_open() == []
        newest.write_bytes(whole)
        seen.append(before == [page.read_bytes() for page in pages])

    with listening(phase=on_page):
        landed = puller_of(make_client(), root).cancellations()
    assert landed.manifest.complete
    assert len(seen) > 1
    assert all(seen)


def test_a_page_that_disappears_from_the_journal_is_in_no_batch(
    make_client: MakeClient, root: Path
) -> None:
    def lose(feed: str, rows: int, total: int | None) -> None:
        if len(pages := sorted((root / "journal").rglob("*.page"))) == 2:
            pages[0].unlink()

    with listening(phase=lose), pytest.raises(LandingError, match="are there"):
        puller_of(make_client(), root).cancellations()
    assert all_manifests(root) == []
    assert puller_of(make_client(), root).resume_open() == []
    assert puller_of(make_client(), root).cancellations().manifest.complete


def intent(feed: Any, scope: Scope) -> Intent:
    return Intent(feed=feed, scope=scope, plan="enterprise", source=SOURCE, started_at=MACHINE_AT)


def late(make_client: MakeClient, root: Path, **options: Any) -> LandedBatch:
    options.setdefault("clock", lambda: MACHINE_AT + timedelta(minutes=15, seconds=1))
    (landed,) = puller_of(make_client(), root, **options).resume_open()
    assert not landed.manifest.complete
    assert Landing(root).journal.ids() == []
    return landed


def test_after_fifteen_minutes_a_pull_is_closed_as_a_partial_batch(
    almanac_sandbox: Sandbox, make_client: MakeClient, kill: Kill, root: Path
) -> None:
    kill("events", "page", page=3)
    almanac_sandbox.forget_requests()
    landed = late(make_client, root)
    assert almanac_sandbox.requests == []
    assert landed.manifest.why_incomplete == (
        "resumed after more than 15 minutes; the rest is a new batch"
    )
    assert landed.manifest.scope == MARCH_SCOPE
    assert (landed.rows, landed.requests) == (300, 3)


@pytest.mark.parametrize(
    ("options", "word"),
    [({"plan": ELITE}, "now elite"), ({"source": "other"}, "no longer the source")],
)
def test_a_pull_of_another_plan_or_source_is_closed(
    almanac_sandbox: Sandbox,
    make_client: MakeClient,
    kill: Kill,
    root: Path,
    options: dict[str, Any],
    word: str,
) -> None:
    kill("events", "page", page=2)
    almanac_sandbox.forget_requests()
    landed = late(make_client, root, clock=lambda: MACHINE_AT, **options)
    assert almanac_sandbox.requests == []
    assert word in (landed.manifest.why_incomplete or "")
    assert (landed.manifest.plan, landed.manifest.source) == ("enterprise", SOURCE)


def test_pages_that_are_no_sequence_are_never_complete(
    almanac_sandbox: Sandbox, make_client: MakeClient, root: Path
) -> None:
    scope = MARCH_SCOPE
    pull = Landing(root).journal.begin(intent("events", scope))
    note = PageNote(
        number=1, cursor_in="from nowhere",
        date=AT, received_at=MACHINE_AT, lower="2026-03-01", upper="2026-03-31",
    )  # fmt: skip
    pull.add(note, b'{"data":[{"id":"a","date":"2026-03-05T00:00:00Z"}],"meta":{"total":1}}')
    almanac_sandbox.forget_requests()
    landed = late(make_client, root, clock=lambda: MACHINE_AT)
    assert almanac_sandbox.requests == []
    assert landed.manifest.scope == scope
    assert landed.manifest.rows_claimed is None
