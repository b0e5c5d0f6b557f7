"""The look-ahead audit: its steps, the comparison with a universe rule, and its command.

A table may be filtered with information of today. Each of its rows can be clean; only the missing
events show the filter. `compare_universe` finds them.
"""

import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from almanac.audit.fields import GROUPS
from almanac.audit.findings import HELD_BYTES, RowStore, unjudged_limit
from almanac.audit.judge import JudgedRows, judge
from almanac.audit.report import Audit, as_text, headline
from almanac.audit.row_events import SQL, Pulls, pulls_of
from almanac.audit.user_rows import Signals, read_signals
from almanac.coins import slugs_of
from almanac.errors import InvalidArgument
from almanac.events import STATUSES, category_names, impact_values, listed
from almanac.reader import Reader, find_file
from almanac.reading.row_files import refuse_part_of_home
from almanac.results import Result
from almanac.safe_text import escaped_in_json, fitted, plain
from almanac.streams import SLICE_ROWS, RowProgress
from almanac.timestamps import ORIGIN, US, duration, zone

KEYS: Final = ("within", "lead", "every", "coins", "categories", "min_impact", "status")
_EXAMPLE: Final = "universe={'within': '7d', 'min_impact': 7}"


@dataclass(frozen=True, slots=True)
class UniverseRule:
    """Which events are selected at a decision. `values` are parameters of the statements."""

    is_lead: bool
    every: timedelta | None
    values: Mapping[str, Any]


