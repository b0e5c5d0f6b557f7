"""Times around events during which a strategy does not trade.

Belongs here: the arguments of `blackouts`. Does not: which events count
(rows), the query (joins.sql).
"""

from datetime import timedelta
from typing import Final, Literal

from almanac.coins import slugs_of
from almanac.errors import InvalidArgument
from almanac.events import Coins, Names, known_at
from almanac.instants import Duration, Instant, duration
from almanac.joins.next_events import ORIGIN, US
from almanac.joins.rows import selected
from almanac.reader import Reader
from almanac.reading.named_sql import NamedStatements
from almanac.results import Result

AsOfEach = Instant | Literal["each"]
EACH: Final = "each"
_SQL = NamedStatements("almanac.joins")


def blackouts(
    reader: Reader,
    *,
    before: Duration,
    after: Duration,
    min_impact: float | None,
    as_of: AsOfEach | None,
    coins: Coins | None,
    categories: Names | None,
) -> Result:
    lead, rest = duration(before, "before"), duration(after, "after")
    if lead + rest == timedelta(0):
        raise InvalidArgument(
            "before and after are both 0: an event with a time of day would take no time"
        )
    with reader.pinned():
        is_each = isinstance(as_of, str) and as_of == EACH
        at = None if is_each else known_at(reader, as_of, "as_of")
        selection = selected(reader, timedelta(0), categories, min_impact)
        values = {
            "at_us": None if at is None else (at - ORIGIN) // US,
            "before_us": lead // US,
            "after_us": rest // US,
            "coins": slugs_of(reader, coins),
            **selection.filters,
        }
        return reader.result(_SQL["blackouts"], values)
