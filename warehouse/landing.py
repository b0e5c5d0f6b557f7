"""Landing: what the service sent, as it came, kept for good.

    landing/bodies/ab/abcd….zst      the bytes of batches, once per sha256
    landing/batches/YYYY-MM-DD/….json manifests, by observed day, written last
    landing/pending/….json           markers of batches that may not be merged yet
    landing/released/….json          markers of batches that a person trusts
    landing/journal/                 pulls under way (journal.py)

A body has a zstd frame for each page, so that any of them can be read alone and all of
them in one go. Everything else can be made again from here without asking the service.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator
from datetime import date, datetime
from pathlib import Path
from time import time

import msgspec
import zstandard

from warehouse.batches import KEY_MARK, Feed, Manifest, Page, Scope, batch_id_of
from warehouse.errors import DamagedBody, LandingError, UnknownBatch
from warehouse.journal import Journal
from warehouse.storage import Storage

_LEVEL = 3
_CHUNK_BYTES = 1 << 20
_BATCH_ID = re.compile(r"[0-9]{8}T[0-9]{6}Z-[a-z]+-[0-9a-f]{12}", re.ASCII)


class Pull(msgspec.Struct, frozen=True, kw_only=True):
    """What a pull was, once it has ended: all of a manifest that its bytes don't say."""

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


class Landing:
    """The landing folder of a home. Safe for several processes: every step is one rename."""

    def __init__(self, root: Path) -> None:
        self.storage = Storage(root)
        self.journal = Journal(self.storage)

    def land(
        self,
        pull: Pull,
        bodies: Iterable[tuple[bytes, datetime | None]],
        *,
        status: int = 200,
    ) -> Manifest:
        """Keep the bodies of a pull, each with its receipt if it has one of its own.

        `status` is the one under which they came. Landing the same pull again changes nothing
        and returns the same manifest.

        Raises:
            LandingError: deliveries of several days; a day's history must be foldable alone.
        """
        if pull.feed == "deliveries":
            bodies = list(bodies)
            days = {(at or pull.observed_at).date() for _, at in bodies}
            if days - {pull.observed_at.date()}:
                raise LandingError(
                    f"deliveries of {len(days)} days came as one batch; expected one batch a day, "
                    "observed on it. Nothing was landed; land them by day."
                )
        return self._land(pull, ((iter((body,)), at) for body, at in bodies), status)

    def land_file(self, pull: Pull, path: Path) -> Manifest:
        """Keep a file as the one body of a pull, without ever holding it whole."""
        with path.open("rb") as file:
            chunks = iter(lambda: file.read(_CHUNK_BYTES), b"")
            return self._land(pull, iter(((chunks, None),)), 200)

    def manifest(self, batch_id: str) -> Manifest:
        """Raises UnknownBatch when there is none."""
        name = _manifest_name(batch_id)
        if not self.storage.exists(name):
            raise UnknownBatch(f"no batch has the id {batch_id}; `almanac batches list` lists them")
        try:
            return msgspec.json.decode(self.storage.read(name), type=Manifest)
        except msgspec.MsgspecError as error:
            raise LandingError(f"the manifest {name} can't be read: {error}") from error

    def batch_ids(self, *, day: date | None = None) -> list[str]:
        """Return the ids of all batches, or of those observed on a day, oldest first."""
        under = "batches" if day is None else f"batches/{day.isoformat()}"
        names = self.storage.names(under)
        return sorted(name.rpartition("/")[2].removesuffix(".json") for name in names)

    def days(self, *, since: date = date.min) -> list[date]:
        """Return the observed days that have batches, oldest first."""
        folders = self.storage.folders("batches")
        days = [date.fromisoformat(folder) for folder in folders if folder >= since.isoformat()]
        return [day for day in days if self.batch_ids(day=day)]

    def released(self) -> list[str]:
        """Return the ids of batches that a person trusts in spite of what was found."""
        names = self.storage.names("released")
        return [name.rpartition("/")[2].removesuffix(".json") for name in names]

    def release(self, batch_id: str) -> None:
        """Trust a batch: the next merge folds it in, and so does every replay.

        Raises:
            UnknownBatch: there is none of that id.
        """
        self.manifest(batch_id)
        self.storage.put(f"released/{batch_id}.json", b"{}")
        self.storage.put(f"pending/{batch_id}.json", b"{}")

    def body(self, manifest: Manifest) -> Iterator[bytes]:
        """Yield the bytes of a batch in chunks, checked against its sha256 at the end.

        Raises:
            DamagedBody: they are not the bytes that were landed.
        """
        digest = hashlib.sha256()
        path = self.body_path(manifest)
        try:
            with path.open("rb") as file:
                stream = zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True)
                while chunk := stream.read(_CHUNK_BYTES):
                    digest.update(chunk)
                    yield chunk
        except (OSError, zstandard.ZstdError) as error:
            raise DamagedBody(
                f"batch {manifest.batch_id}: its body {path.name} can't be read: {error}"
            ) from error
        if digest.hexdigest() != manifest.sha256:
            raise DamagedBody(
                f"batch {manifest.batch_id}: its body has the sha256 {digest.hexdigest()}, "
                f"not {manifest.sha256}; restore {path.name} from a copy"
            )

    def pages(self, manifest: Manifest) -> Iterator[tuple[Page, bytes]]:
        """Yield every page with its bytes, in the order they came."""
        whole = b"".join(self.body(manifest))
        for page in manifest.pages:
            yield page, whole[page.offset : page.offset + page.length]

    def body_path(self, manifest: Manifest) -> Path:
        """Return the compressed file, for readers that take zstd as it is."""
        return self.storage.path(_body_name(manifest.sha256))

    def pending(self) -> list[str]:
        """Return the ids of batches that are marked as not merged yet, oldest first.

        Not of what was never landed: whoever is killed before the manifest leaves its marker.
        """
        return [one for one in self._marked() if self.storage.exists(_manifest_name(one))]

    def never_landed(self, *, older_than_s: float) -> list[Path]:
        """Return the markers of batches whose landing was cut short so long ago."""
        oldest = time() - older_than_s
        found = (
            self.storage.path(f"pending/{one}.json")
            for one in self._marked()
            if not self.storage.exists(_manifest_name(one))
        )
        return [path for path in found if path.exists() and path.stat().st_mtime < oldest]

    def _marked(self) -> list[str]:
        names = (name.rpartition("/")[2] for name in self.storage.names("pending"))
        ids = (name.removesuffix(".json") for name in names)
        return [one for one in ids if _BATCH_ID.fullmatch(one)]

    def clear_pending(self, batch_id: str) -> None:
        self.storage.remove(f"pending/{batch_id}.json")

    def _land(
        self, pull: Pull, bodies: Iterator[tuple[Iterator[bytes], datetime | None]], status: int
    ) -> Manifest:
        with self.storage.staging() as staged:
            marks = _Marks()
            sha256, pages = _compress(bodies, staged, status, marks)
            if not self.storage.exists(_body_name(sha256)):
                self.storage.adopt(staged, _body_name(sha256))
        size = sum(page.length for page in pages)
        manifest = _manifest(pull, sha256, size, tuple(pages), marks.count)
        if not self.storage.exists(_manifest_name(manifest.batch_id)):
            # The marker first: a batch whose marker is missing would wait for a full look.
            self.storage.put(f"pending/{manifest.batch_id}.json", b"{}")
            self.storage.put(_manifest_name(manifest.batch_id), _formatted(manifest))
        return self.manifest(manifest.batch_id)


