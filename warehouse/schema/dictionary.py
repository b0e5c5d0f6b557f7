"""The data dictionary, generated from the declared tables, views and macros.

`python -m warehouse.schema.dictionary` prints it; a test compares docs/data-dictionary.md with it.
"""

import sys
from collections.abc import Iterator

from warehouse.schema.columns import Column
from warehouse.schema.tables import TABLES, Table
from warehouse.schema.views import MACROS, VIEWS

_INTRODUCTION = """# Data dictionary

Generated from `columns.py`, `tables.py` and `views.py` of `warehouse/schema`. To change this page,
edit those files and run `python -m warehouse.schema.dictionary > docs/data-dictionary.md`.

All tables and views are in the schema `main` of `warehouse.duckdb`. Instants are `TIMESTAMP WITH
TIME ZONE`, in UTC. The file itself contains the same descriptions: `SELECT * FROM
duckdb_columns()`.

## Questions

**Does 00:00 mean that no time is known?** Yes. An exact date at 00:00:00 UTC stands for the whole
day (`date_precision` is `day`); `latest` is then the end of the day. The service has no other mark
for it: an event that really happens at midnight looks the same.

**What is estimated?** `is_estimated`: the service knows a period (`month`, `quarter`, `year`) or a
deadline, and `date` is its end, never the date of the event. Show people `displayed_date_full`; ask
`earliest` and `latest` whether it is still to come; `date_exact` of the views is NULL for it.

**Why is an event that is over `scheduled`?** The service has no status for it: an event was
published and not taken back. Compare `latest` with now, as `upcoming_events` does.

**Who gives the impact score?** The editors of the service, from 0 to 10, for one event at a time;
it may come or change later (`score_history`). The bands: Low below 2.5, Mid below 5, High below
7.5, Critical from 7.5 on. A plan may show the band alone, or neither: then `unknown_fields` names
them.

**What does `revealed` mean?** That Almanac saw the event, or a field of it, for the first time, and
can't tell that it is new: the first pull, a new plan or a wider window shows what existed before. A
first sighting is `created` only if a complete pull of its date came before its `createdAt`.

**When is an event missing, withdrawn or cancelled?** `missing_since`: complete pulls that should
show it do not; that may be a fault of the service, and it is still `scheduled`. `withdrawn`: a 404
for the event itself, or two complete exports without it, prove that the service took it back
without a word. `cancelled`: the service says so. [history.md](history.md) has the rules.

**What does NULL mean?** The service has no value; but in a column that `unknown_fields` names, no
pull has shown the value, since the plan hides it.
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
