"""An open session with the catalog, and the feeds that a daily job and a poll pull with it.

A `CatalogSession` has the client, its plan, its day and the rest of the quota. A `LazySession`
opens one when it is first needed, so work on landed data sends no request. A feed that the plan
lacks, or a used-up quota, is an outcome and no error: received data is landed, and the other feeds
continue. Does not belong here: how a session is opened (pipeline/service_session.py), the choice of
a poll's requests (pipeline/polls.py), Dagster.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import KW_ONLY, dataclass, field
from datetime import date, datetime
from functools import partial
from math import ceil
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Final

from almanac.core import progress
from almanac.core.errors import WarehouseError
from catalog.contract.constants import COINS_LIMIT_MAX, EVENTS_LIMIT_MAX
from catalog.contract.plans import Plan, Window, find_plan_window
from resources.errors import (
    AccessDenied,
    Defer,
    PlanLacksAccess,
    QuotaUnknown,
    RetryLater,
    TruncatedBody,
)
from resources.limits.decision import defer_failed_export
from resources.limits.limiter import Limiter
from resources.request_log import DeferredPulls, ReportedUsage, RequestLog
from resources.scopes import PollWindow, count_pages, near_window
from warehouse.landing.batches import Feed, Manifest
from warehouse.landing.landing import Landing
from warehouse.queries import Activity, read_activity

if TYPE_CHECKING:
    from resources.http.client import CatalogClient
    from resources.ingest.paged_pull import LandedBatch
    from resources.ingest.puller import Puller

_DAY_S: Final = 86_400
_USUAL_NEAR_EVENTS: Final = 1_500
_USUAL_CANCELLATIONS: Final = 400
_USUAL_COINS: Final = 3_000
NEAR_DAYS: Final = 1
"""The greatest difference between the day of the session's clock and the service's day."""


@dataclass(slots=True)
class CatalogSession:
    """An open session. `coins` and `categories` are the watchlist; None means all.

    `usage` is the last usage of the month that the service reported, None if it reports none.
    """

    client: "CatalogClient"
    plan: Plan
    source: str
    landing: Landing
    clock: Callable[[], datetime]
    log: RequestLog
    usage: ReportedUsage | None = None
    coins: tuple[str, ...] | None = None
    categories: tuple[str, ...] | None = None
    limiter: Limiter | None = None
    _resumed: bool = field(init=False, default=False)
    _finished: "list[LandedBatch]" = field(init=False, default_factory=list)

    def now(self) -> datetime:
        """Return the service's time, by the last Date that was recorded."""
        return self.client.service_clock.now()

    def today(self) -> date:
        """Return the service's day."""
        return self.now().date()

    def window(self) -> Window:
        """Return all that the plan shows now."""
        return find_plan_window(self.plan, self.now())

    def puller(self) -> "Puller":
        from resources.ingest.puller import Puller

        return Puller(
            self.client,
            self.landing,
            plan=self.plan,
            source=self.source,
            clock=self.clock,
            resumed=self._finished,
        )

    def resume_open(self) -> "list[LandedBatch]":
        """Land the pulls that an earlier process left open; only the first call does."""
        if self._resumed:
            return []
        self._resumed = True
        return self.puller().resume_open()

    def request_usage(self) -> ReportedUsage:
        """Request the usage of the month from the service; this takes one request."""
        answer = self.client.usage()
        self.log.usage(answer)
        self.usage = answer
        return answer

    @property
    def quota_left(self) -> int | None:
        """The requests left this month, None without a limit or if it isn't known."""
        return None if self.limiter is None else self.limiter.left()

    @property
    def available(self) -> int | None:
        """The number of requests that this kind of work may still send this month; None if there is
        no quota, as in `quota_left`."""
        return None if self.limiter is None else self.limiter.left(reserve=True)

    @property
    def day_share(self) -> int | None:
        """The requests of `available` that fall to today, if each day until the reset gets as many;
        None if there is no quota."""
        if self.limiter is None or (available := self.available) is None:
            return None
        return available // ceil((self.limiter.resets_in_s() or _DAY_S) / _DAY_S)


