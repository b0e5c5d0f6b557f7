"""Answers the tools of an assistant from one published file.

Every answer has `as_of`, the time of knowledge; `last_pull_at` and `stale`, the age of the data;
`total_rows`; `truncated`; and `rows`, at most `limit` of them and at most `BYTES_MAX` of JSON; and,
except in a replay, `snapshot`, the publication that was read.
"""

import json
import logging
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

from almanac.core.errors import AlmanacError, QueryRefused, WarehouseError
from almanac.core.text import json_text
from almanac.database import Database, open_database
from almanac.events import find_pulls, is_stale
from almanac.mcp.query_process import QueryProcesses, first_rows
from almanac.mcp.tools import Query, Tool, read_call
from almanac.reader import Reader
from almanac.reading.query_limits import QueryLimits
from almanac.results import Result

log = logging.getLogger(__name__)
LIMITS: Final = QueryLimits(
    memory_bytes=1_000_000_000,
    threads=2,
    timeout_s=30.0,
    memory_name="the limit of query",
    timeout_name="the limit of query",
)
_NO_SQL: Final = (
    "SQL reads the whole history, and this server replays an earlier time. Use the other tools, "
    "which show the knowledge of that time."
)
_MESSAGE_MAX: Final = 1_500


class Toolbox:
    """Answers tools from one published file; a later publication is read by the next call.

    The file is opened by the first call, since an assistant starts long before a person asks: a
    file that can't be read is the answer of each call. A replay runs no SQL, which would read the
    whole history. `options` are those of `open_database`.
    """

    def __init__(
        self,
        file: Path | Callable[[], Path],
        *,
        is_replay: bool = False,
        limits: QueryLimits = LIMITS,
        **options: Any,
    ) -> None:
        self._locate: Callable[[], Path] = (lambda: file) if isinstance(file, Path) else file
        self._limits, self._options = limits, options
        self._is_replay = is_replay
        self._lock = threading.Lock()
        self._opened: tuple[Database, QueryProcesses] | None = None

    def close(self) -> None:
        """End running statements, and close the file."""
        if self._opened is not None:
            database, queries = self._opened
            queries.close()
            database.close()

    def call(self, name: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer of a tool, as JSON values.

        Raises:
            AlmanacError: the question can't be answered; the message says what to do, and has no
                path of this machine.
            AmbiguousCoin: it has the coins to choose from.
        """
        tool = read_call(name, given)
        database, queries = self._open()
        reader = database.reader
        try:
            if isinstance(tool, Query) and tool.sql:
                if self._is_replay:
                    raise QueryRefused(_NO_SQL)
                facts = queries.run(tool.sql, tool.offset, tool.limit)
                rows, count = facts.pop("rows"), facts.pop("count")
                return _make_answer(tool, reader, reader.now(), rows, count, facts)
            with reader.pinned():
                moment, found = tool.answer(database)
                id, at = database.publication[:2]
                page = Result(found.arrow().slice(tool.offset, tool.limit)).rows()
                rows, _ = first_rows(map(_show_exact_date, page), 0, tool.limit)
                facts = {} if self._is_replay else {"snapshot": {"id": id, "published_at": at}}
                return _make_answer(tool, reader, moment, rows, len(found), facts, found.notes)
        except AlmanacError as error:
            error.args = (_without_paths(str(error)[:_MESSAGE_MAX], database.path),)
            raise

    def _open(self) -> tuple[Database, QueryProcesses]:
        with self._lock:
            try:
                if self._opened is None:
                    database = open_database(self._locate(), limits=self._limits, **self._options)
                    self._opened = database, QueryProcesses(database.path, self._limits)
            except AlmanacError as error:
                log.error("the warehouse can't be read: %s", error)
                raise WarehouseError(
                    "The warehouse can't be read: its file is missing, damaged or not published "
                    "yet. The log of this program (standard error) has the reason. `almanac run` "
                    "or `almanac merge` of the application publishes it; then ask again."
                ) from error
        return self._opened


def _make_answer(
    tool: Tool,
    reader: Reader,
    moment: datetime,
    rows: list[dict[str, Any]],
    total: int,
    facts: Mapping[str, Any],
    notes: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the rows from the offset on, the age of the data, and the number of rows left out."""
    first_pull, last_pull = find_pulls(reader, moment)
    stale = is_stale(last_pull, moment)
    end = tool.offset + len(rows)
    is_cut = end < total
    note = f"Rows {tool.offset + 1:,} to {end:,} of {total:,}." if rows else "No rows."
    note = " ".join([*(f"{text}." for text in notes), note])
    if is_cut and not rows:
        note = "The next row is larger than an answer may be: skip it, or use query."
    end = max(end, tool.offset + 1)
    if is_cut:
        note += f" Read on with offset {end}."
    if stale:
        shown = "none"
        if last_pull is not None:
            days = (moment - last_pull) / timedelta(days=1)
            shown = f"at {last_pull:%Y-%m-%d %H:%M} UTC, {days:.1f} days before as_of"
        note += f" The data is stale: the last pull was {shown}. Later changes are not known."
    cut_by = "rows" if len(rows) == tool.limit else "bytes"
    known = {"as_of": moment, "first_pull_at": first_pull, "last_pull_at": last_pull}
    return {
        **json.loads(json_text({**known, "stale": stale, **facts})),
        "total_rows": total,
        "truncated": is_cut or tool.offset > 0,
        "truncated_by": cut_by if is_cut else "offset" if tool.offset else None,
        "next_offset": end if is_cut else None,
        "note": note,
        "rows": rows,
    }


def _without_paths(text: str, file: Path) -> str:
    places = (file.absolute().parent, file.resolve().parent, Path(tempfile.gettempdir()))
    for folder in sorted(map(str, {*places, Path.home()} - {Path("/")}), key=len, reverse=True):
        text = text.replace(folder, "…")
    return text


def _show_exact_date(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row with `date_exact` for `date`, which is a period's start if it is estimated."""
    if "date" in row:
        is_exact = row["date_precision"] in ("instant", "day")
        given = {name: row.pop(name) for name in ("date", "date_end") if name in row}
        row["date_exact"] = given["date"] if is_exact else None
        if "date_end" in given:
            row["date_end"] = given["date_end"] if is_exact else None
    return row
