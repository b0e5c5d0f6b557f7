"""Verify: compare landing, lake and tables by reading all of them. Changes nothing.

`deep` also compares every file with its recorded hash, replays landing into a temporary folder, and
compares every row of every table. A finding says what is wrong with a file and what to do.
"""

import errno
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
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
from warehouse.files.documents import sha256_of
from warehouse.files.lake_paths import HEAD
from warehouse.files.locks import holder_text, try_lock
from warehouse.history.change_log import (
    ChangeLog,
    DayFile,
    files_of,
    first_mismatch,
    folded_by_other_rules,
    read_head,
)
from warehouse.history.checkpoints import Checkpoints
from warehouse.history.fold import Fold
from warehouse.history.merge import replay
from warehouse.home import Home
from warehouse.landing.batches import Manifest
from warehouse.landing.landing import MARKER, MARKERS
from warehouse.publish.staged_file import NOTE, published_as
from warehouse.schema.columns import GROUPS
from warehouse.schema.tables import TABLES
from warehouse.sql import Statements, literal

_SQL = Statements(__package__, GROUPS)

LOCAL = frozenset({"requests", "usage"})
"""Tables made from this machine's logs, not from landing."""
_NAMED = 3
_AFTER_REFOLD = "it is checked after its days are refolded"


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check. `wrong` is empty if the check holds; `notes` are not faults."""

    check: str
    looked_at: int
    wrong: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

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
        log = ChangeLog.of(home)
        days, damaged = log.readable(by_reading=True)
        manifests, found = _read_manifests(home)
        yield found
        yield _check_bodies(home, manifests)
        messages = tuple(str(error) for error in damaged)
        yield Finding("the days of the change log can be read", len(days) + len(messages), messages)
        yield _batches(home, days)
        yield _chain(days)
        yield _check_head(home, days)
        yield _counts(days)
        if days:
            yield _checkpoint(home, days[-1])
        if deep:
            yield _check_lake_files(home, days)
            yield _check_landing(home, manifests)
            yield _check_released(home, days)
            yield _check_stamp(home, manifests)
            yield _check_published(home)
        if not home.warehouse.is_file():
            wrong = ("it is missing; `almanac replay` rebuilds it",) if days else ()
            yield Finding("the warehouse exists", len(days), wrong)
            return
        if folded_by_other_rules(days):
            # The state and the tables may lack what this version expects of them.
            yield Finding("the warehouse matches the lake", 0, notes=(_AFTER_REFOLD,))
        else:
            yield from _tables(home, days)
        if deep:
            yield from _replayed(home, days)


def _is_writable(home: Home) -> bool:
    return os.access(home.state, os.W_OK, effective_ids=True)


@contextmanager
def _no_merge(home: Home) -> Iterator[None]:
    """Hold the merge lock. Where this user can't write it, it is locked as it is."""
    if _is_writable(home):
        with home.merge_lock():
            yield
        return
    path = home.state / "merge.lock"
    if not path.exists():
        yield  # Nobody merged yet.
        return
    with path.open("rb") as lock:
        if not try_lock(lock, shared=True):
            raise LockHeld(f"{holder_text(path)} is merging. Run the command when it has ended.")
        yield


def _batches(home: Home, days: list[DayFile]) -> Finding:
    landed = {*home.landing.batch_ids(), *home.landing.damaged()}
    waiting = set(home.landing.pending())
    folded: dict[str, int] = {}
    for day in days:
        for batch_id in day.batches():
            folded[batch_id] = folded.get(batch_id, 0) + 1
    lost = sorted(landed - folded.keys() - waiting - home.landing.damaged().keys())
    unknown = sorted(folded.keys() - landed)
    repeated = sorted(batch_id for batch_id, times in folded.items() if times > 1)
    wrong = (
        *_listed("landed, but neither merged nor waiting", lost),
        *_listed("merged, but not in landing", unknown),
        *_listed("merged more than once", repeated),
    )
    return Finding("every landed batch is in the lake once, or waiting", len(landed), wrong)


