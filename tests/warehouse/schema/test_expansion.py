"""The expansion of `{each …}` in a statement, names in braces, and the braces that are refused."""

import pytest

from almanac.core.statements import Groups, Statements, expand
from warehouse.schema.columns import GROUPS, NAMES

SMALL: Groups = {
    "all": tuple({"name": name, "type": "VARCHAR"} for name in ("a", "b", "c")),
    "one": ({"name": "a", "type": "[@name]"},),
}


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("SELECT {each all: @name}", "SELECT a, b, c"),
        ("{each all: v.@name AS @name_text}", "v.a AS a_text, v.b AS b_text, v.c AS c_text"),
        ("({each all: @name @type})", "(a VARCHAR, b VARCHAR, c VARCHAR)"),
        ("{each all before c: @name}", "a, b"),
        ("{each all after a: '@name'}", "'b', 'c'"),
        ("{each all except a, c: @name}", "b"),
        ("{each one: @type}", "[a]"),
        ("""from_json(x, '{{each one: "@name": 1}}')""", """from_json(x, '{"a": 1}')"""),
        ("CASE {each one: WHEN @name THEN 1} END", "CASE WHEN a THEN 1 END"),
        ("-- {each x: @name}, can't be\nSELECT 1", "-- {each x: @name}, can't be\nSELECT 1"),
        ("SELECT {'a': 1}, {b: 2}, { 'c': 3}", "SELECT {'a': 1}, {b: 2}, { 'c': 3}"),
        ("SELECT 'any {brace} @here'", "SELECT 'any {brace} @here'"),
        ("-- Placeholders: rows.\nFROM {rows}", "-- Placeholders: rows.\nFROM {rows}"),
    ],
)
def test_an_expansion_repeats_its_template_for_each_column(text: str, whole: str) -> None:
    assert expand(text, SMALL) == whole


def test_whens_are_joined_without_a_comma() -> None:
    text = "CASE\n    {each all before c: WHEN @name THEN 1}\nEND"
    assert expand(text, SMALL) == "CASE\n    WHEN a THEN 1\n    WHEN b THEN 1\nEND"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{each al: @name}", "no group al; there are all, one"),
        ("{each all @name}", "is not an expansion; write {each GROUP: TEMPLATE}"),
        ("{each all with a: @name}", "is not an expansion"),
        ("{each: @name}", "is not an expansion"),
        ("{each all: @name", "is not an expansion"),
        ("{each all: f({@name})}", "is not an expansion"),
        ("{each all before d: @name}", "all has no d"),
        ("{each all before a, b: @name}", "`before` takes one column"),
        ("{each all after c: @name}", "has no column"),
        ("{each all except a, b, c: @name}", "has no column"),
        ("{each all: @nome}", "a has no @nome"),
        ("{each all: @wire}", "a has no @wire"),
    ],
)
def test_an_unknown_expansion_is_an_error(text: str, why: str) -> None:
    with pytest.raises(ValueError) as refused:
        expand(text, SMALL)
    assert why in str(refused.value)


def test_a_name_in_braces_without_a_text_and_a_text_without_a_name_are_errors() -> None:
    statements = Statements("catalog.server", schema="published")
    assert "known_from <= $ts" in statements.fill("list_events", filters="true", order="date")
    with pytest.raises(ValueError, match="has no statement order, and no text for it"):
        statements.fill("list_events", filters="true")
    with pytest.raises(ValueError, match=r"statement find_head: no \{order\} in it"):
        statements.fill("find_head", feed="published.feed", order="date")


def test_every_field_is_compared_or_not_and_has_one_change() -> None:
    names = {group: [column["name"] for column in columns] for group, columns in GROUPS.items()}
    assert names["fields"] == list(NAMES)
    assert names["content"] == [*NAMES, "status", "cancelled_at"]
    assert sorted(names["compared"] + names["uncompared"]) == sorted(NAMES)
    changes = ("revised", "rescored", "rescheduled", "estimate", "date_text")
    changed = [name for change in changes for name in names[change]]
    assert sorted(changed) == sorted(names["compared"])
