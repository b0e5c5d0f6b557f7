"""The inputs of the poll planner, read from local state without a request.

The warehouse gives the calendar and the change rates, landing the last pulls, and the machine's
ledger the month.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from math import ceil
from pathlib import Path
from typing import Final

from catalog.contract.constants import COINS_LIMIT_MAX, EVENTS_LIMIT_MAX
from catalog.contract.plans import PLANS, Plan
from pipeline.polling.planner import PAST_DAYS, Month, PlannerInputs, ReceivedPush
from pipeline.polling.poll_windows import (
    BANDS,
    NO_CHANGE_COUNTS,
    Calendar,
    ChangeCounts,
    ChangeRates,
    count_events,
    estimate_rates,
    find_band,
)
from pipeline.session import ledger_of, reserve_of
from pipeline.settings import Settings
from resources.inbox import Inbox, receipt_of
from resources.limits.ledger import UNKNOWN, UNLIMITED, Allowance, next_reset
from resources.request_log import last_usage
from resources.service_clock import ServiceClock
from resources.session import NEAR_AFTER_DAYS, NEAR_BEFORE_DAYS
from warehouse.files.storage import Storage
from warehouse.home import Home
from warehouse.landing.batches import Manifest
from warehouse.landing.landing import Landing
from warehouse.queries import NO_ACTIVITY, Activity, read_activity

_DAY: Final = timedelta(days=1)
_RECENT: Final = timedelta(days=2)
"""Pulls before this are not read: their dates are due."""
_PAST: Final = timedelta(days=PAST_DAYS + 1)
_AHEAD: Final = timedelta(days=1_100)


@dataclass(slots=True)
class PollFacts:
    """Reads the planner's inputs of a home. Keep it: unchanged files are not read again."""

    settings: Settings
    home: Home
    _manifests: dict[str, Manifest] = field(default_factory=dict, repr=False)
    _activity: Activity = field(default=NO_ACTIVITY, repr=False)
    _calendar_read: Calendar | None = field(default=None, repr=False)
    _rates_read: ChangeRates | None = field(default=None, repr=False)
    _published: tuple[int, int] = field(default=(0, 0), repr=False)

    def inputs(self, now: datetime) -> PlannerInputs | None:
        """Return the inputs, None if the plan is not known because nothing was pulled yet.

        `now` is by the machine's clock; the inputs are by the service's.

        Raises:
            WarehouseError: the warehouse or a manifest can't be read.
        """
        plan = PLANS.get(self.settings.plan or last_plan(self.home) or "")
        if plan is None:
            return None
        now += ServiceClock(lambda: now, state=Storage(self.home.state)).ahead
        activity = self._read_activity(now)
        pulls = self._recent_pulls(now)
        looked_up = {
            batch.scope.event_id: batch.observed_at for batch in pulls if batch.feed == "event"
        }
        cancelled = [batch for batch in pulls if batch.feed == "cancellations" and batch.complete]
        return PlannerInputs(
            plan=plan,
            now=now,
            month=self._month(plan, activity, now),
            calendar=self._calendar(activity),
            last_pulls=last_pulls(pulls, now),
            cancellations_pulled_at=max((batch.observed_at for batch in cancelled), default=None),
            rates=self._rates_of(activity, plan, now),
            missing=tuple(event_id for event_id in activity.missing if event_id not in looked_up),
            looked_up_today=sum(at.date() == now.date() for at in looked_up.values()),
            push=self._push(pulls),
            least_interval=timedelta(seconds=self.settings.poll_interval_s),
        )

    def _read_activity(self, now: datetime) -> Activity:
        published = _file_mark(self.home.warehouse)
        if published != self._published or self._activity is NO_ACTIVITY:
            self._activity = read_activity(self.home.warehouse, now)
            self._calendar_read = self._rates_read = None
            self._published = published
        return self._activity

    def _rates_of(self, activity: Activity, plan: Plan, now: datetime) -> ChangeRates:
        # Kept as the calendar is: new rates would make the planner compute every schedule again.
        if self._rates_read is None:
            self._rates_read = estimate_rates(_watched(activity, plan, now))
        return self._rates_read

    def _calendar(self, activity: Activity) -> Calendar:
        # The same object while nothing changed: schedules are cached by it.
        if self._calendar_read is None:
            spans = ((span[0], span[1]) for span in activity.spans for _ in range(span[2]))
            self._calendar_read = count_events(spans)
        return self._calendar_read

    def _recent_pulls(self, now: datetime) -> list[Manifest]:
        """Return the manifests landed recently, merged or not."""
        landing: Landing = self.home.landing
        ids = [
            batch_id
            for day in landing.days(since=(now - _RECENT).date())
            for batch_id in landing.batch_ids(day=day)
        ]
        new, _ = landing.readable(batch_id for batch_id in ids if batch_id not in self._manifests)
        known = self._manifests | {batch.batch_id: batch for batch in new}
        self._manifests = {batch_id: known[batch_id] for batch_id in ids if batch_id in known}
        return list(self._manifests.values())

    def _push(self, pulls: Iterable[Manifest]) -> ReceivedPush | None:
        """Return the newest delivery."""
        settings = self.settings
        received = [batch.observed_at for batch in pulls if batch.feed == "deliveries"]
        received += map(receipt_of, Inbox(self.home).names()[-1:])
        if not received:
            return None
        return ReceivedPush(
            max(received),
            silent_after=timedelta(hours=settings.push_silence_h),
            poll_interval=timedelta(seconds=settings.push_poll_interval_s),
        )

    def _month(self, plan: Plan, activity: Activity, now: datetime) -> Month:
        state = self._allowance(plan, now)
        quota = {UNKNOWN: plan.monthly_quota, UNLIMITED: None}.get(state.allowed, state.allowed)
        used = state.used
        if self.settings.monthly_quota is not None:
            used, quota = state.own, self.settings.monthly_quota
        resets_at = next_reset(now)
        if state.resets_at:
            resets_at = datetime.fromtimestamp(state.resets_at, UTC)
        return Month(
            quota=quota,
            used=used,
            resets_at=resets_at,
            reserve=reserve_of(self.settings, plan, state.allowed),
            daily_requests=daily_requests(plan, activity, now),
        )

    def _allowance(self, plan: Plan, now: datetime) -> Allowance:
        """Return the ledger's count of this month, else the service's last report."""
        ledger = ledger_of(self.settings)
        if ledger is not None:
            state = ledger.peek()
            if not state.is_unknown(now.timestamp()):
                return state
        usage = last_usage(self.home.state)
        # Another plan means another key, and the report does not have this machine's part.
        if usage is None or usage.plan != plan.name or self.settings.monthly_quota is not None:
            return Allowance()
        used, resets_at = usage.used, usage.reset_at or next_reset(usage.at)
        if used is None and usage.quota is not None and usage.remaining is not None:
            used = usage.quota - usage.remaining
        if used is None or now >= resets_at:
            return Allowance()
        return Allowance(allowed=usage.allowed, used=used, resets_at=int(resets_at.timestamp()))


