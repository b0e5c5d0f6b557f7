"""The journal of a pull under way: each page is on disk before the next one is asked for.

    landing/journal/{pull id}/pull.json      what is being pulled
    landing/journal/{pull id}/000001.page    a line of JSON, then the body, zstd

After a crash the pages already paid for are read back, and the pull goes on from the last
cursor. Belongs here: keeping and reading back. Does not: whether to go on (resources).
"""

import hashlib
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime, timedelta

import msgspec
import zstandard

from warehouse import bounds
from warehouse.errors import LandingError
from warehouse.files.hashes import formatted, is_sealed, sealed
from warehouse.files.storage import Storage
from warehouse.landing.batches import Feed, Scope

RESUMED_WITHIN = timedelta(minutes=15)
"""A pull resumed later than this is closed as a partial batch, and the rest is a new one."""
_ID_DIGITS = 12
_LEVEL = 1
"""A page lies here until its pull ends."""
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_HEAD_BYTES = 1 << 20


class Intent(msgspec.Struct, frozen=True, kw_only=True):
    """What a pull sets out to do, before the first request."""

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
    """What must be known of a page to go on after it. `date` is the service's."""

    number: int
    cursor_in: str | None
    cursor_out: str | None
    rows: int
    total: int | None
    limit: int
    date: datetime
    received_at: datetime
    """The machine's clock: what the 15 minutes are counted on."""
    lower: str | None = None
    upper: str | None = None
    """The range that was asked for, as text: a sweep may go on over narrower ones."""
    date_doubt: str = ""
    """Why `date` is not the Date of the answer; empty where it is."""


class OpenPull:
    """One pull under way, in a folder of its own."""

    def __init__(self, storage: Storage, intent: Intent) -> None:
        self._storage = storage
        self.intent = intent
        self._folder = f"journal/{intent.pull_id}"
        self._count = len(self._page_names())

    def add(self, note: PageNote, body: bytes) -> None:
        """Keep a page. When this returns, the page outlasts a crash.

        Raises:
            LandingError: pages are not added in order, without a gap.
        """
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
        """Yield the pages kept so far, in order."""
        return self._read(self._page_names())

    def _read(self, names: list[str]) -> Iterator[tuple[PageNote, bytes]]:
        for name in names:
            try:
                head, _, body = _unpacked(self._storage.read(name)).partition(b"\n")
                yield msgspec.json.decode(head, type=PageNote), body
            except (OSError, ValueError, zstandard.ZstdError) as error:
                raise LandingError(f"the journal page {name} can't be read: {error}") from error

    def drop_damaged(self) -> None:
        """Remove the first page that is damaged or gone, and all after it: they are asked again.

        Only by who holds the pull: a page that another process adds meanwhile would go as well.
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
        """Return the note of the last page, which alone is read; None where there is no page."""
        return next((note for note, _ in self._read(self._page_names()[-1:])), None)

    def may_continue(self, now: datetime) -> bool:
        """Whether the pull may go on as one look: its last page is not older than 15 minutes."""
        last = self.last_note()
        since = self.intent.started_at if last is None else last.received_at
        return timedelta(0) <= now - since <= RESUMED_WITHIN

    def discard(self) -> None:
        """Remove the journal, once its pages are landed."""
        self._storage.remove_folder(self._folder)

    def _page_names(self) -> list[str]:
        return [name for name in self._storage.names(self._folder) if name.endswith(".page")]


class Journal:
    """The pulls under way in a landing folder."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def begin(self, intent: Intent) -> OpenPull:
        """Note what is about to be pulled, before the first request is paid for."""
        name = f"journal/{intent.pull_id}/pull.json"
        self._storage.put(name, sealed(formatted(intent)))
        return OpenPull(self._storage, intent)

    def ids(self) -> list[str]:
        """Return the ids of the pulls that were begun and not landed, oldest first."""
        return self._storage.folders("journal")

    def recovered(self, pull_id: str) -> OpenPull | None:
        """Return a pull that an earlier process left, None where nothing of it is of use.

        Of what is damaged nothing was landed yet: it is dropped, and asked for again. Only by
        who holds the pull: of one that is just begun or landed by another process, a part is there.

        Raises:
            OSError: it can't be read now, and may be later: what is there stands.
        """
        try:
            intent = self._intent(pull_id)
        except (FileNotFoundError, ValueError):
            # Or killed while the folder was made or removed: nothing in it was needed.
            self._storage.remove_folder(f"journal/{pull_id}")
            return None
        pull = OpenPull(self._storage, intent)
        pull.drop_damaged()
        return pull

    def open_pulls(self) -> list[OpenPull]:
        """Return the pulls under way as they are, oldest first; nothing is changed."""
        found: list[OpenPull] = []
        for pull_id in self.ids():
            with suppress(OSError, ValueError):
                found.append(OpenPull(self._storage, self._intent(pull_id)))
        return found

    def _intent(self, pull_id: str) -> Intent:
        data = self._storage.read(f"journal/{pull_id}/pull.json")
        is_sealed(data)
        return msgspec.json.decode(data, type=Intent)


def _unpacked(page: bytes) -> bytes:
    """Undo zstd; pages that were journaled plain, by an earlier version, are read as they are.

    Raises:
        ZstdError: damaged, or larger than a page can be.
    """
    if not page.startswith(_ZSTD_MAGIC):
        return page
    size = zstandard.frame_content_size(page)
    if not 0 <= size <= bounds.PAGE_BYTES + _HEAD_BYTES:
        raise zstandard.ZstdError(f"{size} bytes decompressed; expected at most a page")
    return zstandard.ZstdDecompressor().decompress(page)
