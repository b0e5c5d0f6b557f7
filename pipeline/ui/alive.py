"""The report of a living daemon: a small file that it writes every few seconds.

`almanac daemon --check` reads it, so that a probe of a container needs no Dagster, which takes
seconds to import, and no server. This module imports no Dagster.
"""

import os
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec

from pipeline.ui.names import DAEMON, lock_of
from warehouse.files.locks import holder, is_held
from warehouse.home import Home

FILE: Final = "daemon-alive.json"
REPORT_EVERY_S: Final = 10.0
OLD_AFTER: Final = timedelta(seconds=120)


class AliveReport(msgspec.Struct, frozen=True, kw_only=True):
    """When a daemon reported, its process id, and what it found at fault, a line each."""

    at: datetime
    pid: int
    faults: Sequence[str] = ()


def report_alive(home: Home, faults: Sequence[str], now: datetime) -> None:
    """Replace the report. It is not synced: after a power failure there is no daemon either."""
    path = home.dagster / FILE
    temporary = path.with_suffix(".new")
    report = AliveReport(at=now, pid=os.getpid(), faults=faults)
    temporary.write_bytes(msgspec.json.encode(report))
    temporary.replace(path)


def last_report(home: Home) -> AliveReport | None:
    """Return the last report, None if there is none."""
    try:
        return msgspec.json.decode((home.dagster / FILE).read_bytes(), type=AliveReport)
    except (OSError, msgspec.MsgspecError):
        return None


def faults_of(home: Home, now: datetime) -> list[str]:
    """Return what is at fault with the daemon of a home, a line each; empty if it is well."""
    lock = lock_of(home, DAEMON)
    if not is_held(lock):
        return [f"No daemon runs on {home.root}. Start almanac daemon, or almanac ui."]
    report, process = last_report(home), holder(lock)
    if report is None or (process is not None and report.pid != process.pid):
        return ["The daemon has started and has not reported yet."]
    # Of a daemon of a machine with another clock the age may be negative.
    age = abs(now - report.at)
    if age > OLD_AFTER:
        return [
            f"The daemon last reported at {report.at:%Y-%m-%d %H:%M:%S} UTC, "
            f"{age.total_seconds():.0f} s ago; it should every {REPORT_EVERY_S:g} s."
        ]
    return list(report.faults)