def daily_requests(plan: Plan, activity: Activity, now: datetime) -> int:
    """Return the requests of one daily job: every feed once, and one usage request."""
    today = now.date()
    first, last = date.min, date.max
    if plan.export:
        first = today - NEAR_BEFORE_DAYS * _DAY
        last = today + NEAR_AFTER_DAYS * _DAY
    rows = sum(count for begin, _, count in activity.spans if first <= begin <= last)
    pages = [
        *(ceil(activity.coins / COINS_LIMIT_MAX), ceil(rows / EVENTS_LIMIT_MAX)),
        ceil(activity.cancellations / EVENTS_LIMIT_MAX),
    ]
    others = 2 + 2 * plan.export
    return sum(max(1, count) for count in pages) + others


def last_pulls(pulls: list[Manifest], now: datetime) -> dict[date, datetime]:
    """Return when each event date was last pulled completely.

    A list counts from its pull, since another pull does not reduce the lag of the service. An
    export counts from midnight, whenever it is pulled.
    """
    found: dict[date, datetime] = {}
    nearest, furthest = (now - _PAST).date(), (now + _AHEAD).date()
    for batch in sorted(pulls, key=_as_of):
        if batch.feed not in ("events", "export") or not batch.complete:
            continue
        lower, upper = batch.scope.lower, batch.scope.upper
        day = nearest if lower is None else max(nearest, lower.date())
        last = furthest if upper is None else min(furthest, upper.date())
        while day <= last:
            found[day] = _as_of(batch)
            day += _DAY
    return found


def _as_of(manifest: Manifest) -> datetime:
    return manifest.content_at if manifest.feed == "export" else manifest.observed_at


def _watched(activity: Activity, plan: Plan, now: datetime) -> ChangeCounts:
    """Return the observed changes by band of distance, and the observed dates and events."""
    if activity.watched_since is None:
        return NO_CHANGE_COUNTS
    days, today = (now - activity.watched_since) / _DAY, now.date()
    counts = {kind: [0.0] * len(BANDS) for kind in ("announced", "edited", "cancelled")}
    for kind, distance, changes in activity.changes:
        counts[kind][find_band(distance)] += changes
    date_days, event_days = [0.0] * len(BANDS), [0.0] * len(BANDS)
    begins = [(span[0], span[2]) for span in activity.spans]
    furthest = max((day for day, _ in begins), default=today)
    horizon = plan.horizon_days or max(1, (furthest - today).days)
    past = PAST_DAYS if plan.past_days is None else plan.past_days
    for distance in range(-past, horizon + 1):
        date_days[find_band(distance)] += days
    for day, events in begins:
        event_days[find_band((day - today).days)] += days * events
    return ChangeCounts(
        tuple(counts["announced"]),
        tuple(counts["edited"]),
        tuple(date_days),
        tuple(event_days),
        sum(counts["cancelled"]),
        days,
    )


def last_plan(home: Home) -> str | None:
    """Return the plan that the service last reported, None if it never did."""
    last = last_usage(home.state)
    return None if last is None else last.plan


def _file_mark(path: Path) -> tuple[int, int]:
    """Return a value that changes when the file is published again."""
    try:
        stat = path.stat()
    except FileNotFoundError:
        return 0, 0
    return stat.st_ino, stat.st_mtime_ns
