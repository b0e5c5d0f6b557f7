"""A digest in each form: texts of the service stay texts."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from almanac.core.text import escape_markdown, make_web_address, plain_line
from almanac.digest import (
    IN_ORDER,
    Digest,
    Section,
    as_markdown,
    format_digest,
)
from tests.application.cli.hostile_texts import HOSTILE, acting_in

SINCE = datetime(2026, 3, 1, tzinfo=UTC)
UNTIL = SINCE + timedelta(days=1)
MARKUP = [
    *("**a** _b_ ~~c~~", "`code`", "[a](https://evil.example)", "![x](https://e.example/i)"),
    *("<script>alert(1)</script>", "<https://evil.example|click>", "<!channel>", "<@U123>"),
    *("@everyone", "www.evil.example", "a | b", "\\*", "&amp; &lt;", "# a", "$x$", "1. a"),
    *("a\n\n# b\n- c", "[x]: https://evil.example"),
]
TEXTS = st.one_of(
    st.text(st.characters(codec="utf-8"), max_size=80),
    st.sampled_from([*HOSTILE.values(), *MARKUP]),
    st.text("<>&*_[]()|\\`~!@#:/.", max_size=300),
)
ADDRESSES = st.none() | st.sampled_from(
    [
        *("https://x.example/a?b=1&c=2#d", "http://x.example/a>b|c)d", "javascript:alert(1)"),
        *("https://x.example/\x1b[31m", "https://", "//x.example", "https://[bad", "ftp://x.y"),
        *("https://x.example/" + "a" * 5000, "https://x.example/ ü\n<b>"),
    ]
)


def row(kind: str, **given: Any) -> dict[str, Any]:
    return {
        "kind": kind,
        "event_id": "evt_1",
        "version": 2,
        "known_from": UNTIL,
        "title": "title",
        "coins": ["bitcoin"],
        "categories": [],
        "old_value": "old",
        "new_value": "new",
        "impact": None,
        "impact_band": None,
        "status": "scheduled",
        "displayed_date": "20 Mar 2026",
        "date_precision": "day",
        "earliest": UNTIL,
        "latest": UNTIL,
        "source_url": None,
        "change_kinds": [kind],
        "changed_fields": ["title"],
        "is_over": False,
        "score": -1.0,
        "last_date": "new" if kind == "rescheduled" else given.get("displayed_date", "20 Mar 2026"),
        "shift_days": None,
        "least_shift_days": None,
        "most_shift_days": None,
        **given,
    }


def digest_with(sections: list[Section]) -> Digest:
    return Digest(SINCE, UNTIL, SINCE, UNTIL, sections)


def section(kind: str, rows: list[dict[str, Any]], *, more: int = 0) -> Section:
    count = len(rows) + more
    return Section(kind, count, count, [[item] for item in rows])


ROWS = st.builds(
    row,
    st.just("created"),
    title=TEXTS,
    coins=st.lists(TEXTS, max_size=5),
    old_value=st.none() | TEXTS,
    new_value=st.none() | TEXTS,
    displayed_date=st.none() | TEXTS,
    source_url=ADDRESSES,
    impact=st.none() | st.floats(0, 10),
    impact_band=st.none() | TEXTS,
)
SECTIONS = st.lists(
    st.tuples(st.sampled_from(IN_ORDER), st.lists(ROWS, max_size=3), st.sampled_from((0, 1, 99))),
    unique_by=lambda item: item[0],
    max_size=10,
).map(lambda found: [section(kind, rows * 9, more=more) for kind, rows, more in found])


@given(TEXTS)
def test_a_text_is_shown_by_markdown_as_it_is(text: str) -> None:
    """As CommonMark reads it; GitHub's additions are in the examples below."""
    parsed = MarkdownIt("commonmark").parse("- **" + "x" + escape_markdown(text) + "x**")
    children = [child for token in parsed for child in token.children or ()]
    allowed = {"text", "text_special", "strong_open", "strong_close"}
    assert {child.type for child in children} <= allowed, children
    assert "".join(child.content for child in children) == "x" + plain_line(text) + "x"


def test_github_makes_no_link_and_calls_nobody() -> None:
    shown = escape_markdown("www.evil.example https://evil.example @everyone")
    assert shown == r"www\.evil.example https\://evil.example \@everyone"


@pytest.mark.parametrize(
    ("address", "wanted"),
    [
        ("https://x.example/a?b=1&c=2#d", "https://x.example/a?b=1&c=2#d"),
        ("https://x.example/a>b|c(d)", "https://x.example/a%3Eb%7Cc%28d%29"),
        ("https://x.example/ü%20", "https://x.example/%C3%BC%20"),
        *((other, None) for other in ("javascript:alert(1)", "https://", "//x", "https://[", None)),
    ],
)
def test_only_a_web_address_is_a_link(address: str | None, wanted: str | None) -> None:
    assert make_web_address(address) == wanted


@given(SECTIONS)
def test_every_form_is_safe_to_print_and_links_web_addresses_alone(sections: list[Section]) -> None:
    digest = digest_with(sections)
    for form in ("table", "markdown", "json"):
        shown = format_digest(digest, form)
        assert acting_in(shown) == []
        shown.encode()
        if form == "json":
            json.loads(shown)
    parsed = MarkdownIt("commonmark").parse(as_markdown(digest))
    for child in (child for token in parsed for child in token.children or ()):
        assert child.type not in ("html_inline", "image", "code_inline")
        if child.type == "link_open":
            assert urlsplit(str(child.attrs["href"])).hostname == "x.example"
    assert not [token for token in parsed if token.type in ("html_block", "fence", "code_block")]
