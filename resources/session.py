"""An open connection to the catalog: the client, its plan, its day and the rest of the quota.

A `CatalogSession` is open; a `LazySession` opens one when it is first needed, so work on landed
data sends no request. Belongs here: plain classes. Does not: how a session is opened
(pipeline/session.py), Dagster.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from datetime import date, datetime
from threading import RLock
from typing import TYPE_CHECKING, Final

from catalog.contract.plans import Plan, Window, plan_window
from resources.limits.allowance import Pace
from resources.limits.limiter import Limiter
from resources.request_log import RequestLog
from warehouse.landing.landing import Landing

if TYPE_CHECKING:
    from resources.http.client import CatalogClient
    from resources.http.lookups import UsageAnswer
    from resources.ingest.context import Landed, OnPage
    from resources.ingest.puller import Puller

NEAR_DAYS: Final = 1
"""How far from the day of a session's clock the service's day may be."""


@dataclass(slots=True)
class CatalogSession:
    """An open session. `coins` and `categories` are the watchlist, None is all.

    `usage` is the last usage of the month that the service reported, None if it reports none.
    """

    client: "CatalogClient"
    plan: Plan
    source: str
    landing: Landing
    clock: Callable[[], datetime]
    log: RequestLog
    pace: Pace
    usage: "UsageAnswer | None" = None
    coins: tuple[str, ...] | None = None
    categories: tuple[str, ...] | None = None
    monthly_quota: int | None = None
    """The user's own limit; the service may allow more."""
    kept: int = 0
    """Requests of the month that are reserved for other work."""
    limiter: Limiter | None = None
    on_page: "OnPage | None" = None
    _counted: int = field(init=False)
    _resumed: bool = field(init=False, default=False)
    _finished: "list[Landed]" = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        self._counted = self.log.count
        if self.usage is not None:
            self._note(self.usage)

    def now(self) -> datetime:
        """Return the service's time, by the last Date that was recorded."""
        return self.client.service_clock.now()

    def today(self) -> date:
        """Return the service's day."""
        return self.now().date()

    def window(self) -> Window:
        """Return all that the plan shows now."""
        return plan_window(self.plan, self.now())

    def puller(self) -> "Puller":
        # Imported here, since commands that send no request have no need of it.
        from resources.ingest.puller import Puller

        return Puller(
            self.client,
            self.landing,
            plan=self.plan,
            source=self.source,
            clock=self.clock,
            on_page=self.on_page,
            resumed=self._finished,
        )

    def resume_open(self) -> "list[Landed]":
        """Land the pulls that an earlier process left open; only the first call does."""
        if self._resumed:
            return []
        self._resumed = True
        return self.puller().resume_open()

    def request_usage(self) -> "UsageAnswer":
        """Request the usage of the month from the service; this takes one request."""
        answer = self.client.usage()
        client = self.client
        self.log.usage(answer, deprecation=client.deprecation, sunset=client.sunset)
        self._note(answer)
        return answer

    @property
    def quota_left(self) -> int | None:
        """The requests left this month, None without a limit or if it isn't known."""
        counted = None if self.limiter is None else self.limiter.left()
        if counted is not None:
            return counted
        if self.usage is None or self.usage.remaining is None:
            return self.log.remaining
        left = self.usage.remaining
        if self.monthly_quota is not None and self.usage.used is not None:
            left = min(left, self.monthly_quota - self.usage.used)
        return max(0, left - (self.log.count - self._counted))

    @property
    def available(self) -> int | None:
        """The requests that this work may still send this month, None as for `quota_left`."""
        counted = None if self.limiter is None else self.limiter.available()
        if counted is not None or self.quota_left is None:
            return counted
        return max(0, self.quota_left - self.kept)

    def _note(self, answer: "UsageAnswer") -> None:
        self.usage = answer
        self._counted = self.log.count


class LazySession:
    """Opens a session when it is first needed, and closes it when it is closed. Thread-safe.

    `clock` returns the service's time as known without a request; a day further than `near_days`
    from it is not today.
    """

    def __init__(
        self,
        opening: Callable[[], AbstractContextManager[CatalogSession]],
        *,
        clock: Callable[[], datetime],
        near_days: int = NEAR_DAYS,
    ) -> None:
        self._near_days = near_days
        self._opening = opening
        self._clock = clock
        self._lock = RLock()
        self._stack = ExitStack()
        self._service: CatalogSession | None = None

    def __repr__(self) -> str:
        return f"LazySession(open={self._service is not None})"

    def service(self) -> CatalogSession:
        """Return the session, opened if necessary.

        Raises:
            CatalogError, HomeRefused: it can't be opened.
        """
        with self._lock:
            if self._service is None:
                self._service = self._stack.enter_context(self._opening())
            return self._service

    def is_today(self, day: date) -> bool:
        """Whether a day is the service's day. Opens a session only if the clock can't decide."""
        if self._service is None and abs((self._clock().date() - day).days) > self._near_days:
            return False
        return self.service().today() == day

    def now(self) -> datetime:
        """Return the service's time, as last recorded if no session is open; sends no request."""
        return self._clock() if self._service is None else self._service.now()

    def today(self) -> date:
        return self.now().date()

    @property
    def quota_left(self) -> int | None:
        """The requests left this month, None if it isn't known; sends no request."""
        return None if self._service is None else self._service.quota_left

    def close(self) -> None:
        with self._lock:
            self._service = None
            self._stack.close()

    def __enter__(self) -> "LazySession":
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()
