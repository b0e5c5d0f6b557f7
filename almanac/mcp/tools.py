"""The tools of an assistant, as they are described to it: texts and JSON schemas.

Importing this module reads no data and no database library, so that a server starts fast.
"""

from dataclasses import dataclass
from typing import Any, Final

Schema = dict[str, Any]
LIMIT: Final = 50
LIMIT_MAX: Final = 1_000
BYTES_MAX: Final = 60_000
"""The most JSON of the rows: an assistant reads a whole answer into its context."""
STATUSES: Final = ("scheduled", "cancelled", "withdrawn")
KINDS: Final = (
    *("created", "rescheduled", "made_exact", "made_estimated", "rescored", "revised"),
    *("cancelled", "withdrawn", "restored", "revealed"),
)


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool: its description and the schemas of its arguments and rows."""

    name: str
    title: str
    description: str
    properties: Schema
    row: Schema
    required: tuple[str, ...] = ()

    @property
    def input_schema(self) -> Schema:
        return {
            "type": "object",
            "properties": self.properties,
            "required": list(self.required),
            "additionalProperties": False,
        }

    @property
    def output_schema(self) -> Schema:
        rows = {"type": "array", "items": {"type": "object", "properties": self.row}}
        return {
            "type": "object",
            "properties": {**_ANSWER, "rows": rows},
            "required": [*_REQUIRED, "rows"],
        }


_INSTANT: Final = (
    "ISO 8601 with a zone, such as 2026-03-01T12:00:00Z; a date alone is its first moment, UTC"
)
_AS_OF: Final[Schema] = {
    "type": "string",
    "description": f"The time of knowledge: nothing learned later is used. {_INSTANT}. "
    "Default: now.",
}
_COINS: Final[Schema] = {
    "type": "array",
    "items": {"type": "string"},
    "description": "Slugs, tickers or names of coins. An ambiguous ticker is refused, with the "
    "slugs to choose from.",
}
_CATEGORIES: Final[Schema] = {
    "type": "array",
    "items": {"type": "string"},
    "description": "Names of categories, such as Token Unlock. A wrong name is refused, with "
    "similar ones.",
}
_MIN_IMPACT: Final[Schema] = {
    "type": "number",
    "minimum": 0,
    "maximum": 10,
    "description": "The least impact, 0 to 10. An event with a band alone is included if its whole "
    "band reaches it; an event of unknown impact is left out.",
}
_PAGE: Final[Schema] = {
    "limit": {
        "type": "integer",
        "minimum": 1,
        "maximum": LIMIT_MAX,
        "default": LIMIT,
        "description": "The most rows of the answer.",
    },
    "offset": {
        "type": "integer",
        "minimum": 0,
        "default": 0,
        "description": "Rows to skip: next_offset of a truncated answer.",
    },
}
_FILTERS: Final[Schema] = {
    "coins": _COINS,
    "categories": _CATEGORIES,
    "min_impact": _MIN_IMPACT,
}


def _column(kind: str, description: str, *, is_always_there: bool = False) -> Schema:
    return {"type": kind if is_always_there else [kind, "null"], "description": description}


def _names(description: str) -> Schema:
    return {"type": ["array", "null"], "items": {"type": "string"}, "description": description}


_EVENT: Final[Schema] = {
    "event_id": _column("string", "The identifier, for history_of.", is_always_there=True),
    "title": _column("string", "The title, written by the service's contributors."),
    "displayed_date_full": _column("string", "The date for people, with its year."),
    "date_exact": _column(
        "string",
        "The start, UTC; a date at 00:00 with date_precision day is a UTC day. Null for an "
        "estimated event.",
    ),
    "date_precision": _column("string", "instant, day, or the period: month, quarter, year …"),
    "is_estimated": _column("boolean", "Whether the service calls the date an estimate."),
    "earliest": _column("string", "The earliest time at which it can begin, UTC."),
    "latest": _column("string", "The time at which it is over, UTC, exclusive."),
    "coins": _names("Slugs of coins."),
    "categories": _names("Names of categories."),
    "impact": _column("number", "The score, 0 to 10; null if unknown."),
    "impact_band": _column("string", "Low, Mid, High or Critical."),
}
_KNOWN: Final[Schema] = {
    "status": _column("string", "scheduled, cancelled or withdrawn, at the time of knowledge."),
    "unknown_fields": _names(
        "Fields that the plan of the pulled data does not show: unknown, not empty."
    ),
    "version": _column("integer", "The number of the version, from 1.", is_always_there=True),
}
_HISTORY: Final[Schema] = {
    **_EVENT,
    **_KNOWN,
    "known_from": _column("string", "When the version became known, UTC.", is_always_there=True),
    "known_to": _column("string", "When the next version became known, UTC; null if none had."),
    "change_kinds": _names("Kinds of change, as in what_changed."),
    "changed_fields": _names("Fields that changed."),
}
_CHANGE: Final[Schema] = {
    "event_id": _EVENT["event_id"],
    "title": _EVENT["title"],
    "known_from": _column("string", "When the change became known, UTC.", is_always_there=True),
    "kind": _column("string", "The kind of change.", is_always_there=True),
    "old_value": _column("string", "The value before; null if none."),
    "new_value": _column(
        "string", "The value after; for revised and revealed the names of fields."
    ),
}
_COVERAGE: Final[Schema] = {
    "feed": _column(
        "string", "The kind of pull: export, events, cancellations …", is_always_there=True
    ),
    "plan": _column("string", "The plan of the key, which decides the fields shown."),
    "lower": _column("string", "The first event date pulled; null: without a bound."),
    "upper": _column("string", "The last event date pulled; null: without a bound."),
    "observed_at": _column("string", "The last complete pull, UTC.", is_always_there=True),
    "age_hours": _column("number", "Its age at the time of knowledge, hours."),
}
_COIN: Final[Schema] = {
    "slug": _column("string", "The unique name, for the arguments coins.", is_always_there=True),
    "symbol": _column("string", "The ticker, which several coins may share."),
    "name": _column("string", "The name."),
    "rank": _column("integer", "The rank, 1 is the highest."),
}
_TABLE: Final[Schema] = {
    "description": _column("string", "The content and its unit."),
}
_OF_EVENTS: Final = (
    "Show displayed_date_full to people. date_exact is null for an estimated event: its date is a "
    "period between earliest and latest, or a deadline at latest, never a day. Times are UTC."
)

TOOLS: Final = (
    ToolSpec(
        "upcoming",
        "Upcoming events",
        "Events that are still to come or in progress, as known at a time: scheduled, not missing, "
        "not over. Use it for: which token unlocks are next week? Sorted by the earliest possible "
        "start, so estimated events of a long period come first; for a calendar of exact dates set "
        "include_estimated to false. " + _OF_EVENTS,
        {
            **_FILTERS,
            "within": {
                "type": "string",
                "default": "14d",
                "description": "How far ahead an event may begin, such as 12h, 7d or 8w.",
            },
            "include_estimated": {
                "type": "boolean",
                "default": True,
                "description": "Whether to include events without an exact date.",
            },
            "as_of": _AS_OF,
            **_PAGE,
        },
        _EVENT,
    ),
    ToolSpec(
        "events_as_of",
        "Events as known at a time",
        "All events, past and to come, as they were known at a time, without look-ahead. Use it "
        "for questions such as: which events in April were known on 1 March? history_of has the "
        "description and all other fields of one event. A field in unknown_fields is unknown, not "
        "empty. " + _OF_EVENTS,
        {
            "as_of": _AS_OF,
            "from": {"type": "string", "description": f"The first event date. {_INSTANT}."},
            "to": {"type": "string", "description": f"The end, exclusive. {_INSTANT}."},
            "status": {
                "type": "string",
                "enum": [*STATUSES, "all"],
                "default": "scheduled",
                "description": "The status at that time.",
            },
            **_FILTERS,
            **_PAGE,
        },
        {**_EVENT, **_KNOWN},
    ),
    ToolSpec(
        "history_of",
        "History of an event",
        "Every version of one event with all of its fields, oldest first. Use it for: when did "
        "this date move, and when did that become known? A field in unknown_fields is unknown, not "
        "empty. " + _OF_EVENTS,
        {
            "event_id": {"type": "string", "description": "The identifier, from another tool."},
            "as_of": _AS_OF,
            **_PAGE,
        },
        _HISTORY,
        ("event_id",),
    ),
    ToolSpec(
        "what_changed",
        "Changes in a period",
        "Changes that became known after since, until until: one row per version and kind, oldest "
        "first, with old and new values. Use it for: which events moved or were cancelled since "
        "Monday? A moved date has the kind rescheduled. as_of of the answer is until.",
        {
            "since": {"type": "string", "description": f"{_INSTANT}; also today or yesterday."},
            "until": {"type": "string", "description": f"{_INSTANT}. Default: now."},
            "kinds": {
                "type": "array",
                "items": {"type": "string", "enum": list(KINDS)},
                "description": "Kinds of change. Default: all. made_exact: an estimate became a "
                "date. rescored: another impact. revealed: a field became visible.",
            },
            "coins": _COINS,
            "min_impact": _MIN_IMPACT,
            **_PAGE,
        },
        _CHANGE,
        ("since",),
    ),
    ToolSpec(
        "coverage",
        "Coverage of the data",
        "Which event dates had been pulled, and how old the pulls are. Use it before you say that "
        "there is no event, or how fresh the data is: for dates without a pull, an absent "
        "event says nothing.",
        {"as_of": _AS_OF, **_PAGE},
        _COVERAGE,
    ),
    ToolSpec(
        "resolve_coin",
        "Coin of a name or ticker",
        "The one coin with a slug, ticker or name, as last seen. An ambiguous text is refused, "
        "with the slugs to choose from.",
        {"coin": {"type": "string", "description": "A slug, ticker or name."}},
        _COIN,
        ("coin",),
    ),
    ToolSpec(
        "tables",
        "Tables for SQL",
        "The tables, views and macros that query can read, with descriptions; with a name, its "
        "columns with types and units.",
        {"name": {"type": "string", "description": "The name of a table or view."}, **_PAGE},
        _TABLE,
    ),
    ToolSpec(
        "query",
        "SQL query",
        "Run one DuckDB statement that reads the warehouse, for questions that the other tools do "
        "not answer, such as counts. Call tables first. Files, network and settings are refused; "
        "memory, time and rows are limited. Tables and views show the present: for the past read "
        "FROM events_as_of('2026-03-01'). Unless date_precision is instant or day, the column date "
        "is not the day of the event: select displayed_date_full. as_of of the answer is the time "
        "of the publication. A truncated answer needs a statement with fewer rows or columns, or "
        "LIMIT and OFFSET.",
        {
            "sql": {
                "type": "string",
                "description": "One statement, such as SELECT status, count(*) FROM "
                "events_as_of('2026-03-01') GROUP BY status",
            },
            "limit": _PAGE["limit"],
        },
        {},
        ("sql",),
    ),
)

_ANSWER: Final[Schema] = {
    "as_of": {"type": "string", "description": "The time of knowledge, UTC."},
    "snapshot": {
        "type": "object",
        "description": "The publication that was read, and when it was made, UTC.",
        "properties": {"id": {"type": "string"}, "published_at": {"type": "string"}},
        "required": ["id", "published_at"],
    },
    "total_rows": {"type": "integer", "description": "All rows of the question."},
    "truncated": {"type": "boolean", "description": "Whether rows has fewer than total_rows."},
    "truncated_by": {
        "type": ["string", "null"],
        "enum": ["rows", "bytes", "offset", None],
        "description": "rows: the limit. bytes: the size of an answer. offset: only rows before.",
    },
    "next_offset": {
        "type": ["integer", "null"],
        "description": "The offset that reads on; null at the end, and for query.",
    },
    "note": {"type": "string", "description": "Which rows these are, and how to get the others."},
}
_REQUIRED: Final = (
    *("as_of", "snapshot", "total_rows", "truncated", "truncated_by", "next_offset", "note"),
)
