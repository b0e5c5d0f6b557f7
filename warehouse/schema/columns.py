"""The columns of events, declared once: name, type, meaning, unit, and which plan shows them.

Also the groups of columns that statements expand. A set of fields is a bitmask with bit `n` for the
n-th field, which is cheap on a million rows. Timestamps are UTC.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, get_args

from catalog.contract.plans import PLANS, ImpactView, Plan

if TYPE_CHECKING:
    from almanac.core.statements import Groups

INSTANT: Final = "TIMESTAMP WITH TIME ZONE"
TEXTS: Final = "VARCHAR[]"


@dataclass(frozen=True, slots=True)
class Column:
    """One column. `type` is a DuckDB type, `unit` is empty if there is none."""

    name: str
    type: str
    meaning: str
    unit: str = ""
    collation: str = ""
    """How text is compared; empty is byte by byte."""


def timestamp(name: str, meaning: str) -> Column:
    return Column(name, INSTANT, meaning, "UTC")


def text(name: str, meaning: str) -> Column:
    return Column(name, "VARCHAR", meaning)


def count(name: str, meaning: str, unit: str = "events") -> Column:
    return Column(name, "BIGINT", meaning, unit)


Change = Literal["revised", "rescored", "rescheduled", "estimate", "date_text"]
"""The meaning of a change of a field: a change kind; a flip of `is_estimated`, which has two kinds;
or a text of the date, which is a revision if the date is the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventField(Column):
    """A field of an event of the service. `wire` is its name in the service's JSON.

    `change` is None if a difference in this field alone makes no version.
    """

    wire: str
    change: Change | None = "revised"


EVENT_ID: Final = text("event_id", "Identifier of the event.")

FIELDS: Final = (
    EventField("slug", "VARCHAR", "Readable identifier; may change.", wire="slug"),
    EventField("title", "VARCHAR", "Editorial title.", wire="title"),
    EventField("description", "VARCHAR", "Editorial text.", wire="description"),
    EventField(
        "displayed_date",
        "VARCHAR",
        "The date as displayed: a day, or a period.",
        wire="displayedDate",
        change="date_text",
    ),
    EventField(
        "date",
        INSTANT,
        "Date of the event; for an estimated event, the deadline.",
        "UTC",
        wire="date",
        change="rescheduled",
    ),
    EventField(
        "date_end",
        INSTANT,
        "End of the event; NULL if it has no duration.",
        "UTC",
        wire="dateEnd",
        change="rescheduled",
    ),
    EventField(
        "date_type",
        "VARCHAR",
        "Kind of date in the service's terms, e.g. quarter.",
        wire="dateType",
        change="date_text",
    ),
    EventField(
        "is_estimated",
        "BOOLEAN",
        "Whether the date is a period or a deadline.",
        wire="isEstimated",
        change="estimate",
    ),
    EventField("categories", TEXTS, "Category names, sorted.", wire="categories"),
    EventField("coins", TEXTS, "Coin slugs, sorted.", wire="coins"),
    EventField("impact", "DOUBLE", "Impact score.", "0 to 10", wire="impact", change="rescored"),
    EventField(
        "impact_band",
        "VARCHAR",
        "Low, Mid, High or Critical.",
        wire="impactBand",
        change="rescored",
    ),
    EventField("impact_summary", "VARCHAR", "Explanation of the impact.", wire="impactSummary"),
    EventField("source_url", "VARCHAR", "URL of the announcement.", wire="sourceUrl"),
    EventField(
        "snapshot_url", "VARCHAR", "URL of a picture of the announcement.", wire="snapshotUrl"
    ),
    EventField(
        "last_verified_at",
        INSTANT,
        "Last check by the service.",
        "UTC",
        wire="lastVerifiedAt",
        change=None,
    ),
    EventField("created_at", INSTANT, "Creation, as the service states.", "UTC", wire="createdAt"),
    EventField(
        "updated_at",
        INSTANT,
        "Last change, as the service states.",
        "UTC",
        wire="updatedAt",
        change=None,
    ),
)
"""The fields of an event; add a new one at the end, since its position is a bit in the state.

The service does not send `impactBand`: its JSON has score and band in `impact`.
"""
CONTENT: Final = (
    *FIELDS,
    text("status", "scheduled, cancelled or withdrawn."),
    timestamp("cancelled_at", "Time of the cancellation, or NULL."),
)
"""The content of an event: its fields and its status, `slug` to `cancelled_at`."""
CONTENT_NAMED: Final = {column.name: column for column in CONTENT}

