"""An audit: its findings with their counts, as text, JSON and HTML."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Self

import pyarrow as pa
import pyarrow.compute as pc

from almanac.audit.fields import COIN, EVENT, GROUPS, JUDGED, NO_EVENT, SEVERITY, VERDICTS
from almanac.audit.user_rows import suggest_fields
from almanac.core.errors import InvalidArgument, LookAhead
from almanac.core.text import count_noun, cut_line, plain_line, render_html
from almanac.core.timestamps import utc_text
from almanac.results import Result
from almanac.user_files import local_path

GROUP_TITLES: Final = {
    "leak": "look-ahead",
    "unjudged": "can't be judged",
    "warning": "outdated",
    "clean": "clean",
}
_MEANINGS: Final = {verdict.name: verdict.meaning for verdict in VERDICTS}
_SHOWN_MAX: Final = 60
_LISTED: Final = 5
_FINDINGS_MAX: Final = 1_000


class FindingRows(Result):
    """Rows of an audit, counted by their verdict and, where they have one, their field."""

    def __init__(self, table: pa.Table) -> None:
        super().__init__(table)
        keys = [name for name in ("verdict", "field") if name in table.column_names]
        counted = table.group_by(keys).aggregate([([], "count_all")]).to_pylist()
        self.counts = Counter(
            {tuple(row[key] for key in keys): row["count_all"] for row in counted}
        )

    def select(self, verdicts: Iterable[str]) -> Self:
        """Return the rows with one of these verdicts."""
        wanted = pa.array(verdicts, pa.string())
        return type(self)(self._table.filter(pc.is_in(self._table["verdict"], wanted)))

    def reader(self) -> pa.RecordBatchReader:
        """Return the rows as a pyarrow RecordBatchReader."""
        return self._table.to_reader()


@dataclass(eq=False, repr=False, kw_only=True)
class Audit:
    """The back-test rows that used future information.

    `rows`, `verdicts` and `leaks` are Results; `.reader()` is a pyarrow RecordBatchReader of each.

    Attributes:
        basis: `observed` is what was pulled by then; `claimed` also what the service says of the
            time before the first observation.
        rows: the findings, one row per value that is not clean: row (1 is the first of the input),
            event_id, decided_at, field, verdict, used, known_then, knowable_from (the earliest
            timestamp at which the value could be known), reason.
        verdicts: one row per row of the input: row, event_id, decided_at, verdict, which is the
            worst of its fields.
        columns: for each field that was judged, its column in the input.
        ignored: columns of the input that were not judged.
        naive: the number of timestamps without a zone, by column; they were read as in `tz`.
        tz: the zone of the database.
        first_pull_at, last_pull_at: when events were pulled first and last; None if never.
        used: the number of rows with a known event and a value, by field.
        universe: a Result, one row per decision and event in which the table differs from the rule
            that was given: problem (`absent`: the rule selects it and the table lacks it;
            `not_selected`: the reverse), decided_at, event_id, title, date, status and impact as
            known then, changed_later; None without a rule.
    """

    rows: FindingRows
    verdicts: FindingRows
    basis: str
    columns: dict[str, str]
    ignored: list[str]
    naive: dict[str, int]
    tz: str
    first_pull_at: datetime | None
    last_pull_at: datetime | None
    used: dict[str, int]
    universe: Result | None
    source: str

    def __len__(self) -> int:
        """The number of rows of the input."""
        return len(self.verdicts)

    @cached_property
    def counts(self) -> dict[str, int]:
        """The number of input rows per verdict, the worst first; unused verdicts are left out."""
        counted = {verdict: count for (verdict,), count in self.verdicts.counts.items()}
        return {name: counted[name] for name in SEVERITY if name in counted}

    @cached_property
    def groups(self) -> dict[str, int]:
        """The number of input rows per group: leak, unjudged, warning, clean."""
        groups = dict.fromkeys(("leak", "unjudged", "warning", "clean"), 0)
        for verdict, count in self.counts.items():
            groups[GROUPS[verdict]] += count
        return groups

    @cached_property
    def summary(self) -> Result:
        """A Result of counts: verdict, group, field, values; the worst verdict first."""
        counted = self.rows.counts
        fields = [EVENT, *(name for name in self.columns if name not in (EVENT, "decided_at"))]
        unknown = sum(count for (_, name), count in counted.items() if name == EVENT)
        unused = self.counts.get(NO_EVENT, 0)
        for name in fields:
            found = sum(count for (_, field), count in counted.items() if field == name)
            left = len(self) - unused - unknown - (found if name != EVENT else 0)
            counted["clean", name] = left
        counted[NO_EVENT, EVENT] = unused
        rows = sorted(counted.items(), key=lambda item: (SEVERITY[item[0][0]], item[0][1]))
        return Result(
            pa.table(
                {
                    "verdict": pa.array([key[0] for key, count in rows if count], pa.string()),
                    "group": pa.array([GROUPS[key[0]] for key, n in rows if n], pa.string()),
                    "field": pa.array([key[1] for key, count in rows if count], pa.string()),
                    "values": pa.array([count for _, count in rows if count], pa.int64()),
                }
            )
        )

    @property
    def leaks(self) -> FindingRows:
        """The findings that are look-ahead, in the form of `rows`."""
        return self.select_group("leak")

    def select_group(self, group: str) -> FindingRows:
        """Return the findings of a group: `leak`, `unjudged` or `warning`."""
        return self.rows.select(name for name in SEVERITY if GROUPS[name] == group)

    @property
    def is_clean(self) -> bool:
        """Whether no look-ahead was found, and no difference from the rule of the universe.

        False if no row could be judged. Rows that can't be judged are not clean;
        `groups` counts them, and `assert_clean` limits them.
        """
        return not self.failures()

    @property
    def is_blind(self) -> bool:
        """Whether there are rows that used an event, and none could be judged."""
        used = len(self) - self.counts.get(NO_EVENT, 0)
        return 0 < used == self.groups["unjudged"]

    @property
    def suggestions(self) -> dict[str, str]:
        """The field that the name of a column suggests, for columns that were not judged."""
        return suggest_fields(self.ignored)

    def failures(self, max_unjudged: float | None = None, require: Iterable[str] = ()) -> list[str]:
        """Return why this is not clean, a sentence each; arguments as in `assert_clean`."""
        groups, found = self.groups, []
        if groups["leak"]:
            found.append(f"{count_noun(groups['leak'], 'row')} used something that was not known")
        if self.is_blind:
            found.append("no row could be judged")
        if max_unjudged is not None and groups["unjudged"] > read_unjudged_limit(
            max_unjudged, len(self)
        ):
            share = isinstance(max_unjudged, float)
            allowed = f"a share of {max_unjudged:g}" if share else f"{max_unjudged:,}"
            found.append(
                f"{count_noun(groups['unjudged'], 'row')} can't be judged; at most {allowed} may be"
            )
        found += [
            f"{name} was not judged: {reason}"
            for name in ([require] if isinstance(require, str) else require)
            if (reason := self._not_judged(name))
        ]
        if self.universe is not None and len(self.universe):
            found.append("the table differs from the rule of its universe")
        return found

    def _not_judged(self, name: str) -> str | None:
        if name not in (EVENT, COIN, *JUDGED):
            raise InvalidArgument(
                f"require: {name!r} is not a field that the audit judges; expected "
                f"{', '.join((EVENT, COIN, *JUDGED))}"
            )
        names = {"categories": ("categories", "category")}.get(name, (name,))
        if not any(field in self.columns for field in names):
            return "the table has no column for this field"
        judged = len(self) - self.counts.get(NO_EVENT, 0)
        if name in JUDGED and judged and not any(self.used.get(field) for field in names):
            return "no row with a known event has a value in this field"
        return None

    def assert_clean(self, max_unjudged: float | None = None, require: Iterable[str] = ()) -> None:
        """Raise if look-ahead was found, if no row could be judged, or if the universe differs.

        Args:
            max_unjudged: the most rows that can't be judged: a whole number of rows, or a share
                from 0.0 to 1.0.
            require: fields that must have been judged, such as `["date", "impact"]`.

        Raises:
            LookAhead: the message has the reasons and the first findings.
            InvalidArgument: an argument is wrong.
        """
        failures = self.failures(max_unjudged, require)
        if not failures:
            return
        shown = self.leaks if self.groups["leak"] else self.select_group("unjudged")
        lines = [f"{failure}." for failure in failures]
        lines += [*finding_lines(shown, _LISTED), *universe_lines(self, _LISTED)]
        raise LookAhead("\n".join([write_headline(self), *(f"  {line}" for line in lines)]))

    def to_json(self, findings_max: int = _FINDINGS_MAX) -> str:
        """Return counts and the first findings, leaks first, as JSON; timestamps are UTC."""
        found: list[dict[str, Any]] = []
        for group in ("leak", "unjudged", "warning"):
            found += self.select_group(group).head(findings_max - len(found)).rows()
        universe = None
        if self.universe is not None:
            differences = self.universe.head(findings_max).rows()
            universe = {**universe_counts(self), "differences": differences}
        return json.dumps(
            {
                "source": self.source,
                "rows": len(self),
                "is_clean": self.is_clean,
                "basis": self.basis,
                "first_pull_at": self.first_pull_at,
                "last_pull_at": self.last_pull_at,
                "groups": self.groups,
                "verdicts": self.counts,
                "summary": self.summary.rows(),
                "columns": self.columns,
                "not_judged": self.ignored,
                "suggestions": self.suggestions,
                "universe": universe,
                "naive": self.naive,
                "tz": self.tz,
                "findings": found,
                "findings_left_off": len(self.rows) - len(found),
            },
            default=utc_text,
            ensure_ascii=False,
            indent=1,
        )

    def to_html(self, path: str | Path | None = None, findings_max: int = _FINDINGS_MAX) -> str:
        """Return a page that needs nothing else, with the first findings; write it to `path`."""
        page = render_audit(self, findings_max)
        if path is not None:
            local_path(path, "path").write_text(page, encoding="utf-8")
        return page

    def __repr__(self) -> str:
        return format_audit(self, findings_max=_LISTED)

    def _repr_html_(self) -> str:
        return render_audit(self, findings_max=20, is_fragment=True)


def read_unjudged_limit(given: float, rows: int) -> float:
    """Return how many of the rows may not be judged: a number of rows, or a share of them."""
    if isinstance(given, float) and 0 <= given <= 1:
        return given * rows
    if isinstance(given, int) and not isinstance(given, bool) and given >= 0:
        return given
    raise InvalidArgument(
        f"max_unjudged={given!r}; expected a number of rows, such as 10, or a share from 0.0 to 1.0"
    )


def write_headline(audit: Audit) -> str:
    """Return one sentence: how many rows used something that nobody knew."""
    groups, rows = audit.groups, len(audit)
    if rows == 0:
        return f"{audit.source}: no rows."
    unused = audit.counts.get(NO_EVENT, 0)
    if groups["leak"]:
        found = (
            f"{groups['leak']:,} of {count_noun(rows, 'row')} used something that was not known at "
            "the decision"
        )
    elif audit.is_blind:
        found = f"none of {count_noun(rows - unused, 'row')} could be judged"
    else:
        judged = rows - groups["unjudged"] - unused
        found = f"no look-ahead in the {count_noun(judged, 'row')} that could be judged"
    parts = [found]
    if groups["unjudged"] and not audit.is_blind:
        parts.append(f"{groups['unjudged']:,} can't be judged")
    if unused:
        parts.append(f"{unused:,} used no event")
    if audit.ignored:
        count = len(audit.ignored)
        parts.append(f"{count:,} {'column was' if count == 1 else 'columns were'} not judged")
    if audit.universe is not None:
        counts = universe_counts(audit)
        parts.append(
            f"the rule selects {counts['absent']:,} events that the table lacks, and not "
            f"{counts['not_selected']:,} that it has"
        )
    return f"{audit.source}: {'; '.join(parts)}."


def universe_counts(audit: Audit) -> dict[str, int]:
    """Return how many events the table lacks, and has too many, at each decision together."""
    found = Counter(() if audit.universe is None else audit.universe["problem"])
    return {name: found[name] for name in ("absent", "not_selected")}


def universe_lines(audit: Audit, limit: int) -> list[str]:
    if audit.universe is None:
        return []
    lines = [_universe_line(row) for row in audit.universe.head(limit).rows()]
    left = len(audit.universe) - len(lines)
    return lines + ([f"… and {left:,} more"] if left > 0 else [])


def _universe_line(row: dict[str, Any]) -> str:
    what = "the table lacks it" if row["problem"] == "absent" else "the rule does not select it"
    later = f"; later: {row['changed_later']}" if row["changed_later"] else ""
    score = "" if row["impact"] is None else f", impact {row['impact']:g}"
    known = (
        f"{shorten_value(row['title'])}, {format_timestamp(row['date'])}, {row['status']}{score}"
    )
    return (
        f"{format_timestamp(row['decided_at'])}, event {plain_line(row['event_id'])}: {what}. "
        f"Known then was {known}{later}."
    )


def list_notes(audit: Audit) -> Iterator[str]:
    """Yield what a reader must know: the basis, zones, columns that were not judged."""
    first, last = format_timestamp(audit.first_pull_at), format_timestamp(audit.last_pull_at)
    if first is None:
        yield "The warehouse has no pull about events, so nothing can be judged."
    else:
        pulled = f"Events were pulled from {first} to {last}."
        yield f"Basis {audit.basis}: {_BASES[audit.basis]} {pulled}"
    fields = [
        name if name == column else f"{name} (column {plain_line(column)})"
        for name, column in audit.columns.items()
        if name not in (EVENT, "decided_at")
    ]
    yield "Judged: whether the event was known" + (f"; {', '.join(fields)}." if fields else ".")
    if not {"estimated_as_exact", "unknown_precision"}.isdisjoint(audit.counts):
        yield (
            "A row that knew of the period says so in a column is_estimated, date_type or "
            "date_precision; its date is then no exact one."
        )
    if audit.ignored:
        yield f"Not judged: {', '.join(map(plain_line, audit.ignored))}."
    if audit.suggestions:
        shown = [f"{plain_line(column)} ({field}?)" for column, field in audit.suggestions.items()]
        column, field = next(iter(audit.suggestions.items()))
        yield (
            f"Columns that may be values of the event: {', '.join(shown)}. Name one: --field "
            f"{plain_line(column)}={field}, or fields={{{plain_line(column)!r}: {field!r}}}."
        )
    if audit.naive:
        counts = [f"{plain_line(name)} ({count:,})" for name, count in audit.naive.items()]
        yield f"Timestamps without a zone were read as {audit.tz}: {', '.join(counts)}."


_BASES: Final = {
    "observed": "what was pulled by the decision.",
    "claimed": "what was pulled by the decision, or else what the service says of earlier times.",
}


def format_audit(audit: Audit, *, findings_max: int) -> str:
    """Return the audit as lines for a terminal."""
    lines = [write_headline(audit), ""]
    counts = audit.counts
    if counts:
        width = max(map(len, counts))
        for group, title in GROUP_TITLES.items():
            select_group = [v for v in VERDICTS if v.group == group and v.name in counts]
            if not select_group:
                continue
            if group in ("leak", "unjudged"):
                lines.append(f"{title}: {count_noun(audit.groups[group], 'row')}")
            lines += [
                f"  {verdict.name:<{width}}  {counts[verdict.name]:>9,}  {verdict.meaning}"
                for verdict in select_group
            ]
        lines.append("")
    shown = audit.leaks if audit.groups["leak"] else audit.select_group("unjudged")
    if len(shown) and findings_max:
        title = GROUP_TITLES["leak" if audit.groups["leak"] else "unjudged"]
        lines.append(f"First findings ({title}):")
        lines += [f"  {line}" for line in finding_lines(shown, findings_max)]
        lines.append("")
    if audit.universe is not None and len(audit.universe) and findings_max:
        lines.append("First differences from the rule of the universe:")
        lines += [f"  {line}" for line in universe_lines(audit, findings_max)]
        lines.append("")
    lines += list_notes(audit)
    return "\n".join(lines)


def finding_lines(findings: FindingRows, limit: int) -> list[str]:
    """Return the first findings, a line each, and how many are left."""
    lines = [_finding_line(row) for row in some_of_each(findings, limit)]
    left = len(findings) - len(lines)
    return lines + ([f"… and {left:,} more"] if left > 0 else [])


def some_of_each(findings: FindingRows, limit: int) -> list[dict[str, Any]]:
    """Return the first findings of each verdict, the worst verdict first, at most `limit`."""
    found = {verdict for verdict, _ in findings.counts}
    verdicts = [verdict.name for verdict in VERDICTS if verdict.name in found]
    rows: list[dict[str, Any]] = []
    for place, verdict in enumerate(verdicts):
        share = -(-(limit - len(rows)) // (len(verdicts) - place))
        rows += findings.select([verdict]).head(share).rows()
    return rows


def _finding_line(row: dict[str, Any]) -> str:
    where = f"row {row['row']}"
    if row["event_id"] is not None:
        where += f", event {plain_line(row['event_id'])}"
    if row["decided_at"] is not None:
        where += f", decided {format_timestamp(row['decided_at'])}"
    return f"{where}: {row['verdict']}. {explain_finding(row)}"


def explain_finding(row: dict[str, Any]) -> str:
    """Return what a finding says, as sentences."""
    parts = []
    if row["field"] != EVENT:
        then = row["known_then"]
        known = "it had no value" if then is None else f"known then was {shorten_value(then)}"
        parts.append(f"{row['field']} was used as {shorten_value(row['used'])}; {known}")
    if row["reason"] is not None:
        parts.append(row["reason"])
    elif row["field"] == EVENT:
        parts.append(_MEANINGS[row["verdict"]])
    if row["knowable_from"] is not None and row["verdict"] != "outdated":
        late = format_delay(row)
        parts.append(
            f"it could be known from {format_timestamp(row['knowable_from'])}, {late} later"
        )
    return "; ".join(parts) + "."


def format_delay(row: dict[str, Any]) -> str:
    """Return how long after the decision a value could be known, such as `3 d 4 h`."""
    seconds = max(0, int((row["knowable_from"] - row["decided_at"]).total_seconds()))
    for size, unit, smaller, smaller_unit in _UNITS:
        if seconds >= size:
            rest = seconds % size // smaller
            return f"{seconds // size} {unit}" + (f" {rest} {smaller_unit}" if rest else "")
    return f"{seconds} s"


_UNITS: Final = ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "min"), (60, "min", 1, "s"))


def format_timestamp(at: datetime | None) -> str | None:
    """Return a timestamp with its zone, to the second; UTC as Z."""
    if at is None:
        return None
    text = at.replace(microsecond=0).isoformat()
    return text.replace("+00:00", "Z")


def shorten_value(value: str | None) -> str:
    """Return a value for a line, cut where it is long."""
    return cut_line(value, _SHOWN_MAX) if value else "nothing"


def render_audit(audit: Audit, findings_max: int, *, is_fragment: bool = False) -> str:
    """Return the audit as HTML: a self-contained page, or a fragment for a notebook."""
    findings, left = [], findings_max
    for name in ("leak", "unjudged", "warning"):
        stored = audit.select_group(name)
        if rows := stored.head(left).rows():
            left -= len(rows)
            group = {"name": name, "title": GROUP_TITLES[name], "count": len(stored)}
            findings.append({**group, "rows": [_html_row(row) for row in rows]})
    values: dict[str, Any] = {
        "is_fragment": is_fragment,
        "verdicts": [verdict for verdict in VERDICTS if verdict.name in audit.counts],
        "counts": audit.counts,
        "most": max(audit.counts.values(), default=1),
        "findings": findings,
    }
    if is_fragment:
        return render_html("audit.html", **values)
    by_field: dict[str, dict[str, int]] = {}
    summary = audit.summary.rows()
    for row in summary:
        if row["group"] != "clean":
            by_field.setdefault(row["field"], {})[row["verdict"]] = row["values"]
    return render_html(
        "audit.html",
        **values,
        source=audit.source,
        headline=write_headline(audit),
        groups=[
            {"name": name, "title": GROUP_TITLES[name], "count": count}
            for name, count in audit.groups.items()
            if count
        ],
        by_field=by_field,
        field_verdicts=list(dict.fromkeys(v for row in by_field.values() for v in row)),
        universe=universe_lines(audit, findings_max),
        notes=list(list_notes(audit)),
    )


def _html_row(row: dict[str, Any]) -> dict[str, Any]:
    is_event, knowable = row["field"] == EVENT, row["knowable_from"]
    return {
        **row,
        "is_event": is_event,
        "decided": format_timestamp(row["decided_at"]),
        "why": explain_finding(row) if is_event or row["reason"] else "",
        "knowable": format_timestamp(knowable),
        "late": knowable and format_delay(row),
    }
