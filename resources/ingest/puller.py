"""Pulls a feed of the catalog and lands it: each pull is one batch.

    puller = Puller(client, home.landing, plan=ELITE, source=client.base_url, clock=utc_now)
    for landed in puller.resume_open():
        ...                                  # pulls of an earlier process, finished or closed
    landed = puller.events(date(2026, 3, 1), date(2026, 3, 31))

Belongs here: what each feed requests and which times its batch has. Does not: how pages are kept
and resumed (paged_pull.py), how the export is split (export_pull.py).
"""

from collections.abc import Callable, Sequence
from datetime import date, datetime, timedelta
from typing import Final

from catalog.contract import constants
from catalog.contract.plans import Plan, plan_window, upcoming_window
from resources.errors import CatalogError, NotData, NotModified, TruncatedBody
from resources.http.client import CatalogClient
from resources.http.list_query import DateBound, Validators
from resources.http.lookups import EventAnswer, EventStatus
from resources.ingest.context import Landed, LandingRoom, OnPage, PullContext, list_content_at
from resources.ingest.export_pull import ExportLanding
from resources.ingest.kept_pages import PAGED
from resources.ingest.paged_pull import PagedPull
from resources.ingest.revalidation import (
    NotModifiedAnswer,
    land_unchanged,
    last_look,
    validators_of,
)
from resources.ingest.scopes import covers, definite_scope, first_instant
from warehouse.landing.batches import Feed, Scope
from warehouse.landing.journal import RESUMED_WITHIN, OpenPull
from warehouse.landing.landing import Landing

_STATUS_CODES: Final[dict[EventStatus, int]] = {"found": 200, "gone": 410, "not_found": 404}
_SINCE: Final = timedelta(days=constants.CANCELLATIONS_SINCE_DAYS)
_TOO_LATE: Final = f"resumed after more than {RESUMED_WITHIN.seconds // 60} minutes"


