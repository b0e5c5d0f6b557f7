"""A commit to the Iceberg tables is killed at any moment: nothing is lost, doubled or damaged."""

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from almanac.errors import WarehouseError
from almanac.lake import open_lake
from tests.warehouse.iceberg.conftest import IcebergHome
from tests.warehouse.iceberg.tables_equal import count_differences, equal
from tests.warehouse.iceberg.test_publication_commit import make_plan

pytestmark = pytest.mark.lake
ROOT = Path(__file__).parents[2]
COMMIT = """
import sys
from pathlib import Path
import pyiceberg.catalog.sql, pyiceberg.io.pyarrow
from tests.warehouse.iceberg.conftest import IcebergHome
home = IcebergHome(Path(sys.argv[1]))
print("ready", flush=True)
home.commit()
print("done", flush=True)
"""


def kill_commit(root: Path, after_s: float) -> bool:
    """Begin a commit in a process and kill it; return whether it had ended before."""
    process = subprocess.Popen(
        [sys.executable, "-c", COMMIT, str(root)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    time.sleep(after_s)
    process.kill()
    rest = process.stdout.read()
    process.wait()
    process.stdout.close()
    return "done" in rest


@pytest.mark.parametrize("kills", [6, pytest.param(100, marks=pytest.mark.long)])
def test_tables_are_whole_after_a_kill_at_any_moment(tmp_path: Path, kills: int) -> None:
    iceberg, source = IcebergHome(tmp_path), random.Random(kills)
    plans = [make_plan(source) for _ in range(4)]
    longest_s, hits = 1.0, 0
    for number in range(kills):
        plans = [*plans, make_plan(source)]
        if number % 3 == 0:  # A refold.
            plans[source.randrange(len(plans))] = make_plan(source)
        iceberg.publish(plans)
        if kill_commit(tmp_path, source.uniform(0, longest_s)):
            longest_s *= 0.8
        else:
            hits += 1
            try:
                seen = open_lake(tmp_path).publication()
            except WarehouseError:
                seen = None  # The first commit did not end.
            if seen is not None:
                assert open_lake(tmp_path).read("events", publication=seen).num_rows >= 0
        if number % 2:
            assert not iceberg.commit().why_failed
            assert count_differences(tmp_path) == equal()
    assert not iceberg.commit().why_failed
    assert count_differences(tmp_path) == equal()
    assert hits
