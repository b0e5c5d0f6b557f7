"""The mirror's own routes: the history of an event, and the changes in the order of knowledge.

A cursor of the changes is never null: at the end, the same request later returns what became known
since. It contains `since`, so it is given alone.
"""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Final, Protocol

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

HISTORY_PATH: Final = constants.EVENTS_PATH + "/{id}/history"
CHANGES_PATH: Final = constants.EVENTS_PATH + "/changes"
_CHANGES_PARAMETERS: Final = frozenset({"since", "cursor", "limit"})
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


class KnownVersion(Record, frozen=True, kw_only=True):
    """One version of an event, as a plan shows it; `event` is null if it has no date."""

    id: str
    version: int
    known_from: datetime
    known_to: datetime | None
    status: str
    cancelled_at: datetime | None
    kinds: tuple[str, ...]
    changed_fields: tuple[str, ...]
    event: Event | None


class KnowledgeStore(Protocol):
    """Versions in the order in which they became known."""

    def at(self, instant: datetime) -> CatalogView: ...

    def history(self, event_id: str, instant: datetime) -> list[CatalogVersion]:
        """Return the versions of an event that were known then, oldest first."""
        ...

    def changes_after(
        self, place: int, *, since: datetime | None, until: datetime | None, limit: int
    ) -> tuple[list[tuple[int, CatalogVersion]], int]:
        """Return at most `limit` versions after a place, each with its place, and how many follow.

        `since` and `until` bound when they became known: after the first, up to the second.
        """
        ...


class KnowledgeRoutes:
    """Handlers over a store of versions."""

    def __init__(
        self, store: KnowledgeStore, *, cursors: CursorSigner, until: Callable[[], datetime | None]
    ) -> None:
        self._store = store
        self._cursors = cursors
        self._until = until
        """The time until which changes are shown; None shows all."""

    def handlers(self) -> dict[str, Handler]:
        return {HISTORY_PATH: self.get_history, CHANGES_PATH: self.list_changes}

    async def get_history(self, scope: Scope, exchange: Exchange) -> JsonAnswer:
        exchange.route = "history"
        view = self._store.at(exchange.moment)
        versions = self._store.history(exchange.name, exchange.moment)
        shown = self._shown(versions, view, exchange)
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
        since, place = reader.instant("since"), 0
        cursor = reader.text("cursor", length_max=constants.CURSOR_LENGTH_MAX)
        if cursor is not None:
            place, micros = self._cursors.open(cursor, "changes", None, tuple[int, int])
            since = None if micros < 0 else _EPOCH + micros * _MICROSECOND
        found, total = self._store.changes_after(
            place, since=since, until=exchange.as_of or self._until(), limit=limit
        )
        shown = self._shown([v for _, v in found], self._store.at(exchange.moment), exchange)
        last = found[-1][0] if found else place
        micros = -1 if since is None else (since - _EPOCH) // _MICROSECOND
        sealed = self._cursors.seal("changes", None, (last, micros))
        meta = PaginationMeta(total=total, limit=limit, cursor=sealed)
        return json_answer(scope, Page(data=tuple(shown), meta=meta), max_age_s=None)

    def _shown(
        self, versions: Iterable[CatalogVersion], view: CatalogView, exchange: Exchange
    ) -> list[KnownVersion]:
        """Return the versions that the plan shows; what became known later is left out."""
        names = ViewNames(view, view.categories())
        return [
            _shown_version(version, exchange, names)
            for version in versions
            if version.event is None
            or event_visible(version.event, exchange.plan, view, exchange.moment)
        ]


def _shown_version(version: CatalogVersion, exchange: Exchange, names: ViewNames) -> KnownVersion:
    plan, known_to = exchange.plan, version.known_to
    event = None if version.event is None else shown_event(version.event, plan, names)
    return KnownVersion(
        id=version.event_id,
        version=version.version,
        known_from=version.known_from,
        known_to=None if known_to is None or known_to > exchange.moment else known_to,
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
    names = {"impact" if column == "impact_band" else _camel(column) for column in columns}
    return tuple(name for name in EVENT_FIELDS if name in names and plan.shows(name))


def _camel(column: str) -> str:
    first, *others = column.split("_")
    return first + "".join(map(str.title, others))
