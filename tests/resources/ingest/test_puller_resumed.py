"""Pulls whose process was killed: no page is requested twice, no batch is landed twice, and a
batch that may lack rows is never complete."""

import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from catalog.contract.plans import ELITE
from catalog.sandbox.sandbox import Sandbox
from resources.ingest.context import LandedBatch
from resources.service_clock import ServiceClock
from tests.resources.conftest import MakeClient
from tests.resources.fakes import FaultScript, answering, mocked
from tests.resources.ingest.killed_pulls import Killing, pull_of
from tests.resources.ingest.test_puller import MARCH_SCOPE
from tests.resources.pulls import AT, MACHINE_AT, SOURCE, all_manifests, puller_of, rows_of
from warehouse.errors import LandingError
from warehouse.landing.batches import Manifest, Scope
from warehouse.landing.journal import Intent, PageNote
from warehouse.landing.landing import Landing

ROOT = Path(__file__).parents[3]
STEP = timedelta(microseconds=1)
Kill = Callable[..., Killing]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "landing"


@pytest.fixture(scope="module")
def killer() -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.resources.ingest.killed_pulls"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    yield process
    assert process.stdin is not None
    process.stdin.close()
    process.wait()


@pytest.fixture
def kill(
    killer: subprocess.Popen[str], almanac_sandbox: Sandbox, unlimited_key: str, root: Path
) -> Kill:
    """Pull in another process until it is killed."""

    def killed(feed: str, point: str, **more: Any) -> Killing:
        what = Killing(almanac_sandbox.base_url, unlimited_key, str(root), feed, point, **more)
        assert killer.stdin is not None
        assert killer.stdout is not None
        killer.stdin.write(msgspec.json.encode(what).decode() + "\n")
        killer.stdin.flush()
        assert int(killer.stdout.readline()) == -signal.SIGKILL
        return what

    return killed


@pytest.fixture
def some_coins(make_client: MakeClient, tmp_path: Path) -> list[str]:
    landed = puller_of(make_client(), tmp_path / "coins").coins()
    rows = rows_of(Landing(tmp_path / "coins"), landed.manifest)
    return [row["slug"] for row in rows][:230]


def bought(sandbox: Sandbox) -> Counter[tuple[str, str]]:
    """Count the pages that were sent, whatever their limit was."""
    pages: Counter[tuple[str, str]] = Counter()
    for request in sandbox.requests:
        params = httpx.QueryParams(request.query).remove("limit")
        if request.status == 200:
            pages[request.path, str(params)] += 1
    return pages


def ids_of(root: Path, landed: LandedBatch) -> list[str]:
    rows = rows_of(Landing(root), landed.manifest)
    return sorted({row["id"] if "id" in row else row["slug"] for row in rows})


POINTS = [
    *(("events", "page", n) for n in (1, 4, 7)),
    ("events", "before", 0),
    ("events", "after", 0),
    *(("coins", "page", n) for n in (1, 16)),
    ("coins", "before", 0),
    ("coins", "after", 0),
    ("cancellations", "page", 2),
    ("cancellations", "after", 0),
]


