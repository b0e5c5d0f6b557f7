"""The progress of a merge: each phase counts up to its total. Listeners hear their context."""

from contextvars import copy_context
from functools import partial
from pathlib import Path
from threading import Thread

from almanac.core.progress import describing, listening, phase, wait
from tests.warehouse.landed_days import land
from warehouse.history.merge import merge, rebuild
from warehouse.home import Home

Phases = list[tuple[str, int, int | None]]


def test_a_merge_and_a_rebuild_count_each_phase_up_to_its_total(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    for day in range(3):
        land(home, day)
    merged: Phases = []
    with listening(phase=lambda *phase: merged.append(phase)):
        merge(home)
    assert [phase for phase in merged if phase[0] == "fold batches"] == [
        ("fold batches", number, 3) for number in range(3)
    ]
    counted = {name for name, _, total in merged if total is not None}
    assert counted == {"fold batches", "write partitions"}
    assert all(total is None or 0 <= done < total for _, done, total in merged)
    rebuilt: Phases = []
    with listening(phase=lambda *phase: rebuilt.append(phase)):
        rebuild(home)
    assert rebuilt == merged


def test_each_listener_of_a_context_and_of_its_copies_hears_phases_and_waits() -> None:
    lines: list[str] = []
    waits: list[str] = []
    with describing(lines.append), listening(wait=waits.append):
        phase("rows", 10, 1200)
        for work in (partial(copy_context().run, phase, "copied"), partial(phase, "unheard")):
            thread = Thread(target=work)
            thread.start()
            thread.join()
        wait("Waiting 2 s.")
    phase("later")
    assert (lines, waits) == (["rows 10 of 1,200", "copied"], ["Waiting 2 s."])
