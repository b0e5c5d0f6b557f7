"""The tools of an assistant: each is one question of the package, with its schema and its answer.

Every answer has `as_of`, the time of knowledge; `snapshot`, the publication that was read;
`total_rows`; `truncated`; and `rows`, at most `limit` of them and at most `BYTES_MAX` of JSON.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any, Final

from almanac.database import Database, open_database
from almanac.errors import InvalidArgument, UnknownName
from almanac.events import known_at
from almanac.forms import json_text
from almanac.mcp.query_process import run_query
from almanac.reading.query_limits import QueryLimits
from almanac.results import Result

Schema = dict[str, Any]
Arguments = Mapping[str, Any]
LIMIT: Final = 50
LIMIT_MAX: Final = 1_000
BYTES_MAX: Final = 200_000
"""An assistant reads the whole answer; a longer one would fill its context."""
_LIMITS: Final = QueryLimits(memory_bytes=1_000_000_000, threads=2, timeout_s=30.0)


@dataclass(frozen=True, slots=True)
class FoundRows:
    """The rows of a question: a part of `total`, at the time of knowledge."""

    as_of: datetime
    rows: Sequence[Mapping[str, Any]]
    total: int
    facts: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool: how it is described to an assistant, and the function that answers."""

    name: str
    title: str
    description: str
    properties: Schema
    answer: Callable[[Database, Arguments], FoundRows]
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
    "description": "The least impact score. Events without a known score are left out.",
}
_PAGE: Final[Schema] = {
    "limit": {
        "type": "integer",
        "minimum": 1,
        "maximum": LIMIT_MAX,
        "default": LIMIT,
        "description": "The most rows.",
    },
    "offset": {
        "type": "integer",
        "minimum": 0,
        "default": 0,
        "description": "Rows to skip, to read on after a truncated answer.",
    },
}
_FILTERS: Final[Schema] = {
    "coins": _COINS,
    "categories": _CATEGORIES,
    "min_impact": _MIN_IMPACT,
}
_OF_EVENTS: Final = (
    "Show displayed_date_full to people. date_exact is null for an estimated event: its date is "
    "only a period or a deadline, between earliest and latest. Impact is 0 to 10. All times are "
    "UTC."
)


def _upcoming(database: Database, given: Arguments) -> FoundRows:
    found = database.upcoming(
        **_some(given, "coins", "within", "as_of", "categories", "min_impact"),
        include_estimated=given.get("include_estimated", True),
    )
    return _page(database, found, given)


def _events_as_of(database: Database, given: Arguments) -> FoundRows:
    window = (given.get("from"), given.get("to"))
    found = database.events(
        **_some(given, "coins", "as_of", "categories", "min_impact", "status"),
        window=None if window == (None, None) else window,
    )
    return _page(database, found, given)


def _history_of(database: Database, given: Arguments) -> FoundRows:
    event_id = given["event_id"]
    moment = known_at(database.reader, given.get("as_of"), "as_of")
    rows = [row for row in database.history(event_id).rows() if row["known_from"] <= moment]
    if not rows:
        raise UnknownName(f"the event {event_id!r} was not known at {moment.isoformat()}")
    for row in rows:
        if row["known_to"] is not None and row["known_to"] > moment:
            row["known_to"] = None  # Its end became known later.
    return FoundRows(moment, _sliced(rows, given), len(rows))


def _what_changed(database: Database, given: Arguments) -> FoundRows:
    found = database.changes(**_some(given, "since", "until", "kinds", "coins", "min_impact"))
    return _page(database, found, {**given, "as_of": given.get("until")})


def _coverage(database: Database, given: Arguments) -> FoundRows:
    found = database.coverage(given.get("as_of"))
    facts = {"first_pull_at": found.first_pull_at, "last_pull_at": found.last_pull_at}
    rows = found.windows.rows()
    return FoundRows(found.at, _sliced(rows, given), len(rows), facts)


def _resolve_coin(database: Database, given: Arguments) -> FoundRows:
    coin = database.resolve(given["coin"])
    row = {"slug": coin.slug, "symbol": coin.symbol, "name": coin.name, "rank": coin.rank}
    return FoundRows(database.reader.now(), [row], 1)


