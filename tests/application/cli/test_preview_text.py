"""Texts of a service are shown as text on Dagster's pages: no link, picture or HTML."""

import json
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from assets.feed_day import FeedDay
from assets.metadata import batch_preview, bullets, harmless, markdown, pull_metadata
from tests.application.cli.hostile_texts import HOSTILE, acting_in
from tests.pipeline.small_home import NOW, SmallHome

RENDERER = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
TAGS = {"p", "table", "thead", "tbody", "tr", "th", "td", "ul", "li", "code", "em", "strong", "s"}
TEXTS = st.text(max_size=40) | st.sampled_from(sorted(HOSTILE.values()))
MIXED = st.lists(TEXTS | st.sampled_from(["`", "``", "|", "\\", "<", "](", "!["]), max_size=6)


def assert_only_shows(source: str) -> str:
    """Check that rendered Markdown has no link, picture or HTML of its own; return the HTML."""
    page = RENDERER.render(source)
    assert set(re.findall(r"<\s*/?\s*([a-zA-Z!][\w-]*)", page)) <= TAGS, page
    assert " href" not in re.sub("<code>.*?</code>", "", page)
    outside = re.sub("<code>.*?</code>", "", page, flags=re.DOTALL)
    assert not re.search(r"://|www\.", outside), "a renderer would make a link of it"
    assert acting_in(page) == []
    return page


@settings(deadline=None)
@given(MIXED.map("".join))
def test_a_cell_and_a_note_only_show_themselves(text: str) -> None:
    page = assert_only_shows(markdown(("id", text), [(1, text), ([text, {"slug": text}], None)]))
    assert page.count("<td>") == 4
    assert_only_shows(bullets([text, "another"]))
    assert_only_shows(harmless(text))


@pytest.mark.parametrize(
    "text", ["Agent Hub Beta", "22 Nov", "Börse Nova v4.2 (50%)", "a_b-c, d; e: f?", ""]
)
def test_a_harmless_text_is_left_as_it_is(text: str) -> None:
    assert harmless(text) == text


@pytest.mark.parametrize("name", HOSTILE)
def test_the_metadata_of_a_materialisation_shows_its_text_only(name: str, tmp_path: Path) -> None:
    small = SmallHome(tmp_path)
    text = HOSTILE[name]
    rows = [{"id": text, "title": text, "displayedDate": text, "coins": [text, {"slug": text}]}]
    (listed,) = small.land("events", body=json.dumps({"data": rows}).encode(), why_incomplete=text)
    (exported,) = small.land("export", body=f'id,title\n1,"{text.replace(chr(34), "")}"\n'.encode())
    for manifest in (listed, exported):
        assert_only_shows(batch_preview(small.home.landing, manifest))
    feed_day = FeedDay(
        "events", NOW.date(), text, (listed,), warnings=(text, f"the service said {text}")
    )
    metadata = pull_metadata(feed_day, small.home.landing, quota_left=None)
    for shown in ("preview", "warnings", "batches"):
        assert_only_shows(metadata[shown].value)
    assert acting_in(metadata["outcome"]) == []
