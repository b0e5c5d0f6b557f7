"""A home file that is changed, cut, emptied, deleted or swapped is detected; replay repairs it."""

import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from random import Random

import duckdb
import pytest

from tests.crashes.rotting import Harm, harm, make_home
from tests.crashes.tables import Digests, by_month, published
from tests.history.stories.handmade import SOURCE
from warehouse.errors import WarehouseError
from warehouse.history.merge import merge, replay
from warehouse.history.verify import verify
from warehouse.home import Home

CHUNKS, MORE_CHUNKS, IN_A_CHUNK, MENDED_EACH = 2, 3, 10, 20
CHUNKS_LONG, IN_A_CHUNK_LONG = 20, 100
_LAST_BEFORE_REPLAY = "the events by month match the warehouse"


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Digests]:
    """Return an intact home, and its digests after a full merge."""
    root = tmp_path_factory.mktemp("rot") / "sound"
    home = make_home(root)
    assert complaints(home) == ([], []), "waiting batches are no damage"
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


def test_a_flipped_bit_of_a_snapshot_is_detected_even_if_every_reader_accepts_it(
    sound: tuple[Path, Digests], tmp_path: Path
) -> None:
    home = copied(sound[0], tmp_path / "home")
    path = next(home.lake.path("coin_snapshots").rglob("coins.parquet"))
    _flip(path, place=20)
    wrong, _ = complaints(home, with_replay=False)
    assert [line for line in wrong if path.parent.name in line and "`almanac replay`" in line]


def test_a_deleted_file_of_rejects_is_detected_and_rewritten(
    sound: tuple[Path, Digests], tmp_path: Path
) -> None:
    home = copied(sound[0], tmp_path / "home")
    path = next(home.lake.path("rejects").rglob("*.parquet"))
    path.unlink()
    assert [line for line in complaints(home, with_replay=False)[0] if path.name in line]
    replay(home)
    assert path.is_file()
    assert complaints(home, with_replay=False) == ([], [])


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
        _flip(path, place=len(held[path]) // 2)
    report = replay(home)
    assert report.damaged.keys() == {ids["export"], ids["coins"]} == landing.damaged().keys()
    assert published(home.warehouse)["batches"][0] == expected["batches"][0] - 2
    wrong, _ = complaints(home, with_replay=False)
    assert {*wrong} == {*report.damaged.values()}, "what is left is whole"
    for path, data in held.items():
        path.write_bytes(data)
    assert replay(home).damaged == {}
    assert digests_of(home) == expected


def test_a_home_without_its_change_log_is_verified_and_rebuilt(
    sound: tuple[Path, Digests], tmp_path: Path
) -> None:
    root, expected = sound
    home = copied(root, tmp_path / "home")
    shutil.rmtree(home.lake.path("event_changes"))
    assert complaints(home, with_replay=False)[0]
    replay(home)
    assert digests_of(home) == expected


def test_a_merge_sets_a_damaged_batch_aside_that_never_took_effect(
    sound: tuple[Path, Digests], tmp_path: Path
) -> None:
    home = copied(sound[0], tmp_path / "home")
    (waiting,) = home.landing.pending()
    _flip(home.landing.body_path(home.landing.manifest(waiting)), place=9)
    assert merge(home).damaged.keys() == {waiting}
    assert merge(home).damaged == {}
    assert complaints(home, with_replay=False)[0] == [home.landing.damaged()[waiting]]


def test_a_newest_checkpoint_with_a_flipped_bit_is_not_used(
    sound: tuple[Path, Digests], tmp_path: Path
) -> None:
    root, expected = sound
    home = copied(root, tmp_path / "home")
    for path in home.lake.path("checkpoints").rglob("coins.parquet"):
        # In a text: DuckDB reads the file without an error.
        _flip(path, place=path.read_bytes().index(b"bitcoin"))
    assert merge(home).rebuilt
    assert digests_of(home) == expected


def test_a_newest_day_with_a_flipped_bit_is_refolded_by_the_next_merge(
    sound: tuple[Path, Digests], tmp_path: Path
) -> None:
    root, expected = sound
    home = copied(root, tmp_path / "home")
    path = max(home.lake.path("event_changes").rglob("changes.parquet"))
    _flip(path, place=20)
    path.touch()
    merge(home)
    assert digests_of(home) == expected
    assert complaints(home, with_replay=False) == ([], [])


def test_a_home_of_an_older_version_opens_verifies_and_is_recorded_by_a_replay(
    sound: tuple[Path, Digests], tmp_path: Path
) -> None:
    root, expected = sound
    home = copied(root, tmp_path / "home")
    as_older(home)
    wrong, notes = complaints(home)
    assert wrong == []
    assert [note for note in notes if "checked after the days are refolded" in note]
    merge(home)
    assert digests_of(home) == expected
    replay(home)
    assert complaints(home, with_replay=False) == ([], [])


def as_older(home: Home) -> None:
    """Turn a home into one of a version that recorded only the hashes of the chain of days."""
    for name in ("lake/head.json", "lake/events/_sha256.json", "state/published.json"):
        (home.root / name).unlink()
    (home.root / "home.json").write_text(json.dumps({"source": SOURCE, "format": 1}, indent=1))
    for path in home.root.joinpath("landing", "batches").rglob("*.json"):
        held = json.loads(path.read_text())
        for name in ("sha256_of_the_rest", "stored_sha256"):
            del held[name]
        path.write_text(json.dumps({**held, "format": 1}))
    previous = None
    with duckdb.connect() as connection:
        for path in sorted(home.lake.path("event_changes").rglob("changes.parquet")):
            digests = "SELECT decode(value) FROM parquet_kv_metadata($file) WHERE key = 'almanac'"
            ((text,),) = connection.execute(digests, {"file": str(path)}).fetchall()
            meta = {**json.loads(text), "previous": previous, "normaliser": 1}
            del meta["files"]
            other = path.with_suffix(".other")
            connection.execute(
                "COPY (FROM read_parquet($file, hive_partitioning = false)) "
                "TO $other (FORMAT parquet, KV_METADATA {almanac: $meta})",
                {"file": str(path), "other": str(other), "meta": json.dumps(meta)},
            )
            other.replace(path)
            previous = hashlib.sha256(path.read_bytes()).hexdigest()


def _flip(path: Path, *, place: int) -> None:
    """Flip a bit of a file, and keep its size and times."""
    stat, held = path.stat(), bytearray(path.read_bytes())
    held[place] ^= 1
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
    done = harm(home, Random(seed))
    case = f"seed {seed}: {done}"
    wrong, notes = complaints(home, with_replay=False)
    if not wrong and not notes:
        assert done.name.startswith("state/"), f"{case} was not seen"
        merge(home)
    if not mends:
        return
    home.rebuild_stamp()
    damaged = replay(home).damaged
    wrong, notes = complaints(home, with_replay=at_length)
    if damaged or notes:
        digests_before = " ".join([*damaged.values(), *notes])
        assert any(part in digests_before for part in names_in(done, home, root)), (
            f"{case}: {digests_before}"
        )
        assert {why for why in wrong if why not in damaged.values()} == set(), case
        done.undo()
        home.rebuild_stamp()
        assert replay(home).damaged == {}, case
        wrong, notes = complaints(home, with_replay=at_length)
    assert (wrong, notes) == ([], []), case
    assert digests_of(home) == expected, case


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
    return {**published(home.warehouse), **by_month(home)}


def copied(root: Path, target: Path) -> Home:
    if target.exists():
        shutil.rmtree(target)
    shutil.copytree(root, target)
    return Home(target)
