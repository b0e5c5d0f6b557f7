"""Landing: the bytes that the service sent, as received, kept forever.

    landing/bodies/ab/abcd….zst      the bytes of batches, once per sha256
    landing/batches/YYYY-MM-DD/….json manifests, by observed day, written last
    landing/pending/….json           markers of batches that may not be merged yet
    landing/released/….json          markers of batches that a person trusts
    landing/dismissed/….json         markers of quarantined batches that a person leaves so
    landing/damaged/….json           damaged batches that were set aside, and why
    landing/journal/                 pulls in progress (journal.py)

A body has a zstd frame for each page, so that one page can be read alone, or all pages as one
stream. Everything else can be rebuilt from landing without a request.
"""

import filecmp
import hashlib
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import date, datetime
from pathlib import Path, PurePosixPath
from time import time

import msgspec
import zstandard

from warehouse.codecs import Oversized
from warehouse.errors import (
    DamagedBody,
    DamagedManifest,
    LandingError,
    UnknownBatch,
)
from warehouse.files.hashes import BrokenSeal, formatted, is_sealed, sealed, sha256_of
from warehouse.files.storage import Storage
from warehouse.landing.batches import SEALED_SINCE, Feed, LandedPage, Manifest, Scope, batch_id_of
from warehouse.landing.body_files import CHUNK_BYTES, RedactionCounter, compress, decompressed
from warehouse.landing.journal import Journal

FOLDER = "damaged"


class _Why(msgspec.Struct, frozen=True, kw_only=True):
    why: str


class SetAside:
    """The notes about batches that are set aside in a landing folder."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def all(self) -> dict[str, str]:
        """Return why each batch is set aside, by id; a note that can't be read still counts."""
        found: dict[str, str] = {}
        for name in self._storage.names(FOLDER):
            if name.endswith(".json"):
                found[PurePosixPath(name).stem] = self._why(name)
        return found

    def add(self, batch_id: str, why: str) -> None:
        self._storage.put(f"{FOLDER}/{batch_id}.json", msgspec.json.encode(_Why(why=why)))

    def remove(self, batch_id: str) -> None:
        self._storage.remove(f"{FOLDER}/{batch_id}.json")

    def _why(self, name: str) -> str:
        try:
            return msgspec.json.decode(self._storage.read(name), type=_Why).why
        except (OSError, ValueError):
            return "the file with the reason can't be read"


MARKER = b"{}"
_DAY = re.compile(r"[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])", re.ASCII)
_BATCH_ID = re.compile(r"[0-9]{8}T[0-9]{6}Z-[a-z]+-[0-9a-f]{12}", re.ASCII)


class Pull(msgspec.Struct, frozen=True, kw_only=True):
    """The data of a finished pull: all fields of a manifest that don't come from its bytes."""

    feed: Feed
    scope: Scope
    plan: str
    source: str
    observed_at: datetime
    content_at: datetime
    landed_at: datetime
    requests: int
    rows_claimed: int | None = None
    why_incomplete: str | None = None
    attested: bool = False
    date_doubt: str | None = None
    etag: str | None = None
    last_modified: str | None = None


