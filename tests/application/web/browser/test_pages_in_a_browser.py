from typing import Any, Final

import pytest
from playwright.sync_api import Browser, Page

from tests.hangs import HANGS_AFTER_S

pytestmark = pytest.mark.browser

WIDTHS: Final = {"desktop": 1280, "phone": 375}
PAGES: Final = ("/", "/changes", "/coins", "/coin/bitcoin", "/quality", "/calendar")
GRAVE: Final = ("serious", "critical")


def watch(page: Page, base_url: str) -> list[str]:
    """Return a list to which everything is added that a page must not do."""
    wrong: list[str] = []

    def check_request(request: Any) -> None:
        if not request.url.startswith((base_url + "/", "data:")):
            wrong.append(f"request to {request.url[:200]}")

    def check_response(response: Any) -> None:
        is_page = response.request.is_navigation_request()
        if response.status >= 400 and not is_page:
            wrong.append(f"{response.status} of {response.url[:200]}")

    def check_console(message: Any) -> None:
        is_status = "Failed to load resource" in message.text  # as the page, a navigation
        if message.type in ("error", "warning") and not is_status:
            wrong.append(f"console: {message.text[:300]}")

    page.on("request", check_request)
    page.on("response", check_response)
    page.on("console", check_console)
    page.on("pageerror", lambda error: wrong.append(f"script: {error}"))
    page.on("dialog", lambda dialog: wrong.append(f"dialog: {dialog.message}"))
    return wrong


def find_paths(page: Page, base_url: str) -> list[str]:
    """Return the paths of all kinds of pages, with two events of the first page."""
    page.goto(base_url + "/")
    links = page.locator("main a[href^='/event/']").evaluate_all(
        "links => links.map(link => link.getAttribute('href'))"
    )
    known = list(dict.fromkeys(links))
    return [
        *PAGES,
        *known[:1],
        *known[-1:],
        "/event/unknown",
        "/coin/unknown",
        "/?as_of=1999-01-01",
        "/?coins=unknown&when=90d",
        "/?view=month",
        "/?view=week",
        "/no-such-page",
    ]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", ["filled", "empty", "odd"])
def test_each_page_is_shown_without_a_fault(
    browser: Browser, axe: str, sites: dict[str, str], name: str, width: str, scheme: Any
) -> None:
    base_url = sites[name]
    size: Any = {"width": WIDTHS[width], "height": 900}
    # The policy of the pages forbids scripts of others, and axe-core is one.
    context = browser.new_context(viewport=size, color_scheme=scheme, bypass_csp=False)
    tester = browser.new_context(viewport=size, color_scheme=scheme, bypass_csp=True)
    page, tested = context.new_page(), tester.new_page()
    for each in (page, tested):
        each.set_default_timeout(HANGS_AFTER_S * 1_000)
    try:
        wrong = watch(page, base_url)
        for path in find_paths(page, base_url):
            page.goto(base_url + path)
            assert wrong == [], path
            assert page.evaluate("window.hacked") is None, path
            assert page.title(), path
            assert page.locator("h1").count() == 1, path
            wide = page.evaluate(
                "document.documentElement.scrollWidth - document.documentElement.clientWidth"
            )
            assert wide <= 0, f"{path} is {wide} pixels too wide"
            hidden = page.evaluate(
                "[...document.querySelectorAll('.wide:has(.stack, svg.fits)')]"
                ".filter(e => e.clientWidth < 640 && e.scrollWidth > e.clientWidth).length"
            )
            assert hidden == 0 or width == "desktop", f"{path} hides columns of changes or a plot"
            tested.goto(base_url + path)
            tested.evaluate(axe)
            found = tested.evaluate("axe.run()")
            grave = [
                (each["id"], each["nodes"][0]["html"][:200])
                for each in found["violations"]
                if each["impact"] in GRAVE
            ]
            assert grave == [], path
    finally:
        context.close()
        tester.close()


@pytest.mark.parametrize("path", ["/", "/changes", "/coin/bitcoin"])
def test_titles_are_readable_on_each_width_and_on_paper(
    browser: Browser, sites: dict[str, str], path: str
) -> None:
    page = browser.new_page()
    page.goto(sites["filled"] + path)
    # A row of a closed fold has no width.
    narrowest = """Math.min(...[...document.querySelectorAll('tbody th.event')]
        .filter(e => e.checkVisibility())
        .map(e => e.clientWidth - parseFloat(getComputedStyle(e).paddingRight)))"""
    for width in (390, 640, 768, 834, 960, 1024, 1100, 1280, 1920):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate(narrowest) >= 12 * 16, width
    page.emulate_media(media="print")
    for width in (718, 1047):  # A4 with its margins, both ways
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate(narrowest) >= 12 * 16, width
    page.close()
