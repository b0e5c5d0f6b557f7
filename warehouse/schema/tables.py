"""The tables of the warehouse, declared once: grain, key, and columns with type and meaning.

The declarations define the statements that make the tables (ddl.py), the order in which a
publication fills them, the data dictionary, and the comments in the published file. Views and
macros are in views.py. Instants are UTC.
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
"""What only Almanac itself uses: `SHOW TABLES` lists the tables of `main` alone."""
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
        """Its name with that of its schema, as a statement may write it."""
        return f"{self.schema}.{self.name}"

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)


_COINS: Final = Column("coins", TEXTS, "Coins requested; NULL is all.")
_CATEGORIES: Final = Column("categories", TEXTS, "Categories requested; NULL is all.")
_SINCE: Final = Column("since", INSTANT, "Cancellations requested from this instant on.", "UTC")
_WINDOW: Final = (
    Column("lower", INSTANT, "First event date requested; NULL is no bound.", "UTC"),
    Column("upper", INSTANT, "Last event date requested, inclusive; NULL is no bound.", "UTC"),
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
_CHANGE_KINDS: Final = Column(
    "change_kinds", TEXTS, "The kinds of change that made it, e.g. rescheduled."
)
_CHANGED_FIELDS: Final = Column(
    "changed_fields", TEXTS, "Columns that differ from the version before."
)
EVENT_VERSIONS: Final = Table(
    "event_versions",
    "one row per version of an event: what was known of it from one instant to another",
    ("event_id", "version"),
    (
        *(EVENT_ID, *CONTENT, *DATING, *UNKNOWN, FIRST_SEEN_AT, VERSION),
        Column("known_from", INSTANT, "When this version became known; inclusive.", "UTC"),
        Column(
            "known_to",
            INSTANT,
            "When the next version became known; exclusive, NULL is current. Equal to known_from "
            "if another version replaced it at the same instant: it was known at no time.",
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
    "one row per version that the service claims of the time before an event was first observed",
    ("event_id", "version"),
    (
        *(EVENT_ID, *CONTENT, *DATING, *UNKNOWN),
        Column("first_seen_at", INSTANT, "Always NULL: it was not observed then.", "UTC"),
        VERSION,
        Column(
            "known_from",
            INSTANT,
            "An instant that the first observation names: created, last updated or cancelled.",
            "UTC",
        ),
        Column(
            "known_to",
            INSTANT,
            "When the next claimed version began, or the first observed one; exclusive.",
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
    "one row per event and instant at which it began to be missing, or was no longer",
    ("event_id", "changed_at"),
    (
        *(OBSERVED_DATE, EVENT_ID),
        Column("changed_at", INSTANT, "When we knew the change.", "UTC"),
        Column(
            "missing_since",
            INSTANT,
            "Since when it was missing then; NULL: it was shown again, cancelled or withdrawn.",
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
        Column("category_id", "VARCHAR", "As in categories; NULL for a name that is not there."),
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
        Column("icon_url", "VARCHAR", "Address of its icon."),
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
        Column("id", "VARCHAR", "Identifier, used as the value of the filter."),
        Column("name", "VARCHAR", "Name, as in events."),
        *(FIRST_SEEN_AT, LAST_SEEN_AT),
    ),
    inputs=("categories",),
    delta="state",
)
CANCELLATIONS: Final = Table(
    "cancellations",
    "one row per event listed as cancelled, whether or not the event itself was ever seen",
    ("event_id",),
    (
        EVENT_ID,
        Column("cancelled_at", INSTANT, "When the service says it was cancelled.", "UTC"),
        *(FIRST_SEEN_AT, LAST_SEEN_AT, BATCH_ID),
    ),
    inputs=("cancellations",),
    delta="state",
)
REJECTS: Final = Table(
    "rejects",
    "one row per row of a batch that could not be read",
    ("batch_id", "position"),
    (
        *(OBSERVED_DATE, BATCH_ID),
        Column("position", "BIGINT", "Its position in the batch.", "rows"),
        Column("reason", "VARCHAR", "Why it could not be read."),
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
        Column("status", "VARCHAR", "merged, or quarantined: landed and left out."),
        Column("why", "VARCHAR", "Why it is quarantined."),
        Column("flagged", "VARCHAR", "Why it made nothing missing, though complete."),
        Column("arrived", "BIGINT", "Rows that arrived.", "rows"),
        Column("good", "BIGINT", "Rows that could be read, including duplicates.", "rows"),
        Column("rejected", "BIGINT", "Rows that could not be read.", "rows"),
        Column(
            "duplicates", "BIGINT", "Rows of an event that occurred earlier in the batch.", "rows"
        ),
        Column("ignored", "BIGINT", "Rows without meaning here, e.g. test deliveries.", "rows"),
        Column("stale", "BIGINT", "Rows older than what was already known.", "rows"),
        Column("versions", "BIGINT", "Versions that it added.", "versions"),
        *(OBSERVED_AT, CONTENT_AT),
        Column("landed_at", INSTANT, "When it was landed, by the machine's clock.", "UTC"),
        PLAN,
        Column("complete", "BOOLEAN", "Whether it holds all of its scope."),
        Column("why_incomplete", "VARCHAR", "Why it is incomplete."),
        Column(
            "attested",
            "BOOLEAN",
            "Whether it was imported: its times are those that the user stated, not observed.",
        ),
        Column(
            "date_doubt",
            "VARCHAR",
            "Why the service's Date was not believed; NULL: observed_at is by that Date.",
        ),
        Column("requests", "BIGINT", "Requests that it took.", "requests"),
        Column("rows_claimed", "BIGINT", "Rows the service announced.", "rows"),
        Column("bytes", "BIGINT", "Size of its bodies.", "bytes"),
        *(*_WINDOW, _SINCE, _COINS, _CATEGORIES),
        Column("event_id", "VARCHAR", "The requested event, for a look-up."),
    ),
    inputs=("changes",),
    delta="days",
)
COVERAGE: Final = Table(
    "coverage",
    "one row per complete pull of events or cancellations: what was covered, and when",
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
    "one row per attempt of a request to the service, from this machine's log",
    (),
    (
        Column("sent_at", INSTANT, "When it was sent.", "UTC"),
        Column("path", "VARCHAR", "The path of the request."),
        Column("status", "INTEGER", "HTTP status; NULL if there was no response."),
        Column("seconds", "DOUBLE", "How long the response took.", "seconds"),
        Column("bytes", "BIGINT", "Size of the response.", "bytes"),
        Column("attempt", "INTEGER", "1 for the first try."),
        Column("key_fingerprint", "VARCHAR", "Fingerprint of the key."),
        Column("quota", "BIGINT", "Monthly quota by its headers; NULL is not stated.", "requests"),
        Column("remaining", "BIGINT", "Left of the month by its headers.", "requests"),
        Column("reset_at", INSTANT, "When the month ends by its headers.", "UTC"),
        Column("request_id", "VARCHAR", "What the service calls it; only of errors."),
    ),
    inputs=("requests",),
    delta="local",
)
USAGE: Final = Table(
    "usage",
    "one row per reading of the monthly quota, from this machine's log",
    (),
    (
        Column("read_at", INSTANT, "When it was read.", "UTC"),
        Column("plan", "VARCHAR", "The plan of the key."),
        Column("used", "BIGINT", "Requests spent this month.", "requests"),
        Column(
            "quota", "BIGINT", "Requests per month; NULL is not reported, or no limit.", "requests"
        ),
        Column("remaining", "BIGINT", "Requests left.", "requests"),
        Column("reset_at", INSTANT, "When the month ends.", "UTC"),
        Column("rate", "DOUBLE", "Requests per second that the key may send.", "1/s"),
        Column("burst", "BIGINT", "Requests that the key may send at once.", "requests"),
        Column("period_start", INSTANT, "When the month began, which may be any day.", "UTC"),
        Column("period_end", INSTANT, "When the month ends, as a period.", "UTC"),
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
    "one row per day of the change log that this file was made from",
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
    "one row per fact that the next publication has to know about this one",
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
