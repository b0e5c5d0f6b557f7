"""Verify: compare landing, lake and tables by reading all of them. Changes nothing.

`deep` also compares every file with its recorded hash, replays landing into a temporary folder, and
compares every row of every table. A finding says what is wrong with a file and what to do.
"""

import errno
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import duckdb

from almanac.reading.attached_file import attach_published
from almanac.reading.temporary import own_folder
from warehouse.errors import (
    CheckUnfinished,
    DamagedBatch,
    LakeDamaged,
    LandingError,
    LockHeld,
    UnknownBatch,
    WarehouseError,
)
from warehouse.files import lake_paths
from warehouse.files.documents import hash_file
from warehouse.files.locks import holder_text, try_lock
from warehouse.history.change_log import (
    ChangeLog,
    DayFile,
    find_changed_files,
    find_mismatch,
    find_older_days,
    list_files,
    read_head,
)
from warehouse.history.day import Checkpoints
from warehouse.history.fold import Fold
from warehouse.history.merge import replay
from warehouse.home import Home
from warehouse.landing.batches import Manifest
from warehouse.landing.landing import MARKER, MARKERS
from warehouse.publish.block_hashes import NOTE, PublishedHashes
from warehouse.publish.lake_files import STATE_OF_EVENTS, name_state_files
from warehouse.publish.spare_file import spare_path
from warehouse.schema.columns import GROUPS
from warehouse.schema.tables import TABLES
from warehouse.sql import Statements, literal

_SQL = Statements(__package__, GROUPS)

LOCAL = frozenset({"requests", "usage"})
"""Tables made from this machine's logs, not from landing."""
_NAMED: Final = 3
_PUBLISH: Final = (
    "a merge ended before it published; the next `almanac run` or `almanac merge` publishes"
)
_ANOTHER_FORM: Final = (
    "the warehouse was published by another version of Almanac, in another form; the next `almanac "
    "run` or `almanac merge` publishes it again"
)
_OF_THE_MACHINE: Final = (OSError, MemoryError, duckdb.IOException, duckdb.OutOfMemoryException)
_NO_ROOM: Final = tuple(
    map(os.strerror, (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES))
)


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check. `wrong` is empty if the check holds; `notes` are not faults."""

    check: str
    looked_at: int
    wrong: Sequence[str] = ()
    notes: Sequence[str] = ()

    @property
    def holds(self) -> bool:
        return not self.wrong


def verify(home: Home, *, deep: bool = False) -> Iterator[Finding]:
    """Yield the findings one by one, under the merge lock.

    A home that this user can't write to is verified too, and a replay of it is made elsewhere.

    Raises:
        CheckUnfinished: the disk or memory is too small for a check.
        LockHeld: a merge runs for longer than the home's wait.
    """
    with _no_merge(home):
        days, damaged = ChangeLog.of(home).readable(by_reading=True)
        # Days of other rules are refolded: the state and the tables may lack what is expected now.
        is_current = not find_older_days(days)
        manifests, unreadable = _read_manifests(home)
        count = len(manifests) + len(unreadable)
        yield Finding("no batch is damaged or set aside", count, unreadable)
        yield _check_bodies(home, manifests)
        count = len(days) + len(damaged)
        yield Finding("the days of the change log can be read", count, [str(e) for e in damaged])
        yield _check_batches(home, days)
        yield _check_chain(days)
        yield _check_head(home, days, is_current=is_current)
        yield _check_counts(days)
        if days and is_current:
            yield _check_checkpoint(home, days[-1])
        if deep:
            if is_current:
                yield _check_lake_files(home, days)
            yield _check_landing(home, manifests)
            yield _check_released(home, days)
            yield _check_stamp(home, manifests)
            yield _check_published(home)
        if not home.warehouse.is_file():
            wrong = ["it is missing; `almanac replay` rebuilds it"] if days else []
            yield Finding("the warehouse exists", len(days), wrong)
        elif not is_current:
            note = "lake and warehouse are checked after the days are refolded"
            yield Finding("the warehouse matches the lake", 0, notes=[note])
        else:
            yield from _comparing(home, lambda connection: _check_tables(connection, home, days))
            if deep:
                yield from _check_replay(home, days)


def _is_writable(home: Home) -> bool:
    return os.access(home.state, os.W_OK, effective_ids=True)


@contextmanager
def _no_merge(home: Home) -> Iterator[None]:
    """Hold the merge lock. Where this user can't write it, it is locked as it is."""
    path = home.state / "merge.lock"
    if _is_writable(home):
        with home.merge_lock():
            yield
    elif not path.exists():
        yield  # Nobody merged yet.
    else:
        with path.open("rb") as lock:
            if not try_lock(lock, shared=True):
                raise LockHeld(f"{holder_text(path)} is merging. Run the command after it ended.")
            yield


