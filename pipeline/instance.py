"""The Dagster instance in use: the home's own, or the one that `DAGSTER_HOME` names.

The home's own gets a generated `dagster.yaml`, which is kept once a person changed it, and its
databases. Nothing is written into another instance but records. Belongs here: how Dagster is set
up, opening the instance. Does not: where its records are (runs/place).
"""

import errno
import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import dagster as dg
import yaml
from dagster._core.instance.ref import InstanceRef
from sqlalchemy.exc import DBAPIError

from pipeline.runs.alembic_scripts import read_scripts_once
from pipeline.runs.generated import Generated, generate
from pipeline.runs.place import CONFIG, InstancePlace, place_of
from pipeline.runs.store import BESIDE, STORES, Damage, check, damages
from pipeline.runs.store_faults import busy, fault_of, inaccessible
from warehouse.errors import RunRecordsInaccessible, RunRecordsUnusable
from warehouse.files.locks import hold_lock
from warehouse.files.storage import make_folders, sync
from warehouse.home import Home

_TICK_DAYS: Final = {"skipped": 1, "started": 30, "failure": 30, "success": 30}
_MAKING: Final = ".making-"
_MAKING_S: Final = 120.0
_RUNS_AT_ONCE: Final = 4
_RETRIES: Final = 3
_START_TIMEOUT_S: Final = 300
_MAX_RUNTIME_S: Final = 86_400
# Capturing starts processes for each step, and on Ctrl-C each of them prints a message.
_UNCAPTURED: Final = {
    "module": "dagster._core.storage.noop_compute_log_manager",
    "class": "NoOpComputeLogManager",
}


def config() -> dict[str, Any]:
    """Return the configuration of the home's own instance, which is in SQLite in its folder."""
    return {
        "telemetry": {"enabled": False},
        "nux": {"enabled": False},
        # Runs whose process died are marked by the sensor `health` (dead_runs): Dagster's run
        # launcher for local processes can't check them.
        "run_monitoring": {
            "enabled": True,
            "poll_interval_seconds": 30,
            "start_timeout_seconds": _START_TIMEOUT_S,
            "max_runtime_seconds": _MAX_RUNTIME_S,
        },
        # Runs whose process died are started again; a run that failed by itself would fail again.
        "run_retries": {
            "enabled": True,
            "max_retries": _RETRIES,
            "retry_on_asset_or_op_failure": False,
        },
        "concurrency": {
            "runs": {"max_concurrent_runs": _RUNS_AT_ONCE},
            # A pool needs a limit. Runs wait in the queue, where a place is free once its run ends.
            # A slot of a step would outlive a killed process, and waiting for it uses a full core.
            "pools": {"default_limit": 1, "granularity": "run"},
        },
        "retention": {
            "schedule": {"purge_after_days": dict(_TICK_DAYS)},
            "sensor": {"purge_after_days": dict(_TICK_DAYS)},
        },
    }


def write_config(home: Home) -> Generated:
    """Write the `dagster.yaml` of the home's own instance, unless a person changed it."""
    return generate(home.dagster / CONFIG, yaml.safe_dump(config(), sort_keys=False))


def make_stores(home: Home) -> None:
    """Create the missing databases of the instance, each complete or not at all.

    Two processes that create one at the same time would leave it unusable, so this holds a lock. A
    process that dies in between leaves a temporary folder, which the next one removes.

    Raises:
        OSError: the folder can't be written.
        LockHeld: another process holds the lock for too long.
    """
    if _all_made(home) and not _left_by_the_killed(home):
        return
    with hold_lock(home.dagster / "stores.lock", "to make Dagster's databases", wait_s=_MAKING_S):
        for left in _left_by_the_killed(home):
            shutil.rmtree(left)
        if _all_made(home):
            return
        with TemporaryDirectory(dir=home.dagster, prefix=_MAKING) as made:
            _make_in(Path(made))
            for name in STORES:
                _adopt(Path(made) / name, home.dagster / name)


def _all_made(home: Home) -> bool:
    return all((home.dagster / name).exists() for name in STORES)


def _left_by_the_killed(home: Home) -> list[Path]:
    return list(home.dagster.glob(f"{_MAKING}*"))


