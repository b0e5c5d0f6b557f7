"""Events that a rule selects at each decision and the table lacks, and the reverse.

A table may be filtered by what is known today. Each of its rows can be clean; only the missing
events show the filter. Belongs here: the rule, the comparison. Does not: the verdicts (judge).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from almanac.audit.values import SQL
from almanac.coins import slugs_of
from almanac.errors import InvalidArgument
from almanac.events import STATUSES, category_names, impact_values, listed
from almanac.instants import duration
from almanac.reader import Reader
from almanac.results import Result

if TYPE_CHECKING:
    import pyarrow as pa

_US: Final = timedelta(microseconds=1)
_ORIGIN: Final = datetime(1970, 1, 1, tzinfo=UTC)
KEYS: Final = ("within", "lead", "every", "coins", "categories", "min_impact", "status")
_EXAMPLE: Final = "universe={'within': '7d', 'min_impact': 7}"


@dataclass(frozen=True, slots=True)
class UniverseRule:
    """Which events are selected at a decision. `values` are those of the statements."""

    is_lead: bool
    every: timedelta | None
    values: Mapping[str, Any]


def universe_rule(reader: Reader, given: Mapping[str, Any]) -> UniverseRule:
    """Return a rule from the caller's filters.

    Raises:
        InvalidArgument: a filter is wrong, or there is not one of `within` and `lead`.
        UnknownName, AmbiguousCoin: a coin or category does not exist, or is not unique.
    """
    unknown = [name for name in given if name not in KEYS]
    if unknown:
        raise InvalidArgument(
            f"universe: {unknown[0]!r} is no filter; expected {', '.join(KEYS)}, as {_EXAMPLE}"
        )
    if ("within" in given) == ("lead" in given):
        raise InvalidArgument(
            "universe: expected either within (events that begin at most so long after the "
            f"decision) or lead (events whose date is so long after its day), as {_EXAMPLE}"
        )
    is_lead = "lead" in given
    every = duration(given["every"], "every") if given.get("every") is not None else None
    if every is not None and (is_lead or not every):
        raise InvalidArgument(
            "universe: every is the time between decisions, such as '1d', beside within"
        )
    name = "lead" if is_lead else "within"
    values = {
        "within_us": None,
        "lead_us": None,
        f"{name}_us": duration(given[name], name) // _US,
        "coins": slugs_of(reader, given.get("coins")),
        "categories": category_names(reader, given.get("categories")),
        "statuses": listed(given.get("status", "scheduled"), "status", STATUSES),
        **impact_values(given.get("min_impact")),
    }
    return UniverseRule(is_lead, every, values)


class DecisionPairs:
    """The distinct events and decisions of a table, from the verdicts on its rows."""

    def __init__(self) -> None:
        self._tables: list[pa.Table] = []
        self._rows = 0

    def add(self, verdicts: "pa.Table") -> None:
        """Add rows with verdicts."""
        import pyarrow as pa

        at = verdicts["decided_at"].cast(pa.timestamp("us", "UTC")).cast(pa.int64())
        pairs = pa.table({"event_id": verdicts["event_id"].cast(pa.string()), "at_us": at})
        self._tables.append(pairs.group_by(["event_id", "at_us"]).aggregate([]))
        if sum(table.num_rows for table in self._tables[1:]) > self._rows:
            self._tables = [self.table()]
            self._rows = self._tables[0].num_rows

    def table(self) -> "pa.Table":
        """Return event_id (NULL where a decision used none) and at_us, in microseconds."""
        import pyarrow as pa

        joined = pa.concat_tables(self._tables)
        return joined.group_by(["event_id", "at_us"]).aggregate([])


def compare_universe(
    reader: Reader, rule: UniverseRule, pairs: DecisionPairs, now: datetime, *, claimed: bool
) -> Result:
    """Return the differences between a rule and a table, at decisions up to now.

    Returns:
        One row per decision and event: problem (`absent`: the rule selects it, the table lacks it;
        `not_selected`: the table has it), decided_at, event_id, title, date, status and impact as
        known then, changed_later (kinds of change after the decision).
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    table = pairs.table()
    table = table.filter(pc.less_equal(table["at_us"], (now - _ORIGIN) // _US))
    instants = pc.unique(table["at_us"])
    if rule.every is not None and len(instants):
        first, last = pc.min(instants).as_py(), pc.max(instants).as_py()
        grid = pa.array(range(first, last + 1, rule.every // _US), pa.int64())
        instants = pc.unique(pa.concat_arrays([instants, grid]))
    frames = {
        "spans": reader.query(SQL["selected_spans"], {**rule.values, "claimed": claimed}),
        "decisions": pa.table({"at_us": instants}),
        "pairs": table.filter(pc.is_valid(table["event_id"])),
    }
    absent = reader.query(SQL["absent_events"], {"is_lead": rule.is_lead}, frames=frames)
    rest = reader.query(SQL["unselected_rows"], frames=frames)
    problems = pa.concat_tables([absent, rest.cast(absent.schema)])
    return reader.result(SQL["universe_problems"], frames={"problems": problems})
