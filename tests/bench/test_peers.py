"""The benchmark beside other tools compares histories row by row before it shows a time."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

from bench.exports import known_at, write_export
from bench.peers import one_file
from bench.peers.child import INCOMING
from bench.peers.comparison import Reference, compare_history
from bench.peers.sides import ALMANAC, LATE, ONE_FILE, SIDES

ROOT = Path(__file__).parents[2]
BARE = next(side for side in SIDES if side.name == ONE_FILE)


@pytest.mark.long
def test_trial_finds_the_histories_of_almanac_and_one_file_equal(tmp_path: Path) -> None:
    sizes = ["--events=300", "--changed=100", "--gone=150", "--days=1,5"]
    command = ["-m", "bench.peers", "--only=almanac,one_file", *sizes, f"--json={tmp_path}/out"]
    subprocess.run([sys.executable, *command], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    results = json.loads((tmp_path / "out").read_bytes())
    for kind in ("inserted", "moved", "moved and moved back", "returned", "withdrawn", LATE):
        rows, differing = results["histories"][ALMANAC][kind]
        assert (rows > 0, differing) == (True, 0), kind
    assert results["histories"][ONE_FILE][LATE][1] > 0
    assert results["figures"][ALMANAC].keys() > results["figures"][ONE_FILE].keys()


@pytest.fixture
def folded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Reference:
    """Four exports, which `one_file` folded."""
    monkeypatch.chdir(tmp_path)
    reference = Reference(tmp_path / "reference.duckdb")
    for number in range(4):
        write_export(INCOMING, events=100, number=number, changed_per_mille=100, inserted=1)
        reference.add(INCOMING, known_at(number))
        one_file.fold(tmp_path, known_at(number), also=False)
    reference.make_history(left_out=None)
    return reference


CHANGES = (
    "UPDATE event_versions SET impact = impact + 1 WHERE known_to IS NOT NULL",
    "UPDATE event_versions SET known_to = known_to + INTERVAL 1 SECOND",
    "UPDATE event_versions SET known_from = known_from - INTERVAL 1 SECOND",
    "DELETE FROM event_versions WHERE known_to IS NOT NULL",
    "INSERT INTO event_versions FROM event_versions LIMIT 1",
)


def test_a_changed_history_is_noticed(folded: Reference, tmp_path: Path) -> None:
    file = tmp_path / "warehouse.duckdb"
    counts = compare_history(BARE, file, folded.file)
    assert sum(rows for rows, _ in counts.values()) > 100
    assert sum(differing for _, differing in counts.values()) == 0
    for change in CHANGES:
        changed = Path(shutil.copyfile(file, tmp_path / "changed.duckdb"))
        with duckdb.connect(changed) as connection:
            connection.execute(change)
        found = compare_history(BARE, changed, folded.file)
        assert sum(differing for _, differing in found.values()) > 0, change
