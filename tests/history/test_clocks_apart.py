"""No history is false and no batch has the machine's date, however far its clock is from the
service's and wherever answers are interrupted: runs of four days, all seeded.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from catalog.sandbox.sandbox import Sandbox
from catalog.sandbox.world.world import World
from tests.history.stories.clocks_apart import FIRST, ClocksApart, fail_if_wrong
from tests.history.stories.cutting_upstream import CuttingUpstream
from tests.history.stories.disk import without_syncs

RUNS, MORE_RUNS, LONG_RUNS = 2, 4, 2_000
EACH = 4
"""Runs of one test, so that a part can be run alone and workers share them."""
SEED, PACE = 7, 9.0


@pytest.fixture(scope="module")
def upstream() -> Iterator[tuple[Sandbox, CuttingUpstream, str, World]]:
    with (
        Sandbox(seed=SEED, pace=PACE, now=FIRST, export_interval_s=0) as sandbox,
        CuttingUpstream(sandbox) as cutting,
    ):
        key = sandbox.new_key("enterprise", rate_per_s=1e6, burst=1_000_000)
        yield sandbox, cutting, key, sandbox.truth()


def fail_if_any_is_wrong(
    seeds: Iterable[int], upstream: tuple[Sandbox, CuttingUpstream, str, World], root: Path
) -> None:
    sandbox, cutting, key, world = upstream
    with without_syncs():
        for seed in seeds:
            run = ClocksApart(seed, root / str(seed), sandbox, cutting, key)
            run.run()
            fail_if_wrong(
                run.differences(world, replayed=seed % EACH == 0 or seed >= MORE_RUNS), seed
            )


@pytest.mark.parametrize(
    "seeds", [range(RUNS), pytest.param(range(RUNS, MORE_RUNS), marks=pytest.mark.long)], ids=str
)
def test_clocks_apart_and_broken_answers_make_no_false_history(
    seeds: range, upstream: tuple[Sandbox, CuttingUpstream, str, World], tmp_path: Path
) -> None:
    fail_if_any_is_wrong(seeds, upstream, tmp_path)


@pytest.mark.long
@pytest.mark.mass
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("first", range(MORE_RUNS, LONG_RUNS, EACH))
def test_thousands_of_runs_make_no_false_history(
    first: int, upstream: tuple[Sandbox, CuttingUpstream, str, World], tmp_path: Path
) -> None:
    fail_if_any_is_wrong(range(first, first + EACH), upstream, tmp_path)
