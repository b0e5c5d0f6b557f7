"""Readers and publications side by side, and publications that are killed."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import duckdb
import pytest
from warehouse.publish.block_hashes import PublishedHashes
from warehouse.publish.spare_file import spare_path

from tests.warehouse.publish.small_lake import Op, Plan, SmallLake
from tests.warehouse.publish.test_delta import check_against_full, lake_events_differ
from warehouse.files.storage import Storage
from warehouse.queries import connect, run_sql

ROOT = Path(__file__).parents[3]
OLD = [Plan((Op(0, seed=1), Op(1, seed=2)), coins=2)]
NEW = [*OLD, Plan((Op(0, "reschedule", 5), Op(2, seed=3)))]
COUNT = "SELECT count(*) FROM event_versions"

HOLD_OPEN = """
import sys, duckdb
connection = duckdb.connect(sys.argv[1], read_only=sys.argv[2] == "read")
count = lambda: connection.sql("SELECT count(*) FROM event_versions").fetchall()[0][0]
print(count(), flush=True)
sys.stdin.readline()
print(count(), flush=True)
"""

# It forks for each line it reads, since the imports take longer than a publication.
PUBLISH_FOREVER = """
import os, random, signal, sys
from pathlib import Path
from tests.warehouse.publish.small_lake import SmallLake
from tests.warehouse.publish.test_readers import NEW, OLD

signal.signal(signal.SIGCHLD, signal.SIG_IGN)
for line in sys.stdin:
    child = os.fork()
    if child:
        print(child, flush=True)
        continue
    lake = SmallLake(Path(sys.argv[1]))
    while True:
        for plans in (OLD, NEW):
            lake.set_plans(plans)
            lake.publish(full=random.random() < 0.1)
"""

# It reads the file again and again, from the path or from one connection, in several statements.
READ_FOREVER = """
import sys, time
from pathlib import Path
from almanac.reading.attached_file import connect

path, reopens = Path(sys.argv[1]), sys.argv[2] == "reopens"
connection, states, reads = connect(path), set(), 0
print("reading", flush=True)
stop = time.monotonic() + 1_000
while time.monotonic() < stop:
    if reopens:
        connection.close()
        connection = connect(path)
    state = []
    for sql in (
        "SELECT count(*), count(*) FILTER (known_to IS NULL) FROM event_versions",
        "SELECT sum(version), count(*) FROM events",
        "SELECT count(*), count(DISTINCT observed_date) FROM batches",
        "SELECT sum(hash(v)) FROM event_versions AS v",
    ):
        state.append(connection.execute(sql).fetchall())
        time.sleep(0.001)
    states.add(str(state))
    reads += 1
    if Path(sys.argv[3]).exists():
        break
print(reads, len(states), flush=True)
"""


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> SmallLake:
    small = SmallLake(tmp_path_factory.mktemp("published"))
    small.set_plans(OLD)
    small.publish()
    return small


@pytest.fixture
def lake(published: SmallLake, tmp_path: Path) -> SmallLake:
    return published.copied(tmp_path)


def versions(connection: duckdb.DuckDBPyConnection) -> int:
    return int(run_sql(connection, COUNT).rows[0][0])


@pytest.mark.parametrize("full", [True, False])
def test_a_reader_in_this_process_keeps_what_it_opened_and_a_new_one_sees_what_is_new(
    lake: SmallLake, full: bool
) -> None:
    first, second = connect(lake.warehouse), connect(lake.warehouse)
    assert versions(first) == 2
    lake.set_plans(NEW)
    lake.publish(full=full)
    third = connect(lake.warehouse)
    assert [versions(item) for item in (first, second, third)] == [2, 2, 4]
    for item in (first, second, third):
        item.close()


@pytest.mark.parametrize(("full", "mode"), [(True, "read"), (False, "write")])
def test_a_reader_in_another_process_never_blocks_and_keeps_what_it_opened(
    lake: SmallLake, full: bool, mode: str
) -> None:
    command = [sys.executable, "-c", HOLD_OPEN, str(lake.warehouse), mode]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as reader:
        assert reader.stdin is not None
        assert reader.stdout is not None
        assert reader.stdout.readline() == "2\n"
        lake.set_plans(NEW)
        assert lake.publish(full=full).mode == ("full" if full else "delta")
        print(file=reader.stdin, flush=True)
        assert reader.stdout.readline() == "2\n"
    connection = connect(lake.warehouse)
    assert versions(connection) == 4
    connection.close()


@pytest.mark.parametrize("kills", [12, pytest.param(200, marks=pytest.mark.long)])
def test_a_publication_that_is_killed_leaves_the_old_file_or_the_new(
    lake: SmallLake, kills: int
) -> None:
    chance, seen = random.Random(1), set[int]()
    command = [sys.executable, "-c", PUBLISH_FOREVER, str(lake.home)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as parent:
        assert parent.stdin is not None
        assert parent.stdout is not None
        for _ in range(kills):
            print(file=parent.stdin, flush=True)
            child = int(parent.stdout.readline())
            time.sleep(chance.uniform(0.02, 0.3))
            os.kill(child, signal.SIGKILL)
            while _is_running(child):
                time.sleep(0.005)
            connection = connect(lake.warehouse)
            seen.add(versions(connection))
            connection.close()
    assert seen <= {2, 4}
    lake.chain.clear()
    lake.set_plans(NEW)
    lake.publish()
    assert lake_events_differ(lake) == 0
    assert not list(lake.home.glob(".unfinished*"))
    assert PublishedHashes(Storage(lake.home / "state")).match(lake.warehouse)
    check_against_full(lake, lake.home / "survivor.duckdb")


def test_readers_see_one_consistent_state_during_50_publications(
    lake: SmallLake, tmp_path: Path
) -> None:
    read_during_publications(lake, tmp_path, 50)


@pytest.mark.long
def test_readers_see_one_consistent_state_during_1000_publications(
    lake: SmallLake, tmp_path: Path
) -> None:
    read_during_publications(lake, tmp_path, 1_000)


def read_during_publications(lake: SmallLake, tmp_path: Path, number: int) -> None:
    """Publish while one process holds the first file, and another opens each new one."""
    for plans in (NEW, OLD):
        lake.set_plans(plans)
        lake.publish()
    stop = tmp_path / "stop"
    readers = [
        subprocess.Popen(
            [sys.executable, "-c", READ_FOREVER, str(lake.warehouse), kind, str(stop)],
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        for kind in ("holds", "reopens")
    ]
    spares = 0
    try:
        for reader in readers:
            assert reader.stdout is not None
            assert reader.stdout.readline() == "reading\n"
        for place in range(number):
            lake.set_plans((NEW, OLD)[place % 2])
            spare = spare_path(lake.warehouse)
            before = spare.stat().st_ino if spare.exists() else None
            assert lake.publish().mode == "delta"
            spares += lake.warehouse.stat().st_ino == before
    finally:
        stop.touch()
        found = [reader.communicate()[0].split() for reader in readers]
    (holding, reopening) = ((int(reads), int(states)) for reads, states in found)
    assert holding[0] > 1
    assert holding[1] == 1
    assert reopening[0] > 1
    assert reopening[1] <= 2
    assert spares > number / 2


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True
