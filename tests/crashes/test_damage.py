"""Damage to derived files, by disk or by hand, is detected, and never changes an answer."""

import json
import shutil
from collections.abc import Callable
from datetime import date
from pathlib import Path

import duckdb
import pytest

from almanac.core.errors import WarehouseError
from tests.crashes.rotting import land_change
from tests.crashes.tables import Digests, tables_and_state
from tests.crashes.test_bit_rot import copied, digests_of, flip
from tests.history.stories.handmade import HandmadeHome, event
from tests.reading import list_files, reading
from warehouse.history import checkpoints
from warehouse.history.merge import merge, rebuild
from warehouse.history.partitions import CHANGES, EVENTS
from warehouse.history.verify import verify
from warehouse.home import Home

LONG = pytest.mark.long
HEADERS, HEADER_BYTES, BLOCK_BYTES = 3, 4_096, 262_144
"""DuckDB's file: a main header, two database headers, then blocks of equal size."""
FIRST_BLOCK = HEADERS * HEADER_BYTES


@pytest.fixture(scope="module")
def sound(made: Home, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Digests]:
    """Return a home with a pending batch, and its digests after the merge."""
    merged = copied(made.root, tmp_path_factory.mktemp("damage") / "merged")
    merge(merged)
    return made.root, digests_of(merged)


@pytest.fixture
def home(sound: tuple[Path, Digests], tmp_path: Path) -> Home:
    return copied(sound[0], tmp_path / "home")


def places_in(path: Path) -> list[int]:
    """Return a place in each header and block of a file."""
    headers = [number * HEADER_BYTES + 100 for number in range(HEADERS)]
    return [*headers, *range(FIRST_BLOCK + 5_000, path.stat().st_size, BLOCK_BYTES)]


def blocks_of(path: Path, schema: str = "%") -> list[int]:
    """Return the places of the blocks that hold columns of tables."""
    found: set[int] = set()
    with reading(path) as connection:
        tables = connection.execute(
            "SELECT schema_name || '.' || table_name FROM duckdb_tables() WHERE schema_name LIKE ?",
            [schema],
        )
        for (table,) in tables.fetchall():
            rows = connection.execute(f"SELECT block_id FROM pragma_storage_info('{table}')")
            found.update(block for (block,) in rows.fetchall() if block is not None and block >= 0)
    return [FIRST_BLOCK + block * BLOCK_BYTES + 5_000 for block in sorted(found)]


def few_places_in(path: Path) -> list[int]:
    """Return a place in public tables, and one in tables that only a merge reads."""
    return [blocks_of(path, "main")[-1], blocks_of(path, "state")[0]]


@pytest.mark.parametrize("choose", [few_places_in, pytest.param(places_in, marks=LONG)])
def test_a_flipped_bit_in_any_block_of_the_warehouse_is_detected_and_rebuild_repairs_it(
    choose: Callable[[Path], list[int]], sound: tuple[Path, Digests], tmp_path: Path
) -> None:
    root, expected = sound
    intact = tables_and_state(root / "warehouse.duckdb")
    for number, place in enumerate(choose(root / "warehouse.duckdb")):
        home = copied(root, tmp_path / "home")
        flip(home.warehouse, place=place, bit=number % 8)
        if not [line for line in wrong_in(home) if "warehouse.duckdb can't be read" in line]:
            # DuckDB does not use the block.
            assert choose is places_in
            assert tables_and_state(home.warehouse) == intact
            merge(home)
            assert digests_of(home) == expected
            continue
        try:
            assert merge(home).quarantined == [], "no good batch is blamed"
        except WarehouseError as error:
            assert_says_rebuild(str(error), home.warehouse)
        assert wrong_in(home), "a merge never hides the damage"
        rebuild(home)
        assert digests_of(home) == expected


def test_a_damaged_block_that_a_fold_reads_blames_no_good_batch(
    sound: tuple[Path, Digests], tmp_path: Path
) -> None:
    root, _ = sound
    refused = 0
    for place in blocks_of(root / "warehouse.duckdb", "state"):
        home = copied(root, tmp_path / "home")
        flip(home.warehouse, place=place)
        try:
            assert merge(home).quarantined == []
        except WarehouseError as error:
            assert_says_rebuild(str(error), home.warehouse)
            refused += 1
    assert refused


