"""A home file that is changed, cut, emptied, deleted or swapped is detected; replay repairs it."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from tests.crashes.rotting import Harm, harm, make_home
from tests.crashes.tables import Digests, partitions, published, tables_and_state
from warehouse.errors import WarehouseError
from warehouse.history import checkpoints
from warehouse.history.merge import merge, replay
from warehouse.history.verify import verify
from warehouse.home import Home

CHUNKS, MORE_CHUNKS, IN_A_CHUNK, MENDED_EACH = 2, 3, 10, 20
CHUNKS_LONG, IN_A_CHUNK_LONG = 20, 100
_LAST_BEFORE_REPLAY = "released batches are merged as released"


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Digests]:
    """Return an intact home, and its digests after a full merge."""
    root = tmp_path_factory.mktemp("rot") / "sound"
    home = make_home(root)
    wrong, notes = complaints(home)
    assert (wrong, [note for note in notes if "waits for the next merge" not in note]) == ([], [])
    other = copied(root, root.with_name("replayed"))
    replay(other)
    assert complaints(other) == ([], [])
    return root, digests_of(other)


@pytest.mark.parametrize(
    "chunk",
    [
        *range(CHUNKS),
        *(pytest.param(chunk, marks=pytest.mark.long) for chunk in range(CHUNKS, MORE_CHUNKS)),
    ],
)
def test_damage_to_any_file_is_detected_and_repaired_from_landing(
    chunk: int, sound: tuple[Path, Digests], tmp_path: Path
) -> None:
    for number in range(IN_A_CHUNK):
        seed = chunk * IN_A_CHUNK + number
        hold(sound, tmp_path, seed=seed, mends=seed % MENDED_EACH == 0)


@pytest.mark.long
@pytest.mark.mass
@pytest.mark.timeout(7_200)
@pytest.mark.parametrize("chunk", range(CHUNKS_LONG))
def test_damage_to_any_file_is_detected_and_repaired_in_a_long_run(
    chunk: int, sound: tuple[Path, Digests], tmp_path: Path
) -> None:
    for number in range(IN_A_CHUNK_LONG):
        hold(sound, tmp_path, seed=10_000 + chunk * IN_A_CHUNK_LONG + number, at_length=True)


def test_replay_names_each_damaged_batch_and_continues_without_it_until_it_is_restored(
    sound: tuple[Path, Digests], tmp_path: Path
) -> None:
    root, expected = sound
    home = copied(root, tmp_path / "home")
    landing = home.landing
    ids = {batch_id.split("-")[1]: batch_id for batch_id in landing.batch_ids()}
    body = landing.body_path(landing.manifest(ids["export"]))
    held = {path: path.read_bytes() for path in (body, *_manifests(home, ids["coins"]))}
    for path in held:
        flip(path, place=len(held[path]) // 2)
    report = replay(home)
    assert report.damaged.keys() == {ids["export"], ids["coins"]} == landing.damaged().keys()
    assert published(home.warehouse)["batches"][0] == expected["batches"][0] - 2
    wrong, _ = complaints(home, with_replay=False)
    assert {*wrong} == {*report.damaged.values()}, "what is left is whole"
    for path, data in held.items():
        path.write_bytes(data)
    assert replay(home).damaged == {}
    assert digests_of(home) == expected


def test_a_merge_sets_a_damaged_batch_aside_that_never_took_effect(
    sound: tuple[Path, Digests], tmp_path: Path
) -> None:
    home = copied(sound[0], tmp_path / "home")
    (waiting,) = home.landing.pending()
    flip(home.landing.body_path(home.landing.manifest(waiting)), place=9)
    assert merge(home).damaged.keys() == {waiting}
    assert merge(home).damaged == {}
    assert complaints(home, with_replay=False)[0] == [home.landing.damaged()[waiting]]


def flip(path: Path, *, place: int, bit: int = 0) -> None:
    """Flip a bit of a file, and keep its size and times. A hard link of it stays as it is."""
    stat, held = path.stat(), bytearray(path.read_bytes())
    held[place] ^= 1 << bit
    path.unlink()
    path.write_bytes(held)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def _manifests(home: Home, batch_id: str) -> list[Path]:
    return list(home.root.joinpath("landing", "batches").rglob(f"{batch_id}.json"))


def hold(
    sound: tuple[Path, Digests],
    tmp_path: Path,
    *,
    seed: int,
    mends: bool = True,
    at_length: bool = False,
) -> None:
    """Damage a copy of a home; assert that the damage is detected and repaired."""
    root, expected = sound
    home = copied(root, tmp_path / "home")
    before = complaints(home, with_replay=False)
    done = harm(home, Random(seed))
    case = f"seed {seed}: {done}"
    if complaints(home, with_replay=False) == before:
        assert is_harmless(home, root, done), f"{case} was not seen"
        merge(home)
        assert digests_of(home) == expected
    if not mends:
        return
    home.rebuild_stamp()
    damaged = replay(home).damaged
    wrong, notes = complaints(home, with_replay=at_length)
    if damaged or notes:
        said = " ".join([*damaged.values(), *notes])
        assert any(part in said for part in names_in(done, home, root)), f"{case}: {said}"
        assert {why for why in wrong if why not in damaged.values()} == set(), case
        done.undo()
        home.rebuild_stamp()
        assert replay(home).damaged == {}, case
        wrong, notes = complaints(home, with_replay=at_length)
    assert (wrong, notes) == ([], []), case
    assert digests_of(home) == expected, case


def is_harmless(home: Home, root: Path, done: Harm) -> bool:
    """Whether damage is of logs, a checkpoint is gone, or DuckDB does not use the changed block."""
    path = home.root / done.name
    if path.suffix != ".duckdb":
        return done.name.startswith("state/")
    if not path.is_file():
        return path.parent == home.checkpoints.root
    return tables_and_state(path) == tables_and_state(root / done.name)


def names_in(done: Harm, home: Home, root: Path) -> Iterator[str]:
    """Yield the names that a message may use for the damaged file."""
    for name in (done.name, done.what.removeprefix("swap with ")):
        yield Path(name).stem
        for manifest in (root / "landing" / "batches").rglob("*.json"):
            if Path(name).stem in manifest.read_text():
                yield manifest.stem


def complaints(home: Home, *, with_replay: bool = True) -> tuple[list[str], list[str]]:
    """Return the faults that verify finds, and its other notes; an expected error is a fault.

    Without `with_replay` it omits the final replay, which takes ten times as long as the rest.
    """
    wrong: list[str] = []
    notes: list[str] = []
    try:
        for finding in verify(home, deep=True):
            wrong += finding.wrong
            notes += finding.notes
            if finding.check == _LAST_BEFORE_REPLAY and not with_replay:
                break
    except WarehouseError as error:
        wrong.append(str(error))
    return wrong, notes


def digests_of(home: Home) -> Digests:
    return {**published(home.warehouse), **partitions(home)}


def copied(root: Path, target: Path) -> Home:
    """Copy a home; its newest checkpoint is another name of the published file in both."""
    if target.exists():
        shutil.rmtree(target)
    shutil.copytree(root, target)
    home = Home(target)
    newest = checkpoints.path_of(home, checkpoints.list_days(home)[-1])
    newest.unlink()
    newest.hardlink_to(home.warehouse)
    return home
