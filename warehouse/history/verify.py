"""Verify: compare every file with its hash, and read the whole warehouse. Changes nothing.

`deep` also rebuilds the warehouse in a temporary folder, and compares every row of every table. A
finding says what is wrong and what to do.
"""

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import duckdb

from almanac.core.errors import WarehouseError
from almanac.core.files import own_folder, try_lock
from almanac.core.statements import Statements
from almanac.reading.attached_file import attach_published
from warehouse.errors import DamagedBatch, LandingError
from warehouse.files.locks import describe_holder
from warehouse.history.merge import rebuild
from warehouse.history.partitions import (
    has_written_bytes,
    list_contents,
    partition_name,
    read_record,
)
from warehouse.history.warehouse_file import (
    PublishedFile,
    find_damage,
    read_published,
    set_search_path,
)
from warehouse.home import Home
from warehouse.landing.batches import Manifest
from warehouse.landing.landing import MARKER
from warehouse.schema import ddl
from warehouse.schema.columns import GROUPS
from warehouse.schema.tables import TABLES

_SQL = Statements(__package__, GROUPS)

LOCAL = frozenset({"requests", "usage"})
"""Tables made from this machine's logs, not from landing."""
_NAMED: Final = 3
_REBUILD: Final = "`almanac rebuild` makes it again"
_OF_THE_MACHINE: Final = (OSError, MemoryError, duckdb.IOException, duckdb.OutOfMemoryException)


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check. `wrong` is empty if the check passes; `notes` are not faults."""

    check: str
    looked_at: int
    wrong: Sequence[str] = ()
    notes: Sequence[str] = ()

    @property
    def holds(self) -> bool:
        return not self.wrong


def verify(home: Home, *, deep: bool = False) -> Iterator[Finding]:
    """Yield the findings one by one, under the merge lock.

    A home that this user can't write to is verified too, and a rebuild of it is made elsewhere.

    Raises:
        WarehouseError: the disk or memory is too small for a check; or a merge runs for longer
            than the home's wait.
    """
    with _no_merge(home):
        manifests, damaged = home.landing.readable(home.landing.batch_ids())
        unreadable = [*home.landing.damaged().values(), *damaged.values()]
        count = len(manifests) + len(unreadable)
        yield Finding("no batch is damaged or set aside", count, unreadable)
        yield _check_bodies(home, manifests)
        yield from _check_warehouse(home, bool(manifests), deep=deep)


def _check_warehouse(home: Home, has_batches: bool, *, deep: bool) -> Iterator[Finding]:
    """Check the published file, and with `deep` what else is made from landing."""
    published = None
    if not home.warehouse.is_file():
        merged = set(home.landing.batch_ids()) - set(home.landing.pending())
        wrong = [f"it is missing; {_REBUILD}"] if has_batches and merged else []
        yield Finding("the warehouse exists", int(has_batches), wrong)
        return
    with suppress(duckdb.Error):  # Reading all of it gives the reason below.
        published = read_published(home.warehouse)
    with _opened(home) as connection:
        why = find_damage(connection, home.warehouse)
        wrong = [f"{home.warehouse.name} can't be read: {why}; {_REBUILD}"] if why else []
        yield Finding("the warehouse can be read", len(TABLES), wrong)
        if wrong:
            return
        if published is None or not published.has_current_tables:
            note = "another version of Almanac made it; the next merge rebuilds it from landing"
            yield Finding("the warehouse matches landing", 0, notes=[note])
            return
        set_search_path(connection)
        yield _check_batches(home, published)
        yield _check_partitions(home, connection)
    if deep:
        yield from _check_rebuild(home, published)


@contextmanager
def _opened(home: Home) -> Iterator[duckdb.DuckDBPyConnection]:
    connection = home.connect()
    try:
        yield connection
    except duckdb.OutOfMemoryException as error:
        raise _unfinished(error) from error
    finally:
        connection.close()


def _is_writable(home: Home) -> bool:
    return os.access(home.state, os.W_OK, effective_ids=True)


@contextmanager
def _temporary_folder(home: Home) -> Iterator[Path]:
    parent = home.state if _is_writable(home) else own_folder()
    with tempfile.TemporaryDirectory(prefix="almanac-verify-", dir=parent) as folder:
        yield Path(folder)


@contextmanager
def _no_merge(home: Home) -> Iterator[None]:
    """Hold the merge lock. If this user can't write to the home, the existing lock file is used."""
    path = home.state / "merge.lock"
    if _is_writable(home):
        with home.merge_lock():
            yield
    elif not path.exists():
        yield  # Nobody merged yet.
    else:
        with path.open("rb") as lock:
            if not try_lock(lock, is_shared=True):
                raise WarehouseError(
                    f"{describe_holder(path)} is merging. Run the command after it ended."
                )
            yield


