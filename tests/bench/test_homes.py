"""The homes of the benchmarks have the size that they state."""

from datetime import UTC, datetime, time
from pathlib import Path

import duckdb

from bench.warehouse.homes import LAST_DAY, deliver, make_home
from warehouse.history.merge import merge
from warehouse.home import Home


def test_home_has_its_versions_coins_and_days_and_takes_a_delivery(tmp_path: Path) -> None:
    home = Home(tmp_path)
    make_home(home, events=200, versions=800, coins=10, days=100)
    merge(home)
    deliver(home, 0)
    merge(home)
    with duckdb.connect(home.warehouse, read_only=True) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        ((events, versions, first, last),) = connection.execute(
            """SELECT count(DISTINCT event_id), count(*), min(known_from), max(known_from)
            FROM event_versions WHERE feed = 'export'"""
        ).fetchall()
        ((delivered, coins),) = connection.execute(
            """SELECT (SELECT count(*) FROM event_versions WHERE feed = 'deliveries'),
            (SELECT count(*) FROM coins WHERE rank IS NOT NULL)"""
        ).fetchall()
    assert events == 200
    assert 700 <= versions <= 900
    assert (delivered, coins) == (1, 10)
    assert last == datetime.combine(LAST_DAY, time(6, 5), UTC)
    assert 80 <= (last - first).days <= 100
