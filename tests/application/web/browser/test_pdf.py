"""The titles of events are in the text of a printed page, on a sheet of paper both ways."""

from pathlib import Path
from unicodedata import normalize

import pytest
from playwright.sync_api import Browser
from pypdf import PdfReader

from tests.application.report.reported_home import make_reported_home

pytestmark = pytest.mark.browser


def squeeze(text: str) -> str:
    """Return a text without blanks, since lines break anywhere, and without ligatures."""
    return "".join(normalize("NFKC", text).split())


@pytest.mark.parametrize("landscape", [False, True], ids=["portrait", "landscape"])
@pytest.mark.parametrize("path", ["/", "/?view=week", "/changes", "/coin/ethereum", "report"])
def test_titles_of_events_are_in_the_pdf(
    browser: Browser, sites: dict[str, str], tmp_path: Path, path: str, landscape: bool
) -> None:
    address = sites["filled"] + path
    if path == "report":
        file = tmp_path / "report.html"
        file.write_text(make_reported_home(tmp_path / "home").report())
        address = file.as_uri()
    page = browser.new_page()
    page.goto(address)
    titles = page.locator("tbody th.event, .grid li a[href*='/event/']").all_text_contents()
    printed = tmp_path / "page.pdf"
    page.pdf(path=printed, format="A4", landscape=landscape)
    page.close()
    text = squeeze("".join(sheet.extract_text() for sheet in PdfReader(printed).pages))
    assert len(titles) > 5
    assert [title for title in titles if squeeze(title) not in text] == []
    assert "Almanac" in text if path == "report" else "UTC" in text
