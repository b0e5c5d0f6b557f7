"""A backfill: all events of a range of event dates, pulled month by month.

    state/backfill.json   the open backfill of a home, until all of it is landed

By the list, each month is one pull and one batch; the export has all months in one request. If the
quota is used up, `deferred` is set. A repeated run pulls the months that have no batch since the
backfill started.
Times are aware UTC.
"""

from collections.abc import Iterator, Mapping
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from catalog.contract.constants import EVENTS_LIMIT_MAX
from catalog.contract.plans import INSTANT_STEP, Plan, Window, day_end, month_start, next_month
from resources.errors import ContractBroken, Defer, PlanLacksAccess
from resources.scopes import covers, find_day_start, split_filters
from resources.session import CatalogSession
from warehouse.files.documents import put_note, read_note
from warehouse.files.locks import hold_lock
from warehouse.files.storage import Storage
from warehouse.landing.batches import Scope

if TYPE_CHECKING:
    from resources.ingest.paged_pull import LandedBatch

Source = Literal["list", "export"]
ABANDONED_AFTER: Final = timedelta(days=31)
"""A backfill that was not continued for this long starts again, because its data is out of date."""
AHEAD: Final = timedelta(days=2 * 366)
"""The length of a range without an end: few events are announced for later dates."""
_SAME: Final = ("first", "last", "coins", "categories", "plan", "source")
_NOTE: Final = "backfill.json"
_LOCK: Final = "backfill.lock"


class OpenBackfill(msgspec.Struct, frozen=True, kw_only=True):
    """A backfill in progress, from `first` to `last`; `open_ended` if no last day was given.

    It was last begun or continued at `resumed_at`, and may continue at `resume_at` if deferred.
    """

    first: date
    last: date
    open_ended: bool = False
    coins: tuple[str, ...] | None = None
    categories: tuple[str, ...] | None = None
    plan: str
    source: str
    started_at: datetime
    resumed_at: datetime
    by: Source = "list"
    resume_at: datetime | None = None
    why: str = ""


def read_open_backfill(state: Storage, now: datetime) -> OpenBackfill | None:
    """Return the backfill that can be continued; None if there is none."""
    found = read_note(state, _NOTE, OpenBackfill)
    last_at = found and max(found.resumed_at, found.resume_at or found.resumed_at)
    return found if last_at and now - last_at <= ABANDONED_AFTER else None


