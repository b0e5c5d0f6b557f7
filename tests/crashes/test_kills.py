"""Merges, replays and landing under SIGKILL: nothing is lost or duplicated."""

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import pytest

import warehouse
from catalog.sandbox.sandbox import Sandbox
from tests.crashes import pulls
from tests.crashes.after_kills import (
    assert_repaired,
    intact_batches,
    landed_files,
    merged,
    readable,
)
from tests.crashes.conftest import Kill, Prepared, prepare
from tests.crashes.killed_home import Death
from tests.crashes.pulls import land_again, landing_of
from warehouse.history.merge import merge
from warehouse.home import Home

STEPS = [
    ("merge:locked", 1),
    ("merge:copied", 1),
    ("merge:observation_folded", 1),
    ("merge:observation_folded", 3),
    ("merge:checked", 1),
    ("merge:renamed", 1),
    ("merge:partitions_written", 1),
    ("merge:cleared", 1),
]
WORKS = (("append", "merge"), ("rewind", "merge"), ("anew", "merge"), ("done", "replay"))
LANDING = [
    f"land:{kind}_{state}"
    for kind in ("bodies", "pending", "batches")
    for state in ("written", "in_place")
]
RANDOM = 4
"""Random kills of each kind in the default run."""
LANDED_RANDOM, TRIES = 20, 100
RANDOM_LONG = {"append": 70, "rewind": 70, "anew": 60, "done": 50}
"""Together 200 kills of merges and 50 of replays."""
CHAIN = 4
"""Kills in a row before a merge may end."""
FULL, HELD = 20, 20
"""Merges on a full disk, and kills while a reader holds the file, in the long run."""


def test_a_kill_is_planned_at_every_step_that_the_code_names() -> None:
    named = {
        name
        for path in Path(warehouse.__file__).parent.rglob("*.py")
        for name in re.findall(r'step\("([a-z_]+:[a-z_]+)"\)', path.read_text())
    }
    assert named == {point for point, _ in STEPS}


@pytest.mark.parametrize(("name", "work"), WORKS)
def test_a_merge_killed_at_every_step_ends_the_same_as_without_kills(
    name: str, work: str, prepared: Prepared, killer: Kill, tmp_path: Path
) -> None:
    home = prepared.copy(name, tmp_path / "home")
    for point, nth in STEPS:
        death = killer(home, work, point=point, nth=nth)
        assert (death.killed, death.point) == (True, point)
        readable(home, *prepared.states(name))
    assert_repaired(home, prepared, deep=True)


def test_a_batch_is_complete_or_absent_after_a_kill_at_every_step_of_landing(
    prepared: Prepared, killer: Kill, tmp_path: Path
) -> None:
    source = prepared.root / "day"
    all_ids = landing_of(source).batch_ids()
    last = len(all_ids) - 1
    for point, nth in [(point, nth) for point in LANDING for nth in (1, 2, 4, last)]:
        home = Home(tmp_path / f"{point}{nth}")
        death = killer(home, "land", point=point, nth=nth, landing_from=str(source))
        assert (death.killed, death.point, death.phase) == (True, point, "land")
        landed = intact_batches(home.landing)
        assert landed == set(all_ids[: len(landed)])
        # A body that is stored already is not stored again, so fewer bodies than batches land.
        assert len(landed) == nth - (point != "land:batches_in_place") or "bodies" in point
        land_again(landing_of(source), home.landing, all_ids)
        assert landed_files(home) == landed_files(Home(source))


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
    hits = 0
    source = prepared.root / "day"
    all_ids = landing_of(source).batch_ids()
    whole = killer(Home(tmp_path / "whole"), "land", landing_from=str(source))
    where: dict[str, Any] = {"within_s": whole.seconds["land"], "landing_from": str(source)}
    for seed in range(TRIES):
        home = Home(tmp_path / f"home{seed}")
        hits += killer(home, "land", phase="land", seed=seed, **where).killed
        landed = intact_batches(home.landing)
        assert landed == set(all_ids[: len(landed)])
        land_again(landing_of(source), home.landing, all_ids)
        assert landed_files(home) == landed_files(Home(source))
        if hits == LANDED_RANDOM:
            break
    assert hits == LANDED_RANDOM


