"""The tables of the warehouse, declared once: grain, key, and columns with type and meaning.

The declarations define the statements that make the tables (ddl.py), the data dictionary, and the
comments in the published file. Views and macros are in views.py. Timestamps are UTC.
"""

from dataclasses import dataclass, field
from typing import Final

from warehouse.schema.columns import (
    BATCH_ID,
    CHANGED_AT,
    COIN,
    COIN_COUNTERS,
    COIN_NAME,
    CONTENT,
    CONTENT_AT,
    DATING,
    EVENT_ID,
    FEED,
    FIRST_SEEN_AT,
    LAST_SEEN_AT,
    MISSING_SINCE,
    OBSERVED_AT,
    OBSERVED_DATE,
    PLAN,
    RANK,
    SLUG,
    SYMBOL,
    TEXTS,
    TRACKED,
    UNKNOWN,
    VERSION,
    Column,
    count,
    text,
    timestamp,
)

INTERNAL_SCHEMA: Final = "_almanac"
"""The schema of internal tables: `SHOW TABLES` lists the tables of `main` alone."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table, view or table macro. `grain` describes one row; `key` lists the columns that
    identify a row."""

    name: str
    grain: str
    key: tuple[str, ...]
    columns: tuple[Column, ...]
    call: str = ""
    """The call of a macro; empty for tables and views."""
    schema: str = field(default="main", kw_only=True)
    is_view: bool = field(default=False, kw_only=True)
    """Whether it follows from the tables."""

    @property
    def qualified(self) -> str:
        """The name with its schema, as used in statements."""
        return f"{self.schema}.{self.name}"

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)


_COINS: Final = Column("coins", TEXTS, "Coins requested; NULL for all coins.")
_CATEGORIES: Final = Column("categories", TEXTS, "Categories requested; NULL for all categories.")
_SINCE: Final = timestamp("since", "Cancellations requested from this time on.")
_WINDOW: Final = (
    timestamp("lower", "First event date requested; NULL if unbounded."),
    timestamp("upper", "Last event date requested, inclusive; NULL if unbounded."),
)

