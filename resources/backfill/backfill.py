"""A backfill: all events of a range of event dates, once, with a price that is known before.

    backfill = Backfill(service, states, date(2017, 1, 1), None)
    prices = backfill.prices()           # one request to count
    for months in backfill.run("list"):  # as they become whole
        ...

A price is the requests, the usual time with all waits, and the quota after it. Belongs here: what
is missing, which way is better, which months are whole. Does not: how pages are requested in
parallel (parallel.py).
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import date, datetime, timedelta
from math import ceil
from typing import Any, Final

import msgspec

from catalog.contract.constants import EVENTS_LIMIT_MAX
from catalog.contract.plans import INSTANT_STEP, next_month
from resources.backfill.parallel import ParallelBackfill, estimate_seconds
from resources.backfill.state import (
    BackfillState,
    BackfillStates,
    RequestedList,
    Source,
    belongs_to,
    requested_lists,
)
from resources.errors import ContractBroken, Defer, PlanLacksAccess
from resources.ingest.scopes import clip_to_plan, months_over, request_range
from resources.session import CatalogSession
from warehouse.landing.batches import Manifest, Scope


@dataclass(frozen=True, slots=True)
class Price:
    """The price of one way. `rows` is the number of events, None if the service does not report it.

    `seconds` is the time that it usually takes, with all waits for rate and export interval. `left`
    and `kept` are requests of the month, None without a limit; `kept` of them are not for
    backfills. `available` is what a backfill may still send, by reserve, cap and share.
    """

    by: Source
    requests: int
    seconds: float
    rows: int | None
    left: int | None
    kept: int
    available: int | None

    @property
    def left_after(self) -> int | None:
        return None if self.left is None else self.left - self.requests

    @property
    def affordable(self) -> bool:
        """Whether the quota of this month is enough for it."""
        return self.available is None or self.available >= self.requests

    @property
    def rank(self) -> tuple[int, float, int]:
        """The order of preference: the faster way, if both take little of the quota."""
        if not self.affordable:
            return 2, self.requests, 0
        is_small = self.available is None or self.requests <= self.available * _SMALL_SHARE
        return (0, self.seconds, self.requests) if is_small else (1, self.requests, 0)

    def as_record(self) -> dict[str, Any]:
        """Return it for programs, with the derived values."""
        return {**asdict(self), "left_after": self.left_after, "affordable": self.affordable}


def price_backfill(service: CatalogSession, counts: list[int | None], by: Source) -> Price:
    """Return the price of lists with so many rows each; a page has a hundred.

    An export is one request, and one more to count the expected rows.
    """
    known = [count for count in counts if count is not None]
    rows = sum(known) if len(known) == len(counts) else None
    pace = service.pace
    if by == "list":
        requests = sum(max(1, ceil((count or 0) / EVENTS_LIMIT_MAX)) for count in counts)
        seconds = estimate_seconds(requests, pace.rate_per_s)
    else:
        requests = 2 * len(counts)
        seconds = len(counts) * _EXPORT_BEGINS_S + sum(known) / _EXPORT_ROWS_PER_S
    seconds = max(seconds, (requests - pace.burst) / pace.rate_per_s)
    return Price(by, requests, seconds, rows, service.quota_left, service.kept, service.available)


def choose_price(prices: Sequence[Price], source: str) -> Price | None:
    """Return the price of `list` or `export`, for `auto` the first; None if the plan lacks it.

    `prices` are those of `Backfill.prices`, so the first is the best.
    """
    return next((price for price in prices if source in ("auto", price.by)), None)


_SMALL_SHARE: Final = 0.01
"""A way that takes at most this share of the available requests is judged by its time alone."""
_EXPORT_BEGINS_S: Final = 1.0
_EXPORT_ROWS_PER_S: Final = 10_000
"""The usual speed of an export."""
YEARS_AHEAD: Final = 2
"""How far ahead a range without an end reaches: little is announced for later."""


class Backfill:
    """The events of a range, both days inclusive; `upper` None is two years ahead.

    `resumed` is whether it resumes an interrupted backfill. `deferred` is set if the quota ends it.

    Raises:
        ValueError: a range that ends before it begins.
        PlanLacksAccess: the plan shows nothing of the range, or not its beginning unless
            `partly`, which takes the part that it shows.
    """

    def __init__(
        self,
        service: CatalogSession,
        states: BackfillStates,
        lower: date,
        upper: date | None,
        *,
        partly: bool = False,
    ) -> None:
        last = upper or _open_end(service, states, lower)
        if last < lower:
            raise ValueError(f"the range ends on {last}, before it begins on {lower}")
        self._lower, self._upper, self.notes = clip_to_plan(
            lower, last, plan=service.plan, window=service.window(), partly=partly
        )
        self._service = service
        self._states = states
        self._requested = BackfillState(
            scope=Scope(
                lower=self._lower,
                upper=self._upper,
                coins=_sorted(service.coins),
                categories=_sorted(service.categories),
            ),
            plan=service.plan.name,
            source=service.source,
            # The service reports its time in whole seconds.
            started_at=service.now().replace(microsecond=0),
            open_ended=upper is None,
        )
        self._state, self._requested_lists = self._open_state()
        self.resumed = self._state is not self._requested
        self.manifests: list[Manifest] = []
        self._requests = self._rows = 0
        self._parallel: ParallelBackfill | None = None
        self.deferred: Defer | None = None

    def prices(self) -> list[Price]:
        """Return the price of each way of the plan for what is missing, the best first.

        Counting takes one request for each list.

        Raises:
            CatalogError: any of the tree.
        """
        scopes = self._missing_scopes()
        counts = [self._count(scope) for scope in scopes]
        ways: list[Source] = ["list", "export"] if self._service.plan.export else ["list"]
        prices = [price_backfill(self._service, counts, way) for way in ways]
        return sorted(prices, key=lambda price: price.rank)

    def run(self, by: Source) -> Iterator[list[datetime]]:
        """Land what is missing; yield the months that became whole, by their beginning.

        The months that an earlier process landed are yielded first.

        Raises:
            PlanLacksAccess: the export is not in the plan.
            BackfillInProgress: another process runs a backfill of this home.
            ContractBroken: rows that the service promised did not arrive.
            CatalogError: any of the tree but Defer. Received data is landed.
        """
        if by == "export" and not self._service.plan.export:
            raise PlanLacksAccess(
                f"the plan {self._service.plan.name} has no export",
                next_step="Use the list: --source list",
            )
        with self._states.locked():
            # Another process may have continued it since it was priced.
            self._state, self._requested_lists = self._open_state()
            self._states.supersede(self._state)
            if self._state is self._requested:
                # A deferred backfill keeps its state until it is whole, in case this fails.
                self._state = msgspec.structs.replace(self._state, by=by)
            self._state = msgspec.structs.replace(
                self._state, resumed_at=self._requested.started_at
            )
            self._states.put(self._state)
            yield from self._months(by)

    def _open_state(self) -> tuple[BackfillState, list[RequestedList]]:
        """Return the open backfill that contains this one, else a new one, and what is landed."""
        state = self._states.open_for(self._requested)
        landed = () if state is self._requested else self._states.landed(state)
        return state, requested_lists(self._requested.scope, landed)

    def _months(self, by: Source) -> Iterator[list[datetime]]:
        open_months = months_over(self._lower, self._upper)
        for _ in self._landing(by):
            whole = [month for month in open_months if self._is_whole(month)]
            if whole:
                open_months = [month for month in open_months if month not in whole]
                yield whole
        self._settle(is_whole=not open_months)

    def _settle(self, *, is_whole: bool) -> None:
        """Store what is left, or remove the state if nothing is.

        Raises:
            ContractBroken: rows that the service promised did not arrive.
        """
        missing = 0 if self._parallel is None else self._parallel.missing
        if missing:
            # What is landed may have holes: from now on it counts as not landed.
            now = self._service.now().replace(microsecond=0) + timedelta(seconds=1)
            self._states.put(msgspec.structs.replace(self._state, started_at=now))
            raise ContractBroken(
                f"{missing:,} rows that meta.total promised did not arrive: pages shifted during "
                "the backfill",
                next_step="Run it again: it requests all dates again, since months may have holes",
            )
        if self.deferred is not None:
            self.record_deferral(self.deferred)
        elif is_whole and self._states.is_whole(self._state):
            self._states.end(self._state)

    @property
    def requests(self) -> int:
        """The requests so far, including those for counting."""
        return self._requests + (0 if self._parallel is None else self._parallel.requests)

    @property
    def rows(self) -> int:
        """The rows so far."""
        return self._rows + (0 if self._parallel is None else self._parallel.rows)

    def record_deferral(self, error: Defer) -> None:
        """Store that it resumes later."""
        self.deferred = error
        self._states.put(
            msgspec.structs.replace(self._state, resume_at=error.resume_at, why=error.happened)
        )

    def _landing(self, by: Source) -> Iterator[None]:
        """Yield once for what was landed before, then after each batch."""
        yield
        for manifest in self._by_list() if by == "list" else self._by_export():
            self.manifests.append(manifest)
            if belongs_to(manifest, self._state):
                self._requested_lists = [
                    requested.with_batch(manifest) for requested in self._requested_lists
                ]
            yield

    def _by_list(self) -> Iterator[Manifest]:
        parallel = self._parallel = ParallelBackfill(
            self._service.puller().context,
            self._missing_scopes(),
            rate_per_s=self._service.pace.rate_per_s,
        )
        yield from parallel
        self.deferred = parallel.deferred

    def _by_export(self) -> Iterator[Manifest]:
        for scope in self._missing_scopes():
            span = request_range(scope)
            try:
                found = self._service.puller().export(
                    span.lower, span.upper, coins=scope.coins, categories=scope.categories
                )
            except Defer as error:
                self.deferred = error
                return
            for landed in found:
                self._requests += landed.requests
                self._rows += landed.rows
                self.deferred = landed.deferred or self.deferred
                self.notes += landed.warnings
                yield landed.manifest
            if self.deferred is not None:
                return

    def _missing_scopes(self) -> list[Scope]:
        return [
            scope
            for requested in self._requested_lists
            for scope in requested.missing_scopes(self._lower, self._upper)
        ]

    def _count(self, scope: Scope) -> int | None:
        span = request_range(scope)
        self._requests += 1
        return self._service.client.events_total(
            span.lower, span.upper, coins=scope.coins, categories=scope.categories
        )

    def _is_whole(self, month: datetime) -> bool:
        first = max(month, self._lower)
        last = min(next_month(month) - INSTANT_STEP, self._upper)
        return not any(requested.missing_scopes(first, last) for requested in self._requested_lists)


def _open_end(service: CatalogSession, states: BackfillStates, lower: date) -> date:
    """Return the end of an open range: years ahead, as of when its backfill was begun."""
    for state in states.open(service.now()):
        first, last = state.scope.lower, state.scope.upper
        if state.open_ended and first is not None and first.date() == lower and last is not None:
            return last.date()
    return service.today() + timedelta(days=366 * YEARS_AHEAD)


def _sorted(names: tuple[str, ...] | None) -> tuple[str, ...] | None:
    return None if names is None else tuple(sorted(set(names)))