def _make_in(folder: Path) -> None:
    """Make all databases in a folder."""
    (folder / CONFIG).write_text(yaml.safe_dump(config()), "utf-8")
    with _opened(folder) as instance:
        instance.get_runs_count()
        instance.all_instigator_state()
        instance.get_dynamic_partitions("")
    for name in STORES:
        if (folder / f"{name}-wal").exists():
            raise RuntimeError(f"{folder / name} is still open")


def _adopt(made: Path, target: Path) -> None:
    if target.exists():
        return
    make_folders(target.parent)
    for end in BESIDE:
        # SQLite would apply the journal of a deleted database to the new one.
        target.with_name(target.name + end).unlink(missing_ok=True)
    sync(made)
    made.rename(target)
    sync(target.parent)


@contextmanager
def instance_of(home: Home) -> Iterator[dg.DagsterInstance]:
    """Open the instance in use for runs in this process, whose output is not captured.

    Raises:
        OSError: its folder can't be written; SQLite's own error would be long.
        RunRecordsUnusable: it can't be opened, or its storage can't be used later in the block.
    """
    if home.instance_folder.resolve() == home.dagster.resolve():
        write_config(home)
    place = place_of(home)
    if not place.folder.is_dir():
        raise RunRecordsUnusable(
            f"DAGSTER_HOME names {place.folder}, which is no folder. Nothing was changed; name the "
            "folder of an existing instance, or unset it to use the home's own."
        )
    if place.databases is not None and not os.access(place.folder, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(place.folder))
    with plain_faults(home):
        if place.is_own:
            make_stores(home)
        check(home)
        with _opened_plainly(place) as instance:
            yield instance


@contextmanager
def _opened_plainly(place: InstancePlace) -> Iterator[dg.DagsterInstance]:
    with ExitStack() as held:
        try:
            instance = held.enter_context(_opened(place.folder))
        except (DBAPIError, sqlite3.Error):
            raise
        # A storage of another package has errors of its own, e.g. for a server that is down.
        except Exception as error:
            what = " ".join(str(_first_cause(error)).split())
            raise RunRecordsUnusable(
                f"{place.folder / CONFIG}: Dagster can't open this instance: {what}. Nothing was "
                "changed. Check the file, that the packages which it names are installed here, "
                "and that its database responds."
            ) from error
        yield instance


def _opened(folder: Path) -> dg.DagsterInstance:
    read_scripts_once()
    ref = InstanceRef.from_dir(str(folder.resolve()), overrides={"compute_logs": _UNCAPTURED})
    return dg.DagsterInstance.from_ref(ref)


def _first_cause(error: BaseException) -> BaseException:
    while error.__cause__ is not None:
        error = error.__cause__
    return error


@contextmanager
def plain_faults(home: Home) -> Iterator[None]:
    """Turn errors of Dagster's databases into errors that say what to do.

    Raises:
        RunRecordsUnusable: the subclass for the fault.
    """
    try:
        yield
    except (DBAPIError, sqlite3.DatabaseError) as error:
        raise _unusable(home, error) from error


def _unusable(home: Home, error: Exception) -> RunRecordsUnusable:
    """Return the error to raise; SQLite's own names no file."""
    place = place_of(home)
    fault = fault_of(error)
    if place.databases is None:
        what = " ".join(fault.text.split())
        return RunRecordsInaccessible(
            f"{place.folder / CONFIG}: the database of Dagster's records can't be used: {what}. "
            "Finished work is kept. Check that it responds, then run the command again."
        )
    if fault.kind == "busy":
        return busy(home, place.databases)
    if fault.kind == "machine":
        return inaccessible(place.databases, fault.text)
    for damage in damages(home, thorough=True):
        return damage.error(home)
    if fault.kind == "damaged":
        what = f"a Dagster database can't be used ({fault.text})"
        return Damage(place.databases, what).error(home)
    return RunRecordsUnusable(
        f"{place.databases}: Dagster could not use a database ({fault.text}). No database is "
        "damaged, and finished work is kept. Run the command again; if the error recurs, report "
        "it."
    )
