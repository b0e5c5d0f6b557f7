"""The views and macros of the warehouse, declared like the tables; their SQL is in views/.

An estimated date is a deadline and is never shown as a date: views have `displayed_date` for
people, and `date_exact`, which is NULL unless the date is known to be exact. A share has its
denominator in a column beside it. An event in several categories counts in each of them.

Most macros answer as of a timestamp. `_almanac.instant` reads it; `_almanac.refused` refuses a
timestamp before the first pull or in the future. The previous version of an event has always ended,
so views read it from `state.ended_versions`: planning the view of both takes longer.
"""

from typing import Final

from warehouse.schema.columns import (
    BATCH_ID,
    CHANGED_AT,
    COIN,
    COIN_COUNTERS,
    COIN_NAME,
    CONTENT,
    CONTENT_AT,
    CONTENT_NAMED,
    DATE_EXACT,
    DATE_PRECISION,
    DATING,
    DISPLAYED_DATE,
    DISPLAYED_DATE_FULL,
    EARLIEST,
    EVENT_ID,
    FEED,
    IMPACT,
    IS_ESTIMATED,
    LATEST,
    MISSING_SINCE,
    OBSERVED_AT,
    PLAN,
    RANK,
    SYMBOL,
    TEXTS,
    TITLE,
    TRACKED,
    UNKNOWN,
    VERSION,
    Column,
    count,
    text,
    timestamp,
)
from warehouse.schema.tables import CHANGE_KINDS, COVERAGE, INTERNAL_SCHEMA, KNOWN_BASIS, Table

_CATEGORY: Final = (
    text("category_id", "Id of the category; NULL if the name is unknown."),
    text("category", "Name of the category."),
)
_EVENTS: Final = count("events", "All events.")
_AT_RISK: Final = count("at_risk", "Events that were scheduled and not over when first observed.")
_DUE: Final = count(
    "due",
    "Events at risk whose first known date had passed at the last complete pull of events.",
)
_LEAD_DAYS: Final = (
    Column(
        "least_lead_days",
        "DOUBLE",
        "From created_at to the first possible announced day (reschedules: from known_from to "
        "the first possible old day), in whole UTC days; exact for a time of day. 0 for a deadline "
        "that was not over.",
        "days",
    ),
    Column("most_lead_days", "DOUBLE", "The same to the last possible day.", "days"),
    Column("lead_days", "DOUBLE", "The same to an exact date; NULL if estimated.", "days"),
)

