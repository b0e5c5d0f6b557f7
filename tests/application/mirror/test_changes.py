"""The feed of changes: no gap and no repetition, whatever is published or refolded."""

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from application.web.mirror.history_routes import read_changes
from application.web.mirror.publications import Publications as Published
from catalog.contract.errors import InvalidCursor
from catalog.contract.plans import ENTERPRISE, PRO, Plan
from catalog.server.cursors import write_cursor
from catalog.server.routes import Reading
from tests.application.mirror.publications import Publications, Version, version_of
from tests.history.stories.disk import without_syncs
from tests.history.stories.handmade import HandmadeHome, event
from warehouse.history.merge import merge

NOW = datetime(2026, 6, 1, tzinfo=UTC)


def read_now(
    published: Published, plan: Plan = ENTERPRISE, as_of: datetime | None = None
) -> Reading:
    return Reading(published.store(), plan, ts=NOW, moment=NOW, as_of=as_of)


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


@pytest.mark.parametrize(
    "count", [6, pytest.param(100, marks=pytest.mark.long)], ids=["short", "long"]
)
def test_each_publication_shows_exactly_the_versions_that_it_added(
    home: HandmadeHome, count: int
) -> None:
    publications = Publications(home, seed=count)
    publications.publish()
    reader = Reader(home)
    assert Counter(reader.read()) == publications.added[0]
    for number in range(1, count):
        publications.publish()
        found = reader.read()
        assert Counter(found) == publications.added[number], number
        assert [each[1] for each in found] == sorted(each[1] for each in found)
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


NUMBERS = st.integers(-(2**63), 2**64 - 1)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Reading:
    home = HandmadeHome(tmp_path_factory.mktemp("small"))
    home.listed("02 06:00", event("a"), event("b"))
    home.merge()
    return read_now(Published(home.home.warehouse, lambda: NOW))


@settings(max_examples=60, deadline=None)
@given(place=st.lists(st.one_of(NUMBERS, st.text(max_size=3), st.floats()), max_size=4))
def test_a_forged_cursor_is_refused_or_answered(small: Reading, place: list[Any]) -> None:
    filters = small.cursor_filters(small.store.feed_id)
    cursor = write_cursor("changes", filters, tuple(place))
    try:
        page = read_changes(small, cursor=cursor, limit=9)
    except InvalidCursor:
        return
    assert len(place) == 3
    assert page.meta.total == len(page.data) <= 2