def _tables(database: Database, given: Arguments) -> FoundRows:
    return _page(database, database.tables(given.get("name")), given)


def _query(database: Database, given: Arguments) -> FoundRows:
    answer = run_query(
        database.path, given["sql"], rows_max=given.get("limit", LIMIT), limits=_LIMITS
    )
    return FoundRows(database.reader.now(), answer.rows, answer.count)


TOOLS: Final = (
    ToolSpec(
        "upcoming",
        "Upcoming events",
        "Events that were still to come at a time, soonest first: scheduled, not missing, not "
        "over. Use it for questions such as: which token unlocks are next week? " + _OF_EVENTS,
        {
            **_FILTERS,
            "within": {
                "type": "string",
                "default": "14d",
                "description": "How far ahead, such as 12h, 7d or 8w.",
            },
            "include_estimated": {
                "type": "boolean",
                "default": True,
                "description": "Whether to include events without an exact date.",
            },
            "as_of": _AS_OF,
            **_PAGE,
        },
        _upcoming,
    ),
    ToolSpec(
        "events_as_of",
        "Events as known at a time",
        "All events, past and to come, as they were known at a time, without look-ahead. "
        "unknown_fields names fields that the plan of the data hides: they are unknown, not "
        "empty. " + _OF_EVENTS,
        {
            "as_of": _AS_OF,
            "from": {"type": "string", "description": f"The first event date. {_INSTANT}."},
            "to": {"type": "string", "description": f"The end, exclusive. {_INSTANT}."},
            "status": {
                "type": "string",
                "enum": ["scheduled", "cancelled", "withdrawn", "all"],
                "description": "The status at that time. Default: scheduled.",
            },
            **_FILTERS,
            **_PAGE,
        },
        _events_as_of,
    ),
    ToolSpec(
        "history_of",
        "History of an event",
        "Every version of one event, oldest first: known_from is when it became known, "
        "change_kinds and changed_fields say what changed. " + _OF_EVENTS,
        {
            "event_id": {"type": "string", "description": "The identifier, from another tool."},
            "as_of": _AS_OF,
            **_PAGE,
        },
        _history_of,
        ("event_id",),
    ),
    ToolSpec(
        "what_changed",
        "Changes in a period",
        "Changes that became known after `since`, until `until`: one row per version and kind, "
        "with old and new values, oldest first. A move has the kind rescheduled.",
        {
            "since": {"type": "string", "description": f"{_INSTANT}; also today or yesterday."},
            "until": {"type": "string", "description": f"{_INSTANT}. Default: now."},
            "kinds": {
                "type": "array",
                "items": {"type": "string"},
                "description": "Kinds of change: cancelled, rescheduled, made_exact, "
                "made_estimated, rescored, created, withdrawn, restored, revised, revealed.",
            },
            "coins": _COINS,
            "min_impact": _MIN_IMPACT,
            **_PAGE,
        },
        _what_changed,
        ("since",),
    ),
    ToolSpec(
        "coverage",
        "Coverage of the data",
        "Which event dates had been pulled, and how old the pulls are. An event that is absent "
        "from dates that were not pulled says nothing.",
        {"as_of": _AS_OF, **_PAGE},
        _coverage,
    ),
    ToolSpec(
        "resolve_coin",
        "Coin of a name or ticker",
        "The one coin with a slug, ticker or name. An ambiguous one is refused, with the slugs.",
        {"coin": {"type": "string", "description": "A slug, ticker or name."}},
        _resolve_coin,
        ("coin",),
    ),
    ToolSpec(
        "tables",
        "Tables for SQL",
        "The tables, views and macros that `query` can read, with descriptions; with a name, its "
        "columns.",
        {"name": {"type": "string", "description": "The name of a table or view."}, **_PAGE},
        _tables,
    ),
    ToolSpec(
        "query",
        "SQL query",
        "Run one DuckDB statement that only reads the warehouse; files, network and settings are "
        "refused. Prefer the other tools. For the past use events_as_of('2026-03-01') in FROM: the "
        "tables events and coins show the present. Call `tables` first. A truncated answer needs "
        "a statement with fewer rows or columns.",
        {
            "sql": {"type": "string", "description": "One statement, such as SELECT."},
            "limit": _PAGE["limit"],
        },
        _query,
        ("sql",),
    ),
)

