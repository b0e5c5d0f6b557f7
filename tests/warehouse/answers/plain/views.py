"""The text of a published view, as of another now(): the clock of a query can't be set."""

import re

import duckdb

_NOW = re.compile(r"\bnow\(\)", re.IGNORECASE)


def published_text(connection: duckdb.DuckDBPyConnection, name: str) -> str:
    """Return the query of a published view, as the file has it."""
    sql = "SELECT sql FROM duckdb_views() WHERE view_name = $name AND NOT internal"
    ((text,),) = connection.execute(sql, {"name": name}).fetchall()
    return str(text).partition(" AS ")[2].rstrip(";\n ")


def text_at_now(connection: duckdb.DuckDBPyConnection, name: str, now: str) -> str:
    """Return the query with `now` in place of each now(), also in the views that it reads."""
    text = _NOW.sub(now, published_text(connection, name))
    for other in ("upcoming_events",):
        if re.search(rf"\b{other}\b", text):
            inner = text_at_now(connection, other, now)
            text = re.sub(rf"\b(?:main\.)?{other}\b", lambda _, inner=inner: f"({inner})", text)
    return text


def view_at(connection: duckdb.DuckDBPyConnection, name: str, select: str) -> str:
    """Return a query over a view with a parameter $now in place of the clock.

    With now() put back in its place, the text is that of the published view.
    """
    text = text_at_now(connection, name, "$now::TIMESTAMPTZ")
    assert "now()" not in text.lower()
    assert "$now" in text
    if "(SELECT" not in text:
        assert text.replace("$now::TIMESTAMPTZ", "now()") == published_text(connection, name)
    return f"{select} FROM ({text})"
