"""Received pages of a list that are not landed yet, and the batch that they become.

All pages take this way to landing: of a daily pull, of a poll, and of a segment of a backfill. They
differ in where a page waits. A pull keeps its pages in the journal (journaled_pages). A segment
keeps them in memory: it lands a batch every few pages, which survives a crash as a journal does,
and its bounds change, so no intent of the journal could name them.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, Protocol

from catalog.contract import constants
from resources.http.lookups import read_instant
from resources.http.pages import RawPage
from resources.ingest.context import PullContext, list_content_at, plan_of
from resources.ingest.revalidation import kept_validator
from warehouse.codecs import Unreadable, decoded, list_in
from warehouse.landing.batches import Feed, Manifest, Scope
from warehouse.landing.journal import Intent, PageNote

_DAY_CHARS: Final = len("2026-03-01")


@dataclass(frozen=True, slots=True)
class PagedList:
    """A list of the interface: its path, what identifies a row, by what instant it is sorted."""

    path: str
    key_fields: tuple[str, ...]
    sorted_by: str = ""


PAGED: Final[dict[Feed, PagedList]] = {
    "events": PagedList(constants.EVENTS_PATH, ("id",), "date"),
    "cancellations": PagedList(
        constants.CANCELLATIONS_PATH, ("id", "cancelledAt"), sorted_by="cancelledAt"
    ),
    "coins": PagedList(constants.COINS_PATH, ("slug",)),
    "categories": PagedList(constants.CATEGORIES_PATH, ("id",)),
}


class KeptPages(Protocol):
    """Pages that are lists, in order. `first` and `last` are None where there is no page."""

    @property
    def first(self) -> PageNote | None: ...

    @property
    def last(self) -> PageNote | None: ...

    def keep(self, page: RawPage, *, received_at: datetime) -> None:
        """Append a page."""

    def bodies(self) -> Iterator[bytes]: ...


def note_of(page: RawPage, *, number: int, received_at: datetime) -> PageNote:
    """Return the data of a page that are needed to continue after it, and to land it."""
    return PageNote(
        number=number,
        cursor_in=page.cursor_in,
        cursor_out=page.cursor_out,
        rows=page.rows,
        total=page.total,
        limit=page.limit or int(page.params.get("limit", 0)),
        date=page.date.astimezone(UTC),
        received_at=received_at,
        lower=page.params.get("from"),
        upper=page.params.get("to"),
        date_doubt=page.date_doubt,
        etag=kept_validator(page.headers.get("etag")),
        last_modified=kept_validator(page.headers.get("last-modified")),
    )


def land_pages(
    context: PullContext,
    pages: KeptPages,
    feed: Feed,
    scope: Scope,
    *,
    requests: int,
    why_incomplete: str,
    rows_claimed: int | None = None,
    of: Intent | None = None,
) -> Manifest | None:
    """Land pages as one batch; None if there is no page. They are kept until they are dropped.

    The content time is that of the first page, the observed time that of the last. `of` is the
    pull that an earlier process began: the batch has its plan and source.
    """
    first, last = pages.first, pages.last
    if first is None or last is None:
        return None
    plan = context.plan if of is None else plan_of(of.plan, context.plan)
    # Those of one page are those of the whole only if it is the whole.
    is_whole = feed == "categories" and first == last and first.cursor_in is None
    pull = context.describe_batch(
        feed,
        scope,
        observed_at=last.date,
        content_at=list_content_at(first.date, plan),
        requests=requests,
        rows_claimed=rows_claimed,
        why_incomplete=why_incomplete,
        of=of,
        date_doubt=last.date_doubt or first.date_doubt,
        etag=first.etag if is_whole else None,
        last_modified=first.last_modified if is_whole else None,
    )
    return context.room.landing.land(pull, ((body, None) for body in pages.bodies()))


@dataclass(frozen=True, slots=True)
class _PageInMemory:
    note: PageNote
    body: bytes = field(repr=False)
    ends_at: datetime | None
    """When its last row begins; None if its rows have no dates."""


class PagesInMemory:
    """Pages of a list that is landed in parts. `fresh` of them are in no batch yet."""

    def __init__(self, feed: Feed) -> None:
        self._sorted_by = PAGED[feed].sorted_by
        self._pages: list[_PageInMemory] = []
        self._count = self.fresh = 0

    @property
    def first(self) -> PageNote | None:
        return self._pages[0].note if self._pages else None

    @property
    def last(self) -> PageNote | None:
        return self._pages[-1].note if self._pages else None

    @property
    def ends_at(self) -> datetime | None:
        """When the last row of the last page begins; None if its rows have no dates."""
        return self._pages[-1].ends_at if self._pages else None

    def keep(self, page: RawPage, *, received_at: datetime) -> None:
        self._count += 1
        self.fresh += 1
        note = note_of(page, number=self._count, received_at=received_at)
        ends_at = last_instant_of(page.body, self._sorted_by)
        self._pages.append(_PageInMemory(note, page.body, ends_at))

    def bodies(self) -> Iterator[bytes]:
        return (page.body for page in self._pages)

    def landed_to(self, instant: datetime) -> None:
        """Drop the pages that a batch up to an instant, exclusive, has completely.

        Pages that may have later rows stay for the next batch: the last page, those that end on
        that instant, and any whose dates can't be read.
        """
        beyond = (
            number
            for number, page in enumerate(self._pages)
            if page.ends_at is None or page.ends_at >= instant
        )
        self._pages = self._pages[next(beyond, len(self._pages)) :]
        self.fresh = 0

    def drop(self) -> None:
        """Drop all pages: a batch has them completely."""
        self._pages = []
        self.fresh = 0


def last_instant_of(body: bytes, sorted_by: str) -> datetime | None:
    """Return when the last row of a page begins; None if rows lack dates or are not sorted."""
    instants = [_instant(row, sorted_by) for row in _rows(body)]
    known = [instant for instant in instants if instant is not None]
    in_order = known == sorted(known) and len(known) == len(instants)
    return known[-1] if known and in_order else None


def _rows(body: bytes) -> list[Any]:
    try:
        return list_in(decoded(body)[0]).rows
    except Unreadable:
        return []


def _instant(row: Any, field: str) -> datetime | None:
    text = row.get(field) if isinstance(row, dict) else None
    if isinstance(text, str) and len(text) == _DAY_CHARS:
        text += "T00:00:00Z"
    return read_instant(text)