def _read_manifests(home: Home) -> tuple[list[Manifest], list[str]]:
    """Return the readable manifests, and why other batches are damaged."""
    found, damaged = home.landing.readable(home.landing.batch_ids())
    return found, [*home.landing.damaged().values(), *damaged.values()]


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


def _check_batches(home: Home, days: list[DayFile]) -> Finding:
    aside, waiting = home.landing.damaged().keys(), home.landing.pending()
    landed = {*home.landing.batch_ids(), *aside}
    folded = Counter(batch_id for day in days for batch_id in day.batches())
    groups = {
        "landed, but neither merged nor waiting": landed - folded.keys() - {*waiting} - aside,
        "merged, but not in landing": folded.keys() - landed,
        "merged more than once": {batch_id for batch_id, times in folded.items() if times > 1},
    }
    wrong = [f"{fault}: {_list(sorted(ids))}" for fault, ids in groups.items() if ids]
    return Finding("every landed batch is in the lake once, or waiting", len(landed), wrong)


def _list(batch_ids: list[str]) -> str:
    more = f" and {len(batch_ids) - _NAMED} more" if len(batch_ids) > _NAMED else ""
    return f"{', '.join(batch_ids[:_NAMED])}{more}"


def _check_chain(days: list[DayFile]) -> Finding:
    broken, others = find_mismatch(days), find_older_days(days)
    wrong = [f"the chain breaks at {broken}; `almanac merge` refolds from there"] if broken else []
    number = "1 day was" if len(others) == 1 else f"{len(others):,} days were"
    notes = [
        f"{number} folded by another version of Almanac, the first {day}; the next `almanac run` "
        "or `almanac merge` refolds from there, and reports the changes"
        for day in others[:1]
    ]
    return Finding("the days of the change log form a chain", len(days), wrong, notes)


def _check_head(home: Home, days: list[DayFile], *, is_current: bool) -> Finding:
    """Check that the change log ends with the day that was written last."""
    wrong: list[str] = []
    newest = (days[-1].day, days[-1].sha256) if days else (None, None)
    try:
        head = read_head(home.lake)
        if head is None:
            if days and is_current:
                wrong.append(f"{lake_paths.HEAD} is missing; `almanac merge` makes it again")
        elif head.unfinished_from is not None:
            since = head.unfinished_from
            wrong.append(f"a merge from {since} on was interrupted; run `almanac merge`")
        elif (head.day, head.sha256) != newest:
            wrong.append(
                f"the file of {head.day} was changed since it was written; `almanac replay` "
                "rebuilds it"
            )
    except LakeDamaged as error:
        wrong.append(str(error))
    return Finding("the change log is complete up to its recorded end", int(bool(days)), wrong)


def _check_counts(days: list[DayFile]) -> Finding:
    batches = [batch for day in days for batch in day.meta["batches"]]
    wrong = [
        f"{record['batch_id']}: {record['arrived']} rows arrived, {record['good']} are good, "
        f"{record['rejected']} rejected, {record['ignored']} ignored"
        for record in batches
        if record["good"] + record["rejected"] + record["ignored"] != record["arrived"]
        and record["status"] == "merged"
    ]
    check = "good, rejected and ignored rows add up to the rows that arrived"
    return Finding(check, len(batches), wrong)


