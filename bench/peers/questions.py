"""Questions to the histories, by DuckDB's SQL or the `almanac` package, with checked answers."""

import time
from collections.abc import Callable
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

import duckdb

import almanac
from almanac.reading.named_sql import NamedStatements
from bench.children import ChildFailed
from bench.peers.histories import find_rows, open_beside
from bench.peers.sides import ALMANAC, Side

AS_OF: Final = "events as of a past time, ms"
HISTORY: Final = "history of one event, ms"
CHANGES: Final = "changes of a week, ms"
_SQL: Final = NamedStatements("bench.peers")
_REPEATS: Final = 7


def ask_questions(
    side: Side, file: Path, reference: Path, *, at: datetime, since: datetime, until: datetime
) -> dict[str, float]:
    """Return the milliseconds of each question, read into Arrow, the least of some repeats.

    Raises:
        ChildFailed: an answer differs from the reference.
    """
    with open_beside(file, reference) as connection:
        ((event_id,),) = connection.execute(_SQL["choose_event"]).fetchall()
        columns = ", ".join(connection.table("reference.history").columns[:-2])
    values = {
        AS_OF: {"at": at},
        HISTORY: {"event_id": event_id},
        CHANGES: {"since": since, "until": until},
    }
    answers: dict[str, Any] = {}
    times: dict[str, float] = {}
    texts = {
        name: _SQL[name]
        .replace("{columns}", columns)
        .replace("{rows}", find_rows(side))
        .rstrip(";")
        for name in ("as_of", "as_of_almanac", "history", "changes")
    }
    if side.name == ALMANAC:
        with almanac.open(file.parent, follow=False) as db:
            ask: dict[str, Callable[[], Any]] = {
                AS_OF: lambda: db.sql(texts["as_of_almanac"], at=at).arrow(),
                HISTORY: lambda: db.history(event_id).arrow(),
                CHANGES: lambda: db.changes(since, until).arrow(),
            }
            for question, run in ask.items():
                times[question], answers[question] = _measure(run)
    else:
        names = {AS_OF: "as_of", HISTORY: "history", CHANGES: "changes"}
        with open_beside(file, reference) as connection:
            for question, name in names.items():
                run = partial(_read, connection, texts[name], values[question])
                times[question], answers[question] = _measure(run)
    for question, answer in answers.items():
        _check_answer(side, file, reference, question, answer, values[question])
    return times


def _read(connection: duckdb.DuckDBPyConnection, text: str, values: dict[str, Any]) -> Any:
    return connection.sql(text, params=values).to_arrow_table()


def _measure(run: Callable[[], Any]) -> tuple[float, Any]:
    """Return the least milliseconds of a question that was asked before, and its answer."""
    answer = run()
    taken = []
    for _ in range(_REPEATS):
        began = time.perf_counter()
        run()
        taken.append(1000 * (time.perf_counter() - began))
    return min(taken), answer


def _check_answer(
    side: Side, file: Path, reference: Path, question: str, answer: Any, values: dict[str, Any]
) -> None:
    moves = "kind = 'rescheduled'" if side.name == ALMANAC else "old_date IS NOT NULL"
    shown, expected = {
        AS_OF: ("SELECT event_id, date, title FROM shown", "expected_as_of"),
        HISTORY: ("SELECT event_id, date, known_from FROM shown", "expected_history"),
        CHANGES: (
            f"""SELECT event_id, known_from FROM shown WHERE {moves} AND event_id NOT IN
            (SELECT event_id FROM reference.groups WHERE kind = 'returned')""",
            "expected_changes",
        ),
    }[question]
    with open_beside(file, reference) as connection:
        connection.register("shown", answer)
        connection.execute(f"CREATE TEMP TABLE answer AS {shown}")
        text = _SQL[expected].rstrip(";")
        connection.execute(f"CREATE TEMP TABLE expected AS {text}", values)
        ((wrong,),) = connection.execute(_SQL["count_unexpected"]).fetchall()
    if wrong:
        raise ChildFailed(f"{side.name}, {question}: {wrong} rows differ from the reference")
