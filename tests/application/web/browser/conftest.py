"""A browser, and sites of several warehouses.

The browser is Debian's Chromium (`ALMANAC_CHROMIUM` names another), axe-core comes from npm. A test
without one of them is skipped.
"""

import os
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import pytest
from playwright.sync_api import Browser, sync_playwright

from application.web.mirror.mirror import Mirror
from application.web.site import WebSite
from tests.almanac.publications import NamedCoin, publish_by_hand
from tests.application.mirror.filled_home import NOW
from tests.warehouse.answers.handmade import Known
from warehouse.home import Home

ROOT: Final = Path(__file__).parents[4]
AXE: Final = ROOT / ".venv" / "npm" / "node_modules" / "axe-core" / "axe.min.js"
CHROMIUM: Final = Path(os.environ.get("ALMANAC_CHROMIUM", "/usr/bin/chromium"))
AT: Final = datetime(2026, 3, 2, 12, tzinfo=UTC)
COINS: Final = (NamedCoin("bitcoin", "btc", "Bitcoin", 1), NamedCoin("odd", "odd", "<b>Odd</b>", 2))
HOSTILE: Final = (
    "<script>window.hacked = 1</script>",
    '"><img src=x onerror="window.hacked = 1">',
    "]]> --> */ {{ 7 * 7 }} {% raw %} ${7*7}",
    "control \x01\x07\x1b[31m\u202e characters \ufeff\u2028",
    "x" * 10_000,
    "מכירה ציבורית של אסימונים ב־2026 (شراء)",
    "🚀" * 500,
    "",
)


def odd_versions() -> list[Known]:
    """Return events with hostile texts in each field, two versions of each."""
    found = []
    for number, text in enumerate(HOSTILE):
        event = Known(
            event_id=f"odd_{number}",
            known_from=AT - timedelta(days=3),
            title=text,
            displayed_date="10 Mar",
            date=AT.replace(hour=0) + timedelta(days=8),
            coins=("bitcoin", "odd"),
            categories=("Token Unlock", text[:80] or "None"),
            impact=8.5,
            source_url=("javascript:window.hacked=1", "https://example.com/a?b=<c>")[number % 2],
        )
        moved = replace(
            event,
            version=2,
            known_from=AT - timedelta(days=1),
            change_kinds=("rescheduled", "revised"),
            changed_fields=("date", "displayed_date", "title"),
            title=text + "!",
            displayed_date="12 Mar",
            date=AT.replace(hour=0) + timedelta(days=10),
        )
        found += [event, moved]
    return found


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    if not CHROMIUM.exists():
        pytest.skip(f"{CHROMIUM} is missing: install Debian's package chromium")
    with sync_playwright() as playwright:
        arguments = ["--no-sandbox", "--disable-gpu"]
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=arguments)
        yield started
        started.close()


@pytest.fixture(scope="session")
def axe() -> str:
    if not AXE.exists():
        pytest.skip("axe-core is missing: make test-browser installs it with npm")
    return AXE.read_text()


@pytest.fixture(scope="session")
def sites(filled_home: Home, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Return the address of the site of each warehouse."""
    folder = tmp_path_factory.mktemp("sites")
    empty = publish_by_hand(folder / "empty.duckdb", [], pulls=[AT])
    odd = publish_by_hand(folder / "odd.duckdb", odd_versions(), pulls=[AT], coins=COINS)
    files = {"filled": (filled_home.warehouse, NOW), "empty": (empty, AT), "odd": (odd, AT)}
    with ExitStack() as running:
        yield {
            name: running.enter_context(
                Mirror(file, state_dir=folder / name, site=WebSite, wall=lambda now=now: now)
            ).base_url
            for name, (file, now) in files.items()
        }
