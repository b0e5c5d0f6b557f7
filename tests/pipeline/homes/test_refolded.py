"""A command that refolds or rebuilds history reports what changed."""

import json
from pathlib import Path
from typing import Any

import duckdb
import pytest

from tests.pipeline.conftest import Almanac
from tests.warehouse.landed_days import history, land
from warehouse.history import fold
from warehouse.history.merge import merge
from warehouse.home import Home


@pytest.fixture
def home(tmp_path: Path, almanac: Almanac, monkeypatch: pytest.MonkeyPatch) -> Home:
    """A home with two landed days of one event, whose title changed."""
    home = Home(tmp_path / "home")
    home.claim("s")
    for day in (0, 1):
        land(home, day, id="a", title=f"title {day}")
    # After the fixture `almanac`, which removes all settings.
    monkeypatch.setenv("ALMANAC_HOME", str(home.root))
    return home


def change(home: Home, *statements: str) -> None:
    """Change the published file as another version of Almanac would have written it."""
    home.warehouse.chmod(0o600)
    with duckdb.connect(str(home.warehouse)) as connection:
        for statement in statements:
            connection.execute(statement)


def test_a_warehouse_of_another_version_is_read_and_rebuilt_by_the_next_merge(
    home: Home, almanac: Almanac
) -> None:
    merge(home)
    before = history(home)
    change(home, "UPDATE state.facts SET value = 'others' WHERE name = 'tables'")
    assert "another version of Almanac made it" in " ".join(almanac("verify").output.split())
    assert history(home) == before
    output = " ".join(almanac("merge").output.split())
    assert "Another version of Almanac made the warehouse: it is rebuilt from landing" in output
    assert history(home) == before
    assert "another version" not in almanac("verify", "--deep").output
    assert json.loads(almanac("merge", "--json").stdout)["notes"] == []


def test_views_of_another_version_are_replaced_without_a_rebuild(
    home: Home, almanac: Almanac
) -> None:
    merge(home)
    before = history(home)
    change(
        home,
        "DROP VIEW event_coins",
        "CREATE VIEW no_longer_declared AS SELECT 1",
        "UPDATE state.facts SET value = 'others' WHERE name = 'views'",
    )
    report = merge(home)
    assert report.is_published and (report.rebuilt, report.outcomes) == (None, [])
    assert history(home) == before
    with duckdb.connect(str(home.warehouse), read_only=True) as connection:
        views = connection.sql("SELECT view_name FROM duckdb_views() WHERE NOT internal").fetchall()
    assert ("event_coins",) in views and ("no_longer_declared",) not in views


def test_merge_reports_the_days_that_a_late_batch_changed(home: Home, almanac: Almanac) -> None:
    merge(home)
    # It sorts before the batch of the second day.
    land(home, 0, id="b", title="late")
    report = json.loads(almanac("merge", "--json").stdout)
    assert report["refolded"] == {
        "2026-03-29": {"added": 1, "removed": 0},
        "2026-03-30": {"added": 0, "removed": 0},
    }


def test_replay_ends_with_1_where_a_batch_that_was_merged_is_quarantined(
    home: Home, almanac: Almanac, monkeypatch: pytest.MonkeyPatch
) -> None:
    merge(home)
    lost = home.landing.batch_ids()[0]
    right = fold.normalise

    def failing(connection: duckdb.DuckDBPyConnection, *given: Any, **how: Any) -> Any:
        if lost in str(given):
            raise KeyError("odd")
        return right(connection, *given, **how)

    with monkeypatch.context() as patched:
        patched.setattr(fold, "normalise", failing)
        output = " ".join(almanac("replay", code=1).output.split())
    assert f"{lost} was merged before and is quarantined now" in output
    assert "KeyError: 'odd'" in output
    almanac("replay")