EVENT_CLAIMS: Final = Table(
    "event_claims",
    "one row per claimed version from the time before an event's first observation",
    ("event_id", "version"),
    (
        *(EVENT_ID, *CONTENT, *DATING, *UNKNOWN),
        timestamp("first_seen_at", "Always NULL."),
        VERSION,
        timestamp(
            "known_from", "A time that the first observation names: created, updated or cancelled."
        ),
        timestamp("known_to", "Start of the next version, exclusive."),
        *(KNOWN_BASIS, CHANGE_KINDS),
        Column("changed_fields", TEXTS, "Always empty."),
        *(BATCH_ID, FEED, PLAN, CONTENT_AT),
    ),
)
RESCHEDULES: Final = Table(
    "reschedules",
    "one row per version with another date, end or period than the previous version",
    ("event_id", "version"),
    (
        *(EVENT_ID, TITLE, CONTENT_NAMED["coins"], CONTENT_NAMED["categories"]),
        *(IMPACT, CONTENT_NAMED["impact_band"]),
        Column("version", "INTEGER", "Version with the new date."),
        timestamp("known_from", "Time at which the new date became known."),
        text(
            "kind",
            "end_only: the start is the same. time_only: another time of the same day, or "
            "another date in the same period. refined, loosened: another precision, within or "
            "beyond the old period. slipped, pulled_in: any other move to later or earlier, "
            "including a moved deadline.",
        ),
        text("old_displayed_date", "Displayed date before."),
        text("new_displayed_date", "Displayed date after."),
        text("old_displayed_date_full", "Displayed date before, with its year."),
        text("new_displayed_date_full", "Displayed date after, with its year."),
        timestamp("old_date_exact", "Date before; NULL unless exact."),
        timestamp("new_date_exact", "Date after; NULL unless exact."),
        text("old_date_precision", "date_precision before."),
        text("new_date_precision", "date_precision after."),
        timestamp("old_earliest", "earliest before; NULL for a deadline."),
        timestamp("new_earliest", "earliest after; NULL for a deadline."),
        timestamp("old_latest", "latest before."),
        timestamp("new_latest", "latest after."),
        Column(
            "least_shift_days",
            "DOUBLE",
            "Least shift of the start, positive for later: from the last possible day before to "
            "the first possible day after, in whole UTC days; exact between two times. A "
            "deadline starts at known_from.",
            "days",
        ),
        Column("most_shift_days", "DOUBLE", "Greatest shift of the start, as above.", "days"),
        Column(
            "shift_days",
            "DOUBLE",
            "Shift of the start if it is known: least and most are equal, or both dates are "
            "deadlines or periods of one kind; otherwise NULL.",
            "days",
        ),
        *_LEAD_DAYS,
    ),
)
CATEGORY_STATS: Final = Table(
    "category_stats",
    "one row per category of any event",
    ("category",),
    (
        *(*_CATEGORY, _EVENTS),
        count("upcoming", "Of events: in upcoming_events."),
        count("estimated", "Of events: the date is estimated."),
        count("scored", "Of events: the score is known."),
        Column(
            "mean_impact",
            "DOUBLE",
            "Mean score of the `scored` events, past and future, with any status.",
            "0 to 10",
        ),
        _AT_RISK,
        count("rescheduled", "Events at risk that were rescheduled, due or not."),
        count("slipped", "Events at risk that moved to a later date."),
        _DUE,
        count("rescheduled_due", "Of due: in reschedules."),
        Column(
            "rescheduled_share",
            "DOUBLE",
            "rescheduled_due / due: the share among events at risk whose first date is over.",
            "0 to 1",
        ),
    ),
)
CANCELLATION_STATS: Final = Table(
    "cancellation_stats",
    "one row per category; the category NULL has only cancelled events that were never seen",
    ("category",),
    (
        *(*_CATEGORY, _EVENTS, _AT_RISK, _DUE),
        count("cancelled", "Due events that were cancelled."),
        count("withdrawn", "Due events that were withdrawn."),
        count("missing", "Due events that are missing: still scheduled, but no longer listed."),
        Column(
            "share",
            "DOUBLE",
            "cancelled / due: the share among events at risk whose first date is over.",
            "0 to 1",
        ),
        count(
            "cancelled_not_due",
            "Events at risk that were cancelled before they were due; not in the share.",
        ),
        count(
            "cancelled_not_at_risk",
            "Cancelled events that were not at risk; not in the share.",
        ),
        count(
            "cancelled_unseen",
            "Cancelled events that were never observed as scheduled; not in the share. For the "
            "category NULL: events known only from cancellations, cancelled after the first "
            "complete pull, including those outside the pulls' coverage.",
        ),
    ),
)


def _outcome(name: str, meaning: str) -> tuple[Column, Column]:
    """Return the columns of a count and of its share."""
    return (
        count(name, f"Of cohort: {meaning}"),
        Column(
            f"{name}_share",
            "DOUBLE",
            f"{name} / cohort.",
            "0 to 1",
        ),
    )


_OUTCOMES: Final = (
    _outcome("slipped", "slipped within the horizon."),
    _outcome("pulled_in", "pulled in."),
    _outcome("refined", "refined."),
    _outcome("loosened", "loosened."),
    _outcome("cancelled", "cancelled."),
    _outcome("withdrawn", "withdrawn."),
    _outcome("held", "none of these changes, or missing."),
)
SLIP_RATES: Final = Table(
    "slip_rates",
    "one row per category, distance band and precision of events that were upcoming at "
    "cohort_from: their changes within the horizon",
    ("category", "distance_from", "date_precision"),
    (
        text("category", "Category as known at cohort_from; NULL for all events."),
        Column("distance_from", "INTEGER", "First day of the distance band.", "days"),
        text(
            "distance",
            "Whole UTC days from cohort_from to the date, or to the last day of an estimated "
            "date: 0-7, 8-30, 31-90, 91-365, over 365.",
        ),
        text("date_precision", "As known at cohort_from."),
        count(
            "cohort",
            "Events that were scheduled, not missing and not over at cohort_from. An event can "
            "count in several kinds.",
        ),
        *(count for count, _ in _OUTCOMES),
        *(share for _, share in _OUTCOMES),
    ),
    call="slip_rates(cohort_from, horizon)",
)
"""`horizon` is an interval, or a number of days."""
DATE_SURVIVAL: Final = Table(
    "date_survival",
    "one row per category, precision and number of days: the Kaplan-Meier share of events that "
    "keep their first known date so long",
    ("category", "date_precision", "after_days"),
    (
        text("category", "As first known; NULL for all."),
        text("date_precision", "As first known; NULL for all."),
        Column("after_days", "DOUBLE", "Age of the date.", "days"),
        count("events", "Events watched at any age."),
        count("left_date", "Of events: left their date by then."),
        count("at_risk", "Of events: watched at this age, on their date."),
        Column("share", "DOUBLE", "NULL if no event was watched at some lower age.", "0 to 1"),
        Column("low", "DOUBLE", "Start of the 95 % interval (Greenwood, log-log).", "0 to 1"),
        Column("high", "DOUBLE", "Its end.", "0 to 1"),
    ),
    call="date_survival(ts, days := [7, 30, 90])",
)


