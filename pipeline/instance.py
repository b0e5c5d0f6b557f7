"""The Dagster instance in use: the home's own, in `dagster/`, or that of `DAGSTER_HOME`.

In an instance of another owner, only run records are written.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import dagster as dg
from sqlalchemy import Engine, event
from sqlalchemy.exc import DBAPIError

from almanac.core.errors import WarehouseError
from assets.layout import Layout
from warehouse.files.storage import Storage
from warehouse.home import Home

CONFIG: Final = "dagster.yaml"
DEFAULT_CONFIG: Final = Path(__file__).with_name(CONFIG)
OWNER_TAG: Final = "almanac/owner"
"""The tag of the runs of a home's jobs. Homes in one instance have different values."""


def owner_tags(layout: Layout) -> dict[str, str]:
    """Return the tags of the jobs of a home."""
    return {OWNER_TAG: layout.key("almanac").to_user_string()}


def is_own(home: Home) -> bool:
    """Whether the instance in use is the home's own."""
    return home.instance_folder.resolve() == home.dagster.resolve()


def write_config(home: Home) -> None:
    """Write the `dagster.yaml` of the home's own instance, unless it exists.

    Raises:
        OSError: the folder can't be written.
    """
    if is_own(home) and not (home.dagster / CONFIG).exists():
        Storage(home.dagster).put(CONFIG, DEFAULT_CONFIG.read_bytes())


@contextmanager
def open_instance(home: Home, *, syncs: bool = True) -> Iterator[dg.DagsterInstance]:
    """Open the instance in use. The output of runs in this process stays the command's own.

    Without `syncs`, its SQLite files do not wait for the disk: a kill loses nothing, but a power
    failure may damage the records of runs.

    Raises:
        OSError: its folder can't be written.
        WarehouseError: it can't be opened, or its database fails later in the block.
    """
    write_config(home)
    folder = home.instance_folder.resolve()
    if not folder.is_dir():
        raise WarehouseError(
            f"DAGSTER_HOME names {folder}, which is not a folder. Nothing was changed; name the "
            "folder of an existing instance, or unset it to use the home's own."
        )
    with ExitStack() as held:
        if not syncs:
            # Dagster opens a connection for each event.
            event.listen(Engine, "connect", _skip_syncs)
            held.callback(event.remove, Engine, "connect", _skip_syncs)
        try:
            instance = held.enter_context(_open_uncaptured(folder))
            instance.get_runs_count()  # A damaged SQLite file is noticed by its first query.
        except Exception as error:  # Each storage has errors of its own.
            raise _unusable(folder, error) from error
        try:
            yield instance
        except (DBAPIError, sqlite3.Error) as error:
            raise _unusable(folder, error) from error


def _skip_syncs(connection: Any, _: object) -> None:
    if isinstance(connection, sqlite3.Connection):
        connection.execute("PRAGMA synchronous = OFF")


def _open_uncaptured(folder: Path) -> dg.DagsterInstance:
    """Open an instance that captures no output, as an ephemeral one; all else is as configured.

    A capture starts four processes for each run, and takes the terminal away from the progress bar.
    """
    with dg.DagsterInstance.ephemeral() as silent:
        manager = type(silent.compute_log_manager)
    with dg.DagsterInstance.from_config(str(folder)) as instance:
        ref = instance.get_ref()
    logs = ref.compute_logs_data._replace(
        module_name=manager.__module__, class_name=manager.__name__, config_yaml="{}"
    )
    return dg.DagsterInstance.from_ref(ref._replace(compute_logs_data=logs))


def _unusable(folder: Path, error: BaseException) -> WarehouseError:
    while error.__cause__ is not None:
        error = error.__cause__
    what = " ".join(str(error).split())
    return WarehouseError(
        f"{folder}: Dagster's records of runs can't be used: {what}. They hold no data of the "
        f"warehouse, and finished work is kept. Check {CONFIG}, the database and the disk. If the "
        "records are damaged, move this folder away, and the next command makes a new one."
    )
