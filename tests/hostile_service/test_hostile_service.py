"""For any answer of a service: no traceback, no hang, limited memory and disk, nothing false, and a
good day afterwards repairs everything."""

import json
import os
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from catalog.sandbox.sandbox import Sandbox
from tests.hangs import HANGS_AFTER_S
from tests.hostile_service.days import DISK_BYTES, LIFE_DAYS
from tests.hostile_service.kinds import EXPORT, KINDS, LISTS, ROWS, USAGE
from tests.hostile_service.upstream import Upstream, serving

ROOT = Path(__file__).parent.parent.parent
LONG_LIVES = 1_000
LIVES_A_PART = 20
LONG_COMMANDS = 20
MEMORY_BYTES = 1 << 30
PART_S = 3_600


@pytest.fixture(scope="session")
def key(almanac_sandbox: Sandbox) -> str:
    return almanac_sandbox.new_key("enterprise", rate_per_s=1e6, burst=1_000_000)


@pytest.mark.parametrize(
    ("first", "lives"),
    [
        (0, 1),
        pytest.param(1, 1, marks=pytest.mark.long),
        *(
            pytest.param(first, LIVES_A_PART, marks=[pytest.mark.long, pytest.mark.mass])
            for first in range(2, LONG_LIVES, LIVES_A_PART)
        ),
    ],
)
def test_days_with_a_hostile_service_publish_nothing_false(
    first: int, lives: int, almanac_sandbox: Sandbox, key: str
) -> None:
    """The lives run in a process of their own, whose memory is measured."""
    words = (str(first), str(first + lives), almanac_sandbox.base_url, key)
    ended = subprocess.run(
        [sys.executable, "-m", "tests.hostile_service.days", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PART_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-4_000:]
    account = json.loads(ended.stdout)
    assert account["false"] == []
    assert account["runs"] == lives * LIFE_DAYS
    assert account["peak_bytes"] < MEMORY_BYTES
    assert account["disk_bytes"] < DISK_BYTES


@pytest.mark.parametrize(
    "number", [0, *(pytest.param(n, marks=pytest.mark.long) for n in range(1, LONG_COMMANDS))]
)
def test_the_command_ends_with_a_message_and_never_with_a_traceback(
    number: int, almanac_sandbox: Sandbox, key: str, tmp_path: Path
) -> None:
    chance = Random(number)
    upstream = Upstream(almanac_sandbox.base_url, key, dated_now=True, share=0.7)
    upstream.now = almanac_sandbox.clock.now()
    drawn = chance.sample([*ROWS, *LISTS, *USAGE, *EXPORT], 4)
    upstream.kinds = [KINDS[name] for name in drawn]
    upstream.chance = chance
    with serving(upstream):
        settings = {
            "ALMANAC_BASE_URL": upstream.base_url,
            "ALMANAC_API_KEY": key,
            "ALMANAC_PLAN": "elite",
            "ALMANAC_HOME": str(tmp_path / "home"),
            "ALMANAC_STATE": str(tmp_path / "state"),
            "ALMANAC_COINS": "ondo-finance",
        }
        ended = subprocess.run(
            [sys.executable, "-m", "application", "run"],
            cwd=ROOT,
            env={**os.environ, **settings},
            capture_output=True,
            text=True,
            timeout=HANGS_AFTER_S,
            check=False,
        )
    assert ended.returncode in (0, 1), ended.stderr
    assert "Traceback" not in ended.stdout + ended.stderr
    assert (ended.stdout + ended.stderr).strip()
