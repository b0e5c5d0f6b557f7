"""Answers the tools of an assistant from one published file.

Every answer has `as_of`, the time of knowledge; `snapshot`, the publication that was read;
`total_rows`; `truncated`; and `rows`, at most `limit` of them and at most `BYTES_MAX` of JSON.
"""

import json
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from jsonschema import Draft202012Validator

from almanac.database import Database, open_database
from almanac.errors import AlmanacError, InvalidArgument, QueryRefused, UnknownName
from almanac.events import read_known_at
from almanac.mcp.query_process import QueryProcesses, first_rows
from almanac.mcp.tools import BYTES_MAX, LIMIT, TOOLS
from almanac.reading.named_sql import NamedStatements
from almanac.reading.query_limits import QueryLimits
from almanac.results import Result
from almanac.safe_text import json_text

Arguments = Mapping[str, Any]
LIMITS: Final = QueryLimits(memory_bytes=1_000_000_000, threads=2, timeout_s=30.0)
_EVENT_COLUMNS: Final = (
    *("event_id", "title", "displayed_date_full", "date", "date_precision", "is_estimated"),
    *("earliest", "latest", "status", "coins", "categories", "impact", "impact_band"),
    *("cancelled_at", "missing_since", "first_seen_at", "changed_at", "version", "source_url"),
    "unknown_fields",
)
"""Without the long texts, which history_of has."""
_MESSAGE_MAX: Final = 1_500
_EXACT: Final = ("instant", "day")


@dataclass(frozen=True, slots=True)
class FoundRows:
    """The result rows of a tool from `offset` on, as of a time of knowledge. `total` counts all."""

    as_of: datetime
    rows: list[dict[str, Any]]
    total: int
    facts: Mapping[str, Any] = field(default_factory=dict)


def _upcoming(database: Database, given: Arguments) -> FoundRows:
    moment = read_known_at(database.reader, given.get("as_of"), "as_of")
    found = database.upcoming(
        **_some(given, "coins", "within", "categories", "min_impact"),
        as_of=given.get("as_of") or moment,
        include_estimated=given.get("include_estimated", True),
    )
    return _cut(moment, found, given)


def _events_as_of(database: Database, given: Arguments) -> FoundRows:
    moment = read_known_at(database.reader, given.get("as_of"), "as_of")
    window = (given.get("from"), given.get("to"))
    found = database.events(
        **_some(given, "coins", "categories", "min_impact", "status"),
        as_of=given.get("as_of") or moment,
        window=None if window == (None, None) else window,
    )
    return _cut(moment, found[list(_EVENT_COLUMNS)], given)


def _history_of(database: Database, given: Arguments) -> FoundRows:
    event_id = given["event_id"]
    moment = read_known_at(database.reader, given.get("as_of"), "as_of")
    try:
        rows = database.history(event_id).rows()
    except UnknownName:
        rows = []
    rows = [row for row in rows if row["known_from"] <= moment]
    if not rows:
        # In the same words, whether the event became known later or never.
        raise UnknownName(f"no event with the id {event_id!r} was known at {moment.isoformat()}")
    for row in rows:
        if row["known_to"] is not None and row["known_to"] > moment:
            row["known_to"] = None  # Its end became known later.
    first = given.get("offset", 0)
    shown = rows[first : first + given.get("limit", LIMIT)]
    return FoundRows(moment, [_with_exact_date(row) for row in shown], len(rows))


def _what_changed(database: Database, given: Arguments) -> FoundRows:
    moment = read_known_at(database.reader, given.get("until"), "until")
    found = database.changes(
        **_some(given, "since", "kinds", "coins", "min_impact"), until=given.get("until") or moment
    )
    return _cut(moment, found, given)


def _coverage(database: Database, given: Arguments) -> FoundRows:
    found = database.coverage(given.get("as_of"))
    facts = {"first_pull_at": found.first_pull_at, "last_pull_at": found.last_pull_at}
    return _cut(found.at, found.windows, given, facts)


def _resolve_coin(database: Database, given: Arguments) -> FoundRows:
    coin = database.resolve(given["coin"])
    now = database.reader.now()
    (found,) = database.reader.rows(_SQL["find_rank"], {"coin": coin.slug, "at": now})
    row = {"slug": coin.slug, "symbol": coin.symbol, "name": coin.name, "rank": found["rank"]}
    return FoundRows(now, [row], 1)


_ANSWERS: Final[Mapping[str, Callable[[Database, Arguments], FoundRows]]] = {
    "upcoming": _upcoming,
    "events_as_of": _events_as_of,
    "history_of": _history_of,
    "what_changed": _what_changed,
    "coverage": _coverage,
    "resolve_coin": _resolve_coin,
    "tables": lambda database, given: _cut(
        database.reader.now(), database.tables(given.get("name")), given
    ),
}
_SQL = NamedStatements("almanac.mcp")


