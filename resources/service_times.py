"""The service's time: which day it is there, and since when what it said was true.

Today, everywhere, is the service's day and not the machine's. Instants are aware UTC.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final

from catalog.contract.decisions import EXPORT_SNAPSHOT_MINUTE
from catalog.contract.plans import PLANS, Plan
from catalog.contract.windows import day_start

_SNAPSHOT: Final = timedelta(minutes=EXPORT_SNAPSHOT_MINUTE)
_OUT_BY: Final = timedelta(minutes=10)
"""An export fetched earlier after midnight may still be that of the day before."""


class ServiceClock:
    """The machine's clock, set by each `Date` that is heard; until then, as it is."""

    def __init__(self, clock: Callable[[], datetime]) -> None:
        self._clock = clock
        self._ahead = timedelta(0)

    def hear(self, date: datetime) -> None:
        self._ahead = date - self._clock()

    def now(self) -> datetime:
        return (self._clock() + self._ahead).astimezone(UTC)


def list_content_at(first_date: datetime, plan: Plan) -> datetime:
    """Return since when a list or look-up was true: its first page's Date less the freshness."""
    return first_date - timedelta(seconds=plan.freshness_s)


def export_content_at(last_modified: datetime | None, date: datetime) -> datetime:
    """Return which instant an export is the snapshot of.

    A Last-Modified after its own Date is none.
    """
    if last_modified is not None and last_modified <= date:
        return last_modified
    today = day_start(date)
    day = today - timedelta(days=1) if date < today + _OUT_BY else today
    return day + _SNAPSHOT


def plan_of(name: str, usual: Plan) -> Plan:
    """Return the plan of an earlier pull; of an unknown one, the oldest content is assumed."""
    if name == usual.name:
        return usual
    return PLANS.get(name) or max(PLANS.values(), key=lambda plan: plan.freshness_s)
