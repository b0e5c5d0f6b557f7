"""The data dictionary in docs matches the declarations."""

from pathlib import Path

from warehouse.schema.dictionary import markdown
from warehouse.schema.tables import TABLES
from warehouse.schema.views import MACROS, VIEWS

DOCUMENT = Path(__file__).parents[2] / "docs" / "data-dictionary.md"


def test_the_dictionary_matches_the_declarations() -> None:
    assert DOCUMENT.read_text() == markdown(), (
        "run `python -m warehouse.schema.dictionary > docs/data-dictionary.md`"
    )


def test_every_table_view_and_macro_has_a_section_with_every_column() -> None:
    sections = {text.split("\n", 1)[0]: text for text in markdown().split("### ")[1:]}
    declared = (*TABLES, *VIEWS, *MACROS)
    assert list(sections) == [table.name for table in (*TABLES, *MACROS, *VIEWS)]
    for table in declared:
        for column in table.columns:
            assert f"| `{column.name}` | {column.type} |" in sections[table.name]
