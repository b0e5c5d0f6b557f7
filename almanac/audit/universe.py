"""Events that a rule selects at each decision, and the table lacks; and rows that it does not select.

A table that was filtered by what is known today has no row that uses anything unknown: what shows it
is what it lacks. Belongs here: the rule, the comparison. Does not: the verdicts on rows (judge).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from almanac.audit.values import SQL
from almanac.coins import slugs_of
from almanac.errors import InvalidArgument
from almanac.events import STATUSES, category_names, impact_values, listed
from almanac.instants import duration
from almanac.reader import Reader

if TYPE_CHECKING:
    import pyarrow as pa

_US: Final = timedelta(microseconds=1)
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


def compare_universe(
    reader: Reader, rule: UniverseRule, pairs: "pa.Table", *, claimed: bool
) -> "pa.Table":
    """Return the differences between a rule and a table.

    Args:
        pairs: distinct event_id and at_us, the decision in microseconds; an event_id is NULL where
            a decision used no event.

    Returns:
        One row per decision and event: problem (`absent`: the rule selects it, the table lacks it;
        `not_selected`: the table has it), decided_at, event_id, title, date, status and impact as
        known then, changed_later (kinds of change after the decision).
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    instants = pc.unique(pairs["at_us"].drop_null())
    if rule.every is not None and len(instants):
        first, last = pc.min(instants).as_py(), pc.max(instants).as_py()
        grid = pa.array(range(first, last + 1, rule.every // _US), pa.int64())
        instants = pc.unique(pa.concat_arrays([instants, grid]))
    frames = {
        "spans": reader.query(SQL["selected_spans"], {**rule.values, "claimed": claimed}),
        "decisions": pa.table({"at_us": instants}),
        "pairs": pairs.filter(pc.and_(pc.is_valid(pairs["event_id"]), pc.is_valid(pairs["at_us"]))),
    }
    absent = reader.query(SQL["absent_events"], {"is_lead": rule.is_lead}, frames=frames)
    rest = reader.query(SQL["unselected_rows"], frames=frames)
    problems = pa.concat_tables([absent, rest.cast(absent.schema)])
    return reader.query(SQL["universe_problems"], frames={"problems": problems})


def distinct_pairs(verdicts: "pa.Table") -> "pa.Table":
    """Return the distinct events and decisions of rows with verdicts, as `compare_universe` wants."""
    import pyarrow as pa

    at = verdicts["decided_at"].cast(pa.timestamp("us", "UTC")).cast(pa.int64())
    pairs = pa.table({"event_id": verdicts["event_id"].cast(pa.string()), "at_us": at})
    return pairs.group_by(["event_id", "at_us"]).aggregate([])
