"""Files of home and state are private; files that others can read are reported and restricted."""

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from application.cli.maintenance import PACKAGES
from tests.hangs import HANGS_AFTER_S
from tests.pipeline.conftest import Almanac
from tests.pipeline.small_home import SmallHome
from tests.test_cli import ALMANAC, ROOT, environment
from warehouse.files.storage import close_for_writing, readable_by_others
from warehouse.history.partitions import list_files


def start(home: Path, *words: str, umask: int = 0o022, **given: str) -> str:
    """Run a command as from a shell with the usual mask."""
    done = subprocess.run(
        [*ALMANAC, *words],
        cwd=home.parent,
        env={**environment(home), "ALMANAC_COINS": "bitcoin", **given},
        capture_output=True,
        text=True,
        timeout=HANGS_AFTER_S,
        umask=umask,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def modes_below(*roots: Path) -> dict[str, int]:
    found = [path for root in roots for path in (root, *root.rglob("*"))]
    return {str(path): stat.S_IMODE(path.lstat().st_mode) for path in found}


@pytest.mark.parametrize(("shared", "expected"), [("", {0o700, 0o600}), ("group", {0o750, 0o640})])
def test_what_a_command_makes_is_its_owners_or_its_groups(
    shared: str, expected: set[int], tmp_path: Path
) -> None:
    """All files of a run, Dagster's too, are checked in test_canary.py."""
    small = SmallHome(tmp_path / "data")
    small.land("events", body=b'{"data": [{"id": "a", "title": "Listing", "date": "2026-04-01"}]}')
    start(small.home.root, "merge", ALMANAC_SHARED=shared)
    modes = modes_below(small.home.root / "parquet")
    assert len(list_files(small.home, "event_changes")) == 1
    assert set(modes.values()) == expected
    read_only = min(expected & {0o600, 0o640}) & ~0o200
    for path in (small.home.warehouse, *small.home.root.glob("checkpoints/*")):
        assert stat.S_IMODE(path.stat().st_mode) & ~0o200 == read_only


def test_code_that_dagster_loads_makes_private_files() -> None:
    code = "import os; from pipeline.definitions import almanac; almanac(); print(oct(os.umask(0)))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, umask=0o022
    )
    assert done.stdout.strip() == "0o77", done.stderr


def test_an_answer_has_the_modes_of_its_user(tmp_path: Path) -> None:
    small = SmallHome(tmp_path / "data")
    small.land("coins")
    start(small.home.root, "merge")
    target = tmp_path / "answer.csv"
    start(small.home.root, "sql", "SELECT 1 AS a", "--format", "csv", "-o", str(target))
    assert stat.S_IMODE(target.stat().st_mode) == 0o644


def test_doctor_reports_files_that_others_can_read_and_restricts_them(
    tmp_path: Path, almanac: Almanac
) -> None:
    small = SmallHome(tmp_path / "data")
    small.land("coins")
    root = small.home.root
    for path in (root, *root.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    link = root / "link"
    link.symlink_to(tmp_path)
    before = stat.S_IMODE(tmp_path.stat().st_mode)
    assert "others can read" in almanac("doctor", home=str(root)).stdout
    found = json.loads(almanac("doctor", "--json", home=str(root)).stdout)
    assert [check["is_caution"] for check in found if check["what"] == "files"] == [True]
    assert len(found) > len(PACKAGES)
    assert "no longer readable by others" in almanac("doctor", "--fix", home=str(root)).stdout
    assert [path for path, mode in modes_below(root).items() if mode & 0o077] == [str(link)]
    assert stat.S_IMODE(tmp_path.stat().st_mode) == before
    assert "others can read" not in almanac("doctor", home=str(root)).stdout


def test_a_file_closed_for_writing_keeps_its_readers(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    for mode, expected in ((0o600, 0o400), (0o640, 0o440), (0o644, 0o444)):
        file.chmod(mode)
        close_for_writing(file)
        assert stat.S_IMODE(file.stat().st_mode) == expected


@pytest.mark.skipif(os.getuid() != 0, reason="only root can own the file of this test")
def test_a_credential_that_root_gives_this_user_is_not_open_to_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = tmp_path / "api-key"
    given.touch()
    for mode, is_open in ((0o440, False), (0o444, True), (0o400, False)):
        given.chmod(mode)
        assert readable_by_others(given) is (mode != 0o400), "as root, of whom the file is"
        with monkeypatch.context() as patched:
            patched.setattr(os, "getuid", lambda: 997)
            assert readable_by_others(given) is is_open
    os.chown(given, 0, 997)
    given.chmod(0o440)
    monkeypatch.setattr(os, "getuid", lambda: 997)
    assert readable_by_others(given), "a group of others"