def _check_checkpoint(home: Home, newest: DayFile) -> Finding:
    name, wrong = newest.head.checkpoint or "-", []
    connection = home.connect()
    try:
        Checkpoints(home.lake).load(name, Fold(connection), newest.head.fold_id, newest.head.files)
    except LakeDamaged as error:
        wrong = [str(error)]
    finally:
        connection.close()
    return Finding("the newest checkpoint is complete", 1, wrong)


def _check_lake_files(home: Home, days: list[DayFile]) -> Finding:
    check = "every file of the lake matches its hash"
    try:
        hashes = list_files(home.lake, days)
    except LakeDamaged as error:
        return Finding(check, 0, [str(error)])
    return Finding(check, len(hashes), [*find_changed_files(home.lake, hashes)])


def _check_landing(home: Home, manifests: list[Manifest]) -> Finding:
    """Check landing for files that belong to no batch, and for changed compressed bytes."""
    wrong: list[str] = []
    notes: list[str] = []
    storage = home.landing.storage
    stored: dict[Path, set[str | None]] = {}
    for manifest in manifests:
        stored.setdefault(home.landing.body_path(manifest), set()).add(manifest.stored_sha256)
    names = storage.names("bodies")
    for path in map(storage.path, names):
        if (hashes := stored.get(path)) is None:
            notes.append(
                f"{path.name} is the body of no batch: its landing was interrupted, or its "
                "manifest was lost"
            )
        elif None not in hashes and hash_file(path) not in hashes:
            wrong.append(
                f"{path.name} has other bytes than were landed, with the same content; `almanac "
                "replay` rewrites it"
            )
    ids = {manifest.batch_id for manifest in manifests} | home.landing.damaged().keys()
    for name in storage.names("batches"):
        if name.rpartition("/")[2].removesuffix(".json") not in ids:
            wrong.append(f"{name} is not a manifest; move it out of landing")
    wrong += _find_changed_markers(home)
    for batch_id in home.landing.marked():
        if batch_id not in ids:
            notes.append(
                f"pending/{batch_id}.json waits for a batch that does not exist: its landing was "
                "interrupted, or its manifest was lost"
            )
    check = "every file of landing belongs to a batch"
    return Finding(check, len(names) + len(ids), wrong, notes)


def _find_changed_markers(home: Home) -> Iterator[str]:
    for root in map(home.landing.storage.path, MARKERS):
        for path in sorted(root.iterdir()) if root.is_dir() else ():
            if path.name.startswith(".unfinished-"):
                continue
            name = f"{root.name}/{path.name}"
            try:
                if path.read_bytes() != MARKER:
                    yield f"{name} was changed since it was written; `almanac replay` repairs it"
            except OSError as error:
                yield f"{name} can't be read: {error.strerror}; `almanac replay` repairs it"


def _check_released(home: Home, days: list[DayFile]) -> Finding:
    """Check that the batches folded as released are still released, and the reverse."""
    folded = {
        record["batch_id"]: record["released"] for day in days for record in day.meta["batches"]
    }
    now = set(home.landing.released())
    kept = now.union(home.landing.marked("pending"))
    unknown = sorted(now - folded.keys() - home.landing.damaged().keys())
    wrong = [
        f"released/{batch_id}.json is missing, and {batch_id} was merged as released; "
        "`almanac replay` restores it"
        for batch_id in sorted(folded)
        if folded[batch_id] and batch_id not in kept
    ]
    wrong += [
        f"released/{batch_id}.json belongs to no batch; remove it"
        for batch_id in unknown
        if not _is_known(home, batch_id)
    ]
    return Finding("released batches are merged as released", len(now), wrong)


def _is_known(home: Home, batch_id: str) -> bool:
    try:
        home.landing.readable([batch_id])
    except UnknownBatch:
        return False
    return True


