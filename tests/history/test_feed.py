"""The feed of changes: a reader of `published_seq` gets each published version exactly once."""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import duckdb
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.history.stories.example_counts import examples
from tests.history.stories.handmade import HandmadeHome, at, event
from tests.reading import reading
from warehouse.history.merge import rebuild
from warehouse.schema.columns import CONTENT

Version = tuple[Any, ...]
"""Event, time and content."""
Step = tuple[str, int, tuple[tuple[str, str], ...]]
"""What happens to a home; a number; and events with their titles."""
STARTS = at("03 06:00")
SEEN = "event_id, known_from, " + ", ".join(column.name for column in CONTENT)
REPEATED = "SELECT published_seq FROM event_versions GROUP BY ALL HAVING count(*) > 1"
_shown = st.lists(
    st.tuples(st.sampled_from("abc"), st.sampled_from(("Launch", "Halving"))),
    min_size=1,
    max_size=4,
).map(tuple)
steps = st.lists(
    st.tuples(
        st.sampled_from(
            ("poll", "poll", "poll", "late", "late", "rebuild", "lose", "lose", "damage")
        ),
        st.integers(1, 60),
        _shown,
    ),
    min_size=2,
    max_size=6,
)


class Story:
    """A home that is published again and again: by polls, late deliveries, and refolds."""

    def __init__(self, root: Path) -> None:
        self.home = HandmadeHome(root)
        self._root = root
        self._now = STARTS
        self._lost: list[tuple[Path, Path]] = []

    def publish(self, step: Step) -> None:
        kind, number, shown = step
        if kind in ("poll", "late") or not self.home.home.warehouse.exists():
            self._land(number if kind == "late" else 0, shown)
            self.home.merge()
            return
        if kind == "lose":
            self._lose(number)
        elif kind == "damage":
            damage(self.home)
        rebuild(self.home.home)

    def _land(self, hours_late: int, shown: Sequence[tuple[str, str]]) -> None:
        """Land deliveries that all arrived in one second, or a poll."""
        self._now += timedelta(hours=3)
        if hours_late:
            when = max(STARTS - timedelta(days=1), self._now - timedelta(hours=hours_late))
            bodies = [
                (f"{when:%d %H:%M}", text(when + timedelta(seconds=n)), event(name, title=title))
                for n, (name, title) in enumerate(shown)
            ]
            self.home.deliveries(*bodies)
        else:
            rows = [event(name, title=title) for name, title in dict(shown).items()]
            self.home.listed(f"{self._now:%d %H:%M}", *rows, why_incomplete="cut")

    def _lose(self, number: int) -> None:
        """Lose a batch of landing, or find it again."""
        if self._lost:
            place, there = self._lost.pop()
            there.rename(place)
            return
        batches = sorted(self._root.glob("landing/batches/*/*.json"))
        place = batches[number % len(batches)]
        self._lost.append((place, place.rename(self._root / place.name)))


class FeedReader:
    """A client with a cursor: the feed and the last place that it read."""

    def __init__(self) -> None:
        self.cursor = ("", 0)
        self.known = Counter[Version]()

    def read(self, published: duckdb.DuckDBPyConnection) -> list[Version]:
        """Return the versions after the cursor. In another feed it begins again."""
        asked = "SELECT value FROM _almanac.facts WHERE name = 'feed_id'"
        ((feed,),) = published.sql(asked).fetchall()
        if feed != self.cursor[0]:
            self.cursor, self.known = (feed, 0), Counter()
        rows = published.sql(
            f"SELECT published_seq, {SEEN} FROM event_versions "
            f"WHERE published_seq > {self.cursor[1]} ORDER BY published_seq"
        ).fetchall()
        if rows:
            self.cursor = (feed, rows[-1][0])
        found = [comparable(row[1:]) for row in rows]
        self.known.update(found)
        return found


def comparable(row: Sequence[Any]) -> Version:
    return tuple(tuple(value) if isinstance(value, list) else value for value in row)


def text(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"


def damage(home: HandmadeHome) -> None:
    """Damage the published file so that its facts can't be read."""
    path = home.home.warehouse
    path.unlink()
    path.write_bytes(b"not a file of DuckDB" * 1_000)


def follow(given_steps: Sequence[Step]) -> None:
    """Follow a home with a reader of each publication, and a reader that polls now and then."""
    with TemporaryDirectory() as folder:
        story = Story(Path(folder) / "home")
        eager, late = FeedReader(), FeedReader()
        before = Counter[Version]()
        for number, step in enumerate(given_steps, 1):
            story.publish(step)
            with reading(story.home.home) as published:
                feed, found = eager.cursor[0], eager.read(published)
                rows = published.sql(f"SELECT {SEEN} FROM event_versions").fetchall()
                versions = Counter(map(comparable, rows))
                added = versions - (before if eager.cursor[0] == feed else Counter())
                assert Counter(found) == added, step
                assert [row[1] for row in found] == sorted(row[1] for row in found), step
                before = versions
                if number % 3 == 0 or number == len(given_steps):
                    late.read(published)
                assert published.sql(REPEATED).fetchall() == [], step
        for reader in (eager, late):
            assert before - reader.known == Counter(), "each current version is known"
        assert late.known - eager.known == Counter(), "no version is repeated"


_A, _B = ("a", "Launch"), ("a", "Halving")


@pytest.mark.timeout(3_600)
@given(steps)
@example([("poll", 1, (_A,)), ("late", 9, (_A, _B, _A, _B)), ("late", 20, (_A, _B))])
@example([("poll", 1, (_A,)), ("poll", 1, (_B,)), ("lose", 1, ()), ("poll", 1, (("b", "x"),))])
@example([("poll", 1, (_A,)), ("poll", 1, (_B,)), ("lose", 1, ()), ("lose", 1, ())])
@example([("poll", 1, (_A,)), ("poll", 1, (_B,)), ("damage", 1, ()), ("late", 5, (_A,))])
@examples(2, 300)
def test_reader_of_the_feed_gets_each_published_version_once(given_steps: list[Step]) -> None:
    follow(given_steps)


def test_places_follow_the_order_of_knowledge_in_a_publication(tmp_path: Path) -> None:
    home = HandmadeHome(tmp_path)
    for when, title in (("04 06:00", "Third"), ("02 06:00", "First"), ("03 06:00", "Second")):
        home.listed(when, event("a", title=title), event("b", title=title), why_incomplete="cut")
    home.merge()
    assert home.rows("SELECT title, event_id FROM event_versions ORDER BY published_seq") == [
        (title, name) for title in ("First", "Second", "Third") for name in "ab"
    ]


def test_refold_that_changes_nothing_leaves_places_feed_and_days(tmp_path: Path) -> None:
    home = HandmadeHome(tmp_path)
    home.listed("02 06:00", event("a"), event("b"))
    home.merge()
    home.listed("03 06:00", event("a", title="Later"), why_incomplete="cut")
    home.merge()
    query = "SELECT event_id, version, published_seq FROM event_versions ORDER BY ALL"
    feed = "SELECT value FROM _almanac.facts WHERE name = 'feed_id'"
    before = home.rows(query), home.rows(feed)
    report = home.merge(with_events=True, refold_from=at("02 00:00").date())
    assert (home.rows(query), home.rows(feed)) == before
    assert (report.is_published, report.partitions) == (True, 1), "the file of the events"