def _chain(days: list[DayFile]) -> Finding:
    broken = first_mismatch(days)
    wrong = (
        ()
        if broken is None
        else (f"the chain breaks at {broken}; `almanac merge` refolds from there",)
    )
    others = folded_by_other_rules(days)
    notes = (_upgrade(others),) if others else ()
    return Finding("the days of the change log form a chain", len(days), wrong, notes)


_PUBLISH: Final = (
    "a merge ended before it published; the next `almanac run` or `almanac merge` publishes"
)
_ANOTHER_FORM: Final = (
    "the warehouse was published by another version of Almanac, in another form; the next `almanac "
    "run` or `almanac merge` publishes it again"
)


def _upgrade(others: list[date]) -> str:
    days = "1 day was" if len(others) == 1 else f"{len(others):,} days were"
    return (
        f"{days} folded by another version of Almanac, the first {others[0]}; the next `almanac "
        "run` or `almanac merge` refolds from there, and reports the changes"
    )


def _counts(days: list[DayFile]) -> Finding:
    batches = [batch for day in days for batch in day.meta["batches"]]
    wrong = [
        f"{record['batch_id']}: {record['arrived']} rows arrived, {record['good']} are good, "
        f"{record['rejected']} rejected, {record['ignored']} ignored"
        for record in batches
        if record["good"] + record["rejected"] + record["ignored"] != record["arrived"]
        and record["status"] == "merged"
    ]
    return Finding(
        "good, rejected and ignored rows add up to the rows that arrived",
        len(batches),
        tuple(wrong),
    )


def _checkpoint(home: Home, newest: DayFile) -> Finding:
    if folded_by_other_rules([newest]):
        return Finding("the newest checkpoint is complete", 0, notes=(_AFTER_REFOLD,))
    name = newest.head.checkpoint or "-"
    connection = home.connect()
    try:
        Checkpoints(home.lake).load(name, Fold(connection), newest.head.fold_id, newest.head.files)
    except LakeDamaged as error:
        return Finding("the newest checkpoint is complete", 1, (str(error),))
    finally:
        connection.close()
    return Finding("the newest checkpoint is complete", 1)


def _tables(home: Home, days: list[DayFile]) -> Iterator[Finding]:
    """Compare the published tables with the lake, row by row."""
    connection = home.connect()
    try:
        attach_published(connection, home.warehouse, "published")
        if not connection.execute(_SQL["find_published_days"]).fetchall():
            yield Finding("the warehouse matches the lake", 0, notes=(_ANOTHER_FORM,))
        elif days:
            is_behind = _is_behind(home)
            yield _history(connection, days, is_behind=is_behind)
            files = [literal(day.path) for day in days]
            yield _compared(
                connection, "event_versions", "compare_versions", {"files": files}, "the change log"
            )
            yield _compared(
                connection, "event_claims", "compare_claims", {"files": files}, "the change log"
            )
            names = (lake_paths.absences_name(day.day) for day in days)
            absences = [literal(home.lake.path(name)) for name in names if home.lake.exists(name)]
            if absences:
                values = {"files": absences}
                yield _compared(
                    connection, "event_absences", "compare_absences", values, "the lake"
                )
            checkpoint = days[-1].head.checkpoint or "-"
            events = home.lake.path(lake_paths.checkpoint_table(checkpoint, "events"))
            if events.is_file():
                file = {"file": literal(events)}
                yield _compared(connection, "events", "compare_events", file, "the checkpoint")
            yield _months(home, connection, is_behind=is_behind)
    except duckdb.OutOfMemoryException as error:
        raise _unfinished(error) from error
    except duckdb.Error as error:
        yield Finding("the warehouse can be read", 1, (str(error),))
    finally:
        connection.close()