class TestKilled:
    @pytest.mark.parametrize(("feed", "point", "page"), POINTS)
    def test_a_killed_pull_resumes_and_lands_the_same_batch(
        self, almanac_sandbox: Sandbox, make_client: MakeClient, kill: Kill, root: Path,
        feed: str, point: str, page: int,
    ) -> None:  # fmt: skip
        almanac_sandbox.forget_requests()
        what = kill(feed, point, page=page)
        before = sum(bought(almanac_sandbox).values())
        (landed,) = puller_of(make_client(), root).resume_open()
        pages = bought(almanac_sandbox)
        assert set(pages.values()) == {1}
        assert len(pages) == landed.requests == len(landed.manifest.pages)
        assert before == (page or len(pages))
        assert landed.manifest.complete
        assert all_manifests(root) == [landed.manifest]
        assert Landing(root).journal.open_pulls() == []
        assert puller_of(make_client(), root).resume_open() == []
        aside = root.with_name("aside")
        whole = pull_of(puller_of(make_client(), aside), what)()
        assert landed.manifest.batch_id == whole.manifest.batch_id
        assert landed.manifest.rows_claimed == whole.manifest.rows_claimed == landed.rows

    @pytest.mark.parametrize("feed", ["events", "coins", "cancellations"])
    def test_the_pull_that_asks_for_the_same_next_pays_no_page_twice(
        self, almanac_sandbox: Sandbox, make_client: MakeClient, kill: Kill, root: Path, feed: str
    ) -> None:
        almanac_sandbox.forget_requests()
        what = kill(feed, "page", page=2)
        puller = puller_of(make_client(), root)
        (resumed,) = puller.resume_open()
        paid = bought(almanac_sandbox)
        assert pull_of(puller, what)() == resumed
        assert bought(almanac_sandbox) == paid
        # Only the next one: a pull after it looks again.
        pull_of(puller, what)()
        assert sum(bought(almanac_sandbox).values()) == 2 * sum(paid.values())

    @pytest.mark.parametrize(
        "options",
        [{"clock": lambda: MACHINE_AT + timedelta(days=3)}, {"source": "other"}, {"plan": ELITE}],
        ids=["days later", "another source", "another plan"],
    )
    def test_a_pull_that_had_ended_long_ago_or_elsewhere_does_not_stand_for_one_of_now(
        self, almanac_sandbox: Sandbox, make_client: MakeClient, kill: Kill, root: Path,
        options: dict[str, Any],
    ) -> None:  # fmt: skip
        what = kill("coins", "before")
        almanac_sandbox.forget_requests()
        puller = puller_of(make_client(), root, **options)
        (resumed,) = puller.resume_open()
        assert resumed.manifest.complete
        assert (resumed.manifest.plan, resumed.manifest.source) == ("enterprise", SOURCE)
        assert bought(almanac_sandbox) == {}
        pull_of(puller, what)()
        assert bought(almanac_sandbox)

    def test_a_pull_that_had_ended_before_midnight_does_not_stand_for_one_of_the_next_day(
        self, tmp_path: Path
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
            pytest.raises(KeyboardInterrupt),
        ):
            puller_of(client, tmp_path, clock=lambda: machine, on_page=stop).coins()
        later = machine + timedelta(minutes=2)
        with mocked(at(after), service_clock=ServiceClock(lambda: later)) as client:
            puller = puller_of(client, tmp_path, clock=lambda: later)
            (resumed,) = puller.resume_open()
            assert resumed.manifest.observed_at.date() == date(2026, 2, 28)
            assert puller.coins().manifest.observed_at.date() == date(2026, 3, 1)
        assert asked == [before, after]

    def test_a_pull_of_more_than_was_resumed_is_made(
        self, almanac_sandbox: Sandbox, make_client: MakeClient, kill: Kill, root: Path
    ) -> None:
        kill("events", "page", page=2)
        puller = puller_of(make_client(), root)
        (resumed,) = puller.resume_open()
        scope = resumed.manifest.scope
        assert scope.upper is not None
        more = puller.events(scope.lower, scope.upper + timedelta(days=1))
        assert more.manifest.batch_id != resumed.manifest.batch_id

    @pytest.mark.parametrize(
        ("point", "page"), [("page", 1), ("page", 2), ("page", 3), ("after", 0)]
    )
    def test_a_killed_pull_of_several_lists_resumes(
        self, almanac_sandbox: Sandbox, make_client: MakeClient, kill: Kill, root: Path,
        some_coins: list[str], point: str, page: int,
    ) -> None:  # fmt: skip
        almanac_sandbox.forget_requests()
        what = kill("events", point, page=page, coins=some_coins)
        (landed,) = puller_of(make_client(), root).resume_open()
        assert set(bought(almanac_sandbox).values()) == {1}
        assert landed.manifest.complete
        whole = pull_of(puller_of(make_client(), root.with_name("aside")), what)()
        assert landed.manifest.batch_id == whole.manifest.batch_id
        assert all_manifests(root) == [landed.manifest]

    @pytest.mark.parametrize(
        ("point", "page"), [("page", 1), ("page", 3), ("page", 6), ("page", 8), ("after", 0)]
    )
    def test_a_killed_pull_with_split_dates_resumes(
        self,
        almanac_sandbox: Sandbox,
        make_client: MakeClient,
        kill: Kill,
        root: Path,
        point: str,
        page: int,
    ) -> None:
        almanac_sandbox.forget_requests()
        what = kill(
            "events", point, page=page, lower="2026-03-20", upper="2026-03-22",
            # Too slow at the least limit, and also after a page: the dates are split, twice.
            faults=[*["error=0.001"] * 5, "", "error=0.001", "", "error=0.001"],
        )  # fmt: skip
        (landed,) = puller_of(make_client(), root).resume_open()
        pages = bought(almanac_sandbox)
        assert set(pages.values()) == {1}
        ranges = {httpx.QueryParams(query)["to"] for _, query in pages}
        assert len(ranges) >= (1 if page == 1 else 3)
        whole = pull_of(puller_of(make_client(), root.with_name("aside")), what)()
        assert whole.manifest.complete
        assert ids_of(root, landed) == ids_of(root.with_name("aside"), whole)
        assert landed.manifest.complete
        assert all_manifests(root) == [landed.manifest]

    def test_a_pull_killed_several_times_is_one_batch(
        self, almanac_sandbox: Sandbox, make_client: MakeClient, kill: Kill, root: Path
    ) -> None:
        """The next kill stops each resumption: here an error that is not of the tree."""
        almanac_sandbox.forget_requests()
        kill("events", "page", page=1)

        class Killed(BaseException):
            pass

        def stop(feed: str, rows: int, total: int | None) -> None:
            raise Killed

        for _ in range(4):
            with pytest.raises(Killed):
                puller_of(make_client(), root, on_page=stop).resume_open()
        (landed,) = puller_of(make_client(), root).resume_open()
        assert len(landed.manifest.pages) == 7
        assert set(bought(almanac_sandbox).values()) == {1}

    def test_a_pull_killed_before_the_first_page_leaves_nothing(
        self, make_client: MakeClient, root: Path
    ) -> None:
        scope, landing = Scope(), Landing(root)
        landing.journal.begin(intent("coins", scope))
        assert puller_of(make_client(), root).resume_open() == []
        assert landing.journal.open_pulls() == []
        assert all_manifests(root) == []


