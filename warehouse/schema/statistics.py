"""Views and macros on how dates move and what becomes of events; their SQL is in views/.

Belongs here: moves, shares, lead times. Does not: the events themselves (views). A share has its
denominator in a column beside it. An event in several categories counts in each of them.
"""

from typing import Final

from warehouse.schema.columns import (
    CONTENT_NAMED,
    EVENT_ID,
    FIRST_SEEN_AT,
    INSTANT,
    TITLE,
    Column,
)
from warehouse.schema.tables import Table

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
