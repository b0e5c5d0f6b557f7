"""deploy/backup: what it copies, in which order, and a home restored from it."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.deploy.page import DEPLOY
from tests.hangs import HANGS_AFTER_S
from tests.warehouse.landed_days import history, land
from warehouse.history.merge import merge, rebuild
from warehouse.home import Home


def test_a_second_backup_copies_what_is_new_and_replaces_nothing(tmp_path: Path) -> None:
    home, folder = Home(tmp_path / "home"), tmp_path / "backup"
    home.claim("s")
    land(home, 0, id="a", title="first")
    assert back_up(home.root, folder).startswith("1 new batches and 1 new bodies")
    (body,) = (home.root / "landing" / "bodies").rglob("*.zst")
    good = body.read_bytes()
    body.chmod(0o600)
    body.write_bytes(b"damaged")
    land(home, 1, id="a", title="second")
    assert back_up(home.root, folder).startswith("1 new batches and 1 new bodies")
    assert (folder / body.relative_to(home.root)).read_bytes() == good
    assert not list(folder.rglob("*.new"))


def test_a_backup_of_another_home_is_refused(tmp_path: Path) -> None:
    for source in ("s", "t"):
        Home(tmp_path / source).claim(source)
    back_up(tmp_path / "s", tmp_path / "backup")
    before = sorted(path.name for path in (tmp_path / "backup").rglob("*"))
    assert "another home" in back_up(tmp_path / "t", tmp_path / "backup", code=1)
    assert "no home.json" in back_up(tmp_path, tmp_path / "other", code=1)
    assert sorted(path.name for path in (tmp_path / "backup").rglob("*")) == before


@pytest.mark.parametrize("copies", [1, 3, 4])
def test_a_backup_that_ends_at_any_copy_has_no_manifest_without_its_body(
    tmp_path: Path, copies: int
) -> None:
    home, folder, count = Home(tmp_path / "home"), Home(tmp_path / "backup"), tmp_path / "count"
    home.claim("s")
    for day in (0, 1):
        land(home, day, id="a", title=f"title {day}")
    # One copy is of home.json, then two bodies, then two manifests.
    ends = f'echo >> {count}; [ $(wc -l < {count}) -le {copies} ] && exec "$real" "$@"; exit 9'
    program(tmp_path / "programs", "cp", ends)
    back_up(home.root, folder.root, programs=tmp_path / "programs", code=9)
    for batch_id in folder.landing.batch_ids():
        folder.landing.check(folder.landing.manifest(batch_id))
    back_up(home.root, folder.root)
    assert folder.landing.batch_ids() == home.landing.batch_ids()


def test_a_batch_that_is_landed_during_a_backup_is_whole_or_not_in_it(tmp_path: Path) -> None:
    home, folder, other = (Home(tmp_path / name) for name in ("home", "backup", "other"))
    for made in (home, other):
        made.claim("s")
        land(made, 0, id="a", title="first")
    land(other, 1, id="a", title="second")
    # It is landed after the first look into the home.
    arrives = f'"$real" "$@"; case $1 in b*) cp -Rn {other.root}/landing {home.root};; esac'
    program(tmp_path / "programs", "find", arrives)
    back_up(home.root, folder.root, programs=tmp_path / "programs")
    assert len(home.landing.batch_ids()) == 2
    for batch_id in folder.landing.batch_ids():
        folder.landing.check(folder.landing.manifest(batch_id))


def test_a_home_restored_from_an_older_backup_continues_without_a_false_version(
    tmp_path: Path,
) -> None:
    titles = ["first", "first", "second", "third"]
    whole, folder = Home(tmp_path / "home"), tmp_path / "backup"
    whole.claim("s")
    for day in (0, 1):
        land(whole, day, id="a", title=titles[day])
    back_up(whole.root, folder)
    # Both go on with the same pulls; then a home that lost one.
    same, late = Home(tmp_path / "same"), Home(tmp_path / "late")
    for restored in (same, late):
        shutil.copytree(folder, restored.root)
        rebuild(restored)
    for home, days in ((whole, (2, 3)), (same, (2, 3)), (late, (3,))):
        for day in days:
            land(home, day, id="a", title=titles[day])
        merge(home)
    assert history(same) == history(whole)
    versions, (event,), _ = history(late)
    assert len(versions) == 2, "the first sighting, and the change that the last pull showed"
    assert "third" in event


def program(folder: Path, name: str, lines: str) -> None:
    """Put a shell script in front of a program of the same name."""
    real = shutil.which(name)
    assert real is not None
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\nreal={real}\n{lines}\n")
    (folder / name).chmod(0o755)


def back_up(home: Path, folder: Path, *, programs: Path | None = None, code: int = 0) -> str:
    path = os.environ["PATH"] if programs is None else f"{programs}:{os.environ['PATH']}"
    done = subprocess.run(
        [DEPLOY / "backup", home, folder],
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=HANGS_AFTER_S,
    )
    assert done.returncode == code, done.stderr
    return done.stderr if code else done.stdout
