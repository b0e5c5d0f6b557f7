"""The views and macros of the warehouse, declared like the tables; their SQL is in views/.

An estimated date is a deadline and is never shown as a date: views have `displayed_date` for
people, and `date_exact`, which is NULL unless the date is known to be exact. A share has its
denominator in a column beside it. An event in several categories counts in each of them.

Most macros answer as of a timestamp. `_almanac.instant` reads it; `_almanac.refused` refuses a
timestamp before the first pull or in the future.
"""

from typing import Final

from warehouse.schema.columns import (
    CHANGED_AT,
    COIN,
    COIN_COUNTERS,
    COIN_NAME,
    CONTENT,
    CONTENT_NAMED,
    DATE_EXACT,
    DATE_PRECISION,
    DATING,
    DISPLAYED_DATE,
    DISPLAYED_DATE_FULL,
    EARLIEST,
    EVENT_ID,
    FEED,
    FIRST_SEEN_AT,
    IMPACT,
    INSTANT,
    IS_ESTIMATED,
    LAST_SEEN_AT,
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
)
from warehouse.schema.tables import COVERAGE, INTERNAL_SCHEMA, Table

_CATEGORY: Final = (
    Column("category_id", "VARCHAR", "As in categories; NULL for a name that is not there."),
    Column("category", "VARCHAR", "Name of the category."),
)
_EVENTS: Final = Column("events", "BIGINT", "All its events, whenever first seen.", "events")
_WATCHED: Final = Column(
    "watched",
    "BIGINT",
    "Of its events, those that were scheduled and not over when we first saw them. Of the others "
    "only those that were not cancelled were ever shown.",
    "events",
)
_DUE: Final = Column(
    "due",
    "BIGINT",
    "Of watched, those whose date as first known was over by the last complete pull of events. The "
    "others may still be moved or cancelled.",
    "events",
)