def _is_behind(home: Home) -> bool:
    """Whether the warehouse is as it was published: then what it lacks can be published."""
    return sha256_of(home.warehouse) in published_as(home.state_storage)


def _months(home: Home, connection: duckdb.DuckDBPyConnection, *, is_behind: bool) -> Finding:
    """Compare the lake's events by month, which other engines read, with the published ones."""
    names = map(lake_paths.events_in, home.lake.folders(lake_paths.EVENTS))
    files = [literal(home.lake.path(name)) for name in names if home.lake.exists(name)]
    check = "the events by month match the warehouse"
    if not files:
        ((events,),) = connection.execute("SELECT count(*) FROM published.main.events").fetchall()
        return Finding(check, 0, ("there are none; `almanac replay` makes them",) if events else ())
    rows, extra, lacking = connection.execute(_SQL["compare_months"], {"files": files}).fetchall()[
        0
    ]
    advice = _PUBLISH if is_behind else "`almanac replay` rebuilds them"
    wrong = f"{extra} rows are only there, {lacking} are missing; {advice}"
    return Finding(check, int(rows), (wrong,) if extra or lacking else ())


def _history(
    connection: duckdb.DuckDBPyConnection, days: list[DayFile], *, is_behind: bool
) -> Finding:
    """Compare the published days with the days of the lake, by their hashes."""
    rows = connection.execute(_SQL["list_published_days"]).fetchall()
    there = [(day_file.day, day_file.sha256) for day_file in days]
    check = "the days of the change log match the published days"
    differing = sorted({day for day, _ in {*rows} ^ {*there}})
    if not differing:
        return Finding(check, len(rows))
    advice = _PUBLISH if is_behind else "`almanac replay` rebuilds all of it"
    return Finding(check, len(rows), (f"they differ from {differing[0]} on; {advice}",))


def _compared(
    connection: duckdb.DuckDBPyConnection,
    table: str,
    name: str,
    values: Mapping[str, object],
    beside: str,
) -> Finding:
    rows, extra, lacking = connection.execute(_SQL[name], values).fetchall()[0]
    wrong = (f"{extra} rows are only there, {lacking} are missing",) if extra or lacking else ()
    return Finding(f"{table} matches {beside}", int(rows), wrong)


def _replayed(home: Home, days: list[DayFile]) -> Iterator[Finding]:
    """Replay the batches that took effect beside the home, and compare table by table."""
    if folded_by_other_rules(days):
        # A replay uses other rules than those days did, so a difference would not show damage.
        yield Finding("the warehouse matches a replay", 0, notes=(_AFTER_REFOLD,))
        return
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
            yield Finding("landing can be replayed", 1, (str(error),))
            return
        connection = home.connect()
        try:
            for alias, path in (("published", home.warehouse), ("replayed", replayed.warehouse)):
                attach_published(connection, path, alias)
            for table in TABLES:
                if table.name not in LOCAL:
                    yield _same(connection, table.name)
        except duckdb.OutOfMemoryException as error:
            raise _unfinished(error) from error
        except duckdb.Error as error:
            yield Finding("the warehouse can be read", 1, (str(error),))
        finally:
            connection.close()


_OF_THE_MACHINE: Final = (OSError, MemoryError, duckdb.IOException, duckdb.OutOfMemoryException)


_NO_ROOM: Final = tuple(
    map(os.strerror, (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES))
)


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


def _same(connection: duckdb.DuckDBPyConnection, table: str) -> Finding:
    name = f'"{table}"'
    query = _SQL["compare_rows"].replace("{table}", name)
    rows, extra, lacking = connection.execute(query).fetchall()[0]
    wrong = (f"{extra} rows are only there, {lacking} are missing",) if extra or lacking else ()
    return Finding(f"{table} matches a replay", int(rows), wrong)


