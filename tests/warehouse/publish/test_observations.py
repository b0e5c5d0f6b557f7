"""The columns that a delta updates in place: times of observation, and names and ids in links."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.warehouse.publish.small_lake import FIRST_DAY, Op, Plan, SmallLake
from tests.warehouse.publish.test_delta import check_against_full, lake_events_differ
from warehouse.queries import connected, run_sql

HISTORY = [Plan((Op(0, seed=1), Op(1, seed=5), Op(2, seed=4)), coins=2)]
LOOKED = "SELECT event_id, last_seen_at, missing_since, content_at FROM events ORDER BY event_id"


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> SmallLake:
    small = SmallLake(tmp_path_factory.mktemp("published"))
    small.set_plans(HISTORY)
    small.publish()
    return small


@pytest.fixture
def lake(published: SmallLake, tmp_path: Path) -> SmallLake:
    return published.copied(tmp_path)


def day(number: int) -> datetime:
    return datetime.combine(FIRST_DAY, datetime.min.time(), UTC) + timedelta(days=number, hours=6)


def rows(lake: SmallLake, sql: str) -> list[tuple[Any, ...]]:
    with connected(lake.warehouse) as connection:
        return run_sql(connection, sql).rows


def row_places(lake: SmallLake, table: str) -> list[tuple[Any, ...]]:
    """Return the places of rows: a replaced row has another place, an updated row the same."""
    return rows(lake, f"SELECT rowid, event_id FROM {table} ORDER BY ALL")


def check(lake: SmallLake) -> None:
    assert lake_events_differ(lake) == 0
    check_against_full(lake, lake.home / "delta.duckdb")


def test_observations_update_when_events_were_seen_and_rewrite_no_rows_or_months(
    lake: SmallLake,
) -> None:
    before = row_places(lake, "events")
    lake.set_plans([*HISTORY, Plan((Op(0, "look"), Op(1, "miss")))])
    report = lake.publish()
    assert (report.mode, report.months) == ("delta", 0)
    assert rows(lake, LOOKED) == [
        ("evt_0", day(1), None, day(1)),
        ("evt_1", day(0), day(1), day(0)),
        ("evt_2", day(0), None, day(0)),
    ]
    assert row_places(lake, "events") == before
    check(lake)


def test_an_event_that_is_seen_again_is_no_longer_missing(lake: SmallLake) -> None:
    gone = [*HISTORY, Plan((Op(1, "miss"),))]
    lake.set_plans(gone)
    lake.publish()
    lake.set_plans([*gone, Plan((Op(1, "look"),))])
    assert lake.publish().months == 0
    assert rows(lake, LOOKED)[1] == ("evt_1", day(2), None, day(2))
    check(lake)


def test_observations_that_a_refold_removes_are_removed_from_the_tables(lake: SmallLake) -> None:
    before = rows(lake, LOOKED)
    lake.set_plans([*HISTORY, Plan((Op(0, "look"), Op(1, "miss")))])
    lake.publish()
    lake.set_plans(HISTORY)
    assert lake.publish().mode == "delta"
    assert rows(lake, LOOKED) == before


def test_an_observation_with_a_change_rewrites_only_the_month_of_that_event(
    lake: SmallLake,
) -> None:
    lake.set_plans([*HISTORY, Plan((Op(0, "change", 8), Op(1, "look"), Op(2, "look")))])
    assert lake.publish().months == 1
    assert {row[1] for row in rows(lake, LOOKED)} == {day(1)}
    check(lake)


def test_a_coin_that_is_renamed_is_renamed_in_the_links_of_events_that_did_not_change(
    lake: SmallLake,
) -> None:
    names = "SELECT coin, symbol, name FROM event_coins ORDER BY coin"
    before = row_places(lake, "event_coins")
    assert rows(lake, names)[:3] == [
        ("coin-0", "C0", "Coin 0"),
        ("coin-1", "C1", "Coin 1"),
        ("coin-2", "COI", "label of coin-2"),
    ]
    lake.set_plans([*HISTORY, Plan(coins=1, names=1)])
    report = lake.publish()
    assert (report.mode, report.months) == ("delta", 0)
    assert rows(lake, names)[:3] == [
        ("coin-0", "C0", "Coin 0 renamed 1"),
        ("coin-1", "C1", "Coin 1"),
        ("coin-2", "COI", "label of coin-2 renamed 1"),
    ]
    assert row_places(lake, "event_coins") == before
    check(lake)


def test_a_coin_without_a_known_name_has_no_name_in_links(tmp_path: Path) -> None:
    lake = SmallLake(tmp_path)
    history = [Plan((Op(0, seed=0), Op(1, seed=0)))]
    lake.set_plans(history)
    lake.publish()
    lake.set_plans([*history, Plan(names=2)])
    assert lake.publish().mode == "delta"
    assert rows(lake, "SELECT coin, symbol, name FROM event_coins ORDER BY coin") == [
        ("coin-0", None, None),
        ("coin-1", None, None),
    ]
    check(lake)


def test_a_category_that_has_another_id_has_it_in_the_links_of_events_that_did_not_change(
    lake: SmallLake,
) -> None:
    ids = "SELECT DISTINCT category, category_id FROM event_categories ORDER BY 1"
    assert rows(lake, ids) == [("listing", "listing"), ("other", None)]
    before = row_places(lake, "event_categories")
    lake.set_plans([*HISTORY, Plan(names=1)])
    assert lake.publish().months == 0
    assert rows(lake, ids) == [("listing", "a-listing"), ("other", None)]
    assert row_places(lake, "event_categories") == before
    check(lake)
