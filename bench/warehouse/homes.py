"""Homes of any size and age, landed as pulls of a service would be; `merge` publishes them.

They depend on the arguments only; the last export is of `LAST_DAY`. As a child, it merges or
replays a home and prints its seconds: `python -m bench.warehouse.homes merge HOME`.
"""

import argparse
import json
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from bench.children import Stopwatch, print_figures
from bench.warehouse.exports import known_at, write_export
from catalog.contract.plans import day_end
from warehouse.history.merge import merge, replay
from warehouse.home import Home
from warehouse.landing.batches import Feed, Pull, Scope
from warehouse.landing.landing import import_export

SOURCE: Final = "bench"
LAST_DAY: Final = date(2026, 3, 1)
_COVERS: Final = (date(2016, 1, 1), date(2036, 1, 1))
_NOW: Final = datetime(2036, 1, 1, tzinfo=UTC)
_LEAST_EXPORTS: Final = 12


def land_export(home: Home, export: Path, at: datetime, *, source: str = SOURCE) -> None:
    """Land an export as if it had been pulled at a time on the plan Elite."""
    home.claim(source)
    import_export(
        home.landing,
        export,
        content_at=at - timedelta(hours=6),
        observed_at=at,
        plan="elite",
        source=source,
        now=_NOW,
        covers=_COVERS,
    )


def land_cancellations(home: Home, at: datetime, *, source: str = SOURCE) -> None:
    """Land a pull of the cancellations, which lists none."""
    scope = Scope(since=at - timedelta(days=10_000))
    _land(home, "cancellations", at, [], scope=scope, source=source)


def land_coins(home: Home, at: datetime, coins: int, *, source: str = SOURCE) -> None:
    """Land a pull of so many coins."""
    rows = [
        {"slug": f"coin-{k}", "symbol": f"C{k}", "name": f"Coin {k}", "rank": 1 + k}
        | {"tracked": k % 4 < 3, "iconUrl": None, "upcomingCount": 1, "majorCount": 0}
        | {"peakImpact": 1.0}
        for k in range(coins)
    ]
    _land(home, "coins", at, rows, scope=Scope(), source=source)


@dataclass(frozen=True, slots=True)
class ExportPlan:
    """Exports of so many events over so many days, whose fold has about so many versions."""

    events: int
    versions: int
    coins: int
    days: int
    exports: int = 0
    """By default twice as many as an event has versions, but at most one a day."""

    @property
    def count(self) -> int:
        wanted = self.exports or max(_LEAST_EXPORTS, round(2 * self.versions / self.events))
        return min(self.days, wanted)

    @property
    def every(self) -> int:
        return self.days // self.count

    @property
    def first_day(self) -> date:
        return LAST_DAY - timedelta(days=self.every * (self.count - 1))

    def land(self, home: Home, number: int, *, source: str = SOURCE) -> None:
        """Land an export; the last of the plan is of `LAST_DAY`."""
        with TemporaryDirectory(prefix="almanac-export-") as folder:
            file = Path(folder) / "export.csv"
            write_export(
                file,
                events=self.events,
                number=number,
                changed_per_mille=round(
                    1000 * (self.versions / self.events - 1) / (self.count - 1)
                ),
                coins=self.coins,
                first_day=self.first_day,
                every=self.every,
            )
            at = known_at(number, first_day=self.first_day, every=self.every)
            land_export(home, file, at, source=source)
        if number in (0, self.count - 1):
            land_coins(home, at, self.coins, source=source)

    def land_all(self, home: Home, *, source: str = SOURCE) -> None:
        """Land the exports of the plan, oldest first."""
        for number in range(self.count):
            self.land(home, number, source=source)


def make_home(
    home: Home, *, events: int, versions: int, coins: int, days: int, source: str = SOURCE
) -> None:
    """Land all exports of a plan."""
    ExportPlan(events, versions, coins, days).land_all(home, source=source)


def deliver(home: Home, number: int, *, at: datetime | None = None, source: str = SOURCE) -> None:
    """Land one delivery of a new event; by default received on the day after the last."""
    if at is None:
        at = day_end(LAST_DAY) + timedelta(hours=12, seconds=number)
    figures = at.strftime("%Y-%m-%dT%H:%M:%SZ")
    event = {
        **{"id": f"evt_delivered_{number}", "slug": f"delivered-{number}", "title": "Delivered"},
        **{"description": None, "displayedDate": "01 Jun 2026", "date": "2026-06-01T00:00:00Z"},
        **{"dateEnd": None, "dateType": "date", "isEstimated": False, "categories": ["Other"]},
        **{"coins": [{"slug": "coin-1", "symbol": "c1", "name": "Coin 1"}], "impact": 5.5},
        **{"impactSummary": None, "sourceUrl": None, "snapshotUrl": None},
        **{"lastVerifiedAt": None, "createdAt": figures, "updatedAt": figures},
    }
    body = {"id": f"d{number}", "type": "event.created", "createdAt": figures, "data": event}
    home.landing.land(_pull("deliveries", at, source=source), [(json.dumps(body).encode(), at)])


def _land(
    home: Home, feed: Feed, at: datetime, rows: list[Any], *, scope: Scope, source: str
) -> None:
    page = json.dumps({"data": rows, "meta": {"total": len(rows)}}).encode()
    home.landing.land(_pull(feed, at, scope=scope, source=source), [(page, None)])


def _pull(feed: Feed, at: datetime, *, source: str, scope: Scope | None = None) -> Pull:
    return Pull(
        feed=feed,
        scope=scope or Scope(),
        plan="elite",
        source=source,
        observed_at=at,
        content_at=at,
        landed_at=at,
        requests=0,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["merge", "replay"])
    parser.add_argument("home", type=Path)
    given = parser.parse_args()
    watch = Stopwatch()
    (merge if given.what == "merge" else replay)(Home(given.home))
    print_figures(**watch.figures())


if __name__ == "__main__":
    main()