def _listed(what: str, batch_ids: list[str]) -> tuple[str, ...]:
    if not batch_ids:
        return ()
    more = f" and {len(batch_ids) - _NAMED} more" if len(batch_ids) > _NAMED else ""
    return (f"{what}: {', '.join(batch_ids[:_NAMED])}{more}",)


def _read_manifests(home: Home) -> tuple[list[Manifest], Finding]:
    """Return the readable manifests, and the finding about all of them."""
    found: list[Manifest] = []
    wrong: list[str] = list(home.landing.damaged().values())
    for batch_id in home.landing.batch_ids():
        try:
            found.append(home.landing.manifest(batch_id))
        except DamagedBatch as error:
            wrong.append(str(error))
    looked_at = len(found) + len(wrong)
    return found, Finding("no batch is damaged or set aside", looked_at, tuple(wrong))


def _check_bodies(home: Home, manifests: list[Manifest]) -> Finding:
    """Read every body to its end."""
    wrong: dict[str, str] = {}
    seen: set[str] = set()
    for manifest in manifests:
        if manifest.sha256 not in seen:
            seen.add(manifest.sha256)
            try:
                home.landing.check(manifest)
            except DamagedBatch as error:
                wrong[manifest.sha256] = str(error)
    check = "landed bodies match their hashes"
    return Finding(check, len(seen), tuple(wrong.values()))


def _check_lake_files(home: Home, days: list[DayFile]) -> Finding:
    """Check every file of the lake."""
    check = "every file of the lake matches its hash"
    if folded_by_other_rules(days):
        return Finding(check, 0, notes=(_AFTER_REFOLD,))
    try:
        files = files_of(home.lake, days)
    except LakeDamaged as error:
        return Finding(check, 0, (str(error),))
    return Finding(check, len(files.hashes), tuple(files.damaged(home.lake)))


def _check_head(home: Home, days: list[DayFile]) -> Finding:
    """Check that the change log ends with the day that was written last."""
    check = "the change log is complete up to its recorded end"
    try:
        found = read_head(home.lake)
    except LakeDamaged as error:
        return Finding(check, 1, (str(error),))
    newest = days[-1] if days else None
    if found is None:
        wrong = (f"{HEAD} of the lake is missing; `almanac merge` makes it again",)
        is_lost = newest is not None and not folded_by_other_rules(days)
        return Finding(check, 0, wrong if is_lost else ())
    if found.unfinished_from is not None:
        wrong = (f"a merge from {found.unfinished_from} on was interrupted; run `almanac merge`",)
        return Finding(check, 1, wrong)
    expected = (found.day, found.sha256)
    if expected != (None if newest is None else newest.day, newest and newest.sha256):
        return Finding(
            check,
            1,
            (
                (
                    f"the file of {found.day} was changed since it was written; `almanac replay` "
                    "rebuilds it"
                ),
            ),
        )
    return Finding(check, 1)


def _check_landing(home: Home, manifests: list[Manifest]) -> Finding:
    """Check landing for files that belong to no batch, and for changed compressed bytes."""
    wrong: list[str] = []
    notes: list[str] = []
    storage = home.landing.storage
    stored: dict[str, set[str | None]] = {}
    for manifest in manifests:
        stored.setdefault(manifest.sha256, set()).add(manifest.stored_sha256)
    known = {home.landing.body_path(manifest): manifest.sha256 for manifest in manifests}
    aside = home.landing.damaged()
    names = storage.names("bodies")
    for path in map(storage.path, names):
        if path not in known:
            notes.append(
                f"{path.name} is the body of no batch: its landing was interrupted, or its "
                "manifest was lost"
            )
        elif None not in (hashes := stored[known[path]]) and sha256_of(path) not in hashes:
            wrong.append(
                f"{path.name} has other bytes than were landed, with the same content; `almanac "
                "replay` rewrites it"
            )
    ids = {manifest.batch_id for manifest in manifests} | aside.keys()
    for name in storage.names("batches"):
        if name.rpartition("/")[2].removesuffix(".json") not in ids:
            wrong.append(f"{name} is not a manifest; move it out of landing")
    for folder in MARKERS:
        wrong += _markers(home, folder)
    for batch_id in home.landing.marked():
        if batch_id not in ids:
            notes.append(
                f"pending/{batch_id}.json waits for a batch that does not exist: its landing was "
                "interrupted, or its manifest was lost"
            )
    check = "every file of landing belongs to a batch"
    return Finding(check, len(names) + len(ids), tuple(wrong), tuple(notes))


