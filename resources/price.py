"""What a backfill costs, before it begins: requests, time at the rate allowed, quota after."""

from dataclasses import asdict, dataclass
from math import ceil
from typing import Any

from catalog.contract import decisions
from resources.service import Service
from resources.sweeps import Source

_PAGE = decisions.EVENTS_LIMIT_MAX


@dataclass(frozen=True, slots=True)
class Price:
    """The price of one way. `rows` is how many events there are, None where it is not told.

    `seconds` is what the limits allow at best; `left` and `kept` are requests of the month, None
    where nothing limits: `kept` of them are not for backfills. `available` is what a backfill may
    still send, by reserve, cap and share.
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
        """Whether it comes to its end this month."""
        return self.available is None or self.available >= self.requests

    def told(self) -> dict[str, Any]:
        """Return it for programs, with what follows from it."""
        return {**asdict(self), "left_after": self.left_after, "affordable": self.affordable}


def price_of(service: Service, counts: list[int | None], by: Source) -> Price:
    """Return the price of lists with so many rows each; a page has a hundred.

    An export is one request, and one more to know how many rows should come.
    """
    known = [count for count in counts if count is not None]
    rows = sum(known) if len(known) == len(counts) else None
    requests = 2 * len(counts)
    if by == "list":
        requests = sum(max(1, ceil((count or 0) / _PAGE)) for count in counts)
    pace = service.pace
    seconds = max(0.0, (requests - pace.burst) / pace.rate_per_s)
    return Price(by, requests, seconds, rows, service.quota_left, service.kept, service.available)
