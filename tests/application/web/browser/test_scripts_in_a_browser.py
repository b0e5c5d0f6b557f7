"""What the script of the pages adds to them."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.application.web.browser.test_pages_in_a_browser import watch
from tests.hangs import HANGS_AFTER_S

pytestmark = pytest.mark.browser


@pytest.fixture
def page(browser: Browser, sites: dict[str, str]) -> Iterator[Page]:
    """Return a page of the site of four days, in a new profile; it must not do anything wrong."""
    context = browser.new_context(base_url=sites["filled"])
    page = context.new_page()
    page.set_default_timeout(HANGS_AFTER_S * 1_000)
    wrong = watch(page, sites["filled"])
    yield page
    context.close()
    assert wrong == []


def test_coins_are_suggested_while_one_is_typed(page: Page) -> None:
    page.goto("/")
    options = page.locator("#suggested option")
    page.get_by_label("Search events and coins").press_sequentially("ethereu")
    expect(options.first).to_have_attribute("value", "slug:ethereum")
    expect(options.first).to_have_text("ETH · Ethereum · rank 2")
    page.get_by_label("Coins", exact=True).press_sequentially("bitcoin, ethereu")
    expect(options.first).to_have_attribute("value", "bitcoin, slug:ethereum")
    page.get_by_label("Coins", exact=True).fill("bitcoin, slug:ethereum")
    page.keyboard.press("Tab")
    expect(page.get_by_label("Remove ETH", exact=True)).to_be_visible()


def test_slider_fills_the_field_with_the_last_pull_of_a_day(page: Page) -> None:
    page.goto("/changes?last=1d")
    page.get_by_text("Time machine").click()
    slider, field = page.get_by_label("Pull of a day"), page.get_by_label("As known at (UTC)")
    expect(field).to_have_value("")
    slider.press("ArrowLeft")
    expect(field).to_have_value("2026-02-27T19:00:30")
    expect(slider).to_have_attribute("aria-valuetext", "2026-02-27 19:00:30 UTC")
    page.get_by_role("button", name="Show").click()
    expect(page.get_by_role("status")).to_contain_text("As known at 27 Feb 2026 19:00:30")
    assert "last=1d" in page.url
    page.get_by_text("Time machine").click()
    slider.press("Home")
    expect(field).to_have_value("2026-02-25T19:00:30")


def test_watchlists_are_kept_in_the_browser_until_they_are_deleted(page: Page) -> None:
    page.goto("/?coins=slug%3Aethereum&min_impact=5&view=month")
    page.get_by_text("Watchlists").click()
    for name in ("<b>Mine</b>", "Again", "Again"):
        page.get_by_label("Save these filters as").fill(name)
        page.keyboard.press("Enter")
    page.goto("/changes?last=1d&as_of=2026-02-27")
    page.get_by_text("Watchlists").click()
    names = page.get_by_label("Watchlists of this browser")
    expect(names.get_by_role("link")).to_have_text(["<b>Mine</b>", "Again"])
    names.get_by_role("link", name="Again").click()
    kept = "coins=slug%3Aethereum&min_impact=5&last=1d&as_of=2026-02-27"
    expect(page).to_have_url(re.compile(re.escape(f"/changes?{kept}")))
    page.get_by_text("Watchlists").click()
    page.get_by_label("Delete Again").press("Enter")
    expect(names.get_by_role("link")).to_have_text(["<b>Mine</b>"])
    page.reload()
    expect(names.locator("a")).to_have_text(["<b>Mine</b>"])


def test_new_tab_begins_with_the_last_choice_only_if_asked(page: Page) -> None:
    page.goto("/?max_rank=100")
    page.get_by_text("Watchlists").click()
    remember = page.get_by_label("Begin a new tab with the last choice")
    for is_asked in (False, True, False):
        remember.set_checked(is_asked)
        tab = page.context.new_page()
        tab.goto("/")
        expect(tab).to_have_url(re.compile(r"/\?max_rank=100$" if is_asked else "/$"))
        tab.get_by_role("link", name="Almanac", exact=True).click()
        expect(tab).to_have_url(re.compile("/$"))
        tab.goto("/?max_rank=100")
        tab.close()


def test_switch_sets_the_zone_of_the_address(browser: Browser, sites: dict[str, str]) -> None:
    page = browser.new_page(base_url=sites["filled"], timezone_id="Asia/Tokyo")
    page.goto("/changes?last=1d&tz=Europe%2FBerlin")
    zone = page.get_by_label("Zone of days and times")
    expect(zone.locator("option")).to_have_text(["UTC", "Europe/Berlin", "Asia/Tokyo"])
    zone.select_option("Asia/Tokyo")
    expect(page).to_have_url(re.compile(r"/changes\?last=1d&tz=Asia%2FTokyo$"))
    expect(page.locator("footer")).to_contain_text("Days and times are of Asia/Tokyo.")
    zone.select_option("UTC")
    expect(page).to_have_url(re.compile(r"/changes\?last=1d$"))
    page.close()