_COINS: Final = CONTENT_NAMED["coins"]
_BAND: Final = CONTENT_NAMED["impact_band"]
_DAYS_UNTIL: Final = Column(
    "days_until",
    "DOUBLE",
    "Days to an exact date: whole UTC days if the date is a day (0 is today), negative for an "
    "event in progress; otherwise NULL.",
    "days",
)

UPCOMING_EVENTS: Final = Table(
    "upcoming_events",
    "one row per scheduled event that is not missing and not over",
    ("event_id",),
    (
        *(EVENT_ID, CONTENT_NAMED["slug"], TITLE, DISPLAYED_DATE, DISPLAYED_DATE_FULL),
        *(DATE_EXACT, DATE_PRECISION, EARLIEST, LATEST, _DAYS_UNTIL, IS_ESTIMATED),
        *(CONTENT_NAMED["categories"], CONTENT_NAMED["coins"], IMPACT, _BAND),
        CONTENT_NAMED["source_url"],
    ),
)
_BEFORE_AND_AFTER: Final = (
    text(
        "old_value",
        "Displayed date, score (or band) or status before; NULL for a first version and for "
        "other kinds.",
    ),
    text(
        "new_value",
        "Displayed date, score (or band) or status after; for other kinds, the names of the "
        "changed fields.",
    ),
)
CHANGES: Final = Table(
    "changes",
    "one row per observed version and kind of change",
    ("event_id", "version", "kind"),
    (
        *(EVENT_ID, TITLE, _COINS),
        Column("version", "INTEGER", "Version of the change."),
        timestamp("known_from", "Time at which the change became known."),
        text("kind", "One of the version's change_kinds."),
        *(*_BEFORE_AND_AFTER, IMPACT, _BAND),
    ),
)
TODAY: Final = Table(
    "today",
    "one row per scheduled event with an exact date that takes place on the current UTC day",
    ("event_id",),
    (
        *(EVENT_ID, TITLE, _COINS, DISPLAYED_DATE_FULL, DATE_EXACT, DATE_PRECISION),
        *(EARLIEST, LATEST, IMPACT, _BAND),
    ),
)
DETECTION_LATENCY: Final = Table(
    "detection_latency",
    "one row per observed version with a known time of change at the service",
    ("event_id", "version"),
    (
        EVENT_ID,
        Column("version", "INTEGER", "Version of the change."),
        text("kind", "created (while watched), cancelled or updated."),
        timestamp(
            "happened_at",
            "created_at, cancelled_at or updated_at of the service; the last of several updates.",
        ),
        timestamp("known_from", "When we knew it."),
        Column(
            "latency_s", "DOUBLE", "From happened_at to known_from; negative if clocks differ.", "s"
        ),
        *(FEED, PLAN),
    ),
)

VIEWS: Final = (
    EVENT_CLAIMS,
    *(UPCOMING_EVENTS, RESCHEDULES, CATEGORY_STATS, CANCELLATION_STATS),
    *(CHANGES, TODAY, DETECTION_LATENCY),
)
"""In the order in which they are made: a view may use earlier ones."""


_LAST_PULL_AT: Final = timestamp(
    "last_pull_at", "Last pull of events at or before ts; NULL before the first pull."
)
_COVERED: Final = {column.name: column for column in COVERAGE.columns}