def _markers(home: Home, folder: str) -> Iterator[str]:
    storage = home.landing.storage
    root = storage.path(folder)
    for path in sorted(root.iterdir()) if root.is_dir() else ():
        if path.name.startswith(".unfinished-"):
            continue
        try:
            data = path.read_bytes()
        except OSError as error:
            yield (
                f"{folder}/{path.name} can't be read: {error.strerror}; `almanac replay` repairs it"
            )
            continue
        if data != MARKER:
            yield (
                f"{folder}/{path.name} was changed since it was written; `almanac replay` "
                "repairs it"
            )


def _check_stamp(home: Home, manifests: list[Manifest]) -> Finding:
    """Check that the home's stamp is unchanged and names the source of the landed batches."""
    found = home.stamp()
    wrong: list[str] = []
    if found is None:
        wrong.append("it is missing; `almanac doctor --fix` rebuilds it")
    elif not home.is_stamped_with(found):
        wrong.append("it was changed since it was written; `almanac doctor --fix` rebuilds it")
    sources = sorted(
        {manifest.source for manifest in manifests} - ({found.source} if found else set())
    )
    if found is not None and sources:
        wrong.append(f"it names {found.source}, and the batches are of {', '.join(sources)}")
    return Finding("home.json names the source of the batches", len(manifests), tuple(wrong))


def _check_published(home: Home) -> Finding:
    """Check that the published file has the bytes that were published."""
    check = "the published file is unchanged"
    hashes = published_as(home.state_storage)
    if not home.warehouse.is_file():
        return Finding(check, 0)
    if not hashes:
        wrong: tuple[str, ...] = ()
        if home.state_storage.exists(NOTE):
            wrong = (
                f"state/{NOTE} was changed since it was written; `almanac replay` rebuilds it",
            )
        notes = ("its hash is not recorded; the next publication records it",)
        return Finding(check, 1, wrong, () if wrong else notes)
    try:
        is_it = sha256_of(home.warehouse) in hashes
    except OSError as error:
        return Finding(check, 1, (f"it can't be read: {error.strerror}; `almanac replay`",))
    wrong = ("it was changed since it was published; `almanac replay` rebuilds it",)
    return Finding(check, 1, () if is_it else wrong)


def _check_released(home: Home, days: list[DayFile]) -> Finding:
    """Check that the batches folded as released are still released, and the reverse."""
    folded = {
        record["batch_id"]: record["released"] for day in days for record in day.meta["batches"]
    }
    now = set(home.landing.released())
    waiting = set(home.landing.marked("pending"))
    lost = sorted(
        batch_id for batch_id, was in folded.items() if was and batch_id not in now | waiting
    )
    seen = folded.keys() | home.landing.damaged().keys()
    unknown = sorted(batch_id for batch_id in now - seen if not _is_known(home, batch_id))
    wrong = [
        f"released/{batch_id}.json is missing, and {batch_id} was merged as released; "
        "`almanac replay` restores it"
        for batch_id in lost
    ]
    wrong += [f"released/{batch_id}.json belongs to no batch; remove it" for batch_id in unknown]
    return Finding("released batches are merged as released", len(now), tuple(wrong))


def _is_known(home: Home, batch_id: str) -> bool:
    try:
        home.landing.manifest(batch_id)
    except UnknownBatch:
        return False
    except DamagedBatch:
        pass
    return True
