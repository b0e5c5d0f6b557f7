"""The data dictionary, generated from the declared tables, views and macros.

`python -m warehouse.schema.dictionary` prints it; a test compares docs/data-dictionary.md with it.
"""

import sys
from collections.abc import Iterator

from warehouse.schema.columns import Column
from warehouse.schema.tables import TABLES, Table
from warehouse.schema.views import MACROS, VIEWS

_INTRODUCTION = """# Data dictionary

Generated from `warehouse/schema/tables.py`, `warehouse/schema/views.py` and, for the fields of
events, `warehouse/schema/columns.py`. To change this page, edit those files and run
`python -m warehouse.schema.dictionary > docs/data-dictionary.md`.

All tables and views are in the schema `main` of `warehouse.duckdb`. Instants are `TIMESTAMP WITH
TIME ZONE`, in UTC. The file itself contains the same descriptions: `SELECT * FROM
duckdb_columns()`.

The date of an estimated event is a deadline, not its date: show people `displayed_date`. NULL in a
column that `unknown_fields` names means that no pull has shown the value.
"""


def markdown() -> str:
    """Return the text of docs/data-dictionary.md."""
    return "\n".join(_lines())


def _lines() -> Iterator[str]:
    yield _INTRODUCTION
    for title, tables in (("Tables", TABLES), ("Macros", MACROS), ("Views", VIEWS)):
        yield f"## {title}\n"
        for table in tables:
            yield from _section(table)


def _section(table: Table) -> Iterator[str]:
    yield f"### {table.name}\n"
    yield f"{table.grain[0].upper()}{table.grain[1:]}."
    if table.call:
        yield f"Called as `{table.call}`."
    if table.key:
        yield f"Key: {', '.join(f'`{name}`' for name in table.key)}."
    yield "\n| Column | Type | Unit | Meaning |"
    yield "|---|---|---|---|"
    for column in table.columns:
        yield _row(column)
    yield ""


def _row(column: Column) -> str:
    return f"| `{column.name}` | {column.type} | {column.unit} | {column.meaning} |"


if __name__ == "__main__":
    sys.stdout.write(markdown())
