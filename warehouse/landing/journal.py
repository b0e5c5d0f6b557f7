"""The journal of a pull in progress: each page is on disk before the next one is requested.

    landing/journal/{pull id}/pull.json      the intent of the pull
    landing/journal/{pull id}/000001.page    a line of JSON, then the body, zstd

After a crash the paid pages are read back, and the pull continues from the last cursor.
"""

import hashlib
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime, timedelta

import msgspec
import zstandard

from warehouse import size_limits
from warehouse.errors import LandingError
from warehouse.files.documents import format_document, is_sealed, seal
from warehouse.files.storage import Storage
from warehouse.landing.batches import Feed, Scope

RESUMED_WITHIN = timedelta(minutes=15)
"""A pull resumed later than this is closed as a partial batch, and the rest is a new one."""
_ID_DIGITS = 12
_LEVEL = 1
"""Pages are stored only until their pull ends."""
_HEAD_BYTES = 1 << 20


class Intent(msgspec.Struct, frozen=True, kw_only=True):
    """The request of a pull, recorded before it is sent."""

    feed: Feed
    scope: Scope
    plan: str
    source: str
    started_at: datetime
    """The machine's clock."""

    @property
    def pull_id(self) -> str:
        digest = hashlib.sha256(msgspec.json.encode(self)).hexdigest()[:_ID_DIGITS]
        return f"{self.started_at:%Y%m%dT%H%M%SZ}-{self.feed}-{digest}"


class PageNote(msgspec.Struct, frozen=True, kw_only=True):
    """The data about a page that a resumed pull needs. `date` is the service's."""

    number: int
    cursor_in: str | None
    date: datetime
    received_at: datetime
    """Time by the machine's clock, with which the 15 minutes are measured."""
    lower: str | None = None
    upper: str | None = None
    """The requested range as text: a list may continue over narrower ranges."""
    date_doubt: str = ""
    """Why `date` is not the Date of the answer; empty if it is."""


class OpenPull:
    """One pull in progress, in its own folder."""

    def __init__(self, storage: Storage, intent: Intent) -> None:
        self._storage = storage
        self.intent = intent
        self._folder = f"journal/{intent.pull_id}"
        self._count = len(self._page_names())

    def add(self, note: PageNote, body: bytes) -> None:
        """Store a page. When this returns, the page survives a crash."""
        if note.number != self._count + 1:
            raise LandingError(
                f"pull {self.intent.pull_id} has {self._count} pages, and page {note.number} "
                f"arrived; expected {self._count + 1}. The journal was not changed."
            )
        page = msgspec.json.encode(note) + b"\n" + body
        packed = zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True).compress(page)
        self._storage.put(f"{self._folder}/{note.number:06}.page", packed)
        self._count = note.number

    def pages(self) -> Iterator[tuple[PageNote, bytes]]:
        """Yield the pages stored so far, in order."""
        return self._read(self._page_names())

    def _read(self, names: list[str]) -> Iterator[tuple[PageNote, bytes]]:
        for name in names:
            try:
                head, _, body = _unpacked(self._storage.read(name)).partition(b"\n")
                yield msgspec.json.decode(head, type=PageNote), body
            except (OSError, ValueError, zstandard.ZstdError) as error:
                raise LandingError(f"the journal page {name} can't be read: {error}") from error

    def drop_damaged(self) -> None:
        """Remove the first damaged or missing page and all later ones; they are requested again.

        Only the process that holds the pull may call this: it would also remove a page that
        another process adds meanwhile.
        """
        names = self._page_names()
        whole = 0
        with suppress(LandingError):
            for note, _ in self._read(names):
                if note.number != whole + 1:
                    break
                whole += 1
        for name in names[whole:]:
            self._storage.remove(name)
        self._count = whole

    def last_note(self) -> PageNote | None:
        """Return the note of the last page, the only one read; None if there is no page."""
        return next((note for note, _ in self._read(self._page_names()[-1:])), None)

    def may_continue(self, now: datetime) -> bool:
        """Whether the pull may continue as one batch: its last page is at most 15 minutes old."""
        last = self.last_note()
        since = self.intent.started_at if last is None else last.received_at
        return timedelta(0) <= now - since <= RESUMED_WITHIN

    def discard(self) -> None:
        """Remove the journal, once its pages are landed."""
        self._storage.remove_folder(self._folder)

    def _page_names(self) -> list[str]:
        return [name for name in self._storage.names(self._folder) if name.endswith(".page")]


class Journal:
    """The pulls in progress in a landing folder."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def begin(self, intent: Intent) -> OpenPull:
        """Record what is going to be pulled, before the first request is paid for."""
        name = f"journal/{intent.pull_id}/pull.json"
        self._storage.put(name, seal(format_document(intent)))
        return OpenPull(self._storage, intent)

    def ids(self) -> list[str]:
        """Return the ids of the pulls that began and are not landed, oldest first."""
        return self._storage.folders("journal")

    def recovered(self, pull_id: str) -> OpenPull | None:
        """Return a pull that an earlier process left, None if no part of it can be used.

        Damaged pages are not landed yet: they are dropped and requested again. Only the process
        that holds the pull may call this: another process may be writing or landing it.
        """
        try:
            data = self._storage.read(f"journal/{pull_id}/pull.json")
            is_sealed(data)
            intent = msgspec.json.decode(data, type=Intent)
        except (FileNotFoundError, ValueError):
            # Or the process was killed while it made or removed the folder, which is not needed.
            self._storage.remove_folder(f"journal/{pull_id}")
            return None
        pull = OpenPull(self._storage, intent)
        pull.drop_damaged()
        return pull


def _unpacked(page: bytes) -> bytes:
    """Raises ZstdError: it is damaged, or larger than a page can be."""
    size = zstandard.frame_content_size(page)
    if not 0 <= size <= size_limits.PAGE_BYTES + _HEAD_BYTES:
        raise zstandard.ZstdError(f"{size} bytes decompressed; expected at most a page")
    return zstandard.ZstdDecompressor().decompress(page)
