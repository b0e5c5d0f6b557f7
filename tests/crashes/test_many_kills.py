"""The long run of kills: a whole catalog, rewinds, replays, and a kill at every change on disk."""

import sys
from pathlib import Path
from typing import Any

import pytest

from catalog.sandbox.service import Sandbox
from tests.crashes import looks
from tests.crashes.after_kills import PHASES, Hits, kill_at_random, landed_whole, mended, readable
from tests.crashes.conftest import Kill, Prepared, prepare
from tests.crashes.looks import land_again, landing_of
from warehouse.home import Home
from warehouse.merge import merge

pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]
HITS = 40
WORKS = (("append", "merge"), ("rewind", "merge"), ("anew", "merge"), ("done", "replay"))
CHAIN = 4
"""Kills one after the other before a merge may end."""


@pytest.fixture(scope="module")
def full(almanac_sandbox: Sandbox, tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    root = tmp_path_factory.mktemp("full")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(looks, "UNTIL", None)
        looks.look_for_days(almanac_sandbox, Home(root / "anew").landing)
    return prepare(root)


@pytest.mark.parametrize("phase", PHASES[1:])
@pytest.mark.parametrize(("name", "work"), WORKS)
def test_random_moments_on_a_whole_catalog(
    name: str, work: str, phase: str, full: Prepared, killer: Kill, tmp_path: Path
) -> None:
    root = tmp_path / "home"
    within_s = killer(full.copy(name, root), work).seconds[phase]
    hits, seed = Hits(), 0
    while hits[phase] < HITS:
        home = full.copy(name, root)
        if phase == "publish" and work == "merge":
            merge(home, publishing=False)
        for _ in range(CHAIN):
            seed += 1
            hit = kill_at_random(home, killer, work, phase, within_s=within_s, seed=seed)
            readable(home, *full.states(name))
            hits[phase] += hit
            if not hit:
                break
        mended(home, full)
    sys.stdout.write(hits.told())


def test_random_moments_of_landing_a_whole_catalog(
    full: Prepared, killer: Kill, tmp_path: Path
) -> None:
    source = full.root / "done"
    all_ids = landing_of(source).batch_ids()
    whole = killer(Home(tmp_path / "whole"), "land", landing_from=str(source))
    where: dict[str, Any] = {"within_s": whole.seconds["land"], "landing_from": str(source)}
    hits, seed = Hits(), 0
    while hits["land"] < HITS:
        home = Home(tmp_path / f"home{seed}")
        for _ in range(CHAIN):
            seed += 1
            hits["land"] += kill_at_random(home, killer, "land", "land", seed=seed, **where)
            landed = landed_whole(home.landing)
            assert landed == set(all_ids[: len(landed)])
        merge(home)
        land_again(landing_of(source), home.landing, all_ids)
        mended(home, full)
    sys.stdout.write(hits.told())


@pytest.mark.parametrize(("name", "work"), WORKS)
def test_a_kill_between_any_two_changes_on_disk(
    name: str, work: str, prepared: Prepared, killer: Kill, tmp_path: Path
) -> None:
    """Renames, removals, new folders and syncs: each kill is on a home of its own."""
    root = tmp_path / "home"
    point = "disk:next"
    changes = killer(prepared.copy(name, root), work).points[point]
    hits = Hits()
    for nth in range(1, changes + 1):
        home = prepared.copy(name, root)
        death = killer(home, work, point=point, nth=nth)
        assert (death.killed, death.point) == (True, point)
        hits[death.phase] += 1
        readable(home, *prepared.states(name))
        mended(home, prepared)
    sys.stdout.write(hits.told())
