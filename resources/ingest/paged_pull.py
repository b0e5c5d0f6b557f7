"""A list, kept page by page in the journal and landed as one batch; and what all pulls share.

Each page is on disk before the next is requested, and the batch is made from the journal alone, so
it is the same if another process lands it after a crash. A process locks its pull, and the lock
ends with the process: so no other process resumes a pull whose process is alive. Nothing else in
resources/ uses files of the landing folder. Times are aware UTC.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count, islice
from pathlib import Path
from typing import Final

from msgspec import UNSET

from almanac.core.files import make_folders, try_lock
from almanac.core.progress import phase
from catalog.contract.constants import EXPORT_SNAPSHOT_MINUTE
from catalog.contract.plans import PLANS, Plan, day_start
from resources.errors import CatalogError, ContractBroken, Defer, NotData, TruncatedBody
from resources.http.client import CatalogClient
from resources.http.paginator import PAGED, ListProgress, RawPage, read_page
from resources.response import Answer
from resources.scopes import split_filters
from warehouse.codecs import storable_text
from warehouse.errors import LandingError
from warehouse.landing.batches import Feed, Manifest, Pull, Scope
from warehouse.landing.journal import Intent, OpenPull, PageNote
from warehouse.landing.landing import Landing


@contextmanager
def lock_pull(landing: Landing, pull_id: str) -> Iterator[bool]:
    """Lock a pull against other processes; yield whether that was possible."""
    path = landing.storage.path(f"journal/{pull_id}.lock")
    make_folders(path.parent)
    with path.open("a") as lock:
        # If the file is gone, its last owner has just removed it, and the pull with it.
        if not (try_lock(lock) and _is_at(lock.fileno(), path)):
            yield False
            return
        try:
            yield True
        finally:
            path.unlink(missing_ok=True)


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


@dataclass(slots=True)
class PullContext:
    """Client, landing, plan and source of some pulls. `clock` is the machine's, aware UTC.

    `resumed` has the recent pulls that `resume_open` finished; pullers of one session share it.
    """

    client: CatalogClient
    landing: Landing
    plan: Plan
    source: str
    clock: Callable[[], datetime]
    resumed: "list[LandedBatch]" = field(default_factory=list)

    def now(self) -> datetime:
        """Return the service's time, by the Date of the last response."""
        return self.client.service_clock.now()

    def describe_batch(
        self,
        feed: Feed,
        scope: Scope,
        *,
        observed_at: datetime,
        content_at: datetime,
        requests: int,
        rows_claimed: int | None = None,
        why_incomplete: str | None = None,
        of: Intent | None = None,
        date_doubt: str = "",
        etag: str | None = None,
    ) -> Pull:
        """Return the description of a batch, with the plan and source `of` an earlier pull.

        The content time is never after the observed time, even if the response says so.
        """
        return Pull(
            feed=feed,
            scope=scope,
            plan=self.plan.name if of is None else of.plan,
            source=self.source if of is None else of.source,
            observed_at=observed_at,
            content_at=min(content_at, observed_at),
            landed_at=self.clock(),
            requests=requests,
            rows_claimed=rows_claimed,
            why_incomplete=None if not why_incomplete else storable_text(why_incomplete),
            export_columns=(feed == "export" and self.client.export_columns) or UNSET,
            date_doubt=date_doubt or None,
            etag=etag,
        )

    @contextmanager
    def begin(self, feed: Feed, scope: Scope) -> Iterator[OpenPull]:
        """Begin a journaled pull and lock it while it is in progress."""
        started_at = self.clock()
        for tries in count():
            intent = Intent(
                feed=feed,
                scope=scope,
                plan=self.plan.name,
                source=self.source,
                # Two pulls that begin at the same time must not share a journal.
                started_at=started_at + timedelta(microseconds=tries),
            )
            journaled = f"journal/{intent.pull_id}/pull.json"
            with lock_pull(self.landing, intent.pull_id) as is_locked:
                if is_locked and not self.landing.storage.exists(journaled):
                    yield self.landing.journal.begin(intent)
                    return


