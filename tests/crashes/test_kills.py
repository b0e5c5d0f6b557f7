"""Merges, rebuilds and landing under SIGKILL: nothing is lost or duplicated."""

import re
from pathlib import Path
from random import Random

import pytest

import warehouse
from tests.crashes.after_kills import assert_repaired, intact_batches, landed_files, readable
from tests.crashes.conftest import Kill, Prepared
from tests.crashes.rotting import land_again, landing_of
from warehouse.home import Home

LONG = pytest.mark.long
STEPS = [
    ("list batches", 1),
    ("fold batches", 1),
    ("fold batches", 2),
    ("publish", 1),
    ("keep checkpoints", 1),
    ("write partitions", 1),
    ("clear markers", 1),
    ("pack exports", 1),
]
WORKS = (("append", "merge"), ("rewind", "merge"), ("anew", "merge"), ("done", "rebuild"))
LANDING = [
    f"land:{kind}_{state}"
    for kind in ("bodies", "pending", "batches")
    for state in ("written", "in_place")
]
CHAIN = 4
"""Kills in a row before a merge may end."""


def test_a_kill_is_planned_at_every_step_that_the_code_names() -> None:
    named = {
        name
        for path in Path(warehouse.__file__).parent.rglob("*.py")
        for name in re.findall(r'progress\.phase\("([a-z ]+)"', path.read_text())
    }
    assert named == {point for point, _ in STEPS}


@pytest.mark.parametrize(
    ("name", "work"), [WORKS[0], *(pytest.param(*work, marks=LONG) for work in WORKS[1:])]
)
def test_a_merge_killed_at_every_step_ends_the_same_as_without_kills(
    name: str, work: str, prepared: Prepared, killer: Kill, tmp_path: Path
) -> None:
    home = prepared.copy(name, tmp_path / "home")
    for point, nth in STEPS:
        death = killer(home, work, point=point, nth=nth)
        assert (death.killed, death.point) == (True, point)
        readable(home, *prepared.states(name))
    assert_repaired(home, prepared)


def test_a_batch_is_complete_or_absent_after_a_kill_at_every_step_of_landing(
    prepared: Prepared, killer: Kill, tmp_path: Path
) -> None:
    source = prepared.root / "anew"
    all_ids = landing_of(source).batch_ids()
    for number, point in enumerate(LANDING):
        home = Home(tmp_path / f"home{number}")
        death = killer(home, "land", point=point, nth=2, landing_from=str(source))
        assert (death.killed, death.point) == (True, point)
        landed = intact_batches(home.landing)
        assert landed == set(all_ids[: 2 if point == "land:batches_in_place" else 1])
        land_again(landing_of(source), home.landing, all_ids)
        assert landed_files(home) == landed_files(Home(source))


@pytest.mark.parametrize(
    ("name", "work", "kills"),
    [
        ("rewind", "merge", 2),
        *(pytest.param(*work, 60, marks=[LONG, pytest.mark.timeout(3600)]) for work in WORKS),
    ],
)
def test_a_merge_survives_kills_at_random_moments(
    name: str, work: str, kills: int, prepared: Prepared, killer: Kill, tmp_path: Path
) -> None:
    root = tmp_path / "home"
    seconds = killer(prepared.copy(name, root), work).seconds
    hits, seed = 0, 0
    while hits < kills:
        home = prepared.copy(name, root)
        for _ in range(min(CHAIN, kills - hits)):
            seed += 1
            death = killer(home, work, within_s=seconds, seed=seed)
            readable(home, *prepared.states(name))
            hits += death.killed
        assert_repaired(home, prepared)


@pytest.mark.parametrize(
    ("work", "times"),
    [("merge", 2), *(pytest.param(w, 20, marks=LONG) for w in ("merge", "rebuild"))],
)
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
    assert_repaired(home, prepared)


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
