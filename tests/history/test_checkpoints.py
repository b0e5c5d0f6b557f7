"""Packed checkpoints: the same files as were published, or removed with a message."""

import shutil
from datetime import date
from pathlib import Path

import pytest

from tests.crashes.test_bit_rot import complaints, flip
from tests.history.stories.disk import without_syncs
from tests.history.stories.handmade import HandmadeHome, event
from tests.history.test_merges import list_day
from tests.history.test_rebuilds import assert_as_rebuild
from warehouse.files.documents import hash_file
from warehouse.history import checkpoints
from warehouse.history.merge import merge
from warehouse.home import Home

LONG = pytest.mark.long
Published = dict[date, str]


@pytest.fixture(scope="module")
def days(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Published]:
    """A home with checkpoints of 26 February and eight days of March, and their hashes."""
    story, published = HandmadeHome(tmp_path_factory.mktemp("days")), Published()
    story.home.claim("by hand")
    with without_syncs():
        for day in ("2026-02-26", *(f"2026-03-{day:02}" for day in range(1, 10))):
            for hour in ("06", "12")[: 2 if day == "2026-03-08" else 1]:
                story.listed(f"{day} {hour}:00", event("a", title=f"{day} {hour}"), event("b"))
                story.merge()
            published[date.fromisoformat(day)] = hash_file(story.home.warehouse)
    return story.home.root, published


@pytest.fixture
def home(days: tuple[Path, Published], tmp_path: Path) -> Home:
    shutil.copytree(days[0], tmp_path / "home")
    return Home(tmp_path / "home")


def test_a_packed_checkpoint_is_restored_as_it_was_published(
    home: Home, days: tuple[Path, Published]
) -> None:
    kept = checkpoints.list_days(home)
    assert kept == [date(2026, 2, 26), *(date(2026, 3, day) for day in (1, *range(3, 10)))]
    assert [path.name for path in home.checkpoints.root.glob("*.duckdb")] == ["2026-03-09.duckdb"]
    assert {day: hash_file(checkpoints.restore(home, day)) for day in kept} == {
        day: days[1][day] for day in kept
    }


def test_a_later_merge_of_the_newest_day_spoils_no_checkpoint_before_it(
    home: Home, days: tuple[Path, Published]
) -> None:
    for hour in (12, 18):
        list_day(HandmadeHome(home.root), 9, hour=hour)
        merge(home)
    assert complaints(home) == ([], [])
    list_day(HandmadeHome(home.root), 10)
    merge(home)
    assert len([*home.checkpoints.root.glob("*.duckdb")]) == 1
    assert hash_file(checkpoints.restore(home, date(2026, 3, 5))) == days[1][date(2026, 3, 5)]


@pytest.mark.parametrize(("damaged", "share"), [
    ("2026-03-06", 0.5),
    *(pytest.param(day, share, marks=LONG)
      for day in ("2026-03-01", "2026-03-06") for share in (0.0, 0.2, 0.9, 1.0)),
])  # fmt: skip
def test_a_damaged_packed_checkpoint_is_removed_with_a_message(
    damaged: str, share: float, home: Home, caplog: pytest.LogCaptureFixture
) -> None:
    path = home.checkpoints.path(f"{damaged}.packed")
    flip(path, place=int((path.stat().st_size - 1) * share))
    list_day(HandmadeHome(home.root), int(damaged[-2:]) + 1, hour=3)
    merge(home)
    assert [line for line in caplog.messages if f"checkpoint of {damaged} is damaged" in line]
    assert_as_rebuild(home)
