"""The sections of a report, in their order: the summary, coming events, changes, and others.

Texts of the service stay as received: the format escapes them. Estimated dates are texts such as
`Q1 2027`, never exact dates.
"""

import shlex
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from itertools import groupby
from typing import Any, Final
from urllib.parse import urlencode

from almanac.digest import LISTED, TITLES, Section, describe_apart, lines, notes, summary
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
    exact_time,
    join_coins,
    minute,
    quote_title,
    show_date,
    show_impact,
    tally,
)
from pipeline.report.plots import HOW_TO_GET_PLOTS, Plot, can_plot
from pipeline.report.report_facts import RECENT, ReportFacts, ReportRequest

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
                Quote(_after(join_coins(top["coins"], facts.coin_labels))),
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
    """Return the change with the highest impact among the kinds that a reader acts on.

    It is the first row of its table, since the tables have the same order.
    """
    found = {section.kind: section for section in facts.digest.sections if section.shown}
    sections = [found[kind] for kind in _ATTENTION if kind in found]
    if not sections:
        return None
    section = max(sections, key=_rank_first)
    line = next(lines(section))
    coins = join_coins(section.shown[0].last["coins"], facts.coin_labels)
    impact = f", impact {line.impact}" if line.says_impact else ""
    return [
        f"Most important change: {TITLES[section.kind].lower()}: ",
        Quote(line.title, line.url),
        Quote(f"{_after(coins)}: {line.what}{impact}."),
    ]


def _rank_first(section: Section) -> tuple[bool, float]:
    row = section.shown[0].last
    return not row["is_over"], row["score"]


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
        rest = _page_address(facts, day, day)
        parts.append(
            _event_table(
                *(facts, f"{day:%A, %d %B %Y}", "Time (UTC)", rows, MOST_OF_A_DAY),
                when=_time_of_day,
                rest=rest,
            )
        )
    if begun:
        parts.append(
            _event_table(
                *(facts, "In progress", "Date", begun, MOST_OF_A_DAY),
                when=show_date,
                rest=f"FROM {_upcoming_source(facts)} ORDER BY date_exact",
            )
        )
    days = facts.request.days
    if estimated:
        today = facts.at.astimezone(UTC).date()
        parts.append(
            _event_table(
                *(facts, "Estimated: may begin in this time, without an exact date", "Expected"),
                *(estimated, MOST_ESTIMATED),
                when=show_date,
                rest=_page_address(facts, today, today + timedelta(days=days), dates="estimated"),
            )
        )
    sentences: list[Sentence] = [
        [
            f"Events that begin in the next {tally(days, 'day')} (before "
            f"{minute(facts.at + timedelta(days=days))} UTC), as known at the time of the "
            "report. Each table has the highest impact first. A caption with an address such as "
            "`/?from=…` names the page of `almanac serve` that lists all of its events. Moved and "
            f"new events of the last {RECENT.days} days are marked."
        ]
    ]
    if not facts.upcoming:
        sentences.append(["No event is known."])
    return ReportSection("coming", "What is coming", sentences, parts)


def _upcoming_source(facts: ReportFacts) -> str:
    return f"upcoming_as_of('{exact_time(facts.at)}')" if facts.is_past else "upcoming"


def _page_address(facts: ReportFacts, first: date, last: date, **given: str) -> str:
    """Return the address of the first page of `almanac serve`, with the filters of the report."""
    request = facts.request
    values = {"from": f"{first}", "to": f"{last}", **given}
    if len(facts.digest.coins or ()) == 1:
        values["coin"] = f"slug:{(facts.digest.coins or ('',))[0]}"
    if len(request.categories) == 1:
        values["category"] = request.categories[0]
    if request.min_impact is not None:
        values["impact"] = f"{request.min_impact:g}"
    if facts.is_past:
        values["as_of"] = exact_time(facts.at)
    return f"/?{urlencode(values, safe=':')}"


def _event_table(
    facts: ReportFacts,
    title: str,
    first: str,
    rows: Sequence[dict[str, Any]],
    most: int,
    *,
    when: Callable[[dict[str, Any]], str | Quote],
    rest: str,
) -> ReportTable:
    """Return a table of the first events by impact; `rest` shows all of them."""
    best = sorted(rows, key=_weight, reverse=True)[:most]
    counted = tally(len(rows), "event")
    if len(rows) > len(best):
        counted += f", {len(best)} shown; all: `{rest}`"
    marks = [_show_mark(facts, row) for row in best]
    with_marks = any(marks)
    columns = (first, "Impact", "Event", "Coins", *(("News",) if with_marks else ()), "Categories")
    return ReportTable(
        columns=columns,
        rows=[
            (
                when(row),
                show_impact(row),
                quote_title(row),
                Quote(join_coins(row["coins"], facts.coin_labels)),
                *((Quote(mark),) if with_marks else ()),
                Quote(cut_line(", ".join(row["categories"] or ()))),
            )
            for row, mark in zip(best, marks, strict=True)
        ],
        numbers=frozenset({1}),
        title=f"{title} ({counted})",
    )


