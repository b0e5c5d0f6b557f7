"""The loop of a measured side. It runs in the side's own environment, so it imports no package.

The bench writes the time of an export to standard input, as ISO 8601, when the export lies in
`incoming.csv` of the current folder. The side keeps its history in the folder given as argument,
and answers with one line of JSON: its figures of this day.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

INCOMING = Path("incoming.csv")
TYPED = (Path(__file__).parent / "sql" / "typed.sql").read_text()
"""Reads the export with typed columns."""
COMPARED = (
    *("event_id", "slug", "title", "description", "displayed_date", "date", "date_end"),
    *("date_type", "is_estimated", "categories", "coins", "impact", "impact_summary"),
    *("source_url", "snapshot_url", "created_at"),
)
"""A change of one of these makes a version; `updated_at` and `last_verified_at` make none."""
TakeDay = Callable[[datetime], dict[str, float] | None]
"""Takes the export of a time into the history, so that readers see it; may return more figures."""


def serve(take_day: TakeDay, **versions: str) -> None:
    """Take each export that standard input announces, and answer with its figures."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # Tools print to standard output.
    answers.write(json.dumps(versions) + "\n")
    for line in sys.stdin:
        clock, processor = time.perf_counter(), _processor_seconds()
        figures = take_day(datetime.fromisoformat(line.strip())) or {}
        answers.write(
            json.dumps(
                {
                    "seconds": time.perf_counter() - clock,
                    "cpu": _processor_seconds() - processor,
                    "peak_mb": _peak_mb(),
                    **figures,
                }
            )
            + "\n"
        )


def _processor_seconds() -> float:
    """Return the processor time of this process and its children, in all threads."""
    return sum(os.times()[:4])


def _peak_mb() -> float:
    """Return the peak resident memory of this process, without the memory of its parent."""
    lines = Path("/proc/self/status").read_text().splitlines()
    (peak,) = (line.split()[1] for line in lines if line.startswith("VmHWM:"))
    return int(peak) * 1024 / 1e6
