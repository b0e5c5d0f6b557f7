"""The views of the warehouse, declared like the tables; their SQL is in views/.

An estimated date is a deadline and is never shown as a date: views have `displayed_date` for
people, and `date_exact`, which is NULL unless the date is known to be exact.
"""

from typing import Final

from warehouse.schema.columns import (
    COIN,
    COIN_NAME,
    CONTENT_NAMED,
    DATE_EXACT,
    DATE_PRECISION,
    DISPLAYED_DATE,
    DISPLAYED_DATE_FULL,
    EARLIEST,
    EVENT_ID,
    FEED,
    IMPACT,
    INSTANT,
    IS_ESTIMATED,
    LAST_SEEN_AT,
    LATEST,
    MISSING_SINCE,
    PLAN,
    RANK,
    SYMBOL,
    TEXTS,
    TITLE,
    Column,
)
from warehouse.schema.statistics import (
    ANNOUNCEMENT_LEAD_TIMES,
    CANCELLATION_STATS,
    CATEGORY_STATS,
    RESCHEDULES,
)
from warehouse.schema.tables import Table

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
