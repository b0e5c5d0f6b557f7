"""The docs site in Chromium, opened from its folder: pages and search, no request, no error."""

from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.docs_site.test_site import ROOT, build
from tests.hangs import HANGS_AFTER_S

pytestmark = pytest.mark.browser

PAGES = ("index", "page", "data-dictionary", "reference/database", "repository/CONTRIBUTING")


@pytest.fixture(scope="module")
def docs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("docs") / "site"
    built = build(ROOT, folder)
    assert built.returncode == 0, built.stderr
    return folder


@pytest.mark.parametrize("width", [1280, 390])
def test_docs_are_shown_and_searched_from_a_folder(
    browser: Browser, docs: Path, width: int
) -> None:
    with browser.new_context(viewport={"width": width, "height": 900}) as context:
        page, wrong = context.new_page(), []
        page.set_default_timeout(HANGS_AFTER_S * 1_000)
        page.on("console", lambda message: wrong.append(message.text))
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("request", lambda sent: wrong.append(sent.url))
        for name in PAGES:
            page.goto(f"{(docs / name).as_uri()}.html")
            assert page.evaluate("document.documentElement.scrollWidth") <= width, name
        page.goto((docs / "index.html").as_uri())
        page.keyboard.press("/")  # Material's key for the search.
        page.keyboard.type("look-ahead audit")
        page.wait_for_selector(".md-search-result__item h1")
        assert "Look-ahead audit" in page.locator(".md-search-result__item h1").all_inner_texts()
        assert [text for text in wrong if not text.startswith(("file:", "data:"))] == []