DATING: Final = (
    text(
        "date_precision",
        "instant, day (an exact date at 00:00:00), month, quarter, year or deadline; NULL "
        "without a date.",
    ),
    timestamp("earliest", "Earliest possible start; NULL for a deadline."),
    timestamp(
        "latest",
        "Exclusive end of the possible time, or of date_end if later: for instant the next "
        "second, for day and deadline the next midnight, for a period its end; NULL without a "
        "date.",
    ),
    text("displayed_date_full", "The displayed date with its year, or made of the date."),
    text(
        "date_doubt",
        "How the displayed period contradicts the date, or NULL. date_precision, earliest and "
        "latest then follow what both allow, else the displayed period.",
    ),
)
"""The known time of an event; it follows from the content."""
DATE_PRECISION, EARLIEST, LATEST, DISPLAYED_DATE_FULL, _ = DATING
FIRST_SEEN_AT: Final = timestamp("first_seen_at", "First observation.")
LAST_SEEN_AT: Final = timestamp("last_seen_at", "Last observation.")
MISSING_SINCE: Final = timestamp(
    "missing_since", "Start of its absence from complete pulls, or NULL."
)
CHANGED_AT: Final = timestamp("changed_at", "Time at which this version became known.")
CONTENT_AT: Final = timestamp("content_at", "Time at which the content was true.")
VERSION: Final = Column(
    "version",
    "INTEGER",
    "Version number: 1 is the first observed; claimed versions are 0 and below.",
)
UNKNOWN: Final = (
    Column("unknown_fields", TEXTS, "Columns whose value the plan hides. Not the same as NULL."),
    Column("extra", "JSON", "Fields without a column."),
)
SLUG: Final = text("slug", "Identifier of the coin.")
SYMBOL: Final = Column(
    "symbol", "VARCHAR", "Ticker; not unique, compared without case.", collation="NOCASE"
)
COIN: Final = text("coin", "Coin slug.")
COIN_NAME: Final = text("name", "Name of the coin.")
BATCH_ID: Final = text("batch_id", "Batch, as in batches.")
OBSERVED_AT: Final = timestamp("observed_at", "Time of the observation.")
OBSERVED_DATE: Final = Column("observed_date", "DATE", "The day of observation.", "UTC day")
COIN_COUNTERS: Final = (
    Column("upcoming_count", "INTEGER", "Upcoming events that the plan shows.", "events"),
    Column(
        "major_count",
        "INTEGER",
        "Upcoming events with an impact of 7.5 or more; NULL if the plan hides it.",
        "events",
    ),
    Column("peak_impact", "DOUBLE", "Highest impact among upcoming events.", "0 to 10"),
)
RANK: Final = Column(
    "rank", "INTEGER", "Rank by market capitalisation; 1 is the largest. NULL if unknown.", "rank"
)
TRACKED: Final = Column("tracked", "BOOLEAN", "Whether the service adds events for the coin.")
PLAN: Final = text("plan", "Plan of the observation.")
FEED: Final = text("feed", "export, events, event, cancellations, coins, categories or deliveries.")
DATE_EXACT: Final = timestamp("date_exact", "The date if it is exact, otherwise NULL.")
DISPLAYED_DATE: Final = CONTENT_NAMED["displayed_date"]
TITLE: Final = CONTENT_NAMED["title"]
IMPACT: Final = CONTENT_NAMED["impact"]
IS_ESTIMATED: Final = CONTENT_NAMED["is_estimated"]

