"""The spare file: changed by the next publication if nobody has it, and dropped otherwise."""

import errno
import os
import resource
import shutil
import signal
from contextlib import suppress
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import duckdb
import pytest
from warehouse.publish import spare_file
from warehouse.publish.block_hashes import NOTE, PublishedHashes, hash_blocks
from warehouse.publish.spare_file import spare_path

from tests.warehouse.publish.small_lake import Op, Plan, SmallLake
from tests.warehouse.publish.test_delta import check_against_full, lake_events_differ
from warehouse.errors import WarehouseError
from warehouse.files.storage import Storage
from warehouse.queries import connect, connected, run_sql

FIRST = Plan((Op(0, seed=1), Op(1, seed=2)), coins=2)
COUNT = "SELECT count(*) FROM event_versions"


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> SmallLake:
    """A lake that was published in full and then as a delta, so that it has a spare file."""
    small = SmallLake(tmp_path_factory.mktemp("published"))
    for days in (1, 2):
        small.set_plans(history(days))
        small.publish()
    return small


@pytest.fixture
def lake(published: SmallLake, tmp_path: Path) -> SmallLake:
    return published.copied(tmp_path)


def history(days: int) -> list[Plan]:
    """Return a history in which each day after the first adds one version."""
    return [FIRST, *(Plan((Op(day % 3, seed=10 + day),)) for day in range(1, days))]


def publish_day(lake: SmallLake, day: int) -> None:
    lake.set_plans(history(day))
    assert lake.publish().mode == "delta"


def versions(warehouse: Path) -> int:
    with connected(warehouse) as connection:
        return int(run_sql(connection, COUNT).rows[0][0])


def inode(path: Path) -> int:
    return path.stat().st_ino


def is_whole(lake: SmallLake) -> bool:
    """Whether the note has the hashes of the published file and of the spare file."""
    hashes = PublishedHashes(Storage(lake.home / "state"))
    return hashes.match(lake.warehouse) and hashes.match(spare_path(lake.warehouse))


def test_a_publication_changes_the_file_that_was_published_before(lake: SmallLake) -> None:
    for day in (3, 4, 5):
        spare, old = inode(spare_path(lake.warehouse)), inode(lake.warehouse)
        publish_day(lake, day)
        assert (inode(lake.warehouse), inode(spare_path(lake.warehouse))) == (spare, old)
        assert versions(lake.warehouse) == day + 1
        assert is_whole(lake)
    assert lake_events_differ(lake) == 0
    check_against_full(lake, lake.home / "delta.duckdb")


def test_a_full_build_removes_the_spare_file(lake: SmallLake) -> None:
    lake.publish(full=True)
    assert not spare_path(lake.warehouse).exists()
    publish_day(lake, 3)
    assert is_whole(lake)


@pytest.mark.parametrize("way", ["duckdb", "file"])
def test_a_file_that_is_open_is_not_changed(lake: SmallLake, way: str) -> None:
    """`file` opens as `cp` does, and reads after two publications."""
    before = lake.warehouse.read_bytes()
    if way == "duckdb":
        reader = connect(lake.warehouse)
    else:
        file = lake.warehouse.open("rb")
    held = inode(lake.warehouse)
    for day in (3, 4, 5):
        publish_day(lake, day)
        assert inode(lake.warehouse) != held
    if way == "duckdb":
        assert run_sql(reader, COUNT).rows == [(3,)]
        reader.close()
    else:
        assert file.read() == before
        file.close()
    assert versions(lake.warehouse) == 6


def test_hard_links_of_the_published_file_never_change(lake: SmallLake) -> None:
    links = []
    for day in (3, 4, 5, 6):
        link = lake.home / f"copy-{day}.duckdb"
        os.link(lake.warehouse, link)
        links.append((link, link.read_bytes()))
        publish_day(lake, day)
    assert all(link.read_bytes() == content for link, content in links)
    assert is_whole(lake)


def test_a_spare_file_that_disagrees_is_removed_and_a_copy_is_changed(
    lake: SmallLake, tmp_path: Path
) -> None:
    spare = spare_path(lake.warehouse)
    earlier = tmp_path / "earlier.duckdb"
    shutil.copyfile(spare, earlier)
    for number, damage in enumerate(("another file", "no database", "foreign write")):
        publish_day(lake, 3 + 2 * number)
        dropped = inode(spare)
        spare.chmod(0o600)
        if damage == "another file":
            shutil.copyfile(earlier, spare)
        elif damage == "no database":
            spare.write_bytes(b"no database at all")
        else:
            with duckdb.connect(str(spare)) as connection:
                connection.execute("CREATE TABLE mine AS SELECT 1")
        publish_day(lake, 4 + 2 * number)
        assert inode(lake.warehouse) != dropped
        assert versions(lake.warehouse) == 5 + 2 * number
        assert is_whole(lake)
    check_against_full(lake, lake.home / "delta.duckdb")


def test_a_foreign_write_to_the_published_file_causes_a_full_build(lake: SmallLake) -> None:
    lake.warehouse.chmod(0o600)
    with duckdb.connect(str(lake.warehouse)) as connection:
        connection.execute("CREATE TABLE mine AS SELECT 1")
    spare_path(lake.warehouse).unlink()
    lake.set_plans(history(3))
    assert lake.publish().why_full == "another program wrote to it"


