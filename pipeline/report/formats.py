"""A report as HTML, Markdown and JSON. Texts of the service are escaped in each format."""

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache
from html import escape
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from almanac.forms import markdown, plain_line
from pipeline.report.document import Quote, ReportSection, ReportTable
from pipeline.report.plots import Plot
from pipeline.report.report_facts import ReportFacts
from pipeline.report.sections import describe_report, split_upcoming

_CODE: Final = "`"


def make_title(facts: ReportFacts) -> str:
    return f"Crypto events: report of {facts.at.astimezone(UTC):%d %B %Y}"


def make_html(facts: ReportFacts, sections: Sequence[ReportSection]) -> str:
    """Return a report as one HTML file without scripts and external files."""
    return (
        _environment()
        .get_template("report.html")
        .render(
            title=make_title(facts),
            described=describe_report(facts),
            sections=sections,
            made_at=f"{facts.at.astimezone(UTC):%Y-%m-%d %H:%M}",
        )
    )


def make_markdown(facts: ReportFacts, sections: Sequence[ReportSection], folder: str = "") -> str:
    """Return a report as Markdown. Plots are links to SVG files in `folder`."""
    found = [f"# {markdown(make_title(facts))}", ""]
    found += [f"- {markdown(name)}: {markdown(value)}" for name, value in describe_report(facts)]
    for section in sections:
        found += ["", f"## {section.title}"]
        for sentence in section.sentences:
            found += ["", "".join(map(_inline, sentence))]
        for part in section.parts:
            if isinstance(part, Plot):
                found += ["", f"![{markdown(part.alt)}](<{folder}{part.name}.svg>)"]
            else:
                found += ["", *_markdown_table(part)]
    return "\n".join(found) + "\n"


def make_json(facts: ReportFacts) -> dict[str, Any]:
    """Return the numbers of a report for programs; timestamps are datetimes."""
    digest = facts.digest
    begun, coming, estimated = split_upcoming(facts)
    return {
        "as_of": facts.at,
        "publication": facts.publication.id,
        "published_at": facts.publication.published_at,
        "last_pull_at": facts.last_pull_at,
        "since": digest.since,
        "until": digest.until,
        "last_report": facts.last_report,
        "coming": {"exact": len(coming), "estimated": len(estimated), "in_progress": len(begun)},
        "changes": {
            section.kind: {"changes": section.changes, "events": section.events}
            for section in digest.sections
        },
        "weeks": facts.weeks,
        "categories": facts.categories,
        "leads": facts.leads,
        "feeds": [
            {"feed": feed.feed, "complete_at": feed.complete_at, "stale_since": feed.stale_since}
            for feed in facts.feeds
        ],
        "days_without_pull": facts.coverage.days_unseen,
        "quota": facts.quota,
        "batches": facts.batches,
        "missing": facts.missing_events,
        "warnings": [{"kind": warning.kind, "text": warning.text} for warning in facts.warnings],
    }


def _inline(part: str | Quote) -> str:
    if isinstance(part, str):
        # Names of commands and columns stay code.
        plain, *rest = part.split(_CODE)
        shown = [_spaced(plain)]
        for number, text in enumerate(rest):
            shown.append(f"`{text}`" if number % 2 == 0 else _spaced(text))
        return _keep_ends(part, "".join(shown)) if not rest else "".join(shown)
    title = _spaced(part.text)
    return f"[{title}](<{part.url}>)" if part.url else title


def _spaced(text: str) -> str:
    return _keep_ends(text, markdown(text))


def _keep_ends(text: str, shown: str) -> str:
    """Return a text with the blanks at both ends that `markdown` removes."""
    if not text.strip():
        return text
    before = " " if text[0] == " " else ""
    after = " " if text[-1] == " " else ""
    return f"{before}{shown.strip()}{after}"


def _markdown_table(table: ReportTable) -> list[str]:
    rules = ["---:" if number in table.numbers else "---" for number in range(len(table.columns))]
    return [
        f"**{_inline(table.title)}**",
        "",
        _row(_inline(column) for column in table.columns),
        _row(rules),
        *(_row(map(_inline, row)) for row in table.rows),
    ]


def _row(cells: Any) -> str:
    return f"| {' | '.join(cells)} |"


def _words(text: str) -> Markup:
    """Return a text of this package as HTML, with `code` between backticks."""
    parts = plain_line(text).split(_CODE)
    shown = "".join(
        f"<code>{escape(part)}</code>" if number % 2 else escape(part)
        for number, part in enumerate(parts)
    )
    return Markup(_keep_ends(text, shown))


def _plain(text: str) -> str:
    return _keep_ends(text, plain_line(text))


def _drawing(svg: str) -> Markup:
    """Return the SVG of a plot, in which altair and vl-convert have escaped every text."""
    return Markup(svg)


@cache
def _environment() -> Environment:
    found = Environment(
        loader=PackageLoader("pipeline.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters |= {"line": _plain, "words": _words, "drawing": _drawing}
    return found


def file_stamp(at: datetime) -> str:
    """Return the time of a report as a part of its file name."""
    return f"{at.astimezone(UTC):%Y%m%dT%H%M%SZ}"
