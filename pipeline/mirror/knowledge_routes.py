"""The mirror's own routes: the history of an event, and the changes in the order of knowledge.

Each page of changes has a cursor, also the last page: a later request with it returns what was
published since. The cursor contains `since`, so a client sends the cursor alone. Each change has a
cursor, too, and a client can continue after any change.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Final, NamedTuple, Protocol

from msgspec import structs
from starlette.types import Scope

from catalog.contract import constants, errors
from catalog.contract.parameters import QueryReader
from catalog.contract.plans import ImpactView, Plan
from catalog.contract.records import EVENT_FIELDS, Event, Page, PaginationMeta, Record
from catalog.server.exchange import Exchange, Handler, JsonAnswer, json_answer
from catalog.server.gating import ViewNames, event_visible, shown_event
from catalog.server.routes import CursorSigner
from catalog.server.store import CatalogView
from pipeline.mirror.published_catalog import CatalogVersion
from pipeline.mirror.version_feed import FeedPlace, FeedUnusable, ForeignPlace, start_place

log = logging.getLogger(__name__)
HISTORY_PATH: Final = constants.EVENTS_PATH + "/{id}/history"
CHANGES_PATH: Final = constants.EVENTS_PATH + "/changes"
_RECORDED_WITHIN_S: Final = 0.05
FIELD_NAMES: Final = {field.name: field.encode_name for field in structs.fields(Event)} | {
    "impact_band": "impact"
}
"""The names of the interface for the columns of an event."""
_CHANGES_PARAMETERS: Final = frozenset({"since", "cursor", "limit"})


class KnownVersion(Record, frozen=True, kw_only=True):
    """One version of an event, as a plan shows it; `event` is null if the version has no date."""

    id: str
    version: int
    known_from: datetime
    known_to: datetime | None
    status: str
    cancelled_at: datetime | None
    kinds: tuple[str, ...]
    changed_fields: tuple[str, ...]
    event: Event | None


class ChangeRecord(KnownVersion, frozen=True, kw_only=True):
    """One version in the order of the changes; `cursor` continues after it."""

    cursor: str


class KnownChange(NamedTuple):
    """A version, and the place from which a client that has read it continues."""

    version: CatalogVersion
    place: FeedPlace


class ChangePage(NamedTuple):
    """Changes after a place, the number of all that follow, and the place after the page."""

    changes: list[KnownChange]
    total: int
    place: FeedPlace


class KnowledgeStore(Protocol):
    """Versions in the order in which they became known."""

    @property
    def is_recorded(self) -> bool:
        """Whether the order of the changes is known; if not yet, it is soon after the start."""
        ...

    def at(self, instant: datetime) -> CatalogView: ...

    def history(self, event_id: str, instant: datetime) -> list[CatalogVersion]:
        """Return the versions of an event that were known then, oldest first."""
        ...

    def changes_after(self, place: FeedPlace, *, until: datetime | None, limit: int) -> ChangePage:
        """Return at most `limit` changes after a place. Changes known after `until` are left out.

        Raises:
            ForeignPlace: the place is not one of this store.
            FeedUnusable: the order of the changes can't be read.
        """
        ...


class ChangeReader:
    """Reads pages of changes with sealed cursors. `limit` is the number of changes of a page."""

    def __init__(self, store: KnowledgeStore, cursors: CursorSigner) -> None:
        self._store = store
        self._cursors = cursors

    def read(
        self,
        plan: Plan,
        moment: datetime,
        *,
        since: datetime | None = None,
        cursor: str | None = None,
        as_of: datetime | None = None,
        until: datetime | None = None,
        limit: int = constants.EVENTS_LIMIT_MAX,
    ) -> Page[ChangeRecord]:
        """Return the changes after a cursor, or those that became known after `since`.

        A cursor belongs to its `as_of`. `until` leaves out what became known later.

        Raises:
            InvalidCursor: the cursor is not one of this feed, or belongs to another `as_of`.
            ServiceUnavailable: the feed can't be read.
        """
        place = start_place(since)
        if cursor is not None:
            place = self._cursors.open(cursor, "changes", as_of, FeedPlace)
        try:
            page = self._store.changes_after(place, until=as_of or until, limit=limit)
        except ForeignPlace as error:
            raise errors.InvalidCursor(
                "The cursor belongs to another change feed: the file of the feed was deleted or "
                "restored since. Begin again with since="
            ) from error
        except FeedUnusable as error:
            log.error("%s", error)
            raise errors.ServiceUnavailable(
                "The change feed can't be read; the log of the mirror says why"
            ) from error
        view = self._store.at(moment)
        names = ViewNames(view, view.categories())
        shown = tuple(
            ChangeRecord(
                **structs.asdict(show_version(change.version, plan, moment, names)),
                cursor=self._seal(change.place, as_of),
            )
            for change in page.changes
            if is_shown(change.version, plan, moment, view)
        )
        meta = PaginationMeta(total=page.total, limit=limit, cursor=self._seal(page.place, as_of))
        return Page(data=shown, meta=meta)

    def _seal(self, place: FeedPlace, as_of: datetime | None) -> str:
        return self._cursors.seal("changes", as_of, place)


class KnowledgeRoutes:
    """Handlers over a store of versions."""

    def __init__(
        self, store: KnowledgeStore, *, cursors: CursorSigner, until: Callable[[], datetime | None]
    ) -> None:
        self._store = store
        self._changes = ChangeReader(store, cursors)
        self._until = until
        """The time until which changes are shown; None shows all."""

    def handlers(self) -> dict[str, Handler]:
        return {HISTORY_PATH: self.get_history, CHANGES_PATH: self.list_changes}

    async def get_history(self, scope: Scope, exchange: Exchange) -> JsonAnswer:
        exchange.route = "history"
        view = self._store.at(exchange.moment)
        find = self._store.history
        versions = await asyncio.to_thread(find, exchange.name, exchange.moment)
        names = ViewNames(view, view.categories())
        shown = [
            show_version(version, exchange.plan, exchange.moment, names)
            for version in versions
            if is_shown(version, exchange.plan, exchange.moment, view)
        ]
        if not shown or shown[-1].version != versions[-1].version:
            raise errors.NotFound("No event has this id")
        meta = PaginationMeta(total=len(shown), limit=max(1, len(shown)), cursor=None)
        page = Page(data=tuple(shown), meta=meta)
        return json_answer(scope, page, max_age_s=constants.LIST_MAX_AGE_S)

    async def list_changes(self, scope: Scope, exchange: Exchange) -> JsonAnswer:
        exchange.route = "changes"
        query: bytes = scope["query_string"]
        reader = QueryReader(query.decode("utf-8", "replace"), _CHANGES_PARAMETERS)
        limit = reader.limit(maximum=constants.EVENTS_LIMIT_MAX)
        since = reader.instant("since")
        cursor = reader.text("cursor", length_max=constants.CURSOR_LENGTH_MAX)
        while not self._store.is_recorded:  # noqa: ASYNC110 - a thread records it
            await asyncio.sleep(_RECORDED_WITHIN_S)
        page = await asyncio.to_thread(
            self._changes.read,
            exchange.plan,
            exchange.moment,
            since=since,
            cursor=cursor,
            as_of=exchange.as_of,
            until=self._until(),
            limit=limit,
        )
        return json_answer(scope, page, max_age_s=None)


def is_shown(version: CatalogVersion, plan: Plan, moment: datetime, view: CatalogView) -> bool:
    """Whether a plan shows a version. Without a date, only a plan for all dates does."""
    if version.event is None:
        return plan.past_days is None and plan.horizon_days is None and plan.coverage_top is None
    return event_visible(version.event, plan, view, moment)


def show_version(
    version: CatalogVersion, plan: Plan, moment: datetime, names: ViewNames
) -> KnownVersion:
    """Return a version as a plan shows it, and as it was known at a time."""
    known_to = version.known_to
    event = None if version.event is None else shown_event(version.event, plan, names)
    return KnownVersion(
        id=version.event_id,
        version=version.version,
        known_from=version.known_from,
        known_to=None if known_to is None or known_to > moment else known_to,
        status=version.status,
        cancelled_at=version.cancelled_at,
        kinds=tuple(kind for kind in version.kinds if _shows_kind(kind, plan)),
        changed_fields=_shown_fields(version.changed, plan),
        event=event,
    )


def _shows_kind(kind: str, plan: Plan) -> bool:
    return kind != "rescored" or plan.impact is not ImpactView.NONE


def _shown_fields(columns: Iterable[str], plan: Plan) -> tuple[str, ...]:
    """Return the names of the interface for columns, without those that the plan hides."""
    names = {FIELD_NAMES.get(column) for column in columns}
    return tuple(name for name in EVENT_FIELDS if name in names and plan.shows(name))
