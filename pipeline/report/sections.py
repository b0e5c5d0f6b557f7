"""The sections of a report: sentences, tables and plots made of its facts, in no format yet.

Texts of the service stay as received: the format escapes them. Estimated dates are texts such as
`Q1 2027`, never exact dates.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import Any, Final

from almanac.digest import TITLES, Section, lines, more, notes, summary
from almanac.forms import cut_line, rounded, web_address
from pipeline.health.batches import FeedHealth
from pipeline.report.plots import HOW_TO_GET_PLOTS, Plot, can_plot, plot_bars, plot_columns
from pipeline.report.report_facts import LISTED_MISSING, ReportFacts

MOST_OF_A_DAY: Final = 8
MOST_ESTIMATED: Final = 20
MOST_CATEGORIES: Final = 12
_PLOTTED: Final = 8
_GAPS: Final = 5
_EXACT: Final = frozenset({"instant", "day"})
_COINS: Final = 4
_ATTENTION: Final = ("cancelled", "withdrawn", "rescheduled", "made_exact", "rescored", "created")
_IMPACT_MAX: Final = 10


@dataclass(frozen=True, slots=True)
class Quote:
    """A text of the service, with the web address that it links to, if any."""

    text: str
    url: str | None = None


Sentence = Sequence[str | Quote]


@dataclass(frozen=True, slots=True)
class ReportTable:
    """A table. `numbers` are the indexes of the columns with numbers."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str | Quote]]
    numbers: frozenset[int] = frozenset()
    title: str = ""


@dataclass(frozen=True, slots=True)
class ReportSection:
    """A section: sentences, then tables and plots in their order."""

    name: str
    title: str
    sentences: Sequence[Sentence]
    parts: Sequence[ReportTable | Plot] = ()


def make_sections(facts: ReportFacts, *, with_plots: bool = True) -> list[ReportSection]:
    """Return the sections of a report, the summary first."""
    plots = with_plots and can_plot()
    return [
        _summary(facts),
        _coming(facts),
        _changes(facts),
        _history(facts, plots),
        _leads(facts, plots),
        _freshness(facts),
        _quota(facts),
        _quality(facts),
        *([] if can_plot() or not with_plots else [_without_plots()]),
    ]


def describe_report(facts: ReportFacts) -> list[tuple[str, str]]:
    """Return the state of knowledge, the publication, the period and the filters."""
    digest = facts.digest
    found = [
        ("As of", f"{_minute(facts.at)} UTC"),
        ("Changes", f"{_minute(digest.since)} to {_minute(digest.until)} UTC"),
        ("Last pull", "none" if not facts.last_pull_at else f"{_minute(facts.last_pull_at)} UTC"),
        (
            "Publication",
            f"{facts.publication.id[:12]} of {_minute(facts.publication.published_at)} UTC",
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
            f"{_count(len(coming), 'event')} with an exact date in the next {_count(days, 'day')}, "
            f"{len(estimated):,} more with an estimated date that may begin by then, and "
            f"{len(begun):,} in progress."
        ]
    ]
    if coming:
        top = max(coming, key=_weight)
        found.append(
            [
                "Most important: ",
                _title(top),
                Quote(_after(_coins(top["coins"]))),
                f" on {_when(top)}",
                f", impact {_impact(top)}." if _impact(top) else ", impact not shown.",
            ]
        )
    found.append([_period_sentence(facts), f"{summary(facts.digest)}."])
    if top_change := _top_change(facts):
        found.append(top_change)
    found.append([_health_sentence(facts)])
    return ReportSection("summary", "Summary", found)


