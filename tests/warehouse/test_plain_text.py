"""Text of others only shows itself."""

import json
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.pipeline.hostile_texts import HOSTILE, acting_in
from warehouse.plain_text import escaped_in_json, plain, plain_line

ANY = st.text(st.characters(codec=None), max_size=60) | st.sampled_from(sorted(HOSTILE.values()))


@settings(deadline=None)
@given(st.lists(ANY, max_size=4).map("".join))
def test_nothing_acts_and_all_can_be_written(text: str) -> None:
    shown = plain(text)
    assert acting_in(shown) == []
    shown.encode()
    assert {unicodedata.category(one) for one in shown if one not in "\n\t"} & {"Cc", "Cs"} == set()
    assert plain(shown) == shown
    assert len(plain_line(text).splitlines()) <= 1


@settings(deadline=None)
@given(st.text(st.characters(categories=["L", "N", "P", "S", "Mn", "Zs"]), max_size=60))
def test_what_only_shows_itself_is_not_changed(text: str) -> None:
    assert plain(text) == text


@settings(deadline=None)
@given(st.text(max_size=60))
def test_json_is_of_the_same_value_and_acts_on_nothing(text: str) -> None:
    shown = escaped_in_json(json.dumps({text: [text]}, ensure_ascii=False))
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
def test_what_would_act_is_shown(text: str, shown: str) -> None:
    assert plain(text) == shown
