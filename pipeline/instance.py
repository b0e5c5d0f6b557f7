"""The Dagster instance in use: the home's own, or the instance of `DAGSTER_HOME`.

The home's own gets a generated `dagster.yaml`, which is kept once a person changed it, and its
databases. Nothing but records is written into another instance.
"""

import errno
import os
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Final

import dagster as dg
import yaml
from sqlalchemy import Connection, Dialect, Engine, event
from sqlalchemy.exc import DBAPIError

from pipeline.runs.place import CONFIG, REPOSITORY, InstancePlace, generate, place_of
from pipeline.runs.store import BESIDE, Damage, check, damages, find_unmade
from warehouse.errors import RunRecordsInaccessible, RunRecordsUnusable
from warehouse.files.locks import hold_lock
from warehouse.home import Home

_TICK_DAYS: Final = {"skipped": 1, "started": 30, "failure": 30, "success": 30}
_MAKING_S: Final = 120.0
_JOURNAL: Final = "PRAGMA journal_mode"
_SHARED: Final = frozenset({"runs", "index", "schedules"})
"""The databases that all runs share; each run has another of its own."""


def config() -> dict[str, Any]:
    """Return the configuration of the home's own instance, which is in SQLite in its folder."""
    return {
        "telemetry": {"enabled": False},
        "nux": {"enabled": False},
        # Capturing starts two processes for each step, and on Ctrl-C each of them prints a message.
        # Dagster documents this class for dagster.yaml, and has no public name for it.
        "compute_logs": {
            "module": "dagster._core.storage.noop_compute_log_manager",
            "class": "NoOpComputeLogManager",
        },
        # The sensor `health` marks runs whose process died: Dagster's launcher of local processes
        # can't check them.
        "run_monitoring": {
            "enabled": True,
            "poll_interval_seconds": 30,
            "start_timeout_seconds": 300,
            "max_runtime_seconds": 86_400,
        },
        # A run whose process died is started again; one with a failed step would fail again.
        "run_retries": {"enabled": True, "max_retries": 3, "retry_on_asset_or_op_failure": False},
        "concurrency": {
            "runs": {"max_concurrent_runs": 4},
            # A run waits for its pool in the queue: a step's slot would outlive a killed process.
            "pools": {"default_limit": 1, "granularity": "run"},
        },
        "retention": {
            "schedule": {"purge_after_days": dict(_TICK_DAYS)},
            "sensor": {"purge_after_days": dict(_TICK_DAYS)},
        },
    }


def write_config(home: Home) -> str:
    """Write the `dagster.yaml` of the home's own instance, unless a person changed it."""
    return generate(home.dagster / CONFIG, yaml.safe_dump(config(), sort_keys=False))


def make_stores(home: Home) -> None:
    """Create the missing databases of the home's own instance, and make half-made ones again.

    Two processes that create one at the same time would leave it unusable, so this holds a lock.

    Raises:
        OSError: the folder can't be written.
        LockHeld: another process holds the lock for too long.
    """
    if not find_unmade(home):
        return
    with hold_lock(home.dagster / "stores.lock", "to make Dagster's databases", wait_s=_MAKING_S):
        unmade = find_unmade(home)
        for path in unmade:
            # SQLite would apply the journal of a deleted database to the new one.
            for end in ("", *BESIDE):
                path.with_name(path.name + end).unlink(missing_ok=True)
        if unmade:
            _make_in(home.dagster)


def _make_in(folder: Path) -> None:
    with dg.DagsterInstance.from_config(str(folder.resolve())) as instance:
        instance.get_runs_count()
        instance.all_instigator_state()
        instance.get_dynamic_partitions("")


@contextmanager
def instance_of(home: Home, *, keeps_open: bool = False) -> Iterator[dg.DagsterInstance]:
    """Open the instance in use. With `keeps_open`, runs take less time; none may be deleted.

    Raises:
        OSError: its folder can't be written; SQLite's own error would be long.
        RunRecordsUnusable: it can't be opened, or its storage can't be used later in the block.
    """
    if home.instance_folder.resolve() == home.dagster.resolve():
        write_config(home)
    place = place_of(home)
    if not place.folder.is_dir():
        raise RunRecordsUnusable(
            f"DAGSTER_HOME names {place.folder}, which is not a folder. Nothing was changed; "
            "name the folder of an existing instance, or unset it to use the home's own."
        )
    if place.databases is not None and not os.access(place.folder, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(place.folder))
    with plain_faults(home):
        if place.is_own:
            make_stores(home)
        check(home)
        keeping = _databases_kept_open(place) if keeps_open else nullcontext()
        with keeping, _opened(place) as instance:
            yield instance


