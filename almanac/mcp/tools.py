"""The tools of an assistant, as they are described to it: texts and JSON schemas."""

from dataclasses import dataclass
from typing import Any, Final

from almanac.events import KINDS, STATUSES

Schema = dict[str, Any]
LIMIT: Final = 50
LIMIT_MAX: Final = 1_000
BYTES_MAX: Final = 60_000
"""The largest JSON size of the rows, since an assistant reads a whole answer into its context."""


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool: its description and the schema of its arguments."""

    name: str
    title: str
    description: str
    properties: Schema
    required: tuple[str, ...] = ()

    @property
    def input_schema(self) -> Schema:
        return {
            "type": "object",
            "properties": self.properties,
            "required": list(self.required),
            "additionalProperties": False,
        }


_INSTANT: Final = (
    "ISO 8601 with a zone, such as 2026-03-01T12:00:00Z; a date alone is its first moment, UTC"
)


def _text(description: str) -> Schema:
    return {"type": "string", "description": description}


def _texts(description: str, **items: Any) -> Schema:
    return {"type": "array", "items": {"type": "string", **items}, "description": description}


_AS_OF: Final = _text(
    f"The time of knowledge: nothing learned later is used. {_INSTANT}. Default: now."
)
_COINS: Final = _texts(
    "Slugs, tickers or names of coins. An ambiguous ticker is refused, with the slugs to choose "
    "from."
)
_CATEGORIES: Final = _texts(
    "Names of categories, such as Token Unlock. A wrong name is refused, with similar ones."
)
_MIN_IMPACT: Final[Schema] = {
    "type": "number",
    "minimum": 0,
    "maximum": 10,
    "description": "The lowest impact, 0 to 10. An event with only a band is included if its whole "
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
_FILTERS: Final[Schema] = {"coins": _COINS, "categories": _CATEGORIES, "min_impact": _MIN_IMPACT}


_OF_EVENTS: Final = (
    "Show displayed_date_full to people. date_exact is null for an estimated event: its date is a "
    "period between earliest and latest (exclusive), or a deadline at latest, never a day. Times "
    "are UTC. An impact of null is unknown."
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
            "within": _text(
                "How far ahead an event may begin, such as 12h, 7d or 8w. Default: 14d."
            ),
            "include_estimated": {
                "type": "boolean",
                "default": True,
                "description": "Whether to include events without an exact date.",
            },
            "as_of": _AS_OF,
            **_PAGE,
        },
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
            "from": _text("The first event date, as as_of."),
            "to": _text("The end of the event dates, exclusive."),
            "status": {
                "type": "string",
                "enum": [*STATUSES, "all"],
                "default": "scheduled",
                "description": "The status at that time.",
            },
            **_FILTERS,
            **_PAGE,
        },
    ),
    ToolSpec(
        "history_of",
        "History of an event",
        "Every version of one event with all of its fields, oldest first. Use it for: when did "
        "this date move, and when did that become known? A field in unknown_fields is unknown, not "
        "empty. " + _OF_EVENTS,
        {"event_id": _text("The identifier, from another tool."), "as_of": _AS_OF, **_PAGE},
        ("event_id",),
    ),
    ToolSpec(
        "what_changed",
        "Changes in a period",
        "Changes that became known after `since` and up to `until`: one row per version and "
        "kind, oldest "
        "first, with old and new values (for revised and revealed, names of fields). Use it for: "
        "which events moved or were cancelled since Monday? A moved date has the kind "
        "rescheduled. The answer's as_of equals `until`.",
        {
            "since": _text(f"{_INSTANT}; also today or yesterday."),
            "until": _text("The end, as since. Default: now."),
            "kinds": _texts(
                "Kinds of change. Default: all. made_exact: an estimate became a date. rescored: "
                "another impact. revealed: a field became visible.",
                enum=list(KINDS),
            ),
            "coins": _COINS,
            "min_impact": _MIN_IMPACT,
            **_PAGE,
        },
        ("since",),
    ),
    ToolSpec(
        "coverage",
        "Coverage of the data",
        "Which event dates had been pulled, and how old the pulls are. Use it before you say that "
        "there is no event, or how fresh the data is: for dates without a pull, an absent "
        "event says nothing.",
        {"as_of": _AS_OF, **_PAGE},
    ),
    ToolSpec(
        "resolve_coin",
        "Coin of a name or ticker",
        "The one coin with a slug, ticker or name, as last seen. An ambiguous text is refused, "
        "with the slugs to choose from.",
        {"coin": _text("A slug, ticker or name.")},
        ("coin",),
    ),
    ToolSpec(
        "tables",
        "Tables for SQL",
        "The tables, views and macros that query can read, with descriptions; with a name, its "
        "columns with types and units.",
        {"name": _text("The name of a table or view."), **_PAGE},
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
            "sql": _text(
                "One statement, such as SELECT status, count(*) FROM events_as_of('2026-03-01') "
                "GROUP BY status"
            ),
            "limit": _PAGE["limit"],
        },
        ("sql",),
    ),
)

_ANSWER: Final[Schema] = {
    "as_of": _text("The time of knowledge, UTC."),
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
    "note": _text("Which rows these are, and how to get the others."),
    "rows": {"type": "array", "items": {"type": "object"}},
}
OUTPUT_SCHEMA: Final[Schema] = {"type": "object", "properties": _ANSWER, "required": list(_ANSWER)}
"""The schema of every answer."""