def test_without_leases_each_publication_copies_the_published_file(
    lake: SmallLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spare_file, "_LEASING", frozenset())
    spare = inode(spare_path(lake.warehouse))
    for day in (3, 4):
        publish_day(lake, day)
        assert inode(lake.warehouse) != spare
        assert not spare_path(lake.warehouse).exists()


def test_months_of_a_change_that_a_refold_took_back_are_rewritten(lake: SmallLake) -> None:
    """The spare file never had the change, but the months of the lake have it."""
    first = [*history(2), Plan((Op(0, "see"),))]
    unchanged, changed = Plan((Op(1, "see"),)), Plan((Op(1, "change", 7),))
    for last in (unchanged, changed, unchanged, Plan((Op(1, "see"), Op(0, "look")))):
        lake.set_plans([*first, last])
        assert lake.publish().mode == "delta"
        assert lake_events_differ(lake) == 0
    check_against_full(lake, lake.home / "delta.duckdb")


def test_hashes_of_a_changed_file_are_those_of_its_bytes(lake: SmallLake) -> None:
    hashes = PublishedHashes(Storage(lake.home / "state"))
    publish_day(lake, 3)
    assert hash_blocks(lake.warehouse).hex() in (lake.home / "state" / NOTE).read_text()
    with lake.warehouse.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
    lake.warehouse.chmod(0o600)
    for place in (100, 20_000, size // 2, size - 1):
        with lake.warehouse.open("r+b") as file:
            file.seek(place)
            (byte,) = file.read(1)
            file.seek(place)
            file.write(bytes([byte ^ 1]))
        assert not hashes.match(lake.warehouse), place
        with lake.warehouse.open("r+b") as file:
            file.seek(place)
            file.write(bytes([byte]))
        assert hashes.match(lake.warehouse), place


def test_a_damaged_block_of_the_spare_file_is_found_in_the_next_publication(
    lake: SmallLake,
) -> None:
    """The damaged block keeps its hash from before, since its checksum is the same."""
    spare = spare_path(lake.warehouse)
    blocks = range(12_288, spare.stat().st_size, 262_144)
    # A block of both files that the next publication does not write.
    ours, theirs = spare.read_bytes(), lake.warehouse.read_bytes()
    at = next(at for at in blocks if ours[at : at + 262_144] == theirs[at : at + 262_144])
    spare.chmod(0o600)
    with spare.open("r+b") as file:
        file.seek(at + 262_000)
        file.write(bytes([ours[at + 262_000] ^ 1]))
    lake.set_plans(history(3))
    lake.publish()
    damaged = lake.warehouse.read_bytes()[at + 262_000] != ours[at + 262_000]
    hashes = PublishedHashes(Storage(lake.home / "state"))
    assert hashes.match(lake.warehouse) != damaged


def publish_within(home: Path, bytes_max: int) -> None:
    """Publish the next day in a process whose files can't grow over a size."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (bytes_max, bytes_max))
    lake = SmallLake(home)
    lake.set_plans(history(3))
    with suppress(OSError, WarehouseError, duckdb.Error):
        lake.publish()


@pytest.mark.parametrize("step", ["copy", "delta", "hashes", "link", "rename"])
def test_a_full_disk_leaves_a_whole_published_file(
    lake: SmallLake, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = lake.warehouse.read_bytes()
    if step == "delta":
        for size in (16_384, 300_000, len(before) - 262_144, len(before)):
            child = get_context("spawn").Process(target=publish_within, args=(lake.home, size))
            child.start()
            child.join()
            assert PublishedHashes(Storage(lake.home / "state")).match(lake.warehouse)
            assert versions(lake.warehouse) in (3, 4)
    else:
        refuse_at(step, lake, monkeypatch)
        lake.set_plans(history(3))
        if step == "link":
            lake.publish()
            assert not spare_path(lake.warehouse).exists()
        else:
            with pytest.raises(OSError, match="No space left"):
                lake.publish()
            assert lake.warehouse.read_bytes() == before
    monkeypatch.undo()
    assert not list(lake.home.glob(".unfinished*"))
    for day in (4, 5):
        publish_day(lake, day)
    assert is_whole(lake)
    assert lake_events_differ(lake) == 0
    check_against_full(lake, lake.home / "delta.duckdb")


def refuse_at(step: str, lake: SmallLake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the disk be full at one step."""
    calls: dict[str, tuple[object, str]] = {
        "copy": (shutil, "copyfile"),
        "hashes": (Storage, "adopt"),
        "link": (os, "link"),
        "rename": (Path, "replace"),
    }
    owner, name = calls[step]
    call = getattr(owner, name)

    def refuse(*args: Any, **options: Any) -> Any:
        is_meant = {
            "hashes": lambda: args[-1] == NOTE,
            "rename": lambda: args[-1] == lake.warehouse,
            "link": lambda: Path(args[-1]) == spare_path(lake.warehouse),
        }
        if is_meant.get(step, lambda: True)():
            raise OSError(errno.ENOSPC, "No space left on device")
        return call(*args, **options)

    monkeypatch.setattr(owner, name, refuse)
    if step == "copy":
        spare_path(lake.warehouse).unlink()