EVENTS_AS_OF: Final = Table(
    "events_as_of",
    "one row per event known at ts, as it was known then",
    ("event_id",),
    (
        *(EVENT_ID, *CONTENT, *DATING),
        timestamp("first_seen_at", "First observation; NULL if only claimed."),
        timestamp(
            "missing_since", "Start of its absence from complete pulls, as of ts; otherwise NULL."
        ),
        *(CHANGED_AT, VERSION, *UNKNOWN, _LAST_PULL_AT),
    ),
    call="events_as_of(ts, basis := 'observed')",
)
UPCOMING_AS_OF: Final = Table(
    "upcoming_as_of",
    "one row per event that was upcoming at ts, as it was known then",
    ("event_id",),
    UPCOMING_EVENTS.columns,
    call="upcoming_as_of(ts)",
)
COINS_AS_OF: Final = Table(
    "coins_as_of",
    "one row per coin of any complete pull by ts, with the rank and counts of the last; symbol and "
    "name are current",
    ("coin",),
    (
        *(COIN, SYMBOL, COIN_NAME, RANK, TRACKED, *COIN_COUNTERS),
        Column("listed", "BOOLEAN", "Whether that pull shows the coin; NULL if it proves nothing."),
        *(MISSING_SINCE, OBSERVED_AT),
    ),
    call="coins_as_of(ts)",
)
UNIVERSE: Final = Table(
    "universe",
    "one row per coin listed at ts, by rank, up to rank top",
    ("coin",),
    (COIN, SYMBOL, COIN_NAME, RANK, TRACKED),
    call="universe(ts, top := NULL)",
)
EVENT_COINS_AS_OF: Final = Table(
    "event_coins_as_of",
    "one row per event known at ts and coin linked to it then; symbol and name are current",
    ("event_id", "coin"),
    (EVENT_ID, COIN, SYMBOL, COIN_NAME, RANK),
    call="event_coins_as_of(ts)",
)
KNOWN_BEFORE: Final = Table(
    "known_before",
    "one row per event with an exact last known date, as it was known at known_at",
    ("event_id",),
    (
        *EVENTS_AS_OF.columns,
        timestamp("known_at", "date_final minus lead."),
        timestamp("date_final", "Last known date."),
    ),
    call="known_before(lead)",
)
CHANGES_SINCE: Final = Table(
    "changes_since",
    "one row per observed version that became known after ts, and kind of change",
    CHANGES.key,
    CHANGES.columns,
    call="changes_since(ts)",
)
COVERAGE_AT: Final = Table(
    "coverage_at",
    "one row per feed, plan, window and filters: the last complete pull at or before ts. A "
    "window that moves with the day has one row",
    ("batch_id",),
    (
        *(_COVERED[name] for name in ("feed", "plan", "lower", "upper", "coins", "categories")),
        *(_COVERED[name] for name in ("since", "observed_at", "content_at")),
        Column("age_hours", "DOUBLE", "Age of the pull at ts.", "hours"),
        *(_COVERED[name] for name in ("rows", "batch_id")),
    ),
    call="coverage_at(ts)",
)
COIN_LOOKUP: Final = Table(
    "coin_lookup",
    "one row per coin that matches the text, best match first, then by rank; no match is an error",
    ("coin",),
    (
        *(COIN, SYMBOL, COIN_NAME, RANK, TRACKED),
        text("matched_by", "slug, symbol or name, without case; or a prefix of one."),
        Column(
            "is_ambiguous",
            "BOOLEAN",
            "Whether the text matches several coins.",
        ),
    ),
    call="coin_lookup(wanted)",
)

MACROS: Final = (
    *(EVENTS_AS_OF, UPCOMING_AS_OF, COINS_AS_OF, UNIVERSE, EVENT_COINS_AS_OF, KNOWN_BEFORE),
    *(CHANGES_SINCE, COVERAGE_AT, COIN_LOOKUP, SLIP_RATES, DATE_SURVIVAL),
)
INTERNAL_MACROS: Final = tuple(
    f"{INTERNAL_SCHEMA}.{name}"
    for name in (
        *("unknown_fields", "local_of", "zoned", "first_of", "instant", "unreadable"),
        *("coin_text", "coin_kind", "coin_label", "coin_match"),
        *("end_after", "date_precision", "earliest", "begins_by", "latest"),
        *("period_word", "with_year", "displayed_date_full"),
        *("edge", "agreed_period", "date_doubt"),
        "date_exact",
        "days_until",
        *("day_of", "midnight", "shown", "refused"),
        *("first_day", "end_day", "shift", "is_within", "move_kind"),
        *("most_lead", "least_lead"),
        *("was_known", "was_at_risk"),
        *("span", "no_span", "after", "distance_from"),
    )
)
"""Macros that only the views and macros above use."""
AS_OF_MACROS: Final = tuple(
    f"{INTERNAL_SCHEMA}.{name}"
    for name in ("last_pull_at", "absences_as_of", "versions_as_of", "refusal_as_of", "coins_at")
)
"""Macros of tables, which `EVENTS_AS_OF` uses; they are made after the tables."""