@contextmanager
def _closing_synced(held: sqlite3.Connection) -> Iterator[None]:
    """Write the journal into the database and sync both, also if another program has it open."""
    with closing(held):
        yield
        held.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()


@contextmanager
def _databases_kept_open(place: InstancePlace) -> Iterator[None]:
    """Keep the SQLite databases of all runs open, and the database of the newest run.

    Dagster opens and closes one for each event of a run, which takes up to seven syncs. A database
    is synced when it is closed: at the end, or when the next run begins. After a kill all records
    are there. After a power failure the last records may be missing; the databases are not
    damaged.
    """
    if place.databases is None:
        yield
        return
    folder, shared = place.databases.resolve(), ExitStack()
    newest_run = ExitStack()
    seen: set[Path] = set()

    def keep(opened: object, record: object) -> None:
        if not isinstance(opened, sqlite3.Connection):
            return
        (_, _, name), *_ = opened.execute("PRAGMA database_list").fetchall()
        path = Path(name)
        # A new database has another journal at first.
        if not path.is_relative_to(folder) or opened.execute(_JOURNAL).fetchone() != ("wal",):
            return
        opened.execute("PRAGMA synchronous = NORMAL")
        if path not in seen:
            is_of_run = path.stem not in _SHARED
            if is_of_run:
                newest_run.close()
            seen.add(path)
            held = sqlite3.connect(path, check_same_thread=False)
            (newest_run if is_of_run else shared).enter_context(_closing_synced(held))
            held.execute("PRAGMA schema_version").fetchall()

    with shared, newest_run, _statements_kept_compiled():
        event.listen(Engine, "connect", keep)
        try:
            yield
        finally:
            event.remove(Engine, "connect", keep)


@contextmanager
def _statements_kept_compiled() -> Iterator[None]:
    """Compile each statement for SQLite once.

    Dagster makes a new engine for each connection. An engine's dialect is part of the key of a
    compiled statement, so all connections to SQLite get the dialect of the first.
    """
    compiled: dict[Any, Any] = {}
    dialects: dict[type[Dialect], Dialect] = {}

    def share(opened: Connection) -> None:
        if opened.dialect.name == "sqlite":
            opened.dialect = dialects.setdefault(type(opened.dialect), opened.dialect)
            opened.execution_options(compiled_cache=compiled)

    event.listen(Engine, "engine_connect", share)
    try:
        yield
    finally:
        event.remove(Engine, "engine_connect", share)


def link_run(instance: dg.DagsterInstance, run_id: str) -> None:
    """Link a run of `almanac run` to the code location, so that Timeline and Jobs show it.

    The UI leaves out runs of `execute_in_process`, which have no code location. The private import
    can go once dagster-io/dagster#17707 is fixed (open in 1.13).
    """
    from dagster._core.remote_origin import RegisteredCodeLocationOrigin, RemoteRepositoryOrigin

    run = instance.get_run_by_id(run_id)
    if run is not None:
        name, _, location = REPOSITORY.partition("@")
        repository = RemoteRepositoryOrigin(RegisteredCodeLocationOrigin(location), name)
        origin = repository.get_job_origin(run.job_name)
        instance.run_storage.replace_job_origin(run, origin)


@contextmanager
def _opened(place: InstancePlace) -> Iterator[dg.DagsterInstance]:
    with ExitStack() as held:
        try:
            instance = held.enter_context(dg.DagsterInstance.from_config(str(place.folder)))
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
    if place.databases is None:
        what = " ".join(str(getattr(error, "orig", None) or error).split())
        return RunRecordsInaccessible(
            f"{place.folder / CONFIG}: the database of Dagster's records can't be used: {what}. "
            "Finished work is kept. Check that it responds, then run the command again."
        )
    fault = Damage.of(place.databases, error)
    if fault.kind in ("damaged", "unknown"):
        for damage in damages(home, thorough=True):
            return damage.error(home)
    if fault.kind == "unknown":
        return RunRecordsUnusable(
            f"{place.databases}: Dagster could not use a database ({fault.what}). No database is "
            "damaged, and finished work is kept. Run the command again; if the error recurs, "
            "report it."
        )
    return fault.error(home)