class Toolbox:
    """Answers tools from one published file; a later publication is read by the next call.

    With `trust_clock`, data pulled after the clock's time is not visible. A replay has no
    `query`, which would read the whole history.

    Raises (open): as `almanac.open`.
    """

    def __init__(
        self,
        file: Path,
        *,
        clock: Callable[[], datetime] | None = None,
        trust_clock: bool = False,
        is_replay: bool = False,
        limits: QueryLimits = LIMITS,
    ) -> None:
        options: dict[str, Any] = {"trust_clock": trust_clock}
        if clock is not None:
            options["clock"] = clock
        self._database = open_database(file, limits=limits, **options)
        self._is_replay = is_replay
        self._queries = QueryProcesses(self._database.path, limits)

    def stop(self) -> None:
        """End running statements; later ones are refused."""
        self._queries.close()

    def close(self) -> None:
        """End running statements, and close the file."""
        self.stop()
        self._database.close()

    def call(self, name: str, given: Arguments) -> dict[str, Any]:
        """Return the answer of a tool, as JSON values.

        Raises:
            AlmanacError: the question can't be answered; the message says what to do, and has no
                path of this machine.
        """
        tool = next((each for each in TOOLS if each.name == name), None)
        if tool is None:
            names = ", ".join(each.name for each in TOOLS)
            raise UnknownName(f"there is no tool {name!r}; the tools are {names}")
        for wrong in Draft202012Validator(tool.input_schema).iter_errors(dict(given)):
            where = ".".join(map(str, wrong.absolute_path)) or "arguments"
            takes = f"The tool {name} takes {', '.join(tool.properties)}."
            raise InvalidArgument(f"{where}: {wrong.message[:300]}. {takes}")
        try:
            return self._query(given) if name == "query" else self._answer(name, given)
        except AlmanacError as error:
            message = without_paths(str(error)[:_MESSAGE_MAX], self._database.path)
            raise AlmanacError(message) from error

    def _answer(self, name: str, given: Arguments) -> dict[str, Any]:
        with self._database.reader.pinned():
            found = _ANSWERS[name](self._database, given)
            publication = self._database.publication
        offset, limit = given.get("offset", 0), given.get("limit", LIMIT)
        rows, _ = first_rows(found.rows, limit, BYTES_MAX)
        last = offset + len(rows)
        snapshot = {"id": publication.id, "published_at": publication.published_at}
        facts: dict[str, Any] = json.loads(
            json_text({"as_of": found.as_of, **found.facts, "snapshot": snapshot})
        )
        note = _page_note(offset, last, found.total)
        answer = _envelope(rows, found.total, last, limit, note) | facts
        if last < found.total:
            answer["next_offset"] = max(last, offset + 1)
        elif offset:
            answer |= {"truncated": True, "truncated_by": "offset"}
        return answer

    def _query(self, given: Arguments) -> dict[str, Any]:
        if self._is_replay:
            raise QueryRefused(
                "query reads the whole history, and this server replays an earlier time. Use the "
                "other tools, which show the knowledge of that time."
            )
        limit = given.get("limit", LIMIT)
        found = self._queries.run(given["sql"], rows_max=limit, bytes_max=BYTES_MAX)
        shown = len(found.rows)
        note = f"{shown:,} of {found.count:,} rows."
        if shown < found.count:
            note += " For the others, raise limit, select fewer columns, or use LIMIT and OFFSET."
        published_at = found.snapshot["published_at"].replace("+00:00", "Z")
        return _envelope(found.rows, found.count, shown, limit, note) | {
            "as_of": published_at,
            "snapshot": {**found.snapshot, "published_at": published_at},
            "columns": found.columns,
        }


def _envelope(
    rows: list[dict[str, Any]], total: int, last: int, limit: int, note: str
) -> dict[str, Any]:
    is_cut = last < total
    return {
        "total_rows": total,
        "truncated": is_cut,
        "truncated_by": ("rows" if len(rows) == limit else "bytes") if is_cut else None,
        "next_offset": None,
        "note": note,
        "rows": rows,
    }


def without_paths(text: str, file: Path) -> str:
    places = (file.absolute().parent, file.resolve().parent, Path(tempfile.gettempdir()))
    for folder in sorted(map(str, {*places, Path.home()} - {Path("/")}), key=len, reverse=True):
        text = text.replace(folder, "…")
    return text


def _some(given: Arguments, *names: str) -> dict[str, Any]:
    return {name: given[name] for name in names if given.get(name) is not None}


def _cut(
    moment: datetime, found: Result, given: Arguments, facts: Mapping[str, Any] | None = None
) -> FoundRows:
    """Return the rows that the arguments `offset` and `limit` select."""
    rest = found.tail(max(0, len(found) - given.get("offset", 0)))
    rows = rest.head(given.get("limit", LIMIT)).rows()
    return FoundRows(moment, [_with_exact_date(row) for row in rows], len(found), facts or {})


def _with_exact_date(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row with `date_exact` for `date`, which is a period's start if it is estimated."""
    if "date" not in row:
        return row
    is_exact = row["date_precision"] in _EXACT
    ends = {} if "date_end" not in row else {"date_end": row["date_end"] if is_exact else None}
    return {
        ("date_exact" if name == "date" else name): (value if name != "date" or is_exact else None)
        for name, value in row.items()
    } | ends


def _page_note(offset: int, last: int, total: int) -> str:
    if total == 0:
        return "No rows."
    if last == offset and last < total:
        return (
            f"The row {offset + 1:,} of {total:,} is larger than an answer may be. Skip it with "
            f"offset {offset + 1}, or use query with fewer columns."
        )
    note = f"Rows {offset + 1:,} to {last:,} of {total:,}." if last > offset else "No more rows."
    return note + (f" Read on with offset {last}." if last < total else "")