@dataclass(eq=False, repr=False)
class LazySession:
    """Opens a session when it is first needed, and closes it when it is closed. Thread-safe.

    `clock` returns the service's time as known without a request; a day further than `near_days`
    from it is not today.
    """

    opening: Callable[[], AbstractContextManager[CatalogSession]]
    _: KW_ONLY
    clock: Callable[[], datetime]
    near_days: int = NEAR_DAYS

    def __post_init__(self) -> None:
        self._lock = RLock()
        self._stack = ExitStack()
        self._service: CatalogSession | None = None

    def service(self) -> CatalogSession:
        """Return the session, opened if necessary.

        Raises:
            CatalogError, WarehouseError: it can't be opened.
        """
        with self._lock:
            if self._service is None:
                self._service = self._stack.enter_context(self.opening())
            return self._service

    def is_today(self, day: date) -> bool:
        """Whether a day is the service's day. Opens a session only if the clock can't decide."""
        if self._service is None and abs((self.clock().date() - day).days) > self.near_days:
            return False
        return self.service().today() == day

    def now(self) -> datetime:
        """Return the service's time, as last recorded if no session is open; sends no request."""
        return self.clock() if self._service is None else self._service.now()

    def today(self) -> date:
        return self.now().date()

    @property
    def quota_left(self) -> int | None:
        """The requests left this month, None if it isn't known; sends no request."""
        return None if self._service is None else self._service.quota_left

    def __enter__(self) -> "LazySession":
        return self

    def __exit__(self, *raised: object) -> None:
        with self._lock:
            self._service = None
            self._stack.close()


NOT_IN_PLAN: Final = "not in the plan"
"""How the result of a feed begins that the plan lacks."""
OPTIONAL: Final = frozenset[Feed]({"categories"})
"""The feeds without which a pull goes on if the service refuses them (401, 402, 403): the interface
names no plan that lacks them."""


SAME_SNAPSHOT: Final = "same snapshot"
"""The outcome of an export that was landed before; nothing was downloaded."""


@dataclass(frozen=True, slots=True)
class FeedDay:
    """The batches of a feed on a day, pulled or reused. `rows` None is not counted yet."""

    feed: Feed
    day: date
    outcome: str
    manifests: tuple[Manifest, ...] = ()
    rows: int | None = None
    requests: int = 0
    warnings: tuple[str, ...] = ()
    deferred: Defer | None = None
    refused: str = ""
    """The service's refusal of an optional feed; empty if it was not refused."""

    @property
    def bytes(self) -> int:
        """The bytes of the batches, 0 if this pull downloaded none."""
        is_same = self.outcome == SAME_SNAPSHOT
        return 0 if is_same else sum(manifest.bytes for manifest in self.manifests)


def price_day(plan: Plan, activity: Activity, now: datetime) -> dict[Feed, int]:
    """Return the usual requests of each feed of a daily pull, the most valuable first.

    Of feeds that were never pulled, the usual size of the catalog counts.
    """
    near = near_window(plan, now) if plan.export else PollWindow(date.min, None)
    spans = activity.spans or ((now.date(), None, _USUAL_NEAR_EVENTS),)
    return {
        **({"export": 2} if plan.export else {}),  # With its number of rows.
        "events": count_pages(spans, near),
        "cancellations": (activity.cancellations or _USUAL_CANCELLATIONS) // EVENTS_LIMIT_MAX + 1,
        "categories": 1,
        "coins": (activity.coins or _USUAL_COINS) // COINS_LIMIT_MAX + 1,
    }


def report_price(warehouse: Path, service: CatalogSession) -> None:
    """Report the usual cost of a daily pull, and which of its feeds the quota would defer."""
    activity = Activity()
    with suppress(WarehouseError):  # The pulls need no warehouse.
        activity = read_activity(warehouse, service.now())
    prices, rest = price_day(service.plan, activity, service.now()), service.available
    costs = ", ".join(f"{feed} {price:,}" for feed, price in prices.items())
    text = f"A day takes about {sum(prices.values()):,} requests: {costs}"
    if rest is not None:
        text += f"; {rest:,} are left"
        late = [feed for feed, price in prices.items() if (rest := rest - price) < 0]
        text += f", so these are deferred in whole or in part: {', '.join(late)}" if late else ""
    progress.wait(f"{text}.")


