"""nautilus_trader: a replay of what became known, in the order in which it became known."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from almanac.adapters.nautilus import records
from almanac.database import Database
from almanac.errors import InvalidArgument
from tests.almanac.adapters.stories import (
    ANNOUNCED,
    COINS,
    DATE_AT_FIRST,
    DATE_IN_THE_END,
    MOVED,
    PULLS,
    opened,
    publish_moved,
    versions_at_random,
)
from tests.almanac.publications import publish_by_hand
from tests.warehouse.answers.handmade import Absence, Known


def at(day: int) -> datetime:
    return datetime(2026, 3, day, 6, tzinfo=UTC)


def ns(moment: datetime) -> int:
    return int((moment - datetime(1970, 1, 1, tzinfo=UTC)) / timedelta(microseconds=1)) * 1000


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    versions, absences = versions_at_random(3)
    path = tmp_path_factory.mktemp("home") / "warehouse.duckdb"
    publish_by_hand(path, versions, absences=absences, pulls=PULLS, coins=COINS)
    with opened(path, now=PULLS[-1]) as db:
        yield db


def replayed(path: Path, versions: Sequence[Known], **options: Any) -> list[dict[str, Any]]:
    coins, start = options.pop("wanted", None), options.pop("start", None)
    pulls = [at(day) for day in range(1, 9)]
    publish_by_hand(path / "warehouse.duckdb", versions, pulls=pulls, coins=COINS, **options)
    with opened(path / "warehouse.duckdb", now=at(9)) as db:
        return records(db, coins, start)


def test_a_move_is_replayed_when_it_became_known(tmp_path: Path) -> None:
    path = publish_moved(tmp_path / "warehouse.duckdb")
    with opened(path, now=datetime(2026, 6, 30, tzinfo=UTC)) as db:
        found = records(db, "BTC")
    assert [(row["ts_init"], row["date_ns"]) for row in found] == [
        (ns(ANNOUNCED), ns(DATE_AT_FIRST)),
        (ns(MOVED), ns(DATE_IN_THE_END)),
    ]


def test_what_happened_is_never_later_than_what_was_received(db: Database) -> None:
    found = records(db)
    assert found
    assert all(row["ts_event"] <= row["ts_init"] for row in found)
    assert [row["ts_init"] for row in found] == sorted(row["ts_init"] for row in found)


def test_at_each_instant_the_last_updates_are_what_was_known(db: Database) -> None:
    found = records(db)
    for now in PULLS[1::5]:
        last = {row["event_id"]: row for row in found if row["ts_init"] <= ns(now)}
        known = {row["event_id"]: row for row in db.events(as_of=now, status="all")}
        assert set(last) == set(known)
        for event_id, row in known.items():
            assert last[event_id]["title"] == row["title"]
            assert last[event_id]["status"] == row["status"]
            assert last[event_id]["impact"] == row["impact"]
            assert last[event_id]["is_missing"] == (row["missing_since"] is not None)
            assert last[event_id]["latest_ns"] == ns(row["latest"])


def test_a_start_begins_with_what_was_known_then(db: Database) -> None:
    start = PULLS[9] + timedelta(hours=1)
    found = records(db, start=start)
    at_start = {row["event_id"]: row for row in found if row["ts_init"] == ns(start)}
    ahead = [row for row in db.events(as_of=start, status="all") if row["latest"] > start]
    assert set(at_start) == {row["event_id"] for row in ahead}
    assert all(at_start[row["event_id"]]["title"] == row["title"] for row in ahead)
    later = [row for row in records(db) if row["ts_init"] > ns(start)]
    assert found[len(at_start) :] == later


def test_a_version_that_was_known_at_no_time_is_not_replayed(tmp_path: Path) -> None:
    pair = [
        Known(event_id="e", version=number, known_from=at(1), date=at(20), title=f"title {number}")
        for number in (1, 2)
    ]
    assert [row["title"] for row in replayed(tmp_path, pair)] == ["title 2"]


def test_an_event_that_pulls_no_longer_show_is_an_update(tmp_path: Path) -> None:
    versions = [Known(event_id="e", known_from=at(1), date=at(20))]
    absences = [Absence("e", at(3), at(3)), Absence("e", at(5), None)]
    found = replayed(tmp_path, versions, absences=absences)
    assert [(row["ts_init"], row["is_missing"]) for row in found] == [
        (ns(at(1)), False),
        (ns(at(3)), True),
        (ns(at(5)), False),
    ]


def test_an_event_is_a_coins_from_the_version_that_links_it(tmp_path: Path) -> None:
    versions = [
        Known(event_id="e", version=1, known_from=at(1), date=at(20), coins=("ethereum",)),
        Known(event_id="e", version=2, known_from=at(2), date=at(20), coins=("bitcoin",)),
        Known(event_id="e", version=3, known_from=at(3), date=at(20), coins=()),
    ]
    found = replayed(tmp_path, versions, wanted=["BTC"])
    # The last version says that it is the coin's no longer, which a strategy must know.
    assert [(row["version"], row["coins"]) for row in found] == [(2, "bitcoin"), (3, "")]


def test_a_deadline_is_never_a_date(tmp_path: Path) -> None:
    quarter = Known(
        event_id="e",
        known_from=at(1),
        date=datetime(2026, 3, 31, 23, 59, tzinfo=UTC),
        date_type="quarter",
        is_estimated=True,
    )
    (found,) = replayed(tmp_path, [quarter])
    assert found["date_ns"] is None
    assert found["date_precision"] == "quarter"
    assert found["earliest_ns"] == ns(datetime(2026, 1, 1, tzinfo=UTC))


def test_a_date_beyond_the_years_of_nanoseconds_is_unknown(tmp_path: Path) -> None:
    far = Known(event_id="e", known_from=at(1), date=datetime(2999, 1, 1, tzinfo=UTC))
    (found,) = replayed(tmp_path, [far])
    assert found["date_ns"] is None


def test_a_start_to_come_is_refused(db: Database) -> None:
    with pytest.raises(InvalidArgument, match="still to come"):
        records(db, start="2030-01-01")