EVENTS: Final = Table(
    "events",
    "one row per event, as now known",
    ("event_id",),
    (
        *(EVENT_ID, *CONTENT, *DATING, FIRST_SEEN_AT, LAST_SEEN_AT, MISSING_SINCE, CHANGED_AT),
        *(CONTENT_AT, VERSION, *UNKNOWN),
    ),
    is_view=True,
)
KNOWN_BASIS: Final = text("known_basis", "observed in event_versions, claimed in event_claims.")
CHANGE_KINDS: Final = Column("change_kinds", TEXTS, "Kinds of change, e.g. rescheduled.")
_CHANGED_FIELDS: Final = Column(
    "changed_fields", TEXTS, "Columns that differ from the previous version."
)
EVENT_VERSIONS: Final = Table(
    "event_versions",
    "one row per version of an event",
    ("event_id", "version"),
    (
        *(EVENT_ID, *CONTENT, *DATING, *UNKNOWN, FIRST_SEEN_AT, VERSION),
        timestamp("known_from", "Start of this version, inclusive."),
        timestamp(
            "known_to",
            "End of this version, exclusive; NULL for the current one. Equal to known_from if "
            "another version replaced it at the same time.",
        ),
        *(KNOWN_BASIS, CHANGE_KINDS, _CHANGED_FIELDS),
        *(BATCH_ID, FEED, PLAN, CONTENT_AT),
        count(
            "published_seq",
            "Place in the order in which this home published the versions; never NULL, and never "
            "given to another version.",
            "",
        ),
    ),
    is_view=True,
)
EVENT_ABSENCES: Final = Table(
    "event_absences",
    "one row per start or end of an event's absence",
    ("event_id", "changed_at"),
    (
        *(OBSERVED_DATE, EVENT_ID),
        timestamp("changed_at", "Time at which the change became known."),
        timestamp("missing_since", "Start of the absence; NULL if it ended."),
        BATCH_ID,
    ),
)
EVENT_COINS: Final = Table(
    "event_coins",
    "one row per event and coin linked to it, as now known",
    ("event_id", "coin"),
    (EVENT_ID, COIN, SYMBOL, COIN_NAME),
    is_view=True,
)
EVENT_CATEGORIES: Final = Table(
    "event_categories",
    "one row per event and category, as now known",
    ("event_id", "category"),
    (
        EVENT_ID,
        text("category_id", "Id of the category; NULL if the name is unknown."),
        text("category", "Name of the category."),
    ),
    is_view=True,
)
COINS: Final = Table(
    "coins",
    "one row per coin, as last seen",
    ("slug",),
    (
        *(SLUG, SYMBOL, COIN_NAME, RANK, TRACKED),
        text("icon_url", "URL of its icon."),
        *(*COIN_COUNTERS, FIRST_SEEN_AT, LAST_SEEN_AT, MISSING_SINCE, CONTENT_AT),
    ),
)
COIN_SNAPSHOTS: Final = Table(
    "coin_snapshots",
    "one row per coin and complete pull of coins",
    ("observed_at", "coin"),
    (OBSERVED_DATE, COIN, RANK, TRACKED, *COIN_COUNTERS, OBSERVED_AT, BATCH_ID),
)
CATEGORIES: Final = Table(
    "categories",
    "one row per editorial category",
    ("id",),
    (
        text("id", "Identifier, used in filters."),
        text("name", "Name, as in events."),
        *(FIRST_SEEN_AT, LAST_SEEN_AT),
    ),
)
CANCELLATIONS: Final = Table(
    "cancellations",
    "one row per event listed as cancelled, seen or not",
    ("event_id",),
    (
        EVENT_ID,
        timestamp("cancelled_at", "Cancellation, as the service states."),
        *(FIRST_SEEN_AT, LAST_SEEN_AT, BATCH_ID),
    ),
    is_view=True,
)
REJECTS: Final = Table(
    "rejects",
    "one row per unreadable row of a batch",
    ("batch_id", "position"),
    (
        *(OBSERVED_DATE, BATCH_ID),
        count("position", "Position in the batch.", "rows"),
        text("reason", "Reason for the rejection."),
        text("raw", "The row as received."),
    ),
)
BATCHES: Final = Table(
    "batches",
    "one row per batch, a pull of one feed, with its outcome",
    ("batch_id",),
    (
        *(OBSERVED_DATE, BATCH_ID, FEED),
        text("status", "merged or quarantined."),
        text("why", "Reason for the quarantine."),
        text(
            "flagged",
            "Reason why the batch is flagged. It marks no event as newly missing.",
        ),
        count("arrived", "Rows that arrived.", "rows"),
        count("good", "Readable rows, including duplicates.", "rows"),
        count("rejected", "Unreadable rows.", "rows"),
        count("duplicates", "Repeated events within the batch.", "rows"),
        count("ignored", "Ignored rows, e.g. test deliveries.", "rows"),
        count("stale", "Rows older than the known content.", "rows"),
        count("versions", "Versions added.", "versions"),
        *(OBSERVED_AT, CONTENT_AT),
        timestamp("landed_at", "Time of landing, by the machine's clock."),
        text("source", "Address of the service; `sandbox:` and the seed for the embedded one."),
        PLAN,
        Column("complete", "BOOLEAN", "Whether the batch contains its whole scope."),
        text("why_incomplete", "Reason for being incomplete."),
        Column(
            "attested", "BOOLEAN", "Whether the batch was imported with times stated by the user."
        ),
        text("date_doubt", "Reason for rejecting the service's Date, or NULL."),
        count("requests", "Requests sent.", "requests"),
        count("rows_claimed", "Rows announced by the service.", "rows"),
        count("bytes", "Size of the response bodies.", "bytes"),
        *(*_WINDOW, _SINCE, _COINS, _CATEGORIES),
        text("event_id", "The requested event, for a look-up."),
    ),
)
COVERAGE: Final = Table(
    "coverage",
    "one row per complete pull of events or cancellations",
    ("batch_id",),
    (
        *(BATCH_ID, FEED, PLAN, *_WINDOW, _SINCE, _COINS, _CATEGORIES, OBSERVED_AT, CONTENT_AT),
        count("rows", "Rows that arrived.", "rows"),
    ),
    is_view=True,
)
REQUESTS: Final = Table(
    "requests",
    "one row per request attempt, from this machine's log",
    (),
    (
        timestamp("sent_at", "Time of the request."),
        text("path", "Request path."),
        Column("status", "INTEGER", "HTTP status; NULL if there was no response."),
        Column("seconds", "DOUBLE", "Duration of the response.", "seconds"),
        count("bytes", "Size of the response.", "bytes"),
        Column("attempt", "INTEGER", "Number of the attempt, from 1."),
        text("key_fingerprint", "Key fingerprint."),
        count("quota", "Monthly quota in the headers, or NULL.", "requests"),
        count("remaining", "Remaining requests in the headers.", "requests"),
        timestamp("reset_at", "End of the month in the headers."),
        text("request_id", "The service's request id; for errors only."),
    ),
)
USAGE: Final = Table(
    "usage",
    "one row per reading of the monthly quota, from this machine's log",
    (),
    (
        timestamp("read_at", "Time of the reading."),
        text("plan", "Plan of the key."),
        count("used", "Requests used this month.", "requests"),
        count("quota", "Requests per month; NULL if not reported.", "requests"),
        count("remaining", "Requests left.", "requests"),
        timestamp("reset_at", "End of the month."),
        Column("rate", "DOUBLE", "Allowed requests per second.", "1/s"),
        count("burst", "Allowed burst.", "requests"),
        timestamp("period_start", "Start of the quota month."),
        timestamp("period_end", "End of the quota month."),
    ),
)

TABLES: Final = (
    *(EVENTS, EVENT_VERSIONS, EVENT_ABSENCES, EVENT_COINS, EVENT_CATEGORIES),
    *(COINS, COIN_SNAPSHOTS, CATEGORIES, CANCELLATIONS),
    *(REJECTS, BATCHES, COVERAGE, REQUESTS, USAGE),
)
FACTS: Final = Table(
    "facts",
    "one row per property of the published file",
    ("name",),
    (text("name", "What."), text("value", "Its value.")),
    schema=INTERNAL_SCHEMA,
)
FIRST_OBSERVED: Final = Table(
    "first_look",
    "one row: nothing was observed before it",
    (),
    (
        timestamp("first_at", "When events were first observed; NULL if never."),
        timestamp("last_at", "When events were last observed; NULL if never."),
    ),
    schema=INTERNAL_SCHEMA,
)
COIN_ABSENCES: Final = Table(
    "coin_absences",
    "one row per time in which complete pulls of all coins did not show a coin",
    ("coin", "missing_since"),
    (
        *(COIN, MISSING_SINCE),
        timestamp("missing_to", "When a pull showed it again; NULL if none did."),
    ),
    schema=INTERNAL_SCHEMA,
)
INTERNAL: Final = (FACTS, FIRST_OBSERVED, COIN_ABSENCES)
"""For internal use: they may change without notice."""
