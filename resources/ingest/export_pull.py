"""The bulk export, pulled into the landing folder; split by dates if the service is too slow.

An answer that is no catalog is landed too, and marked: the merge quarantines it.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from resources.deferrals import failed_export
from resources.errors import (
    AccessDenied,
    CatalogError,
    ContractBroken,
    Defer,
    Evidence,
    NotData,
    TooSlow,
    TruncatedBody,
)
from resources.http.export_download import ExportPull
from resources.ingest.context import Landed, PullContext, export_content_at
from resources.ingest.revalidation import (
    NotModifiedAnswer,
    kept_validator,
    land_unchanged,
    last_look,
    validators_of,
)
from resources.ingest.scopes import covering, halves, single_requests, span_of
from warehouse.landing.batches import ENOUGH_ROWS_SHARE, Manifest, Scope


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

    def pull(self, scope: Scope, rows_expected: int | None) -> list[Landed]:
        """Return a batch for each request: one, unless the filter or the service need several.

        Raises:
            CatalogError: what was received before it is landed; a Defer is then returned instead.
        """
        export_requests = deque(_ExportRequest(request) for request in single_requests(scope))
        if len(export_requests) == 1:
            export_requests[0].rows = rows_expected
        landed: list[Landed] = []
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
                    rest = covering([part.scope for part in export_requests])
                    landed[-1] = replace(landed[-1], deferred=error, left_over=rest)
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

    def _land(self, export_request: _ExportRequest) -> Landed:
        warnings: list[str] = []
        before = last_look(self._context, "export", export_request.scope)
        with self._context.room.staging() as file:
            try:
                pull = self._revalidate(export_request, file, before)
                if before is not None and pull is not None and pull.not_modified:
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
        """Request the export if it is not that of the look before; None if there is no such look,
        or if its rows have to be counted first."""
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
    ) -> Landed:
        """Land a 304. Without a Last-Modified its content is as old as that of the look before."""
        content_at = pull.last_modified
        if content_at is not None and export_content_at(content_at, pull.date) != content_at:
            content_at = None
        answer = NotModifiedAnswer(pull.date, pull.date_doubt, content_at, export_request.requests)
        return land_unchanged(self._context, before, answer)

    def _export(
        self, export_request: _ExportRequest, file: Path, before: Manifest | None = None
    ) -> ExportPull:
        scope, span = export_request.scope, span_of(export_request.scope)
        # Rows are compared here: the client would flag an export that lacks a single row.
        return self._context.client.export(
            file,
            span.lower,
            span.upper,
            coins=scope.coins,
            categories=scope.categories,
            rows_expected=0 if export_request.rows == 0 else None,
            validators=None if before is None else validators_of(before),
        )

    def _count(
        self, export_request: _ExportRequest, warnings: list[str], *, of: ExportPull | None
    ) -> int | None:
        """Request how many rows to expect; None if the service doesn't report it.

        `of` is the export if it was received already: no error of the count may lose it.
        """
        scope, span = export_request.scope, span_of(export_request.scope)
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
    ) -> Landed:
        why, requests = list(pull.suspicions), export_request.requests
        expected = export_request.rows
        if expected is not None and pull.rows < expected:
            shortfall = f"{pull.rows} rows of {expected} expected"
            (why if pull.rows < expected * ENOUGH_ROWS_SHARE else warnings).append(shortfall)
        content_at = export_content_at(pull.last_modified, pull.date)
        if content_at != pull.last_modified:
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
            etag=kept_validator(pull.etag),
            last_modified=kept_validator(pull.headers.get("last-modified")),
        )
        manifest = self._context.room.landing.land_file(export_pull, file)
        return Landed(manifest, requests, pull.rows, warnings=tuple(warnings))

    def _land_refused(
        self,
        export_request: _ExportRequest,
        file: Path,
        error: CatalogError,
        evidence: Evidence,
        warnings: list[str],
    ) -> Landed:
        """Land an answer that is no export, or the part of an export that was received."""
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
        manifest = self._context.room.landing.land_file(export_pull, file)
        later = None
        if isinstance(error, TruncatedBody):
            later = failed_export(error, self._context.service.now())
        return Landed(manifest, requests, 0, warnings=(*warnings, str(error)), deferred=later)


def _size(file: Path) -> int:
    return file.stat().st_size


def _landed_before(landed: Sequence[Landed]) -> str:
    ids = ", ".join(outcome.manifest.batch_id for outcome in landed)
    return f"The parts before it are landed as {ids}" if ids else ""
