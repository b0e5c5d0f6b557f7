"""One list, journaled page by page and landed as one batch.

Each page is on disk before the next is requested, and the batch is made from the journal, so it is
the same batch if another process lands it after a crash.
"""

from resources.errors import CatalogError, Defer, NotData, TruncatedBody
from resources.http.list_query import Validators
from resources.http.paginator import Paginator
from resources.ingest.context import Landed, PullContext, list_content_at, plan_of
from resources.ingest.journaled_pages import JournaledPages, RefusedPage
from resources.ingest.kept_pages import land_pages
from resources.ingest.scopes import paged_fully
from warehouse.landing.batches import Manifest, Scope
from warehouse.landing.journal import OpenPull


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

    def run(self) -> Landed:
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

    def run_or_close(self) -> Landed:
        """Page to the end, or as far as the service allows, and land the pages."""
        error = self._page_to_end()
        if error is None or self._pages.refused is not None:
            return self.close("")
        self._warnings.append(str(error))
        return self._close_after(error)

    def close(self, why: str, deferred: Defer | None = None) -> Landed:
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
        return Landed(
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
            if in_place and evidence is not None and evidence.body is not None:
                self._pages.keep_refused(error, evidence, received_at=self._context.clock())
                self._note_doubt(evidence.date_doubt)
            return error
        return None

    def _close_after(self, error: CatalogError) -> Landed:
        return self.close(str(error), error if isinstance(error, Defer) else None)

    @property
    def _requests(self) -> int:
        return self._paid_before + (
            0 if self._paginator is None else self._paginator.report.requests
        )

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
            self._paginator.report.why_incomplete
            if self._paginator is not None and not_resumed
            else ""
        )
        return self._progress.why_incomplete() or paginator_reason

    def _land_refused(self, refused: RefusedPage, scope: Scope) -> Manifest:
        """Land an answer that is no list as a batch of its own, apart from the pages."""
        pull = self._context.describe_batch(
            self._intent.feed,
            scope,
            observed_at=refused.note.date,
            content_at=list_content_at(
                refused.note.date, plan_of(self._intent.plan, self._context.plan)
            ),
            requests=0 if self._pages.first is not None else self._requests,
            why_incomplete=refused.why,
            of=self._intent,
            date_doubt=refused.note.date_doubt,
        )
        return self._context.room.landing.land(pull, [(self._pages.refused_body(), None)])