def _check_stamp(home: Home, manifests: list[Manifest]) -> Finding:
    """Check that the home's stamp is unchanged and names the source of the landed batches."""
    stamp, wrong = home.stamp(), []
    if stamp is None:
        wrong.append("it is missing; `almanac doctor --fix` rebuilds it")
    else:
        if not home.is_stamped_with(stamp):
            wrong.append("it was changed since it was written; `almanac doctor --fix` rebuilds it")
        if others := sorted({manifest.source for manifest in manifests} - {stamp.source}):
            wrong.append(f"it names {stamp.source}, and the batches are of {', '.join(others)}")
    return Finding("home.json names the source of the batches", len(manifests), wrong)


def _check_published(home: Home) -> Finding:
    """Check that the published file has the bytes that were published."""
    wrong: list[str] = []
    notes: list[str] = []
    is_there, hashes = home.warehouse.is_file(), PublishedHashes(home.state_storage)
    is_noted = hashes.is_noted()
    if is_there and not is_noted and home.state_storage.exists(NOTE):
        wrong = [f"state/{NOTE} was changed since it was written; `almanac replay` rebuilds it"]
    elif is_there and not is_noted:
        notes = ["its hash is not recorded; the next publication records it"]
    elif is_there:
        try:
            if not hashes.match(home.warehouse):
                wrong = ["it was changed since it was published; `almanac replay` rebuilds it"]
            spare = spare_path(home.warehouse)
            if spare.is_file() and not hashes.match(spare):
                wrong.append(f"{spare.name} beside it was changed; remove it: nothing is lost")
        except OSError as error:
            wrong = [f"it can't be read: {error.strerror}; `almanac replay` rebuilds it"]
    return Finding("the published file is unchanged", int(is_there), wrong, notes)


def _comparing(
    home: Home, check: Callable[[duckdb.DuckDBPyConnection], Iterable[Finding]]
) -> Iterator[Finding]:
    """Yield the findings of a check on a connection; an unreadable warehouse is one more.

    Raises:
        CheckUnfinished: the machine has too little memory.
    """
    connection = home.connect()
    try:
        yield from check(connection)
    except duckdb.OutOfMemoryException as error:
        raise _unfinished(error) from error
    except duckdb.Error as error:
        yield Finding("the warehouse can be read", 1, [str(error)])
    finally:
        connection.close()


def _check_tables(
    connection: duckdb.DuckDBPyConnection, home: Home, days: list[DayFile]
) -> Iterator[Finding]:
    """Compare the published tables with the lake, row by row."""
    attach_published(connection, home.warehouse, "published")
    if not connection.execute(_SQL["find_published_days"]).fetchall():
        yield Finding("the warehouse matches the lake", 0, notes=[_ANOTHER_FORM])
        return
    if not days:
        return
    lake = home.lake
    # If the warehouse is as it was published, the next merge publishes what it lacks.
    is_behind = PublishedHashes(home.state_storage).match(home.warehouse)
    yield _check_published_days(connection, days, is_behind=is_behind)
    changes = [literal(day.path) for day in days]
    names = (lake_paths.absences_name(day.day) for day in days)
    absences = [literal(lake.path(name)) for name in names if lake.exists(name)]
    state = name_state_files(days[-1].head.checkpoint or "-", days[-1].head.files)
    of_events = {table: lake.path(state[table]) for table in STATE_OF_EVENTS}
    events = {table: literal(path) for table, path in of_events.items() if path.is_file()}
    for table, name, source, files in (
        ("event_versions", "compare_versions", "the change log", {"files": changes}),
        ("event_claims", "compare_claims", "the change log", {"files": changes}),
        ("event_absences", "compare_absences", "the lake", {"files": absences}),
        ("events", "compare_events", "the checkpoint", events),
    ):
        if files.get("files") or len(files) == len(of_events):
            yield _compare(connection, f"{table} matches {source}", _SQL[name], files)
    yield _check_months(home, connection, is_behind=is_behind)