OUTPUT_SCHEMA: Final[Schema] = {
    "type": "object",
    "properties": {
        "as_of": {"type": "string", "description": "The time of knowledge, UTC."},
        "snapshot": {
            "type": "object",
            "description": "The publication that was read.",
            "properties": {"id": {"type": "string"}, "published_at": {"type": "string"}},
            "required": ["id", "published_at"],
        },
        "total_rows": {"type": "integer", "description": "All rows of the answer."},
        "truncated": {"type": "boolean", "description": "Whether `rows` has fewer than all."},
        "note": {"type": "string", "description": "How to read the rest."},
        "rows": {"type": "array", "items": {"type": "object"}},
    },
    "required": ["as_of", "snapshot", "total_rows", "truncated", "rows"],
}


class Toolbox:
    """Answers tools from one published file; a later publication is read by the next call.

    Raises (open): as `almanac.open`.
    """

    def __init__(self, file: Path, *, clock: Callable[[], datetime] | None = None) -> None:
        options: dict[str, Any] = {} if clock is None else {"clock": clock}
        self._database = open_database(file, limits=_LIMITS, **options)

    def close(self) -> None:
        self._database.close()

    def call(self, name: str, given: Arguments) -> dict[str, Any]:
        """Return the answer of a tool, as JSON values.

        Raises:
            UnknownName: there is no such tool.
            AlmanacError: the question can't be answered; the message says what to do.
        """
        tool = next((each for each in TOOLS if each.name == name), None)
        if tool is None:
            names = ", ".join(each.name for each in TOOLS)
            raise UnknownName(f"there is no tool {name!r}; the tools are {names}")
        check_arguments(tool, given)
        with self._database.reader.pinned():
            found = tool.answer(self._database, given)
            publication = self._database.publication
        return _as_json(found, publication.id, publication.published_at, given)


def check_arguments(tool: ToolSpec, given: Arguments) -> None:
    """Raise InvalidArgument if arguments do not fit the schema of a tool."""
    from jsonschema import Draft202012Validator

    for error in Draft202012Validator(tool.input_schema).iter_errors(dict(given)):
        where = ".".join(map(str, error.absolute_path)) or "arguments"
        raise InvalidArgument(f"{where}: {error.message[:300]}")


def _some(given: Arguments, *names: str) -> dict[str, Any]:
    return {name: given[name] for name in names if given.get(name) is not None}


def _page(database: Database, found: Result, given: Arguments) -> FoundRows:
    moment = known_at(database.reader, given.get("as_of"), "as_of")
    return FoundRows(moment, _sliced(found.rows(), given), len(found))


def _sliced(rows: Sequence[Mapping[str, Any]], given: Arguments) -> list[Mapping[str, Any]]:
    first = given.get("offset", 0)
    return list(islice(rows, first, first + given.get("limit", LIMIT)))


def _as_json(
    found: FoundRows, snapshot: str, published_at: datetime, given: Arguments
) -> dict[str, Any]:
    rows: list[Any] = []
    size = 0
    for row in found.rows:
        text = json_text(dict(row))
        size += len(text.encode())
        if rows and size > BYTES_MAX:
            break
        rows.append(json.loads(text))
    offset = given.get("offset", 0)
    is_truncated = offset + len(rows) < found.total or offset > 0
    answer = {
        "as_of": found.as_of.astimezone(UTC),
        "snapshot": {"id": snapshot, "published_at": published_at},
        "total_rows": found.total,
        "truncated": is_truncated,
        **(found.facts or {}),
    }
    shown: dict[str, Any] = json.loads(json_text(answer))
    if is_truncated:
        last = offset + len(rows)
        shown["note"] = f"Rows {offset + 1:,} to {last:,} of {found.total:,}" + (
            f"; read on with offset {last}" if last < found.total and "sql" not in given else ""
        )
    return {**shown, "rows": rows}
