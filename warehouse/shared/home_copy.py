"""The copy of a home in the bucket: what is shared, and how a machine comes up to date.

    home.json             written through, before any batch
    landing/…             written through (shared_storage.py), by any machine
    state/ (some notes)   sweeps, deferred and refused pulls written through, others at the end
    lake/…                in one transaction at the end of a merge, under the writer lease

The home folder is a cache. `catch_up` brings what other machines wrote; `commit` writes what
this merge changed. A lake that another machine replaced is fetched as a whole: a merge that was
killed before `commit` is forgotten, since landing has its batches and their markers.
`warehouse.duckdb` is not shared: a publication builds it from the lake.
"""

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

import msgspec

from warehouse.errors import HomeRefused, ObjectDamaged
from warehouse.files.lake_paths import parse_day
from warehouse.files.locks import WAIT_S, hold_lock
from warehouse.files.storage import Storage
from warehouse.shared.file_index import LAKE, LANDING, STATE, FileIndex, SharedFile
from warehouse.shared.local_index import LocalFile, LocalIndex, read_stat
from warehouse.shared.shared_storage import PENDING, SharedStorage, is_landed, upload

if TYPE_CHECKING:
    from warehouse.shared.lease import Lease

STAMP: Final = "home.json"
_THROUGH: Final = ("sweeps/", "deferred/", "refused/")
"""Notes that say which requests are not to be sent again: written before they count."""
_AT_END: Final = (
    "alerts.json",
    "backfilled_months.json",
    "digest.json",
    "limits.json",
    "quiet_batches.json",
    "service_clock.json",
    "usage.jsonl",
)
"""Notes that are stored at the end of a session and of a merge."""
_THREADS: Final = 8
_REPORTED_EVERY_S: Final = 10.0
_SEEN: Final = "seen"
"""The newest `seq` that was read."""
_LAKE_NEWEST: Final = "lake_newest"
"""The newest `seq` of the lake that was read."""
_LAKE_HERE: Final = "lake_here"
"""The newest `seq` of the lake that this machine has."""
_JOINED: Final = "joined"
_BATCHES: Final = LANDING + "batches/"
_ORDER: Final = (LANDING + "bodies/", _BATCHES, LANDING, STATE)
"""Files appear in this order: a manifest after its body. `home.json` is last: without it there is
no home."""
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CopyProblem:
    """A file of the index whose object is missing or has another size."""

    name: str
    sha256: str
    why: str

    def __str__(self) -> str:
        return f"{self.name}: its object {self.sha256} {self.why}"


