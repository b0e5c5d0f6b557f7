"""Packed bodies: readers get the bytes that were received, or an error that names the files."""

import gzip
import hashlib
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import zstandard

from tests.crashes.tables import published
from tests.crashes.test_bit_rot import complaints, flip
from warehouse.errors import DamagedBatch
from warehouse.files.documents import hash_file
from warehouse.history.merge import merge, rebuild
from warehouse.home import Home
from warehouse.landing.batches import Manifest, Pull, Scope
from warehouse.landing.body_files import find_base

FIRST = datetime(2026, 3, 2, 6, tzinfo=UTC)
DAYS = 10


def export(day: int, *, rows: int = 500) -> bytes:
    """Return an export in which each day changes one title, and adds an event."""
    lines = ["id,title,date,description"]
    for number in range(rows + day):
        words = hashlib.sha256(str(number).encode()).hexdigest()
        title = f"Title {day if number == day else 0}"
        lines.append(f"evt_{number},{title},2026-05-01T00:00:00Z,{words}")
    return "\n".join(lines).encode() + b"\n"


def land_export(home: Home, day: int, body: bytes) -> Manifest:
    at = FIRST + timedelta(days=day)
    pull = Pull(
        feed="export",
        scope=Scope(),
        plan="elite",
        source="s",
        observed_at=at,
        content_at=at,
        landed_at=at,
        requests=1,
    )
    return home.landing.land(pull, [(body, None)])


def bases(home: Home) -> dict[str, str | None]:
    """Return the hash of the base of each body by its own hash."""
    names = home.landing.storage.names("bodies")
    found = {path.stem: find_base(path) for path in map(home.landing.storage.path, names)}
    return {name: None if base is None else base.stem for name, base in found.items()}


@pytest.fixture(scope="module")
def merged(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Manifest]]:
    home = Home(tmp_path_factory.mktemp("packed") / "home")
    home.claim("s")
    manifests = []
    for day in range(DAYS):
        manifests.append(land_export(home, day, export(day)))
        if day in (7, DAYS - 1):
            merge(home)
    return home.root, manifests


@pytest.fixture
def home(merged: tuple[Path, list[Manifest]], tmp_path: Path) -> Home:
    shutil.copytree(merged[0], tmp_path / "home")
    return Home(tmp_path / "home")


def test_older_exports_are_packed_and_read_as_received(
    home: Home, merged: tuple[Path, list[Manifest]]
) -> None:
    manifests = merged[1]
    whole = [day for day, each in enumerate(manifests) if bases(home)[each.sha256] is None]
    assert whole == [0, 7, 8, 9]
    assert {*bases(home).values()} == {None, manifests[0].sha256}
    for day, manifest in enumerate(manifests):
        assert b"".join(home.landing.body(manifest)) == export(day)
        assert [page for _, page in home.landing.pages(manifest)] == [export(day)]
    sizes = [home.landing.body_path(each).stat().st_size for each in manifests]
    assert max(sizes[1:7]) < min(sizes[0], *sizes[7:]) / 10


def test_a_packed_body_that_arrives_again_is_not_stored_a_second_time(
    home: Home, merged: tuple[Path, list[Manifest]]
) -> None:
    manifests = merged[1]
    before = hash_file(home.landing.body_path(manifests[3]))
    assert land_export(home, 3, export(3)) == manifests[3]
    later = land_export(home, 20, export(3))
    assert later.sha256 == manifests[3].sha256
    assert hash_file(home.landing.body_path(later)) == before


def test_zstd_alone_reads_a_packed_body(home: Home, merged: tuple[Path, list[Manifest]]) -> None:
    path = home.landing.body_path(merged[1][2])
    dictionary = zstandard.ZstdCompressionDict(export(0), dict_type=zstandard.DICT_TYPE_RAWCONTENT)
    with path.open("rb") as file:
        reader = zstandard.ZstdDecompressor(dict_data=dictionary)
        assert reader.stream_reader(file, read_across_frames=True).read() == export(2)


@pytest.mark.parametrize("place", [0, 5, 8, 39, 44, 60, -1])
def test_a_flipped_bit_in_a_packed_body_or_its_base_is_detected(
    place: int, home: Home, merged: tuple[Path, list[Manifest]]
) -> None:
    first, *_, packed = merged[1][:6]
    path = home.landing.body_path(packed)
    good = path.read_bytes()
    flip(path, place=place % len(good))
    with pytest.raises(DamagedBatch, match=f"Restore {path.name}"):
        home.landing.check(packed)
    path.write_bytes(good)
    base = home.landing.body_path(first)
    flip(base, place=base.stat().st_size // 2)
    with pytest.raises(DamagedBatch, match=f"{path.name}, or {base.name} from which it differs"):
        home.landing.check(packed)


def test_a_rebuild_without_a_base_loses_the_bodies_of_its_period_until_it_is_restored(
    home: Home, merged: tuple[Path, list[Manifest]]
) -> None:
    before, base = published(home.warehouse), home.landing.body_path(merged[1][0])
    storage = home.landing.storage
    stored = {name: hash_file(storage.path(name)) for name in storage.names("bodies")}
    assert complaints(home) == ([], [])
    good = base.read_bytes()
    base.unlink()
    report = rebuild(home)
    assert sorted(report.damaged) == sorted(each.batch_id for each in merged[1][:7])
    base.write_bytes(good)
    rebuild(home)
    assert published(home.warehouse) == before
    assert {name: hash_file(storage.path(name)) for name in storage.names("bodies")} == stored


def test_bodies_that_differ_stay_whole(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    bodies = (gzip.compress(export(day, rows=day + 2), mtime=day) for day in range(8))
    ids = [land_export(home, day, body).batch_id for day, body in enumerate(bodies)]
    home.landing.pack_exports(ids, len(ids))
    assert {*bases(home).values()} == {None}


def test_a_bucket_gets_bodies_that_can_be_read(
    home: Home, merged: tuple[Path, list[Manifest]], tmp_path: Path
) -> None:
    address = f"file://{tmp_path}/bucket"
    again = Home(tmp_path / "again", bucket=address)
    assert Home(home.root, bucket=address).bucket.synchronise()  # type: ignore[union-attr]
    assert again.fetch_landing()
    assert bases(again) == bases(home)
    for manifest in merged[1]:
        again.landing.check(manifest)


def test_a_damaged_body_or_a_damaged_base_packs_nothing(tmp_path: Path) -> None:
    landing = Home(tmp_path / "home").landing
    manifests = [land_export(Home(tmp_path / "home"), day, export(day)) for day in range(8)]
    ids = [manifest.batch_id for manifest in manifests]
    paths = [landing.body_path(manifest) for manifest in manifests]
    good, other = paths[0].read_bytes(), zstandard.compress(export(90))
    paths[0].write_bytes(other)
    landing.pack_exports(ids, len(ids))
    assert {find_base(path) for path in paths} == {None}
    paths[0].write_bytes(good)
    paths[2].write_bytes(other)
    landing.pack_exports(ids, len(ids))
    assert paths[2].read_bytes() == other
    assert [find_base(path) for path in paths] == [None, paths[0], None, *[paths[0]] * 4, None]