class TestInProgress:
    def test_a_pull_of_a_live_process_is_not_touched(
        self, make_client: MakeClient, root: Path
    ) -> None:
        other, seen = puller_of(make_client(), root), []

        def on_page(feed: str, rows: int, total: int | None) -> None:
            (journal,) = Landing(root).journal.open_pulls()
            before = len(list(journal.pages()))
            newest = max((root / "journal").rglob("*.page"))
            whole = newest.read_bytes()
            newest.write_bytes(b"")  # Like a write that is half done.
            assert other.resume_open() == []
            newest.write_bytes(whole)
            seen.append(before == len(list(journal.pages())))

        landed = puller_of(make_client(), root, on_page=on_page).coins()
        assert landed.manifest.complete
        assert len(seen) > 1
        assert all(seen)

    def test_a_page_that_disappears_from_the_journal_is_in_no_batch(
        self, make_client: MakeClient, root: Path
    ) -> None:
        def lose(feed: str, rows: int, total: int | None) -> None:
            if len(pages := sorted((root / "journal").rglob("*.page"))) == 2:
                pages[0].unlink()

        with pytest.raises(LandingError, match="are there"):
            puller_of(make_client(), root, on_page=lose).coins()
        assert all_manifests(root) == []
        assert puller_of(make_client(), root).resume_open() == []
        assert puller_of(make_client(), root).coins().manifest.complete


def intent(feed: Any, scope: Scope) -> Intent:
    return Intent(feed=feed, scope=scope, plan="enterprise", source=SOURCE, started_at=MACHINE_AT)


