"""Merges, publications and landing under SIGKILL: nothing is lost or duplicated."""

import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from warehouse.publish.spare_file import spare_path

import warehouse
from catalog.sandbox.sandbox import Sandbox
from tests.crashes import pulls
from tests.crashes.after_kills import (
    PHASES,
    Hits,
    assert_repaired,
    intact_batches,
    kill_at_points,
    kill_at_random,
    landed_files,
    merged,
    readable,
)
from tests.crashes.conftest import Kill, Prepared, prepare
from tests.crashes.pulls import land_again, landing_of
from warehouse.history.merge import merge
from warehouse.home import Home

HITS = 20
"""Kills that must fall in each phase."""
TRIES = 100
SECONDS = {"merge": 0.3, "publish": 0.15}
"""Time that the phases of small homes take; a kill that is too late does not count."""
EACH = {"merge": 4, "publish": 7}
"""Random kills of each kind; with those at the named points each phase has at least 20."""
FOLDING = [
    ("merge:loaded", 1),
    ("merge:observation_folded", 1),
    ("merge:observation_folded", 3),
    ("merge:coins_written", 1),
    ("merge:checkpoint_written", 1),
    ("merge:day_written", 1),
]
PUBLISHING = [
    ("publish:built", 1),
    ("publish:lake_events_written", 1),
    ("publish:finished", 1),
    ("publish:renamed", 1),
]
POINTS = {
    "append": [("merge:locked", 1), *FOLDING, ("merge:cleared", 1), *PUBLISHING],
    # Two days are refolded: after a kill between them, the next merge resumes at the second.
    "rewind": [*FOLDING, FOLDING[1], FOLDING[-1], ("merge:cleared", 1), *PUBLISHING],
}
RANDOM = (
    *(("merge", "append", "merge"), ("merge", "rewind", "merge"), ("merge", "done", "replay")),
    *(("publish", "append", "merge"), ("publish", "anew", "merge")),
)
LANDING = [
    f"land:{kind}_{state}"
    for kind in ("bodies", "pending", "batches")
    for state in ("written", "in_place")
]


def test_a_kill_is_planned_at_every_step_that_the_code_names() -> None:
    named = {
        name
        for path in Path(warehouse.__file__).parent.rglob("*.py")
        for name in re.findall(r'step\("([a-z_]+:[a-z_]+)"\)', path.read_text())
    }
    assert named == {point for points in POINTS.values() for point, _ in points}


def test_there_are_enough_kills_in_each_phase() -> None:
    named = Counter(point.partition(":")[0] for points in POINTS.values() for point, _ in points)
    for phase in ("merge", "publish"):
        assert named[phase] + EACH[phase] * sum(item[0] == phase for item in RANDOM) >= HITS


@pytest.mark.parametrize("name", POINTS)
def test_a_merge_killed_at_every_step_ends_the_same_as_without_kills(
    name: str, prepared: Prepared, killer: Kill, tmp_path: Path
) -> None:
    home = prepared.copy(name, tmp_path / "home")
    hits = kill_at_points(home, killer, POINTS[name], prepared.states(name))
    sys.stdout.write(hits.summary())
    assert_repaired(home, prepared)
    assert hits["merge"] + hits["publish"] == len(POINTS[name])


def test_a_batch_is_complete_or_absent_after_a_kill_at_every_step_of_landing(
    prepared: Prepared, killer: Kill, tmp_path: Path
) -> None:
    hits = Hits()
    source = prepared.root / "day"
    all_ids = landing_of(source).batch_ids()
    last = len(all_ids) - 1
    for point, nth in [(point, nth) for point in LANDING for nth in (1, 2, 4, last)]:
        home = Home(tmp_path / f"{point}{nth}")
        death = killer(home, "land", point=point, nth=nth, landing_from=str(source))
        assert (death.killed, death.point) == (True, point)
        hits[death.phase] += 1
        landed = intact_batches(home.landing)
        assert landed == set(all_ids[: len(landed)])
        # A body that is stored already is not stored again, so fewer bodies than batches land.
        assert len(landed) == nth - (point != "land:batches_in_place") or "bodies" in point
        land_again(landing_of(source), home.landing, all_ids)
        assert landed_files(home) == landed_files(Home(source))
    sys.stdout.write(hits.summary())
    assert hits["land"] >= HITS


def test_batches_landed_before_a_kill_take_effect_and_the_rest_after_a_new_pull(
    prepared: Prepared, killer: Kill, tmp_path: Path
) -> None:
    home, source = Home(tmp_path / "home"), prepared.root / "done"
    for nth, so_far in ((6, 5), (5, 9)):
        killer(home, "land", point="land:batches_written", nth=nth, landing_from=str(source))
        landed = intact_batches(home.landing)
        merge(home)
        assert landed == {*landing_of(source).batch_ids()[:so_far]} == merged(home)
        assert landed.isdisjoint(home.landing.pending())
    land_again(landing_of(source), home.landing, landing_of(source).batch_ids())
    assert_repaired(home, prepared)


