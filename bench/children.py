"""One measured piece of work, in a process of its own: its seconds, and its peak memory.

The child prints one JSON object as its last line. Belongs here: running and measuring. Does not:
what is measured.
"""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Measured:
    """What a child said, and the most memory it ever had, in MB (10^6 bytes)."""

    said: dict[str, Any]
    peak_mb: float

    @property
    def seconds(self) -> float:
        return float(self.said["seconds"])


class ChildFailed(Exception):
    """The measured process failed; there is no figure."""


def measure(module: str, *words: str) -> Measured:
    """Run `python -m module words…` and return what it measured.

    Raises:
        ChildFailed: it ended with an error.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", module, *words], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    output = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise ChildFailed(f"{module} {' '.join(words)} ended with {process.returncode}")
    return Measured(json.loads(output.strip().splitlines()[-1]), usage.ru_maxrss * 1024 / 1e6)


def say(**values: Any) -> None:
    """Say what was measured, to the parent."""
    sys.stdout.write(json.dumps(values) + "\n")
