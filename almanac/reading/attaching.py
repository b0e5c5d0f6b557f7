"""The published file, attached for reading.

It is attached through a hard link in a folder that is removed before the first query. DuckDB lets
SQL read and write every attached file and the `.wal` beside it, even if external access is off;
SQL can't open a name that no longer exists. A `.wal` that another program left beside the file
does not block readers either. Belongs here: attaching, and setting such a `.wal` aside. Does not:
what a query may do (query_limits).
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

from almanac.reading.named_sql import quoted, quoted_text

_LINKS: Final = ".reading-"
_ABANDONED_AFTER_S: Final = 60.0
"""A link exists for milliseconds; an older one was left by a killed process."""
_log = logging.getLogger(__name__)


def attach_published(connection: duckdb.DuckDBPyConnection, warehouse: Path, alias: str) -> None:
    """Attach a published file read-only; a foreign `.wal` is set aside first.

    Raises:
        duckdb.Error: it can't be opened. The text names the file, not our link to it.
    """
    set_aside_foreign_wal(warehouse)
    with _linked(warehouse) as path:
        # No value can be bound in it.
        name = quoted(alias)
        try:
            connection.execute("ATTACH " + quoted_text(str(path)) + " AS " + name + " (READ_ONLY)")
        except duckdb.Error as error:
            raise type(error)(str(error).replace(str(path), str(warehouse))) from error


def set_aside_foreign_wal(warehouse: Path) -> Path | None:
    """Rename the `.wal` beside a published file; return its new name, None if there is no `.wal`.

    A file that Almanac publishes has no `.wal`, so another program wrote it, to this file or to
    an earlier one. DuckDB would replay it or refuse the file. The `.wal` is kept; its new name has
    the time when it was last written.
    """
    wal = warehouse.with_name(f"{warehouse.name}.wal")
    with suppress(FileNotFoundError):
        written = datetime.fromtimestamp(wal.stat().st_mtime, UTC)
        aside = _free_name(wal.with_name(f"{wal.name}.foreign-{written:%Y%m%dT%H%M%S%fZ}"))
        try:
            wal.rename(aside)
        except FileNotFoundError:
            raise
        except OSError:
            # Not ours, or the disk is read-only. Our readers ignore it; `doctor` reports it.
            return None
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
    """Yield a temporary hard link to the file, or the file's own path if none can be made.

    None can be made if another user owns the folder or the file, or the disk has no hard links.
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
