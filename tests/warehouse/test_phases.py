"""The progress of a merge: each phase counts up to its total."""

from pathlib import Path

from tests.warehouse.landed_days import land
from warehouse.history.merge import merge, replay
from warehouse.home import Home
from warehouse.merge_progress import listening

Phases = list[tuple[str, int, int]]


def test_a_merge_and_a_replay_report_their_phases(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    for day in range(3):
        land(home, day)
    merged: Phases = []
    with listening(lambda *phase: merged.append(phase)):
        merge(home)
    assert [phase for phase in merged if phase[0] == "fold batches"] == [
        ("fold batches", number, 3) for number in range(3)
    ]
    assert {name for name, _, _ in merged} == {"fold batches", "write partitions"}
    replayed: Phases = []
    with listening(lambda *phase: replayed.append(phase)):
        replay(home)
    assert replayed == merged


def test_a_second_merge_counts_only_the_new_batch(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    land(home, 0)
    merge(home)
    land(home, 1)
    found: Phases = []
    with listening(lambda *phase: found.append(phase)):
        merge(home)
    merge(home)
    assert [phase for phase in found if phase[0] == "fold batches"] == [("fold batches", 0, 1)]
    assert all(0 <= done < total for _, done, total in found)
