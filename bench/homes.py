"""Homes of any size and age, landed as pulls of a service would be.

They depend on the arguments only; the last export is of `LAST_DAY`.
"""

import json
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from bench.exports import known_at, write_export
from warehouse.history.merge import merge
from warehouse.home import Home
from warehouse.landing.batches import Feed, Pull, Scope
from warehouse.landing.imports import ArchivedExport

SOURCE: Final = "bench"
LAST_DAY: Final = date(2026, 3, 1)
_COVERS: Final = (date(2016, 1, 1), date(2036, 1, 1))
_NOW: Final = datetime(2036, 1, 1, tzinfo=UTC)
_LEAST_EXPORTS: Final = 12


def make_home(root: Path, *, events: int, versions: int, coins: int, days: int) -> None:
    """Make and merge a home from exports over so many days, with about so many versions.

    It has twice as many exports as an event has versions, but at most one a day.
    """
    home = Home(root)
    count = min(days, max(_LEAST_EXPORTS, round(2 * versions / events)))
    every = days // count
    first_day = LAST_DAY - timedelta(days=every * (count - 1))
    for number in range(count):
        with TemporaryDirectory(prefix="almanac-export-") as folder:
            file = Path(folder) / "export.csv"
            write_export(
                file,
                events=events,
                number=number,
                changed_per_mille=round(1000 * (versions / events - 1) / (count - 1)),
                coins=coins,
                first_day=first_day,
                every=every,
            )
            at = known_at(number, first_day=first_day, every=every)
            land_export(home, file, at)
        if number in (0, count - 1):
            _land_coins(home, at, coins)
    merge(home)


def land_export(home: Home, export: Path, at: datetime) -> None:
    """Land an export as if it had been pulled at a time on the plan Elite."""
    home.claim(SOURCE)
    ArchivedExport(
        path=export,
        content_at=at - timedelta(hours=6),
        observed_at=at,
        plan="elite",
        source=SOURCE,
        covers=_COVERS,
    ).land(home.landing, _NOW)


def land_cancellations(home: Home, at: datetime) -> None:
    """Land a pull of the cancellations, which lists none."""
    land_pages(home, "cancellations", at, [_page([])], scope=Scope(since=at - timedelta(10_000)))


def land_pages(
    home: Home,
    feed: Feed,
    at: datetime,
    pages: list[bytes],
    *,
    scope: Scope | None = None,
    plan: str = "elite",
    why_incomplete: str | None = None,
) -> None:
    """Land pages as a pull of a time."""
    pull = Pull(
        feed=feed,
        scope=scope or Scope(),
        plan=plan,
        source=SOURCE,
        observed_at=at,
        content_at=at,
        landed_at=at,
        requests=len(pages),
        why_incomplete=why_incomplete,
    )
    home.landing.land(pull, [(page, None) for page in pages])


def _land_coins(home: Home, at: datetime, coins: int) -> None:
    rows = [
        {"slug": f"coin-{k}", "symbol": f"C{k}", "name": f"Coin {k}", "rank": 1 + k}
        | {"tracked": k % 4 < 3, "iconUrl": None, "upcomingCount": 1, "majorCount": 0}
        | {"peakImpact": 1.0}
        for k in range(coins)
    ]
    land_pages(home, "coins", at, [_page(rows)])


def _page(rows: list[dict[str, object]]) -> bytes:
    return json.dumps({"data": rows, "meta": {"total": len(rows)}}).encode()
