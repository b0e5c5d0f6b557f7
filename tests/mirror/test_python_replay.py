"""`almanac.replay`: the changes of a home in order, and the catalog as known at each."""

import hashlib
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest

import almanac
from almanac.reading.attached_file import connected
from pipeline.mirror.replay_server import CONTROL_PATH
from tests.history.stories.handmade import HandmadeHome, at, event
from tests.mirror.filled_home import STARTS
from tests.mirror.replays import order, replaying
from warehouse.home import Home

SAMPLED = 25
FORMAT = "%Y-%m-%dT%H:%M:%S.%fZ"


@pytest.fixture(scope="module")
def versions(filled_home: Home) -> Iterator[duckdb.DuckDBPyConnection]:
    with connected(filled_home.warehouse) as connection:
        yield connection


@pytest.fixture(scope="module")
def first_pull() -> datetime:
    return STARTS


def known_at(versions: duckdb.DuckDBPyConnection, at: datetime) -> dict[str, tuple[Any, ...]]:
    """Return title, date and status of the newest version of each event at a time."""
    rows = versions.execute(
        "SELECT event_id, arg_max((title, date::VARCHAR, status), version) "
        "FROM event_versions WHERE known_from <= ? GROUP BY event_id",
        [at],
    ).fetchall()
    return {event_id: tuple(found) for event_id, found in rows}


def in_utc(date: datetime | None) -> str | None:
    return None if date is None else f"{date.astimezone(UTC):%Y-%m-%d %H:%M:%S}+00"


def shown(catalog: Any) -> dict[str, tuple[Any, ...]]:
    return {
        event_id: (event["title"], in_utc(event["date"]), event["status"])
        for event_id, event in catalog.items()
    }


def test_the_catalog_after_each_change_is_what_was_known_then(
    filled_home: Home, versions: duckdb.DuckDBPyConnection, first_pull: datetime
) -> None:
    with almanac.replay(filled_home.root, first_pull) as changes:
        assert shown(changes.catalog) == known_at(versions, first_pull)
        before: almanac.Change | None = None
        checked = 0
        for change in changes:
            # The catalog is complete for a time when its last change is read.
            if before is not None and change.known_from > before.known_from:
                moment = change.known_from - timedelta(microseconds=1)
                after = shown(changes.catalog)
                expected = known_at(versions, moment)
                replaced = change.previous
                if replaced is None:
                    del after[change.event_id]
                else:
                    after[change.event_id] = shown({"": replaced})[""]
                assert after == expected
                checked += 1
                if checked == SAMPLED:
                    break
            before = change
    assert checked


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


def test_the_catalog_equals_events_as_of_through_every_kind_of_change(
    filled_home: Home, first_pull: datetime
) -> None:
    whole = list(almanac.replay(filled_home.root, first_pull))
    assert {"cancelled", "withdrawn", "restored"} <= {kind for each in whole for kind in each.kinds}
    last_at = {change.known_from: number for number, change in enumerate(whole)}
    changes = almanac.replay(filled_home.root, first_pull)
    assert in_catalog(changes) == as_of(filled_home.warehouse, first_pull)
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


