"""When to poll: a table with an interval for each band of event dates and for the cancellations.

    inputs = read_poll_inputs(settings, home, now)   # None: nothing was pulled yet
    plan = plan_polls(inputs)                        # the table, and the pulls that are due

A band is due when its last pull in landing is an interval old. If the month's quota, less the
reserve and the daily pulls, does not allow the intervals, one factor stretches all of them. A band
whose interval reaches a day is left to the daily pull. No request is sent. Timestamps are aware UTC
by the service's clock; costs are in requests.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from math import ceil, inf
from typing import Final

from catalog.contract.plans import PLANS, Plan, day_end
from pipeline.service_session import count_reserve, open_ledger
from pipeline.settings import Settings
from resources.limits.ledger import UNKNOWN, UNLIMITED, Allowance, next_reset
from resources.request_log import last_usage
from resources.scopes import PollWindow, count_pages, find_day_start
from resources.service_clock import ServiceClock
from resources.session import Poll, price_day
from warehouse.files.storage import Storage
from warehouse.home import Home
from warehouse.landing.batches import Manifest
from warehouse.landing.inbox import PUSH_SILENCE, Inbox, read_receipt_time
from warehouse.queries import Activity, read_activity

CANCELLATIONS: Final = "cancellations"
MISSING: Final = "missing events"
INTERVALS: Final = {
    "next 7 days": 1,
    "next 90 days": 2,
    "later dates": 8,
    CANCELLATIONS: 1,
    MISSING: 1,
}
"""The interval of each row, as a multiple of the least interval."""
_ROW_OF_FEED: Final = {"cancellations": CANCELLATIONS, "event": MISSING}
_LOOK_UPS: Final = 5
"""The most look-ups of missing events in one poll."""
_DAILY_DONE_BY: Final = time(1, 0)
"""The time by which the daily pull of a day has sent its requests."""
_SINCE_MARGIN: Final = timedelta(minutes=5)
"""The overlap of two pulls of cancellations, beside the service's own delay."""
_DAY: Final = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Month:
    """The quota until the reset, None without one, and the cost of one daily pull."""

    quota: int | None
    used: int
    resets_at: datetime
    reserve: int = 0
    daily_requests: int = 0

    def for_daily(self, now: datetime) -> int:
        """Return the requests of the daily pulls until the reset."""
        done_by = datetime.combine(now.date(), _DAILY_DONE_BY, UTC)
        first = done_by if done_by > now else done_by + _DAY
        return max(0, ceil((self.resets_at - first) / _DAY)) * self.daily_requests

    def for_polls(self, now: datetime) -> float:
        """Return what polls may send until the reset, at least 0; inf without a quota."""
        if self.quota is None:
            return inf
        return max(0, self.quota - self.used - self.reserve - self.for_daily(now))


@dataclass(frozen=True, slots=True)
class PollInputs:
    """The inputs of a plan.

    `spans` counts the known events by first and last date, `last_pulls` has the last complete pull
    of each row. The `missing` events were absent from a complete pull, and no look-up has confirmed
    this yet. Until `push_until` push brings the changes, and polls only look for the rest.
    """

    plan: Plan
    now: datetime
    month: Month
    spans: Sequence[tuple[date, date | None, int]] = ()
    last_pulls: Mapping[str, datetime] = field(default_factory=dict)
    missing: Sequence[str] = ()
    least_interval: timedelta = timedelta(minutes=15)
    push_until: datetime | None = None
    push_interval: timedelta = timedelta(hours=6)

    @property
    def push_is_on(self) -> bool:
        return self.push_until is not None and self.now <= self.push_until


@dataclass(frozen=True, slots=True)
class PollRow:
    """A row of the table: `window` are its event dates, `requests` is for one pull.

    `per_day` is 0 if the interval is so long that the row is left to the daily pull.
    """

    name: str
    window: PollWindow | None
    requests: int
    interval: timedelta
    due_at: datetime
    per_day: float


@dataclass(frozen=True, slots=True)
class PollPlan:
    """The poll table, the rows that are due (`due`), and their number of requests (`requests`).
    `next_at` is the next time after it.

    `factor` stretches all intervals; it is None if the budget allows no poll until the reset.
    """

    rows: list[PollRow]
    due: Poll
    requests: int
    next_at: datetime
    factor: float | None


def plan_polls(inputs: PollInputs) -> PollPlan:
    """Return the table of intervals, and the pulls that are due now."""
    now, month = inputs.now, inputs.month
    budget, days = month.for_polls(now), (month.resets_at - now) / _DAY
    wanted = sum(row.per_day for row in _rows(inputs, 1.0, push=False)) * days
    factor = max(1.0, wanted / budget) if budget >= 1 else None
    rows = _rows(inputs, factor or 1.0, push=inputs.push_is_on)
    polled = [row for row in rows if row.per_day and factor]
    left, due = budget, dict[str, PollRow]()
    for row in polled:
        # A window may have grown by a page since it was counted.
        if row.due_at <= now and row.requests + (row.window is not None) <= left:
            due[row.name] = row
            left -= row.requests + (row.window is not None)
    cancelled_at = inputs.last_pulls.get(CANCELLATIONS)
    margin = timedelta(seconds=inputs.plan.freshness_s) + _SINCE_MARGIN
    times = (row.due_at if row.due_at > now else now + row.interval for row in polled)
    return PollPlan(
        rows=rows,
        due=Poll(
            windows=tuple(row.window for row in due.values() if row.window is not None),
            cancellations=CANCELLATIONS in due,
            since=None if cancelled_at is None else cancelled_at - margin,
            event_ids=tuple(inputs.missing[:_LOOK_UPS] if MISSING in due else ()),
        ),
        requests=sum(row.requests for row in due.values()),
        next_at=min([*times, month.resets_at]),
        factor=factor,
    )