@pytest.mark.parametrize("choose", [few_places_in, pytest.param(places_in, marks=LONG)])
def test_a_checkpoint_with_a_flipped_bit_in_any_block_is_replaced_by_an_earlier_one(
    choose: Callable[[Path], list[int]], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    story, expected = three_days(tmp_path)
    path = checkpoints.restore(story.home, date(2026, 3, 2))
    intact = tables_and_state(path)
    for number, place in enumerate(choose(path)):
        home = Home(tmp_path / "home")
        shutil.rmtree(home.root, ignore_errors=True)
        shutil.copytree(story.home.root, home.root)
        damaged = checkpoints.checkpoint_path(home, date(2026, 3, 2))
        flip(damaged, place=place, bit=number % 8)
        caplog.clear()
        assert merge(home).quarantined == []
        assert digests_of(home) == expected
        is_warned = [line for line in caplog.messages if damaged.stem in line]
        assert is_warned or wrong_in(home) or tables_and_state(damaged) == intact


def three_days(root: Path) -> tuple[HandmadeHome, Digests]:
    """Return a home where a batch of the third day came late, and its digests once merged."""
    story = HandmadeHome(root / "story")
    for number in range(1, 4):
        story.listed(f"{number:02} 06:00", event("a", title=f"Day {number}"), event("b"))
        story.merge()
    story.listed("03 05:00", event("a", title="Late"), event("b"))
    merged = Home(root / "merged")
    shutil.copytree(story.home.root, merged.root)
    merge(merged)
    return story, digests_of(merged)


def test_a_file_whose_tables_disagree_is_not_published_and_a_rebuild_repairs_it(home: Home) -> None:
    land_change(home, 51)
    good, copy = home.warehouse.read_bytes(), home.root / "copy.duckdb"
    for change in (
        "UPDATE state.current_versions SET version = version + 1",
        "UPDATE state.current_versions SET missing_since = content_at",
        "DELETE FROM state.current_versions WHERE event_id = (SELECT min(event_id) FROM events)",
        "UPDATE state.days SET versions = versions + 1",
    ):
        copy.write_bytes(good)
        with duckdb.connect(str(copy)) as connection:
            connection.execute(change)
        copy.replace(home.warehouse)
        changed = home.warehouse.read_bytes()
        with pytest.raises(WarehouseError, match=r"Nothing was published.*Run `almanac rebuild`"):
            merge(home)
        assert home.warehouse.read_bytes() == changed
    rebuild(home)
    assert wrong_in(home) == []


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def other_bytes(path: Path) -> None:
    path.write_bytes(b"these are other bytes" * 40)


def flipped(path: Path) -> None:
    flip(path, place=path.stat().st_size - 400)


def test_a_damaged_parquet_file_is_named_and_a_rebuild_writes_it_anew(
    home: Home, sound: tuple[Path, Digests]
) -> None:
    merge(home)
    files = [list_files(home, kind)[0] for kind in (CHANGES, EVENTS)]
    good = [file.read_bytes() for file in files]
    for harm in (cut, other_bytes, flipped, Path.unlink):
        for file, data in zip(files, good, strict=True):
            file.write_bytes(data)
            harm(file)
        lines = wrong_in(home)
        for file in files:
            (line,) = (line for line in lines if str(file.relative_to(home.root)) in line)
            assert "`almanac rebuild`" in line
    rebuild(home)
    assert wrong_in(home) == []
    assert digests_of(home) == sound[1]


@pytest.mark.parametrize("step", [5_000, pytest.param(61, marks=LONG)])
def test_any_flipped_bit_of_the_record_of_partitions_is_seen_or_ends_with_the_next_merge(
    step: int, home: Home
) -> None:
    merge(home)
    record = home.parquet.path("partitions.json")
    intact = record.read_bytes()
    for place in range(0, len(intact), step):
        flip(record, place=place, bit=place % 3)
        said = [line for check in verify(home) for line in (*check.wrong, *check.notes)]
        assert [line for line in said if "parquet/" in line or "the next `almanac merge`" in line]
        merge(home)
        if record.read_bytes() != intact:
            rebuild(home)
        assert wrong_in(home) == []
        hashes = (
            {key: file["sha256"] for key, file in json.loads(data).items()}
            for data in (record.read_bytes(), intact)
        )
        assert next(hashes) == next(hashes)


def test_a_file_that_is_no_database_is_reported_and_a_rebuild_repairs_it(
    home: Home, sound: tuple[Path, Digests]
) -> None:
    cut(home.warehouse)
    with pytest.raises(WarehouseError) as refused:
        merge(home)
    assert_says_rebuild(str(refused.value), home.warehouse)
    rebuild(home)
    assert digests_of(home) == sound[1]


def swap_checkpoints(home: Home) -> None:
    first, second, *_ = (checkpoints.restore(home, day) for day in checkpoints.list_days(home))
    held = first.read_bytes()
    for path, data in ((first, second.read_bytes()), (second, held)):
        path.unlink()
        path.write_bytes(data)


@pytest.mark.parametrize("harm", [
    lambda home: shutil.rmtree(home.checkpoints.root),
    lambda home: home.warehouse.unlink(),
    swap_checkpoints,
    pytest.param(lambda home: shutil.rmtree(home.parquet.root), marks=LONG),
    lambda home: home.parquet.path("partitions.json").unlink(),
    pytest.param(
        lambda home: home.warehouse.with_name("warehouse.duckdb.wal").write_bytes(b"bad" * 100),
        marks=LONG,
    ),
], ids=["checkpoints", "warehouse", "swapped", "partitions", "record", "WAL"])  # fmt: skip
def test_the_next_merge_repairs_what_is_missing_wrong_or_left_by_another(
    harm: Callable[[Home], object], home: Home, sound: tuple[Path, Digests]
) -> None:
    harm(home)
    merge(home)
    assert digests_of(home) == sound[1]
    assert wrong_in(home) == []


def wrong_in(home: Home) -> list[str]:
    return [line for check in verify(home) for line in check.wrong]


def assert_says_rebuild(message: str, path: Path) -> None:
    """Assert that a message is one line that names the file and the way out."""
    assert str(path) in message
    assert "`almanac rebuild` makes it again" in message
    assert "\n" not in message