def test_landing_survives_kills_at_random_moments(
    prepared: Prepared, killer: Kill, tmp_path: Path
) -> None:
    hits = Hits()
    source = prepared.root / "day"
    all_ids = landing_of(source).batch_ids()
    whole = killer(Home(tmp_path / "whole"), "land", landing_from=str(source))
    where: dict[str, Any] = {"within_s": whole.seconds["land"], "landing_from": str(source)}
    for seed in range(TRIES):
        home = Home(tmp_path / f"home{seed}")
        hits["land"] += kill_at_random(home, killer, "land", "land", seed=seed, **where)
        landed = intact_batches(home.landing)
        assert landed == set(all_ids[: len(landed)])
        land_again(landing_of(source), home.landing, all_ids)
        assert landed_files(home) == landed_files(Home(source))
        if hits["land"] == HITS:
            break
    sys.stdout.write(hits.summary())
    assert hits["land"] == HITS


@pytest.mark.parametrize(("phase", "name", "work"), RANDOM)
def test_a_merge_survives_kills_at_random_moments(
    phase: str, name: str, work: str, prepared: Prepared, killer: Kill, tmp_path: Path
) -> None:
    """After several kills in a row, a merge that ends gives the right result."""
    states, hits, seed, home = prepared.states(name), Hits(), 0, None
    while hits[phase] < EACH[phase]:
        if home is None:
            home = prepared.copy(name, tmp_path / "home")
            if (phase, work) == ("publish", "merge"):
                merge(home, publishing=False)
        seed += 1
        within_s = SECONDS[phase]
        hit = kill_at_random(home, killer, work, phase, within_s=within_s, seed=seed)
        readable(home, *states)
        hits[phase] += hit
        if not hit or hits[phase] == EACH[phase]:
            # Missed: the remaining work is too short to be hit.
            assert_repaired(home, prepared)
            home = None
    sys.stdout.write(hits.summary())


pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]
HITS_EACH = 40
KILLS = 200
WORKS = (("append", "merge"), ("rewind", "merge"), ("anew", "merge"), ("done", "replay"))
CHAIN = 4
"""Kills in a row before a merge may end."""


@pytest.fixture(scope="module")
def full(almanac_sandbox: Sandbox, tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    root = tmp_path_factory.mktemp("full")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pulls, "UNTIL", None)
        pulls.pull_days(almanac_sandbox, Home(root / "anew").landing)
    return prepare(root)


@pytest.mark.parametrize("phase", PHASES[1:])
@pytest.mark.parametrize(("name", "work"), WORKS)
def test_merges_of_a_whole_catalog_survive_kills_at_random_moments(
    name: str, work: str, phase: str, full: Prepared, killer: Kill, tmp_path: Path
) -> None:
    root = tmp_path / "home"
    within_s = killer(full.copy(name, root), work).seconds[phase]
    hits, seed = Hits(), 0
    while hits[phase] < HITS_EACH:
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
        assert_repaired(home, full)
    sys.stdout.write(hits.summary())


def test_landing_of_a_whole_catalog_survives_kills_at_random_moments(
    full: Prepared, killer: Kill, tmp_path: Path
) -> None:
    source = full.root / "done"
    all_ids = landing_of(source).batch_ids()
    whole = killer(Home(tmp_path / "whole"), "land", landing_from=str(source))
    where: dict[str, Any] = {"within_s": whole.seconds["land"], "landing_from": str(source)}
    hits, seed = Hits(), 0
    while hits["land"] < HITS_EACH:
        home = Home(tmp_path / f"home{seed}")
        for _ in range(CHAIN):
            seed += 1
            hits["land"] += kill_at_random(home, killer, "land", "land", seed=seed, **where)
            landed = intact_batches(home.landing)
            assert landed == set(all_ids[: len(landed)])
        merge(home)
        land_again(landing_of(source), home.landing, all_ids)
        assert_repaired(home, full)
    sys.stdout.write(hits.summary())


def test_a_warehouse_survives_200_kills_while_the_spare_file_is_changed(
    prepared: Prepared, killer: Kill, tmp_path: Path
) -> None:
    hits = seed = 0
    while hits < KILLS:
        home = prepared.copy("append", tmp_path / "home")
        merge(home, publishing=False)
        seed += 1
        within_s = SECONDS["publish"]
        is_hit = kill_at_random(home, killer, "merge", "publish", within_s=within_s, seed=seed)
        readable(home, *prepared.states("append"))
        hits += is_hit and not spare_path(home.warehouse).exists()
        assert_repaired(home, prepared)


@pytest.mark.parametrize(("name", "work"), WORKS)
def test_a_kill_between_any_two_changes_on_disk(
    name: str, work: str, prepared: Prepared, killer: Kill, tmp_path: Path
) -> None:
    """Renames, removals, new folders and syncs: each kill has its own home."""
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
        assert_repaired(home, prepared)
    sys.stdout.write(hits.summary())
