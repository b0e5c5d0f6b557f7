"""Commands that are killed at random moments and run again: `run`, `backfill`, `ui`."""

import os
import random
import signal
import subprocess
import time
from collections.abc import Set
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Final

import httpx

from catalog.sandbox.sandbox import Sandbox
from catalog.sandbox.sandbox_clock import SandboxClock
from tests.crashes.tables import Digests, published
from tests.hangs import HANGS_AFTER_S, wait_for
from tests.pipeline.automation.daemon import Pages, group_of, is_gone, ui
from tests.test_cli import ALMANAC, environment
from warehouse.home import Home

COINS: Final = "ethereum"
"""It always has future events, and some changed events."""
SIGNALS: Final = (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGHUP)
"""Half of them can't be caught."""
TIDY: Final = (0, 130, -signal.SIGTERM, -signal.SIGHUP)
"""Exit codes after a signal: it had ended, it handled the signal, or it had only just started."""
ENDS_WITHIN_S: Final = HANGS_AFTER_S
FLOOR_S: Final = HANGS_AFTER_S
"""Extra time for a busy machine."""
_PULL_COLUMNS: Final = frozenset({"batch_id", "feed"})
_PULL_TABLES: Final = ("batches", "coverage", "rejects")


class Service:
    """A sandbox with a fixed clock, set to an instant of the last hours."""

    def __init__(self, now: datetime) -> None:
        self.box = Sandbox(seed=1, clock=SandboxClock(now), export_interval_s=0)
        self.box.start()
        self.key = self.box.keys["elite"]

    def environment(self, home: Path) -> dict[str, str]:
        return {
            **environment(home),
            "ALMANAC_BASE_URL": self.box.base_url,
            "ALMANAC_API_KEY": self.key,
            "ALMANAC_COINS": COINS,
            "ALMANAC_STATE": str(home.parent / f"{home.name}-machine"),
        }


@dataclass(slots=True)
class Killer:
    """Kills commands on one home; `usual_s` is the time that each takes without a kill."""

    home: Path
    env: dict[str, str]
    chance: random.Random
    usual_s: dict[tuple[str, ...], float] = field(default_factory=dict)
    kills: int = 0

    def start(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*ALMANAC, *words],
            cwd=self.home.parent,
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(self, *words: str) -> str:
        """Run a command to its end, within twice its usual time; return its output."""
        began = time.monotonic()
        process = self.start(*words)
        usual_s = self.usual_s.get(words)
        try:
            output, errors = process.communicate(
                timeout=FLOOR_S if usual_s is None else FLOOR_S + 2 * usual_s
            )
        finally:
            end(process)
        assert process.returncode == 0, (words, process.returncode, output, errors)
        if usual_s is None:
            self.usual_s[words] = time.monotonic() - began
        return output + errors

    def kill(self, *words: str) -> None:
        """Start a command and kill it, alone or with its process group, at a random moment."""
        delay_s = self.chance.uniform(0.05, 0.95) * self.usual_s[words]
        number = self.chance.choice(SIGNALS)
        with_group = self.chance.random() < 0.5
        began = time.monotonic()
        process = self.start(*words)
        while process.poll() is None and time.monotonic() - began < delay_s:
            time.sleep(0.01)
        if process.returncode is not None:
            # It was measured while the machine was busier: kill earlier the next time.
            self.usual_s[words] = time.monotonic() - began
        self.strike(process, number, with_group=with_group)
        try:
            output, errors = process.communicate(timeout=ENDS_WITHIN_S)
        finally:
            end(process)
        where = (words, number, with_group, process.returncode, output, errors)
        assert number == signal.SIGKILL or process.returncode in TIDY, where
        assert "Traceback" not in output + errors, where

    def strike(
        self, process: subprocess.Popen[str], number: signal.Signals, *, with_group: bool
    ) -> None:
        self.kills += process.poll() is None
        with suppress(ProcessLookupError):
            (os.killpg if with_group else os.kill)(process.pid, number)


def end(process: subprocess.Popen[str]) -> None:
    """Kill the process group of a command, in whatever state it is, and wait for it."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def digests_of_events(home: Path, *, without: Set[str]) -> Digests:
    """Return the digests of the catalog data, without some events and without pull columns."""
    return published(
        Home(home).warehouse,
        without=_PULL_TABLES,
        columns=_PULL_COLUMNS,
        without_events=without,
    )


def looked_up_events(home: Path) -> set[str]:
    """Return the ids of the events that the home looked up."""
    landing = Home(home).landing
    scopes = [landing.manifest(batch_id).scope for batch_id in landing.batch_ids()]
    return {scope.event_id for scope in scopes if scope.event_id is not None}


VICTIMS: Final = ("almanac ui", "run", "dagster")
ASSET: Final = "landed_export"


def kill_ui(killer: Killer, number: int) -> None:
    """Kill one process of `almanac ui` during a run; the next `ui` must work."""
    day = max(Home(killer.home).landing.days()).isoformat()
    with ui(killer.home, killer.env) as (process, pages):
        run_id = pages.materialise(ASSET, day)
        worker = wait_for(lambda: pages.worker_of(run_id))
        time.sleep(killer.chance.uniform(0, 1.5))
        victim, group = VICTIMS[number % len(VICTIMS)], group_of(killer.home)
        killer.kills += 1
        if victim == "run":
            with suppress(ProcessLookupError):
                os.kill(worker, signal.SIGKILL)
            wait_for(lambda: ended(pages, run_id))
        elif victim == "dagster":
            os.kill(group, signal.SIGKILL)
            process.wait(ENDS_WITHIN_S)
        else:
            process.kill()
            process.wait(ENDS_WITHIN_S)
            os.killpg(group, signal.SIGKILL)
    wait_for(lambda: is_gone(group))
    with ui(killer.home, killer.env) as (restarted, pages):
        wait_for(lambda: ended(pages, run_id))
        run_id = pages.materialise(ASSET, day)
        assert wait_for(lambda: ended(pages, run_id)) == "SUCCESS"
        restarted.send_signal(signal.SIGHUP)
        assert restarted.wait(ENDS_WITHIN_S) == 130


def ended(pages: Pages, run_id: str) -> str | None:
    """Return the final status of a run, None while it is in progress."""
    with suppress(httpx.HTTPError):
        status = pages.run_status(run_id)
        return status if status in ("SUCCESS", "FAILURE", "CANCELED") else None
    return None
