"""The separator of lists is learnt once for a home, and makes no false revisions."""

from pathlib import Path

import pytest

from tests.history.stories.handmade import HandmadeHome
from tests.history.test_rebuilds import assert_same, tables_of
from tests.warehouse.normalise.catalog_bodies import csv_body, plain
from warehouse.history.merge import rebuild

LOCK = "Token Supply (Lock, Burn)"
CELLS = "SELECT event_id, categories FROM events ORDER BY event_id"


def export_of(*cells: str) -> bytes:
    """Return an export with an event for each cell of categories."""
    return csv_body([plain(id=f"e{n}", categories=cell) for n, cell in enumerate(cells)])


def revisions(story: HandmadeHome) -> list[tuple[object, ...]]:
    return story.rows("SELECT event_id, change_kinds FROM event_versions WHERE version > 1")


def test_a_category_with_a_comma_is_one_category_in_every_file(story: HandmadeHome) -> None:
    story.csv_export("01 06:00", export_of(LOCK, "Listing", "Airdrop"))
    story.csv_export("02 06:00", export_of(LOCK, "Listing;Airdrop", "Airdrop"))
    story.csv_export("03 06:00", export_of(LOCK, "Listing;Airdrop", "Airdrop"))
    story.merge()
    assert story.versions("e0", "categories") == [([LOCK],)]
    assert revisions(story) == [("e1", ["revised"])]


@pytest.mark.parametrize(("separator", "merged_between"), [("|", True), (", ", False)])
def test_a_learnt_separator_reads_a_file_without_evidence_also_in_a_later_merge(
    story: HandmadeHome, separator: str, merged_between: bool
) -> None:
    pair = f"Listing{separator}Airdrop"
    story.categories("01 05:00", c1=LOCK)
    story.csv_export("01 06:00", export_of(pair, "Listing", "Airdrop", LOCK))
    if merged_between:
        story.merge()
    story.csv_export("02 06:00", export_of(pair))
    story.merge()
    assert story.versions("e0", "categories") == [(["Airdrop", "Listing"],)]
    assert story.versions("e3", "categories") == [([LOCK],)]
    assert revisions(story) == []


def test_known_category_names_are_evidence_and_are_kept_whole(story: HandmadeHome) -> None:
    story.categories("01 05:00", c1="Listing", c2="Burns, Locks", c3="Airdrop")
    story.csv_export("01 06:00", export_of("Listing, Airdrop", "Burns, Locks, Airdrop"))
    story.csv_export("02 06:00", export_of("Listing, Airdrop", "Burns, Locks, Airdrop"))
    story.merge()
    assert story.rows(CELLS) == [
        ("e0", ["Airdrop", "Listing"]),
        ("e1", ["Airdrop", "Burns, Locks"]),
    ]
    assert revisions(story) == []


def test_without_evidence_the_documented_separator_is_used(story: HandmadeHome) -> None:
    story.csv_export("01 06:00", export_of("Fork | Merge", "Burns, Locks", "Release;Mainnet"))
    story.merge()
    assert [cell for _, cell in story.rows(CELLS)] == [
        ["Fork | Merge"],
        ["Burns, Locks"],
        ["Mainnet", "Release"],
    ]


def test_the_first_evidence_decides_for_all_later_files(story: HandmadeHome) -> None:
    story.csv_export("01 06:00", export_of("Fork | Merge", "Listing", "Airdrop"))
    story.csv_export("02 06:00", export_of("Listing;Airdrop", "Listing", "Airdrop"))
    story.csv_export("03 06:00", export_of("Listing|Airdrop", "Listing", "Airdrop"))
    story.merge()
    assert story.versions("e0", "categories") == [
        (["Fork | Merge"],),
        (["Airdrop", "Listing"],),
        (["Listing|Airdrop"],),
    ]


def test_a_setting_fixes_the_separator(tmp_path: Path) -> None:
    story = HandmadeHome(tmp_path)
    story.home.list_separator = "|"
    story.csv_export("01 06:00", export_of("Listing;Airdrop|Burn", "Listing", "Airdrop"))
    story.merge()
    assert story.rows(CELLS)[0] == ("e0", ["Burn", "Listing;Airdrop"])


def test_files_merged_in_any_order_have_the_history_of_their_rebuild(tmp_path: Path) -> None:
    files = {
        "01 06:00": export_of(LOCK, "Listing"),
        "02 06:00": export_of(LOCK, "Listing|Airdrop", "Airdrop", "Listing"),
        "03 06:00": export_of(LOCK, "Listing|Airdrop", "Listing;Airdrop"),
    }
    story = HandmadeHome(tmp_path / "in order")
    for when, body in files.items():
        story.csv_export(when, body)
    story.merge()
    expected = tables_of(story.home)
    rebuild(story.home)
    assert_same(tables_of(story.home), expected, "the rebuild")
    story = HandmadeHome(tmp_path / "backwards")
    for when, body in reversed(files.items()):
        story.csv_export(when, body)
        story.merge()
    assert_same(tables_of(story.home), expected, "what was merged backwards")