def _check_months(home: Home, connection: duckdb.DuckDBPyConnection, *, is_behind: bool) -> Finding:
    """Compare the lake's events by month, which other engines read, with the published ones."""
    names = map(lake_paths.events_in, home.lake.folders(lake_paths.EVENTS))
    files = [literal(home.lake.path(name)) for name in names if home.lake.exists(name)]
    check = "the events by month match the warehouse"
    if files:
        advice = _PUBLISH if is_behind else "`almanac replay` rebuilds them"
        return _compare(connection, check, _SQL["compare_months"], {"files": files}, advice)
    ((events,),) = connection.execute("SELECT count(*) FROM published.main.events").fetchall()
    return Finding(check, 0, ["there are none; `almanac replay` makes them"] if events else [])


def _check_published_days(
    connection: duckdb.DuckDBPyConnection, days: list[DayFile], *, is_behind: bool
) -> Finding:
    """Compare the published days with the days of the lake, by their hashes."""
    rows = connection.execute(_SQL["list_published_days"]).fetchall()
    differing = sorted({day for day, _ in {*rows} ^ {(day.day, day.sha256) for day in days}})
    advice = _PUBLISH if is_behind else "`almanac replay` rebuilds all of it"
    wrong = [f"they differ from {day} on; {advice}" for day in differing[:1]]
    return Finding("the days of the change log match the published days", len(rows), wrong)


def _compare(
    connection: duckdb.DuckDBPyConnection,
    check: str,
    query: str,
    values: Mapping[str, object] | None = None,
    advice: str = "",
) -> Finding:
    ((rows, extra, lacking),) = connection.execute(query, values).fetchall()
    wrong = f"{extra} rows are only there, {lacking} are missing{advice and '; '}{advice}"
    return Finding(check, int(rows), [wrong] if extra or lacking else [])


def _check_replay(home: Home, days: list[DayFile]) -> Iterator[Finding]:
    """Replay the batches that took effect beside the home, and compare table by table."""
    folded = {batch_id: record for day in days for batch_id, record in day.batches().items()}
    parent = home.state if _is_writable(home) else own_folder()
    with tempfile.TemporaryDirectory(prefix="almanac-verify-", dir=parent) as folder:
        replayed = Home(Path(folder))
        # Not the pending markers: the replay would remove them.
        for part in ("bodies", "batches"):
            link = replayed.root / "landing" / part
            link.parent.mkdir(exist_ok=True)
            link.symlink_to((home.root / "landing" / part).resolve())
        for batch_id, record in folded.items():
            if record["released"]:
                replayed.landing.storage.put(f"released/{batch_id}.json", MARKER)
        for batch_id in {*home.landing.damaged(), *home.landing.pending()} - folded.keys():
            replayed.landing.set_aside(batch_id, "it did not take effect yet")
        try:
            replay(replayed, with_repair=False)
        except (*_OF_THE_MACHINE, WarehouseError) as error:
            if _is_of_the_machine(error):
                raise _unfinished(error) from error
            yield Finding("landing can be replayed", 1, [str(error)])
            return

        def compare(connection: duckdb.DuckDBPyConnection) -> Iterator[Finding]:
            for alias, path in (("published", home.warehouse), ("replayed", replayed.warehouse)):
                attach_published(connection, path, alias)
            for table in TABLES:
                if table.name not in LOCAL:
                    query = _SQL["compare_rows"].replace("{table}", f'"{table.name}"')
                    yield _compare(connection, f"{table.name} matches a replay", query)

        yield from _comparing(home, compare)


def _is_of_the_machine(error: BaseException | None) -> bool:
    """Whether an error or one of its causes is of the disk or memory. DuckDB has it as text."""
    if error is None or isinstance(error, LandingError):
        return False
    return (
        isinstance(error, _OF_THE_MACHINE)
        or any(text in str(error) for text in _NO_ROOM)
        or _is_of_the_machine(error.__cause__)
    )


def _unfinished(error: Exception) -> CheckUnfinished:
    why = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return CheckUnfinished(
        f"a check could not be finished: {why}. This says nothing of the home: the disk or memory "
        "of the machine is too small for the check, which replays landing into a temporary folder. "
        "Free space, then run `almanac verify --deep` again. Nothing was changed."
    )
