"""Pulls a feed of the catalog and lands it: each pull is one batch.

    puller = Puller(client, home.landing, plan=ELITE, source=client.base_url, clock=utc_now)
    for landed in puller.resume_open():
        ...                                  # pulls of an earlier process, finished or closed
    landed = puller.events(date(2026, 3, 1), date(2026, 3, 31))

The bulk export is split by dates if the service is too slow. A response that is not a catalog is
landed too, and marked: the merge quarantines it. Does not belong here: how pages are kept and
resumed (paged_pull.py).
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Final

from catalog.contract import constants
from catalog.contract.plans import Plan, plan_window, upcoming_window
from resources.answers import Answer, ResponseHead
from resources.errors import (
    AccessDenied,
    CatalogError,
    ContractBroken,
    Defer,
    NotData,
    NotModified,
    TooSlow,
    TruncatedBody,
    defer_failed_export,
)
from resources.http.bodies import looks_like_html
from resources.http.client import CatalogClient, ExportPull
from resources.http.paginator import DateBound, Validators
from resources.ingest.context import (
    LandedBatch,
    NotModifiedAnswer,
    OnPage,
    PullContext,
    export_content_at,
    kept_validator,
    land_unchanged,
    last_look,
    list_content_at,
    lock_pull,
    read_validators,
)
from resources.ingest.paged_pull import PAGED, PagedPull
from resources.ingest.scopes import (
    covers,
    definite_scope,
    first_instant,
    halves,
    request_range,
    single_requests,
)
from resources.service_clock import read_http_date
from warehouse.landing.batches import ENOUGH_ROWS_SHARE, Feed, Manifest, Scope
from warehouse.landing.journal import RESUMED_WITHIN, OpenPull
from warehouse.landing.landing import Landing


@dataclass(slots=True)
class _ExportRequest:
    """One export to request. `requests` were sent for it before; `rows` None must be counted."""

    scope: Scope
    rows: int | None = None
    requests: int = 0


class ExportLanding:
    """Pulls exports, each landed as a batch with a scope of its own."""

    def __init__(self, context: PullContext) -> None:
        self._context = context

    def pull(self, scope: Scope, rows_expected: int | None) -> list[LandedBatch]:
        """Return a batch for each request: one, unless the filter or the service need several.

        Raises:
            CatalogError: what was received before it is landed; a Defer is then returned instead.
        """
        export_requests = deque(_ExportRequest(request) for request in single_requests(scope))
        if len(export_requests) == 1:
            export_requests[0].rows = rows_expected
        landed: list[LandedBatch] = []
        while export_requests:
            export_request = export_requests[0]
            try:
                landed.append(self._land(export_request))
                export_requests.popleft()
            except CatalogError as error:
                export_request.requests += error.attempts
                if isinstance(error, TooSlow) and self._split(export_requests):
                    continue
                if isinstance(error, Defer) and landed:
                    landed[-1] = replace(landed[-1], deferred=error)
                    break
                error.left = _landed_before(landed) or error.left
                raise
        return landed

    def _split(self, export_requests: deque[_ExportRequest]) -> bool:
        split_scopes = halves(export_requests[0].scope, self._context.service.now())
        if split_scopes is None:
            return False
        split_request = export_requests.popleft()
        export_requests.extendleft(_ExportRequest(half) for half in reversed(split_scopes))
        export_requests[0].requests = split_request.requests
        return True

    def _land(self, export_request: _ExportRequest) -> LandedBatch:
        warnings: list[str] = []
        before = last_look(self._context, "export", export_request.scope)
        with self._context.landing.storage.staging() as file:
            try:
                pull = self._revalidate(export_request, file, before)
                if before is not None and pull is not None and pull.status == 304:
                    return self._land_unchanged(export_request, before, pull)
                if export_request.rows is None:
                    export_request.rows = self._count(export_request, warnings, of=pull)
                if pull is None:
                    pull = self._export(export_request, file)
                    export_request.requests += pull.attempts
            except (NotData, TruncatedBody) as error:
                evidence, is_truncated = error.evidence, isinstance(error, TruncatedBody)
                if evidence is None or not file.exists() or (is_truncated and not _size(file)):
                    raise
                return self._land_refused(export_request, file, error, evidence, warnings)
            return self._land_file(export_request, file, pull, warnings)

    def _revalidate(
        self, export_request: _ExportRequest, file: Path, before: Manifest | None
    ) -> ExportPull | None:
        """Request the export unless it is unchanged since the look before; None if there is no such
        look, or if its rows have to be counted first."""
        if before is None:
            return None
        try:
            pull = self._export(export_request, file, before)
        except NotData as error:
            if error.kind != "bare_header":
                raise
            export_request.requests += error.attempts
            return None
        export_request.requests += pull.attempts
        return pull

    def _land_unchanged(
        self, export_request: _ExportRequest, before: Manifest, pull: ExportPull
    ) -> LandedBatch:
        """Land a 304. Without a Last-Modified its content is as old as in the look before."""
        content_at = read_http_date(pull.headers.get("last-modified"))
        if content_at is not None and export_content_at(content_at, pull.date) != content_at:
            content_at = None
        answer = NotModifiedAnswer(pull.date, pull.date_doubt, content_at, export_request.requests)
        return land_unchanged(self._context, before, answer)

    def _export(
        self, export_request: _ExportRequest, file: Path, before: Manifest | None = None
    ) -> ExportPull:
        scope, span = export_request.scope, request_range(export_request.scope)
        # Rows are compared here: the client would flag an export that lacks a single row.
        return self._context.client.export(
            file,
            span.lower,
            span.upper,
            coins=scope.coins,
            categories=scope.categories,
            rows_expected=0 if export_request.rows == 0 else None,
            validators=None if before is None else read_validators(before),
        )

    def _count(
        self, export_request: _ExportRequest, warnings: list[str], *, of: ExportPull | None
    ) -> int | None:
        """Request how many rows to expect; None if the service doesn't report it.

        `of` is the export if it was received already: no error of the count may lose it.
        """
        scope, span = export_request.scope, request_range(export_request.scope)
        try:
            total = self._context.client.events_total(
                span.lower, span.upper, coins=scope.coins, categories=scope.categories
            )
        except CatalogError as error:
            if of is None and not isinstance(error, AccessDenied | ContractBroken | TooSlow):
                raise
            export_request.requests += error.attempts
            warnings.append(f"the expected number of rows is not known: {error}")
            return None
        export_request.requests += 1
        return total

    def _land_file(
        self, export_request: _ExportRequest, file: Path, pull: ExportPull, warnings: list[str]
    ) -> LandedBatch:
        why, requests = list(pull.suspicions), export_request.requests
        expected = export_request.rows
        if expected is not None and pull.rows < expected:
            shortfall = f"{pull.rows} rows of {expected} expected"
            (why if pull.rows < expected * ENOUGH_ROWS_SHARE else warnings).append(shortfall)
        last_modified = read_http_date(pull.headers.get("last-modified"))
        content_at = export_content_at(last_modified, pull.date)
        if content_at != last_modified:
            warnings.append("no Last-Modified header: treated as the snapshot of 00:05 UTC")
        if pull.date_doubt:
            warnings.append(pull.date_doubt)
        self._context.report_progress("export", pull.rows, expected)
        export_pull = self._context.describe_batch(
            "export",
            export_request.scope,
            observed_at=pull.date,
            content_at=content_at,
            requests=requests,
            rows_claimed=expected,
            why_incomplete="; ".join(why),
            date_doubt=pull.date_doubt,
            etag=kept_validator(pull.headers.get("etag")),
            last_modified=kept_validator(pull.headers.get("last-modified")),
        )
        manifest = self._context.landing.land_file(export_pull, file)
        return LandedBatch(manifest, requests, pull.rows, warnings=tuple(warnings))

    def _land_refused(
        self,
        export_request: _ExportRequest,
        file: Path,
        error: CatalogError,
        evidence: ResponseHead,
        warnings: list[str],
    ) -> LandedBatch:
        """Land a response that is not an export, or the part of an export that was received."""
        requests = export_request.requests + error.attempts
        if evidence.date_doubt:
            warnings.append(evidence.date_doubt)
        export_pull = self._context.describe_batch(
            "export",
            export_request.scope,
            observed_at=evidence.date,
            content_at=export_content_at(None, evidence.date),
            requests=requests,
            rows_claimed=export_request.rows,
            why_incomplete=str(error),
            date_doubt=evidence.date_doubt,
        )
        manifest = self._context.landing.land_file(export_pull, file)
        later = None
        if isinstance(error, TruncatedBody):
            later = defer_failed_export(error, self._context.service.now())
        return LandedBatch(manifest, requests, 0, warnings=(*warnings, str(error)), deferred=later)


def _size(file: Path) -> int:
    return file.stat().st_size


def _landed_before(landed: Sequence[LandedBatch]) -> str:
    ids = ", ".join(outcome.manifest.batch_id for outcome in landed)
    return f"The parts before it are landed as {ids}" if ids else ""


_SINCE: Final = timedelta(days=constants.CANCELLATIONS_SINCE_DAYS)
_TOO_LATE: Final = f"resumed after more than {RESUMED_WITHIN.seconds // 60} minutes"


class Puller:
    """Lands what one client pulls under one plan. `clock` is the machine's, aware UTC.

    The service's time is by the clock of the client, which records the Date of every response. A
    pull of a list lands the pages before an error as a partial batch and raises it; a Defer after
    the first page is returned with the batch. Without any page nothing is landed. A response that
    is not a list (HTML, a JSON error, nothing) is landed, with a text in `warnings`.

    `resumed` has the recent pulls that `resume_open` finished; pullers of one session share it. The
    next pull of the same scope on the same day returns such a pull and sends nothing.
    """

    def __init__(
        self,
        client: CatalogClient,
        landing: Landing,
        *,
        plan: Plan,
        source: str,
        clock: Callable[[], datetime],
        on_page: OnPage | None = None,
        resumed: list[LandedBatch] | None = None,
    ) -> None:
        self._client = client
        self._resumed = [] if resumed is None else resumed
        self._landing = landing
        self._plan = plan
        self._service = client.service_clock
        self.context = PullContext(client, landing, plan, source, clock, self._service, on_page)

    def coins(self) -> LandedBatch:
        return self._pull("coins", Scope())

    def categories(self) -> LandedBatch:
        """Pull the categories; if they are unchanged, land a look without a body.

        Raises:
            AccessDenied: the service refuses them: continue without.
        """
        before = last_look(self.context, "categories", Scope())
        if before is None:
            return self._pull("categories", Scope())
        try:
            return self._pull("categories", Scope(), read_validators(before))
        except NotModified as error:
            if error.evidence is None:
                raise
            date = error.evidence.date
            content_at = list_content_at(date, self._plan)
            answer = NotModifiedAnswer(date, error.evidence.date_doubt, content_at, error.attempts)
            return land_unchanged(self.context, before, answer)

    def cancellations(self, since: datetime | date | None = None) -> LandedBatch:
        """Pull the cancellations since a time, inclusive; default 90 days ago."""
        if since is None:
            since = (self._service.now() - _SINCE).replace(microsecond=0)
        return self._pull("cancellations", Scope(since=first_instant(since)))

    def events(
        self,
        lower: DateBound,
        upper: DateBound,
        *,
        coins: Sequence[str] | None = None,
        categories: Sequence[str] | None = None,
    ) -> LandedBatch:
        """Pull the events between two inclusive bounds; default from today to the plan's horizon.

        Raises:
            ValueError: a naive time, an empty filter, or a range that ends before it begins.
        """
        usual = upcoming_window(self._plan, self._service.now())
        scope = definite_scope(lower, upper, usual=usual, coins=coins, categories=categories)
        return self._pull("events", scope)

    def export(
        self,
        lower: DateBound,
        upper: DateBound,
        *,
        coins: Sequence[str] | None = None,
        categories: Sequence[str] | None = None,
        rows_expected: int | None = None,
    ) -> list[LandedBatch]:
        """Pull the export between two inclusive bounds; default the plan's whole window.

        Mostly one batch. If the service is too slow, or the filter takes several requests, it is
        one for each part, with a scope of its own. `rows_expected` None is requested first.

        Raises:
            ValueError: as `events`.
            CatalogError: any of the tree; `left` names the parts that are landed. A Defer after
                the first part is in the last LandedBatch.
        """
        usual = plan_window(self._plan, self._service.now())
        scope = definite_scope(lower, upper, usual=usual, coins=coins, categories=categories)
        return ExportLanding(self.context).pull(scope, rows_expected)

    def event(self, event_id: str) -> LandedBatch:
        """Look up one event: a page with status 200, 404 (not found) or 410 (cancelled).

        Raises:
            ValueError: an id that can't stand in a path.
        """
        try:
            answer = self._client.event(event_id)
        except (NotData, TruncatedBody) as error:
            if not isinstance(error.evidence, Answer):
                raise
            return self._land_event(event_id, error.evidence, error.attempts, str(error))
        status, why = answer.status, ""
        if status != 200 and looks_like_html(answer.body, answer.headers):
            why = f"the {status} is an HTML page, which may not come from the catalog"
        rows = int(status == 200)
        return self._land_event(event_id, answer, answer.attempts, why, status, rows)

    def resume_open(self) -> list[LandedBatch]:
        """Finish or close the pulls that an earlier process left in the journal, oldest first.

        A pull is resumed if its last page is at most 15 minutes old and it is of this source and
        plan. Else, or if the service stops it again, it is landed as it is, and no error of the
        tree is raised. Pulls of a process that is alive are not touched.
        """
        landed: list[LandedBatch] = []
        journal = self._landing.journal
        for pull_id in journal.ids():
            with lock_pull(self._landing, pull_id) as is_locked:
                found = journal.recovered(pull_id) if is_locked else None
                if found is not None and found.intent.feed in PAGED:
                    # Asked first, since landing removes the journal. What had ended is landed at
                    # any time, and then shows an earlier catalog than a pull of now.
                    is_of_now = not self._why_apart(found)
                    resumed = self._resume(found)
                    landed += resumed
                    self._resumed += resumed if is_of_now else []
        return landed

    def _pull(self, feed: Feed, scope: Scope, validators: Validators | None = None) -> LandedBatch:
        today = self._service.now().date()
        for resumed in self._resumed:
            manifest = resumed.manifest
            is_same = manifest.feed == feed and covers(manifest.scope, scope)
            if is_same and manifest.complete and manifest.observed_at.date() == today:
                self._resumed.remove(resumed)
                return resumed
        with self.context.begun(feed, scope) as open_pull:
            return PagedPull(self.context, open_pull, validators).run()

    def _resume(self, found: OpenPull) -> list[LandedBatch]:
        pull = PagedPull(self.context, found)
        if not pull.begun:
            pull.discard()
            return []
        if pull.ended:
            return [pull.close("")]
        why = self._why_apart(found)
        if not why and not pull.can_resume:
            why = "its pages do not show what is left of it"
        return [pull.close(why) if why else pull.run(is_resumed=True)]

    def _why_apart(self, found: OpenPull) -> str:
        """Return why an open pull is none of now, empty if it is."""
        intent = found.intent
        if intent.source != self.context.source:
            return f"started with {intent.source}, which is no longer the source"
        if intent.plan != self._plan.name:
            return f"started under the plan {intent.plan}, which is now {self._plan.name}"
        if not found.may_continue(self.context.clock()):
            return f"{_TOO_LATE}; the rest is a new batch"
        return ""

    def _land_event(
        self,
        event_id: str,
        received: Answer,
        attempts: int,
        why_incomplete: str,
        status: int = 200,
        rows: int = 0,
    ) -> LandedBatch:
        """Land the response to a look-up."""
        pull = self.context.describe_batch(
            "event",
            Scope(event_id=event_id),
            observed_at=received.date,
            content_at=list_content_at(received.date, self._plan),
            requests=attempts,
            why_incomplete=why_incomplete,
            date_doubt=received.date_doubt,
        )
        manifest = self._landing.land(pull, [(received.body, None)], status=status)
        warnings = tuple(text for text in (why_incomplete, received.date_doubt) if text)
        return LandedBatch(manifest, attempts, rows, warnings=warnings)
