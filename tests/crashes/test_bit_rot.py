"""Damage to landing is detected; a rebuild goes on without it."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.crashes.tables import Digests, partitions, published
from warehouse.history import checkpoints
from warehouse.history.merge import merge, rebuild
from warehouse.history.verify import verify
from warehouse.home import Home

LONG = pytest.mark.long


@pytest.fixture(scope="module")
def sound(made: Home, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Digests]:
    """Return an intact home, and its digests after a full merge."""
    wrong, notes = complaints(made)
    assert (wrong, [note for note in notes if "waits for the next merge" not in note]) == ([], [])
    other = copied(made.root, tmp_path_factory.mktemp("rebuilt") / "home")
    rebuild(other)
    assert complaints(other) == ([], [])
    return made.root, digests_of(other)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-9])


@pytest.mark.parametrize(
    "harm", [lambda path: flip(path, place=path.stat().st_size // 2), pytest.param(cut, marks=LONG)]
)
def test_damage_to_a_file_of_any_kind_is_detected(
    harm: Callable[[Path], object], sound: tuple[Path, Digests], tmp_path: Path
) -> None:
    home = copied(sound[0], tmp_path / "home")
    before = complaints(home)
    kinds: dict[str, Path] = {}
    for path in sorted(home.root.rglob("*")):
        parts = path.relative_to(home.root).parts
        # test_damage.py damages the derived files.
        if path.is_file() and parts[:2] in (("landing", "batches"), ("landing", "bodies")):
            kinds["/".join(parts[:2])] = path
    assert kinds.keys() == {"landing/batches", "landing/bodies"}
    for path in kinds.values():
        good = path.read_bytes()
        harm(path)
        assert complaints(home) != before, path
        path.write_bytes(good)
    assert complaints(home) == before


def test_rebuild_names_each_damaged_batch_and_continues_without_it_until_it_is_restored(
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
    report = rebuild(home)
    assert report.damaged.keys() == {ids["export"], ids["coins"]} == landing.damaged().keys()
    assert published(home.warehouse)["batches"][0] == expected["batches"][0] - 2
    wrong, _ = complaints(home)
    assert {*wrong} == {*report.damaged.values()}, "what is left is whole"
    for path, data in held.items():
        path.write_bytes(data)
    assert rebuild(home).damaged == {}
    assert digests_of(home) == expected


def test_a_merge_sets_a_damaged_batch_aside_that_never_took_effect(
    sound: tuple[Path, Digests], tmp_path: Path
) -> None:
    home = copied(sound[0], tmp_path / "home")
    (waiting,) = home.landing.pending()
    flip(home.landing.body_path(home.landing.manifest(waiting)), place=9)
    assert merge(home).damaged.keys() == {waiting}
    assert merge(home).damaged == {}
    assert complaints(home)[0] == [home.landing.damaged()[waiting]]


def flip(path: Path, *, place: int, bit: int = 0) -> None:
    """Flip a bit of a file, and keep its size and times. A hard link of it stays as it is."""
    stat, held = path.stat(), bytearray(path.read_bytes())
    held[place] ^= 1 << bit
    path.unlink()
    path.write_bytes(held)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def _manifests(home: Home, batch_id: str) -> list[Path]:
    return list(home.root.joinpath("landing", "batches").rglob(f"{batch_id}.json"))


def complaints(home: Home) -> tuple[list[str], list[str]]:
    """Return the faults that verify finds, and its other notes."""
    found = list(verify(home))
    return [text for each in found for text in each.wrong], [
        text for each in found for text in each.notes
    ]


def digests_of(home: Home) -> Digests:
    return {**published(home.warehouse), **partitions(home)}


def copied(root: Path, target: Path) -> Home:
    """Copy a home; its newest checkpoint is another name of the published file in both."""
    if target.exists():
        shutil.rmtree(target)
    shutil.copytree(root, target)
    home = Home(target)
    newest = checkpoints.checkpoint_path(home, checkpoints.list_days(home)[-1])
    newest.unlink()
    newest.hardlink_to(home.warehouse)
    return home
