"""The sections about all events and the data: moves, lead times, freshness, quota, quality."""

from collections.abc import Sequence
from typing import Any, Final

from almanac.forms import cut_line
from pipeline.health.batches import FeedHealth
from pipeline.report.document import (
    Quote,
    ReportSection,
    ReportTable,
    Sentence,
    exact_time,
    join_coins,
    minute,
    quote_title,
    show_age,
    show_date,
    show_impact,
    show_number,
    show_share,
    tally,
)
from pipeline.report.plots import Plot, plot_bars, plot_columns
from pipeline.report.report_facts import LISTED_MISSING, ReportFacts

MOST_CATEGORIES: Final = 12
_PLOTTED: Final = 8
_GAPS: Final = 5

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


def make_history(facts: ReportFacts, plots: bool) -> ReportSection:
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
                f"The first pull was at {minute(facts.first_pull_at)} UTC. Earlier moves and "
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
                "The shares by category count due events only. An event is watched if it was "
                "still to come at its first pull. It is due when the date that it first had is "
                f"over by the last complete pull: {count:,} of {overall[0]['watched']:,} watched "
                "events are due. Moves and cancellations of other events have columns of their "
                "own. A home with few days of history has few due events, and most of these were "
                "announced shortly before their date."
            ]
        )
    if plots and due:
        parts.append(_plot_categories(due[:_PLOTTED]))
    shown = [*overall, *named[:MOST_CATEGORIES]]
    left = len(named) - len(named[:MOST_CATEGORIES])
    # The view is of the present.
    rest = f"{left} more not shown" if facts.is_past else "all: `FROM category_stats`"
    parts.append(
        ReportTable(
            (
                *("Category", "Watched", "Due", "Moved of due", "Share moved", "Cancelled of due"),
                *("Share cancelled", "Moved, not due", "Cancelled, not due"),
            ),
            [_category_row(row) for row in shown],
            frozenset(range(1, 9)),
            "Moves and cancellations by category" + (f" ({rest})" if left else ""),
        )
    )
    return ReportSection("history", "Moves and cancellations over time", sentences, parts)


def _category_row(row: dict[str, Any]) -> tuple[str | Quote, ...]:
    name = "All events" if row["category"] is None else Quote(cut_line(row["category"], 60))
    return (
        *(name, f"{row['watched']:,}", f"{row['due']:,}", f"{row['moved_due']:,}"),
        *(show_share(row["moved_due"], row["due"]), f"{row['cancelled_due']:,}"),
        *(show_share(row["cancelled_due"], row["due"]), f"{row['moved_not_due']:,}"),
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
        f"Columns for {tally(len(facts.weeks), 'week')}: events that slipped, were pulled in and "
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
        f"Bars for {tally(len(rows), 'category', 'categories')} with the most due events: the "
        "shares of due events that moved and that were cancelled. The table has all numbers."
    )
    return plot_bars("categories", "Shares of due events by category", alt, counts, "share of due")


_RANGE_TEXTS: Final = (
    *("after it began", "under 1", "1 to 3", "3 to 7", "7 to 14", "14 to 30", "30 to 90"),
    "90 or more",
)


def make_leads(facts: ReportFacts, plots: bool) -> ReportSection:
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
                "Observed events were created after the first pull, so their announcement is "
                "known. Claimed events existed before it: their time of creation is the "
                "service's claim, and they are counted only if they were not edited before the "
                "first pull. Their dates moved less often, so they have a row of their own."
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
            f"Columns for ranges of days from announcement to date, of {tally(total, 'event')}. "
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


def make_freshness(facts: ReportFacts) -> ReportSection:
    coverage = facts.coverage
    sentences: list[Sentence] = []
    if coverage.since is not None:
        days = f"{tally(coverage.days_unseen, 'day')} without a complete pull of events"
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
                minute(feed.observed_at),
                minute(feed.complete_at),
                "" if feed.age_s is None else show_age(feed.age_s),
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


def make_quota(facts: ReportFacts) -> ReportSection:
    quota = facts.quota
    if quota is None:
        return ReportSection("quota", "Quota", [["No use of the quota is known for this month."]])
    limit = "no limit" if quota.is_unlimited else show_number(quota.quota)
    rows = [
        ("Used", show_number(quota.used)),
        ("Quota of the month", limit),
        ("Requests a day, average of the last week", f"{quota.pace_per_day:,.1f}"),
        ("Projected use at the reset", show_number(quota.projected)),
        ("Reset (UTC)", minute(quota.reset_at) or "not known"),
        ("As of (UTC)", minute(quota.at)),
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


def make_quality(facts: ReportFacts) -> ReportSection:
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
                    (
                        Quote(cut_line(row["reason"])),
                        f"{row['rows']:,}",
                        minute(row["last_at"]),
                    )
                    for row in facts.reasons
                ],
                frozenset({1}),
                "Most frequent reasons for rejected rows",
            )
        )
    missing = facts.missing_events
    sentences.append(
        [
            f"{tally(missing, 'scheduled event')} {'is' if missing == 1 else 'are'} missing: "
            "complete pulls should show them and do not."
        ]
    )
    if facts.missing:
        shown = ""
        if missing > len(facts.missing):
            events = f"events_as_of('{exact_time(facts.at)}')" if facts.is_past else "events"
            shown = (
                f", {LISTED_MISSING} shown; all: `FROM {events} WHERE missing_since IS NOT NULL`"
            )
        parts.append(
            ReportTable(
                ("Missing since (UTC)", "Impact", "Event", "Coins", "Date"),
                [
                    (
                        minute(row["missing_since"]),
                        show_impact(row),
                        quote_title(row),
                        Quote(join_coins(row["coins"], facts.coin_labels)),
                        show_date(row),
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
                [
                    (Quote(cut_line(warning.text, 600)), minute(warning.since))
                    for warning in facts.warnings
                ],
                title="Warnings of `almanac status`",
            )
        )
    return ReportSection("quality", "Data quality", sentences, parts)
