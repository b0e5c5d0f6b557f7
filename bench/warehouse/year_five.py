"""`python -m bench.warehouse.year_five`: one delivery merged in a home five years old.

50,000 events, 0.7 million versions, 31 million coin snapshots. It is compared with bare DuckDB
copying the published file and writing one row to the copy, as any publication by one rename must.
"""

import json
import shutil
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import duckdb
import msgspec
from warehouse.history.change_log import ChangeLog, write_head
from warehouse.history.day import State

from bench.children import Measured, measure, run_apart
from bench.report import parse_arguments, show
from bench.warehouse.homes import LAST_DAY, generate_lake
from bench.warehouse.ours import SOURCE
from catalog.contract.plans import day_end
from warehouse.files import lake_paths
from warehouse.home import Home
from warehouse.landing.batches import Pull, Scope

BAR_S = 0.5
BAR_GB = 10.0


def make_home(
    home: Home, *, events: int, versions: int, coins: int, days: int, source: str = SOURCE
) -> None:
    """Write a lake of that age, as merges would leave it."""
    home.claim(source)
    generate_lake(home.root / "lake", events, versions, coins, days)
    newest = ChangeLog.of(home).days()[-1]
    name = str(newest.head.checkpoint)
    rows: dict[str, int] = {}
    with duckdb.connect() as connection:
        for table in ("events", "coins", "categories", "cancellations", "labels"):
            file = str(home.lake.path(lake_paths.checkpoint_table(name, table)))
            (rows[table],) = connection.read_parquet(file).aggregate("count(*)").fetchall()[0]
    state = State(fold_id=newest.head.fold_id, rows=rows, watch=(), cancellations_seen=())
    home.lake.put(lake_paths.checkpoint_state(name), msgspec.json.encode(state))
    # Without it, a merge doubts the newest day and folds the whole history from landing.
    write_head(home.lake, newest, unfinished_from=None)


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
    pull = Pull(
        feed="deliveries",
        scope=Scope(),
        plan="elite",
        source=source,
        observed_at=at,
        content_at=at,
        landed_at=at,
        requests=0,
    )
    home.landing.land(pull, [(json.dumps(body).encode(), at)])


def check_versions(home: Home, expected: int) -> None:
    """Check the number of published versions.

    Raises:
        ValueError: it differs, so the merges did not continue from the lake that was made.
    """
    with duckdb.connect(str(home.warehouse), read_only=True) as connection:
        ((found,),) = connection.execute("SELECT count(*) FROM event_versions").fetchall()
    if found != expected:
        raise ValueError(f"{home.warehouse} has {found} versions; expected {expected}")


def main() -> None:
    size = parse_arguments(
        __doc__, events=50_000, versions=700_000, coins=17_000, days=1_825, rounds=3
    )
    with TemporaryDirectory(prefix="almanac-year-five-", dir=size.folder) as temporary:
        home = Home(Path(temporary) / "home")
        run_apart(
            make_home,
            home,
            events=size.events,
            versions=size.versions,
            coins=size.coins,
            days=size.days,
        )
        # The first delivery publishes a home that was never published: everything is built.
        best: dict[str, Measured] = {}
        for number in range(size.rounds + 1):
            deliver(home, number)
            run = measure("bench.warehouse.ours", "merge", str(home.root))
            if number == 0:
                best["first publication"] = run
            elif "one delivery" not in best or run.seconds < best["one delivery"].seconds:
                best["one delivery"] = run
        check_versions(home, size.versions // size.events * size.events + size.rounds + 1)
        copy = Path(temporary) / "copy.duckdb"
        best["bare copy and one row"] = measure(
            "bench.warehouse.bare", "copy", str(home.warehouse), str(copy)
        )
        on_disk = sum(path.stat().st_size for path in home.root.rglob("*") if path.is_file())
        bars = {
            f"at most {BAR_S} s": f"{best['one delivery'].seconds:.2f}",
            f"under {BAR_GB} GB on disk": f"{on_disk / 1e9:.2f}, without landing",
        }
        title = f"year five: {size.events:,} events, {size.versions:,} versions, {size.days:,} days"
        show(title, best, "one delivery", bars, size.json)
        shutil.rmtree(home.root)


if __name__ == "__main__":
    main()
