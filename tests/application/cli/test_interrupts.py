"""Signals that end a command: at any moment they interrupt it, without a traceback."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.hangs import HANGS_AFTER_S

ROOT = Path(__file__).parents[3]
BEGIN = """
import logging, os, signal, sys, time
from almanac.command_line import interrupt_by_signals
interrupt_by_signals()
"""


def ended(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", BEGIN + program],
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=HANGS_AFTER_S,
    )


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_each_ending_signal_raises_keyboard_interrupt(name: str) -> None:
    done = ended(
        "try:\n"
        f"    os.kill(os.getpid(), signal.{name}); time.sleep(20)\n"
        "except KeyboardInterrupt:\n"
        "    sys.exit(130)\n"
    )
    assert (done.returncode, done.stderr) == (130, "")


def test_a_signal_during_the_destruction_of_an_object_is_not_lost() -> None:
    done = ended(
        "class Held:\n"
        "    def __del__(self): os.kill(os.getpid(), signal.SIGTERM); time.sleep(0)\n"
        "try:\n"
        "    held = Held(); del held; time.sleep(20)\n"
        "except KeyboardInterrupt:\n"
        "    sys.exit(130)\n"
    )
    assert (done.returncode, done.stderr) == (130, "")


def test_a_library_that_logs_the_interrupt_before_it_passes_it_on_is_quiet() -> None:
    done = ended(
        "try:\n"
        "    try:\n"
        "        os.kill(os.getpid(), signal.SIGHUP); time.sleep(20)\n"
        "    except BaseException:\n"
        "        logging.getLogger('x').error('closing', exc_info=True); raise\n"
        "except KeyboardInterrupt:\n"
        "    logging.getLogger('x').error('other'); sys.exit(130)\n"
    )
    assert (done.returncode, done.stderr) == (130, "other\n")


BEFORE_A_COMMAND = {
    "while Typer makes the commands": (
        "import typer.main as m; name = 'get_install_completion_arguments'"
    ),
    "while the words are parsed": "m = main.PlainGroup; name = 'parse_args'",
    "before the command": "import pipeline.secrecy as m; name = 'cautions_of'",
}


@pytest.mark.parametrize("moment", BEFORE_A_COMMAND)
def test_a_signal_before_a_command_runs_ends_in_one_line(moment: str) -> None:
    done = ended(
        "import almanac.command_line as main\n"
        f"{BEFORE_A_COMMAND[moment]}\n"
        "def interrupted(*args, **kwargs): os.kill(os.getpid(), signal.SIGTERM); time.sleep(20)\n"
        "setattr(m, name, interrupted)\n"
        "sys.argv = ['almanac', 'status']\n"
        "main.main()\n"
    )
    assert (done.returncode, done.stdout) == (130, "")
    assert "interrupted" in done.stderr and done.stderr.count("\n") == 1


def test_a_signal_while_a_class_is_made_ends_in_one_line() -> None:
    """As during an import: Python 3.11 wraps what an attribute raises there."""
    done = ended(
        "import almanac.command_line as main\n"
        "class Attribute:\n"
        "    def __set_name__(self, owner, name):\n"
        "        os.kill(os.getpid(), signal.SIGTERM); time.sleep(20)\n"
        "def interrupted():\n"
        "    class Made: attribute = Attribute()\n"
        "import pipeline.secrecy\n"
        "pipeline.secrecy.cautions_of = lambda settings: interrupted()\n"
        "sys.argv = ['almanac', 'status']\n"
        "main.main()\n"
    )
    assert (done.returncode, done.stdout) == (130, "")
    assert "interrupted" in done.stderr and done.stderr.count("\n") == 1


def test_a_hangup_that_nohup_ignores_stays_ignored() -> None:
    done = subprocess.run(
        ["nohup", sys.executable, "-c", BEGIN + "os.kill(os.getpid(), signal.SIGHUP)"],
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        timeout=HANGS_AFTER_S,
        check=False,
    )
    assert done.returncode == 0


def test_a_signal_that_does_not_interrupt_the_wait_still_ends_it() -> None:
    """As one does that arrives just before the main thread waits, or in another thread."""
    done = ended(
        "import threading\n"
        "from almanac.command_line import stop_by_signals, wait_until\n"
        "stop = threading.Event()\n"
        "stop_by_signals(stop.set)\n"
        "def send():\n"
        "    time.sleep(0.1)\n"
        "    signal.pthread_kill(threading.get_ident(), signal.SIGTERM)\n"
        "threading.Thread(target=send).start()\n"
        "wait_until(stop)\n"
        "print('stopped')\n"
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "stopped\n", "")
