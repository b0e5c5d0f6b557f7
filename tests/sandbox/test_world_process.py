"""A world that another process generates in part."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from catalog.sandbox import world_process as module
from catalog.sandbox.sandbox import Sandbox
from catalog.sandbox.world.dates import month_of, seconds_of
from catalog.sandbox.world.world import World
from catalog.sandbox.world_process import WorldProcess
from tests.hangs import wait_for

NOW = datetime(2019, 3, 10, tzinfo=UTC)
BEFORE = datetime(2018, 12, 1, tzinfo=UTC)
LAST = month_of(seconds_of(NOW))


def generated(months: int, world_process: WorldProcess) -> frozenset[int]:
    wait_for(lambda: len(world_process.months) >= months)
    return world_process.months


def same(world: World, other: World) -> bool:
    return (
        world.events_at(NOW) == other.events_at(NOW)
        and list(world.events_at(NOW)) == list(other.events_at(NOW))
        and world.cancellations_at(NOW) == other.cancellations_at(NOW)
        and world.changes(BEFORE, NOW) == other.changes(BEFORE, NOW)
    )


@pytest.mark.parametrize(("seed", "pace"), [(1, 1.0), (7, 2.5)])
def test_a_world_generated_in_another_process_is_the_same(seed: int, pace: float) -> None:
    with WorldProcess(seed, until=NOW, pace=pace) as world_process:
        assert generated(LAST + 1, world_process) == frozenset(range(LAST + 1))
        world = World(seed, pace=pace, generated_months=world_process.take)
        assert same(world, World(seed, pace=pace))
    assert world_process.months == frozenset()


def test_a_world_generated_in_part_in_another_process_is_the_same() -> None:
    with WorldProcess(1, until=datetime(2018, 1, 1, tzinfo=UTC)) as world_process:
        assert generated(16, world_process) == frozenset(range(16))
    assert same(World(generated_months=world_process.take), World())


def test_a_world_queried_while_it_is_generated_is_the_same() -> None:
    with WorldProcess(1, until=NOW) as world_process:
        assert same(World(generated_months=world_process.take), World())


def test_a_process_that_can_not_start_or_dies_changes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_PROGRAM", "raise SystemExit(3)")
    with WorldProcess(1, until=NOW) as world_process:
        assert same(World(generated_months=world_process.take), World())
    monkeypatch.setattr(module.sys, "executable", "/nowhere/python")
    with WorldProcess(1, until=NOW) as world_process:
        assert same(World(generated_months=world_process.take), World())


def test_the_process_has_ended_after_stop() -> None:
    with WorldProcess(1, until=datetime(2039, 1, 1, tzinfo=UTC)) as world_process:
        assert generated(1, world_process)
        process = world_process._process
        assert process is not None
        assert process.poll() is None
    assert process.returncode is not None
    assert world_process._reader is not None
    assert not world_process._reader.is_alive()


def test_a_sandbox_with_a_world_process_serves_the_world_of_its_seed(tmp_path: Path) -> None:
    with WorldProcess(5, until=NOW) as world_process:
        assert generated(LAST + 1, world_process) == frozenset(range(LAST + 1))
        helped = Sandbox(seed=5, now=NOW, world_process=world_process)
        assert same(helped._world(), helped.truth())
    assert world_process.months == frozenset(), "every generated month was taken"