RESCHEDULES: Final = Table(
    "reschedules",
    "one row per version with another date, end or interval than the version before it; versions "
    "that were known at no time (known_from = known_to) do not count",
    ("event_id", "version"),
    (
        *(EVENT_ID, TITLE),
        Column("version", "INTEGER", "The version that has the new date."),
        Column("known_from", INSTANT, "When the new date became known.", "UTC"),
        Column(
            "kind",
            "VARCHAR",
            "end_only: the start is the same. time_only: another time of the same day, or another "
            "date in the same period. refined or loosened: another precision, and the event may "
            "begin only within, or also outside, the time in which it could begin before. slipped "
            "or pulled_in: any other move to later or to earlier, between dates of another "
            "precision by their ends. A deadline that moves is slipped or pulled_in, though a "
            "later deadline contains an earlier one.",
        ),
        Column("old_displayed_date", "VARCHAR", "The date as shown before."),
        Column("new_displayed_date", "VARCHAR", "The date as shown after."),
        Column("old_displayed_date_full", "VARCHAR", "The same before, with its year."),
        Column("new_displayed_date_full", "VARCHAR", "The same after, with its year."),
        Column("old_date_exact", INSTANT, "The date before; NULL unless exact.", "UTC"),
        Column("new_date_exact", INSTANT, "The date after; NULL unless exact.", "UTC"),
        Column("old_date_precision", "VARCHAR", "date_precision before."),
        Column("new_date_precision", "VARCHAR", "date_precision after."),
        Column("old_earliest", INSTANT, "earliest before; NULL before a deadline.", "UTC"),
        Column("new_earliest", INSTANT, "earliest after; NULL before a deadline.", "UTC"),
        Column("old_latest", INSTANT, "latest before, with the end of the date.", "UTC"),
        Column("new_latest", INSTANT, "latest after, with the end of the date.", "UTC"),
        Column(
            "least_shift_days",
            "DOUBLE",
            "How far the start moved at the least, later is positive: between the first possible "
            "day now and the last one before, in whole UTC days; between two instants exactly. "
            "Before a deadline the first possible day is that of known_from, since it had not "
            "begun then. NULL only without a date.",
            "days",
        ),
        Column(
            "most_shift_days",
            "DOUBLE",
            "How far it moved at the most: between the last possible day now and the first one "
            "before.",
            "days",
        ),
        Column(
            "shift_days",
            "DOUBLE",
            "How far it moved, if known: least and most are equal, or else two deadlines, or the "
            "starts of two periods of one kind. NULL otherwise: give beside a mean how many were.",
            "days",
        ),
    ),
)
CATEGORY_STATS: Final = Table(
    "category_stats",
    "one row per category of any event",
    ("category",),
    (
        *(*_CATEGORY, _EVENTS),
        Column("upcoming", "BIGINT", "Of events, those in upcoming_events.", "events"),
        Column("estimated", "BIGINT", "Of events, those whose date is estimated.", "events"),
        Column("scored", "BIGINT", "Of events, those whose impact score is known.", "events"),
        Column(
            "mean_impact",
            "DOUBLE",
            "Mean score of scored: of events past and to come, whatever their status; NULL if that "
            "is 0.",
            "0 to 10",
        ),
        _WATCHED,
        Column(
            "rescheduled",
            "BIGINT",
            "Of watched, those with any row in reschedules; also before they are due, so in no "
            "share.",
            "events",
        ),
        Column("slipped", "BIGINT", "Of watched, those with a row of kind slipped.", "events"),
        _DUE,
        Column("rescheduled_due", "BIGINT", "Of due, those with any row in reschedules.", "events"),
        Column(
            "rescheduled_share",
            "DOUBLE",
            "rescheduled_due / due: of the watched events whose date as first known is over; NULL "
            "if that is 0.",
            "0 to 1",
        ),
    ),
)
CANCELLATION_STATS: Final = Table(
    "cancellation_stats",
    "one row per category of any event; the category NULL is there if an event was cancelled that "
    "was never seen, and has such events alone",
    ("category",),
    (
        *(*_CATEGORY, _EVENTS, _WATCHED, _DUE),
        Column("cancelled", "BIGINT", "Of due, those that were cancelled.", "events"),
        Column("withdrawn", "BIGINT", "Of due, those that were withdrawn.", "events"),
        Column("missing", "BIGINT", "Of due, those that are scheduled and missing.", "events"),
        Column(
            "share",
            "DOUBLE",
            "cancelled / due: of the watched events whose date as first known is over; NULL if "
            "that is 0.",
            "0 to 1",
        ),
        Column(
            "cancelled_not_due",
            "BIGINT",
            "Of watched, those that were cancelled and are not due yet; in no share.",
            "events",
        ),
        Column(
            "cancelled_unwatched",
            "BIGINT",
            "Of events, those that were cancelled and not watched; in no share.",
            "events",
        ),
        Column(
            "cancelled_unseen",
            "BIGINT",
            "Events that were never observed as scheduled, as if announced and cancelled between "
            "two pulls; in no share. Of cancelled_unwatched, those that were cancelled when first "
            "seen. Where category is NULL: events that cancellations lists, cancelled after the "
            "first complete pull of events, of which nothing else was ever seen; those outside of "
            "what the pulls cover are among them.",
            "events",
        ),
    ),
)
ANNOUNCEMENT_LEAD_TIMES: Final = Table(
    "announcement_lead_times",
    "one row per event of which it is known how it was announced",
    ("event_id",),
    (
        *(EVENT_ID, TITLE),
        Column("status", "VARCHAR", "As now known: scheduled, cancelled or withdrawn."),
        Column(
            "basis",
            "VARCHAR",
            "observed: it was created while we watched, and its date is as first observed. "
            "claimed: it was not updated before we first saw it, so by event_claims its date was "
            "the same.",
        ),
        *(CONTENT_NAMED["created_at"], FIRST_SEEN_AT),
        Column("announced_displayed_date", "VARCHAR", "The date as announced, with its year."),
        Column("announced_date_exact", INSTANT, "As announced; NULL unless exact.", "UTC"),
        Column("announced_precision", "VARCHAR", "date_precision as announced."),
        Column("announced_earliest", INSTANT, "earliest as announced.", "UTC"),
        Column("announced_latest", INSTANT, "latest as announced.", "UTC"),
        Column(
            "least_lead_days",
            "DOUBLE",
            "From created_at to the first day on which it could begin, in whole UTC days; to an "
            "instant exactly. An estimated event is not taken to begin before it was announced: 0 "
            "before a deadline, unless that was over.",
            "days",
        ),
        Column("most_lead_days", "DOUBLE", "The same to the last day.", "days"),
        Column("lead_days", "DOUBLE", "The same to an exact date; NULL if estimated.", "days"),
        Column("moved", "BOOLEAN", "Whether its date has changed since: it is in reschedules."),
    ),
)


