"""An audit as a page that needs nothing else: no script, no address.

Belongs here: the HTML. Does not: the sentences (report). Every text from outside is escaped.
"""

import re
from html import escape
from typing import TYPE_CHECKING, Any, Final

from almanac.audit.fields import EVENT, VERDICTS
from almanac.audit.report import (
    GROUP_TITLES,
    explained,
    first_rows,
    headline,
    later_by,
    notes,
    shown_instant,
    universe_lines,
)
from almanac.audit.result import StoredRows
from almanac.forms import plain_line

if TYPE_CHECKING:
    from almanac.audit.result import Audit

_STYLE: Final = """
:root{color-scheme:light dark;--paper:#fbfaf7;--ink:#1d1f21;--dim:#5d6166;--line:#dedbd3;
--leak:#b3261e;--unjudged:#7a5c00;--warning:#8a4b00;--clean:#1f6f43}
@media(prefers-color-scheme:dark){:root{--paper:#15171a;--ink:#e7e6e2;--dim:#9ba1a8;--line:#34383d;
--leak:#ff8a80;--unjudged:#e0bc55;--warning:#f0a868;--clean:#6fcf97}}
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);
font:15px/1.5 system-ui,-apple-system,"Segoe UI",sans-serif}
main{max-width:72rem;margin:0 auto;padding:2rem 1.25rem 4rem}
h1{font-size:1.45rem;line-height:1.25;margin:0 0 .5rem}h2{font-size:1.05rem;margin:2.25rem 0 .5rem}
p{margin:.35rem 0}.dim,.notes{color:var(--dim)}.notes{padding-left:1.1rem;font-size:.9rem}
.bar{display:flex;height:1.1rem;border-radius:.25rem;overflow:hidden;margin:1rem 0 .5rem;gap:2px}
.bar span{min-width:3px}.leak{--of:var(--leak)}.unjudged{--of:var(--unjudged)}
.warning{--of:var(--warning)}.clean{--of:var(--clean)}.bar span,.key i{background:var(--of)}
.key{display:flex;flex-wrap:wrap;gap:.25rem 1.25rem;font-size:.9rem}
.key i{display:inline-block;width:.7rem;height:.7rem;border-radius:.15rem;margin-right:.4rem}
.wide{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums;font-size:.9rem}
th,td{text-align:left;vertical-align:top;padding:.35rem .8rem .35rem 0;
border-bottom:1px solid var(--line)}
th{vertical-align:bottom;font-weight:600;color:var(--dim);white-space:nowrap}
th.w{white-space:normal}
td.n,th.n{text-align:right}td.v{color:var(--of);font-weight:600;white-space:nowrap}
td.t{min-width:6.5rem}td.x{overflow-wrap:anywhere;min-width:7rem;max-width:18rem}
span.i{white-space:nowrap}code{font:.85em ui-monospace,Menlo,Consolas,monospace}
.meter{display:inline-block;height:.55rem;border-radius:.15rem;background:var(--of);
vertical-align:middle;min-width:2px}
"""
_SHOWN_MAX: Final = 200
_INSTANT: Final = re.compile(r"(\d{4}-\d\d-\d\d)[T ]([\d:.]+\S*)")


def page_of(audit: "Audit", findings_max: int) -> str:
    """Return the whole page."""
    title = escape(f"Look-ahead audit: {plain_line(audit.source)}")
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{title}</title><style>{_STYLE}</style></head>\n"
        f"<body><main>{_content(audit, findings_max)}</main></body></html>\n"
    )


def fragment_of(audit: "Audit", findings_max: int) -> str:
    """Return the audit for a notebook."""
    return f"<div>{_summary(audit)}{_findings(audit, findings_max)}</div>"


def _content(audit: "Audit", findings_max: int) -> str:
    return "\n".join(
        (
            f"<h1>{escape(headline(audit))}</h1>",
            _bar(audit),
            "<h2>By verdict</h2>",
            _summary(audit),
            _by_field(audit),
            _findings(audit, findings_max),
            _universe(audit, findings_max),
            "<h2>How this was judged</h2>",
            '<ul class="notes">',
            *(f"<li>{escape(note)}</li>" for note in notes(audit)),
            "</ul>",
        )
    )


def _bar(audit: "Audit") -> str:
    groups = {name: count for name, count in audit.groups.items() if count}
    bars = "".join(
        f'<span class="{name}" style="flex:{count}"></span>' for name, count in groups.items()
    )
    keys = "".join(
        f'<span class="{name}"><i></i>{escape(GROUP_TITLES[name])} {count:,}</span>'
        for name, count in groups.items()
    )
    return f'<div class="bar">{bars}</div><div class="key">{keys}</div>'


