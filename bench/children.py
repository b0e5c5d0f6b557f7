"""Runs a measured piece of work in a process of its own: its seconds and its peak memory.

The child prints one JSON object as its last line.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
import venv
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[1]
ENVIRONMENTS: Final = ROOT / "build" / "peers"


@dataclass(frozen=True, slots=True)
class Measured:
    """The figures that a child printed, its peak memory in MB (10^6 bytes), and its processor time
    in seconds, of all threads, including its start."""

    figures: dict[str, Any]
    peak_mb: float
    cpu_s: float = 0.0

    @property
    def seconds(self) -> float:
        return float(self.figures["seconds"])


class ChildFailed(Exception):
    """The measured process failed, or its answer is wrong; there is no figure."""


def environment_without_settings() -> dict[str, str]:
    """Return the variables for a program that gets all of its settings from the benchmark."""
    return {name: v for name, v in os.environ.items() if not name.startswith("ALMANAC_")}


def measure(module: str, *words: str) -> Measured:
    """Run `python -m module words…` and return its figures.

    Raises:
        ChildFailed: the process ended with an error.
    """
    command = [sys.executable, "-m", module, *words]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    output = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise ChildFailed(f"{' '.join(command[1:])} ended with {process.returncode}")
    figures: dict[str, Any] = json.loads(output.strip().splitlines()[-1])
    return Measured(figures, usage.ru_maxrss * 1024 / 1e6, usage.ru_utime + usage.ru_stime)


def run_apart(work: Callable[..., object], *values: Any, **named: Any) -> None:
    """Run a function in a process of its own, so that its memory does not count for later children.

    On Linux the peak memory of a new process starts at the memory of its parent.

    Raises:
        ChildFailed: the process ended with an error.
    """
    process = get_context("spawn").Process(target=work, args=values, kwargs=named)
    process.start()
    process.join()
    if process.exitcode != 0:
        raise ChildFailed(f"{work.__name__} ended with {process.exitcode}")


def make_environment(pins: Path) -> Path:
    """Return the Python of an environment with pinned packages, which is made once."""
    digest = hashlib.sha256(pins.read_bytes() + sys.version.encode()).hexdigest()[:12]
    folder = ENVIRONMENTS / f"{pins.stem}-{digest}"
    python, made = folder / "bin" / "python", folder / "made"
    if not made.exists():
        shutil.rmtree(folder, ignore_errors=True)
        venv.create(folder, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "-qq", "-r", pins], check=True)
        made.touch()
    return python


class Stopwatch:
    """The seconds since it was made, by the clock and of the processor (of all threads)."""

    def __init__(self) -> None:
        self._began = time.perf_counter(), time.process_time()

    def figures(self) -> dict[str, float]:
        wall, processor = self._began
        return {
            "seconds": time.perf_counter() - wall,
            "cpu": time.process_time() - processor,
        }


def print_figures(**values: Any) -> None:
    """Print figures as the line of JSON that the parent reads."""
    sys.stdout.write(json.dumps(values) + "\n")