def _period_sentence(facts: ReportFacts) -> str:
    if facts.is_past or facts.request.since is not None:
        return f"Changes since {_minute(facts.digest.since)} UTC, in events: "
    if facts.last_report is None:
        return (
            "This is the first report, so there is none to compare with. Changes since "
            f"{_minute(facts.digest.since)} UTC, in events: "
        )
    return f"Changes since the last report ({_minute(facts.digest.since)} UTC), in events: "


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
    parts.append(f"{_count(count, 'warning')} below" if count else "no warnings")
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
        parts.append(_event_table("In progress", "Date", begun, MOST_OF_A_DAY, _date_text))
    if estimated:
        title = "Estimated: may begin in this time, without an exact date"
        parts.append(_event_table(title, "Expected", estimated, MOST_ESTIMATED, _date_text))
    days = facts.request.days
    sentences: list[Sentence] = [
        [
            f"Events that begin in the next {_count(days, 'day')} (before "
            f"{_minute(facts.at + timedelta(days=days))} UTC), as known at the time of the report. "
            "Each table has the highest impact first."
        ]
    ]
    if not facts.upcoming:
        sentences.append(["No event is known."])
    return ReportSection("coming", "What is coming", sentences, parts)


def _event_table(
    title: str, first: str, rows: Sequence[dict[str, Any]], most: int, when: Any
) -> ReportTable:
    best = sorted(rows, key=_weight, reverse=True)[:most]
    left = len(rows) - len(best)
    counted = _count(len(rows), "event") + (f", {len(best)} shown" if left else "")
    return ReportTable(
        columns=(first, "Impact", "Event", "Coins", "Categories"),
        rows=[
            (
                when(row),
                _impact(row),
                _title(row),
                Quote(_coins(row["coins"])),
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
            [(TITLES[one.kind], f"{one.events:,}", f"{one.changes:,}") for one in digest.sections],
            frozenset({1, 2}),
            "Number of changes by kind",
        )
    else:
        return ReportSection("changes", "What changed", [*sentences, ["Nothing changed."]])
    return ReportSection(
        "changes", "What changed", sentences, [overview, *map(_change_table, digest.sections)]
    )


def _change_table(section: Section) -> ReportTable:
    rows = [
        (line.impact, Quote(line.title, line.url), Quote(line.coins), Quote(line.what))
        for line in lines(section)
    ]
    rest = more(section)
    apart = f", {section.apart:,} of them below by their precision" if section.apart else ""
    return ReportTable(
        ("Impact", "Event", "Coins", "Change (old → new)"),
        rows,
        frozenset({0}),
        f"{TITLES[section.kind]} ({_count(section.events, 'event')}{apart}"
        f"{f'; {rest}' if rest else ''})",
    )


_WEEK_COLUMNS: Final = (
    ("Upcoming at its start", "upcoming"),
    ("New", "created"),
    ("Slipped", "slipped"),
    ("Pulled in", "pulled_in"),
    ("More precise", "refined"),
    ("Less precise", "loosened"),
    ("Other moves", "other_moves"),
    ("Cancelled", "cancelled"),
    ("Withdrawn", "withdrawn"),
)


def _history(facts: ReportFacts, plots: bool) -> ReportSection:
    sentences: list[Sentence] = [
        [
            "Moves and cancellations of all events, without filters. Weeks begin on Monday, UTC. A "
            "move counts in the week in which it became known; `upcoming` are scheduled events "
            "that were not over at the start of the week."
        ],
    ]
    if facts.first_pull_at is not None:
        sentences.append(
            [
                f"The first pull was at {_minute(facts.first_pull_at)} UTC. Earlier moves and "
                "cancellations are not known, and the first and the last week may be incomplete."
            ]
        )
    weeks = ReportTable(
        ("Week of", *(column for column, _ in _WEEK_COLUMNS)),
        [
            (f"{row['week']:%Y-%m-%d}", *(f"{row[name]:,}" for _, name in _WEEK_COLUMNS))
            for row in facts.weeks
        ],
        frozenset(range(1, 10)),
        "Moves and cancellations by week",
    )
    parts: list[ReportTable | Plot] = []
    if plots and facts.weeks:
        parts.append(_plot_weeks(facts))
    parts.append(weeks)
    overall = facts.categories[:1]
    named = [row for row in facts.categories if row["category"] is not None]
    due = [row for row in named if row["due"]]
    if overall:
        count = overall[0]["due"]
        sentences.append(
            [
                f"Shares by category are of due events: watched events whose first known date was "
                f"over by the last complete pull ({count:,} of {overall[0]['watched']:,} watched "
                "events). No share has moves and cancellations of events that are not due. "
                "With few days of history, due events are few, and were announced shortly before "
                "their date."
            ]
        )
    if plots and due:
        parts.append(_plot_categories(due[:_PLOTTED]))
    shown = [*overall, *named[:MOST_CATEGORIES]]
    left = len(named) - len(named[:MOST_CATEGORIES])
    parts.append(
        ReportTable(
            (
                *("Category", "Watched", "Due", "Moved of due", "Share moved", "Cancelled of due"),
                *("Share cancelled", "Moved, not due", "Cancelled, not due"),
            ),
            [_category_row(row) for row in shown],
            frozenset(range(1, 9)),
            f"Moves and cancellations by category{f' ({left} more not shown)' if left else ''}",
        )
    )
    return ReportSection("history", "Moves and cancellations over time", sentences, parts)


def _category_row(row: dict[str, Any]) -> tuple[str | Quote, ...]:
    name = "All events" if row["category"] is None else Quote(cut_line(row["category"], 60))
    return (
        *(name, f"{row['watched']:,}", f"{row['due']:,}", f"{row['moved_due']:,}"),
        *(_share(row["moved_due"], row["due"]), f"{row['cancelled_due']:,}"),
        *(_share(row["cancelled_due"], row["due"]), f"{row['moved_not_due']:,}"),
        f"{row['cancelled_not_due']:,}",
    )


def _plot_weeks(facts: ReportFacts) -> Plot:
    series = (("slipped", "slipped"), ("pulled in", "pulled_in"), ("cancelled", "cancelled"))
    counts = [
        (f"{row['week']:%d %b}", name, row[column])
        for row in facts.weeks
        for name, column in series
    ]
    last = facts.weeks[-1]
    alt = (
        f"Columns for {_count(len(facts.weeks), 'week')}: events that slipped, were pulled in and "
        f"were cancelled. In the week of {last['week']:%d %B}: {last['slipped']} slipped, "
        f"{last['pulled_in']} pulled in, {last['cancelled']} cancelled. The table has all numbers."
    )
    return plot_columns("weeks", "Moves and cancellations by week", alt, counts, "events")


def _plot_categories(rows: Sequence[dict[str, Any]]) -> Plot:
    counts = [
        (f"{cut_line(row['category'], 30)} ({row['due']})", name, row[column] / row["due"])
        for row in rows
        for name, column in (("moved", "moved_due"), ("cancelled", "cancelled_due"))
    ]
    alt = (
        f"Bars for {_count(len(rows), 'category', 'categories')} with the most due events: the "
        "shares of due events that moved and that were cancelled. The table has all numbers."
    )
    return plot_bars("categories", "Shares of due events by category", alt, counts, "share of due")


_RANGE_TEXTS: Final = (
    *("after it began", "under 1", "1 to 3", "3 to 7", "7 to 14", "14 to 30", "30 to 90"),
    "90 or more",
)


def _leads(facts: ReportFacts, plots: bool) -> ReportSection:
    observed = [row for row in facts.leads if row["basis"] == "observed"]
    claimed = [row for row in facts.leads if row["basis"] == "claimed" and not row["category"]]
    sentences: list[Sentence] = [
        [
            "Days from the announcement of an event to its date as announced, of all events. An "
            "event that was announced without an exact date has no lead time."
        ]
    ]
    if claimed:
        sentences.append(
            [
                "`Claimed` rows are events that existed before the first pull and were not edited "
                "until then: their dates moved less than others, so they are not mixed with "
                "observed events."
            ]
        )
    parts: list[ReportTable | Plot] = []
    total = sum(row["events"] for row in facts.lead_ranges)
    if plots and total:
        counts = [
            (text, "lead", row["events"])
            for text, row in zip(_RANGE_TEXTS, facts.lead_ranges, strict=True)
        ]
        alt = (
            f"Columns for ranges of days from announcement to date, of {_count(total, 'event')}. "
            "The table has all numbers."
        )
        parts.append(
            plot_columns("leads", "Lead times of observed events (days)", alt, counts, "events")
        )
    shown = [*observed[:1], *claimed, *observed[1 : MOST_CATEGORIES + 1]]
    parts.append(
        ReportTable(
            (
                *("Events", "With lead time", "Without", "Lower quartile", "Median"),
                "Upper quartile",
            ),
            [_lead_row(row) for row in shown],
            frozenset(range(1, 6)),
            "Lead times in days",
        )
    )
    if total:
        parts.append(
            ReportTable(
                ("Days", "Events"),
                [
                    (text, f"{row['events']:,}")
                    for text, row in zip(_RANGE_TEXTS, facts.lead_ranges, strict=True)
                ],
                frozenset({1}),
                "Observed events by lead time",
            )
        )
    return ReportSection("leads", "Lead times", sentences, parts)


def _lead_row(row: dict[str, Any]) -> tuple[str | Quote, ...]:
    name: str | Quote = f"All events, {row['basis']}"
    if row["category"] is not None:
        name = Quote(cut_line(row["category"], 60))
    quartiles = (row["lower_quartile"], row["median"], row["upper_quartile"])
    return (
        *(name, f"{row['with_lead']:,}", f"{row['without_lead']:,}"),
        *("" if value is None else f"{value:.1f}" for value in quartiles),
    )


def _freshness(facts: ReportFacts) -> ReportSection:
    coverage = facts.coverage
    sentences: list[Sentence] = []
    if coverage.since is not None:
        days = f"{_count(coverage.days_unseen, 'day')} without a complete pull of events"
        shown = ", ".join(str(gap) for gap in coverage.unseen[-_GAPS:])
        older = len(coverage.unseen) - _GAPS
        gaps = f": {f'{older} earlier gaps, ' if older > 0 else ''}{shown}" if shown else ""
        sentences.append([f"{days} since {coverage.since}{gaps}."])
    for gap in coverage.cancellations_lost[-_GAPS:]:
        sentences.append([f"Cancellations of {gap} are lost: no pull listed them in time."])
    table = ReportTable(
        ("Feed", "Last pull (UTC)", "Last complete (UTC)", "Age", "State", "Batches"),
        [
            (
                feed.feed,
                _minute(feed.observed_at),
                _minute(feed.complete_at),
                "" if feed.age_s is None else _age(feed.age_s),
                Quote(_feed_state(feed)),
                f"{feed.batches:,}",
            )
            for feed in facts.feeds
        ],
        frozenset({5}),
        "Feeds in the last hundred days",
    )
    return ReportSection("freshness", "Freshness and coverage", sentences, [table])


def _feed_state(feed: FeedHealth) -> str:
    if not feed.in_plan:
        return "not in the plan"
    if feed.refused:
        return f"refused: {cut_line(feed.refused)}"
    if feed.stale_since is not None:
        return "stale"
    return "on demand" if feed.interval_s is None or feed.complete_at is None else "fresh"


def _quota(facts: ReportFacts) -> ReportSection:
    quota = facts.quota
    if quota is None:
        return ReportSection("quota", "Quota", [["No use of the quota is known for this month."]])
    limit = "no limit" if quota.is_unlimited else _number(quota.quota)
    rows = [
        ("Used", _number(quota.used)),
        ("Quota of the month", limit),
        ("Requests a day, average of the last week", f"{quota.pace_per_day:,.1f}"),
        ("Projected use at the reset", _number(quota.projected)),
        ("Reset (UTC)", _minute(quota.reset_at) or "not known"),
        ("As of (UTC)", _minute(quota.at)),
    ]
    sentences: list[Sentence] = []
    if quota.runs_out:
        sentences.append(["At this pace, the quota is used up before its reset."])
    return ReportSection(
        "quota",
        "Quota",
        sentences,
        [ReportTable(("Requests", "Number"), rows, frozenset({1}), "Requests of the month")],
    )


def _quality(facts: ReportFacts) -> ReportSection:
    counts = facts.batches
    names = (
        ("Batches", "batches"),
        ("Quarantined batches", "quarantined"),
        ("Flagged batches", "flagged"),
        ("Partial batches", "partial"),
        ("Rows that arrived", "arrived"),
        ("Rejected rows", "rejected"),
    )
    parts: list[ReportTable | Plot] = [
        ReportTable(
            ("Published data", "In this period", "In all"),
            [(text, f"{counts[f'new_{name}']:,}", f"{counts[name]:,}") for text, name in names],
            frozenset({1, 2}),
            "Batches and rows",
        )
    ]
    sentences: list[Sentence] = []
    if facts.reasons:
        parts.append(
            ReportTable(
                ("Reason for a rejection", "Rows", "Last (UTC)"),
                [
                    (Quote(cut_line(row["reason"])), f"{row['rows']:,}", _minute(row["last_at"]))
                    for row in facts.reasons
                ],
                frozenset({1}),
                "Most frequent reasons for rejected rows",
            )
        )
    missing = facts.missing_events
    sentences.append(
        [
            f"{_count(missing, 'scheduled event')} {'is' if missing == 1 else 'are'} missing: "
            "complete pulls should show them and do not."
        ]
    )
    if facts.missing:
        shown = f", {LISTED_MISSING} shown" if missing > len(facts.missing) else ""
        parts.append(
            ReportTable(
                ("Missing since (UTC)", "Impact", "Event", "Coins", "Date"),
                [
                    (
                        _minute(row["missing_since"]),
                        _impact(row),
                        _title(row),
                        Quote(_coins(row["coins"])),
                        _date_text(row),
                    )
                    for row in facts.missing
                ],
                frozenset({1}),
                f"Missing events ({missing:,}{shown})",
            )
        )
    if facts.is_past:
        sentences.append(["Warnings of past times are not recorded."])
    elif not facts.warnings:
        sentences.append(["`almanac status` has no warnings."])
    else:
        parts.append(
            ReportTable(
                ("Warning", "Since (UTC)"),
                [(Quote(cut_line(one.text, 600)), _minute(one.since)) for one in facts.warnings],
                title="Warnings of `almanac status`",
            )
        )
    return ReportSection("quality", "Data quality", sentences, parts)


def _without_plots() -> ReportSection:
    return ReportSection("plots", "Plots", [[HOW_TO_GET_PLOTS]])


def _weight(row: dict[str, Any]) -> tuple[float, float]:
    """Return a sort key: the score, or the middle of the band where the plan shows a band only."""
    bands = {"Critical": 8.75, "High": 6.25, "Mid": 3.75, "Low": 1.25}
    known = row["impact"]
    score = bands.get(row["impact_band"] or "", -1.0) if known is None else float(known)
    begins = row["earliest"] or row["latest"]
    return score, -begins.timestamp() if begins is not None else float("-inf")


def _title(row: dict[str, Any]) -> Quote:
    return Quote(cut_line(row["title"] or row["event_id"]), web_address(row["source_url"]))


def _impact(row: dict[str, Any]) -> str:
    return rounded(row["impact"]) if row["impact"] is not None else row["impact_band"] or ""


def _coins(slugs: Sequence[str] | None) -> str:
    if not slugs:
        return ""
    rest = f" +{len(slugs) - _COINS}" if len(slugs) > _COINS else ""
    return cut_line(", ".join(slugs[:_COINS])) + rest


def _time_of_day(row: dict[str, Any]) -> str:
    if row["date_precision"] == "day":
        return "all day"
    return f"{row['date_exact'].astimezone(UTC):%H:%M}"


def _date_text(row: dict[str, Any]) -> Quote:
    return Quote(cut_line(row["displayed_date_full"] or "not shown", 80))


def _when(row: dict[str, Any]) -> str:
    day = f"{row['date_exact'].astimezone(UTC):%d %B %Y}"
    if row["date_precision"] == "day":
        return day
    return f"{day}, {row['date_exact'].astimezone(UTC):%H:%M} UTC"


def _after(coins: str) -> str:
    if not coins:
        return ""
    return f" {coins}" if coins.startswith("(") else f" ({coins})"


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.0%}" if whole else ""


def _number(value: int | None) -> str:
    return "not known" if value is None else f"{value:,}"


def _count(number: int, one: str, many: str = "") -> str:
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def _minute(at: datetime | None) -> str:
    return "" if at is None else f"{at.astimezone(UTC):%Y-%m-%d %H:%M}"


def _age(seconds: float) -> str:
    hours = seconds / 3600
    return f"{hours:.1f} h" if hours < 48 else f"{hours / 24:.0f} days"
