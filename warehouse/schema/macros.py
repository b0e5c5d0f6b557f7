"""The macros of the warehouse, declared like the tables; their SQL is in views/.

Most of them answer as of an instant. It is read by `_almanac.instant`, and refused by
`_almanac.refused` if nothing was pulled before it, or if it is still to come.
"""

from typing import Final

from warehouse.schema.columns import (
    CHANGED_AT,
    COIN,
    COIN_COUNTERS,
    COIN_NAME,
    CONTENT,
    DATING,
    EVENT_ID,
    INSTANT,
    OBSERVED_AT,
    RANK,
    SYMBOL,
    TRACKED,
    UNKNOWN,
    VERSION,
    Column,
)
from warehouse.schema.statistics import SLIP_RATES
from warehouse.schema.tables import COVERAGE, INTERNAL_SCHEMA, Table
from warehouse.schema.views import CHANGES, UPCOMING_EVENTS

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