@dataclass(frozen=True, slots=True)
class LandedBatch:
    """A landed pull, whole or in part (`manifest.complete`).

    `requests` counts the requests of this process, and the pages of an earlier one. `rows` includes
    duplicates. `deferred` says when the service will respond again. `is_same` is whether the batch
    was landed before, and the service has the same snapshot.
    """

    manifest: Manifest
    requests: int
    rows: int
    deferred: Defer | None = None
    warnings: tuple[str, ...] = ()
    is_same: bool = False


_SNAPSHOT: Final = timedelta(minutes=EXPORT_SNAPSHOT_MINUTE)
_EXPORT_OUT_BY: Final = timedelta(minutes=10)
"""An export fetched sooner after midnight may still be the export of the previous day."""
_FIRST_YEAR: Final = 2000


def list_content_at(first_date: datetime, plan: Plan) -> datetime:
    """Return the content time of a list or look-up: the Date of its first page minus the plan's
    delay."""
    return first_date - timedelta(seconds=plan.freshness_s)


def export_content_at(last_modified: datetime | None, date: datetime) -> datetime:
    """Return the content time of an export: the time of its snapshot.

    `date` is when it was sent, by the service's clock. A Last-Modified after `date`, or of an
    impossible year, is ignored.
    """
    if last_modified is not None and last_modified <= date and last_modified.year >= _FIRST_YEAR:
        return last_modified
    today = day_start(date)
    day = today - timedelta(days=1) if date < today + _EXPORT_OUT_BY else today
    return day + _SNAPSHOT


def resolve_plan(name: str, usual: Plan) -> Plan:
    """Return the plan of an earlier pull; for an unknown name, the one with the oldest content."""
    if name == usual.name:
        return usual
    return PLANS.get(name) or max(PLANS.values(), key=lambda plan: plan.freshness_s)


@dataclass(frozen=True, slots=True)
class RefusedPage:
    """A response that is not a list, with the reason. It ends a pull, and is the last in its
    journal."""

    note: PageNote
    why: str


