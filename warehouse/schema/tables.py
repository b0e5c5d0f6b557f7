"""The tables of the warehouse, declared once: grain, key, and columns with type and meaning.

The declarations define the statements that make the tables (ddl.py), the order in which a
publication fills them, the data dictionary, and the comments in the published file. Views and
macros are in views.py. Timestamps are UTC.
"""

from dataclasses import dataclass, field
from typing import Final, Literal

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
    INSTANT,
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
)

INTERNAL_SCHEMA: Final = "_almanac"
"""The schema of internal tables: `SHOW TABLES` lists the tables of `main` alone."""
DeltaRule = Literal["days", "chain", "batches", "state", "links", "replaced", "local"]
"""How a delta updates a table. It compares the rows of the changed days (`days`; by `day`,
`chain`), of the batches of those days (`batches`), of the touched events (`links`), or all rows
with the newest checkpoint (`state`). Or it builds the table anew, always (`replaced`) or if the
logs of this machine changed (`local`)."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table, view or table macro. `grain` says what one row is; `key` identifies a row."""

    name: str
    grain: str
    key: tuple[str, ...]
    columns: tuple[Column, ...]
    call: str = ""
    """The call of a macro; empty for tables and views."""
    # The fields without a repr are not part of the signature of the published file.
    inputs: tuple[str, ...] = field(default=(), kw_only=True, repr=False)
    """The parameters of its statement `select_<name>`: files and other values."""
    delta: DeltaRule | None = field(default=None, kw_only=True, repr=False)
    """None if no statement fills the table."""
    schema: str = field(default="main", kw_only=True)
    in_place: tuple[str, ...] = field(default=(), kw_only=True, repr=False)
    """Columns that a delta updates without replacing the row; if empty, a `state` table updates all
    columns but the key."""

    @property
    def qualified(self) -> str:
        """Its name with its schema, as a statement may write it."""
        return f"{self.schema}.{self.name}"

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)


_COINS: Final = Column("coins", TEXTS, "Coins requested; NULL is all.")
_CATEGORIES: Final = Column("categories", TEXTS, "Categories requested; NULL is all.")
_SINCE: Final = Column("since", INSTANT, "Cancellations requested from this time on.", "UTC")
_WINDOW: Final = (
    Column("lower", INSTANT, "First event date requested; NULL if unbounded.", "UTC"),
    Column("upper", INSTANT, "Last event date requested, inclusive; NULL if unbounded.", "UTC"),
)

