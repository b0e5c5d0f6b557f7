"""The sections of a report, in their order: the summary, coming events, changes, and others.

Texts of the service stay as received: the format escapes them. Estimated dates are texts such as
`Q1 2027`, never exact dates.
"""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import Any, Final

from almanac.digest import TITLES, Section, lines, more, notes, summary
from almanac.forms import cut_line, rounded
from pipeline.report.data_sections import (
    make_freshness,
    make_history,
    make_leads,
    make_quality,
    make_quota,
)
from pipeline.report.document import (
    Quote,
    ReportSection,
    ReportTable,
    Sentence,
    join_coins,
    minute,
    quote_title,
    show_date,
    show_impact,
    tally,
)
from pipeline.report.plots import HOW_TO_GET_PLOTS, Plot, can_plot
from pipeline.report.report_facts import ReportFacts, ReportRequest

MOST_OF_A_DAY: Final = 8
MOST_ESTIMATED: Final = 20
ALL: Final = ReportRequest().selection
"""The selection without filters."""
_EXACT: Final = frozenset({"instant", "day"})
_ATTENTION: Final = ("cancelled", "withdrawn", "rescheduled", "made_exact", "rescored", "created")


def make_sections(facts: ReportFacts, *, with_plots: bool = True) -> list[ReportSection]:
    """Return the sections of a report, the summary first."""
    plots = with_plots and can_plot()
    return [
        _summary(facts),
        _coming(facts),
        _changes(facts),
        make_history(facts, plots),
        make_leads(facts, plots),
        make_freshness(facts),
        make_quota(facts),
        make_quality(facts),
        *([] if can_plot() or not with_plots else [_without_plots()]),
    ]


def describe_report(facts: ReportFacts) -> list[tuple[str, str]]:
    """Return the state of knowledge, the publication, the period and the filters."""
    digest = facts.digest
    found = [
        ("As of", f"{minute(facts.at)} UTC"),
        ("Changes", f"{minute(digest.since)} to {minute(digest.until)} UTC"),
        (
            "Last pull",
            "none" if not facts.last_pull_at else f"{minute(facts.last_pull_at)} UTC",
        ),
        (
            "Publication",
            f"{facts.publication.id[:12]} of {minute(facts.publication.published_at)} UTC",
        ),
    ]
    if facts.source is not None:
        found.append(("Source", facts.source))
    filters = [] if digest.coins is None else [f"coins {', '.join(digest.coins)}"]
    if facts.request.categories:
        filters.append(f"categories {', '.join(facts.request.categories)}")
    if digest.min_impact is not None:
        filters.append(f"impact of at least {rounded(digest.min_impact)}")
    if filters:
        found.append(("Filters of coming events and changes", "; ".join(filters)))
    return found


def split_upcoming(facts: ReportFacts) -> tuple[list[dict[str, Any]], ...]:
    """Return the coming events: in progress, with an exact date, and with an estimated date."""
    exact = [row for row in facts.upcoming if row["date_precision"] in _EXACT]
    begun = [row for row in exact if _has_begun(row, facts.at)]
    coming = [row for row in exact if not _has_begun(row, facts.at)]
    return begun, coming, [row for row in facts.upcoming if row["date_precision"] not in _EXACT]


def _has_begun(row: dict[str, Any], at: datetime) -> bool:
    if row["date_precision"] == "day":
        return bool(row["date_exact"].astimezone(UTC).date() < at.astimezone(UTC).date())
    return bool(row["date_exact"] < at)


def _summary(facts: ReportFacts) -> ReportSection:
    begun, coming, estimated = split_upcoming(facts)
    days = facts.request.days
    found: list[Sentence] = [
        [
            f"{tally(len(coming), 'event')} with an exact date in the next "
            f"{tally(days, 'day')}, "
            f"{len(estimated):,} more with an estimated date that may begin by then, and "
            f"{len(begun):,} in progress."
        ]
    ]
    if coming:
        top = max(coming, key=_weight)
        found.append(
            [
                "Most important: ",
                quote_title(top),
                Quote(_after(join_coins(top["coins"]))),
                f" on {_when(top)}",
                f", impact {show_impact(top)}." if show_impact(top) else ", impact not shown.",
            ]
        )
    found.append([_period_sentence(facts), f"{summary(facts.digest)}."])
    if top_change := _top_change(facts):
        found.append(top_change)
    found.append([_health_sentence(facts)])
    return ReportSection("summary", "Summary", found)


def _period_sentence(facts: ReportFacts) -> str:
    if facts.is_past or facts.request.since is not None:
        return f"Changes since {minute(facts.digest.since)} UTC, in events: "
    if facts.last_report is None:
        filters = " with these filters" if facts.request.selection != ALL else ""
        return (
            f"This is the first report{filters}, so there is none to compare with. Changes since "
            f"{minute(facts.digest.since)} UTC, in events: "
        )
    return f"Changes since the last report ({minute(facts.digest.since)} UTC), in events: "


def _top_change(facts: ReportFacts) -> Sentence | None:
    """Return the change with the highest impact among the kinds that a reader acts on."""
    sections = {section.kind: section for section in facts.digest.sections}
    best: tuple[float, int, Section, int] | None = None
    for rank, kind in enumerate(_ATTENTION):
        section = sections.get(kind)
        for place, entry in enumerate([] if section is None else section.shown):
            weight = entry.last["impact"] or 0.0
            if section is not None and (best is None or weight > best[0]):
                best = (weight, rank, section, place)
    if best is None:
        return None
    _, _, section, place = best
    line = list(lines(section))[place]
    impact = f", impact {line.impact}" if line.says_impact else ""
    return [
        f"Most important change: {TITLES[section.kind].lower()}: ",
        Quote(line.title, line.url),
        Quote(f"{_after(line.coins)}: {line.what}{impact}."),
    ]


