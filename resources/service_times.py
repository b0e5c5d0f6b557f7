"""Since when what the service said was true. Instants are aware UTC; its time is in
service_clock.py.
"""

from datetime import datetime, timedelta
from typing import Final

from catalog.contract.decisions import EXPORT_SNAPSHOT_MINUTE
from catalog.contract.plans import PLANS, Plan
from catalog.contract.windows import day_start

_SNAPSHOT: Final = timedelta(minutes=EXPORT_SNAPSHOT_MINUTE)
_OUT_BY: Final = timedelta(minutes=10)
"""An export fetched earlier after midnight may still be that of the day before."""
_FIRST_YEAR: Final = 2000


def list_content_at(first_date: datetime, plan: Plan) -> datetime:
    """Return since when a list or look-up was true: its first page's Date less the freshness."""
    return first_date - timedelta(seconds=plan.freshness_s)


def export_content_at(last_modified: datetime | None, date: datetime) -> datetime:
    """Return which instant an export is the snapshot of.

    `date` is when it was sent, by the service's clock. A Last-Modified after it is none, nor is
    one of a year that can't be.
    """
    if last_modified is not None and last_modified <= date and last_modified.year >= _FIRST_YEAR:
        return last_modified
    today = day_start(date)
    day = today - timedelta(days=1) if date < today + _OUT_BY else today
    return day + _SNAPSHOT


def plan_of(name: str, usual: Plan) -> Plan:
    """Return the plan of an earlier pull; of an unknown one, the oldest content is assumed."""
    if name == usual.name:
        return usual
    return PLANS.get(name) or max(PLANS.values(), key=lambda plan: plan.freshness_s)
