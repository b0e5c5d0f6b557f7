"""Commands killed at random moments, alone or with their process group, and run again.

After any kill, the same command ends in its usual time, and the final warehouse has the same
content as one without kills.
"""

import random
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import pytest

from tests.crashes.killed_commands import (
    Killer,
    Service,
    digests_of_events,
    kill_ui,
    looked_up_events,
)
from tests.crashes.pulls import land_again
from tests.crashes.tables import published
from warehouse.home import Home

KILLS: Final = {"run": 4, "backfill": 2, "replay": 2, "merge": 2, "ui": 0}
"""Kills in the default run; one kill of `ui` takes as long as all of these."""
LONG_CHUNKS: Final = 20
LONG_KILLS: Final = {"run": 20, "backfill": 10, "replay": 8, "merge": 8, "ui": 4}
"""Kills in each chunk of the long run: a thousand in all."""
CHAIN: Final = 4
"""Kills of a command seconds apart, before it may end."""
BETWEEN_PULLS: Final = timedelta(hours=5)

pytestmark = pytest.mark.timeout(3600)

RUN: Final = ("run", "--json")
MERGE: Final = ("merge", "--json")
REPLAY: Final = ("replay", "--json")
BACKFILL: Final = ("backfill", "--from", "2026-01-01", "--to", "2026-03-31", "--yes", "--json")
EVERYTHING: Final = ("backfill", "--from", "2017-01-01", "--source", "list", "--yes", "--json")


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    now = datetime.now(UTC).replace(microsecond=0)
    found = Service(now - BETWEEN_PULLS)
    yield found
    found.box.stop()


def chains(kills: int) -> list[int]:
    """Return the numbers of kills in a row that add up to the total."""
    whole, rest = divmod(kills, CHAIN)
    return [CHAIN] * whole + [rest] * bool(rest)


def kill_all(service: Service, folder: Path, kills: dict[str, int], seed: int) -> Killer:
    """Kill commands on one home, and compare it with a home where none was killed."""
    chance = random.Random(seed)
    now = service.box.clock.now()
    peace, home = folder / "peace", folder / "home"
    quiet = Killer(peace, service.environment(peace), chance)
    killer = Killer(home, service.environment(home), chance, usual_s=quiet.usual_s)
    quiet.run(*RUN)
    for part in (peace, Path(quiet.env["ALMANAC_STATE"])):
        shutil.copytree(part, part.with_name(part.name.replace(peace.name, home.name)))
    service.box.set_clock(now + BETWEEN_PULLS)
    for words in (RUN, BACKFILL, REPLAY):
        quiet.run(*words)
        for chain in chains(kills[words[0]]):
            for _ in range(chain):
                killer.kill(*words)
            killer.run(*words)
    for number in range(kills["ui"]):
        kill_ui(killer, number)
    kill_merges(killer, kills["merge"], folder)
    # Commands that were killed and run again poll more often. After a pull of all dates both homes
    # know the same, except events that left the filter and were looked up.
    for item in (quiet, killer):
        item.run(*EVERYTHING)
    killer.run("verify", "--deep")
    looked_up = looked_up_events(peace) | looked_up_events(home)
    digests = digests_of_events(peace, without=looked_up)
    assert digests["event_versions"][0] >= digests["events"][0] > 10 * len(looked_up)
    assert digests["event_claims"][0] > digests["events"][0] // 2
    assert digests_of_events(home, without=looked_up) == digests
    service.box.set_clock(now)
    return killer


def kill_merges(killer: Killer, kills: int, folder: Path) -> None:
    """Kill merges of all landed batches into empty homes."""
    source = Home(killer.home)
    for number, chain in enumerate(chains(kills)):
        root = folder / f"merged{number}"
        home = Home(root)
        home.claim(str(source.stamp().source))  # type: ignore[union-attr]
        land_again(source.landing, home.landing, source.landing.batch_ids())
        merging = Killer(
            root, {**killer.env, "ALMANAC_HOME": str(root)}, killer.chance, killer.usual_s
        )
        merging.usual_s.setdefault(MERGE, merging.usual_s[REPLAY])
        for _ in range(chain):
            merging.kill(*MERGE)
        merging.run(*MERGE)
        killer.kills += merging.kills
        assert published(home.warehouse, without=("batches",)) == published(
            source.warehouse, without=("batches",)
        )
        shutil.rmtree(root)


def test_killed_commands_run_again_and_the_warehouse_is_the_same_as_without_kills(
    service: Service, tmp_path: Path
) -> None:
    killer = kill_all(service, tmp_path, KILLS, seed=11)
    assert killer.kills >= sum(KILLS.values()) / 4


@pytest.mark.long
@pytest.mark.mass
@pytest.mark.parametrize("chunk", range(LONG_CHUNKS))
def test_a_thousand_killed_commands(service: Service, tmp_path: Path, chunk: int) -> None:
    killer = kill_all(service, tmp_path, LONG_KILLS, seed=1000 + chunk)
    assert killer.kills >= sum(LONG_KILLS.values()) / 2
