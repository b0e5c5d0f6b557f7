"""A quarantined batch is released, taken back or dismissed; a merge reports what it changed."""

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest

from tests.hangs import HANGS_AFTER_S, wait_for, without_steps
from tests.history.stories.disk import without_syncs
from tests.history.stories.handmade import HandmadeHome, at, event
from tests.pipeline.conftest import Almanac
from tests.pipeline.run_records import forked
from tests.test_cli import ALMANAC, environment
from tests.warehouse.landed_days import history, land
from warehouse.files.locks import read_holder
from warehouse.history import fold
from warehouse.history.merge import merge, rebuild
from warehouse.history.verify import verify
from warehouse.home import Home

DAYS_AGO = (datetime.now(UTC) - at("01 00:00")) // timedelta(days=1)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with a merged batch, and one that is quarantined: ten of its rows have no date."""
    story = HandmadeHome(tmp_path_factory.mktemp("made") / "home")
    story.home.claim("by hand")
    story.listed("01 06:00", event("a"))
    odd = [event(f"odd{place}", date=None) for place in range(10)]
    story.listed("02 06:00", event("b"), *odd, why_incomplete="it was stopped")
    story.listed("03 06:00", event("a"), why_incomplete="it was stopped")
    with without_syncs():
        story.merge()
    return story.home.root


@pytest.fixture
def story(
    made: Path, tmp_path: Path, almanac: Almanac, monkeypatch: pytest.MonkeyPatch
) -> HandmadeHome:
    # After the fixture `almanac`, which removes all settings.
    monkeypatch.setenv("ALMANAC_HOME", str(shutil.copytree(made, tmp_path / "home")))
    return HandmadeHome(tmp_path / "home")


def quarantined(story: HandmadeHome) -> str:
    ((batch_id,),) = story.rows("SELECT batch_id FROM batches WHERE observed_date = '2026-03-02'")
    return str(batch_id)


def known(story: HandmadeHome) -> list[str]:
    return [row[0] for row in story.rows("SELECT event_id FROM events ORDER BY 1")]


def test_a_release_that_is_taken_back_leaves_no_trace_in_history(
    story: HandmadeHome, almanac: Almanac
) -> None:
    batch_id = quarantined(story)
    before = story.rows("FROM event_versions ORDER BY ALL")
    almanac("batches", "release", batch_id)
    almanac("merge")
    assert known(story) == ["a", "b"]
    assert "no longer released" in almanac("batches", "release", batch_id, "--undo").output
    almanac("merge")
    assert known(story) == ["a"]
    assert story.rows("FROM event_versions ORDER BY ALL") == before
    assert [found.check for found in verify(story.home, deep=True) if not found.holds] == []
    assert "is not released" in almanac("batches", "release", batch_id, "--undo", code=1).stderr


def test_a_batch_whose_reading_failed_is_not_released(
    story: HandmadeHome, almanac: Almanac, monkeypatch: pytest.MonkeyPatch
) -> None:
    right, batch_id = fold.normalise, quarantined(story)

    def failing(connection: duckdb.DuckDBPyConnection, *given: Any, **named: Any) -> Any:
        if batch_id in str(given):
            raise KeyError("odd")
        return right(connection, *given, **named)

    with monkeypatch.context() as patched:
        patched.setattr(fold, "normalise", failing)
        rebuild(story.home)
    said = " ".join(almanac("batches", "release", batch_id, code=1).stderr.split())
    assert "KeyError: 'odd'" in said
    assert "Nothing was released. With a version that can read it: almanac rebuild" in said
    assert story.home.landing.released() == []


def test_a_batch_that_is_dismissed_is_warned_of_no_longer(
    story: HandmadeHome, almanac: Almanac, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline.health.facts.HISTORY_DAYS", DAYS_AGO + 1)
    batch_id, warning = quarantined(story), "1 batch in quarantine"
    ((merged,),) = story.rows("SELECT batch_id FROM batches WHERE observed_date = '2026-03-01'")
    assert "is not quarantined" in almanac("batches", "dismiss", merged, code=1).stderr
    assert warning in almanac("status").output
    assert "dismissed" in almanac("batches", "dismiss", batch_id).output
    assert warning not in almanac("status").output
    assert batch_id in almanac("batches", "list", "--status", "quarantined").output
    almanac("batches", "dismiss", batch_id, "--undo")
    assert warning in almanac("status").output


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
    assert "another version" not in almanac("verify").output


def test_merge_reports_the_days_that_a_late_batch_changed(home: Home, almanac: Almanac) -> None:
    merge(home)
    # It sorts before the batch of the second day.
    land(home, 0, id="b", title="late")
    report = json.loads(almanac("merge", "--json").stdout)
    assert report["refolded"] == {
        "2026-03-29": {"added": 1, "removed": 0},
        "2026-03-30": {"added": 0, "removed": 0},
    }


@pytest.fixture
def locked(tmp_path: Path) -> Home:
    locked = Home(tmp_path / "data")
    locked.claim("sandbox:1")
    return locked


@pytest.fixture
def holding(locked: Home) -> Iterator[int]:
    """A process that holds the locks of the home."""

    def work() -> None:
        with locked.run_lock(), locked.merge_lock():
            signal.pause()

    child = forked(work)
    wait_for(lambda: read_holder(locked.state / "merge.lock"))
    yield child
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


@pytest.mark.parametrize("words", [("run",), ("merge",), ("verify",)])
def test_a_wait_for_a_lock_times_out_and_names_the_holder(
    almanac: Almanac, holding: int, words: tuple[str, ...]
) -> None:
    done = almanac(*words, code=1, wait_s="0.3")
    assert f"(pid {holding}, since " in done.stderr
    assert "after 0.3 s" in done.stderr
    assert "ALMANAC_WAIT_S" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_wait_for_a_lock_is_reported_and_ends_with_a_signal(locked: Home, holding: int) -> None:
    process = subprocess.Popen(
        [*ALMANAC, "merge"],
        cwd=locked.root.parent,
        env=environment(locked.root),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    try:
        line = process.stderr.readline()
        assert f"(pid {holding}, since " in line
        process.send_signal(signal.SIGHUP)
        output = without_steps(process.communicate(timeout=HANGS_AFTER_S)[1])
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130
    assert output.count("\n") == 1
    assert "interrupted" in output.lower()