def _compress(
    bodies: Iterator[tuple[Iterator[bytes], datetime | None]],
    target: Path,
    status: int,
    marks: "_Marks",
) -> tuple[str, list[Page]]:
    """Write a zstd frame for each body; return the sha256 of all bytes, and the pages."""
    whole, pages, offset = hashlib.sha256(), list[Page](), 0
    with target.open("wb") as file:
        for chunks, received_at in bodies:
            is_first, length = not pages, 0
            digest = hashlib.sha256()
            compressor = zstandard.ZstdCompressor(level=_LEVEL)
            with compressor.stream_writer(file, closefd=False) as frame:
                for chunk in chunks:
                    frame.write(chunk)
                    whole.update(chunk)
                    marks.feed(chunk)
                    if not is_first:
                        digest.update(chunk)
                    length += len(chunk)
            if is_first:  # so far it is all there is, and need not be hashed twice
                digest = whole.copy()
            page = Page(
                offset=offset,
                length=length,
                sha256=digest.hexdigest(),
                status=status,
                received_at=received_at,
            )
            pages.append(page)
            offset += length
    return whole.hexdigest(), pages


class _Marks:
    """Counts the places of a body from which the API key was taken out."""

    def __init__(self) -> None:
        self.count = 0
        self._mark = KEY_MARK.encode()
        self._end = b""

    def feed(self, chunk: bytes) -> None:
        data = self._end + chunk
        self.count += data.count(self._mark)
        self._end = data[-len(self._mark) + 1 :]


def _manifest(
    pull: Pull, sha256: str, size: int, pages: tuple[Page, ...], redacted: int
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
    )


def _body_name(sha256: str) -> str:
    return f"bodies/{sha256[:2]}/{sha256}.zst"


def _manifest_name(batch_id: str) -> str:
    """Return where a manifest lies: below the day that its id begins with."""
    if not _BATCH_ID.fullmatch(batch_id):
        raise UnknownBatch(f"{batch_id!r} is no batch id; `almanac batches list` lists them")
    return f"batches/{batch_id[:4]}-{batch_id[4:6]}-{batch_id[6:8]}/{batch_id}.json"


def _formatted(manifest: Manifest) -> bytes:
    return msgspec.json.format(msgspec.json.encode(manifest), indent=1)
