"""`almanac.replay`: the changes of a home in order, and the catalog as known at each."""

import shutil
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import almanac
from almanac.reading.attached_file import connected
from application.web.mirror.mirror import CONTROL_PATH
from tests.application.mirror.filled_home import NOW, STARTS
from tests.application.mirror.replays import change_log, log_hash, order, replaying
from tests.history.stories.handmade import HandmadeHome, at, event
from warehouse.home import Home

FORMAT = "%Y-%m-%dT%H:%M:%S.%fZ"


def as_of(file: Path, ts: datetime) -> dict[str, tuple[Any, ...]]:
    """Return version, status, date and coins of each event by the macro of the warehouse."""
    with connected(file) as connection:
        rows = connection.execute(
            "SELECT event_id, version, status, date::TIMESTAMP, coins FROM events_as_of(?)", [ts]
        ).fetchall()
    return {event_id: tuple(found) for event_id, *found in rows}


def in_catalog(changes: almanac.Replay) -> dict[str, tuple[Any, ...]]:
    return {
        event_id: (
            *(known["version"], known["status"]),
            *(known["date"] and known["date"].replace(tzinfo=None), known["coins"]),
        )
        for event_id, known in changes.catalog.items()
    }


def test_the_catalog_equals_events_as_of_through_every_kind_of_change(filled_home: Home) -> None:
    whole = list(almanac.replay(filled_home.root, STARTS))
    assert {"cancelled", "withdrawn", "restored"} <= {kind for each in whole for kind in each.kinds}
    last_at = {change.known_from: number for number, change in enumerate(whole)}
    changes = almanac.replay(filled_home.root, STARTS)
    assert in_catalog(changes) == as_of(filled_home.warehouse, STARTS)
    for number, change in enumerate(changes):
        if last_at[change.known_from] == number:
            assert in_catalog(changes) == as_of(filled_home.warehouse, change.known_from)
    assert changes.now == changes.until


def test_the_last_of_two_versions_of_the_same_time_stays_in_the_catalog(tmp_path: Path) -> None:
    story = HandmadeHome(tmp_path)
    story.listed("02 06:00", event("a"), event("b"))
    story.export(
        "03 06:00",
        event("a", title="Second", updatedAt="2026-03-02T08:00:00Z"),
        event("b"),
    )
    story.listed(
        "03 06:00",
        event("a", title="Third", updatedAt="2026-03-02T09:00:00Z"),
        event("b"),
        true="03 06:00",
    )
    story.merge()
    with almanac.replay(tmp_path, at("02 06:00")) as changes:
        found = [(each.event_id, each.version, each.event["title"]) for each in changes]
        assert found == [("a", 2, "Second"), ("a", 3, "Third")]
        assert changes.catalog["a"]["title"] == "Third"
        assert in_catalog(changes) == as_of(story.home.warehouse, at("03 06:00"))
    started_there = almanac.replay(tmp_path, at("03 06:00"))
    assert (list(started_there), started_there.catalog["a"]["title"]) == ([], "Third")


def test_each_version_comes_once_in_order_of_knowledge_and_hides_its_end(filled_home: Home) -> None:
    changes = list(almanac.replay(filled_home.root, STARTS))
    found = [(each.event_id, each.version, f"{each.known_from:{FORMAT}}") for each in changes]
    assert found == change_log(filled_home, STARTS, NOW)
    assert found
    assert not any({"known_to", "known_basis"} & change.event.keys() for change in changes)
    for change in changes:
        assert (change.previous is None) == (change.version == 1)
        if change.previous is not None:
            assert change.previous["version"] == change.version - 1


def test_count_and_hash_equal_a_plain_sum_and_the_replay_of_a_mirror(
    filled_home: Home, tmp_path: Path
) -> None:
    changes = almanac.replay(filled_home.root, STARTS)
    log = change_log(filled_home, STARTS, changes.until)
    assert (changes.count, changes.sha256) == (len(log), log_hash(log))
    with replaying(filled_home, tmp_path / "mirror", STARTS) as (_, client):
        found = order(client, now=client.get(CONTROL_PATH).json()["until"])["changes"]
    assert (found["total"], found["sha256"]) == (changes.count, changes.sha256)


def test_kinds_and_coins_select_changes_but_not_the_catalog(filled_home: Home) -> None:
    whole = list(almanac.replay(filled_home.root, STARTS))
    kind = whole[0].kinds[0]
    coin = next(change.event["coins"][0] for change in whole if change.event["coins"])
    by_kind = almanac.replay(filled_home.root, STARTS, kinds=kind)
    assert [c.event_id for c in by_kind] == [c.event_id for c in whole if kind in c.kinds]
    assert by_kind.count == len(whole)
    with almanac.open(filled_home.root) as db:
        chosen = list(db.replay(STARTS, coins=f"slug:{coin}"))
    assert chosen
    assert len(chosen) < len(whole)
    for change in chosen:
        assert coin in (*change.event["coins"], *((change.previous or {}).get("coins") or ()))


def test_a_file_that_is_replaced_during_the_iteration_is_read_to_its_end(
    filled_home: Home, tmp_path: Path
) -> None:
    file = Path(shutil.copy(filled_home.warehouse, tmp_path / "warehouse.duckdb"))
    whole = [change.event_id for change in almanac.replay(file, STARTS)]
    changes = almanac.replay(file, STARTS)
    found = [next(changes).event_id]
    other = Path(shutil.copy(filled_home.warehouse, tmp_path / "other.duckdb"))
    other.chmod(0o600)
    other.write_bytes(b"not a warehouse")
    other.replace(file)
    found += [change.event_id for change in changes]
    assert found == whole


def test_wrong_arguments_are_refused(filled_home: Home) -> None:
    later = STARTS + timedelta(hours=1)
    empty = almanac.replay(filled_home.root, STARTS, STARTS)
    assert (list(empty), empty.count, bool(empty.catalog)) == ([], 0, True)
    with pytest.raises(almanac.QueryRefused, match=f"first pull of events, at {STARTS:%Y-%m-%d}"):
        almanac.replay(filled_home.root, "2001-01-01")
    with pytest.raises(almanac.InvalidArgument, match="is before start"):
        almanac.replay(filled_home.root, later, STARTS)
    with pytest.raises(almanac.InvalidArgument, match="kinds"):
        almanac.replay(filled_home.root, STARTS, kinds="moved")
    with pytest.raises(almanac.InvalidArgument, match="start=None"):
        almanac.replay(filled_home.root, None)  # type: ignore[arg-type]
    with pytest.raises(almanac.UnknownName):
        almanac.replay(filled_home.root, STARTS, coins="slug:no-such-coin")
