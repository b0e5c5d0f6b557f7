"""Pulls a feed of the catalog and lands it: each pull is one batch.

    puller = Puller(client, home.landing, plan=ELITE, source=client.base_url, clock=utc_now)
    for landed in puller.resume_open():
        ...                                  # pulls of an earlier process, finished or closed
    landed = puller.events(date(2026, 3, 1), date(2026, 3, 31))

The bulk export is split by dates if the service is too slow. A response that is not a catalog is
landed too, and marked: the merge quarantines it. An export that is truncated on every attempt is
landed as an incomplete batch, which proves no absence, and requested again later. Does not belong
here: how pages are kept and resumed (paged_pull.py).
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Final

from msgspec import structs

from almanac.core.progress import phase
from catalog.contract import constants
from catalog.contract.plans import INSTANT_STEP, day_end, find_plan_window, find_upcoming_window
from resources.errors import (
    AccessDenied,
    CatalogError,
    ContractBroken,
    Defer,
    NotData,
    TooSlow,
    TruncatedBody,
)
from resources.http.client import NOT_MODIFIED, ExportPull
from resources.http.paginator import PAGED
from resources.http.response_body import looks_like_html
from resources.ingest.paged_pull import (
    LandedBatch,
    PagedPull,
    PullContext,
    export_content_at,
    list_content_at,
    lock_pull,
)
from resources.limits.decision import defer_failed_export
from resources.response import Answer, ResponseHead
from resources.scopes import covers, halve_dates, make_scope, split_filters
from resources.service_clock import read_etag, read_http_date
from warehouse.landing.batches import ENOUGH_ROWS_SHARE, Feed, Manifest, Scope, parse_feed
from warehouse.landing.journal import RESUMED_WITHIN, OpenPull


@dataclass(slots=True)
class _ExportRequest:
    """One export to request. `requests` is the number of requests sent for it so far. If `rows` is
    None, the rows must be counted."""

    scope: Scope
    rows: int | None = None
    requests: int = 0


_SINCE: Final = timedelta(days=constants.CANCELLATIONS_SINCE_DAYS)
_TOO_LATE: Final = f"resumed after more than {RESUMED_WITHIN.seconds // 60} minutes"
_YEAR: Final = timedelta(days=365)
_OPEN_END_YEARS: Final = 10
"""A range without an end is split up to this many years from today. After that, the service is too
slow."""


class Puller(PullContext):
    """Pulls feeds with one client and plan, and stores the responses as batches.

    The client's clock gives the service's time; it records the Date of every response. A
    pull of a list lands the pages before an error as a partial batch and raises it; a Defer after
    the first page is returned with the batch. Without any page nothing is landed. A response that
    is not a list (HTML, a JSON error, nothing) is landed, with a text in `warnings`.

    The next pull of the same scope on the same day as one in `resumed` returns that pull and sends
    nothing.
    """

    def coins(self) -> LandedBatch:
        return self._pull("coins", Scope())

    def categories(self) -> LandedBatch:
        """Pull the categories.

        Raises:
            AccessDenied: the service refuses them: continue without.
        """
        return self._pull("categories", Scope())

    def cancellations(self, since: datetime | None = None) -> LandedBatch:
        """Pull the cancellations since a time, inclusive; default 90 days ago."""
        if since is None:
            since = (self.now() - _SINCE).replace(microsecond=0)
        return self._pull("cancellations", Scope(since=since.astimezone(UTC)))

    def events(
        self,
        lower: date | None,
        upper: date | None,
        *,
        coins: Sequence[str] | None = None,
        categories: Sequence[str] | None = None,
    ) -> LandedBatch:
        """Pull the events between two inclusive days; default from today to the plan's horizon.

        Raises:
            ValueError: it ends before it begins.
        """
        usual = find_upcoming_window(self.plan, self.now())
        scope = make_scope(lower, upper, usual=usual, coins=coins, categories=categories)
        return self._pull("events", scope)

    def export(
        self,
        lower: date | None,
        upper: date | None,
        *,
        coins: Sequence[str] | None = None,
        categories: Sequence[str] | None = None,
    ) -> list[LandedBatch]:
        """Pull the export between two inclusive days; default the plan's whole window.

        Mostly one batch. If the service is too slow, or the filter takes several requests, it is
        one for each part, with a scope of its own. The number of rows is requested first.

        Raises:
            ValueError: as `events`.
            CatalogError: any of the tree; `left` names the parts that are landed. A Defer after
                the first part is in the last LandedBatch.
        """
        usual = find_plan_window(self.plan, self.now())
        whole = make_scope(lower, upper, usual=usual, coins=coins, categories=categories)
        parts = deque(_ExportRequest(part) for part in split_filters(whole))
        landed: list[LandedBatch] = []
        while parts:
            try:
                landed.append(self._land_export(parts[0]))
                parts.popleft()
            except CatalogError as error:
                parts[0].requests += error.attempts
                if isinstance(error, TooSlow) and (split := self._halves(parts[0].scope)):
                    requests = parts.popleft().requests
                    parts.extendleft(_ExportRequest(half) for half in reversed(split))
                    parts[0].requests = requests
                    continue
                if isinstance(error, Defer) and landed:
                    landed[-1] = replace(landed[-1], deferred=error)
                    break
                if landed:
                    ids = ", ".join(part.manifest.batch_id for part in landed)
                    error.left = f"The parts before it are landed as {ids}"
                raise
        return landed

    def event(self, event_id: str) -> LandedBatch:
        """Look up one event: a page with status 200, 404 (not found) or 410 (cancelled).

        Raises:
            ValueError: an id that can't stand in a path.
        """
        why, status, rows = "", 200, 0
        try:
            answer = self.client.event(event_id)
            requests = answer.attempts
            status, rows = answer.status, int(answer.status == 200)
            if status != 200 and looks_like_html(answer.body, answer.headers):
                why = f"the {status} is an HTML page, which may not come from the catalog"
        except (NotData, TruncatedBody) as error:
            if not isinstance(error.evidence, Answer):
                raise
            answer, requests, why = error.evidence, error.attempts, str(error)
        pull = self.describe_batch(
            "event",
            Scope(event_id=event_id),
            observed_at=answer.date,
            content_at=list_content_at(answer.date, self.plan),
            requests=requests,
            why_incomplete=why,
            date_doubt=answer.date_doubt,
        )
        manifest = self.landing.land(pull, [(answer.body, None)], status=status)
        warnings = tuple(text for text in (why, answer.date_doubt) if text)
        return LandedBatch(manifest, requests, rows, warnings=warnings)

    def resume_open(self) -> list[LandedBatch]:
        """Finish or close the pulls that an earlier process left in the journal, oldest first.

        A pull is resumed if its last page is at most 15 minutes old and it is of this source and
        plan. Otherwise, or if the service stops it again, its pages are stored as a partial batch,
        and no CatalogError is raised. Pulls of a process that is alive are not touched.
        """
        landed: list[LandedBatch] = []
        journal = self.landing.journal
        for pull_id in journal.ids():
            with lock_pull(self.landing, pull_id) as is_locked:
                found = journal.recovered(pull_id) if is_locked else None
                if found is not None and found.intent.feed in PAGED:
                    # Asked first, since landing removes the journal. What had ended is landed at
                    # any time, and then shows an earlier catalog than a pull of now.
                    is_of_now = not self._why_apart(found)
                    resumed = self._resume(found)
                    landed += resumed
                    self.resumed += resumed if is_of_now else []
        return landed

    def _pull(self, feed: Feed, scope: Scope) -> LandedBatch:
        today = self.now().date()
        for resumed in self.resumed:
            manifest = resumed.manifest
            is_same = manifest.feed == feed and covers(manifest.scope, scope)
            if is_same and manifest.complete and manifest.observed_at.date() == today:
                self.resumed.remove(resumed)
                return resumed
        with self.begin(feed, scope) as open_pull:
            return PagedPull(self, open_pull).run()

    def _resume(self, found: OpenPull) -> list[LandedBatch]:
        pull = PagedPull(self, found)
        if not pull.begun:
            found.discard()
            return []
        if pull.ended:
            return [pull.close("")]
        why = self._why_apart(found)
        if not why and not pull.can_resume:
            why = "its pages do not show which part is missing"
        return [pull.close(why) if why else pull.run(is_resumed=True)]

    def _why_apart(self, found: OpenPull) -> str:
        """Return why an open pull can't be continued now; empty if it can."""
        intent = found.intent
        if intent.source != self.source:
            return f"started with {intent.source}, which is no longer the source"
        if intent.plan != self.plan.name:
            return f"started under the plan {intent.plan}, which is now {self.plan.name}"
        if not found.may_continue(self.clock()):
            return f"{_TOO_LATE}; the rest is a new batch"
        return ""

    def _halves(self, scope: Scope) -> tuple[Scope, Scope] | None:
        """Return two parts of an export's dates, None if they can't be split further.

        Dates without an end are split after today, then after each year.
        """
        if scope.upper is not None:
            return halve_dates(scope)
        today = self.now()
        lower = scope.lower or today
        if lower > today + _OPEN_END_YEARS * _YEAR:
            return None
        last = day_end((today if lower < today else lower + _YEAR).date())
        return structs.replace(scope, upper=last), structs.replace(scope, lower=last + INSTANT_STEP)

    def _land_export(self, part: _ExportRequest) -> LandedBatch:
        warnings: list[str] = []
        last = self._find_export_of_today(part.scope)
        with self.landing.storage.staging() as file:
            try:
                if part.rows is None and last is None:
                    part.rows = self._count(part, warnings)
                pull = self.client.export(
                    file,
                    part.scope,
                    may_be_empty=0 in (part.rows, None if last is None else last.rows_claimed),
                    etag=None if last is None else last.etag,
                )
                part.requests += pull.attempts
                if last is not None and pull.status == NOT_MODIFIED:
                    return LandedBatch(last, part.requests, last.rows_claimed or 0, is_same=True)
                if part.rows is None:
                    part.rows = self._count(part, warnings)
            except (NotData, TruncatedBody) as error:
                evidence, is_truncated = error.evidence, isinstance(error, TruncatedBody)
                is_empty = not file.exists() or (is_truncated and not file.stat().st_size)
                if evidence is None or is_empty:
                    raise
                return self._land_refused(part, file, error, evidence, warnings)
            return self._land_file(part, file, pull, warnings)

    def _find_export_of_today(self, scope: Scope) -> Manifest | None:
        """Return the newest complete export of the scope that was landed today with an ETag."""
        landing, wanted = self.landing, (self.plan.name, self.source)
        ids = landing.batch_ids(day=self.now().date())
        batches, _ = landing.readable(name for name in ids if parse_feed(name) == "export")
        for batch in sorted(batches, key=Manifest.fold_key, reverse=True):
            is_of_us = (batch.plan, batch.source) == wanted and batch.scope == scope
            if is_of_us and batch.complete and batch.etag:
                return batch
        return None

    def _count(self, part: _ExportRequest, warnings: list[str]) -> int | None:
        """Request how many rows to expect; None if the service doesn't report it."""
        try:
            total = self.client.events_total(part.scope)
        except (AccessDenied, ContractBroken, TooSlow) as error:
            part.requests += error.attempts
            warnings.append(f"the expected number of rows is not known: {error}")
            return None
        part.requests += 1
        return total

    def _land_file(
        self, part: _ExportRequest, file: Path, pull: ExportPull, warnings: list[str]
    ) -> LandedBatch:
        why, expected = list(pull.suspicions), part.rows
        if expected is not None and pull.rows < expected:
            shortfall = f"{pull.rows} rows of {expected} expected"
            (why if pull.rows < expected * ENOUGH_ROWS_SHARE else warnings).append(shortfall)
        last_modified = read_http_date(pull.headers.get("last-modified"))
        content_at = export_content_at(last_modified, pull.date)
        if content_at != last_modified:
            warnings.append("no Last-Modified header: treated as the snapshot of 00:05 UTC")
        if pull.date_doubt:
            warnings.append(pull.date_doubt)
        phase("export", pull.rows, expected)
        manifest = self._land_part(part, file, pull, content_at, "; ".join(why))
        return LandedBatch(manifest, part.requests, pull.rows, warnings=tuple(warnings))

    def _land_part(
        self, part: _ExportRequest, file: Path, head: ResponseHead, content_at: datetime, why: str
    ) -> Manifest:
        pull = self.describe_batch(
            "export",
            part.scope,
            observed_at=head.date,
            content_at=content_at,
            requests=part.requests,
            rows_claimed=part.rows,
            why_incomplete=why,
            date_doubt=head.date_doubt,
            etag=read_etag(head.headers),
        )
        return self.landing.land_file(pull, file)

    def _land_refused(
        self,
        part: _ExportRequest,
        file: Path,
        error: CatalogError,
        evidence: ResponseHead,
        warnings: list[str],
    ) -> LandedBatch:
        part.requests += error.attempts
        if evidence.date_doubt:
            warnings.append(evidence.date_doubt)
        content_at = export_content_at(None, evidence.date)
        manifest = self._land_part(part, file, evidence, content_at, str(error))
        is_truncated = isinstance(error, TruncatedBody)
        later = defer_failed_export(error, self.now()) if is_truncated else None
        said = (*warnings, str(error))
        return LandedBatch(manifest, part.requests, 0, warnings=said, deferred=later)
