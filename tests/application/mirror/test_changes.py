"""The feed of changes, and `changes --follow`: no gap and no repetition, whatever is published."""

import json
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from almanac.reader import Reader as DatabaseReader
from application.cli.changes_command import make_change_filter, watch_changes
from application.web.mirror.history_routes import read_changes
from application.web.mirror.publications import Publications as Published
from catalog.contract.errors import InvalidCursor
from catalog.contract.plans import ENTERPRISE, PRO, Plan, Window
from catalog.server.gating import CatalogView
from tests.application.mirror.publications import Publications, Version, version_of
from tests.hangs import HANGS_AFTER_S
from tests.history.stories.disk import without_syncs
from tests.history.stories.handmade import HandmadeHome, coin, event
from tests.pipeline.conftest import Almanac
from tests.test_cli import ALMANAC, environment
from warehouse.history.merge import merge

NOW = datetime(2026, 6, 1, tzinfo=UTC)


def read_now(
    published: Published, plan: Plan = ENTERPRISE, as_of: datetime | None = None
) -> CatalogView:
    return CatalogView(published.store(), plan, ts=NOW, moment=NOW, as_of=as_of)


class Reader:
    """A client of the changes of a home, in this process."""

    def __init__(self, home: HandmadeHome) -> None:
        self._published = Published(home.home.warehouse, lambda: NOW)
        self.cursor: str | None = None

    def read(self, *, limit: int = 3, since: datetime | None = None) -> list[Version]:
        """Return all changes since the last call, page by page."""
        found: list[Version] = []
        while True:
            reading = read_now(self._published)
            page = read_changes(reading, since=since, cursor=self.cursor, limit=limit)
            found += [version_of(msgspec.to_builtins(change)) for change in page.data]
            before, self.cursor = self.cursor, page.meta.cursor
            if self.cursor == before:
                assert page.meta.total == 0
                return found


@pytest.fixture(autouse=True)
def quick_disk() -> Iterator[None]:
    with without_syncs():
        yield


@pytest.fixture
def home(tmp_path: Path) -> HandmadeHome:
    return HandmadeHome(tmp_path / "home")


def test_each_publication_shows_the_versions_that_it_added(home: HandmadeHome) -> None:
    publications = Publications(home)
    publications.publish()
    reader = Reader(home)
    assert Counter(reader.read()) == publications.added[0]
    for kind in ("late delivery", "poll", "late export", "rebuild", "poll"):
        publications.publish(kind)
        found = reader.read()
        assert Counter(found) == publications.added[-1], kind
        assert [each[1] for each in found] == sorted(each[1] for each in found)
    assert sum(map(bool, publications.added)) == 5
    # A client that reads late sees what is left, once.
    assert Counter(Reader(home).read(limit=100)) == publications.published
    assert reader.read() == []


def test_since_shows_what_became_known_later_and_all_that_is_published_later(
    home: HandmadeHome,
) -> None:
    home.listed("02 06:00", event("a"))
    home.listed("03 06:00", event("b"), why_incomplete="cut")
    home.merge()
    reader = Reader(home)
    found = reader.read(since=datetime(2026, 3, 2, 12, tzinfo=UTC))
    assert [each[0] for each in found] == ["b"]
    # A delivery that was received before `since`, and merged after the first page.
    home.deliveries(("02 08:00", "2026-03-02T08:00:00Z", event("c")))
    home.merge()
    assert [each[0] for each in reader.read()] == ["c"]


def test_a_cursor_belongs_to_its_feed_plan_and_time(home: HandmadeHome) -> None:
    home.listed("02 06:00", event("a"), event("b"))
    home.merge()
    published = Published(home.home.warehouse, lambda: NOW)
    cursor = read_changes(read_now(published), limit=1).data[0].cursor
    assert len(read_changes(read_now(published), cursor=cursor, limit=9).data) == 1
    for plan, as_of in ((PRO, None), (ENTERPRISE, NOW)):
        with pytest.raises(InvalidCursor):
            read_changes(read_now(published, plan, as_of), cursor=cursor, limit=9)
    # Without the file before it, a merge begins a new feed.
    home.home.warehouse.unlink()
    merge(home.home)
    with pytest.raises(InvalidCursor):
        read_changes(read_now(published), cursor=cursor, limit=9)
    assert len(read_changes(read_now(published), limit=9).data) == 2


def test_a_change_has_the_former_values_that_the_plan_shows(home: HandmadeHome) -> None:
    home.listed("02 06:00", event("a"))
    home.listed("03 06:00", event("a", title="Second a", impact=8.0))
    home.look_up("04 06:00", "a", 404)
    home.merge()
    published = Published(home.home.warehouse, lambda: NOW)
    for plan, impact in ((ENTERPRISE, 5.0), (PRO, "High")):
        changes = read_changes(read_now(published, plan), limit=9).data
        former = [change.previous for change in changes]
        assert former == [None, {"title": "First a", "impact": impact}, {"status": "scheduled"}]