def _outcome(name: str, meaning: str) -> tuple[Column, Column]:
    """Return the columns of a count and of its share."""
    return (
        Column(name, "BIGINT", f"Of cohort, {meaning}", "events"),
        Column(
            f"{name}_share",
            "DOUBLE",
            f"{name} / cohort: of the events upcoming at cohort_from.",
            "0 to 1",
        ),
    )


_OUTCOMES: Final = (
    _outcome("slipped", "those with a move of kind slipped in the time."),
    _outcome("pulled_in", "those with a move of kind pulled_in."),
    _outcome("refined", "those with a move of kind refined."),
    _outcome("loosened", "those with a move of kind loosened."),
    _outcome("cancelled", "those that were cancelled in the time."),
    _outcome("withdrawn", "those that were withdrawn."),
    _outcome("held", "those with none of these; time or end may have changed, or it is missing."),
)
SLIP_RATES: Final = Table(
    "slip_rates",
    "one row per category, distance band and precision of the events that were upcoming at an "
    "instant: what became known of them within a horizon, which ends at or before the last "
    "complete pull of events",
    ("category", "distance_from", "date_precision"),
    (
        Column(
            "category",
            "VARCHAR",
            "Category as known at cohort_from; an event counts in each of its own. NULL is every "
            "event, also without one.",
        ),
        Column("distance_from", "INTEGER", "First day of the distance band.", "days"),
        Column(
            "distance",
            "VARCHAR",
            "Whole UTC days from cohort_from to the exact date, or the last day of an estimated "
            "one: 0-7 (also for an event in progress), 8-30, 31-90, 91-365, over 365.",
        ),
        Column("date_precision", "VARCHAR", "As known at cohort_from."),
        Column(
            "cohort",
            "BIGINT",
            "The events: scheduled, not missing and not over at cohort_from, as known then. One "
            "that moved twice counts in both kinds.",
            "events",
        ),
        *(count for count, _ in _OUTCOMES),
        *(share for _, share in _OUTCOMES),
    ),
    call="slip_rates(cohort_from, horizon)",
)
"""`horizon` is an interval, or a number of days."""


_COINS: Final = CONTENT_NAMED["coins"]
_BAND: Final = CONTENT_NAMED["impact_band"]
_DAYS_UNTIL: Final = Column(
    "days_until",
    "DOUBLE",
    "From now to the date: whole UTC days if the date is a day (0 is today), negative for an event "
    "in progress; NULL unless the date is exact.",
    "days",
)

