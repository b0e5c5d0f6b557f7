"""Statements made from the declared tables: the only place that puts an identifier into SQL.

Every name comes from a declaration and is quoted. Values are bound; comments can't be bound, and
are quoted as literals.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from almanac.reading.named_sql import quoted, quoted_text
from warehouse.schema.columns import GROUPS, Column
from warehouse.schema.tables import INTERNAL_SCHEMA, Table
from warehouse.sql import Statements

_SQL = Statements(__package__, GROUPS)


def attach(path: Path, alias: str, *, read_only: bool) -> str:
    """Return the ATTACH statement for a file; DuckDB 1.5 can't bind values in it.

    A new file has a storage version that DuckDB 1.4 and later can open.
    """
    option = "READ_ONLY" if read_only else "STORAGE_VERSION 'v1.4.0'"
    return "ATTACH " + quoted_text(str(path)) + " AS " + quoted(alias) + " (" + option + ")"


def use(alias: str) -> str:
    return "USE " + quoted(alias)


def create_schema(name: str) -> str:
    return "CREATE SCHEMA " + quoted(name)


def create(table: Table) -> str:
    columns = ", ".join(map(_definition, table.columns))
    return "CREATE TABLE " + _name(table) + " (" + columns + ")"


def create_view(view: Table) -> str:
    query = _SQL[f"view_{view.name}"]
    return "CREATE VIEW " + _name(view) + " AS " + query


def create_macro(name: str) -> str:
    """Return the statement that makes a macro; internal ones are named with their schema."""
    return _SQL[f"macro_{name.removeprefix(INTERNAL_SCHEMA + '.')}"]


def definitions() -> list[str]:
    """Return the SQL of all views and macros."""
    return list(_SQL.texts.values())


def comments(table: Table, kind: str) -> Iterator[str]:
    """Yield the COMMENT statements of a table and its columns; `kind` is TABLE or VIEW."""
    name = _name(table)
    yield "COMMENT ON " + kind + " " + name + " IS " + quoted_text(table.grain)
    for column in table.columns:
        meaning = column.meaning + (" [" + column.unit + "]" if column.unit else "")
        target = name + "." + quoted(column.name)
        yield "COMMENT ON COLUMN " + target + " IS " + quoted_text(meaning)


def comment_macro(macro: Table) -> str:
    return "COMMENT ON MACRO TABLE " + quoted(macro.name) + " IS " + quoted_text(macro.grain)


def insert(table: Table, query: str) -> str:
    """Fill a table from a query; columns are matched by name."""
    rows = "FROM (\n" + query + "\n) ORDER BY " + quoted(table.order) if table.order else query
    return "INSERT INTO " + _name(table) + " BY NAME\n" + rows


def insert_new(table: Table) -> str:
    return insert(table, "SELECT * FROM " + quoted("new_" + table.name))


def empty(table: Table) -> str:
    return "DELETE FROM " + _name(table)


def no_rows(table: Table) -> str:
    return "SELECT * FROM " + _name(table) + " LIMIT 0"


def have(table: Table, columns: tuple[str, ...], condition: str) -> str:
    """Store in `have_…` the keys, hashes and places of the table's rows that may differ."""
    source = _name(table) + " WHERE " + condition
    return _keep(table, "have_") + _marks(table, columns, source, "rowid AS place")


def want(table: Table, columns: tuple[str, ...], query: str) -> str:
    """Store in `want_…` the keys and hashes of the expected rows."""
    return _keep(table, "want_") + _marks(table, columns, "(\n" + query + "\n)")


def gone(table: Table) -> str:
    """Store in `gone_…` the rows that a table has and should not have."""
    places = "SELECT place FROM " + _only(table, "have_", "want_")
    rows = "SELECT * FROM " + _name(table) + " WHERE rowid IN (" + places + ")"
    return _keep(table, "gone_") + rows