def test_a_coin_without_a_symbol_or_icon_has_its_slug_in_place(home: HandmadeHome) -> None:
    home.listed("02 06:00", event("a", coins=[{"slug": "odd", "symbol": "", "name": ""}]))
    home.coins("02 07:00", coin("odd", symbol="", iconUrl=""), coin("plain"))
    home.merge()
    store = Published(home.home.warehouse, lambda: NOW).store()
    found = store.coin("odd", NOW, Window(NOW, None))
    assert found is not None and (found.symbol, found.icon_url) == ("odd", "odd")
    (version,) = store.history("a", NOW)
    assert version.event is not None and version.event.coins[0].symbol == "odd"


EARLY = datetime(2026, 1, 1, tzinfo=UTC)
Change = dict[str, Any]


@pytest.fixture
def publications(tmp_path: Path) -> Publications:
    publications = Publications(HandmadeHome(tmp_path / "home"))
    publications.publish()
    return publications


def watch(
    publications: Publications, since: datetime = EARLY, cursor: str | None = None
) -> list[Change]:
    """Return the changes that are known now."""
    warehouse = publications.home.home.warehouse
    return list(watch_changes(warehouse, since, cursor, pause=lambda: True, once=True))


def test_a_watch_resumes_after_any_line_without_a_gap_or_a_repetition(
    publications: Publications,
) -> None:
    publications.publish()
    whole = watch(publications)
    publications.publish()
    for place in range(len(whole)):
        rest = watch(publications, cursor=whole[place]["cursor"])
        expected = Counter(map(version_of, whole[place + 1 :])) + publications.added[2]
        assert Counter(map(version_of, rest)) == expected, place


def test_filters_select_by_kind_coin_category_and_impact(publications: Publications) -> None:
    coins = [{"slug": "bitcoin", "symbol": "btc", "name": "Bitcoin"}]
    event = {"coins": coins, "categories": ["Token Unlock"], "impact": 6.0}
    change = {"kinds": ["rescheduled", "revised"], "event": event}
    banded = {**change, "event": {**event, "impact": "High", "categories": None}}
    with closing(DatabaseReader(publications.home.home.warehouse)) as reader:
        for given, shows in (
            *(({}, (True, True)), ({"kinds": ["revised", "created"]}, (True, True))),
            *(({"kinds": ["cancelled"]}, (False, False)), ({"min_impact": 6}, (True, False))),
            *(({"min_impact": "high"}, (True, True)), ({"min_impact": 6.1}, (False, False))),
        ):
            is_chosen = make_change_filter(reader, **given)  # type: ignore[arg-type]
            assert (is_chosen(change), is_chosen(banded)) == shows, given
            assert is_chosen({"kinds": [], "event": None}) is (not given), given


@contextmanager
def watching(home: Path, *words: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [*ALMANAC, "changes", "--follow", *words],
        cwd=home,
        env=environment(home),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def test_command_prints_lines_until_a_signal(publications: Publications, almanac: Almanac) -> None:
    home = publications.home.home.root
    count = publications.added[0].total()
    with watching(home, "--since", "2026-01-01") as process:
        assert process.stdout is not None and process.stderr is not None
        lines = [json.loads(process.stdout.readline()) for _ in range(count)]
        publications.publish()
        lines += [
            json.loads(process.stdout.readline()) for _ in range(publications.added[1].total())
        ]
        process.send_signal(signal.SIGTERM)
        assert process.wait(HANGS_AFTER_S) == 130
        assert (process.stdout.read(), process.stderr.read()) == ("", "")
    assert Counter(map(version_of, lines)) == sum(publications.added, Counter())
    at_home = {"home": str(home)}
    resumed = almanac("changes", "--follow", "--once", "--since", lines[-2]["cursor"], **at_home)
    assert [json.loads(line) for line in resumed.stdout.splitlines()] == lines[-1:]
    unknown = almanac("changes", "--follow", "--once", "--coins", "nope", code=2, **at_home)
    assert "no coin has the slug, symbol or name 'nope'" in unknown.stderr
    words = ("--once", "--since", "2026-01-01", "--kinds", "cancelled")
    chosen = almanac("changes", "--follow", *words, **at_home)
    assert (chosen.stdout, chosen.stderr) == ("", "")


def test_a_wrong_option_is_one_line_and_exit_code_2(tmp_path: Path, almanac: Almanac) -> None:
    for words, message in {
        ("--kinds", ","): "--kinds is empty",
        ("--follow", "--min-impact", "huge"): "0 to 10, or Low, Mid, High, Critical",
        ("--follow", "--since", "soon"): "--since='soon' is not a timestamp",
        ("--once",): "--once needs --follow",
        ("--follow", "--until", "today"): "--until can't be used with --follow",
    }.items():
        done = almanac("changes", *words, code=2)
        assert message in done.stderr
        assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
