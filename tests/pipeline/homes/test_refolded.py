"""A command that refolds history reports what changed."""

import json
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path
from typing import Any

import duckdb
import pytest
from warehouse.history.change_log import NORMALISER, Head

from tests.pipeline.conftest import Almanac
from tests.warehouse.landed_days import land
from warehouse.history import day as days
from warehouse.history import fold
from warehouse.history.merge import merge
from warehouse.history.verify import verify
from warehouse.home import Home
from warehouse.queries import read_activity


def two_days(root: Path) -> Home:
    """Return a home with two landed days of one event, whose title changed."""
    home = Home(root)
    home.claim("s")
    for day in (0, 1):
        land(home, day, id="a", title=f"title {day}")
    return home


@pytest.fixture(scope="module")
def older(tmp_path_factory: pytest.TempPathFactory) -> Callable[[bool], Path]:
    """Homes of these days as an older Almanac merged them, one that was blind to titles or not."""
    folder = tmp_path_factory.mktemp("older")

    @cache
    def made(is_blind: bool) -> Path:
        home = two_days(folder / f"{is_blind}")
        merge_as_older(home, blind_to_titles=is_blind)
        return home.root

    return made


@pytest.fixture
def home(
    request: pytest.FixtureRequest,
    older: Callable[[bool], Path],
    tmp_path: Path,
    almanac: Almanac,
    monkeypatch: pytest.MonkeyPatch,
) -> Home:
    """A home with two days; merged by an older Almanac if a test says if that was blind."""
    if (is_blind := getattr(request, "param", None)) is None:
        home = two_days(tmp_path / "home")
    else:
        home = Home(shutil.copytree(older(is_blind), tmp_path / "home"))
    # After the fixture `almanac`, which removes all settings.
    monkeypatch.setenv("ALMANAC_HOME", str(home.root))
    return home


def merge_as_older(home: Home, *, blind_to_titles: bool) -> None:
    """Merge as an older version of Almanac with other rules would."""
    right = fold.normalise

    def without_titles(connection: duckdb.DuckDBPyConnection, *given: Any, **how: Any) -> Any:
        read = right(connection, *given, **how)
        connection.execute("UPDATE normalised SET title = 'one'")
        return read

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(days, "Head", partial(Head, normaliser=NORMALISER - 1))
        older = {"save_seen": days._SQL["save_seen"].replace("*", "* EXCLUDE (shown_at)")}
        patched.setattr(days, "_SQL", {**days._SQL.texts, **older})
        if blind_to_titles:
            patched.setattr(fold, "normalise", without_titles)
        merge(home)


BLIND = pytest.mark.parametrize("home", [True], indirect=True, ids=["blind"])
SEEING = pytest.mark.parametrize("home", [False], indirect=True, ids=["seeing"])


@BLIND
def test_verify_passes_a_home_that_an_older_almanac_folded(home: Home, almanac: Almanac) -> None:
    output = almanac("verify", "--deep").output
    assert "2 days were folded by another version" in " ".join(output.split())
    home.warehouse.chmod(0o600)
    with duckdb.connect(str(home.warehouse)) as connection:
        connection.execute("DROP TABLE event_absences")
    assert [found.check for found in verify(home) if not found.holds] == []
    almanac("merge")
    assert all(not check.notes and check.holds for check in verify(home, deep=True))


@SEEING
def test_verify_finds_a_break_in_a_home_of_an_older_almanac(home: Home) -> None:
    first = next(iter(home.lake.folders("event_changes")))
    home.lake.remove_folder(f"event_changes/{first}")
    assert [check.check for check in verify(home) if "form a chain" in check.check and check.wrong]


def test_a_warehouse_in_an_older_form_is_read_and_published_again_by_the_next_merge(
    home: Home,
) -> None:
    merge(home)
    home.warehouse.chmod(0o600)
    with duckdb.connect(str(home.warehouse)) as connection:
        connection.execute("DROP SCHEMA _almanac CASCADE")
    checks = [*verify(home)]
    assert all(check.holds for check in checks)
    assert ["another form" in note for check in checks for note in check.notes] == [True]
    assert read_activity(home.warehouse, datetime(2026, 3, 3, tzinfo=UTC)).watched_since is not None
    report = merge(home).published
    assert report is not None
    assert report.why_full == "another version of Almanac or DuckDB made it"
    assert not [note for check in verify(home) for note in check.notes]


@pytest.mark.parametrize(
    ("home", "message"),
    [
        (False, "2 days folded by another version of Almanac were refolded: nothing changed."),
        (True, "1 version before, 2 now; 2 new or changed, 1 removed; revised 0 before, 1 now."),
    ],
    indirect=["home"],
    ids=["equal", "other"],
)
def test_merge_reports_the_refold_of_days_that_an_older_almanac_folded(
    message: str, home: Home, almanac: Almanac
) -> None:
    land(home, 2, id="new")
    assert message in almanac("merge").output.replace("\n", " ")
    assert json.loads(almanac("merge", "--json").stdout)["notes"] == []


@SEEING
def test_changes_by_new_batches_are_not_reported_as_changes_by_other_rules(home: Home) -> None:
    land(home, 1, id="new")
    (note,) = merge(home).notes
    assert note.endswith("refolded: nothing changed (1 with new batches left out).")


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