def _health_sentence(facts: ReportFacts) -> str:
    stale = [feed.feed for feed in facts.feeds if feed.stale_since is not None]
    parts = [f"Feeds without a complete pull for two days: {', '.join(stale)}"] if stale else []
    parts = parts or ["No feed is stale"]
    if facts.is_past:
        return f"{parts[0]}. Warnings of past times are not recorded."
    count = len(facts.warnings)
    parts.append(f"{tally(count, 'warning')} below" if count else "no warnings")
    quota = facts.quota
    if quota is not None and quota.runs_out:
        parts.append("the quota will run out before its reset")
    return "; ".join(parts) + "."


def _coming(facts: ReportFacts) -> ReportSection:
    begun, coming, estimated = split_upcoming(facts)
    parts: list[ReportTable | Plot] = []
    for day, of_day in groupby(coming, key=lambda row: row["date_exact"].astimezone(UTC).date()):
        rows = list(of_day)
        parts.append(
            _event_table(f"{day:%A, %d %B %Y}", "Time (UTC)", rows, MOST_OF_A_DAY, _time_of_day)
        )
    if begun:
        parts.append(_event_table("In progress", "Date", begun, MOST_OF_A_DAY, show_date))
    if estimated:
        title = "Estimated: may begin in this time, without an exact date"
        parts.append(_event_table(title, "Expected", estimated, MOST_ESTIMATED, show_date))
    days = facts.request.days
    sentences: list[Sentence] = [
        [
            f"Events that begin in the next {tally(days, 'day')} (before "
            f"{minute(facts.at + timedelta(days=days))} UTC), as known at the time of the "
            "report. Each table has the highest impact first."
        ]
    ]
    if not facts.upcoming:
        sentences.append(["No event is known."])
    return ReportSection("coming", "What is coming", sentences, parts)


def _event_table(
    title: str,
    first: str,
    rows: Sequence[dict[str, Any]],
    most: int,
    when: Callable[[dict[str, Any]], str | Quote],
) -> ReportTable:
    best = sorted(rows, key=_weight, reverse=True)[:most]
    left = len(rows) - len(best)
    counted = tally(len(rows), "event") + (f", {len(best)} shown" if left else "")
    return ReportTable(
        columns=(first, "Impact", "Event", "Coins", "Categories"),
        rows=[
            (
                when(row),
                show_impact(row),
                quote_title(row),
                Quote(join_coins(row["coins"])),
                Quote(cut_line(", ".join(row["categories"] or ()))),
            )
            for row in best
        ],
        numbers=frozenset({1}),
        title=f"{title} ({counted})",
    )


def _changes(facts: ReportFacts) -> ReportSection:
    digest = facts.digest
    sentences: list[Sentence] = [[Quote(note)] for note in notes(digest)]
    if facts.last_report is None and not facts.is_past and facts.request.since is None:
        sentences.insert(0, ["There is no report before this one with the same filters."])
    elif facts.last_report == digest.until and facts.request.since is None:
        sentences.insert(0, ["No pull was published since the last report."])
    if digest.sections:
        overview = ReportTable(
            ("Kind", "Events", "Changes"),
            [
                (TITLES[section.kind], f"{section.events:,}", f"{section.changes:,}")
                for section in digest.sections
            ],
            frozenset({1, 2}),
            "Number of changes by kind",
        )
    else:
        return ReportSection("changes", "What changed", [*sentences, ["Nothing changed."]])
    return ReportSection(
        "changes",
        "What changed",
        sentences,
        [overview, *(_change_table(section) for section in digest.sections if section.shown)],
    )


def _change_table(section: Section) -> ReportTable:
    rows = [
        (line.impact, Quote(line.title, line.url), Quote(line.coins.strip("()")), Quote(line.what))
        for line in lines(section)
    ]
    rest = more(section)
    apart = f", {section.apart:,} of them below by their precision" if section.apart else ""
    return ReportTable(
        ("Impact", "Event", "Coins", "Change (old → new)"),
        rows,
        frozenset({0}),
        f"{TITLES[section.kind]} ({tally(section.events, 'event')}{apart}"
        f"{f'; {rest}' if rest else ''})",
    )


def _without_plots() -> ReportSection:
    return ReportSection("plots", "Plots", [[HOW_TO_GET_PLOTS]])


def _weight(row: dict[str, Any]) -> tuple[float, float]:
    """Return a sort key: the score, or the middle of the band where the plan shows a band only."""
    bands = {"Critical": 8.75, "High": 6.25, "Mid": 3.75, "Low": 1.25}
    known = row["impact"]
    score = bands.get(row["impact_band"] or "", -1.0) if known is None else float(known)
    begins = row["earliest"] or row["latest"]
    return score, -begins.timestamp() if begins is not None else float("-inf")


def _time_of_day(row: dict[str, Any]) -> str:
    if row["date_precision"] == "day":
        return "all day"
    return f"{row['date_exact'].astimezone(UTC):%H:%M}"


def _when(row: dict[str, Any]) -> str:
    day = f"{row['date_exact'].astimezone(UTC):%d %B %Y}"
    if row["date_precision"] == "day":
        return day
    return f"{day}, {row['date_exact'].astimezone(UTC):%H:%M} UTC"


def _after(coins: str) -> str:
    if not coins:
        return ""
    return f" {coins}" if coins.startswith("(") else f" ({coins})"