@pytest.mark.parametrize("size", [1, 7])
def test_batches_of_any_size_give_the_same_changes(
    filled_home: Home, first_pull: datetime, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = list(almanac.replay(filled_home.root, first_pull))
    monkeypatch.setattr("almanac.history_replay._BATCH", size)
    assert list(almanac.replay(filled_home.root, first_pull)) == whole


def test_a_program_cannot_change_the_catalog(filled_home: Home, first_pull: datetime) -> None:
    changes = almanac.replay(filled_home.root, first_pull)
    known: Any = next(iter(changes.catalog.values()))
    with pytest.raises(TypeError):
        known["title"] = "other"
    catalog: Any = changes.catalog
    with pytest.raises(TypeError):
        catalog["other"] = known


def test_timestamps_without_a_zone_are_in_utc(filled_home: Home, first_pull: datetime) -> None:
    assert almanac.replay(filled_home.root, first_pull.replace(tzinfo=None)).start == first_pull


def test_each_version_comes_once_in_order_of_knowledge_and_hides_its_end(
    filled_home: Home, versions: duckdb.DuckDBPyConnection, first_pull: datetime
) -> None:
    expected = versions.execute(
        "SELECT event_id, version, known_from::TIMESTAMP FROM event_versions "
        "WHERE known_from > ? ORDER BY known_from, event_id, version",
        [first_pull],
    ).fetchall()
    changes = list(almanac.replay(filled_home.root, first_pull))
    assert expected
    assert [
        (change.event_id, change.version, change.known_from.replace(tzinfo=None))
        for change in changes
    ] == expected
    assert not any({"known_to", "known_basis"} & change.event.keys() for change in changes)
    for change in changes:
        assert (change.previous is None) == (change.version == 1)
        if change.previous is not None:
            assert change.previous["version"] == change.version - 1


def test_count_and_hash_equal_a_plain_sum_and_the_replay_of_a_mirror(
    filled_home: Home, versions: duckdb.DuckDBPyConnection, first_pull: datetime, tmp_path: Path
) -> None:
    changes = almanac.replay(filled_home.root, first_pull)
    lines = "".join(
        f"{event_id} {version} {known_from.strftime(FORMAT)}\n"
        for event_id, version, known_from in versions.execute(
            "SELECT event_id, version, known_from::TIMESTAMP FROM event_versions "
            "WHERE known_from > ? ORDER BY known_from, event_id, version",
            [first_pull],
        ).fetchall()
    )
    assert (changes.count, changes.sha256) == (
        lines.count("\n"),
        hashlib.sha256(lines.encode()).hexdigest(),
    )
    with replaying(filled_home, tmp_path / "mirror", first_pull) as (_, client):
        found = order(client, now=client.get(CONTROL_PATH).json()["until"])["changes"]
    assert (found["total"], found["sha256"]) == (changes.count, changes.sha256)


def test_kinds_and_coins_select_changes_but_not_the_catalog(
    filled_home: Home, first_pull: datetime
) -> None:
    whole = list(almanac.replay(filled_home.root, first_pull))
    kind = whole[0].kinds[0]
    coin = next(change.event["coins"][0] for change in whole if change.event["coins"])
    by_kind = almanac.replay(filled_home.root, first_pull, kinds=kind)
    assert [c.event_id for c in by_kind] == [c.event_id for c in whole if kind in c.kinds]
    assert by_kind.count == len(whole)
    with almanac.open(filled_home.root) as db:
        chosen = list(db.replay(first_pull, coins=f"slug:{coin}"))
    assert chosen
    assert len(chosen) < len(whole)
    for change in chosen:
        assert coin in (*change.event["coins"], *((change.previous or {}).get("coins") or ()))


def test_a_file_that_is_replaced_during_the_iteration_is_read_to_its_end(
    filled_home: Home, first_pull: datetime, tmp_path: Path
) -> None:
    file = Path(shutil.copy(filled_home.warehouse, tmp_path / "warehouse.duckdb"))
    whole = [change.event_id for change in almanac.replay(file, first_pull)]
    changes = almanac.replay(file, first_pull)
    found = [next(changes).event_id]
    other = Path(shutil.copy(filled_home.warehouse, tmp_path / "other.duckdb"))
    other.chmod(0o600)
    other.write_bytes(b"not a warehouse")
    other.replace(file)
    found += [change.event_id for change in changes]
    assert found == whole


def test_an_empty_range_has_no_change_and_the_catalog_of_its_start(
    filled_home: Home, first_pull: datetime
) -> None:
    changes = almanac.replay(filled_home.root, first_pull, first_pull)
    assert (list(changes), changes.count) == ([], 0)
    assert changes.catalog


def test_a_start_before_the_first_pull_names_the_start_of_history(
    filled_home: Home, first_pull: datetime
) -> None:
    with pytest.raises(
        almanac.QueryRefused, match=f"first pull of events, at {first_pull:%Y-%m-%d}"
    ):
        almanac.replay(filled_home.root, "2001-01-01")


def test_wrong_arguments_are_refused(filled_home: Home, first_pull: datetime) -> None:
    later = first_pull + timedelta(hours=1)
    with pytest.raises(almanac.InvalidArgument, match="is before start"):
        almanac.replay(filled_home.root, later, first_pull)
    with pytest.raises(almanac.InvalidArgument, match="kinds"):
        almanac.replay(filled_home.root, first_pull, kinds="moved")
    with pytest.raises(almanac.InvalidArgument, match="start=None"):
        almanac.replay(filled_home.root, None)  # type: ignore[arg-type]
    with pytest.raises(almanac.UnknownName):
        almanac.replay(filled_home.root, first_pull, coins="slug:no-such-coin")
