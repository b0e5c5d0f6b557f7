"""The homes of the benchmarks have the size that they state."""

from datetime import UTC, datetime, time
from pathlib import Path

import duckdb
import pytest

from bench.homes import LAST_DAY, make_home
from warehouse.home import Home


@pytest.mark.long
def test_home_has_its_versions_coins_and_days(tmp_path: Path) -> None:
    make_home(tmp_path, events=200, versions=800, coins=10, days=100)
    with duckdb.connect(Home(tmp_path).warehouse, read_only=True) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        ((events, versions, first, last),) = connection.execute(
            """SELECT count(DISTINCT event_id), count(*), min(known_from), max(known_from)
            FROM event_versions WHERE feed = 'export'"""
        ).fetchall()
        ((coins,),) = connection.execute(
            "SELECT count(*) FROM coins WHERE rank IS NOT NULL"
        ).fetchall()
    assert (events, coins) == (200, 10)
    assert 700 <= versions <= 900
    assert last == datetime.combine(LAST_DAY, time(6, 5), UTC)
    assert 80 <= (last - first).days <= 100
