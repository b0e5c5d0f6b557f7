"""Verify: compare every file of a home with the hash that was recorded when it was written.

Changes nothing. A finding says what happened to a file and what to do. Belongs here: the files.
Does not: whether their contents agree (verify.py).
"""

from collections.abc import Iterator
from dataclasses import dataclass

from warehouse.errors import DamagedBatch, LakeDamaged, UnknownBatch
from warehouse.files.hashes import sha256_of
from warehouse.files.lake_paths import HEAD
from warehouse.history.change_log import DayFile
from warehouse.history.lake_files import files_of, read_head
from warehouse.home import Home
from warehouse.landing.batches import Manifest
from warehouse.publish.staged_file import NOTE, published_as

_MARKERS = ("pending", "released", "dismissed")
_MARKER = b"{}"


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


def manifests_of(home: Home) -> tuple[list[Manifest], Finding]:
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


def bodies(home: Home, manifests: list[Manifest]) -> Finding:
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


def lake(home: Home, days: list[DayFile]) -> Finding:
    """Check every file of the lake."""
    check = "every file of the lake matches its hash"
    try:
        files = files_of(home.lake, days)
    except LakeDamaged as error:
        return Finding(check, 0, (str(error),))
    notes: tuple[str, ...] = ()
    if files.unrecorded:
        notes = (
            f"the hashes of {files.unrecorded} files are not recorded, since an older version of "
            "Almanac wrote them; `almanac replay` records them",
        )
    return Finding(check, len(files.hashes), tuple(files.damaged(home.lake)), notes)


def head(home: Home, days: list[DayFile]) -> Finding:
    """Check that the change log ends with the day that was written last."""
    check = "the change log is complete up to its recorded end"
    try:
        found = read_head(home.lake)
    except LakeDamaged as error:
        return Finding(check, 1, (str(error),))
    newest = days[-1] if days else None
    if found is None:
        is_lost = newest is not None and newest.head.files is not None
        wrong = (f"{HEAD} of the lake is missing; `almanac merge` makes it again",)
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


def landing(home: Home, manifests: list[Manifest]) -> Finding:
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
    for folder in _MARKERS:
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
        if data != _MARKER:
            yield (
                f"{folder}/{path.name} was changed since it was written; `almanac replay` "
                "repairs it"
            )


def stamp(home: Home, manifests: list[Manifest]) -> Finding:
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


def published(home: Home) -> Finding:
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


def released(home: Home, days: list[DayFile]) -> Finding:
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