def _summary(audit: "Audit") -> str:
    counts = audit.counts
    most = max(counts.values(), default=1)
    rows = "".join(
        f'<tr class="{verdict.group}"><td class="v">{verdict.name}</td>'
        f'<td class="n">{counts[verdict.name]:,}</td><td><span class="meter" '
        f'style="width:{8 * counts[verdict.name] / most:.2f}rem"></span></td>'
        f"<td>{escape(verdict.meaning)}</td></tr>"
        for verdict in VERDICTS
        if verdict.name in counts
    )
    head = '<th>verdict</th><th class="n">rows</th><th></th><th>meaning</th>'
    return f'<div class="wide"><table><tr>{head}</tr>{rows}</table></div>'


def _by_field(audit: "Audit") -> str:
    """Return the table of fields and verdicts, for values that are not clean."""
    found = [row for row in audit.summary if row["group"] != "clean"]
    if not found:
        return ""
    verdicts = list(dict.fromkeys(row["verdict"] for row in found))
    fields = list(dict.fromkeys(row["field"] for row in audit.summary))
    counts = {(row["verdict"], row["field"]): row["values"] for row in found}
    names = [name.replace("_", "_<wbr>") for name in verdicts]
    head = "".join(f'<th class="n w">{name}</th>' for name in names)
    body = "".join(
        f"<tr><td>{escape(field)}</td>"
        + "".join(
            f'<td class="n">{counts[name, field]:,}</td>'
            if (name, field) in counts
            else '<td class="n dim">·</td>'
            for name in verdicts
        )
        + "</tr>"
        for field in fields
        if any((name, field) in counts for name in verdicts)
    )
    return (
        f'<h2>By field</h2><div class="wide"><table><tr><th>field</th>{head}</tr>{body}'
        "</table></div>"
    )


def _findings(audit: "Audit", findings_max: int) -> str:
    parts, left = [], findings_max
    for group in ("leak", "unjudged", "warning"):
        findings = audit.of_group(group)
        rows = first_rows(findings, left)
        left -= len(rows)
        if rows:
            parts.append(_table(GROUP_TITLES[group], group, findings, rows))
    return "\n".join(parts)


def _universe(audit: "Audit", findings_max: int) -> str:
    lines = universe_lines(audit, findings_max)
    if not lines:
        return ""
    items = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return f'<h2>Differences from the rule of the universe</h2><ul class="notes">{items}</ul>'


def _table(title: str, group: str, findings: StoredRows, rows: list[dict[str, Any]]) -> str:
    head = "".join(
        f"<th>{name}</th>"
        for name in (
            *("row", "event", "decided", "verdict", "field", "used", "known then"),
            *(("could be known from",) if group == "leak" else ("why",)),
        )
    )
    more = len(findings) - len(rows)
    counted = f"{len(findings):,} values" + (f", the first {len(rows):,} shown" if more else "")
    return (
        f'<h2>{escape(title.capitalize())} <span class="dim">{counted}</span></h2>'
        f'<div class="wide"><table class="{group}"><tr>{head}</tr>'
        f"{''.join(_line(row, group) for row in rows)}</table></div>"
    )


def _line(row: dict[str, Any], group: str) -> str:
    is_event = row["field"] == EVENT
    if group != "leak":
        last = explained(row) if is_event or row["reason"] else ""
        last_cell = f'<td class="x">{_text(last)}</td>'
    elif row["knowable_from"] is None:
        last_cell = '<td class="dim">never as such</td>'
    else:
        last_cell = (
            f'<td class="t">{_time(row["knowable_from"])}<br>'
            f'<span class="dim">{later_by(row)} later</span></td>'
        )
    return (
        f'<tr><td class="n">{row["row"]}</td><td><code>{_text(row["event_id"] or "")}</code></td>'
        f'<td class="t">{_time(row["decided_at"])}</td><td class="v">{row["verdict"]}</td>'
        f"<td>{'' if is_event else row['field']}</td>"
        f'<td class="x">{"" if is_event else _value(row["used"])}</td>'
        f'<td class="x">{"" if is_event else _value(row["known_then"])}</td>{last_cell}</tr>'
    )


def _time(at: Any) -> str:
    text = shown_instant(at)
    return "" if text is None else _value(text)


def _value(value: str | None) -> str:
    if not value:
        return '<span class="dim">nothing</span>'
    # A line breaks between date and time, and not within the date.
    instant = _INSTANT.fullmatch(value)
    if instant:
        return f'<span class="i">{_text(instant[1])}</span> {_text(instant[2])}'
    return _text(value)


def _text(value: str) -> str:
    text = plain_line(value)
    return escape(text if len(text) <= _SHOWN_MAX else text[: _SHOWN_MAX - 1] + "…")