def _rows(inputs: PollInputs, factor: float, *, push: bool) -> list[PollRow]:
    windows = band_windows(inputs.plan, inputs.now.date())
    costs = {name: count_pages(inputs.spans, window) for name, window in windows.items()}
    costs[CANCELLATIONS] = 1
    if inputs.missing and inputs.plan.horizon_days is None:  # Else a 404 proves nothing.
        costs[MISSING] = min(len(inputs.missing), _LOOK_UPS)
    # A pull within the service's delay shows nothing new.
    least = max(inputs.least_interval, timedelta(seconds=inputs.plan.freshness_s))
    found = []
    for name, requests in costs.items():
        interval = least * INTERVALS[name] * factor
        interval = max(interval, inputs.push_interval) if push else interval
        last_at = inputs.last_pulls.get(name)
        due_at = inputs.now if last_at is None else last_at + interval
        per_day = requests * (_DAY / interval) if interval < _DAY else 0.0
        found.append(PollRow(name, windows.get(name), requests, interval, due_at, per_day))
    return found


def band_windows(plan: Plan, today: date) -> dict[str, PollWindow]:
    """Return the event dates of each band that a plan shows, from yesterday if it shows that."""
    first = today - _DAY * (plan.past_days != 0)
    near, far = today + 7 * _DAY, today + 90 * _DAY
    windows = PollWindow(first, near), PollWindow(near + _DAY, far), PollWindow(far + _DAY, None)
    # The horizon of a plan is the end of a band.
    last = date.max if plan.horizon_days is None else today + plan.horizon_days * _DAY
    shown = (window for window in windows if (window.last or date.max) <= last)
    return dict(zip(INTERVALS, shown, strict=False))


def find_last_pulls(batches: Iterable[Manifest], plan: Plan) -> dict[str, datetime]:
    """Return when each row was last pulled completely; an export is as old as its snapshot.

    Bands are relative to the day of the batch, so that a new day does not make a band due.
    """
    found: dict[str, datetime] = {}
    for batch in batches:
        lower = batch.scope.lower or datetime.min.replace(tzinfo=UTC)
        upper = batch.scope.upper or day_end(date.max)
        names = [name for name in (_ROW_OF_FEED.get(batch.feed),) if name]
        if batch.feed in ("events", "export"):
            for name, window in band_windows(plan, batch.observed_at.date()).items():
                last = day_end(window.last or date.max)
                names += [name] * (lower <= find_day_start(window.first) and last <= upper)
        at = batch.content_at if batch.feed == "export" else batch.observed_at
        if batch.complete:
            found |= {name: max(at, found.get(name, at)) for name in names}
    return found


def read_poll_inputs(settings: Settings, home: Home, now: datetime) -> PollInputs | None:
    """Return the inputs from local files; None if nothing was pulled yet, so the plan is not known.

    `now` is by the machine's clock. Raises WarehouseError if the warehouse can't be read.
    """
    usage = last_usage(home.state)
    plan = PLANS.get(settings.plan or ("" if usage is None else usage.plan) or "")
    if plan is None:
        return None
    now += ServiceClock(lambda: now, state=Storage(home.state)).ahead
    activity = read_activity(home.warehouse, now)
    # A band that waits for two days is left to the daily pull.
    days = home.landing.days(since=(now - 2 * _DAY).date())
    ids = (batch_id for day in days for batch_id in home.landing.batch_ids(day=day))
    batches, _ = home.landing.readable(ids)
    looked_up = {batch.scope.event_id for batch in batches}
    pushed = [batch.observed_at for batch in batches if batch.feed == "deliveries"]
    pushed += map(read_receipt_time, Inbox(home).names()[-1:])
    return PollInputs(
        plan=plan,
        now=now,
        month=_read_month(settings, home, plan, activity, now),
        spans=activity.spans,
        last_pulls=find_last_pulls(batches, plan),
        missing=[event_id for event_id in activity.missing if event_id not in looked_up],
        least_interval=timedelta(seconds=settings.poll_interval_s),
        push_until=max(pushed) + PUSH_SILENCE if pushed and plan.webhooks else None,
        push_interval=timedelta(seconds=settings.push_poll_interval_s),
    )


def _read_month(
    settings: Settings, home: Home, plan: Plan, activity: Activity, now: datetime
) -> Month:
    """Return the month by the ledger, else as the service last reported it."""
    allowed, used, resets_at = UNKNOWN, 0, next_reset(now)
    usage, ledger = last_usage(home.state), open_ledger(settings)
    state = Allowance() if ledger is None else ledger.peek()
    if not state.is_unknown(now.timestamp()):
        # A share of this machine is counted by its own requests.
        used = state.used if settings.monthly_quota is None else state.own
        allowed, resets_at = state.allowed, datetime.fromtimestamp(state.resets_at, UTC)
    elif ledger is None and usage is not None and now < (usage.reset_at or now):
        allowed, used, resets_at = usage.allowed, usage.used or 0, usage.reset_at or now
    stated = {UNKNOWN: plan.monthly_quota, UNLIMITED: None}.get(allowed, allowed)
    return Month(
        quota=settings.monthly_quota or stated,
        used=used,
        resets_at=resets_at,
        reserve=count_reserve(settings, plan, allowed),
        daily_requests=1 + sum(price_day(plan, activity, now).values()),  # And the usage.
    )
