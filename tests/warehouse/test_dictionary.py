"""The data dictionary in docs matches the declarations."""

import re
from pathlib import Path

from warehouse.schema.columns import INSTANT
from warehouse.schema.dictionary import markdown
from warehouse.schema.tables import TABLES
from warehouse.schema.views import MACROS, VIEWS

DOCUMENT = Path(__file__).parents[2] / "docs" / "data-dictionary.md"


def test_the_dictionary_matches_the_declarations() -> None:
    assert DOCUMENT.read_text() == markdown(), (
        "run `python -m warehouse.schema.dictionary > docs/data-dictionary.md`"
    )


def test_every_table_view_and_macro_has_a_section_that_names_every_column() -> None:
    sections = {text.split("\n", 1)[0]: text for text in markdown().split("### ")[1:]}
    assert list(sections) == [table.name for table in (*TABLES, *MACROS, *VIEWS)]
    for table in (*TABLES, *VIEWS, *MACROS):
        for column in table.columns:
            shown = sections[table.name].partition("\n\n")[2]
            bases = re.findall(r"as in `(\w+)`", shown)
            while f"`{column.name}`" not in shown:
                shown = sections[bases[0]]
                bases = re.findall(r"as in `(\w+)`", shown)


def test_every_column_is_described_once_or_in_the_section_of_its_table() -> None:
    shared, *sections = markdown().partition("## Shared columns")[2].split("### ")
    described = {text.split("\n", 1)[0]: text for text in sections}
    for table in (*TABLES, *VIEWS, *MACROS):
        for column in table.columns:
            row = f"`{column.name}` | {column.type.replace(INSTANT, 'TIMESTAMPTZ')}"
            row += f"{'' if 'UTC' in column.unit or not column.unit else f', {column.unit}'}"
            row += f" | {column.meaning}\n"
            assert row in shared or row in described[table.name], f"{table.name}.{column.name}"