def _show_mark(facts: ReportFacts, row: dict[str, Any]) -> str:
    """Return when an event moved, and from which date, or that it is new; as the pages do."""
    mark = facts.marks.get(row["event_id"])
    if mark is None:
        return ""
    parts = []
    if mark["moved_at"] is not None:
        before = mark["moved_from"]
        origin = (
            f" from {cut_line(before, 40)}"
            if before not in (None, row["displayed_date_full"])
            else ""
        )
        parts.append(f"moved {_show_days_ago(facts.at - mark['moved_at'])}{origin}")
    if mark["created_at"] is not None:
        parts.append(f"new {_show_days_ago(facts.at - mark['created_at'])}")
    return "; ".join(parts)


def _show_days_ago(age: timedelta) -> str:
    if age < timedelta(hours=24):
        return "today" if age < timedelta(hours=1) else f"{age.seconds // 3600} h ago"
    return f"{tally(age.days, 'day')} ago"


def _changes(facts: ReportFacts) -> ReportSection:
    digest = facts.digest
    sentences: list[Sentence] = [[Quote(note)] for note in notes(digest)]
    if facts.last_report is None and not facts.is_past and facts.request.since is None:
        sentences.insert(0, ["There is no report before this one with the same filters."])
    elif facts.last_report == digest.until and facts.request.since is None:
        sentences.insert(0, [_repeat_sentence(facts)])
    if digest.sections:
        sentences.append([_order_sentence(facts)])
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
        [
            overview,
            *(_change_table(section, facts) for section in digest.sections if section.shown),
        ],
    )


def _repeat_sentence(facts: ReportFacts) -> str:
    """Return when the last report was made, and how to repeat it."""
    found = "No pull was published since the last report."
    if facts.last_made_at is not None:
        found += f" It was made at {minute(facts.last_made_at)} UTC."
    if facts.last_since is None:
        return f"{found} `almanac report --since TIME` shows an earlier period again."
    words = ["almanac", "report", "--since", exact_time(facts.last_since), *_filter_words(facts)]
    return f"{found} To repeat its period, run `{cut_line(shlex.join(words), 400)}`."


def _order_sentence(facts: ReportFacts) -> str:
    """Return the order of the tables of changes, and how to list all changes."""
    digest = facts.digest
    found = "Each table has the highest impact first; events that are over are last."
    if not any(section.more and section.shown for section in digest.sections):
        return found
    since, until = exact_time(digest.since), exact_time(digest.until)
    words = ["almanac", "changes", "--since", since, "--until", until, "--limit", "1000"]
    return (
        f"{found} A table has at most {LISTED} events. To list more, run "
        f"`{cut_line(shlex.join([*words, *_filter_words(facts)]), 400)}`, or open the page "
        f"`/changes?since={since}&until={until}` of `almanac serve`."
    )


def _filter_words(facts: ReportFacts) -> list[str]:
    request, found = facts.request, []
    if facts.digest.coins:
        found += ["--coins", ",".join(f"slug:{slug}" for slug in facts.digest.coins)]
    if request.categories:
        found += ["--categories", ",".join(request.categories)]
    if request.min_impact is not None:
        found += ["--min-impact", f"{request.min_impact:g}"]
    return found


def _change_table(section: Section, facts: ReportFacts) -> ReportTable:
    rows = [
        (
            line.impact,
            Quote(line.title, line.url),
            Quote(join_coins(entry.last["coins"], facts.coin_labels)),
            Quote(line.what),
        )
        for line, entry in zip(lines(section), section.shown, strict=True)
    ]
    counted = tally(section.events - section.apart, "event")
    if section.more:
        counted += f", {len(rows)} shown"
    apart = f", {describe_apart(section)}" if section.apart else ""
    return ReportTable(
        ("Impact", "Event", "Coins", "Change (old → new)"),
        rows,
        frozenset({0}),
        f"{TITLES[section.kind]} ({counted}){apart}",
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