class TestNotResumed:
    def late(self, make_client: MakeClient, root: Path, **options: Any) -> LandedBatch:
        options.setdefault("clock", lambda: MACHINE_AT + timedelta(minutes=15, seconds=1))
        (landed,) = puller_of(make_client(), root, **options).resume_open()
        assert not landed.manifest.complete
        assert Landing(root).journal.open_pulls() == []
        return landed

    def test_after_fifteen_minutes_a_pull_is_closed_as_a_partial_batch(
        self, almanac_sandbox: Sandbox, make_client: MakeClient, kill: Kill, root: Path
    ) -> None:
        kill("events", "page", page=3)
        almanac_sandbox.forget_requests()
        landed = self.late(make_client, root)
        assert almanac_sandbox.requests == []
        assert landed.manifest.why_incomplete == (
            "resumed after more than 15 minutes; the rest is a new batch"
        )
        assert landed.manifest.scope == MARCH_SCOPE
        assert (landed.rows, landed.requests) == (300, 3)

    def test_exactly_fifteen_minutes_are_not_too_late(
        self, make_client: MakeClient, kill: Kill, root: Path
    ) -> None:
        kill("events", "page", page=3)
        clock = lambda: MACHINE_AT + timedelta(minutes=15)  # noqa: E731
        (landed,) = puller_of(make_client(), root, clock=clock).resume_open()
        assert landed.manifest.complete

    @pytest.mark.parametrize(
        ("options", "word"),
        [({"plan": ELITE}, "now elite"), ({"source": "other"}, "no longer the source")],
    )
    def test_a_pull_of_another_plan_or_source_is_closed(
        self, almanac_sandbox: Sandbox, make_client: MakeClient, kill: Kill, root: Path,
        options: dict[str, Any], word: str,
    ) -> None:  # fmt: skip
        kill("events", "page", page=2)
        almanac_sandbox.forget_requests()
        landed = self.late(make_client, root, clock=lambda: MACHINE_AT, **options)
        assert almanac_sandbox.requests == []
        assert word in (landed.manifest.why_incomplete or "")
        assert (landed.manifest.plan, landed.manifest.source) == ("enterprise", SOURCE)

    def test_pages_that_are_no_sequence_are_never_complete(
        self, almanac_sandbox: Sandbox, make_client: MakeClient, root: Path
    ) -> None:
        scope = MARCH_SCOPE
        pull = Landing(root).journal.begin(intent("events", scope))
        note = PageNote(
            number=1, cursor_in="from nowhere",
            date=AT, received_at=MACHINE_AT, lower="2026-03-01", upper="2026-03-31",
        )  # fmt: skip
        pull.add(note, b'{"data":[{"id":"a","date":"2026-03-05T00:00:00Z"}],"meta":{"total":1}}')
        almanac_sandbox.forget_requests()
        landed = self.late(make_client, root, clock=lambda: MACHINE_AT)
        assert almanac_sandbox.requests == []
        assert landed.manifest.scope == scope
        assert landed.manifest.rows_claimed is None

    def test_a_page_that_is_no_list_is_landed_once_as_its_own_batch(
        self, make_client: MakeClient, root: Path
    ) -> None:
        class Killed(BaseException):
            pass

        class KilledLanding(Landing):
            def land(self, *_: object) -> Manifest:
                raise Killed

        landing = KilledLanding(root)
        puller = puller_of(make_client(transport=FaultScript("", "html")), root, landing=landing)
        with pytest.raises(Killed):
            puller.events(date(2026, 3, 1), date(2026, 3, 31))
        landed = self.late(make_client, root, clock=lambda: MACHINE_AT)
        assert (landed.rows, landed.requests) == (100, 2)
        assert len(all_manifests(root)) == 2
        bad = next(manifest for manifest in all_manifests(root) if manifest != landed.manifest)
        assert bad.scope == landed.manifest.scope
        assert b"<html>" in b"".join(Landing(root).body(bad))

    def test_an_error_after_resuming_is_a_warning(
        self, make_client: MakeClient, kill: Kill, root: Path
    ) -> None:
        kill("events", "page", page=2)
        kill("coins", "page", page=2)
        refused = mocked(answering(httpx.Response(403, json={"message": "Forbidden"})))
        landed = puller_of(refused, root).resume_open()
        assert [page.rows for page in landed] == [400, 200]
        assert all("403" in landing_.warnings[0] for landing_ in landed)
        assert not any(landing_.manifest.complete for landing_ in landed)
        assert [pull.requests for pull in landed] == [3, 3]

    def test_a_quota_used_up_after_resuming_is_returned_with_the_batch(
        self, make_client: MakeClient, kill: Kill, root: Path
    ) -> None:
        kill("events", "page", page=2)
        puller = puller_of(make_client(transport=FaultScript("", "quota")), root)
        (landed,) = puller.resume_open()
        assert landed.deferred is not None
        assert landed.rows == 300
