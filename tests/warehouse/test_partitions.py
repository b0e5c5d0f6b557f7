"""The Parquet files by date follow the published file."""

from pathlib import Path

import pytest

from tests.history.stories.handmade import HandmadeHome, event
from warehouse.history.partitions import CHANGES, EVENTS, list_files
from warehouse.history.verify import verify


@pytest.fixture
def story(tmp_path: Path) -> HandmadeHome:
    return HandmadeHome(tmp_path)


def partitions(story: HandmadeHome, kind: str) -> list[str]:
    return [path.parent.name for path in list_files(story.home, kind)]


def test_a_partition_without_a_row_is_removed(story: HandmadeHome) -> None:
    odd = [event(f"odd{place}", date=None) for place in range(10)]
    story.listed("01 06:00", event("a", date="2026-05-01T00:00:00Z"))
    late = event("b", date="2026-07-01T00:00:00Z")
    story.listed("02 06:00", late, *odd, why_incomplete="it was stopped")
    story.listed("03 06:00", event("a", date="2026-05-01T00:00:00Z"))
    story.merge()
    assert partitions(story, CHANGES) == ["observed_date=2026-03-01"]
    assert partitions(story, EVENTS) == ["event_month=2026-05"]
    ((batch_id,),) = story.rows("SELECT batch_id FROM batches WHERE status = 'quarantined'")
    story.home.landing.release(batch_id)
    story.merge()
    released = [f"observed_date=2026-03-0{day}" for day in (1, 2)]
    assert partitions(story, CHANGES)[:2] == released
    assert partitions(story, EVENTS) == ["event_month=2026-05", "event_month=2026-07"]
    story.home.landing.take_back(batch_id)
    story.merge()
    assert partitions(story, CHANGES) == ["observed_date=2026-03-01"]
    assert partitions(story, EVENTS) == ["event_month=2026-05"]
    assert [found.check for found in verify(story.home) if not found.holds] == []
