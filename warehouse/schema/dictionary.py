"""The data dictionary, generated from the declared tables, views and macros.

`python -m warehouse.schema.dictionary` prints it; a test compares docs/data-dictionary.md with it.
"""

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from warehouse.schema.columns import INSTANT, Column
from warehouse.schema.tables import TABLES, Table
from warehouse.schema.views import MACROS, VIEWS

_INTRODUCTION = """# Data dictionary

Generated from `columns.py`, `tables.py` and `views.py` of `warehouse/schema`.

The schema `main` of `warehouse.duckdb`. Every timestamp is UTC; `ts` of a macro is `as_of` of
commands and pages. The file has the same texts: `SELECT * FROM duckdb_columns()`.

## Questions

**Does 00:00 mean that no time is known?** Yes. An exact date at 00:00:00 UTC means the whole day
(`date_precision` is `day`), and `latest` is its end. An event at midnight looks the same.

**What does estimated mean?** The service knows only a period (`month`, `quarter`, `year`) or a
deadline, and `date` is its end. Show `displayed_date_full`; compare `earliest` and `latest`.

**Why is a past event `scheduled`?** The service has no status for past events. Compare `latest`
with now, as `upcoming_events` does.

**Where does the impact score come from?** Editors give a score from 0 to 10; it may come or change
later. Bands: Low below 2.5, Mid below 5, High below 7.5, then Critical.

**What does NULL mean?** The service has no value. In a column that `unknown_fields` names, the plan
hides the value.
"""

_SHARED_BY = 2
"""A column that at least this many tables share is described once, at the top."""


def markdown() -> str:
    """Return the text of docs/data-dictionary.md."""
    return "\n".join(_lines())


def _lines() -> Iterator[str]:
    yield _INTRODUCTION
    counted = Counter(c for table in (*TABLES, *MACROS, *VIEWS) for c in table.columns)
    shared: dict[str, Column] = {}
    for column, count in counted.items():
        if count >= _SHARED_BY:
            shared.setdefault(column.name, column)
    yield "## Shared columns\n"
    yield from _described(shared.values())
    before: list[Table] = []
    for title, tables in (("Tables", TABLES), ("Macros", MACROS), ("Views", VIEWS)):
        yield f"## {title}\n"
        for table in tables:
            yield from _section(table, set(shared.values()), before)
            before.append(table)


def _section(table: Table, shared: set[Column], before: Sequence[Table]) -> Iterator[str]:
    yield f"### {table.name}\n"
    yield f"{table.grain[0].upper()}{table.grain[1:]}."
    if table.call:
        yield f"Call: `{table.call}`."
    if table.key:
        yield f"Key: {_listed(table.key)}."
    names = [column.name for column in table.columns if column in shared]
    if names:
        yield f"Shared columns: {_shortest(names, table, before)}."
    yield ""
    if own := [column for column in table.columns if column not in shared]:
        yield from _described(own)


def _shortest(names: list[str], table: Table, before: Sequence[Table]) -> str:
    """Return names as a list, or as the difference from a table before if that is shorter."""
    texts = [_listed(names)]
    for other in before:
        same = [column.name for column in other.columns if column in table.columns]
        more = [name for name in names if name not in same]
        less = [column.name for column in other.columns if column.name not in same]
        text = f"as in `{other.name}`"
        text += f", without {_listed(less)}" if less else ""
        texts.append(text + (f"; and {_listed(more)}" if more else ""))
    return min(texts, key=lambda text: len(text.split()))


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _described(columns: Iterable[Column]) -> Iterator[str]:
    yield "column | type | meaning"
    yield "---|---|---"
    for column in columns:
        unit = f", {column.unit}" if column.unit not in ("", "UTC", "UTC day") else ""
        kind = column.type.replace(INSTANT, "TIMESTAMPTZ")
        yield f"`{column.name}` | {kind}{unit} | {column.meaning}"
    yield ""


if __name__ == "__main__":
    sys.stdout.write(markdown())
