"""A list, kept page by page and landed as one batch.

All pages of daily pulls, polls and backfill segments are landed by `land_pages`. A pull keeps its
pages in the journal: each page is on disk before the next is requested, and the batch is made from
the journal alone, so it is the same if another process lands it after a crash. A segment keeps its
pages in memory: it lands a batch every few pages, and its bounds change, so no intent of the
journal could name them.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice
from typing import Any, Final

from catalog.contract import constants
from resources.answers import Answer
from resources.errors import CatalogError, Defer, NotData, TooLarge, TruncatedBody
from resources.http.bodies import read_instant
from resources.http.paginator import ListProgress, Paginator, RawPage, Validators, read_page
from resources.ingest.context import (
    LandedBatch,
    PullContext,
    kept_validator,
    list_content_at,
    resolve_plan,
)
from resources.ingest.scopes import left_over, paged_fully, split_into_lists
from warehouse.codecs import UnreadableBody, decode_json, find_list
from warehouse.errors import LandingError
from warehouse.landing.batches import Feed, Manifest, Scope
from warehouse.landing.journal import Intent, OpenPull, PageNote

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


def make_note(page: RawPage, *, number: int, received_at: datetime) -> PageNote:
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
    pages: "JournaledPages | PagesInMemory",
    feed: Feed,
    scope: Scope,
    *,
    requests: int,
    why_incomplete: str,
    rows_claimed: int | None = None,
    of: Intent | None = None,
) -> Manifest | None:
    """Land pages as one batch; None if there is no page. They are kept until they are dropped.

    The first page gives the content time, the last page the observed time. `of` is the
    pull that an earlier process began: the batch has its plan and source.
    """
    first, last = pages.first, pages.last
    if first is None or last is None:
        return None
    plan = context.plan if of is None else resolve_plan(of.plan, context.plan)
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
    return context.landing.land(pull, ((body, None) for body in pages.bodies()))


@dataclass(frozen=True, slots=True)
class _PageInMemory:
    note: PageNote
    body: bytes = field(repr=False)
    ends_at: datetime | None
    """When its last row begins; None if its rows have no dates."""


class PagesInMemory:
    """Pages of a list that is landed in parts. `fresh` counts the pages not in a batch yet."""

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
        note = make_note(page, number=self._count, received_at=received_at)
        ends_at = find_last_instant(page.body, self._sorted_by)
        self._pages.append(_PageInMemory(note, page.body, ends_at))

    def bodies(self) -> Iterator[bytes]:
        return (page.body for page in self._pages)

    def landed_to(self, instant: datetime) -> None:
        """Drop the pages that a batch up to a time, exclusive, has completely.

        Pages that may have later rows stay for the next batch: the last page, those that end on
        that time, and any whose dates can't be read.
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


def find_last_instant(body: bytes, sorted_by: str) -> datetime | None:
    """Return when the last row of a page begins; None if rows lack dates or are not sorted."""
    instants = [_instant(row, sorted_by) for row in _rows(body)]
    known = [instant for instant in instants if instant is not None]
    in_order = known == sorted(known) and len(known) == len(instants)
    return known[-1] if known and in_order else None


def _rows(body: bytes) -> list[Any]:
    try:
        return find_list(decode_json(body)[0]).rows
    except UnreadableBody:
        return []


def _instant(row: Any, field: str) -> datetime | None:
    text = row.get(field) if isinstance(row, dict) else None
    if isinstance(text, str) and len(text) == _DAY_CHARS:
        text += "T00:00:00Z"
    return read_instant(text)


@dataclass(frozen=True, slots=True)
class RefusedPage:
    """A response that is not a list, and why. It ends a pull."""

    note: PageNote
    why: str


class JournaledPages:
    """The kept pages of a pull; `refused`, a response that is not a list, is after them."""

    def __init__(self, open_pull: OpenPull) -> None:
        self._open_pull = open_pull
        self.intent = open_pull.intent
        self._list = PAGED[self.intent.feed]
        self.progress = ListProgress(split_into_lists(self.intent.feed, self.intent.scope))
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
        note = make_note(page, number=self.progress.pages + 1, received_at=received_at)
        self._open_pull.add(note, page.body)
        self._follow(note, page)

    def keep_refused(self, error: CatalogError, evidence: Answer, *, received_at: datetime) -> None:
        """Write a response that is not a list to the journal."""
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
        self._open_pull.add(note, evidence.body)
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
        answer = Answer(200, {}, note.date, note.date_doubt, note.received_at, 1, body)
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
        return find_last_instant(body, self._list.sorted_by)


