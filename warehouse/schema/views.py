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
    Column("category_id", "VARCHAR", "As in categories; NULL for an unknown name."),
    Column("category", "VARCHAR", "Name of the category."),
)
_EVENTS: Final = Column("events", "BIGINT", "All events.", "events")
_WATCHED: Final = Column(
    "watched",
    "BIGINT",
    "Of events, those scheduled and not over at their first observation.",
    "events",
)
_DUE: Final = Column(
    "due",
    "BIGINT",
    "Of watched, those whose first known date was over by the last complete pull of events.",
    "events",
)

RESCHEDULES: Final = Table(
    "reschedules",
    "one row per version with another date, end or period than the previous version",
    ("event_id", "version"),
    (
        *(EVENT_ID, TITLE),
        Column("version", "INTEGER", "Version with the new date."),
        Column("known_from", INSTANT, "Time at which the new date became known.", "UTC"),
        Column(
            "kind",
            "VARCHAR",
            "end_only: the start is the same. time_only: another time of the same day, or "
            "another date in the same period. refined, loosened: another precision, within or "
            "beyond the old period. slipped, pulled_in: any other move to later or earlier, "
            "including a moved deadline.",
        ),
        Column("old_displayed_date", "VARCHAR", "Displayed date before."),
        Column("new_displayed_date", "VARCHAR", "Displayed date after."),
        Column("old_displayed_date_full", "VARCHAR", "Displayed date before, with its year."),
        Column("new_displayed_date_full", "VARCHAR", "Displayed date after, with its year."),
        Column("old_date_exact", INSTANT, "Date before; NULL unless exact.", "UTC"),
        Column("new_date_exact", INSTANT, "Date after; NULL unless exact.", "UTC"),
        Column("old_date_precision", "VARCHAR", "date_precision before."),
        Column("new_date_precision", "VARCHAR", "date_precision after."),
        Column("old_earliest", INSTANT, "earliest before; NULL for a deadline.", "UTC"),
        Column("new_earliest", INSTANT, "earliest after; NULL for a deadline.", "UTC"),
        Column("old_latest", INSTANT, "latest before.", "UTC"),
        Column("new_latest", INSTANT, "latest after.", "UTC"),
        Column(
            "least_shift_days",
            "DOUBLE",
            "Least shift of the start, positive for later: from the last possible day before to "
            "the first possible day after, in whole UTC days; exact between two times. A "
            "deadline starts at known_from.",
            "days",
        ),
        Column(
            "most_shift_days",
            "DOUBLE",
            "Greatest shift of the start, as above.",
            "days",
        ),
        Column(
            "shift_days",
            "DOUBLE",
            "Shift of the start if it is known: least and most are equal, or both dates are "
            "deadlines or periods of one kind; otherwise NULL.",
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
        Column("estimated", "BIGINT", "Of events, those with an estimated date.", "events"),
        Column("scored", "BIGINT", "Of events, those with a known score.", "events"),
        Column(
            "mean_impact",
            "DOUBLE",
            "Mean score of scored events, past and future, of any status.",
            "0 to 10",
        ),
        _WATCHED,
        Column(
            "rescheduled",
            "BIGINT",
            "Of watched, those in reschedules, also before they are due.",
            "events",
        ),
        Column("slipped", "BIGINT", "Of watched, those that slipped.", "events"),
        _DUE,
        Column("rescheduled_due", "BIGINT", "Of due, those in reschedules.", "events"),
        Column(
            "rescheduled_share",
            "DOUBLE",
            "rescheduled_due / due.",
            "0 to 1",
        ),
    ),
)
CANCELLATION_STATS: Final = Table(
    "cancellation_stats",
    "one row per category; the category NULL has only cancelled events that were never seen",
    ("category",),
    (
        *(*_CATEGORY, _EVENTS, _WATCHED, _DUE),
        Column("cancelled", "BIGINT", "Of due, the cancelled ones.", "events"),
        Column("withdrawn", "BIGINT", "Of due, the withdrawn ones.", "events"),
        Column("missing", "BIGINT", "Of due, the scheduled and missing ones.", "events"),
        Column(
            "share",
            "DOUBLE",
            "cancelled / due.",
            "0 to 1",
        ),
        Column(
            "cancelled_not_due",
            "BIGINT",
            "Of watched, cancelled but not due; not in the share.",
            "events",
        ),
        Column(
            "cancelled_unwatched",
            "BIGINT",
            "Of events, cancelled but not watched; not in the share.",
            "events",
        ),
        Column(
            "cancelled_unseen",
            "BIGINT",
            "Cancelled events that were never observed as scheduled; not in the share. For the "
            "category NULL: events known only from cancellations, cancelled after the first "
            "complete pull, including those outside the pulls' coverage.",
            "events",
        ),
    ),
)
ANNOUNCEMENT_LEAD_TIMES: Final = Table(
    "announcement_lead_times",
    "one row per event with a known announcement",
    ("event_id",),
    (
        *(EVENT_ID, TITLE),
        Column("status", "VARCHAR", "Current status."),
        Column(
            "basis",
            "VARCHAR",
            "observed: created while watched, with its first observed date. claimed: not updated "
            "before the first observation, so its announced date is the same.",
        ),
        *(CONTENT_NAMED["created_at"], FIRST_SEEN_AT),
        Column("announced_displayed_date", "VARCHAR", "Announced date with its year."),
        Column("announced_date_exact", INSTANT, "Announced date; NULL unless exact.", "UTC"),
        Column("announced_precision", "VARCHAR", "Announced date_precision."),
        Column("announced_earliest", INSTANT, "Announced earliest.", "UTC"),
        Column("announced_latest", INSTANT, "Announced latest.", "UTC"),
        Column(
            "least_lead_days",
            "DOUBLE",
            "From created_at to the first possible day, in whole UTC days; exact for a time of "
            "day. 0 for a deadline that was not over.",
            "days",
        ),
        Column("most_lead_days", "DOUBLE", "From created_at to the last possible day.", "days"),
        Column(
            "lead_days", "DOUBLE", "From created_at to an exact date; NULL if estimated.", "days"
        ),
        Column("moved", "BOOLEAN", "Whether it is in reschedules."),
    ),
)


def _outcome(name: str, meaning: str) -> tuple[Column, Column]:
    """Return the columns of a count and of its share."""
    return (
        Column(name, "BIGINT", f"Of cohort, {meaning}", "events"),
        Column(
            f"{name}_share",
            "DOUBLE",
            f"{name} / cohort.",
            "0 to 1",
        ),
    )


_OUTCOMES: Final = (
    _outcome("slipped", "those that slipped within the horizon."),
    _outcome("pulled_in", "those that were pulled in."),
    _outcome("refined", "those that were refined."),
    _outcome("loosened", "those that were loosened."),
    _outcome("cancelled", "those that were cancelled."),
    _outcome("withdrawn", "those that were withdrawn."),
    _outcome("held", "those with none of these changes, missing ones included."),
)
SLIP_RATES: Final = Table(
    "slip_rates",
    "one row per category, distance band and precision of events that were upcoming at "
    "cohort_from: their changes within the horizon",
    ("category", "distance_from", "date_precision"),
    (
        Column(
            "category",
            "VARCHAR",
            "Category as known at cohort_from; NULL is every event.",
        ),
        Column("distance_from", "INTEGER", "First day of the distance band.", "days"),
        Column(
            "distance",
            "VARCHAR",
            "Whole UTC days from cohort_from to the date, or to the last day of an estimated "
            "date: 0-7, 8-30, 31-90, 91-365, over 365.",
        ),
        Column("date_precision", "VARCHAR", "As known at cohort_from."),
        Column(
            "cohort",
            "BIGINT",
            "Events that were scheduled, not missing and not over at cohort_from. An event can "
            "count in several kinds.",
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
COIN_CALENDAR: Final = Table(
    "coin_calendar",
    "one row per coin and scheduled event that is not missing, past or future",
    ("coin", "event_id"),
    (
        *(COIN, SYMBOL, COIN_NAME, RANK, EVENT_ID, TITLE, DISPLAYED_DATE),
        *(DISPLAYED_DATE_FULL, DATE_EXACT, DATE_PRECISION, EARLIEST, LATEST),
        Column("is_upcoming", "BOOLEAN", "Whether it is not over."),
        *(IS_ESTIMATED, IMPACT, _BAND),
    ),
)
_BEFORE_AND_AFTER: Final = (
    Column(
        "old_value",
        "VARCHAR",
        "Displayed date, score (or band) or status before; NULL for a first version and for "
        "other kinds.",
    ),
    Column(
        "new_value",
        "VARCHAR",
        "Displayed date, score (or band) or status after; for other kinds, the names of the "
        "changed fields.",
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
        Column("version", "INTEGER", "Version of the change."),
        Column("known_from", INSTANT, "Time at which the change became known.", "UTC"),
        Column("kind", "VARCHAR", "One of the version's change_kinds."),
        *(*_BEFORE_AND_AFTER, IMPACT, _BAND),
    ),
)
MISSING_EVENTS: Final = Table(
    "missing_events",
    "one row per event that is missing from complete pulls",
    ("event_id",),
    (*_EXACT, MISSING_SINCE, LAST_SEEN_AT, IMPACT, _BAND),
)
TODAY: Final = Table(
    "today",
    "one row per scheduled event with an exact date that takes place on the current UTC day",
    ("event_id",),
    (*_EXACT, IMPACT, _BAND),
)
UNDER_WAY: Final = Table(
    "under_way",
    "one row per scheduled event with an exact date that has begun and is not over",
    ("event_id",),
    (*_EXACT, IMPACT, _BAND),
)
CLUSTERS: Final = Table(
    "clusters",
    "one row per coin and UTC day with two or more upcoming events",
    ("coin", "day"),
    (
        *(COIN, SYMBOL, COIN_NAME),
        Column("day", "DATE", "The day.", "UTC day"),
        Column("events", "BIGINT", "Events that begin on the day.", "events"),
        Column("sum_impact", "DOUBLE", "Sum of the known scores.", "0 to 10 each"),
        Column("max_impact", "DOUBLE", "Highest known score.", "0 to 10"),
        Column("event_ids", TEXTS, "Event identifiers, sorted."),
    ),
)
SCORE_HISTORY: Final = Table(
    "score_history",
    "one row per observed version that set or changed the score or band",
    ("event_id", "version"),
    (
        *(EVENT_ID, TITLE),
        Column("version", "INTEGER", "Version with the new score."),
        Column("old_impact", "DOUBLE", "Score before, or NULL.", "0 to 10"),
        IMPACT,
        Column("old_impact_band", "VARCHAR", "Band before, or NULL."),
        _BAND,
        Column("known_from", INSTANT, "Time at which the score became known.", "UTC"),
        Column(
            "known_to",
            INSTANT,
            "Time at which the next score became known, exclusive; NULL for the current one.",
            "UTC",
        ),
        Column(
            "days_before",
            "DOUBLE",
            "Days from known_from to the date known then; whole UTC days if the date is a day, "
            "NULL unless exact.",
            "days",
        ),
    ),
)
DETECTION_LATENCY: Final = Table(
    "detection_latency",
    "one row per observed version with a known time of change at the service",
    ("event_id", "version"),
    (
        EVENT_ID,
        Column("version", "INTEGER", "Version of the change."),
        Column("kind", "VARCHAR", "created (while watched), cancelled or updated."),
        Column(
            "happened_at",
            INSTANT,
            "created_at, cancelled_at or updated_at of the service; of several updates the last.",
            "UTC",
        ),
        Column("known_from", INSTANT, "When we knew it.", "UTC"),
        Column(
            "latency_s", "DOUBLE", "From happened_at to known_from; negative if clocks differ.", "s"
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
    "Last pull of events at or before ts; NULL before the first pull.",
    "UTC",
)
_COVERED: Final = {column.name: column for column in COVERAGE.columns}

EVENTS_AS_OF: Final = Table(
    "events_as_of",
    "one row per event known at ts, as it was known then",
    ("event_id",),
    (
        *(EVENT_ID, *CONTENT, *DATING),
        Column("first_seen_at", INSTANT, "First observation; NULL if only claimed.", "UTC"),
        Column(
            "missing_since",
            INSTANT,
            "Start of its absence from complete pulls, as of ts; otherwise NULL.",
            "UTC",
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
    "one row per coin known at ts, as last observed then; symbol and name are current",
    ("coin",),
    (*(COIN, SYMBOL, COIN_NAME, RANK, TRACKED), *COIN_COUNTERS, OBSERVED_AT),
    call="coins_as_of(ts)",
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
        Column("known_at", INSTANT, "date_final minus lead.", "UTC"),
        Column("date_final", INSTANT, "Last known date.", "UTC"),
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
        Column(
            "matched_by",
            "VARCHAR",
            "slug, symbol or name, without case; or a prefix of one.",
        ),
        Column(
            "is_ambiguous",
            "BOOLEAN",
            "Whether the text matches several coins. Then write, for example, slug:bitcoin.",
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
