"""The columns of events, declared once: name, type, meaning, unit, and which plan shows them.

Belongs here: what a column is, and the groups that several tables share. Does not: which table
has which (tables, views). A set of fields is a bitmask, bit `n` for the n-th field: cheap on a
million rows. Instants are UTC.
"""

from dataclasses import dataclass
from typing import Final

from catalog.contract.plans import PLANS, ImpactView, Plan

INSTANT: Final = "TIMESTAMP WITH TIME ZONE"
TEXTS: Final = "VARCHAR[]"


@dataclass(frozen=True, slots=True)
class Column:
    """One column. `type` is DuckDB's name for it, `unit` is empty where there is none."""

    name: str
    type: str
    meaning: str
    unit: str = ""


EVENT_ID: Final = Column("event_id", "VARCHAR", "Identifier the service gave the event.")

CONTENT: Final = (
    Column("slug", "VARCHAR", "Readable identifier; may change."),
    Column("title", "VARCHAR", "Editorial title."),
    Column("description", "VARCHAR", "Editorial text."),
    Column("displayed_date", "VARCHAR", "The date as shown to people: a day, or a period."),
    Column(
        "date",
        INSTANT,
        "When it happens. Of an estimated event it is the deadline, never shown as its date.",
        "UTC",
    ),
    Column("date_end", INSTANT, "When it ends; NULL for a single instant.", "UTC"),
    Column("date_type", "VARCHAR", "Kind of date as the service names it, e.g. quarter."),
    Column("is_estimated", "BOOLEAN", "Whether the date is a period that is still open."),
    Column("categories", TEXTS, "Names of its categories, as a set in order."),
    Column("coins", TEXTS, "Slugs of the coins it concerns, as a set in order."),
    Column("impact", "DOUBLE", "Impact score.", "0 to 10"),
    Column("impact_band", "VARCHAR", "Low, Mid, High or Critical."),
    Column("impact_summary", "VARCHAR", "Why it matters, in words."),
    Column("source_url", "VARCHAR", "Where it was announced."),
    Column("snapshot_url", "VARCHAR", "Picture of the announcement."),
    Column("last_verified_at", INSTANT, "When the service last checked it.", "UTC"),
    Column("created_at", INSTANT, "When the service says it took it in.", "UTC"),
    Column("updated_at", INSTANT, "When the service says it last changed it.", "UTC"),
    Column("status", "VARCHAR", "scheduled, cancelled or withdrawn."),
    Column("cancelled_at", INSTANT, "When it was cancelled; NULL unless it was.", "UTC"),
)
"""What an event says: its fields and its status, `slug` to `cancelled_at`."""

FIRST_SEEN_AT: Final = Column(
    "first_seen_at", INSTANT, "When we first saw it; NULL of what is only claimed.", "UTC"
)
LAST_SEEN_AT: Final = Column("last_seen_at", INSTANT, "When a look last showed it.", "UTC")
MISSING_SINCE: Final = Column(
    "missing_since",
    INSTANT,
    "Since when complete looks that should show it have not; NULL while it is there.",
    "UTC",
)
CHANGED_AT: Final = Column("changed_at", INSTANT, "When this version became known.", "UTC")
CONTENT_AT: Final = Column("content_at", INSTANT, "When the content was true.", "UTC")
VERSION: Final = Column(
    "version", "INTEGER", "Number of the version: 0 is claimed, 1 the first that was observed."
)
UNKNOWN: Final = (
    Column(
        "unknown_fields",
        TEXTS,
        "Columns whose value no look has shown, since the plan hides it: not the same as NULL.",
    ),
    Column("extra", "JSON", "Fields of the service that have no column."),
)
SLUG: Final = Column("slug", "VARCHAR", "Identifier of the coin.")
SYMBOL: Final = Column("symbol", "VARCHAR", "Ticker; not unique.")
COIN_NAME: Final = Column("name", "VARCHAR", "Name of the coin.")
BATCH_ID: Final = Column("batch_id", "VARCHAR", "The pull that told it, as in batches.")
OBSERVED_AT: Final = Column("observed_at", INSTANT, "When we knew it.", "UTC")
OBSERVED_DATE: Final = Column("observed_date", "DATE", "The day of observation.", "UTC day")
COIN_COUNTERS: Final = (
    Column("upcoming_count", "INTEGER", "Upcoming events, within what the plan shows.", "events"),
    Column(
        "major_count",
        "INTEGER",
        "Upcoming events with an impact of 7.5 or more; NULL where the plan hides it.",
        "events",
    ),
    Column("peak_impact", "DOUBLE", "Highest impact among upcoming events.", "0 to 10"),
)
RANK: Final = Column(
    "rank",
    "INTEGER",
    "Rank by market capitalisation, 1 is the largest. Null is none, or not known.",
    "rank",
)
TRACKED: Final = Column("tracked", "BOOLEAN", "Whether the service still adds events for it.")
PLAN: Final = Column("plan", "VARCHAR", "The plan under which it was seen.")
FEED: Final = Column(
    "feed",
    "VARCHAR",
    "export, events, event, cancellations, coins, categories or deliveries.",
)
DATE_EXACT: Final = Column(
    "date_exact", INSTANT, "When it happens; NULL unless the date is known to be exact.", "UTC"
)
DISPLAYED_DATE: Final = CONTENT[3]
TITLE: Final = CONTENT[1]
IMPACT: Final = CONTENT[10]
IS_ESTIMATED: Final = CONTENT[7]

AS_OF: Final = (EVENT_ID, *CONTENT, FIRST_SEEN_AT, CHANGED_AT, VERSION, *UNKNOWN)
"""What could be said of an event at an instant; also the columns of `lake/events`."""


FIELDS: Final[dict[str, str]] = {
    "slug": "slug",
    "title": "title",
    "description": "description",
    "displayed_date": "displayedDate",
    "date": "date",
    "date_end": "dateEnd",
    "date_type": "dateType",
    "is_estimated": "isEstimated",
    "categories": "categories",
    "coins": "coins",
    "impact": "impact",
    "impact_band": "impactBand",
    "impact_summary": "impactSummary",
    "source_url": "sourceUrl",
    "snapshot_url": "snapshotUrl",
    "last_verified_at": "lastVerifiedAt",
    "created_at": "createdAt",
    "updated_at": "updatedAt",
}
"""Column to name on the wire. `impactBand` is ours: the wire has both in `impact`."""

NAMES: Final = tuple(FIELDS)
BIT: Final[dict[str, int]] = {name: 1 << place for place, name in enumerate(NAMES)}
ALL: Final = sum(BIT.values())

UNCOMPARED: Final = frozenset({"last_verified_at", "updated_at"})
"""A difference in these alone makes no version."""


def mask(*names: str) -> int:
    """Return the bitmask of some fields."""
    return sum(BIT[name] for name in set(names))


def shown_by(plan: Plan) -> int:
    """Return the fields that a plan shows with a value (interface 8.3), never judged by a null."""
    shown = {column for column, wire in FIELDS.items() if plan.shows(wire)} - {"impact"}
    if plan.impact is not ImpactView.NONE:
        shown.add("impact_band")
    if plan.impact is ImpactView.PRECISE:
        shown.add("impact")
    return mask(*shown)


def plan_named(name: str) -> Plan:
    """Return a plan of the contract.

    Raises:
        ValueError: there is none of that name.
    """
    if name not in PLANS:
        raise ValueError(f"{name!r} is no plan; there are {', '.join(PLANS)}")
    return PLANS[name]
