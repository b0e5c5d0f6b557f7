"""The views and macros of the warehouse, declared like the tables; their SQL is in views/.

An estimated date is a deadline and is never shown as a date: views have `displayed_date` for
people, and `date_exact`, which is NULL unless the date is known to be exact.
"""

from typing import Final

from warehouse.schema.columns import (
    CHANGED_AT,
    COIN,
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
    FIRST_SEEN_AT,
    IMPACT,
    INSTANT,
    IS_ESTIMATED,
    LATEST,
    RANK,
    SYMBOL,
    TITLE,
    UNKNOWN,
    VERSION,
    Column,
)
from warehouse.schema.tables import INTERNAL_SCHEMA, Table

_BAND: Final = CONTENT_NAMED["impact_band"]
_CATEGORY: Final = (
    Column("category_id", "VARCHAR", "As in categories; NULL for a name that is not there."),
    Column("category", "VARCHAR", "Name of the category."),
)
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
RESCHEDULES: Final = Table(
    "reschedules",
    "one row per version of an event that changed its date",
    ("event_id", "version"),
    (
        *(EVENT_ID, TITLE),
        Column("version", "INTEGER", "The version that has the new date."),
        Column("known_from", INSTANT, "When the new date became known.", "UTC"),
        Column("old_displayed_date", "VARCHAR", "The date as shown before."),
        Column("new_displayed_date", "VARCHAR", "The date as shown after."),
        Column("old_date_exact", INSTANT, "The date before; NULL unless exact.", "UTC"),
        Column("new_date_exact", INSTANT, "The date after; NULL unless exact.", "UTC"),
        Column(
            "shift_days",
            "DOUBLE",
            "How far it moved, later is positive: the date if both are exact, the deadline if "
            "both are estimated, else NULL.",
            "days",
        ),
    ),
)
CATEGORY_STATS: Final = Table(
    "category_stats",
    "one row per category of any event",
    ("category",),
    (
        *_CATEGORY,
        Column("events", "BIGINT", "All its events.", "events"),
        Column("upcoming", "BIGINT", "Those in upcoming_events.", "events"),
        Column("estimated", "BIGINT", "Those whose date is estimated.", "events"),
        Column("rescheduled", "BIGINT", "Those that were ever rescheduled.", "events"),
        Column("mean_impact", "DOUBLE", "Mean of the impact scores that are known.", "0 to 10"),
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
CANCELLATION_STATS: Final = Table(
    "cancellation_stats",
    "one row per category of any event",
    ("category",),
    (
        *_CATEGORY,
        Column("events", "BIGINT", "All its events.", "events"),
        Column("cancelled", "BIGINT", "Those that were cancelled.", "events"),
        Column("share", "DOUBLE", "Share of its events that were cancelled.", "0 to 1"),
    ),
)
ANNOUNCEMENT_LEAD_TIMES: Final = Table(
    "announcement_lead_times",
    "one row per event that has an exact date and was not withdrawn",
    ("event_id",),
    (
        *(EVENT_ID, TITLE, DATE_EXACT, CONTENT_NAMED["created_at"], FIRST_SEEN_AT),
        Column(
            "lead_days",
            "DOUBLE",
            "From created_at or first_seen_at, whichever is earlier, to the date.",
            "days",
        ),
    ),
)
EVENTS_AS_OF: Final = Table(
    "events_as_of",
    "one row per event known at an instant, as it was known then",
    ("event_id",),
    (
        *(EVENT_ID, *CONTENT, *DATING, FIRST_SEEN_AT),
        Column(
            "missing_since",
            INSTANT,
            "Since when complete pulls that should show it had not; NULL if they did, or if it is "
            "only claimed.",
            "UTC",
        ),
        *(CHANGED_AT, VERSION, *UNKNOWN),
    ),
    call="events_as_of(ts, basis := 'observed')",
)

VIEWS: Final = (
    *(UPCOMING_EVENTS, RESCHEDULES, CATEGORY_STATS, COIN_CALENDAR),
    *(CANCELLATION_STATS, ANNOUNCEMENT_LEAD_TIMES),
)
"""In the order in which they are made: a view may use earlier ones."""
MACROS: Final = (EVENTS_AS_OF,)
INTERNAL_MACROS: Final = tuple(
    f"{INTERNAL_SCHEMA}.{name}"
    for name in (
        *("instant", "end_after", "date_precision", "earliest", "latest"),
        "displayed_date_full",
        "date_exact",
        "days_until",
    )
)
"""Macros that only the views and macros above use."""