class Puller:
    """Lands what one client pulls under one plan. `clock` is the machine's, aware UTC.

    The service's time is by the clock of the client, which records the Date of every answer. A pull
    of a list lands the pages before an error as a partial batch and raises RetryLater or Stop; a
    Defer after the first page is returned with the batch. Without any page nothing is landed. An
    answer that is no list (HTML, a JSON error, nothing) is landed, with a text in `warnings`.

    What `resume_open` finished of the last minutes is in `resumed`, which pullers of one session
    share: the pull that asks for the same next, on the same day, returns it, and sends nothing.
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
        resumed: list[Landed] | None = None,
    ) -> None:
        self._client = client
        self._resumed = [] if resumed is None else resumed
        self._landing = landing
        self._plan = plan
        self._service = client.service_clock
        self.context = PullContext(
            client, LandingRoom(landing), plan, source, clock, self._service, on_page
        )

    def coins(self) -> Landed:
        return self._pull("coins", Scope())

    def categories(self) -> Landed:
        """Pull the categories; if they are those of the last look, land a look without a body.

        Raises:
            AccessDenied: the service refuses them: continue without.
        """
        before = last_look(self.context, "categories", Scope())
        if before is None:
            return self._pull("categories", Scope())
        try:
            return self._pull("categories", Scope(), validators_of(before))
        except NotModified as error:
            if error.evidence is None:
                raise
            date = error.evidence.date
            content_at = list_content_at(date, self._plan)
            answer = NotModifiedAnswer(date, error.evidence.date_doubt, content_at, error.attempts)
            return land_unchanged(self.context, before, answer)

    def cancellations(self, since: datetime | date | None = None) -> Landed:
        """Pull the cancellations since an instant, inclusive; default 90 days ago."""
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
    ) -> Landed:
        """Pull the events between two inclusive bounds; default from today to the plan's horizon.

        Raises:
            ValueError: a naive instant, an empty filter, or a range that ends before it begins.
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
    ) -> list[Landed]:
        """Pull the export between two inclusive bounds; default the plan's whole window.

        Mostly one batch. If the service is too slow, or the filter takes several requests, it is
        one for each part, with a scope of its own. `rows_expected` None is requested first.

        Raises:
            ValueError: as `events`.
            CatalogError: any of the tree; `left` names the parts that are landed. A Defer after
                the first part is in the last Landed, with what is left over.
        """
        usual = plan_window(self._plan, self._service.now())
        scope = definite_scope(lower, upper, usual=usual, coins=coins, categories=categories)
        return ExportLanding(self.context).pull(scope, rows_expected)

    def event(self, event_id: str) -> Landed:
        """Look up one event: a page with status 200, 404 (not found) or 410 (cancelled).

        Raises:
            ValueError: an id that can't stand in a path.
        """
        try:
            answer = self._client.event(event_id)
        except (NotData, TruncatedBody) as error:
            return self._land_no_event(event_id, error)
        why = ""
        if answer.status != "found" and answer.shape == "html":
            why = (
                f"the {_STATUS_CODES[answer.status]} is an HTML page, which may not come from "
                "the catalog"
            )
        return self._land_event(answer, why)

    def resume_open(self) -> list[Landed]:
        """Finish or close the pulls that an earlier process left in the journal, oldest first.

        A pull is resumed if its last page is at most 15 minutes old and it is of this source and
        plan. Else, or if the service stops it again, it is landed as it is, with the rest left
        over for a new batch: no error of the tree is raised. Pulls of a process that is alive are
        not touched.
        """
        landed: list[Landed] = []
        journal = self._landing.journal
        for pull_id in journal.ids():
            with self.context.room.locked(pull_id) as is_locked:
                found = journal.recovered(pull_id) if is_locked else None
                if found is not None and found.intent.feed in PAGED:
                    # Asked first, since landing removes the journal. What had ended is landed at
                    # any time, and then shows an earlier catalog than a pull of now.
                    is_of_now = not self._why_apart(found)
                    resumed = self._resume(found)
                    landed += resumed
                    self._resumed += resumed if is_of_now else []
        return landed

    def _pull(self, feed: Feed, scope: Scope, validators: Validators | None = None) -> Landed:
        today = self._service.now().date()
        for resumed in self._resumed:
            manifest = resumed.manifest
            is_same = manifest.feed == feed and covers(manifest.scope, scope)
            if is_same and manifest.complete and manifest.observed_at.date() == today:
                self._resumed.remove(resumed)
                return resumed
        with self.context.begun(feed, scope) as open_pull:
            return PagedPull(self.context, open_pull, validators).run()

    def _resume(self, found: OpenPull) -> list[Landed]:
        pull = PagedPull(self.context, found)
        if not pull.begun:
            pull.discard()
            return []
        if pull.ended:
            return [pull.close("")]
        why = self._why_apart(found)
        if not why and not pull.can_resume:
            why = "its pages do not show what is left of it"
        return [pull.close(why) if why else pull.run_or_close()]

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

    def _land_event(self, answer: EventAnswer, why: str) -> Landed:
        pull = self.context.describe_batch(
            "event",
            Scope(event_id=answer.event_id),
            observed_at=answer.date,
            content_at=list_content_at(answer.date, self._plan),
            requests=answer.attempts,
            why_incomplete=why,
            date_doubt=answer.date_doubt,
        )
        status = _STATUS_CODES[answer.status]
        manifest = self.context.room.landing.land(pull, [(answer.body, None)], status=status)
        warnings = tuple(text for text in (why, answer.date_doubt) if text)
        rows = 1 if answer.status == "found" else 0
        return Landed(manifest, answer.attempts, rows, warnings=warnings)

    def _land_no_event(self, event_id: str, error: CatalogError) -> Landed:
        evidence = error.evidence
        if evidence is None or evidence.body is None:
            raise error
        pull = self.context.describe_batch(
            "event",
            Scope(event_id=event_id),
            observed_at=evidence.date,
            content_at=list_content_at(evidence.date, self._plan),
            requests=error.attempts,
            why_incomplete=str(error),
            date_doubt=evidence.date_doubt,
        )
        manifest = self._landing.land(pull, [(evidence.body, None)])
        warnings = tuple(text for text in (str(error), evidence.date_doubt) if text)
        return Landed(manifest, error.attempts, 0, warnings=warnings)
