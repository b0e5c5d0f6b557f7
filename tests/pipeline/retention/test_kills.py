"""A prune that is killed at any moment does no damage, and the next one finishes it."""

import multiprocessing
import os
import signal
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from pipeline.runs.store import INDEX, damages
from tests.pipeline.retention.history import (
    MUCH_LATER,
    Shown,
    opened,
    pruned,
    run,
    run_databases,
    table,
)
from warehouse.home import Home

_FORKED = multiprocessing.get_context("fork")


class Stopped(BaseException):
    """Stands for the end of the process."""


_MOMENTS_S = (0.02, 0.05, 0.08, 0.12, 0.18, 0.27, 0.4)


def test_a_prune_killed_at_any_moment_keeps_the_latest_and_is_finished_by_the_next(
    home: Home, shown: Shown
) -> None:
    for moment_s in _MOMENTS_S:
        process = _FORKED.Process(target=pruned, args=(home, MUCH_LATER))
        process.start()
        process.join(moment_s)
        if process.pid is not None and process.is_alive():
            os.kill(process.pid, signal.SIGKILL)
        process.join()
        assert damages(home, thorough=True) == []
        with opened(home) as instance:
            assert Shown.of(instance) == shown
    pruned(home, MUCH_LATER)
    with opened(home) as instance:
        runs = {each.run_id for each in instance.get_runs()}
        assert Shown.of(instance) == shown
    assert runs == run_databases(home)
    assert len(runs) == 7
    assert _events_of_gone_runs(home, runs) == set()


def test_runs_are_executed_while_a_prune_is_under_way(home: Home) -> None:
    process = _FORKED.Process(target=_prune_often, args=(home,))
    process.start()
    with opened(home) as instance:
        made = [run(instance, "land", part) for part in ("a", "b", "c")]
        made.append(run(instance, "publish"))
        process.join()
        assert process.exitcode == 0
        assert all(instance.has_run(run_id) for run_id in made)
        latest = instance.get_latest_materialization_event(table.key)
    assert latest is not None
    assert latest.run_id == made[-1]
    assert damages(home, thorough=True) == []


def _prune_often(home: Home) -> None:
    for _ in range(4):
        # The runs beside it are among the newest four.
        pruned(home, timedelta(0), keep_runs=4)


@pytest.mark.parametrize("step", range(8))
def test_a_prune_that_stops_at_a_step_is_finished_by_the_next(
    home: Home, shown: Shown, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The steps are the deletions of runs and of files."""
    left = [step]

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if not left[0]:
                raise Stopped
            left[0] -= 1
            return function(*args, **kwargs)

        return call

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", counted(Path.unlink))
        patch.setattr(dg.DagsterInstance, "delete_run", counted(dg.DagsterInstance.delete_run))
        with pytest.raises(Stopped):
            pruned(home, MUCH_LATER)
    with opened(home) as instance:
        assert Shown.of(instance) == shown
    pruned(home, MUCH_LATER)
    with opened(home) as instance:
        assert Shown.of(instance) == shown
        runs = {each.run_id for each in instance.get_runs()}
    assert runs == run_databases(home)
    assert _events_of_gone_runs(home, runs) == set()


def _events_of_gone_runs(home: Home, runs: set[str]) -> set[str]:
    """Return the kinds of events that are left of deleted runs."""
    with closing(sqlite3.connect(home.dagster / INDEX)) as store:
        rows = store.execute("SELECT run_id, dagster_event_type FROM event_logs").fetchall()
    return {kind for run_id, kind in rows if run_id not in runs}
