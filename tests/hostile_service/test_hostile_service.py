"""For any answer of a service: no traceback, no hang, limited memory and disk, nothing false, and a
good day afterwards repairs everything."""

import json
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from catalog.sandbox.sandbox import Sandbox
from tests.hangs import HANGS_AFTER_S
from tests.hostile_service.days import DISK_BYTES, FIRST

ROOT = Path(__file__).parent.parent.parent
LONG_LIVES, LIVES_A_PART = 1_000, 20
MEMORY_BYTES = 1 << 30


@pytest.fixture(scope="module")
def box() -> Iterator[Sandbox]:
    with Sandbox(seed=1, now=FIRST + timedelta(days=30), export_interval_s=0) as box:
        yield box


@pytest.mark.parametrize(
    ("first", "lives", "days"),
    [
        (0, 1, 3),
        pytest.param(0, 2, 10, marks=pytest.mark.long),
        *(
            pytest.param(first, LIVES_A_PART, 10, marks=[pytest.mark.long, pytest.mark.mass])
            for first in range(2, LONG_LIVES, LIVES_A_PART)
        ),
    ],
)
def test_days_with_a_hostile_service_publish_nothing_false(
    first: int, lives: int, days: int, box: Sandbox
) -> None:
    """The lives run in a process of their own, whose memory is measured."""
    key = box.new_key("enterprise", rate_per_s=1e6, burst=1_000_000)
    words = map(str, (first, first + lives, days, box.base_url, key))
    ended = subprocess.run(
        [sys.executable, "-m", "tests.hostile_service.days", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=lives * HANGS_AFTER_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-4_000:]
    account = json.loads(ended.stdout)
    assert account["false"] == []
    assert account["runs"] == lives * days
    assert account["peak_bytes"] < MEMORY_BYTES
    assert account["disk_bytes"] < DISK_BYTES
