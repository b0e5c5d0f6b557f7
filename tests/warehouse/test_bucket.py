"""A batch that counts is in the bucket, and an empty home is rebuilt from it, after any kill.

tests/lake/test_bucket.py runs the same tests with an S3 server.
"""

import os
import shutil
import signal
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from multiprocessing import get_context
from pathlib import Path

import pytest

from almanac.core.errors import WarehouseError
from tests.hangs import HANGS_AFTER_S
from tests.warehouse.landed_days import history, land
from warehouse.errors import LandingError
from warehouse.history.merge import merge
from warehouse.home import Home
from warehouse.landing.bucket import HELD_FOR, Bucket

SOURCE = "s"
DAYS = 3


@pytest.fixture
def address(tmp_path: Path) -> str:
    """The address of an empty folder."""
    return f"file://{tmp_path}/bucket"


class Clock:
    def __init__(self) -> None:
        self.now = datetime(2026, 3, 2, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


def open_home(root: Path, address: str, clock: Callable[[], datetime] | None = None) -> Home:
    home = Home(root, bucket=address)
    if clock is not None:
        home.bucket = Bucket(address, root, clock=clock)
    return home


def fill(home: Home) -> Home:
    """Land a batch a day, release one, and merge."""
    home.claim(SOURCE)
    batches = [land(home, day) for day in range(DAYS)]
    home.landing.release(batches[1].batch_id)
    merge(home)
    return home


def rebuild(root: Path, address: str) -> Home:
    """Return an empty home after its first command."""
    home = open_home(root, address)
    assert home.fetch_landing()
    merge(home)
    return home


def counted(home: Home) -> set[str]:
    return set(home.landing.batch_ids())


def test_an_empty_home_is_rebuilt_with_equal_history(tmp_path: Path, address: str) -> None:
    home = fill(open_home(tmp_path / "home", address))
    again = rebuild(tmp_path / "again", address)
    assert history(again) == history(home)
    assert again.landing.released() == home.landing.released() != []
    assert (again.root / "home.json").read_bytes() == (home.root / "home.json").read_bytes()
    assert not open_home(tmp_path / "new", f"{address}/other").fetch_landing()
    home.landing.take_back(home.landing.released()[0])
    assert rebuild(tmp_path / "third", address).landing.released() == []


def test_a_kill_at_any_step_loses_no_batch_that_counts(tmp_path: Path, address: str) -> None:
    kills, ended = 0, False
    while not ended:
        root, place = tmp_path / f"home-{kills}", f"{address}/{kills}"
        home = open_home(root, place)
        home.claim(SOURCE)
        land(home, 0)
        ended = _run_apart(_land_until_killed, root, place, kills) == 0
        _assert_has_counted(home, tmp_path / f"killed-{kills}", place)
        land(home, 1)
        assert len(counted(home)) == 2
        _assert_has_counted(home, tmp_path / f"later-{kills}", place)
        kills += not ended
    # Lock, body and manifest, each with a kill before and after.
    assert kills == 6


def _run_apart(target: Callable[..., None], *arguments: object) -> int:
    """Run a function in a process of its own; return 0, or -9 if it was killed.

    The process is forked from one that has imported this module and has no clients: clients of S3
    do not survive a fork.
    """
    context = get_context("forkserver")
    context.set_forkserver_preload([__name__])
    process = context.Process(target=target, args=arguments)
    process.start()
    process.join(HANGS_AFTER_S)
    assert process.exitcode in (0, -signal.SIGKILL)
    return process.exitcode


def _land_until_killed(root: Path, address: str, killed_at: int) -> None:
    """Land a batch; end with SIGKILL before or after a write to the bucket."""
    home, calls = open_home(root, address), 0
    assert home.bucket is not None
    write = home.bucket.put

    def put(name: str, data: bytes) -> None:
        nonlocal calls
        for step in (lambda: None, lambda: write(name, data)):
            step()
            if calls == killed_at:
                os.kill(os.getpid(), signal.SIGKILL)
            calls += 1

    home.bucket.put = put  # type: ignore[method-assign]
    land(home, 1)


def _assert_has_counted(home: Home, root: Path, address: str) -> None:
    """Check that another home gets each batch of this one, with its body."""
    copy = open_home(root, address)
    assert copy.fetch_landing()
    assert counted(home) <= counted(copy)
    for batch_id in counted(copy):
        copy.landing.check(copy.landing.manifest(batch_id))


def test_a_rebuild_that_was_killed_is_continued(tmp_path: Path, address: str) -> None:
    expected = history(fill(open_home(tmp_path / "home", address)))
    root, kills = tmp_path / "again", 0
    while _run_apart(_fetch_until_killed, root, address, 4 + 2 * kills):
        kills += 1
        assert not (root / "home.json").exists(), "the stamp is the last file"
    assert kills > 1
    home = open_home(root, address)
    merge(home)
    assert history(home) == expected


def _fetch_until_killed(root: Path, address: str, killed_at: int) -> None:
    """Fetch, and end with SIGKILL at an object of this number, while others are written."""
    home, calls = open_home(root, address), 0
    assert home.bucket is not None
    read = home.bucket.read

    def killing(name: str) -> bytes | None:
        nonlocal calls
        calls += 1
        if calls == killed_at:
            os.kill(os.getpid(), signal.SIGKILL)
        return read(name)

    home.bucket.read = killing  # type: ignore[method-assign]
    assert home.fetch_landing()


def test_a_home_that_gets_a_bucket_uploads_what_it_has(tmp_path: Path, address: str) -> None:
    home = fill(Home(tmp_path / "home"))
    copied = open_home(home.root, address)
    assert copied.bucket is not None and len(copied.bucket.list_lacking()) == 2 * DAYS + 1
    land(copied, DAYS)
    assert copied.bucket.list_lacking() == []
    merge(copied)
    assert history(rebuild(tmp_path / "again", address)) == history(copied)


def test_a_second_writer_stops_and_takes_over_later(tmp_path: Path, address: str) -> None:
    clock = Clock()
    first = open_home(tmp_path / "first", address, clock)
    first.claim(SOURCE)
    land(first, 0)
    second = open_home(tmp_path / "second", address, clock)
    assert second.fetch_landing()
    with pytest.raises(WarehouseError, match="a bucket has one writer") as held:
        land(second, 1)
    assert "\n" not in str(held.value)
    assert counted(second) == counted(first)
    land(first, 1)  # It goes on.
    clock.now += HELD_FOR
    taken = land(second, 2)
    assert counted(second) == {*counted(first), taken.batch_id}, "it fetched what was landed since"
    clock.now += timedelta(minutes=2)
    with pytest.raises(WarehouseError):
        land(first, 3)
    merge(second)
    assert history(rebuild(tmp_path / "again", address)) == history(second)


def test_two_writers_that_are_forced_lose_and_mix_nothing(tmp_path: Path, address: str) -> None:
    """Both began before either wrote: the bucket has the batches of both."""
    clock = Clock()
    homes = [open_home(tmp_path / name, address, clock) for name in ("first", "second")]
    homes[0].claim(SOURCE)
    homes[1].fetch_landing()
    homes[0].bucket.hold()  # type: ignore[union-attr]
    clock.now += HELD_FOR
    homes[1].bucket.hold()  # type: ignore[union-attr]
    homes[0].bucket._held_at = clock.now  # type: ignore[union-attr]
    for day, home in enumerate(homes):
        land(home, day)
    land(homes[1], 0)
    assert counted(rebuild(tmp_path / "again", address)) == counted(homes[0]) | counted(homes[1])


def test_a_bucket_of_another_source_is_not_mixed(tmp_path: Path, address: str) -> None:
    fill(open_home(tmp_path / "home", address))
    other = Home(tmp_path / "other")
    other.claim("another")
    other = open_home(other.root, address)
    with pytest.raises(WarehouseError):
        land(other, 0)
    clock = Clock()
    clock.now = datetime.now(UTC) + HELD_FOR
    other = open_home(other.root, address, clock)
    with pytest.raises(WarehouseError, match="hold data of another and s"):
        land(other, 0)
    assert counted(other) == set()
    with pytest.raises(WarehouseError, match="holds data of s"):
        open_home(tmp_path / "empty", address).claim("another")


def test_without_its_bucket_no_batch_counts(tmp_path: Path, address: str) -> None:
    home = open_home(tmp_path / "home", address)
    home.claim(SOURCE)
    landed = land(home, 0)
    cut_off = open_home(home.root, "s3://almanac/x?endpoint_override=127.0.0.1:1&scheme=http")
    assert cut_off.bucket is not None
    with pytest.raises(WarehouseError, match=r"\(ALMANAC_BUCKET\) can't be used") as error:
        land(cut_off, 1)
    assert "\n" not in str(error.value)
    assert counted(home) == {landed.batch_id}
    with pytest.raises(LandingError):
        home.landing.manifest("20260330T060000Z-events-000000000000")
    land(home, 1)
    merge(home)
    shutil.rmtree(home.root)
    assert len(counted(rebuild(tmp_path / "again", address))) == 2
