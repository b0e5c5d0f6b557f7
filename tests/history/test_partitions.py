"""The Parquet files follow the published file: only those that changed are written."""

from pathlib import Path

import duckdb
import pytest

from tests.history.stories.handmade import HandmadeHome, event
from warehouse.history.partitions import CHANGES, EVENTS

MAY = {"date": "2026-05-02T00:00:00Z"}
ROWS = {
    CHANGES: "SELECT * EXCLUDE (known_to, published_seq) REPLACE (extra::VARCHAR AS extra), "
    "known_from::DATE::VARCHAR FROM event_versions",
    EVENTS: "SELECT * EXCLUDE (last_seen_at, missing_since, content_at) REPLACE "
    "(extra::VARCHAR AS extra) FROM events",
}


@pytest.fixture
def story(tmp_path: Path) -> HandmadeHome:
    """A home with changes on two days."""
    story = HandmadeHome(tmp_path)
    story.listed("01 06:00", event("a"), event("b", **MAY))
    story.listed("02 06:00", event("a"), event("b", title="Second b", **MAY))
    story.merge(with_events=True)
    return story


def written(story: HandmadeHome) -> dict[str, int]:
    """Return the files with their inodes: a file that is written has another."""
    root = story.home.parquet.root
    files = root.rglob("*.parquet")
    return {path.parent.name.rpartition("=")[2]: path.stat().st_ino for path in files}


def rewritten(story: HandmadeHome, before: dict[str, int]) -> set[str]:
    return {key for key, inode in written(story).items() if before.get(key) != inode}


def assert_as_tables(story: HandmadeHome) -> None:
    """Assert that the files have the rows of the tables, each in its partition."""
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute(f"ATTACH '{story.home.warehouse}' AS published (READ_ONLY)")
        connection.execute("USE published")
        for kind, rows in ROWS.items():
            files = (
                f"FROM read_parquet('{story.home.parquet.root}/{kind}/**/*.parquet', "
                "hive_partitioning = true, hive_types_autocast = false)"
            )
            for left, right in ((files, rows), (rows, files)):
                assert connection.sql(f"({left}) EXCEPT ALL ({right})").fetchall() == []


def test_a_merge_writes_the_changed_days_and_the_events(story: HandmadeHome) -> None:
    before = written(story)
    story.listed("03 06:00", event("a"), event("b", title="Third b", **MAY))
    assert story.merge(with_events=True).partitions == 2
    assert rewritten(story, before) == {"2026-03-03", "events"}
    assert_as_tables(story)
    assert story.merge(with_events=True).partitions == 0


def test_events_are_written_by_the_next_merge_that_writes_events(story: HandmadeHome) -> None:
    before = written(story)
    story.listed("03 06:00", event("a"), event("b"))
    story.merge()
    assert rewritten(story, before) == {"2026-03-03"}
    assert story.merge(with_events=True).partitions == 1
    assert rewritten(story, before) == {"2026-03-03", "events"}
    assert_as_tables(story)


def test_a_day_without_a_version_and_the_folders_of_a_release_are_removed(
    story: HandmadeHome,
) -> None:
    of_release = story.home.parquet.path("events/event_month=2026-05/events.parquet")
    of_release.parent.mkdir()
    of_release.touch()
    odd = [event(f"odd{place}", date=None) for place in range(10)]
    july = event("c", date="2026-07-01T00:00:00Z")
    story.listed("03 06:00", july, *odd, why_incomplete="cut short")
    story.merge(with_events=True)
    before = written(story).keys()
    assert "2026-05" not in before
    ((batch_id,),) = story.rows("SELECT batch_id FROM batches WHERE status = 'quarantined'")
    story.home.landing.release(batch_id)
    story.merge(with_events=True)
    assert written(story).keys() - before == {"2026-03-03"}
    assert_as_tables(story)
    story.home.landing.take_back(batch_id)
    story.merge(with_events=True)
    assert written(story).keys() == before
    assert_as_tables(story)