class HomeCopy:
    """The shared part of a home at `root`."""

    def __init__(self, root: Path, index: FileIndex, *, wait_s: float = WAIT_S) -> None:
        self.root = root
        self.index = index
        self._wait_s = wait_s
        self._state = root / "state"
        self._files = Storage(root)
        self._local = LocalIndex(self._state, root)

    def __repr__(self) -> str:
        return f"HomeCopy({str(self.root)!r}, {self.index.bucket!r})"

    @property
    def landing(self) -> Storage:
        return SharedStorage(self.root / "landing", self.index, LANDING, is_landed)

    @property
    def state(self) -> Storage:
        """The state folder; notes of pulls and backfills are written through."""
        return SharedStorage(
            self._state, self.index, STATE, lambda name: f"{name}/".startswith(_THROUGH)
        )

    @property
    def top(self) -> Storage:
        """The home folder, for its stamp."""
        return SharedStorage(self.root, self.index, "", lambda name: name == STAMP)

    @property
    def is_lake_behind(self) -> bool:
        """Whether the index had a newer lake when it was last read. Reads no database."""
        marks = self._local.marks()
        return marks.get(_LAKE_NEWEST, 0) > marks.get(_LAKE_HERE, 0)

    @property
    def synchronised_at(self) -> datetime | None:
        """When this machine last read or wrote the index, None if never; UTC."""
        return self._local.changed_at

    def catch_up(self, *, with_lake: bool = False, repairing: bool = False) -> None:
        """Fetch what other machines wrote, and remove what they removed.

        `with_lake` needs the lock of the merge. `repairing` also fetches files of landing that are
        missing here or have other bytes.

        Raises:
            SharedDatabaseError, BucketUnusable, ObjectDamaged: what is there is intact, the rest
                follows at the next call.
        """
        with self._locked():
            marks = self._local.marks()
            home = f"{_JOINED} {self.index.connect()}"
            if home not in marks:
                self._local.forget()
                marks = {}
            rows = self.index.changes(marks.get(_SEEN, 0))
            if not marks:
                self._join({row.name: row for row in rows})
            self._apply([row for row in rows if not row.name.startswith(LAKE)])
            newest = max((row.seq for row in rows), default=marks.get(_SEEN, 0))
            lake = max(
                (row.seq for row in rows if row.name.startswith(LAKE)),
                default=marks.get(_LAKE_NEWEST, 0),
            )
            self._local.record(marks={_SEEN: newest, _LAKE_NEWEST: lake, home: 1})
            if with_lake and lake > marks.get(_LAKE_HERE, 0):
                self._share_own_batches()
                self._replace_lake(lake)
            if repairing:
                self._repair()

    def _join(self, rows: Mapping[str, SharedFile]) -> None:
        """Upload the files of this home that the index has never had; the stamp is the last one."""
        if STAMP in rows:
            self._refuse_other_source(rows[STAMP])
            self._mark_pending(rows)
        found = [
            *(name for name in self._files.names("landing") if is_landed(name)),
            *self._state_files(),
        ]
        known = self._local.files("")
        self._upload([name for name in found if name not in rows], known)
        if STAMP not in rows and (self.root / STAMP).is_file():
            self._upload([STAMP], known)

    def _upload_unshared(self, lake_files: Iterable[SharedFile]) -> None:
        """Upload landing if this machine landed a batch of these days without the bucket."""
        known = self._local.files(LANDING)
        folders = {Path(file.name).parent.name for file in lake_files}
        days = {parse_day(folder) for folder in folders} - {None}
        if all(name in known for day in days for name in self._files.names(f"{_BATCHES}{day}")):
            return
        self._upload_landing(known)

    def _share_own_batches(self) -> None:
        """Upload what this machine landed without the bucket; the lake of the index lacks it."""
        known = self._local.files(LANDING)
        self._mark_pending(known)
        self._upload_landing(known)

    def _upload_landing(self, known: Mapping[str, LocalFile]) -> None:
        """Upload the files of landing that this machine has not shared yet."""
        found = [name for name in self._files.names("landing") if is_landed(name)]
        self._upload([name for name in found if name not in known], known)

    def _mark_pending(self, known: Collection[str]) -> None:
        """Mark batches that the index has never had, so that the next merge folds them.

        The lake of this machine may have them, and is about to be replaced by another.
        """
        for name in self._files.names(_BATCHES.rstrip("/")):
            if name not in known and name.endswith(".json"):
                self._files.put(f"{LANDING}{PENDING}{Path(name).name}", b"{}")

    def _refuse_other_source(self, row: SharedFile) -> None:
        """Check that the home on this disk, if there is one, has the source of the bucket.

        Raises:
            HomeRefused: it has another; two histories must not be mixed.
        """
        if row.sha256 is None or not (self.root / STAMP).is_file():
            return
        with self._files.staging() as staged:
            self.index.bucket.fetch(row.sha256, staged)
            there = _read_source(staged)
        here = _read_source(self.root / STAMP)
        if here != there:
            raise HomeRefused(
                f"the home {self.root} holds data of {here}, and the bucket "
                f"{self.index.bucket.address} data of {there}. Nothing was changed; set "
                "ALMANAC_HOME to another folder, or ALMANAC_BUCKET and ALMANAC_POSTGRES to others."
            )

    def _apply(self, rows: Sequence[SharedFile]) -> None:
        """Make files of this machine those of some rows."""
        known = self._local.files("")
        removed = [row.name for row in rows if row.sha256 is None]
        for name in removed:
            self._remove(name)
        lacking = [row for row in rows if row.sha256 is not None and self._differs(row, known)]
        for folder in _ORDER:
            chosen = [row for row in lacking if row.name.startswith(folder)]
            lacking = [row for row in lacking if not row.name.startswith(folder)]
            self._fetch(chosen)
        self._fetch(lacking)
        self._local.record([row for row in rows if row.sha256 is not None], removed)

    def _differs(self, row: SharedFile, known: Mapping[str, LocalFile]) -> bool:
        path = self.root / row.name
        if not path.is_file() or path.stat().st_size != row.bytes:
            return True
        return self._local.hash(row.name, known)[0] != row.sha256

    def _replace_lake(self, newest: int) -> None:
        """Make the lake of this machine the one of the index, and its markers."""
        rows, known = self.index.files(LAKE), self._local.files(LAKE)
        here = self._files.names("lake")
        lacking = [row for row in rows.values() if self._differs(row, known)]
        # The head last: without it, or with an older one, a merge folds the days again.
        head = [row for row in lacking if row.name.count("/") == 1]
        self._fetch([row for row in lacking if row not in head])
        gone = [name for name in here if name not in rows]
        for name in gone:
            self._remove(name)
        self._fetch(head)
        pending = self.index.files(LANDING + PENDING)
        self._fetch([row for row in pending.values() if not (self.root / row.name).exists()])
        here_now = max([newest, *(row.seq for row in rows.values())])
        self._local.record(
            [*rows.values(), *pending.values()],
            [*known.keys() - rows.keys()],
            {_LAKE_NEWEST: here_now, _LAKE_HERE: here_now},
        )

    def _repair(self) -> None:
        rows = [row for row in self.index.files(LANDING).values() if PENDING not in row.name]
        known = self._local.files(LANDING)
        self._apply([row for row in rows if self._differs(row, known)])

    def commit(self, lease: "Lease") -> None:
        """Write the lake that this machine has, in one transaction under the lease.

        Raises:
            StaleWriter: another machine took over; nothing was written. The next merge fetches its
                lake.
            SharedDatabaseError, BucketUnusable: the next merge commits it.
        """
        with self._locked():
            known = self._local.files("")
            here = self._files.names("lake")
            kept = {*here, *self._files.names(f"{LANDING}{PENDING}".rstrip("/"))}
            gone = [
                name
                for name in known
                if name.startswith((LAKE, LANDING + PENDING)) and name not in kept
            ]
            changed = self._changed([*here, *self._state_files()], known)
            if not changed and not gone:
                return
            self._upload_unshared(changed)
            self._put_objects(changed)
            lake = self.index.write(changed, removed=gone, lease=lease)
            marks = {_LAKE_NEWEST: lake, _LAKE_HERE: lake} if lake else {}
            self._local.record(changed, gone, marks)

    def share_state(self) -> None:
        """Write the notes that another machine needs."""
        with self._locked():
            known = self._local.files(STATE)
            self._upload(self._state_files(), known)

    def _state_files(self) -> list[str]:
        """Return the names of the shared notes that exist."""
        through = (
            name for folder in _THROUGH for name in self._files.names(STATE + folder.rstrip("/"))
        )
        at_end = (STATE + name for name in _AT_END if (self._state / name).is_file())
        return [*(name for name in through if name.endswith(".json")), *at_end]

    def _changed(self, names: Iterable[str], known: Mapping[str, LocalFile]) -> list[SharedFile]:
        """Return the files that differ from their rows, as this machine has them."""
        found = []
        for name in names:
            before = known.get(name)
            if before is None or before.stat != read_stat(self.root / name):
                sha256, size = self._local.hash(name, known)
                if before is None or before.sha256 != sha256:
                    found.append(SharedFile(name, sha256, size))
        return found

    def _upload(self, names: Iterable[str], known: Mapping[str, LocalFile]) -> None:
        """Write some files that differ from their rows: objects, then rows, by the thousand."""
        changed = self._changed(names, known)
        for first in range(0, len(changed), 1000):
            part = changed[first : first + 1000]
            self._put_objects(part, first, len(changed))
            self.index.write(part)
            self._local.record(part)

    def _put_objects(self, files: Sequence[SharedFile], done: int = 0, total: int = 0) -> None:
        def put(file: SharedFile) -> None:
            assert file.sha256 is not None
            upload(self.index, self.root / file.name, file.sha256, file.bytes)

        _transfer("Copied to", files, put, done, total or len(files))

    def _fetch(self, rows: Sequence[SharedFile]) -> None:
        def fetch(row: SharedFile) -> None:
            assert row.sha256 is not None
            with self._files.staging() as staged:
                try:
                    self.index.bucket.fetch(row.sha256, staged)
                except ObjectDamaged as error:
                    raise ObjectDamaged(f"{row.name} can't be fetched: {error}") from None
                self._files.adopt(staged, row.name)

        _transfer("Fetched from", rows, fetch, 0, len(rows))

    def _remove(self, name: str) -> None:
        """Remove a file, and its folders that are empty then."""
        self._files.remove(name)
        top = self.root / name.partition("/")[0]
        for folder in (self.root / name).parents:
            if folder in (top, self.root) or not folder.is_dir() or any(folder.iterdir()):
                return
            folder.rmdir()

    def problems(self) -> list[CopyProblem]:
        """Return the files whose objects are missing or have another size."""
        sizes = {sha256: size for sha256, size, _ in self.index.bucket.objects()}
        found = []
        for row in self.index.files().values():
            assert row.sha256 is not None
            size = sizes.get(row.sha256)
            if size != row.bytes:
                why = "is missing" if size is None else f"has {size:,} bytes, not {row.bytes:,}"
                found.append(CopyProblem(row.name, row.sha256, why))
        return found

    def restore(self, problems: Iterable[CopyProblem]) -> list[str]:
        """Write objects again from the files of this machine; return the names that were."""
        found = []
        for problem in problems:
            path = self.root / problem.name
            if path.is_file() and self._local.hash(problem.name, {})[0] == problem.sha256:
                self.index.bucket.put(path, problem.sha256)
                found.append(problem.name)
        return found

    def prune(self, before: datetime, *, dry_run: bool) -> tuple[int, int]:
        """Remove the objects that no file refers to and that are older than `before`.

        Returns how many, and their bytes.
        """
        unused = self.index.find_unused(before)
        if not dry_run:
            for sha256 in unused:
                self.index.remove_unused(sha256)
        return len(unused), sum(unused.values())

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with hold_lock(
            self._state / "bucket.lock", "to synchronise with the bucket", wait_s=self._wait_s
        ):
            yield


def _transfer(
    what: str,
    files: Sequence[SharedFile],
    work: Callable[[SharedFile], None],
    done: int,
    total: int,
) -> None:
    """Do some work for each file in parallel; log the progress of a long transfer."""
    if not files:
        return
    turn, reported, failed = threading.Lock(), monotonic(), threading.Event()

    def carry(file: SharedFile) -> None:
        nonlocal done, reported
        if failed.is_set():
            return
        try:
            work(file)
        except BaseException:
            failed.set()
            raise
        with turn:
            done += 1
            if monotonic() - reported >= _REPORTED_EVERY_S:
                reported = monotonic()
                log.warning("%s the bucket: %s of %s files.", what, f"{done:,}", f"{total:,}")

    with ThreadPoolExecutor(min(_THREADS, len(files)), thread_name_prefix="bucket") as pool:
        for finished in [pool.submit(carry, file) for file in files]:
            finished.result()


def _read_source(path: Path) -> str:
    try:
        return str(msgspec.json.decode(path.read_bytes(), type=dict[str, Any])["source"])
    except (OSError, ValueError, KeyError):
        return "an unreadable home.json"