class Landing:
    """The landing folder of a home. Several processes may use it: every step is one rename."""

    def __init__(self, root: Path) -> None:
        self.storage = Storage(root)
        self.journal = Journal(self.storage)
        self._set_aside = SetAside(self.storage)

    def land(
        self,
        pull: Pull,
        bodies: Iterable[tuple[bytes, datetime | None]],
        *,
        status: int = 200,
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
                    f"deliveries of {len(days)} days arrived as one batch; expected one batch a "
                    "day, observed on it. Nothing was landed; land them by day."
                )
        return self._land(pull, ((iter((body,)), at) for body, at in bodies), status)

    def land_file(self, pull: Pull, path: Path) -> Manifest:
        """Store a file as the only body of a pull, without reading it into memory at once."""
        with path.open("rb") as file:
            chunks = iter(lambda: file.read(CHUNK_BYTES), b"")
            return self._land(pull, iter(((chunks, None),)), 200)

    def land_unchanged(self, pull: Pull, before: Manifest) -> Manifest:
        """Land a pull that the service answered with 304: it has the body of an earlier batch."""
        manifest = _manifest(
            pull,
            before.sha256,
            before.bytes,
            before.pages,
            before.stored_sha256,
            before.redacted,
            unchanged=True,
        )
        return self._recorded(manifest)

    def manifest(self, batch_id: str) -> Manifest:
        """Return the manifest of a batch.

        Raises:
            UnknownBatch: there is none.
            DamagedManifest: it can't be read, or changed after it was written.
        """
        name = _manifest_name(batch_id)
        if not self.storage.exists(name):
            raise UnknownBatch(
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
            raise DamagedManifest(
                f"batch {batch_id}: its manifest can't be read: {why}. Restore {name} of landing "
                "from a backup; `almanac replay` continues without it."
            ) from error
        return manifest

    def readable(self, batch_ids: Iterable[str]) -> tuple[list[Manifest], dict[str, str]]:
        """Return the readable manifests of some batches, and the errors of the others, by id.

        Raises:
            UnknownBatch: an id belongs to no batch.
        """
        found: list[Manifest] = []
        damaged: dict[str, str] = {}
        for batch_id in batch_ids:
            try:
                found.append(self.manifest(batch_id))
            except DamagedManifest as error:
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
        """Return the batches that are set aside: the reason by id."""
        return self._set_aside.all()

    def clear_set_aside(self, batch_id: str) -> None:
        """Use a batch again that was set aside."""
        self._set_aside.remove(batch_id)

    def set_aside(self, batch_id: str, why: str) -> None:
        """Exclude a batch from everything made from landing, until it is restored."""
        self._set_aside.add(batch_id, why)

    def released(self) -> list[str]:
        """Return the ids of batches that a person trusts in spite of a warning."""
        return self.marked("released")

    def release(self, batch_id: str) -> None:
        """Trust a batch: the next merge and every replay fold it.

        Raises:
            UnknownBatch: there is none with that id.
        """
        self.manifest(batch_id)
        self.storage.remove(f"dismissed/{batch_id}.json")
        self.storage.put(f"released/{batch_id}.json", MARKER)
        self.storage.put(f"pending/{batch_id}.json", MARKER)

    def body(self, manifest: Manifest) -> Iterator[bytes]:
        """Yield the bytes of a batch in chunks, checked against its sha256 at the end.

        Raises:
            DamagedBody: they are not the bytes that were landed.
        """
        digest = hashlib.sha256()
        path = self.body_path(manifest)
        try:
            for chunk in decompressed(path):
                digest.update(chunk)
                yield chunk
        except (OSError, MemoryError, zstandard.ZstdError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            raise DamagedBody(
                f"batch {manifest.batch_id}: its body can't be read: {why}. Restore {path.name} "
                "of landing from a backup; `almanac replay` continues without it."
            ) from error
        if digest.hexdigest() != manifest.sha256:
            raise DamagedBody(
                f"batch {manifest.batch_id}: its body has the sha256 {digest.hexdigest()}, "
                f"expected {manifest.sha256}. Restore {path.name} of landing from a backup; "
                "`almanac replay` continues without it."
            )

    def check(self, manifest: Manifest) -> None:
        """Read a body to its end.

        Raises:
            DamagedBody: it is not the body that was landed.
        """
        for _ in self.body(manifest):
            pass

    def pages(
        self, manifest: Manifest, *, max_bytes: int | None = None
    ) -> Iterator[tuple[LandedPage, bytes]]:
        """Yield every page with its bytes, in the order of arrival; one page is in memory.

        Raises:
            DamagedBody: at the end of the body, which has another hash than the landed bytes.
            Oversized: a page has more than `max_bytes`.
        """
        chunks = self.body(manifest)
        buffer, start = bytearray(), 0
        for page in manifest.pages:
            if max_bytes is not None and page.length > max_bytes:
                raise Oversized(
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
        return self.storage.path(_body_name(manifest.sha256))

    def pending(self) -> list[str]:
        """Return the ids of batches that are marked as not merged yet, oldest first.

        Markers without a manifest are left out: a process that was killed while landing left them.
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

    def _has_body(self, name: str, staged: Path) -> bool:
        """Whether an intact body is stored already; a damaged one is replaced."""
        path = self.storage.path(name)
        if not path.is_file():
            return False
        if filecmp.cmp(path, staged, shallow=False):
            return True
        # Another batch may have stored the same bytes in other frames.
        digest = hashlib.sha256()
        with suppress(OSError, MemoryError, zstandard.ZstdError):
            for chunk in decompressed(path):
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
            redactions = RedactionCounter()
            sha256, pages = compress(bodies, staged, status, redactions)
            if not self._has_body(_body_name(sha256), staged):
                self.storage.adopt(staged, _body_name(sha256))
        size = sum(page.length for page in pages)
        stored = sha256_of(self.storage.path(_body_name(sha256)))
        return self._recorded(_manifest(pull, sha256, size, tuple(pages), stored, redactions.count))

    def _recorded(self, manifest: Manifest) -> Manifest:
        if not self.storage.exists(_manifest_name(manifest.batch_id)):
            # The marker first: a merge would not find a batch without a marker.
            self.storage.put(f"pending/{manifest.batch_id}.json", MARKER)
            self.storage.put(_manifest_name(manifest.batch_id), sealed(formatted(manifest)))
        return self.manifest(manifest.batch_id)


def _manifest(
    pull: Pull,
    sha256: str,
    size: int,
    pages: tuple[LandedPage, ...],
    stored: str | None,
    redacted: int,
    *,
    unchanged: bool = False,
) -> Manifest:
    batch_id = batch_id_of(
        feed=pull.feed,
        scope=pull.scope,
        plan=pull.plan,
        source=pull.source,
        observed_at=pull.observed_at,
        content_at=pull.content_at,
        sha256=sha256,
    )
    return Manifest(
        batch_id=batch_id,
        **msgspec.structs.asdict(pull),
        sha256=sha256,
        bytes=size,
        pages=pages,
        complete=pull.why_incomplete is None,
        redacted=redacted,
        stored_sha256=stored,
        unchanged=unchanged,
    )


def _body_name(sha256: str) -> str:
    return f"bodies/{sha256[:2]}/{sha256}.zst"


def _manifest_name(batch_id: str) -> str:
    """Return the name of a manifest: in the folder of the day that its id begins with."""
    if not _BATCH_ID.fullmatch(batch_id):
        raise UnknownBatch(f"no such batch: {batch_id!r}; `almanac batches list` lists the batches")
    return f"batches/{batch_id[:4]}-{batch_id[4:6]}-{batch_id[6:8]}/{batch_id}.json"
