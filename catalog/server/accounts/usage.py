"""How many requests each key has used in its quota month (interface 8.1, decisions).

Counted in memory and written to a file, so that a restart does not start a new month. The
month is that of the catalog's clock.
"""

import logging
from datetime import datetime

import msgspec

from catalog.contract.records import Period, Usage
from catalog.contract.windows import day_start
from catalog.server.accounts.json_file import JsonFile, JsonFileError
from catalog.server.accounts.keys import Grant

log = logging.getLogger(__name__)

_MONTHS_MAX = 24


class UsageCounts(msgspec.Struct, frozen=True):
    """Requests by meter id and month (`YYYY-MM`)."""

    used: dict[str, dict[str, int]] = {}


def quota_period(now: datetime) -> Period:
    """Return the month of an instant: its first day and the next month's, 00:00 UTC."""
    start = day_start(now).replace(day=1)
    year, month = (start.year + 1, 1) if start.month == 12 else (start.year, start.month + 1)
    return Period(start=start, end=start.replace(year=year, month=month))


class UsageBook:
    """Charges requests against the monthly quota."""

    def __init__(self, file: JsonFile[UsageCounts] | None = None) -> None:
        self._file = file
        self._used = {} if file is None else file.read().used
        self._dirty = False

    def used(self, grant: Grant, now: datetime) -> int:
        return self._used.get(grant.meter_id, {}).get(_month(now), 0)

    def exhausted(self, grant: Grant, now: datetime) -> bool:
        return grant.monthly_quota is not None and self.used(grant, now) >= grant.monthly_quota

    def charge(self, grant: Grant, now: datetime, count: int = 1) -> None:
        months = self._used.setdefault(grant.meter_id, {})
        month = _month(now)
        months[month] = months.get(month, 0) + count
        if len(months) > _MONTHS_MAX:
            # Never the month that is being charged: a sandbox may count in a past month.
            del months[min(known for known in months if known != month)]
        self._dirty = True

    def read_out(self, grant: Grant, now: datetime) -> Usage:
        """Return the record of GET /v2/usage."""
        period, used, limit = quota_period(now), self.used(grant, now), grant.monthly_quota
        return Usage(
            plan=grant.plan.name,
            period=period,
            used=used,
            limit=limit,
            remaining=None if limit is None else max(0, limit - used),
            reset_at=period.end,
            rate=grant.rate_per_s,
            burst=grant.burst,
        )

    def unwritten(self) -> UsageCounts | None:
        """Return a copy of the counts if they changed since the last call."""
        if self._file is None or not self._dirty:
            return None
        self._dirty = False
        return UsageCounts(used={key: dict(months) for key, months in self._used.items()})

    def write(self, counts: UsageCounts) -> None:
        """Write the counts; for a thread, since it waits for the disk."""
        if self._file is None:
            return
        try:
            with self._file.editing() as edit:
                edit.value = counts
        except (OSError, JsonFileError):
            # The server continues to count in memory, and tries to write at the next flush.
            log.exception("the usage counts can't be written; they are kept in memory")
            self._dirty = True

    def flush(self) -> None:
        """Write what is not written yet."""
        counts = self.unwritten()
        if counts is not None:
            self.write(counts)


def _month(now: datetime) -> str:
    return f"{now.year:04d}-{now.month:02d}"