UPCOMING_EVENTS: Final = Table(
    "upcoming_events",
    "one row per event that is scheduled, not missing, and not over at now()",
    ("event_id",),
    (
        *(EVENT_ID, CONTENT_NAMED["slug"], TITLE, DISPLAYED_DATE, DISPLAYED_DATE_FULL),
        *(DATE_EXACT, DATE_PRECISION, EARLIEST, LATEST, _DAYS_UNTIL, IS_ESTIMATED),
        *(CONTENT_NAMED["categories"], CONTENT_NAMED["coins"], IMPACT, _BAND),
        CONTENT_NAMED["source_url"],
    ),
)
COIN_CALENDAR: Final = Table(
    "coin_calendar",
    "one row per coin and scheduled event that is not missing, past ones too",
    ("coin", "event_id"),
    (
        *(COIN, SYMBOL, COIN_NAME, RANK, EVENT_ID, TITLE, DISPLAYED_DATE),
        *(DISPLAYED_DATE_FULL, DATE_EXACT, DATE_PRECISION, EARLIEST, LATEST),
        Column("is_upcoming", "BOOLEAN", "Whether it is not over at now()."),
        *(IS_ESTIMATED, IMPACT, _BAND),
    ),
)
_BEFORE_AND_AFTER: Final = (
    Column(
        "old_value",
        "VARCHAR",
        "Before: the displayed date, the score or else the band, or the status; NULL for a first "
        "version and for other kinds.",
    ),
    Column(
        "new_value",
        "VARCHAR",
        "After: as old_value; for other kinds the names of the changed fields.",
    ),
)
_EXACT: Final = (
    *(EVENT_ID, TITLE, _COINS, DISPLAYED_DATE_FULL, DATE_EXACT, DATE_PRECISION),
    *(EARLIEST, LATEST),
)
CHANGES: Final = Table(
    "changes",
    "one row per observed version and kind of change",
    ("event_id", "version", "kind"),
    (
        *(EVENT_ID, TITLE, _COINS),
        Column("version", "INTEGER", "The version that the change made."),
        Column("known_from", INSTANT, "When the change became known.", "UTC"),
        Column("kind", "VARCHAR", "One of change_kinds of the version."),
        *(*_BEFORE_AND_AFTER, IMPACT, _BAND),
    ),
)
MISSING_EVENTS: Final = Table(
    "missing_events",
    "one row per event that complete pulls should show and do not",
    ("event_id",),
    (*_EXACT, MISSING_SINCE, LAST_SEEN_AT, IMPACT, _BAND),
)
TODAY: Final = Table(
    "today",
    "one row per scheduled event with an exact date that is not missing and takes place on the UTC "
    "day of now(), also if it is over or began before",
    ("event_id",),
    (*_EXACT, IMPACT, _BAND),
)
UNDER_WAY: Final = Table(
    "under_way",
    "one row per scheduled event with an exact date that is not missing, has begun and is not over "
    "at now()",
    ("event_id",),
    (*_EXACT, IMPACT, _BAND),
)
CLUSTERS: Final = Table(
    "clusters",
    "one row per coin and UTC day on which two or more of its upcoming events with an exact date "
    "begin",
    ("coin", "day"),
    (
        *(COIN, SYMBOL, COIN_NAME),
        Column("day", "DATE", "The day.", "UTC day"),
        Column("events", "BIGINT", "Its events that begin on the day.", "events"),
        Column("sum_impact", "DOUBLE", "Sum of their scores that are known.", "0 to 10 each"),
        Column("max_impact", "DOUBLE", "Highest of their scores that are known.", "0 to 10"),
        Column("event_ids", TEXTS, "Their identifiers, sorted."),
    ),
)
SCORE_HISTORY: Final = Table(
    "score_history",
    "one row per observed version that gave or changed the score or the band of its event",
    ("event_id", "version"),
    (
        *(EVENT_ID, TITLE),
        Column("version", "INTEGER", "The version that has the new score."),
        Column("old_impact", "DOUBLE", "The score before; NULL if there was none.", "0 to 10"),
        IMPACT,
        Column("old_impact_band", "VARCHAR", "The band before; NULL if there was none."),
        _BAND,
        Column("known_from", INSTANT, "When the score became known.", "UTC"),
        Column("known_to", INSTANT, "When the next one did; exclusive, NULL is current.", "UTC"),
        Column(
            "days_before",
            "DOUBLE",
            "From known_from to the date as known then: whole UTC days if the date is a day; NULL "
            "unless it was exact.",
            "days",
        ),
    ),
)
DETECTION_LATENCY: Final = Table(
    "detection_latency",
    "one row per observed version whose instant at the service is known",
    ("event_id", "version"),
    (
        EVENT_ID,
        Column("version", "INTEGER", "The version that the change made."),
        Column("kind", "VARCHAR", "created (while it was watched), cancelled or updated."),
        Column(
            "happened_at",
            INSTANT,
            "By the service: created_at, cancelled_at, or updated_at, which is that of the last of "
            "several updates.",
            "UTC",
        ),
        Column("known_from", INSTANT, "When we knew it.", "UTC"),
        Column(
            "latency_s", "DOUBLE", "From happened_at to known_from; negative: clocks differ.", "s"
        ),
        *(FEED, PLAN),
    ),
)

VIEWS: Final = (
    *(UPCOMING_EVENTS, RESCHEDULES, CATEGORY_STATS, COIN_CALENDAR),
    *(CANCELLATION_STATS, ANNOUNCEMENT_LEAD_TIMES),
    *(CHANGES, MISSING_EVENTS, TODAY, UNDER_WAY, CLUSTERS, SCORE_HISTORY, DETECTION_LATENCY),
)
"""In the order in which they are made: a view may use earlier ones."""


_LAST_PULL_AT: Final = Column(
    "last_pull_at",
    INSTANT,
    "When events were last pulled at or before the instant: nothing later is in the answer. NULL "
    "before the first pull.",
    "UTC",
)
_COVERED: Final = {column.name: column for column in COVERAGE.columns}

