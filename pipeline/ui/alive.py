"""Whether the daemon of a home is well, by Dagster's own heartbeats.

`almanac daemon --check` reads them, so that a probe of a container sends no request. Of SQLite
databases they are read without Dagster, which takes seconds to import.
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

from pipeline.runs.place import place_of
from pipeline.runs.store import daemon_heartbeats
from pipeline.ui.names import DAEMON, lock_of
from warehouse.files.locks import holder, is_held
from warehouse.home import Home

OLD_AFTER: Final = timedelta(seconds=120)
"""Dagster's daemons report every 30 s, a busy one later."""


def heartbeats(home: Home) -> dict[str, datetime]:
    """Return when each part of Dagster's daemon last reported, by its type.

    Raises:
        RunRecordsUnusable: the records can't be read.
    """
    if place_of(home).databases is not None:
        return daemon_heartbeats(home)
    from pipeline.instance import instance_of

    with instance_of(home) as instance:
        return {
            kind: datetime.fromtimestamp(beat.timestamp, UTC)
            for kind, beat in instance.get_daemon_heartbeats().items()
        }


def last_heartbeat(beats: Mapping[str, datetime]) -> datetime | None:
    """Return the newest heartbeat, None if there is none."""
    return max(beats.values(), default=None)


def faults_of(home: Home, now: datetime) -> list[str]:
    """Return what is at fault with the daemon of a home, a line each; empty if it is well."""
    lock = lock_of(home, DAEMON)
    if not is_held(lock):
        return [f"No daemon runs on {home.root}. Start almanac daemon, or almanac ui."]
    process, beats = holder(lock), heartbeats(home)
    last = last_heartbeat(beats)
    if last is None or (process is not None and last < process.since):
        return ["The daemon has started and has not reported yet."]
    # Of a daemon of a machine with another clock the age may be negative.
    age = abs(now - last)
    if age > OLD_AFTER:
        return [
            f"The daemon last reported at {last:%Y-%m-%d %H:%M:%S} UTC, "
            f"{age.total_seconds():.0f} s ago; it should every 30 s."
        ]
    return []