def _check_bodies(home: Home, manifests: list[Manifest]) -> Finding:
    """Read every body to its end."""
    wrong: list[str] = []
    bodies: dict[str, Manifest] = {}
    for manifest in manifests:
        bodies.setdefault(manifest.sha256, manifest)
    for manifest in bodies.values():
        try:
            home.landing.check(manifest)
        except DamagedBatch as error:
            wrong.append(str(error))
    return Finding("landed bodies match their hashes", len(bodies), wrong)


def _check_batches(home: Home, published: PublishedFile) -> Finding:
    landed = {*home.landing.batch_ids(), *home.landing.damaged()}
    lost = sorted(published.batches.keys() - landed)
    waiting = len(landed - published.batches.keys() - home.landing.damaged().keys())
    wrong = [f"merged, but not in landing: {_list(lost)}"] if lost else []
    waits = "1 batch waits" if waiting == 1 else f"{waiting} batches wait"
    notes = [f"{waits} for the next merge"] if waiting else []
    check = "every landed batch is in the warehouse, or waiting"
    return Finding(check, len(landed), wrong, notes)


def _list(batch_ids: list[str]) -> str:
    more = f" and {len(batch_ids) - _NAMED} more" if len(batch_ids) > _NAMED else ""
    return f"{', '.join(batch_ids[:_NAMED])}{more}"


def _check_partitions(home: Home, connection: duckdb.DuckDBPyConnection) -> Finding:
    """Compare the Parquet files with the hashes that were recorded when they were written."""
    record = read_record(home.parquet)
    wrong = [
        f"parquet/{partition_name(key)} has other bytes than were written; {_REBUILD}"
        for key, partition in sorted(record.items())
        if not has_written_bytes(home.parquet, key, partition)
    ]
    contents = {key: partition.content for key, partition in record.items()}
    notes = []
    if contents != list_contents(connection):
        notes = ["the next `almanac merge` writes the Parquet files that changed since"]
    return Finding("the Parquet files have the bytes that were written", len(record), wrong, notes)


def _check_rebuild(home: Home, published: PublishedFile) -> Iterator[Finding]:
    """Rebuild the batches that took effect beside the home, and compare table by table."""
    with _temporary_folder(home) as folder:
        rebuilt = Home(folder)
        # Not the pending markers: the rebuild would remove them.
        for part in ("bodies", "batches"):
            link = rebuilt.root / "landing" / part
            link.parent.mkdir(exist_ok=True)
            link.symlink_to((home.root / "landing" / part).resolve())
        for batch_id, batch in published.batches.items():
            if batch.released:
                rebuilt.landing.storage.put(f"released/{batch_id}.json", MARKER)
        landed = {*home.landing.damaged(), *home.landing.batch_ids()}
        for batch_id in landed - published.batches.keys():
            rebuilt.landing.set_aside(batch_id, "it did not take effect yet")
        try:
            rebuild(rebuilt, with_repair=False)
        except (*_OF_THE_MACHINE, WarehouseError) as error:
            if _is_of_the_machine(error):
                raise _unfinished(error) from error
            yield Finding("the warehouse can be rebuilt", 1, [str(error)])
            return
        with _opened(home) as connection:
            for alias, path in (("published", home.warehouse), ("rebuilt", rebuilt.warehouse)):
                attach_published(connection, path, alias)
            for table in TABLES:
                if table.name not in LOCAL:
                    # The places of versions tell the order of merges, which a rebuild does not.
                    names = [name for name in table.names if name != "published_seq"]
                    parts = {"table": f'"{table.name}"', "columns": ddl.column_list(names)}
                    query = _SQL.fill("compare_rows", **parts)
                    ((rows, extra, lacking),) = connection.execute(query).fetchall()
                    found = f"{extra} rows are only there, {lacking} are missing; {_REBUILD}"
                    wrong = [found] if extra or lacking else []
                    yield Finding(f"{table.name} matches a rebuild", int(rows), wrong)


def _is_of_the_machine(error: BaseException | None) -> bool:
    """Whether an error, or one of its causes, is a lack of disk space or memory."""
    if error is None or isinstance(error, LandingError):
        return False
    return isinstance(error, _OF_THE_MACHINE) or _is_of_the_machine(error.__cause__)


def _unfinished(error: Exception) -> WarehouseError:
    why = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return WarehouseError(
        f"a check could not be finished: {why}. The home may be intact: the machine has too little "
        "disk or memory for the check, which rebuilds the warehouse in a temporary folder. "
        "Free space, then run `almanac verify --deep` again. Nothing was changed."
    )