AS_OF: Final = (EVENT_ID, *CONTENT, *DATING, FIRST_SEEN_AT, CHANGED_AT, VERSION, *UNKNOWN)
"""The columns of `parquet/events`, without those that every observation may change."""


WIRE: Final[dict[str, str]] = {field.name: field.wire for field in FIELDS}
"""Column to name on the wire."""
NAMES: Final = tuple(WIRE)
BIT: Final[dict[str, int]] = {name: 1 << place for place, name in enumerate(NAMES)}
ALL: Final = sum(BIT.values())


def mask(*names: str) -> int:
    """Return the bitmask of some fields."""
    return sum(BIT[name] for name in set(names))


def mask_shown_fields(plan: Plan) -> int:
    """Return the bitmask of the fields that a plan shows (interface 8.3), whatever their value."""
    impact = {"impact", "impact_band"}
    shown = {column for column, wire in WIRE.items() if plan.shows(wire)} - impact
    if plan.impact is not ImpactView.NONE:
        shown.add("impact_band")
    if plan.impact is ImpactView.PRECISE:
        shown.add("impact")
    return mask(*shown)


def find_plan(name: str) -> Plan:
    """Return a plan of the contract. Raises ValueError: the contract has no plan of this name."""
    if name not in PLANS:
        raise ValueError(f"{name!r} is not a plan; the plans are {', '.join(PLANS)}")
    return PLANS[name]


_MARKS: Final[dict[str, dict[str, str]]] = {
    "VARCHAR": {"type": "VARCHAR", "json": '"VARCHAR"', "raw": "@name"},
    "DOUBLE": {"type": "DOUBLE", "json": '"VARCHAR"', "raw": "@name_text"},
    "BOOLEAN": {"type": "BOOLEAN", "json": '"VARCHAR"', "raw": "@name_text"},
    INSTANT: {"type": "TIMESTAMPTZ", "json": '"VARCHAR"', "raw": "@name_text"},
    TEXTS: {"type": "VARCHAR[]", "json": '["VARCHAR"]', "raw": "@name"},
}
"""By type, the text for each mark in a statement, except `@name`, `@wire`, `@bit` and `@version`.

`type`: its type in CREATE TABLE. `json`: its type in a JSON text. `raw`: the column of
`insert_events` with the value as received. `version`: its column of the current version.
"""


def _marks(column: Column) -> dict[str, str]:
    marks = {"name": column.name, **_MARKS[column.type]}
    if isinstance(column, EventField):
        marks["wire"] = column.wire
        marks["bit"] = str(BIT[column.name])
    is_kept = isinstance(column, EventField) and column.change is None
    marks["version"] = f"version_{column.name}" if is_kept else column.name
    return marks


def _group(columns: Iterable[Column]) -> tuple[dict[str, str], ...]:
    return tuple(_marks(column) for column in columns)


GROUPS: "Final[Groups]" = {
    "content": _group(CONTENT),
    "dating": _group(DATING),
    "fields": _group(FIELDS),
    "compared": _group(field for field in FIELDS if field.change is not None),
    "uncompared": _group(field for field in FIELDS if field.change is None),
    "instants": _group(field for field in FIELDS if field.type == INSTANT),
    "booleans": _group(field for field in FIELDS if field.type == "BOOLEAN"),
    **{
        change: _group(field for field in FIELDS if field.change == change)
        for change in get_args(Change)
    },
}
"""The groups that statements may name in `{each GROUP: TEMPLATE}`.

`content`: fields and status. `dating`: what follows from the content on when it takes place.
`compared`: the fields whose change makes a version. `uncompared`: the others.
There is also one group for each `Change`.
"""
