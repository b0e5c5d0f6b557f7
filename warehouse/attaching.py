"""The published file, attached for reading.

It is attached under a hard link in a folder that is gone before the first query. DuckDB lets SQL
read and write every file that it has attached, and the `.wal` beside it, also where files are
closed to it; under a name that is gone there is nothing to open. Nor can a `.wal` that another
program left beside the file stop a reader. Belongs here: attaching, and setting such a `.wal`
aside. Does not: what a query may do (query_limits).
"""

import logging
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from time import time
from typing import Final

import duckdb

from warehouse.schema import ddl

_LINKS: Final = ".reading-"
_ABANDONED_AFTER_S: Final = 60.0
"""A link is held for milliseconds; an older one was left by a process that was killed."""
_log = logging.getLogger(__name__)


def attach_published(connection: duckdb.DuckDBPyConnection, warehouse: Path, alias: str) -> None:
    """Attach a published file read-only; a foreign `.wal` is set aside first.

    Raises:
        duckdb.Error: it can't be opened.
    """
    set_aside_foreign_wal(warehouse)
    with _linked(warehouse) as path:
        connection.execute(ddl.attach(path, alias, read_only=True))


def set_aside_foreign_wal(warehouse: Path) -> Path | None:
    """Rename the `.wal` beside a published file; return its new name, None where there is none.

    Almanac publishes a finished file, which never has one: it is of another program, which wrote
    to this file or to one published earlier. DuckDB would replay it, or refuse the file. It is
    kept, named by when it was written last.
    """
    wal = warehouse.with_name(f"{warehouse.name}.wal")
    with suppress(FileNotFoundError):
        written = datetime.fromtimestamp(wal.stat().st_mtime, UTC)
        aside = _free_name(wal.with_name(f"{wal.name}.foreign-{written:%Y%m%dT%H%M%S%fZ}"))
        try:
            wal.rename(aside)
        except PermissionError:
            return None  # Readers of ours pass it by; `doctor` names it.
        _log.warning(
            "%s was renamed to %s: another program wrote to the published file, which is "
            "read-only. Open it read-only there, or copy it to write.",
            wal,
            aside.name,
        )
        return aside
    return None


def remove_abandoned_links(folder: Path) -> None:
    """Remove the links that killed readers left."""
    for abandoned in abandoned_links(folder):
        with suppress(FileNotFoundError):
            shutil.rmtree(abandoned)


def abandoned_links(folder: Path) -> list[Path]:
    """Return the links that killed readers left."""
    abandoned: list[Path] = []
    for path in folder.glob(f"{_LINKS}*"):
        with suppress(FileNotFoundError):
            if time() - path.stat().st_mtime >= _ABANDONED_AFTER_S:
                abandoned.append(path)
    return abandoned


@contextmanager
def _linked(warehouse: Path) -> Iterator[Path]:
    """Lend another name of the file, gone at the end; its own where it can have no other.

    That is where the folder or the file is another user's, or the disk knows no hard links.
    """
    try:
        folder = Path(tempfile.mkdtemp(prefix=_LINKS, dir=warehouse.parent.resolve()))
    except OSError:
        yield warehouse
        return
    try:
        link = folder / warehouse.name
        try:
            os.link(warehouse.resolve(), link)
        except OSError:
            link = warehouse
        yield link
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _free_name(path: Path) -> Path:
    number = 1
    free = path
    while free.exists():
        number += 1
        free = path.with_name(f"{path.name}-{number}")
    return free