class PagedPull:
    """A pull in progress, with the pages of an earlier process."""

    def __init__(self, context: PullContext, open_pull: OpenPull) -> None:
        self._context = context
        self._open_pull = open_pull
        self._intent = open_pull.intent
        self._progress = ListProgress(split_filters(self._intent.scope))
        self._first: PageNote | None = None
        self._last: PageNote | None = None
        self._refused: RefusedPage | None = None
        for note, body in open_pull.pages():
            self._read_back(note, body)
        self._paid_before = self._progress.pages + (self._refused is not None)
        self._paginator = context.client.pages(self._intent.feed, self._progress)
        self._warnings: list[str] = []

    @property
    def begun(self) -> bool:
        return self._first is not None or self._refused is not None

    @property
    def ended(self) -> bool:
        return self._progress.ended and self._refused is None

    @property
    def can_resume(self) -> bool:
        """Whether the remaining pages are known and can be requested, apart from time and plan."""
        return not self._progress.lost and self._refused is None

    def run(self, *, is_resumed: bool = False) -> LandedBatch:
        """Page to the end and land the pages.

        With `is_resumed` the pages before an error are landed, and none is raised.

        Raises:
            CatalogError: the pages before it are landed as a partial batch.
            Defer: before the first page; later it is in the result.
        """
        error = self._page_to_end()
        if error is None or self._refused is not None:
            return self.close("")
        if not self.begun:
            self._open_pull.discard()
            raise error
        if is_resumed:
            self._warnings.append(str(error))
        landed = self.close(str(error), error if isinstance(error, Defer) else None)
        if is_resumed or isinstance(error, Defer):
            return landed
        batch_id = landed.manifest.batch_id
        error.left = f"{landed.rows} rows are landed as the partial batch {batch_id}"
        raise error

    def close(self, why: str, deferred: Defer | None = None) -> LandedBatch:
        """Land the journal, then discard it.

        `why` says why the list was not pulled to its end; it is empty if it was.
        """
        landed, refused = self._land_pages(why), self._refused
        if refused is not None:
            self._warnings.append(refused.why)
            refused_batch = self._land_refused(refused)
            if landed is not None:
                self._warnings.append(
                    f"the response in place of a page is batch {refused_batch.batch_id}"
                )
            landed = landed or refused_batch
        assert landed is not None, "a pull without a page is discarded, not closed"
        self._open_pull.discard()
        return LandedBatch(
            manifest=landed,
            requests=self._requests,
            rows=self._progress.rows,
            deferred=deferred,
            warnings=tuple(dict.fromkeys(filter(None, self._warnings))),
        )

    def _page_to_end(self) -> CatalogError | None:
        """Keep pages until the end; return the error that stopped it before."""
        progress = self._progress
        try:
            for page in self._paginator:
                self._keep(page)
                phase(self._intent.feed, progress.rows, progress.total_last)
        except CatalogError as error:
            evidence = error.evidence
            in_place = isinstance(error, NotData | TruncatedBody)
            if in_place and isinstance(evidence, Answer):
                self._keep_refused(error, evidence)
            return error
        return None

    def _keep(self, page: RawPage) -> None:
        """Write a page to the journal, with what is needed to continue after it and to land it."""
        note = PageNote(
            number=self._progress.pages,
            cursor_in=page.cursor_in,
            date=page.date.astimezone(UTC),
            received_at=self._context.clock(),
            lower=page.params.get("from"),
            upper=page.params.get("to"),
            date_doubt=page.date_doubt,
        )
        self._open_pull.add(note, page.body)
        self._first, self._last = self._first or note, note
        self._warnings.append(page.date_doubt)

    def _keep_refused(self, error: CatalogError, evidence: Answer) -> None:
        note = PageNote(
            number=self._progress.pages + 1,
            cursor_in=error.cursor,
            date=evidence.date.astimezone(UTC),
            received_at=self._context.clock(),
            date_doubt=evidence.date_doubt,
        )
        self._open_pull.add(note, evidence.body)
        self._refused = RefusedPage(note, str(error))
        self._warnings.append(evidence.date_doubt)

    def _read_back(self, note: PageNote, body: bytes) -> None:
        bounds = {"from": note.lower, "to": note.upper}
        params = {name: text for name, text in bounds.items() if text is not None}
        answer = Answer(200, {}, note.date, note.date_doubt, note.received_at, 1, body)
        try:
            page = read_page(answer, PAGED[self._intent.feed], params, note.cursor_in)
        except ContractBroken as error:
            self._refused = RefusedPage(note, str(error))
        else:
            self._progress.follow(page)
            self._first, self._last = self._first or note, note

    @property
    def _requests(self) -> int:
        return self._paid_before + self._paginator.requests

    def _land_pages(self, why: str) -> Manifest | None:
        """Land the pages that are lists as one batch; None if there are none.

        The first page gives the content time, the last page the observed time.
        """
        intent, first, last = self._intent, self._first, self._last
        if first is None or last is None:
            return None
        pull = self._context.describe_batch(
            intent.feed,
            intent.scope,
            observed_at=last.date,
            content_at=list_content_at(first.date, resolve_plan(intent.plan, self._context.plan)),
            requests=self._requests,
            rows_claimed=self._progress.total_last,
            why_incomplete=why or self._why_incomplete(),
            of=intent,
            date_doubt=last.date_doubt or first.date_doubt,
        )
        return self._context.landing.land(pull, ((body, None) for body in self._bodies()))

    def _bodies(self) -> Iterator[bytes]:
        """Yield the bodies that are lists.

        Raises:
            LandingError: a kept page is gone, so no batch may claim to have it.
        """
        found = 0
        for _, body in islice(self._open_pull.pages(), self._progress.pages):
            found += 1
            yield body
        if found != self._progress.pages:
            raise LandingError(
                f"{self._progress.pages} pages were journaled, {found} are there. Nothing of this "
                "pull was landed. Run it again: it requests what is missing."
            )

    def _why_incomplete(self) -> str:
        if self._refused is not None:
            return f"page {self._refused.note.number} was not a list: {self._refused.why}"
        return self._progress.why_incomplete()

    def _land_refused(self, refused: RefusedPage) -> Manifest:
        """Land a response that is not a list as a batch of its own, apart from the pages."""
        intent, note = self._intent, refused.note
        pull = self._context.describe_batch(
            intent.feed,
            intent.scope,
            observed_at=note.date,
            content_at=list_content_at(note.date, resolve_plan(intent.plan, self._context.plan)),
            requests=0 if self._first is not None else self._requests,
            why_incomplete=refused.why,
            of=intent,
            date_doubt=note.date_doubt,
        )
        body = next(islice(self._open_pull.pages(), self._progress.pages, None))[1]
        return self._context.landing.land(pull, [(body, None)])
