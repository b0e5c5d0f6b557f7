"""Landing: the bytes that the service sent, as received, kept permanently.

    landing/bodies/ab/abcd….zst      the bytes of batches, once per sha256
    landing/batches/YYYY-MM-DD/….json manifests, by observed day, written last
    landing/pending/….json           markers of batches that may not be merged yet
    landing/released/….json          markers of batches that a person trusts
    landing/dismissed/….json         markers of quarantined batches that need no warning
    landing/damaged/….json           damaged batches that were set aside, and why
    landing/journal/                 pulls in progress (journal.py)

Older exports are stored as their differences from an earlier one (body_files.py); readers get the
bytes that were received. Everything else can be rebuilt from landing without a request.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import date, datetime
from pathlib import Path, PurePosixPath
from time import time
from typing import Final

import msgspec
import zstandard

from warehouse.codecs import OversizedBody
from warehouse.errors import DamagedBatch, LandingError
from warehouse.files.documents import BrokenSeal, format_document, is_sealed, seal
from warehouse.files.storage import Storage
from warehouse.landing import body_files
from warehouse.landing.batches import (
    SEALED_SINCE,
    LandedPage,
    Manifest,
    Pull,
    make_batch_id,
)
from warehouse.landing.journal import Journal

MARKER = b"{}"
_DAY = re.compile(r"[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])", re.ASCII)
_BATCH_ID = re.compile(r"[0-9]{8}T[0-9]{6}Z-[a-z]+-[0-9a-f]{12}", re.ASCII)
_GROUP: Final = 7
"""So many exports are packed together: the index of their base is the main work."""
_PERIOD: Final = 4 * _GROUP
"""The first of so many exports stays whole, as the base of the others."""


class _Why(msgspec.Struct, frozen=True, kw_only=True):
    why: str


class Landing:
    """The landing folder of a home. Several processes may use it: every step is one rename."""

    def __init__(self, root: Path | Storage) -> None:
        """`root` is the path of the folder, or a `Storage` if the folder is copied to a bucket."""
        self.storage = root if isinstance(root, Storage) else Storage(root)
        self.journal = Journal(self.storage)

    def land(
        self, pull: Pull, bodies: Iterable[tuple[bytes, datetime | None]], *, status: int = 200
    ) -> Manifest:
        """Store the bodies of a pull, each with its own time of receipt if it has one.

        `status` is the HTTP status of their answers. Landing the same pull again changes nothing
        and returns the same manifest.

        Raises:
            LandingError: deliveries of several days; each day must be foldable alone.
        """
        if pull.feed == "deliveries":
            bodies = list(bodies)
            days = {(at or pull.observed_at).date() for _, at in bodies}
            if days - {pull.observed_at.date()}:
                raise LandingError(
                    f"a batch of {pull.observed_at:%Y-%m-%d} has deliveries of another day; "
                    "expected one batch per day. Nothing was landed; land the days as separate "
                    "batches."
                )
        return self._land(pull, ((iter((body,)), at) for body, at in bodies), status)

    def land_file(self, pull: Pull, path: Path) -> Manifest:
        """Store a file as the only body of a pull; it is read in chunks."""
        with path.open("rb") as file:
            chunks = iter(lambda: file.read(body_files.CHUNK_BYTES), b"")
            return self._land(pull, iter(((chunks, None),)), 200)

    def manifest(self, batch_id: str) -> Manifest:
        """Return the manifest of a batch.

        Raises:
            LandingError: there is none.
            DamagedBatch: it can't be read, or changed after it was written.
        """
        name = _manifest_name(batch_id)
        if not self.storage.exists(name):
            raise LandingError(
                f"no such batch: {batch_id}; `almanac batches list` lists the batches"
            )
        try:
            data = self.storage.read(name)
            is_whole = is_sealed(data)
            manifest = msgspec.json.decode(data, type=Manifest)
            if not is_whole and manifest.format >= SEALED_SINCE:
                raise BrokenSeal("it has no hash of its own")
            if manifest.batch_id != batch_id:
                raise BrokenSeal(f"it is the manifest of {manifest.batch_id}")
        except (OSError, ValueError, LandingError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            raise DamagedBatch(
                f"batch {batch_id}: its manifest can't be read: {why}. Restore {name} of landing "
                "from a backup; `almanac rebuild` continues without it."
            ) from error
        return manifest

    def readable(self, batch_ids: Iterable[str]) -> tuple[list[Manifest], dict[str, str]]:
        """Return the readable manifests of some batches, and the errors of the others, by id.

        Raises:
            LandingError: an id belongs to no batch.
        """
        found: list[Manifest] = []
        damaged: dict[str, str] = {}
        for batch_id in batch_ids:
            try:
                found.append(self.manifest(batch_id))
            except DamagedBatch as error:
                damaged[batch_id] = str(error)
        return found, damaged

    def batch_ids(self, *, day: date | None = None) -> list[str]:
        """Return the ids of all batches, or of those observed on a day, oldest first.

        Batches that are set aside are left out.
        """
        folder = "batches" if day is None else f"batches/{day.isoformat()}"
        names = (name for name in self.storage.names(folder) if name.endswith(".json"))
        ids = {name.rpartition("/")[2].removesuffix(".json") for name in names}
        return sorted(
            batch_id for batch_id in ids - self.damaged().keys() if _BATCH_ID.fullmatch(batch_id)
        )

    def days(self, *, since: date = date.min) -> list[date]:
        """Return the observed days that have batches, oldest first."""
        folders = self.storage.folders("batches")
        named = [folder for folder in folders if _DAY.fullmatch(folder)]
        days = [date.fromisoformat(folder) for folder in named if folder >= since.isoformat()]
        return [day for day in days if self.batch_ids(day=day)]

    def damaged(self) -> dict[str, str]:
        """Return the batches that are set aside: the reason by id; an unreadable note counts."""
        names = (name for name in self.storage.names("damaged") if name.endswith(".json"))
        return {PurePosixPath(name).stem: self._why(name) for name in names}

    def _why(self, name: str) -> str:
        try:
            return msgspec.json.decode(self.storage.read(name), type=_Why).why
        except (OSError, ValueError):
            return "the file with the reason can't be read"

    def set_aside(self, batch_id: str, why: str) -> None:
        """Exclude a stored batch from all merges until it is restored."""
        self.storage.put(f"damaged/{batch_id}.json", msgspec.json.encode(_Why(why=why)))

    def released(self) -> list[str]:
        """Return the ids of batches that a person trusts in spite of a warning."""
        return self.marked("released")

    def release(self, batch_id: str) -> None:
        """Trust a batch: the next merge and every rebuild fold it.

        Raises:
            LandingError: there is none with that id.
        """
        self.manifest(batch_id)
        self.storage.remove(f"dismissed/{batch_id}.json")
        self.storage.put(f"released/{batch_id}.json", MARKER)
        self.storage.put(f"pending/{batch_id}.json", MARKER)

    def take_back(self, batch_id: str) -> None:
        """No longer trust a released batch: the next merge folds its day again without the release.

        Raises:
            LandingError: there is none with that id.
        """
        self.manifest(batch_id)
        # In this order: a batch that waits and was merged as released was taken back.
        self.storage.put(f"pending/{batch_id}.json", MARKER)
        self.storage.remove(f"released/{batch_id}.json")

    def dismissed(self) -> set[str]:
        """Return the ids of quarantined batches that need no warning."""
        return set(self.marked("dismissed"))

    def dismiss(self, batch_id: str, *, undo: bool = False) -> None:
        """Stop warnings about a quarantined batch, or resume them. Its rows stay out of history.

        Raises:
            LandingError: there is none with that id.
        """
        self.manifest(batch_id)
        name = f"dismissed/{batch_id}.json"
        if undo:
            self.storage.remove(name)
        else:
            self.storage.put(name, MARKER)

    def body(self, manifest: Manifest) -> Iterator[bytes]:
        """Yield the bytes of a batch in chunks, checked against its sha256 at the end.

        Raises:
            DamagedBatch: they are not the bytes that were landed.
        """
        digest = hashlib.sha256()
        path = self.body_path(manifest)
        try:
            for chunk in body_files.decompress(path):
                digest.update(chunk)
                yield chunk
        except (OSError, MemoryError, zstandard.ZstdError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            raise _damaged_body(manifest, path, f"can't be read: {why}") from error
        if (found := digest.hexdigest()) != manifest.sha256:
            why = f"has the sha256 {found}, expected {manifest.sha256}"
            raise _damaged_body(manifest, path, why)

    def check(self, manifest: Manifest) -> None:
        """Read a body to its end. Raises DamagedBatch: it is not the body that was landed."""
        for _ in self.body(manifest):
            pass

    def pages(
        self, manifest: Manifest, *, max_bytes: int | None = None
    ) -> Iterator[tuple[LandedPage, bytes]]:
        """Yield every page with its bytes, in the order of arrival; one page is in memory.

        Raises:
            DamagedBatch: at the end of the body, which has another hash than the landed bytes.
            OversizedBody: a page has more than `max_bytes`.
        """
        chunks = self.body(manifest)
        buffer, start = bytearray(), 0
        for page in manifest.pages:
            if max_bytes is not None and page.length > max_bytes:
                raise OversizedBody(
                    f"a page of {page.length} bytes; expected at most {max_bytes} in one piece"
                )
            while start + len(buffer) < page.offset + page.length and (chunk := next(chunks, b"")):
                buffer += chunk
            del buffer[: page.offset - start]
            start = page.offset
            yield page, bytes(buffer[: page.length])
        for _ in chunks:
            pass  # The sha256 is checked at the end of the bytes.

    def body_path(self, manifest: Manifest) -> Path:
        """Return the compressed file, for readers that accept zstd."""
        return self.storage.path(body_files.body_name(manifest.sha256))

    def pack_exports(self, batch_ids: Sequence[str], new: int) -> None:
        """Pack older exports. Call it under the merge lock.

        `batch_ids` has the merged exports in order; `new` of them were just merged.
        """
        local = Storage(self.storage.root)  # A bucket keeps the bodies that it has.
        for end in range(_GROUP, len(batch_ids), _GROUP):
            if end < len(batch_ids) - new - _GROUP:
                continue  # Of the last group, a killed merge may have left some.
            base_id = batch_ids[(end - 1) // _PERIOD * _PERIOD]
            # A damaged body is left as it is, and reported by its next reader.
            with suppress(LandingError, OSError, zstandard.ZstdError):
                group = [self.manifest(each) for each in (base_id, *batch_ids[end - _GROUP : end])]
                if all(len(each.pages) == 1 and each.bytes < body_files.LARGE for each in group):
                    base, *paths = map(self.body_path, group)
                    body_files.pack(local, base, paths)

    def pending(self) -> list[str]:
        """Return the ids of batches that are marked as not merged yet, oldest first.

        Markers without a manifest are left out: their process was killed before it wrote the
        manifest.
        """
        aside = self.damaged()
        return [
            batch_id
            for batch_id in self.marked()
            if batch_id not in aside and self.storage.exists(_manifest_name(batch_id))
        ]

    def never_landed(self, *, older_than_s: float) -> list[Path]:
        """Return the markers of batches whose landing was interrupted at least so long ago."""
        oldest = time() - older_than_s
        found = (
            self.storage.path(f"pending/{batch_id}.json")
            for batch_id in self.marked()
            if not self.storage.exists(_manifest_name(batch_id))
        )
        return [path for path in found if path.exists() and path.stat().st_mtime < oldest]

    def _has_body(self, name: str) -> bool:
        """Whether an intact body is stored already; a damaged one is replaced."""
        path = self.storage.path(name)
        if not path.is_file():
            return False
        # Another batch may have stored the same bytes in other frames.
        digest = hashlib.sha256()
        with suppress(OSError, MemoryError, zstandard.ZstdError):
            for chunk in body_files.decompress(path):
                digest.update(chunk)
        return digest.hexdigest() == path.stem

    def marked(self, folder: str = "pending") -> list[str]:
        """Return the ids that have a marker, whether or not their batches exist."""
        path = self.storage.path(folder)
        names = sorted(entry.name for entry in path.iterdir()) if path.is_dir() else []
        ids = (name.removesuffix(".json") for name in names if name.endswith(".json"))
        return [batch_id for batch_id in ids if _BATCH_ID.fullmatch(batch_id)]

    def clear_pending(self, batch_id: str) -> None:
        self.storage.remove(f"pending/{batch_id}.json")

    def _land(
        self, pull: Pull, bodies: Iterator[tuple[Iterator[bytes], datetime | None]], status: int
    ) -> Manifest:
        with self.storage.staging() as staged:
            redactions = body_files.RedactionCounter()
            sha256, pages = body_files.compress(bodies, staged, status, redactions)
            if not self._has_body(body_files.body_name(sha256)):
                self.storage.adopt(staged, body_files.body_name(sha256))
        size = sum(page.length for page in pages)
        manifest = Manifest(
            batch_id=make_batch_id(pull, sha256),
            **msgspec.structs.asdict(pull),
            sha256=sha256,
            bytes=size,
            pages=tuple(pages),
            complete=pull.why_incomplete is None,
            redacted=redactions.count,
        )
        if not self.storage.exists(_manifest_name(manifest.batch_id)):
            # The marker first: a merge would not find a batch without a marker.
            self.storage.put(f"pending/{manifest.batch_id}.json", MARKER)
            self.storage.put(_manifest_name(manifest.batch_id), seal(format_document(manifest)))
        return self.manifest(manifest.batch_id)


def _manifest_name(batch_id: str) -> str:
    """Return the name of a manifest: in the folder of the day that its id begins with."""
    if not _BATCH_ID.fullmatch(batch_id):
        raise LandingError(f"no such batch: {batch_id!r}; `almanac batches list` lists the batches")
    return f"batches/{batch_id[:4]}-{batch_id[4:6]}-{batch_id[6:8]}/{batch_id}.json"


def restore_intact_batches(landing: Landing) -> None:
    """Use batches again that were set aside and are intact now, for example after a restore."""
    for batch_id in landing.damaged():
        with suppress(LandingError):
            landing.check(landing.manifest(batch_id))
            landing.storage.remove(f"damaged/{batch_id}.json")


def _damaged_body(manifest: Manifest, path: Path, why: str) -> DamagedBatch:
    base = None
    with suppress(OSError):
        base = body_files.find_base(path)
    files = path.name if base is None else f"{path.name}, or {base.name} from which it differs,"
    return DamagedBatch(
        f"batch {manifest.batch_id}: its body {why}. Restore {files} of landing from a backup; "
        "`almanac rebuild` continues without it."
    )


def lost_batch(batch_id: str) -> DamagedBatch:
    """Return the error for a batch that took effect and is missing from landing."""
    return DamagedBatch(
        f"batch {batch_id}: its manifest is missing from landing. Restore {batch_id}.json from a "
        "backup; `almanac rebuild` continues without it."
    )
