"""Commands that are killed, alone or with their process group, and run again."""

import os
import random
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import httpx
import pytest

from catalog.sandbox.clock import SandboxClock
from catalog.sandbox.sandbox import Sandbox
from tests.crashes.after_kills import intact_batches
from tests.hangs import HANGS_AFTER_S, wait_for
from tests.reading import reading
from tests.test_cli import ALMANAC, almanac_here, environment
from warehouse.history.verify import verify
from warehouse.home import Home

COINS: Final = "ethereum"
NOW: Final = datetime(2018, 3, 1, 12, tzinfo=UTC)
"""The catalog is small then, so that the sandbox starts sooner."""
RUN: Final = ("run", "--json")
BACKFILL: Final = ("backfill", "--from", "2018-01-01", "--to", "2018-03-31", "--yes", "--json")
EVERYTHING: Final = ("backfill", "--from", "2017-01-01", "--source", "list", "--yes", "--json")
KILLS: Final = {RUN: 24, BACKFILL: 16, ("rebuild", "--json"): 10}
"""Kills of each command in a chunk of the long run: a thousand in all."""
CHUNKS: Final = 20
CHAIN: Final = 4
"""Kills of a command seconds apart, before it may end."""
SIGNALS: Final = (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGHUP)
"""Half of them can't be caught."""
TIDY: Final = (0, 130, -signal.SIGTERM, -signal.SIGHUP)
"""Exit codes after a signal: it had ended, it handled the signal, or it had only just started."""


@pytest.fixture(scope="module")
def box() -> Iterator[Sandbox]:
    with Sandbox(seed=1, clock=SandboxClock(NOW), export_interval_s=0) as box:
        yield box


@dataclass(slots=True)
class Commands:
    """Runs and kills commands on one home; `usual_s` is the time that each takes without a kill."""

    home: Path
    box: Sandbox
    usual_s: dict[tuple[str, ...], float] = field(default_factory=dict)
    kills: int = 0

    @property
    def settings(self) -> dict[str, str]:
        return {
            "base_url": self.box.base_url,
            "api_key": self.box.keys["elite"],
            "coins": COINS,
            "state": str(self.home.parent / f"{self.home.name}-machine"),
            "max_clock_skew_days": "36500",
        }

    def start(self, *words: str) -> subprocess.Popen[str]:
        named = {f"ALMANAC_{name.upper()}": value for name, value in self.settings.items()}
        return subprocess.Popen(
            [*ALMANAC, *words],
            cwd=self.home.parent,
            env={**environment(self.home), **named},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(self, *words: str) -> None:
        """Run a command to its end."""
        began = time.monotonic()
        process = self.start(*words)
        try:
            output, errors = process.communicate(timeout=HANGS_AFTER_S)
        finally:
            end(process)
        assert process.returncode == 0, (words, process.returncode, output, errors)
        self.usual_s.setdefault(words, time.monotonic() - began)

    def strike(
        self, process: subprocess.Popen[str], number: signal.Signals, *, with_group: bool
    ) -> None:
        """Send a signal to a command, alone or with its process group, and wait for its end."""
        self.kills += process.poll() is None
        with suppress(ProcessLookupError):
            (os.killpg if with_group else os.kill)(process.pid, number)
        try:
            output, errors = process.communicate(timeout=HANGS_AFTER_S)
        finally:
            end(process)
        where = (number, with_group, process.returncode, output, errors)
        assert number == signal.SIGKILL or process.returncode in TIDY, where
        assert "Traceback" not in output + errors, where

    def kill(self, chance: random.Random, *words: str) -> None:
        """Start a command and kill it at a random moment."""
        process = self.start(*words)
        with suppress(subprocess.TimeoutExpired):
            process.wait(chance.uniform(0.05, 0.95) * self.usual_s[words])
        self.strike(process, chance.choice(SIGNALS), with_group=chance.random() < 0.5)


def end(process: subprocess.Popen[str]) -> None:
    """Kill the process group of a command, in whatever state it is, and wait for it."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def test_a_run_killed_in_a_pull_and_before_its_merge_loses_nothing_and_the_next_one_works(
    box: Sandbox, tmp_path: Path
) -> None:
    commands, home = Commands(tmp_path / "home", box), Home(tmp_path / "home")
    box.forget_requests()
    in_a_pull = commands.start(*RUN)
    wait_for(lambda: any(request.path.startswith("/v2/events") for request in box.requests))
    commands.strike(in_a_pull, signal.SIGKILL, with_group=True)
    first = intact_batches(home.landing)
    with home.merge_lock():
        before_a_merge = commands.start(*RUN)
        wait_for(lambda: [name for name in home.landing.pending() if "-export-" in name])
        commands.strike(before_a_merge, signal.SIGTERM, with_group=False)
    assert commands.kills == 2
    second = intact_batches(home.landing)
    assert first <= second
    done = almanac_here(commands.home, *RUN, **commands.settings)
    assert done.exit_code == 0, done.output
    assert second <= intact_batches(home.landing)
    assert_whole(commands)


@pytest.mark.long
@pytest.mark.mass
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_commands_killed_at_random_moments_lose_nothing(
    box: Sandbox, tmp_path: Path, chunk: int
) -> None:
    chance, commands = random.Random(1000 + chunk), Commands(tmp_path / "home", box)
    landed: set[str] = set()
    for words, kills in KILLS.items():
        commands.run(*words)
        for number in range(kills):
            commands.kill(chance, *words)
            found = intact_batches(Home(commands.home).landing)
            assert landed <= found
            landed = found
            if number % CHAIN == CHAIN - 1:
                commands.run(*words)
    commands.run(*EVERYTHING)
    assert_whole(commands)
    assert commands.kills >= sum(KILLS.values()) / 2


def assert_whole(commands: Commands) -> None:
    """Assert that a home equals a rebuild of its landing, and has the events of the service."""
    home, box = Home(commands.home), commands.box
    assert [found.check for found in verify(home, deep=True) if not found.holds] == []
    with reading(home) as connection:
        found = connection.execute("SELECT event_id, title FROM events WHERE status = 'scheduled'")
        known = dict(found.fetchall())
    service = {"x-api-key": box.keys["elite"]}
    listed = httpx.get(f"{box.base_url}/v2/events?coins={COINS}&limit=100", headers=service)
    rows = listed.raise_for_status().json()["data"]
    assert rows
    assert {row["id"]: row["title"] for row in rows}.items() <= known.items()
