"""Text from outside has no effect on a terminal, on a page or in a spreadsheet."""

import csv
import io
import json
import unicodedata
from pathlib import Path

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from almanac.core.text import escape_json, plain, plain_line
from almanac.reading.row_files import escape_formulas, write_answer
from tests.almanac.publications import publish_two_events
from tests.application.cli.hostile_texts import HOSTILE, acting_in

ANY = st.text(st.characters(codec=None), max_size=60) | st.sampled_from(sorted(HOSTILE.values()))


@given(st.lists(ANY, max_size=4).map("".join))
def test_plain_text_has_no_control_effect_and_can_be_encoded(text: str) -> None:
    shown = plain(text)
    assert acting_in(shown) == []
    shown.encode()
    assert {unicodedata.category(item) for item in shown if item not in "\n\t"} & {
        "Cc",
        "Cs",
    } == set()
    assert plain(shown) == shown
    assert len(plain_line(text).splitlines()) <= 1


@given(st.text(max_size=60))
def test_plain_json_has_the_same_value_and_no_control_effect(text: str) -> None:
    shown = escape_json(json.dumps({text: [text]}, ensure_ascii=False))
    assert json.loads(shown) == {text: [text]}
    assert acting_in(shown) == []


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b]52;c;x\x07", "\\x1b]52;c;x\\x07"),
        ("\u202egnp", "\\u202egnp"),
        ("\U000e0041", "\\U000e0041"),
        ("a\u200bb", "ab"),
        ("naïve 日本 😀", "naïve 日本 😀"),
        ("a\nb\tc", "a\nb\tc"),
    ],
)
def test_control_characters_are_shown_escaped(text: str, shown: str) -> None:
    assert plain(text) == shown


RUNS = "=+-@\t\r\n＝＋－＠"
TEXTS = st.text(max_size=20) | st.sampled_from(sorted(HOSTILE.values()))
TEXTS |= st.tuples(st.sampled_from(RUNS), TEXTS).map("".join)
MIXED = (
    "SELECT '=1+1' AS a, 2 AS a, -3 AS n, -1.5 AS f, DATE '2020-01-01' AS d, NULL::VARCHAR AS z, "
    "'@x'::ENUM('@x') AS e, ['=a'] AS l, 'it''s' AS q, '-1'::JSON AS j, '+' AS \"=named\", "
    "INTERVAL '-1 day' AS i, TIMESTAMPTZ '2026-03-01 00:00:00Z' AS t"
)
HARMLESS = [
    ["a", "a_1", "n", "f", "d", "z", "e", "l", "q", "j", "'=named", "i", "t"],
    ["'=1+1", "2", "-3", "-1.5", "2020-01-01", "", "'@x", "['=a']", "it's", "-1", "'+", "-1 day",
     "2026-03-01 00:00:00+00"],
]  # fmt: skip


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return publish_two_events(tmp_path_factory.mktemp("home"))


def rows_of(text: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text, newline="")))


def test_only_text_that_a_spreadsheet_would_run_has_a_mark(warehouse: Path, tmp_path: Path) -> None:
    target = tmp_path / "answer.csv"
    assert write_answer(warehouse, MIXED, target, "csv", formulas=False) == 1
    assert rows_of(target.read_text()) == HARMLESS
    streamed = io.BytesIO()
    write_answer(warehouse, MIXED, streamed, "csv", formulas=False)
    assert streamed.getvalue() == target.read_bytes()
    write_answer(warehouse, MIXED, target, "csv")
    assert rows_of(target.read_text())[1][:3] == ["=1+1", "2", "-3"]
    write_answer(warehouse, "SELECT '=1' AS a", target, "json", formulas=False)
    assert "'" not in target.read_text()


@given(st.lists(TEXTS.filter(lambda text: "\0" not in text), min_size=1, max_size=50))
def test_no_cell_is_run_as_a_formula_and_each_can_be_read_back(texts: list[str]) -> None:
    with duckdb.connect() as connection:
        asked = connection.sql("SELECT unnest($texts) AS text", params={"texts": texts})
        found = [text for (text,) in escape_formulas(asked).fetchall()]
    assert [text for text in found if text[:1] in tuple(RUNS)] == []
    for text, shown in zip(texts, found, strict=True):
        assert shown in (text, "'" + text)
        assert (shown != text) == (text[:1] in tuple(RUNS))