EVENTS: Final = Table(
    "events",
    "one row per event, as now known",
    ("event_id",),
    (
        *(EVENT_ID, *CONTENT, *DATING, FIRST_SEEN_AT, LAST_SEEN_AT, MISSING_SINCE, CHANGED_AT),
        *(CONTENT_AT, VERSION, *UNKNOWN),
    ),
    inputs=("events",),
    delta="state",
    # Every pull that shows the event changes these. Lists can't be updated in place, so a change of
    # content replaces the row.
    in_place=("last_seen_at", "missing_since", "content_at"),
)
_KNOWN_BASIS: Final = Column(
    "known_basis", "VARCHAR", "observed in event_versions, claimed in event_claims."
)
_CHANGE_KINDS: Final = Column("change_kinds", TEXTS, "Kinds of change, e.g. rescheduled.")
_CHANGED_FIELDS: Final = Column(
    "changed_fields", TEXTS, "Columns that differ from the previous version."
)
EVENT_VERSIONS: Final = Table(
    "event_versions",
    "one row per version of an event",
    ("event_id", "version"),
    (
        *(EVENT_ID, *CONTENT, *DATING, *UNKNOWN, FIRST_SEEN_AT, VERSION),
        Column("known_from", INSTANT, "Start of this version, inclusive.", "UTC"),
        Column(
            "known_to",
            INSTANT,
            "End of this version, exclusive; NULL for the current one. Equal to known_from if "
            "another version replaced it at the same time.",
            "UTC",
        ),
        *(_KNOWN_BASIS, _CHANGE_KINDS, _CHANGED_FIELDS),
        *(BATCH_ID, FEED, PLAN, CONTENT_AT),
    ),
    inputs=("changes", "current"),
    delta="batches",
    # They depend on other versions of the event, and are computed at the end.
    in_place=("known_to", "first_seen_at"),
)
EVENT_CLAIMS: Final = Table(
    "event_claims",
    "one row per claimed version from the time before an event's first observation",
    ("event_id", "version"),
    (
        *(EVENT_ID, *CONTENT, *DATING, *UNKNOWN),
        Column("first_seen_at", INSTANT, "Always NULL.", "UTC"),
        VERSION,
        Column(
            "known_from",
            INSTANT,
            "A time that the first observation names: created, updated or cancelled.",
            "UTC",
        ),
        Column(
            "known_to",
            INSTANT,
            "Start of the next version, exclusive.",
            "UTC",
        ),
        *(_KNOWN_BASIS, _CHANGE_KINDS),
        Column("changed_fields", TEXTS, "Always empty."),
        *(BATCH_ID, FEED, PLAN, CONTENT_AT),
    ),
    inputs=("changes",),
    delta="batches",
)
EVENT_ABSENCES: Final = Table(
    "event_absences",
    "one row per start or end of an event's absence",
    ("event_id", "changed_at"),
    (
        *(OBSERVED_DATE, EVENT_ID),
        Column("changed_at", INSTANT, "Time at which the change became known.", "UTC"),
        Column(
            "missing_since",
            INSTANT,
            "Start of the absence; NULL if it ended.",
            "UTC",
        ),
        BATCH_ID,
    ),
    inputs=("absences",),
    delta="days",
)
EVENT_COINS: Final = Table(
    "event_coins",
    "one row per event and coin linked to it, as now known",
    ("event_id", "coin"),
    (EVENT_ID, COIN, SYMBOL, COIN_NAME),
    inputs=("everything", "labels"),
    delta="links",
)
EVENT_CATEGORIES: Final = Table(
    "event_categories",
    "one row per event and category, as now known",
    ("event_id", "category"),
    (
        EVENT_ID,
        Column("category_id", "VARCHAR", "As in categories; NULL for an unknown name."),
        Column("category", "VARCHAR", "Name of the category."),
    ),
    inputs=("everything",),
    delta="links",
)
COINS: Final = Table(
    "coins",
    "one row per coin, as last seen",
    ("slug",),
    (
        *(SLUG, SYMBOL, COIN_NAME, RANK, TRACKED),
        Column("icon_url", "VARCHAR", "URL of its icon."),
        *(*COIN_COUNTERS, FIRST_SEEN_AT, LAST_SEEN_AT, MISSING_SINCE, CONTENT_AT),
    ),
    inputs=("coins",),
    delta="state",
)
COIN_SNAPSHOTS: Final = Table(
    "coin_snapshots",
    "one row per coin and day on which it was observed",
    ("observed_date", "coin"),
    (OBSERVED_DATE, COIN, RANK, TRACKED, *COIN_COUNTERS, OBSERVED_AT, BATCH_ID),
    inputs=("snapshots",),
    delta="days",
)
CATEGORIES: Final = Table(
    "categories",
    "one row per editorial category",
    ("id",),
    (
        Column("id", "VARCHAR", "Identifier, used in filters."),
        Column("name", "VARCHAR", "Name, as in events."),
        *(FIRST_SEEN_AT, LAST_SEEN_AT),
    ),
    inputs=("categories",),
    delta="state",
)
CANCELLATIONS: Final = Table(
    "cancellations",
    "one row per event listed as cancelled, seen or not",
    ("event_id",),
    (
        EVENT_ID,
        Column("cancelled_at", INSTANT, "Cancellation, as the service states.", "UTC"),
        *(FIRST_SEEN_AT, LAST_SEEN_AT, BATCH_ID),
    ),
    inputs=("cancellations",),
    delta="state",
)
REJECTS: Final = Table(
    "rejects",
    "one row per unreadable row of a batch",
    ("batch_id", "position"),
    (
        *(OBSERVED_DATE, BATCH_ID),
        Column("position", "BIGINT", "Position in the batch.", "rows"),
        Column("reason", "VARCHAR", "Reason for the rejection."),
        Column("raw", "VARCHAR", "The row as received."),
    ),
    inputs=("rejects",),
    delta="days",
)
BATCHES: Final = Table(
    "batches",
    "one row per batch, a pull of one feed, with its outcome",
    ("batch_id",),
    (
        *(OBSERVED_DATE, BATCH_ID, FEED),
        Column("status", "VARCHAR", "merged or quarantined."),
        Column("why", "VARCHAR", "Reason for the quarantine."),
        Column("flagged", "VARCHAR", "Reason for the flag: the batch makes no event missing."),
        Column("arrived", "BIGINT", "Rows that arrived.", "rows"),
        Column("good", "BIGINT", "Readable rows, including duplicates.", "rows"),
        Column("rejected", "BIGINT", "Unreadable rows.", "rows"),
        Column("duplicates", "BIGINT", "Repeated events within the batch.", "rows"),
        Column("ignored", "BIGINT", "Ignored rows, e.g. test deliveries.", "rows"),
        Column("stale", "BIGINT", "Rows older than the known content.", "rows"),
        Column("versions", "BIGINT", "Versions added.", "versions"),
        *(OBSERVED_AT, CONTENT_AT),
        Column("landed_at", INSTANT, "Time of landing, by the machine's clock.", "UTC"),
        PLAN,
        Column("complete", "BOOLEAN", "Whether it contains all of its scope."),
        Column("why_incomplete", "VARCHAR", "Reason for being incomplete."),
        Column(
            "attested",
            "BOOLEAN",
            "Whether it was imported, with times stated by the user.",
        ),
        Column(
            "date_doubt",
            "VARCHAR",
            "Reason for rejecting the service's Date, or NULL.",
        ),
        Column("requests", "BIGINT", "Requests sent.", "requests"),
        Column("rows_claimed", "BIGINT", "Rows announced by the service.", "rows"),
        Column("bytes", "BIGINT", "Size of the response bodies.", "bytes"),
        *(*_WINDOW, _SINCE, _COINS, _CATEGORIES),
        Column("event_id", "VARCHAR", "The requested event, for a look-up."),
    ),
    inputs=("changes",),
    delta="days",
)
COVERAGE: Final = Table(
    "coverage",
    "one row per complete pull of events or cancellations",
    ("batch_id",),
    (
        *(BATCH_ID, FEED, PLAN, *_WINDOW, _SINCE, _COINS, _CATEGORIES, OBSERVED_AT, CONTENT_AT),
        Column("rows", "BIGINT", "Rows that arrived.", "rows"),
    ),
    inputs=("first_day",),
    delta="batches",
)
REQUESTS: Final = Table(
    "requests",
    "one row per request attempt, from this machine's log",
    (),
    (
        Column("sent_at", INSTANT, "Time of the request.", "UTC"),
        Column("path", "VARCHAR", "Request path."),
        Column("status", "INTEGER", "HTTP status; NULL if there was no response."),
        Column("seconds", "DOUBLE", "Duration of the response.", "seconds"),
        Column("bytes", "BIGINT", "Size of the response.", "bytes"),
        Column("attempt", "INTEGER", "Number of the attempt, from 1."),
        Column("key_fingerprint", "VARCHAR", "Key fingerprint."),
        Column("quota", "BIGINT", "Monthly quota in the headers, or NULL.", "requests"),
        Column("remaining", "BIGINT", "Remaining requests in the headers.", "requests"),
        Column("reset_at", INSTANT, "End of the month in the headers.", "UTC"),
        Column("request_id", "VARCHAR", "The service's request id; for errors only."),
    ),
    inputs=("requests",),
    delta="local",
)
USAGE: Final = Table(
    "usage",
    "one row per reading of the monthly quota, from this machine's log",
    (),
    (
        Column("read_at", INSTANT, "Time of the reading.", "UTC"),
        Column("plan", "VARCHAR", "Plan of the key."),
        Column("used", "BIGINT", "Requests used this month.", "requests"),
        Column("quota", "BIGINT", "Requests per month; NULL if not reported.", "requests"),
        Column("remaining", "BIGINT", "Requests left.", "requests"),
        Column("reset_at", INSTANT, "End of the month.", "UTC"),
        Column("rate", "DOUBLE", "Allowed requests per second.", "1/s"),
        Column("burst", "BIGINT", "Allowed burst.", "requests"),
        Column("period_start", INSTANT, "Start of the quota month.", "UTC"),
        Column("period_end", INSTANT, "End of the quota month.", "UTC"),
    ),
    inputs=("usage",),
    delta="local",
)

