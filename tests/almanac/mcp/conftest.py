"""The published file that tests of the tools read."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from almanac.mcp.toolbox import Toolbox
from tests.almanac.publications import NamedCoin, publish_by_hand
from tests.warehouse.answers.handmade import Known


def at(day: int, hour: int = 0) -> datetime:
    return datetime(2026, 3, day, hour, tzinfo=UTC)


PULLS = [at(day, 6) for day in range(1, 9)]
NOW = at(8, 12)
COINS = [
    NamedCoin("bitcoin", "BTC", "Bitcoin", 1),
    NamedCoin("first-sun", "SUN", "First Sun", 40),
    NamedCoin("other-sun", "SUN", "Other Sun", 90),
]
RANKED = {PULLS[0]: {coin.slug: coin.rank for coin in COINS}}
_MOVED: dict[str, Any] = {
    "event_id": "moved",
    "coins": ("bitcoin",),
    "categories": ("Token Unlock",),
}
"""The event of the examples in docs/serve.md."""
VERSIONS = [
    Known(**_MOVED, known_from=at(1, 6), date=at(10, 12), impact=8.0, displayed_date="10 Mar"),
    Known(
        **_MOVED,
        version=2,
        known_from=at(5, 6),
        date=at(12, 12),
        impact=8.0,
        displayed_date="12 Mar",
        change_kinds=("rescheduled",),
    ),
    Known(
        event_id="quarter",
        title="]]><script>alert(1)</script>\x07",
        known_from=at(2, 6),
        date=at(31, 23),
        date_type="quarter",
        is_estimated=True,
        displayed_date="Q1 2026",
        coins=("first-sun",),
        impact_band="Critical",
        unknown_fields=("impact",),
    ),
    *(
        Known(event_id=f"evt_{number:03}", known_from=at(3, 6), date=at(20), title="t" * 500)
        for number in range(300)
    ),
]


def publish(path: Path, until: datetime | None = None) -> Path:
    return publish_by_hand(path, VERSIONS, pulls=PULLS, at=until, coins=COINS, ranked=RANKED)


@pytest.fixture(scope="session")
def mcp_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a published file. It is only for reading."""
    return publish(tmp_path_factory.mktemp("mcp") / "warehouse.duckdb")


@pytest.fixture(scope="session")
def toolbox(mcp_file: Path) -> Iterator[Toolbox]:
    opened = Toolbox(mcp_file, clock=lambda: NOW)
    yield opened
    opened.close()


@pytest.fixture
def own_file(tmp_path: Path) -> Path:
    return publish(tmp_path / "warehouse.duckdb")