class Backfill:
    """The events from a first to a last day, both included. If `last` is None, the range ends in
    two years.

    `resumed` is whether it continues an open backfill, `missing` are its months that are not
    landed, by their beginning. `notes` name the part that the plan does not show.

    Raises:
        ValueError: a range that ends before it begins.
        PlanLacksAccess: the plan shows nothing of the range.
    """

    def __init__(
        self, service: CatalogSession, state: Storage, first: date, last: date | None
    ) -> None:
        self.service, self._state = service, state
        # The service reports its time in whole seconds.
        now = service.now().replace(microsecond=0)
        found = read_open_backfill(state, now)
        end = last or now.date() + AHEAD
        if last is None and found is not None and found.open_ended and found.first == first:
            end = found.last
        if end < first:
            raise ValueError(f"the range ends on {end}, before it begins on {first}")
        lower, upper, self.notes = _clip(first, end, service.plan, service.window())
        self._open = OpenBackfill(
            first=first,
            last=end,
            open_ended=last is None,
            coins=service.coins and tuple(sorted(set(service.coins))),
            categories=service.categories and tuple(sorted(set(service.categories))),
            plan=service.plan.name,
            source=service.source,
            started_at=now,
            resumed_at=now,
        )
        self.resumed = False
        if found is not None and all(getattr(found, n) == getattr(self._open, n) for n in _SAME):
            self.resumed, self._open = True, msgspec.structs.replace(found, resumed_at=now)
        filters = Scope(coins=self._open.coins, categories=self._open.categories)
        self._months: dict[datetime, Scope] = {}
        while lower <= upper:
            start = month_start(lower)
            last_at = min(next_month(start) - INSTANT_STEP, upper)
            self._months[start] = msgspec.structs.replace(filters, lower=lower, upper=last_at)
            lower = next_month(start)
        self.missing = self._find_missing()
        self.landed: list[LandedBatch] = []
        self.deferred: Defer | None = None

    def prices(self) -> dict[Source, int]:
        """Return, for each way to pull the missing months, the most requests it takes, cheapest
        first.

        Counting the events takes one request for each list of the filter. If the service does not
        report their number, the price is the least.
        """
        lists = split_filters(_join(self.missing)) if self.missing else []
        # The last page of each list of a month is not full.
        pages = len(lists) * len(self.missing)
        for scope in lists:
            pages += (self.service.client.events_total(scope) or 0) // EVENTS_LIMIT_MAX
        prices: dict[Source, int] = {"list": pages}
        if self.service.plan.export:
            prices["export"] = 2 * len(lists)
        return dict(sorted(prices.items(), key=lambda price: price[1]))

    def run(self, by: Source) -> Iterator[list[datetime]]:
        """Pull and store the missing months; yield each stored month, by its start.

        The months that an earlier process landed are yielded first.

        Raises:
            WarehouseError: another process runs a backfill of this home.
            CatalogError: any of the tree but Defer, ContractBroken if a month is incomplete. The
                complete months are landed.
        """
        with hold_lock(self._state.path(_LOCK), "to run a backfill", wait_s=0):
            self._open = msgspec.structs.replace(self._open, by=by)
            put_note(self._state, _NOTE, self._open)
            # A pull that a killed process left open is landed, and not paid again.
            self.service.resume_open()
            self.missing = self._find_missing()
            if done := [month for month in self._months if month not in self.missing]:
                yield done
            parts = [[month] for month in self.missing] if by == "list" else [list(self.missing)]
            for months in filter(None, parts):
                try:
                    is_complete = self._pull({month: self.missing[month] for month in months})
                except Defer as error:
                    self.defer(error)
                    return
                if is_complete:
                    self.missing = {m: self.missing[m] for m in self.missing if m not in months}
                    yield months
            if self.missing:
                reasons = filter(None, (batch.manifest.why_incomplete for batch in self.landed))
                raise ContractBroken(
                    f"{len(self.missing)} months are incomplete: {next(reasons)}",
                    next_step="Run it again: it requests these months again",
                )
            self._state.remove(_NOTE)

    def defer(self, error: Defer) -> None:
        """Store that it continues later."""
        self.deferred = error
        later = {"resume_at": error.resume_at, "why": error.happened}
        put_note(self._state, _NOTE, msgspec.structs.replace(self._open, **later))

    def _pull(self, months: dict[datetime, Scope]) -> bool:
        """Land months; return whether they are complete. Raises Defer also after some pages."""
        scope, puller = _join(months), self.service.puller()
        assert scope.lower is not None
        assert scope.upper is not None
        pull = puller.export if self._open.by == "export" else puller.events
        found = pull(
            scope.lower.date(), scope.upper.date(), coins=scope.coins, categories=scope.categories
        )
        landed = found if isinstance(found, list) else [found]
        self.landed += landed
        if landed[-1].deferred is not None:
            raise landed[-1].deferred
        return all(batch.manifest.complete for batch in landed)

    def _find_missing(self) -> dict[datetime, Scope]:
        """Return the months that no complete batch since the start has, quarantined or not."""
        if not self.resumed:
            return dict(self._months)
        begun, landing = self._open, self.service.landing
        days = landing.days(since=begun.started_at.date())
        batches, _ = landing.readable(name for day in days for name in landing.batch_ids(day=day))
        scopes = [
            batch.scope
            for batch in batches
            if batch.feed in ("events", "export")
            and batch.complete
            and batch.observed_at >= begun.started_at
            and (batch.plan, batch.source) == (begun.plan, begun.source)
        ]
        months = self._months.items()
        return {at: month for at, month in months if not any(covers(of, month) for of in scopes)}


def _join(months: dict[datetime, Scope]) -> Scope:
    scopes = list(months.values())
    return msgspec.structs.replace(scopes[0], upper=scopes[-1].upper)


def _clip(
    lower: date, upper: date, plan: Plan, window: Window
) -> tuple[datetime, datetime, list[str]]:
    """Return the bounds of the part of a range that the plan shows, and notes about the rest.

    Raises:
        PlanLacksAccess: the plan shows nothing of it.
    """
    first_shown = window.lower.date()
    horizon = None if window.upper is None else window.upper.date()
    if upper < first_shown or lower > (horizon or date.max):
        shown = f"from {first_shown} on" if horizon is None else f"from {first_shown} to {horizon}"
        raise PlanLacksAccess(
            f"the plan {plan.name} shows events {shown}, and the range is {lower} to {upper}",
            next_step="Choose dates that it shows, or use a key of a higher plan",
        )
    notes = []
    if lower < first_shown:
        notes.append(f"the plan {plan.name} shows nothing before {first_shown}")
    if horizon is not None and upper > horizon:
        notes.append(f"the plan {plan.name} shows nothing after {horizon}")
    last = min(upper, horizon or date.max)
    return find_day_start(max(lower, first_shown)), day_end(last), notes


def choose_source(prices: Mapping[Source, int], wanted: str) -> Source | None:
    """Return the source, list or export (`auto` takes the cheaper); None if the plan lacks it."""
    return next((by for by in prices if wanted in ("auto", by)), None)