def make_feed_day(
    feed: Feed,
    day: date,
    landed: "Sequence[LandedBatch]" = (),
    *,
    why_nothing: str = "",
    refused: str = "",
    deferred: Defer | None = None,
) -> FeedDay:
    """Return the result of a pull; `deferred` is why it ended early, if no batch says so."""
    outcome, is_same = why_nothing or "pulled", all(pull.is_same for pull in landed)
    deferred = deferred or next((pull.deferred for pull in landed if pull.deferred), None)
    if landed and is_same:
        outcome = SAME_SNAPSHOT
    if deferred is not None:
        part = "pulled in part; the rest is deferred" if landed else "deferred"
        outcome = f"{part}: {deferred}"
    return FeedDay(
        feed=feed,
        day=day,
        outcome=outcome,
        manifests=tuple(pull.manifest for pull in landed),
        rows=sum(pull.rows for pull in landed),
        requests=sum(pull.requests for pull in landed),
        warnings=tuple(warning for pull in landed for warning in pull.warnings),
        deferred=deferred,
        refused=refused,
    )


def pull(feed: Feed, service: CatalogSession) -> FeedDay:
    """Pull a feed and land the result.

    Raises:
        CatalogError: for another reason than the plan or the quota.
    """
    lacks, day = f"{NOT_IN_PLAN} {service.plan.name}", service.today()
    if plan_lacks(service.plan, feed):
        return make_feed_day(feed, day, why_nothing=lacks)
    service.resume_open()
    try:
        return make_feed_day(feed, day, _pull(feed, service))
    except AccessDenied as error:
        if feed in OPTIONAL:
            why = f"refused: {error}"
            return make_feed_day(feed, day, why_nothing=why, refused=error.happened)
        if not isinstance(error, PlanLacksAccess):
            raise
        return make_feed_day(feed, day, why_nothing=f"{lacks}: {error}")
    except Defer as error:
        return make_feed_day(feed, day, deferred=error)
    except (RetryLater, TruncatedBody) as error:
        if feed != "export" or isinstance(error, QuotaUnknown):
            raise
        # The other feeds go on without it; the deferral resumes it.
        return make_feed_day(feed, day, deferred=defer_failed_export(error, service.now()))


def plan_lacks(plan: Plan, feed: Feed) -> bool:
    """Whether a plan does not include a feed, by the table of the contract."""
    return feed == "export" and not plan.export


def _pull(feed: Feed, service: CatalogSession) -> "list[LandedBatch]":
    puller = service.puller()
    if feed == "export":
        return puller.export(None, None, coins=service.coins, categories=service.categories)
    if feed != "events":
        pulls: dict[Feed, Callable[[], LandedBatch]] = {
            "cancellations": puller.cancellations,
            "coins": puller.coins,
            "categories": puller.categories,
        }
        return [pulls[feed]()]
    # The near days if the export has the rest, else all that the plan shows.
    all_shown = PollWindow(service.window().lower.date(), None)
    near = near_window(service.plan, service.now()) if service.plan.export else all_shown
    return [_events_in(service, near)]


def _events_in(service: CatalogSession, window: PollWindow) -> "LandedBatch":
    """Pull the events of a window; without a last date, up to the end of what the plan shows."""
    return service.puller().events(
        window.first, window.last, coins=service.coins, categories=service.categories
    )


@dataclass(frozen=True, slots=True)
class Poll:
    """The windows, cancellations and events of one poll.

    `since` is the earliest time of the cancellations; None requests all that the service lists.
    """

    windows: tuple[PollWindow, ...] = ()
    cancellations: bool = False
    since: datetime | None = None
    event_ids: tuple[str, ...] = ()


def poll(service: CatalogSession, what: Poll, deferrals: DeferredPulls) -> Iterator[FeedDay]:
    """Pull and store each requested feed, and yield its result; stop if the quota is used up.

    A deferral is noted; the note is removed once the same feed is received.

    Raises:
        CatalogError: for another reason than the quota. Data received before it is landed.
    """
    deferrals.settle("polls", service.now())
    service.resume_open()
    for feed, pulls in _pulls(service, what):
        landed: list[LandedBatch] = []
        try:
            landed += (pull() for pull in pulls)
            pulled = make_feed_day(feed, service.today(), landed)
        except Defer as error:
            pulled = make_feed_day(feed, service.today(), landed, deferred=error)
        yield pulled
        if pulled.deferred is not None:
            deferrals.note("polls", feed, pulled.deferred, service.now())
            return
        deferrals.done("polls", feed)


def _pulls(
    service: CatalogSession, what: Poll
) -> "Iterator[tuple[Feed, list[Callable[[], LandedBatch]]]]":
    puller = service.puller()
    if what.cancellations:
        yield "cancellations", [partial(puller.cancellations, what.since)]
    if what.windows:
        yield "events", [partial(_events_in, service, window) for window in what.windows]
    if what.event_ids:
        yield "event", [partial(puller.event, event_id) for event_id in what.event_ids]
