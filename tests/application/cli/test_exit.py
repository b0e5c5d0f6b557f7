"""Exit without teardown: output, threads and exit handlers are finished, objects are not freed."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.hangs import HANGS_AFTER_S

ROOT = Path(__file__).parents[3]


def ended(tmp_path: Path, program: str) -> subprocess.CompletedProcess[str]:
    # Standard output is a pipe, so printed text waits in a buffer.
    return subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=HANGS_AFTER_S,
    )


@pytest.mark.parametrize(("code", "expected"), [("None", 0), ("0", 0), ("1", 1), ("2", 2)])
def test_the_exit_code_is_that_of_the_command(tmp_path: Path, code: str, expected: int) -> None:
    done = ended(
        tmp_path,
        f"from almanac.command_line import exit_without_teardown\nexit_without_teardown({code})",
    )
    assert (done.returncode, done.stderr) == (expected, "")


def test_exit_flushes_output_waits_for_threads_and_runs_exit_handlers(tmp_path: Path) -> None:
    done = ended(
        tmp_path,
        "import atexit, threading, time\n"
        "from almanac.command_line import exit_without_teardown\n"
        "atexit.register(print, 'handler')\n"
        "def late():\n"
        "    time.sleep(0.2)\n"
        "    print('thread')\n"
        "threading.Thread(target=late).start()\n"
        "print('said')\n"
        "exit_without_teardown(0)\n",
    )
    assert done.stdout.split() == ["said", "thread", "handler"]
    assert (done.returncode, done.stderr) == (0, "")


def test_no_object_is_destroyed_at_exit(tmp_path: Path) -> None:
    done = ended(
        tmp_path,
        "from almanac.command_line import exit_without_teardown\n"
        "class Held:\n"
        "    def __del__(self): print('taken apart')\n"
        "held = Held()\n"
        "exit_without_teardown(0)\n",
    )
    assert done.stdout == ""


def test_an_exit_code_that_is_a_text_is_left_to_the_interpreter(tmp_path: Path) -> None:
    done = ended(
        tmp_path,
        "from almanac.command_line import exit_without_teardown\n"
        "exit_without_teardown('no')\nraise SystemExit('no')",
    )
    assert (done.returncode, done.stderr) == (1, "no\n")
