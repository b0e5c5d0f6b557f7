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


def test_a_warehouse_of_another_version_is_read_and_rebuilt_by_the_next_merge(
    home: Home, almanac: Almanac
) -> None:
    merge(home)
    before = history(home)
    home.warehouse.chmod(0o600)
    with duckdb.connect(str(home.warehouse)) as connection:
        connection.execute("UPDATE state.facts SET value = 'others' WHERE name = 'tables'")
    assert "another version of Almanac made it" in " ".join(almanac("verify").output.split())
    assert history(home) == before
    output = " ".join(almanac("merge").output.split())
    assert "Another version of Almanac made the warehouse: it is rebuilt from landing" in output
    assert history(home) == before
    assert "another version" not in almanac("verify", "--deep").output
    assert json.loads(almanac("merge", "--json").stdout)["notes"] == []


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
