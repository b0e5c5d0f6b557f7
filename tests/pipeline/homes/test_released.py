"""A quarantined batch is released, taken back, or left so on purpose."""

import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest

from tests.history.stories.disk import without_syncs
from tests.history.stories.handmade import HandmadeHome, at, event
from tests.pipeline.conftest import Almanac
from warehouse.history import fold
from warehouse.history.merge import replay
from warehouse.history.verify import verify

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
    story: HandmadeHome, almanac: Almanac, tmp_path: Path
) -> None:
    batch_id = quarantined(story)
    before = story.rows("FROM event_versions ORDER BY ALL")
    almanac("batches", "release", batch_id)
    almanac("merge")
    assert known(story) == ["a", "b"]
    assert "no longer released" in almanac("batches", "release", batch_id, "--undo").output
    assert [found.check for found in verify(story.home, deep=True) if not found.holds] == []
    taken_back = tmp_path / "taken back"
    shutil.copytree(story.home.root, taken_back)
    for command in ("merge", "replay"):
        shutil.rmtree(story.home.root)
        shutil.copytree(taken_back, story.home.root)
        almanac(command)
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
        replay(story.home)
    said = " ".join(almanac("batches", "release", batch_id, code=1).stderr.split())
    assert "KeyError: 'odd'" in said
    assert "Nothing was released. With a version that can read it: almanac replay" in said
    assert story.home.landing.released() == []


def test_a_batch_that_is_dismissed_is_warned_of_no_longer(
    story: HandmadeHome, almanac: Almanac, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline.health.facts.HISTORY_DAYS", DAYS_AGO + 1)
    batch_id, warning = quarantined(story), "1 batch in quarantine"
    assert warning in almanac("status").output
    assert "dismissed" in almanac("batches", "dismiss", batch_id).output
    assert warning not in almanac("status").output
    assert batch_id in almanac("batches", "list", "--status", "quarantined").output
    assert [found.check for found in verify(story.home, deep=True) if not found.holds] == []
    almanac("batches", "dismiss", batch_id, "--undo")
    assert warning in almanac("status").output


def test_only_a_quarantined_batch_is_dismissed(story: HandmadeHome, almanac: Almanac) -> None:
    ((merged,),) = story.rows("SELECT batch_id FROM batches WHERE observed_date = '2026-03-01'")
    assert "is not quarantined" in almanac("batches", "dismiss", merged, code=1).stderr