class PagedPull:
    """A pull in progress, with the pages of an earlier process."""

    def __init__(
        self, context: PullContext, open_pull: OpenPull, validators: Validators | None = None
    ) -> None:
        self._context = context
        self._validators = validators
        self._pages = JournaledPages(open_pull)
        self._progress = self._pages.progress
        self._intent = open_pull.intent
        self._resumed_pages = self._progress.pages
        self._paid_before = self._progress.pages + (self._pages.refused is not None)
        self._paginator: Paginator | None = None
        self._warnings: list[str] = []

    @property
    def begun(self) -> bool:
        return self._pages.begun

    @property
    def ended(self) -> bool:
        return self._progress.ended and self._pages.refused is None

    @property
    def can_resume(self) -> bool:
        """Whether the rest is known and can be requested, apart from time and plan."""
        at_cursor = any(part.cursor for part in self._progress.remaining)
        can_request = self._intent.feed != "categories" or not at_cursor
        return can_request and not self._progress.lost and self._pages.refused is None

    def discard(self) -> None:
        self._pages.discard()

    def run(self) -> LandedBatch:
        """Page to the end and land the pages.

        Raises:
            RetryLater, Stop: the pages before it are landed as a partial batch.
            Defer: before the first page; later it is in the result.
            NotModified: the service recognised the validators.
        """
        error = self._page_to_end()
        if error is None or self._pages.refused is not None:
            return self.close("")
        if not self.begun:
            self.discard()
            raise error
        landed = self._close_after(error)
        if isinstance(error, Defer):
            return landed
        batch_id = landed.manifest.batch_id
        error.left = f"{landed.rows} rows are landed as the partial batch {batch_id}"
        raise error

    def run_or_close(self) -> LandedBatch:
        """Page to the end, or as far as the service allows, and land the pages."""
        error = self._page_to_end()
        if error is None or self._pages.refused is not None:
            return self.close("")
        self._warnings.append(str(error))
        return self._close_after(error)

    def close(self, why: str, deferred: Defer | None = None) -> LandedBatch:
        """Land the journal, then discard it.

        `why` says why the list was not pulled to its end; it is empty if it was.
        """
        rest, refused = self._pages.rest(), self._pages.refused
        landed = self._land_pages(why, rest)
        if refused is not None:
            self._warnings.append(refused.why)
            refused_batch = self._land_refused(refused, rest or self._intent.scope)
            if landed is not None:
                self._warnings.append(
                    f"the response in place of a page is batch {refused_batch.batch_id}"
                )
            landed = landed or refused_batch
        assert landed is not None, "a pull without a page is discarded, not closed"
        self.discard()
        return LandedBatch(
            manifest=landed,
            requests=self._requests,
            rows=self._progress.rows,
            resumed_pages=self._resumed_pages,
            deferred=deferred,
            left_over=rest,
            warnings=tuple(dict.fromkeys(self._warnings)),
        )

    def _page_to_end(self) -> CatalogError | None:
        """Keep pages until the end; return the error that stopped it before."""
        try:
            self._paginator = self._new_paginator()
            for page in self._paginator:
                self._pages.keep(page, received_at=self._context.clock())
                self._note_doubt(page.date_doubt)
                progress = self._progress
                self._context.report_progress(self._intent.feed, progress.rows, progress.total_last)
        except CatalogError as error:
            evidence = error.evidence
            in_place = isinstance(error, NotData | TruncatedBody)
            if in_place and isinstance(evidence, Answer):
                self._pages.keep_refused(error, evidence, received_at=self._context.clock())
                self._note_doubt(evidence.date_doubt)
            return error
        return None

    def _close_after(self, error: CatalogError) -> LandedBatch:
        return self.close(str(error), error if isinstance(error, Defer) else None)

    @property
    def _requests(self) -> int:
        return self._paid_before + (0 if self._paginator is None else self._paginator.requests)

    def _new_paginator(self) -> Paginator:
        client, scope = self._context.client, self._intent.scope
        parts, known = self._progress.remaining, self._progress.current_ids
        if self._intent.feed == "events":
            return client.resume_events(parts, known_ids=known)
        cursor = parts[0].cursor
        if self._intent.feed == "cancellations":
            return client.cancellations_pages(scope.since, cursor=cursor, known_ids=known)
        if self._intent.feed == "coins":
            return client.coins_pages(cursor=cursor, known_ids=known)
        return client.categories(self._validators)

    def _note_doubt(self, doubt: str) -> None:
        if doubt:
            self._warnings.append(doubt)

    def _land_pages(self, why: str, rest: Scope | None) -> Manifest | None:
        """Land the pages that are lists; None if there are none."""
        scope = self._intent.scope
        return land_pages(
            self._context,
            self._pages,
            self._intent.feed,
            scope if rest is None else paged_fully(scope, rest),
            requests=self._requests,
            why_incomplete=why or self._why_incomplete(),
            rows_claimed=self._progress.total_last,
            of=self._intent,
        )

    def _why_incomplete(self) -> str:
        refused = self._pages.refused
        if refused is not None:
            return f"page {refused.note.number} was not a list: {refused.why}"
        not_resumed = self._paginator is not None and self._resumed_pages == 0
        paginator_reason = (
            self._paginator.why_incomplete if self._paginator is not None and not_resumed else ""
        )
        return self._progress.why_incomplete() or paginator_reason

    def _land_refused(self, refused: RefusedPage, scope: Scope) -> Manifest:
        """Land a response that is not a list as a batch of its own, apart from the pages."""
        pull = self._context.describe_batch(
            self._intent.feed,
            scope,
            observed_at=refused.note.date,
            content_at=list_content_at(
                refused.note.date, resolve_plan(self._intent.plan, self._context.plan)
            ),
            requests=0 if self._pages.first is not None else self._requests,
            why_incomplete=refused.why,
            of=self._intent,
            date_doubt=refused.note.date_doubt,
        )
        return self._context.landing.land(pull, [(self._pages.refused_body(), None)])
