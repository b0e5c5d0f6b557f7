"""A report in Chromium as a file: no error, no request, no sideways scrolling, accessible."""

from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser

from tests.almanac.publications import publish_by_hand
from tests.application.report.reported_home import PULLS, VERSIONS, make_reported_home
from tests.application.web.browser.conftest import odd_versions
from tests.hangs import HANGS_AFTER_S

pytestmark = pytest.mark.browser

GRAVE = ("serious", "critical")


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a report with charts, and with hostile texts in each table."""
    folder = tmp_path_factory.mktemp("report")
    made = make_reported_home(folder / "home")
    versions = [*VERSIONS, *(odd for odd in odd_versions() if odd.known_from <= PULLS[-1])]
    publish_by_hand(made.file, versions, pulls=PULLS)
    path = folder / "report.html"
    path.write_text(made.report())
    return path


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 375])
def test_report_is_shown_without_a_fault(
    browser: Browser, axe: str, file: Path, width: int, scheme: Any
) -> None:
    context = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme=scheme, bypass_csp=True
    )
    page, wrong = context.new_page(), []
    page.set_default_timeout(HANGS_AFTER_S * 1_000)
    page.on("console", lambda message: wrong.append(message.text))
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("request", lambda request: wrong.append(request.url))
    try:
        page.goto(file.as_uri())
        assert page.locator("svg[role=img]").count() == 4
        assert page.evaluate("window.hacked") is None
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        page.evaluate(axe)
        found = page.evaluate("axe.run()")
    finally:
        context.close()
    grave = [item["id"] for item in found["violations"] if item["impact"] in GRAVE]
    assert grave == []
    assert wrong == [file.as_uri()]
