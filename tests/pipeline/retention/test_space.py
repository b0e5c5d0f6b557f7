"""The space that a prune frees: ticks, captured output, and the files of SQLite."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.definitions.run_request import InstigatorType
from dagster._core.remote_origin import (
    ManagedGrpcPythonEnvCodeLocationOrigin,
    RemoteInstigatorOrigin,
    RemoteRepositoryOrigin,
)
from dagster._core.scheduler.instigation import (
    InstigatorState,
    InstigatorStatus,
    SensorInstigatorData,
    TickData,
    TickStatus,
)
from dagster._core.types.loadable_target_origin import LoadableTargetOrigin

from pipeline.retention.sqlite_files import RunFiles
from pipeline.runs.store import INDEX
from tests.pipeline.retention.history import KEPT, LATER, MUCH_LATER, opened, pruned, table
from warehouse.home import Home

_DAY = timedelta(days=1)
_REPORTED = 20


def _report_much(home: Home) -> None:
    with opened(home) as instance:
        for _ in range(_REPORTED):
            event = dg.AssetMaterialization(table.key, metadata={"text": "x" * 100_000})
            instance.report_runless_asset_event(event)


def test_the_shared_databases_give_free_space_back(home: Home) -> None:
    index = home.dagster / INDEX
    _report_much(home)
    size = _size(index)
    found = pruned(home, MUCH_LATER)
    assert found["free space in databases"].bytes > 1_000_000
    assert _size(index) < size / 2
    with closing(sqlite3.connect(index)) as store:
        assert store.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_a_database_in_use_is_left_for_the_next_prune(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline.retention.sqlite_files._BUSY_S", 0.1)
    _report_much(home)
    index = home.dagster / INDEX
    with closing(sqlite3.connect(index, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT COUNT(*) FROM event_logs").fetchone()
        pruned(home, MUCH_LATER)
        assert reader.execute("SELECT COUNT(*) FROM event_logs").fetchone()[0] > _REPORTED
    pruned(home, MUCH_LATER)
    with closing(sqlite3.connect(index)) as store:
        assert store.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_captured_output_goes_before_its_run_does(home: Home) -> None:
    with opened(home) as instance:
        runs = [run.run_id for run in instance.get_runs()]
    outputs = {run_id: home.dagster / "storage" / run_id / "compute_logs" for run_id in runs}
    for folder in outputs.values():
        folder.mkdir(parents=True)
        (folder / "step.err").write_bytes(b"12345")
    found = pruned(home, timedelta(days=9))
    assert found["output of runs"].count == 0
    found = pruned(home, LATER)
    ours = {run_id for run_id, folder in outputs.items() if not folder.exists()}
    assert found["output of runs"].count == len(ours) == len(runs) - 2
    assert found["output of runs"].bytes == 5 * len(ours)
    with opened(home) as instance:
        # The failed run stays for longer than its output.
        left = {run.run_id for run in instance.get_runs()} & ours
    assert left


@pytest.mark.parametrize("others", [(), ("result",)])
def test_in_an_instance_of_others_an_empty_folder_of_a_run_goes_with_its_output(
    tmp_path: Path, others: tuple[str, ...]
) -> None:
    (tmp_path / "dagster.yaml").write_text("telemetry: {enabled: false}")
    with dg.DagsterInstance.from_config(str(tmp_path)) as instance:
        folder = tmp_path / "storage" / "run"
        for name in ("compute_logs", *others):
            (folder / name).mkdir(parents=True)
        RunFiles(instance, dry_run=False).delete_output(["run"])
        assert not (folder / "compute_logs").exists()
        assert folder.exists() is bool(others)


def test_old_ticks_of_own_sensors_go_and_those_of_others_stay(home: Home) -> None:
    with _with_ticks(home, "polls", "their_sensor", location="almanac") as counts:
        assert pruned(home, _DAY * (KEPT.ticks_days - 2))["ticks"].count == 0
        assert pruned(home, _DAY * (KEPT.ticks_days + 2), dry_run=True)["ticks"].count == 2
        assert counts() == {"polls": 3, "their_sensor": 3}
        assert pruned(home, _DAY * (KEPT.ticks_days + 2))["ticks"].count == 2
        assert counts() == {"polls": 1, "their_sensor": 3}


def test_in_an_instance_of_others_a_sensor_of_the_same_name_keeps_its_ticks(home: Home) -> None:
    with _with_ticks(home, "polls", location="theirs") as counts:
        assert pruned(home, MUCH_LATER, own=False)["ticks"].count == 0
        assert counts() == {"polls": 3}


@contextmanager
def _with_ticks(home: Home, *names: str, location: str) -> Iterator:  # type: ignore[type-arg]
    """Give sensors three ticks, two of them a day old; yields a count of what is left."""
    target = LoadableTargetOrigin(module_name="somewhere")
    origin = ManagedGrpcPythonEnvCodeLocationOrigin(target, location)
    states = {
        name: InstigatorState(
            RemoteInstigatorOrigin(RemoteRepositoryOrigin(origin, "__repository__"), name),
            InstigatorType.SENSOR,
            InstigatorStatus.RUNNING,
            SensorInstigatorData(min_interval=30),
        )
        for name in names
    }
    now = datetime.now(UTC)
    with opened(home) as instance:
        for name, state in states.items():
            instance.add_instigator_state(state)
            for at in (now - _DAY, now - _DAY, now + _DAY * 3):
                instance.create_tick(
                    TickData(
                        state.instigator_origin_id,
                        name,
                        InstigatorType.SENSOR,
                        TickStatus.SKIPPED,
                        at.timestamp(),
                        selector_id=state.selector_id,
                    )
                )

        def counts() -> dict[str, int]:
            return {
                name: len(instance.get_ticks(state.instigator_origin_id, state.selector_id))
                for name, state in states.items()
            }

        yield counts


def _size(path: Path) -> int:
    return sum(
        found.stat().st_size for found in path.parent.glob(f"{path.name}*") if found.is_file()
    )
