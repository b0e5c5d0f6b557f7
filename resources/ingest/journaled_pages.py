"""The pages of one pull: kept in the journal, read back from it, and counted.

All that is known of a pull here is from its journal alone, so it is the same for the process that
received the pages and for one that finds them after a crash.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice

from resources.errors import CatalogError, Evidence, NotData, TooLarge, TruncatedBody
from resources.http.calls import Answer
from resources.http.pages import RawPage, read_page
from resources.http.paginator import ListProgress
from resources.ingest.kept_pages import PAGED, last_instant_of, note_of
from resources.ingest.scopes import left_over, parts_of
from warehouse.errors import LandingError
from warehouse.landing.batches import Scope
from warehouse.landing.journal import OpenPull, PageNote


@dataclass(frozen=True, slots=True)
class RefusedPage:
    """An answer that is no list, and why. It ends a pull."""

    note: PageNote
    why: str


class JournaledPages:
    """The kept pages of a pull; `refused`, an answer that is no list, is after them."""

    def __init__(self, open_pull: OpenPull) -> None:
        self._open_pull = open_pull
        self.intent = open_pull.intent
        self._list = PAGED[self.intent.feed]
        self.progress = ListProgress(parts_of(self.intent.feed, self.intent.scope))
        self.first: PageNote | None = None
        self.last: PageNote | None = None
        self.refused: RefusedPage | None = None
        for note, body in open_pull.pages():
            self._read_back(note, body)

    @property
    def begun(self) -> bool:
        return self.first is not None or self.refused is not None

    def keep(self, page: RawPage, *, received_at: datetime) -> None:
        """Write a page to the journal."""
        note = note_of(page, number=self.progress.pages + 1, received_at=received_at)
        self._open_pull.add(note, page.body)
        self._follow(note, page)

    def keep_refused(
        self, error: CatalogError, evidence: Evidence, *, received_at: datetime
    ) -> None:
        """Write an answer that is no list to the journal."""
        note = PageNote(
            number=self.progress.pages + 1,
            cursor_in=error.cursor,
            cursor_out=None,
            rows=0,
            total=None,
            limit=0,
            date=evidence.date.astimezone(UTC),
            received_at=received_at,
            date_doubt=evidence.date_doubt,
        )
        self._open_pull.add(note, evidence.body or b"")
        self.refused = RefusedPage(note, str(error))

    def bodies(self) -> Iterator[bytes]:
        """Yield the bodies that are lists.

        Raises:
            LandingError: a kept page is gone, so no batch may claim to have it.
        """
        count = 0
        for _, body in islice(self._open_pull.pages(), self.progress.pages):
            count += 1
            yield body
        if count != self.progress.pages:
            raise LandingError(
                f"{self.progress.pages} pages were journaled, {count} are there. Nothing of this "
                "pull was landed. Run it again: it requests what is missing."
            )

    def refused_body(self) -> bytes:
        return next(islice(self._open_pull.pages(), self.progress.pages, None))[1]

    def discard(self) -> None:
        self._open_pull.discard()

    def rest(self) -> Scope | None:
        """Return what is not paged yet; the whole scope if that is not known."""
        if self.progress.ended:
            return None
        feed, scope, remaining = self.intent.feed, self.intent.scope, self.progress.remaining
        if self.progress.lost:
            return scope
        has_begun = remaining[0].cursor is not None
        return left_over(feed, scope, remaining, self._last_row_at() if has_begun else None)

    def _read_back(self, note: PageNote, body: bytes) -> None:
        bounds = {"from": note.lower, "to": note.upper}
        answer = Answer(
            *(200, {}, note.date, note.date_doubt, note.received_at, 1), body, len(body)
        )
        try:
            page = read_page(
                answer,
                path=self._list.path,
                params={name: text for name, text in bounds.items() if text is not None},
                cursor=note.cursor_in,
                key_fields=self._list.key_fields,
            )
        except (NotData, TooLarge, TruncatedBody) as error:
            self.refused = RefusedPage(note, str(error))
        else:
            self._follow(note, page)

    def _follow(self, note: PageNote, page: RawPage) -> None:
        self.progress.follow(page)
        self.first = self.first or note
        self.last = note

    def _last_row_at(self) -> datetime | None:
        body = b""
        for body in self.bodies():  # noqa: B007 - only the last is wanted, and one is held
            pass
        return last_instant_of(body, self._list.sorted_by)
