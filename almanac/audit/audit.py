"""The look-ahead audit: its steps, the comparison with a universe rule, and its command.

The rows of a table may have been selected with later information. Each of its rows can be clean.
Only the events missing from the table show such a filter. `compare_universe` finds them.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from almanac.audit.judge import judge
from almanac.audit.report import Audit, FindingRows
from almanac.audit.row_events import SQL, PullTimes
from almanac.audit.user_rows import read_signals
from almanac.core import progress
from almanac.core.errors import InvalidArgument
from almanac.core.timestamps import ORIGIN, US, TimeUnit, read_duration
from almanac.events import (
    STATUSES,
    check_choice,
    make_filter_values,
    read_choices,
)
from almanac.reader import Reader
from almanac.results import Result
from almanac.streams import SLICE_ROWS

KEYS: Final = ("within", "lead", "every", "coins", "categories", "min_impact", "status")
_EXAMPLE: Final = "universe={'within': '7d', 'min_impact': 7}"


@dataclass(frozen=True, slots=True)
class UniverseRule:
    """The rule that selects events at a decision. `values` are the parameters of its SQL
    statements."""

    is_lead: bool
    every: timedelta | None
    values: Mapping[str, Any]


def read_universe_rule(reader: Reader, given: Mapping[str, Any]) -> UniverseRule:
    """Return a rule from the caller's filters."""
    unknown = [name for name in given if name not in KEYS]
    if unknown:
        raise InvalidArgument(
            f"universe: {unknown[0]!r} is not a filter; expected {', '.join(KEYS)}, as {_EXAMPLE}"
        )
    if ("within" in given) == ("lead" in given):
        raise InvalidArgument(
            "universe: expected either within (events that begin at most so long after the "
            f"decision) or lead (events whose date is so long after its day), as {_EXAMPLE}"
        )
    is_lead = "lead" in given
    every = read_duration(given["every"], "every") if given.get("every") is not None else None
    if every is not None and (is_lead or not every):
        raise InvalidArgument(
            "universe: every, the time between decisions, must be longer than 0, such as '1d', and "
            "is allowed only with within"
        )
    name = "lead" if is_lead else "within"
    values = {
        "within_us": None,
        "lead_us": None,
        f"{name}_us": read_duration(given[name], name) // US,
        "statuses": read_choices(given.get("status", "scheduled"), "status", STATUSES),
        **make_filter_values(
            reader, given.get("coins"), given.get("categories"), given.get("min_impact")
        ),
    }
    return UniverseRule(is_lead, every, values)


class DecisionPairs:
    """The distinct events and decisions of an audited table."""

    def __init__(self) -> None:
        self._tables: list[pa.Table] = []
        self._rows = 0

    def add(self, verdicts: pa.Table) -> None:
        at = verdicts["decided_at"].cast(pa.timestamp("us", "UTC")).cast(pa.int64())
        pairs = pa.table({"event_id": verdicts["event_id"].cast(pa.string()), "at_us": at})
        self._tables.append(pairs.group_by(["event_id", "at_us"]).aggregate([]))
        if sum(table.num_rows for table in self._tables[1:]) > self._rows:
            self._tables = [self.table()]
            self._rows = self._tables[0].num_rows

    def table(self) -> pa.Table:
        """Return event_id (NULL where a decision used none) and at_us, in microseconds."""
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
    table = pairs.table()
    table = table.filter(pc.less_equal(table["at_us"], (now - ORIGIN) // US))
    instants = pc.unique(table["at_us"])
    if rule.every is not None and len(instants):
        first, last = pc.min(instants).as_py(), pc.max(instants).as_py()
        grid = pa.array(range(first, last + 1, rule.every // US), pa.int64())
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


def audit(
    reader: Reader,
    source: Any,
    *,
    decided_at: str | None,
    fields: Mapping[str, str | None] | None,
    basis: str,
    universe: Mapping[str, Any] | None = None,
    unit: TimeUnit | None = None,
    rows_max: int = SLICE_ROWS,
) -> Audit:
    """Return the verdicts on rows, which are judged `rows_max` at a time."""
    check_choice(basis, "basis", ("observed", "claimed"))
    signals = read_signals(
        source, decided_at=decided_at, fields=fields, unit=unit, rows_max=rows_max
    )
    progress.phase("reading the rows")
    done = 0
    naive: Counter[str] = Counter()
    used: Counter[str] = Counter()
    findings: list[pa.Table] = []
    verdicts: list[pa.Table] = []
    with reader.pinned():
        publication = reader.publication()
        first, last = publication.first_pull_at, publication.last_events_at
        pulls = PullTimes(first, last, reader.now())
        rule = None if universe is None else read_universe_rule(reader, universe)
        pairs = DecisionPairs()
        for batch in signals.batches:
            judged = judge(reader, batch, pulls, claimed=basis == "claimed")
            findings.append(judged.findings)
            verdicts.append(judged.verdicts)
            naive.update(judged.naive)
            used.update(judged.used)
            if rule is not None:
                pairs.add(judged.verdicts)
            done += batch.table.num_rows
            progress.phase("rows", done, signals.rows)
        differences = None
        if rule is not None:
            progress.phase("comparing with the universe")
            is_claimed = basis == "claimed"
            differences = compare_universe(reader, rule, pairs, pulls.now, claimed=is_claimed)
        return Audit(
            rows=FindingRows(pa.concat_tables(findings)),
            verdicts=FindingRows(pa.concat_tables(verdicts)),
            basis=basis,
            columns=signals.columns,
            ignored=signals.ignored,
            naive={signals.columns[name]: count for name, count in naive.items()},
            tz=str(reader.tz),
            first_pull_at=pulls.first,
            last_pull_at=pulls.last,
            used=used,
            universe=differences,
            source=Path(source).name if isinstance(source, (str, Path)) else "signals",
        )