TABLES: Final = (
    *(EVENTS, EVENT_VERSIONS, EVENT_CLAIMS, EVENT_ABSENCES, EVENT_COINS, EVENT_CATEGORIES),
    *(COINS, COIN_SNAPSHOTS, CATEGORIES, CANCELLATIONS),
    *(REJECTS, BATCHES, COVERAGE, REQUESTS, USAGE),
)
PUBLISHED: Final = Table(
    "published",
    "one row per day of the change log in this file",
    ("day",),
    (
        Column("day", "DATE", "The day."),
        Column("sha256", "VARCHAR", "Of its file."),
        Column("versions", "BIGINT", "Rows of its file.", "versions"),
    ),
    inputs=("days", "hashes", "changes"),
    schema=INTERNAL_SCHEMA,
    delta="chain",
)
FACTS: Final = Table(
    "facts",
    "one row per fact for the next publication",
    ("name",),
    (Column("name", "VARCHAR", "What."), Column("value", "VARCHAR", "Its value.")),
    schema=INTERNAL_SCHEMA,
)
FIRST_OBSERVED: Final = Table(
    "first_look",
    "one row: nothing was observed before it",
    (),
    (
        Column("first_at", INSTANT, "When events were first observed; NULL is never.", "UTC"),
        Column("last_at", INSTANT, "When events were last observed; NULL is never.", "UTC"),
    ),
    schema=INTERNAL_SCHEMA,
    delta="replaced",
)
INTERNAL: Final = (PUBLISHED, FACTS, FIRST_OBSERVED)
"""For internal use: they may change without notice."""
FILLED: Final = (
    *(BATCHES, COINS, CATEGORIES, CANCELLATIONS, EVENTS, EVENT_VERSIONS, EVENT_CLAIMS, COVERAGE),
    *(EVENT_ABSENCES, EVENT_COINS, EVENT_CATEGORIES, REJECTS, COIN_SNAPSHOTS),
    *(REQUESTS, USAGE, PUBLISHED, FIRST_OBSERVED),
)
"""All tables with a statement, in the order in which they are filled: after those they read."""
