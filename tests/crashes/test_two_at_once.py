"""Runs and readers at the same time: runs wait for each other, readers never wait or fail."""

import subprocess
import sys
from pathlib import Path

import duckdb

from tests.crashes.after_kills import assert_repaired
from tests.crashes.conftest import ROOT, Prepared
from tests.crashes.rotting import land_again
from tests.crashes.tables import published, whole
from tests.hangs import HANGS_AFTER_S, wait_for
from warehouse import queries
from warehouse.history.merge import merge
from warehouse.home import Home

MERGING = """
import sys, time
from pathlib import Path
from warehouse.home import Home
from warehouse.history.merge import merge

root, waits_at, mark = sys.argv[1:]

def step(name):
    if name == waits_at:
        Path(mark).touch()
        time.sleep(0.5)

report = merge(Home(Path(root)), step=step)
print(report.waited, len(report.outcomes))
"""
READING = """
import sys
import duckdb

reader = duckdb.connect(sys.argv[1], read_only=True)
reader.execute("SET enable_progress_bar = false")
count = "SELECT count(*) FROM event_versions"
old = reader.execute(count).fetchall()
print("reading", flush=True)
rows = reader.execute('''
    SELECT a.event_id, count(*), sum(hash(a.title, b.title, c.title))
    FROM event_versions a, event_versions b, (FROM event_versions LIMIT 60) c
    GROUP BY ALL
''').fetchall()
print("read", flush=True)
sys.stdin.readline()
assert reader.execute(count).fetchall() == old
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
    first = run(MERGING, home.root, "merge:copied", mark)
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

    def step(name: str) -> None:
        if name == "merge:checked":
            land_again(landed, home.landing, ids[6:])

    merge(home, step=step)
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
    with queries.connected(home.warehouse) as fresh:
        assert fresh.execute(query).fetchall() != old
    assert whole(home) == prepared.after


def test_a_long_query_in_another_process_continues_while_runs_replace_the_file(
    prepared: Prepared, tmp_path: Path
) -> None:
    home = prepared.copy("append", tmp_path / "home")
    reader = run(READING, home.warehouse)
    assert reader.stdout is not None
    assert reader.stdin is not None
    assert reader.stdout.readline() == "reading\n"
    merge(home)
    assert published(home.warehouse) != prepared.before["append"]
    output, _ = reader.communicate("go on\n", timeout=HANGS_AFTER_S)
    assert (reader.returncode, output) == (0, "read\n")
    assert whole(home) == prepared.after
