"""The Parquet partitions follow the published file: only those that changed are written."""

from pathlib import Path

import duckdb
import pytest

from tests.history.stories.handmade import HandmadeHome, event
from warehouse.history.merge import replay
from warehouse.history.partitions import CHANGES, EVENTS, partition_name
from warehouse.history.verify import verify

MAY = {"date": "2026-05-02T00:00:00Z"}
ROWS = {
    CHANGES: "SELECT * EXCLUDE (known_to) REPLACE (extra::VARCHAR AS extra), "
    "known_from::DATE::VARCHAR FROM event_versions",
    EVENTS: "SELECT * EXCLUDE (last_seen_at, missing_since, content_at) REPLACE "
    "(extra::VARCHAR AS extra), strftime(date, '%Y-%m') FROM events",
}


@pytest.fixture
def story(tmp_path: Path) -> HandmadeHome:
    """A home with changes on two days, and events of two months."""
    story = HandmadeHome(tmp_path)
    story.listed("01 06:00", event("a"), event("b", **MAY))
    story.listed("02 06:00", event("a"), event("b", title="Second b", **MAY))
    story.merge()
    return story


def written(story: HandmadeHome) -> dict[str, int]:
    """Return the partitions with the inodes of their files: a file that is written has another."""
    root = story.home.parquet.root
    files = root.rglob("*.parquet")
    return {path.parent.name.partition("=")[2]: path.stat().st_ino for path in files}


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
                f"FROM read_parquet('{story.home.parquet.root}/{kind}/*/*.parquet', "
                "hive_partitioning = true, hive_types_autocast = false)"
            )
            for left, right in ((files, rows), (rows, files)):
                assert connection.sql(f"({left}) EXCEPT ALL ({right})").fetchall() == []


def test_each_day_and_month_is_a_partition_with_the_rows_of_the_tables(
    story: HandmadeHome,
) -> None:
    assert written(story).keys() == {"2026-03-01", "2026-03-02", "2026-05", "2026-06"}
    assert_as_tables(story)


def test_a_merge_writes_only_the_days_and_months_that_changed(story: HandmadeHome) -> None:
    before = written(story)
    story.listed("03 06:00", event("a"), event("b", title="Third b", **MAY))
    assert story.merge().partitions == 2
    assert rewritten(story, before) == {"2026-03-03", "2026-05"}
    assert_as_tables(story)


def test_months_are_written_by_the_next_merge_that_writes_months(story: HandmadeHome) -> None:
    before = written(story)
    story.listed("03 06:00", event("a"), event("b"))
    story.merge(with_months=False)
    assert rewritten(story, before) == {"2026-03-03"}
    assert story.merge().partitions == 2
    assert "2026-05" not in written(story), "its only event moved to June"
    assert_as_tables(story)


def test_a_day_whose_versions_are_refolded_away_has_no_partition(
    story: HandmadeHome,
) -> None:
    story.listed("01 12:00", event("b", title="Second b", **MAY), why_incomplete="cut short")
    story.merge()
    assert story.rows("SELECT count(*) FROM event_versions WHERE known_from >= '2026-03-02'") == [
        (0,)
    ]
    assert_as_tables(story)
    assert "2026-03-02" not in written(story)


def test_partitions_that_a_killed_merge_left_are_written_by_the_next(story: HandmadeHome) -> None:
    def stop(step: str) -> None:
        if step == "merge:renamed":
            raise KeyboardInterrupt

    before = written(story)
    story.listed("03 06:00", event("a", title="Second a"), event("b", **MAY))
    with pytest.raises(KeyboardInterrupt):
        story.merge(step=stop)
    assert rewritten(story, before) == set()
    report = story.merge()
    assert (report.is_published, report.partitions) == (False, 3)
    assert_as_tables(story)


@pytest.mark.parametrize("fault", ["removed", "damaged"])
def test_a_file_that_is_removed_or_damaged_is_found_and_written_by_a_replay(
    story: HandmadeHome, fault: str
) -> None:
    parquet = story.home.parquet
    path = parquet.path(partition_name(CHANGES, "2026-03-01"))
    path.unlink()
    if fault == "damaged":
        path.write_bytes(b"no Parquet at all")
    assert [found for found in verify(story.home) if found.wrong]
    replay(story.home)
    assert [line for found in verify(story.home) for line in found.wrong] == []
    assert_as_tables(story)