EVENTS_AS_OF: Final = Table(
    "events_as_of",
    "one row per event known at an instant, as it was known then",
    ("event_id",),
    (
        *(EVENT_ID, *CONTENT, *DATING),
        Column(
            "first_seen_at", INSTANT, "When we first saw it; NULL if it is only claimed.", "UTC"
        ),
        Column(
            "missing_since",
            INSTANT,
            "Since when complete pulls that should show it had not; NULL if they did, or if it is "
            "only claimed.",
            "UTC",
        ),
        *(CHANGED_AT, VERSION, *UNKNOWN, _LAST_PULL_AT),
    ),
    call="events_as_of(ts, basis := 'observed')",
)
UPCOMING_AS_OF: Final = Table(
    "upcoming_as_of",
    "one row per event that was scheduled, not missing, and not over at an instant, as it was "
    "known then",
    ("event_id",),
    UPCOMING_EVENTS.columns,
    call="upcoming_as_of(ts)",
)
COINS_AS_OF: Final = Table(
    "coins_as_of",
    "one row per coin known at an instant, as last observed then; symbol and name are current",
    ("coin",),
    (*(COIN, SYMBOL, COIN_NAME, RANK, TRACKED), *COIN_COUNTERS, OBSERVED_AT),
    call="coins_as_of(ts)",
)
EVENT_COINS_AS_OF: Final = Table(
    "event_coins_as_of",
    "one row per event known at an instant and coin linked to it then; symbol and name are current",
    ("event_id", "coin"),
    (EVENT_ID, COIN, SYMBOL, COIN_NAME, RANK),
    call="event_coins_as_of(ts)",
)
KNOWN_BEFORE: Final = Table(
    "known_before",
    "one row per event whose last known date is exact, as it was known a time before that date; "
    "events that were not known then are absent",
    ("event_id",),
    (
        *EVENTS_AS_OF.columns,
        Column("known_at", INSTANT, "The instant: date_final less the time.", "UTC"),
        Column("date_final", INSTANT, "The date as last known.", "UTC"),
    ),
    call="known_before(lead)",
)
CHANGES_SINCE: Final = Table(
    "changes_since",
    "one row per observed version that became known after an instant and kind of change",
    CHANGES.key,
    CHANGES.columns,
    call="changes_since(ts)",
)
COVERAGE_AT: Final = Table(
    "coverage_at",
    "one row per feed, plan, window and filters: its last complete pull at or before an instant; a "
    "window is the same if its dates are, or if they are as many days from the day of the pull",
    ("batch_id",),
    (
        *(_COVERED[name] for name in ("feed", "plan", "lower", "upper", "coins", "categories")),
        *(_COVERED[name] for name in ("since", "observed_at", "content_at")),
        Column("age_hours", "DOUBLE", "From the pull to the instant.", "hours"),
        *(_COVERED[name] for name in ("rows", "batch_id")),
    ),
    call="coverage_at(ts)",
)
COIN_LOOKUP: Final = Table(
    "coin_lookup",
    "one row per coin that a text names, the best match first, then by rank; an error if there is "
    "none",
    ("coin",),
    (
        *(COIN, SYMBOL, COIN_NAME, RANK, TRACKED),
        Column(
            "matched_by",
            "VARCHAR",
            "What the text is: slug, symbol or name, in any case; or the prefix of one.",
        ),
        Column(
            "is_ambiguous",
            "BOOLEAN",
            "Whether the text is the slug, symbol or name of several coins. Then say which is "
            "meant, as slug:bitcoin.",
        ),
    ),
    call="coin_lookup(wanted)",
)

MACROS: Final = (
    *(EVENTS_AS_OF, UPCOMING_AS_OF, COINS_AS_OF, EVENT_COINS_AS_OF, KNOWN_BEFORE),
    *(CHANGES_SINCE, COVERAGE_AT, COIN_LOOKUP, SLIP_RATES),
)
INTERNAL_MACROS: Final = tuple(
    f"{INTERNAL_SCHEMA}.{name}"
    for name in (
        *("local_of", "zoned", "first_of", "instant", "unreadable"),
        *("coin_text", "coin_kind", "coin_label", "coin_match"),
        *("end_after", "date_precision", "earliest", "begins_by", "latest"),
        "displayed_date_full",
        "date_exact",
        "days_until",
        *("day_of", "midnight", "shown", "refused"),
        *("first_day", "last_day", "shift", "is_within", "move_kind"),
        *("was_known", "was_watched"),
        *("span", "no_span", "after", "distance_from"),
    )
)
"""Macros that only the views and macros above use."""
