"""Runs and readers at the same time: runs wait for each other, readers never wait or fail."""

import subprocess
import sys
from pathlib import Path

import duckdb

from almanac.core.progress import listening
from almanac.reading import attached_file
from tests.crashes.after_kills import assert_repaired
from tests.crashes.conftest import ROOT, Prepared
from tests.crashes.rotting import land_again
from tests.crashes.tables import whole
from tests.hangs import wait_for
from warehouse.history.merge import merge
from warehouse.home import Home

MERGING = """
import sys, time
from pathlib import Path
from almanac.core.progress import listening
from warehouse.home import Home
from warehouse.history.merge import merge

root, waits_at, mark = sys.argv[1:]

def step(name, *_):
    if name == waits_at:
        Path(mark).touch()
        time.sleep(0.5)

with listening(phase=step):
    report = merge(Home(Path(root)))
print(report.waited, len(report.outcomes))
"""


def run(code: str, *args: object) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, args)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_of_two_merges_at_once_one_waits_and_each_batch_takes_effect_once(
    prepared: Prepared, tmp_path: Path
) -> None:
    home = prepared.copy("rewind", tmp_path / "home")
    came = len(home.landing.pending())
    mark = tmp_path / "mark"
    first = run(MERGING, home.root, "fold batches", mark)
    wait_for(mark.exists)
    second = run(MERGING, home.root, "", mark)
    outputs = [process.communicate()[0].split() for process in (first, second)]
    assert [process.returncode for process in (first, second)] == [0, 0]
    folded = [int(words[1]) for words in outputs]
    assert [words[0] for words in outputs] == ["False", "True"]
    assert folded[0] >= came
    assert folded[1] == 0
    assert_repaired(home, prepared)


def test_a_batch_landed_during_a_merge_is_merged_by_the_next(
    prepared: Prepared, tmp_path: Path
) -> None:
    landed = Home(prepared.root / "done").landing
    ids = landed.batch_ids()
    home = Home(tmp_path / "home")
    land_again(landed, home.landing, ids[:6])

    def step(name: str, *_: object) -> None:
        if name == "publish":
            land_again(landed, home.landing, ids[6:])

    with listening(phase=step):
        merge(home)
    assert_repaired(home, prepared)


def test_a_reader_in_the_same_process_blocks_no_run_and_keeps_what_it_opened(
    prepared: Prepared, tmp_path: Path
) -> None:
    home = prepared.copy("append", tmp_path / "home")
    query = "SELECT count(*), sum(hash(v)) FROM event_versions v"
    with duckdb.connect(str(home.warehouse)) as reader:
        old = reader.execute(query).fetchall()
        merge(home)
        assert reader.execute(query).fetchall() == old
    with attached_file.connected(home.warehouse) as fresh:
        assert fresh.execute(query).fetchall() != old
    assert whole(home) == prepared.after
