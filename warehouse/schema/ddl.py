"""SQL statements made from the declared tables. Only this module puts an identifier into SQL.

Every name comes from a declaration and is quoted. Values are bound; comments can't be bound, and
are quoted as literals.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from almanac.core.statements import Statements, quoted, quoted_text
from warehouse.schema.columns import GROUPS, Column
from warehouse.schema.tables import INTERNAL, INTERNAL_SCHEMA, TABLES, Table
from warehouse.schema.views import AS_OF_MACROS, INTERNAL_MACROS, MACROS, VIEWS

_SQL = Statements(__package__, GROUPS)
_DERIVED = tuple(table for table in TABLES if table.is_view)


def attach(path: Path, alias: str, *, read_only: bool) -> str:
    """Return the ATTACH statement for a file; DuckDB 1.5 can't bind values in it.

    A new file has a storage version that DuckDB 1.4 and later can open.
    """
    option = "READ_ONLY" if read_only else "STORAGE_VERSION 'v1.4.0'"
    return "ATTACH " + quoted_text(str(path)) + " AS " + quoted(alias) + " (" + option + ")"


def create_tables() -> Iterator[str]:
    """Yield the statements that make the tables, and their comments."""
    yield "CREATE SCHEMA " + quoted(INTERNAL_SCHEMA)
    for table in (*TABLES, *INTERNAL):
        if not table.is_view:
            yield create(table)
            yield from _comments(table, "TABLE")


def create_views() -> Iterator[str]:
    """Yield the statements that make the views and macros over the tables, and their comments."""
    for name in INTERNAL_MACROS:
        yield create_macro(name)
    for view in (*_DERIVED, *VIEWS):
        yield create_view(view)
        yield from _comments(view, "VIEW")
    for name in AS_OF_MACROS:
        yield create_macro(name)
    for macro in MACROS:
        yield create_macro(macro.name)
        yield "COMMENT ON MACRO TABLE " + quoted(macro.name) + " IS " + quoted_text(macro.grain)


def drop(kind: str, schema: str, name: str) -> str:
    """Return the statement that removes a view or macro."""
    return "DROP " + kind + " " + quoted(schema) + "." + quoted(name)


def create(table: Table) -> str:
    columns = ", ".join(map(_definition, table.columns))
    return "CREATE TABLE " + _name(table) + " (" + columns + ")"


def create_view(view: Table) -> str:
    query = _SQL[f"view_{view.name}"]
    return "CREATE VIEW " + _name(view) + " AS " + query


def create_macro(name: str) -> str:
    """Return the statement that makes a macro; internal ones are named with their schema."""
    return _SQL[f"macro_{name.removeprefix(INTERNAL_SCHEMA + '.')}"]


def count_and_hash(table: Table, columns: Sequence[str]) -> str:
    """Return the query for the number of rows and the sum of their hashes: one row."""
    rows = "SELECT count(*), coalesce(sum(hash(" + column_list(columns) + ")), 0)::VARCHAR"
    return rows + " FROM " + _name(table)


def read_all(schema: str, name: str) -> str:
    """Return the query that reads all values of a table: one row."""
    return "SELECT sum(hash(rows)) FROM " + quoted(schema) + "." + quoted(name) + " AS rows"


def column_list(columns: Sequence[str]) -> str:
    return ", ".join(map(quoted, columns))


def _comments(table: Table, kind: str) -> Iterator[str]:
    name = _name(table)
    yield "COMMENT ON " + kind + " " + name + " IS " + quoted_text(table.grain)
    for column in table.columns:
        meaning = column.meaning + (" [" + column.unit + "]" if column.unit else "")
        target = name + "." + quoted(column.name)
        yield "COMMENT ON COLUMN " + target + " IS " + quoted_text(meaning)


def _definition(column: Column) -> str:
    collation = " COLLATE " + column.collation if column.collation else ""
    return quoted(column.name) + " " + column.type + collation


def _name(table: Table) -> str:
    return quoted(table.schema) + "." + quoted(table.name)