@pytest.mark.parametrize(("name", "work"), WORKS)
def test_a_merge_survives_kills_at_random_moments(
    name: str, work: str, prepared: Prepared, killer: Kill, tmp_path: Path
) -> None:
    kill_at_random(prepared, killer, name, work, tmp_path / "home", RANDOM)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("name", "work"), WORKS)
def test_a_merge_survives_250_kills_at_random_moments(
    name: str, work: str, prepared: Prepared, killer: Kill, tmp_path: Path
) -> None:
    hits = kill_at_random(prepared, killer, name, work, tmp_path / "home", RANDOM_LONG[name])
    assert hits["fold"] > 10 < hits["publish"]


@pytest.mark.parametrize("kills", [2, pytest.param(HELD, marks=pytest.mark.long)])
def test_a_merge_survives_kills_while_a_reader_holds_the_file(
    kills: int, prepared: Prepared, killer: Kill, tmp_path: Path
) -> None:
    kill_at_random(prepared, killer, "append", "merge", tmp_path / "home", kills, is_held=True)


@pytest.mark.parametrize("times", [3, pytest.param(FULL, marks=pytest.mark.long)])
@pytest.mark.parametrize("work", ["merge", "replay"])
def test_a_merge_on_a_full_disk_ends_with_an_error_and_changes_nothing(
    work: str, times: int, prepared: Prepared, killer: Kill, tmp_path: Path
) -> None:
    home = prepared.copy("append", tmp_path / "home")
    size = home.warehouse.stat().st_size
    for number in range(times):
        death = killer(home, work, file_bytes=Random(number).randrange(4_096, size))
        assert death.error, death
        assert not [*home.root.rglob(".next*")]
        readable(home, prepared.before["append"])
    assert_repaired(home, prepared, deep=True)


@pytest.fixture(scope="module")
def full(almanac_sandbox: Sandbox, tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    root = tmp_path_factory.mktemp("full")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pulls, "UNTIL", None)
        pulls.pull_days(almanac_sandbox, Home(root / "anew").landing)
    return prepare(root)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("name", "work"), WORKS)
def test_merges_of_a_whole_catalog_survive_kills_at_random_moments(
    name: str, work: str, full: Prepared, killer: Kill, tmp_path: Path
) -> None:
    kill_at_random(full, killer, name, work, tmp_path / "home", RANDOM_LONG[name] // 4)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("name", "work"), WORKS)
def test_a_kill_between_any_two_changes_on_disk(
    name: str, work: str, prepared: Prepared, killer: Kill, tmp_path: Path
) -> None:
    """Renames, removals, new folders and syncs: each kill has its own home."""
    root = tmp_path / "home"
    point = "disk:next"
    changes = killer(prepared.copy(name, root), work).points[point]
    for nth in range(1, changes + 1):
        home = prepared.copy(name, root)
        death = killer(home, work, point=point, nth=nth)
        assert (death.killed, death.point) == (True, point)
        readable(home, *prepared.states(name))
        assert_repaired(home, prepared)


def kill_at_random(
    prepared: Prepared,
    killer: Kill,
    name: str,
    work: str,
    root: Path,
    kills: int,
    *,
    is_held: bool = False,
) -> Counter[str]:
    """Kill at random moments, several times in a row; return the hits of each phase.

    After each chain, a merge that ends gives the right result.
    """
    seconds = sum(killer(prepared.copy(name, root), work).seconds.values())
    hits, seed = Counter[str](), 0
    while hits.total() < kills:
        home = prepared.copy(name, root)
        with reading(home) if is_held else nullcontext():
            for _ in range(CHAIN):
                seed += 1
                death: Death = killer(home, work, phase="fold", within_s=seconds, seed=seed)
                readable(home, *prepared.states(name))
                if not death.killed:
                    break
                hits[death.phase] += 1
        assert_repaired(home, prepared)
    return hits


@contextmanager
def reading(home: Home) -> Iterator[None]:
    """Hold a file open for reading; at the end, assert that it still has the same rows."""
    query = "SELECT count(*), sum(hash(v)) FROM event_versions v"
    with duckdb.connect(str(home.warehouse), read_only=True) as reader:
        before = reader.execute(query).fetchall()
        yield
        assert reader.execute(query).fetchall() == before