def universe_rule(reader: Reader, given: Mapping[str, Any]) -> UniverseRule:
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
    every = duration(given["every"], "every") if given.get("every") is not None else None
    if every is not None and (is_lead or not every):
        raise InvalidArgument(
            "universe: every, the time between decisions, must be longer than 0, such as '1d', and "
            "is allowed only with within"
        )
    name = "lead" if is_lead else "within"
    values = {
        "within_us": None,
        "lead_us": None,
        f"{name}_us": duration(given[name], name) // US,
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

    def add(self, verdicts: pa.Table) -> None:
        """Add rows with verdicts."""
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


_BASES = ("observed", "claimed")


def audit(
    reader: Reader,
    source: Any,
    *,
    decided_at: str | None,
    fields: Mapping[str, str | None] | None,
    basis: str,
    universe: Mapping[str, Any] | None = None,
    progress: Callable[[str], None] | None,
    rows_max: int = SLICE_ROWS,
    held_bytes: int = HELD_BYTES,
) -> Audit:
    """Return the verdicts on rows, which are judged `rows_max` at a time.

    Findings above `held_bytes` are kept in a temporary file.
    """
    if basis not in _BASES:
        raise InvalidArgument(f"basis={basis!r}; expected {', '.join(_BASES)}")
    signals = read_signals(source, decided_at=decided_at, fields=fields, rows_max=rows_max)
    shown = RowProgress(progress, signals.rows)
    shown.step("reading the rows")
    naive: Counter[str] = Counter()
    other: Counter[str] = Counter()
    used: Counter[str] = Counter()
    with (
        RowStore(["verdict", "field"], held_bytes) as findings,
        RowStore(["verdict"], held_bytes) as verdicts,
        reader.pinned(),
    ):
        pulls = pulls_of(reader)
        rule = None if universe is None else universe_rule(reader, universe)
        pairs = DecisionPairs()
        for batch in signals.batches:
            judged = judge(reader, batch, pulls, claimed=basis == "claimed", progress=shown.step)
            findings.append(judged.findings)
            verdicts.append(judged.verdicts)
            naive.update(judged.naive)
            used.update(judged.used)
            if rule is not None:
                pairs.add(judged.verdicts)
            other.update(_other_basis(reader, batch, pulls, judged, basis, shown.step))
            shown.add(batch.table.num_rows)
        differences = None
        if rule is not None:
            shown.step("comparing with the universe")
            is_claimed = basis == "claimed"
            differences = compare_universe(reader, rule, pairs, pulls.now, claimed=is_claimed)
        return Audit(
            findings.finish(),
            verdicts.finish(),
            basis=basis,
            columns=signals.columns,
            ignored=signals.ignored,
            naive={signals.columns[name]: count for name, count in naive.items()},
            tz=str(reader.tz),
            pulls=(pulls.first, pulls.last),
            other_basis=other,
            used=used,
            universe=differences,
            source=Path(source).name if isinstance(source, (str, Path)) else "signals",
        )


def _other_basis(
    reader: Reader,
    signals: Signals,
    pulls: Pulls,
    judged: JudgedRows,
    basis: str,
    progress: Callable[[str], None],
) -> dict[str, int]:
    """Return what the other basis says of the rows on which the two may differ, by group.

    They differ on decisions before the first observation of an event alone.
    """
    counts = dict.fromkeys(("rows", "leak", "unjudged", "warning", "clean"), 0)
    differing = judged.before_first
    if len(differing) == 0:
        return counts
    progress("judging by the other basis")
    part = Signals(signals.table.take(differing), signals.columns, {})
    other = judge(reader, part, pulls, claimed=basis != "claimed", progress=lambda step: None)
    counts["rows"] = len(differing)
    for row in pc.value_counts(other.verdicts["verdict"]).to_pylist():
        counts[GROUPS[row["values"]]] += row["counts"]
    return counts


EXIT_LEAK: Final = 1
_LINE_S: Final = 10


def run_audit(
    warehouse: Path,
    signals: Path,
    write: Callable[[str], object],
    *,
    decided_at: str | None,
    fields: Sequence[str],
    basis: str,
    tz: str,
    html: Path | None,
    as_json: bool,
    strict: bool,
    max_unjudged: str | None,
    require: Sequence[str],
    universe: Sequence[str],
    limit: int | None,
) -> int:
    """Audit a file with the options of the command, write the answer, return the exit code.

    It is 1 if the audit is not clean, and is strict or has a limit or a required field.
    """
    if signals.suffix.lower() == ".html":
        raise InvalidArgument(f"{signals} is an HTML file; expected a CSV or Parquet file")
    if html is not None:
        if not html.parent.is_dir():
            raise InvalidArgument(f"--html {html}: there is no folder {html.parent}")
        refuse_part_of_home(html, warehouse)
    most_unjudged = None if max_unjudged is None else _unjudged(max_unjudged)
    required = [name.strip() for names in require for name in names.split(",") if name.strip()]
    rule = dict(map(_filter, universe)) or None
    reader = Reader(find_file(warehouse), tz=zone(tz))
    try:
        answer = audit(
            reader,
            signals,
            decided_at=decided_at,
            fields=dict(map(_column, fields)),
            basis=basis,
            universe=rule,
            progress=_shown_on_terminal if sys.stderr.isatty() else _SlowLines().show,
        )
    finally:
        reader.close()
        if sys.stderr.isatty():
            sys.stderr.write("\r\x1b[K")
    if html is not None:
        answer.to_html(html)
    if as_json:
        limit = 1_000 if limit is None else limit
        write(escaped_in_json(answer.to_json(findings_max=limit)) + "\n")
    else:
        limit = 10 if limit is None else limit
        write(plain(as_text(answer, findings_max=limit)) + "\n")
        if html is not None:
            write(plain(f"The page is {html}\n"))
    failures = answer.failures(most_unjudged, required)
    if not failures or not (strict or most_unjudged is not None or required):
        return 0
    if as_json:
        sys.stderr.write(plain(f"almanac: {headline(answer)}\n"))
    sys.stderr.write(plain("".join(f"almanac: {failure}.\n" for failure in failures)))
    return EXIT_LEAK


def _unjudged(given: str) -> float:
    """Return a number of rows, or a share of them as a fraction."""
    text = given.strip()
    try:
        limit = (
            float(text.removesuffix("%")) / 100
            if text.endswith("%")
            else float(text)
            if "." in text
            else int(text)
        )
        unjudged_limit(limit, 0)
    except (ValueError, InvalidArgument):
        raise InvalidArgument(
            f"--max-unjudged {given}: expected a number of rows, such as 10, or a share, such as "
            "5% or 0.05"
        ) from None
    return limit


def _filter(given: str) -> tuple[str, Any]:
    """Return a filter of the universe, with lists as lists."""
    name, sign, value = given.partition("=")
    name = name.strip()
    if not sign or not value.strip():
        raise InvalidArgument(f"--universe {given}: expected NAME=VALUE, such as within=7d")
    if name in ("coins", "categories", "status"):
        listed = [part.strip() for part in value.split(",") if part.strip()]
        return name, "all" if name == "status" and listed == ["all"] else listed
    return name, value.strip()


def _column(given: str) -> tuple[str, str | None]:
    column, sign, field = given.rpartition("=")
    if not sign or not column:
        raise InvalidArgument(
            f"--field {given}: expected COLUMN=FIELD, such as score=impact; COLUMN=- leaves the "
            "column out"
        )
    return column, None if field == "-" else field


class _SlowLines:
    """Lines for a log: none in the first seconds, then one in that time."""

    def __init__(self) -> None:
        self._last = time.monotonic()

    def show(self, step: str) -> None:
        if time.monotonic() - self._last >= _LINE_S:
            self._last = time.monotonic()
            sys.stderr.write(f"almanac: {step}\n")
            sys.stderr.flush()


def _shown_on_terminal(step: str) -> None:
    sys.stderr.write(fitted(f"\r\x1b[K{step} …", sys.stderr.encoding))
    sys.stderr.flush()
