"""A world told in part by another process."""

import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from catalog.sandbox import world_process as module
from catalog.sandbox.sandbox import Sandbox
from catalog.sandbox.world.dates import month_of, seconds_of
from catalog.sandbox.world.world import World
from catalog.sandbox.world_process import WorldProcess

NOW = datetime(2019, 3, 10, tzinfo=UTC)
BEFORE = datetime(2018, 12, 1, tzinfo=UTC)
LAST = month_of(seconds_of(NOW))


def told(months: int, telling: WorldProcess, within_s: float = 30.0) -> frozenset[int]:
    until = time.monotonic() + within_s
    while len(telling.months) < months and time.monotonic() < until:
        time.sleep(0.01)
    return telling.months


def same(one: World, other: World) -> bool:
    return (
        one.events_at(NOW) == other.events_at(NOW)
        and list(one.events_at(NOW)) == list(other.events_at(NOW))
        and one.cancellations_at(NOW) == other.cancellations_at(NOW)
        and one.changes(BEFORE, NOW) == other.changes(BEFORE, NOW)
    )


@pytest.mark.parametrize(("seed", "pace"), [(1, 1.0), (7, 2.5)])
def test_a_world_told_elsewhere_is_the_same_world(seed: int, pace: float) -> None:
    with WorldProcess(seed, until=NOW, pace=pace) as telling:
        assert told(LAST + 1, telling) == frozenset(range(LAST + 1))
        world = World(seed, pace=pace, elsewhere=telling.take)
        assert same(world, World(seed, pace=pace))
    assert telling.months == frozenset()


def test_a_world_told_in_part_elsewhere_is_the_same_world() -> None:
    with WorldProcess(1, until=datetime(2018, 1, 1, tzinfo=UTC)) as telling:
        assert told(16, telling) == frozenset(range(16))
    assert same(World(elsewhere=telling.take), World())


def test_a_world_asked_for_while_it_is_told_is_the_same_world() -> None:
    with WorldProcess(1, until=NOW) as telling:
        assert same(World(elsewhere=telling.take), World())


def test_a_process_that_can_not_be_started_or_dies_only_does_not_help(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_PROGRAM", "raise SystemExit(3)")
    with WorldProcess(1, until=NOW) as telling:
        assert same(World(elsewhere=telling.take), World())
    monkeypatch.setattr(module.sys, "executable", "/nowhere/python")
    with WorldProcess(1, until=NOW) as telling:
        assert same(World(elsewhere=telling.take), World())


def test_the_process_is_gone_once_the_telling_is_stopped() -> None:
    with WorldProcess(1, until=datetime(2039, 1, 1, tzinfo=UTC)) as telling:
        assert told(1, telling)
        process = telling._process
        assert process is not None
        assert process.poll() is None
    assert process.returncode is not None
    assert telling._reader is not None
    assert not telling._reader.is_alive()


def test_a_sandbox_that_is_helped_serves_the_world_of_its_seed(tmp_path: Path) -> None:
    with WorldProcess(5, until=NOW) as telling:
        assert told(LAST + 1, telling) == frozenset(range(LAST + 1))
        helped = Sandbox(seed=5, now=NOW, telling=telling)
        assert same(helped._world(), helped.truth())
    assert telling.months == frozenset(), "what was told was taken"