def differs_nowhere(table: Table) -> Iterator[str]:
    """Yield the statements that make `gone_…` and `new_…` without rows."""
    for prefix in ("gone_", "new_"):
        yield _keep(table, prefix) + no_rows(table)


def new(table: Table, query: str) -> str:
    """Store in `new_…` the rows that a table should have and does not have."""
    keys = "(FROM " + _only(table, "want_", "have_") + ") USING (" + _list(table.key) + ")"
    return _keep(table, "new_") + "SELECT * FROM (\n" + query + "\n) SEMI JOIN " + keys


def keep_new(table: Table, query: str) -> str:
    """Store in `new_…` the rows of a query, without a comparison."""
    return _keep(table, "new_") + query


def delete_gone(table: Table) -> str:
    """Delete the rows of `gone_…`, found by the table's key."""
    name, other = _name(table), quoted("gone_" + table.name)
    same = (name + "." + quoted(key) + " = " + other + "." + quoted(key) for key in table.key)
    return "DELETE FROM " + name + " USING " + other + " WHERE " + " AND ".join(same)


def update(table: Table, columns: tuple[str, ...], query: str) -> str:
    """Set columns to the values of a query for the same key, where they differ."""
    published = "SELECT " + _list((*table.key, *columns)) + " FROM (\n" + query + "\n)"
    name = _name(table)
    changes = ", ".join(quoted(column) + " = expected." + quoted(column) for column in columns)
    same = (name + "." + quoted(key) + " = expected." + quoted(key) for key in table.key)
    differ = (
        _differs(column, name + ".", "expected.")
        for column in table.columns
        if column.name in columns
    )
    condition = " AND ".join((*same, "(" + " OR ".join(differ) + ")"))
    return (
        "UPDATE "
        + name
        + " SET "
        + changes
        + " FROM ("
        + published
        + ") AS expected WHERE "
        + condition
    )


def count(table: Table) -> str:
    return "SELECT count(*) FROM " + _name(table)


def counts(tables: Sequence[Table]) -> str:
    """Return the query for the number of rows of each table: a row with its name and number."""
    return " UNION ALL ".join(
        "SELECT " + quoted_text(table.name) + ", count(*) FROM " + _name(table) for table in tables
    )


def content(table: Table, columns: tuple[str, ...], prefix: str = "") -> str:
    """Return the query for the number of rows and the sum of their hashes: one row.

    Subtract the sum of the deleted rows and add the sum of the new rows to get the next sum.
    """
    source = quoted(prefix + table.name) if prefix else _name(table)
    return "SELECT count(*), coalesce(sum(hash(" + _list(columns) + ")), 0) FROM " + source


def _differs(column: Column, old: str, new: str) -> str:
    pair = (old + quoted(column.name), new + quoted(column.name))
    if column.collation:
        pair = ("encode(" + pair[0] + ")", "encode(" + pair[1] + ")")  # Byte by byte.
    return " IS DISTINCT FROM ".join(pair)


def _definition(column: Column) -> str:
    collation = " COLLATE " + column.collation if column.collation else ""
    return quoted(column.name) + " " + column.type + collation


def _name(table: Table) -> str:
    return quoted(table.schema) + "." + quoted(table.name)


def _marks(table: Table, columns: tuple[str, ...], source: str, *more: str) -> str:
    marks = (_list(table.key), "hash(" + _list(columns) + ") AS mark", *more)
    return "SELECT " + ", ".join(marks) + " FROM " + source


def _only(table: Table, side: str, other: str) -> str:
    """Join the marks of which key or hash are on the first side only."""
    left, right = quoted(side + table.name), quoted(other + table.name)
    return left + " ANTI JOIN " + right + " USING (" + _list((*table.key, "mark")) + ")"


def _keep(table: Table, prefix: str) -> str:
    return "CREATE OR REPLACE TEMP TABLE " + quoted(prefix + table.name) + " AS "


def _list(columns: tuple[str, ...]) -> str:
    return ", ".join(quoted(column) for column in columns)
