"""`blackouts` over versions made by hand: now, as of an instant, and as known at each instant."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import almanac
from tests.almanac.publications import NamedCoin, publish_by_hand
from tests.warehouse.answers.handmade import Absence, Known


def at(day: int, hour: int = 0, minute: int = 0) -> datetime:
    return datetime(2026, 3, day, hour, minute, tzinfo=UTC)


NOW = at(20, 12)
PULLS = [at(day, 6) for day in range(1, 21)]
COINS = [NamedCoin("bitcoin", "BTC", "Bitcoin", 1), NamedCoin("terra", "LUNA", "Terra", 50)]
MOVED = {"event_id": "moved", "coins": ("bitcoin", "terra"), "impact": 8.0}
OFF = {"event_id": "off", "coins": ("terra",), "date": at(9), "impact_band": "Critical"}
VERSIONS = [
    Known(**MOVED, known_from=at(1, 6), date=at(10, 12)),
    Known(**MOVED, version=2, known_from=at(9, 6), date=at(14, 12)),
    Known(event_id="after", known_from=at(3, 6), date=at(14, 13), coins=("bitcoin",), impact=7.5),
    Known(event_id="minor", known_from=at(3, 6), date=at(14, 13), coins=("bitcoin",), impact=7.4),
    Known(event_id="unknown", known_from=at(3, 6), date=at(14, 13), coins=("bitcoin",)),
    Known(**OFF, known_from=at(1, 6)),
    Known(**OFF, version=2, known_from=at(9, 6), status="cancelled"),
    Known(event_id="late", known_from=at(12, 6), date=at(12), coins=("terra",), impact=9.0),
    Known(event_id="lost", known_from=at(1, 6), date=at(30, 1), coins=("terra",), impact=9.0),
]
ABSENCES = [Absence("lost", at(6, 6), at(6, 6))]
Time = tuple[str, datetime, datetime]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("home") / "warehouse.duckdb"
    return publish_by_hand(path, VERSIONS, pulls=PULLS, absences=ABSENCES, coins=COINS)


@pytest.fixture
def db(file: Path) -> Iterator[almanac.Database]:
    with almanac.open(file, clock=lambda: NOW) as opened:
        yield opened


def times(result: almanac.Result) -> list[Time]:
    return [(row["coin"], row["starts"], row["ends"]) for row in result]


def half_hours(count: int) -> timedelta:
    return count * timedelta(minutes=30)


def test_times_that_touch_are_one_and_name_their_events(db: almanac.Database) -> None:
    (row,) = db.blackouts(as_of="now", coins="BTC").rows()
    assert (row["starts"], row["ends"]) == (at(14, 11, 30), at(14, 13, 30))
    assert row["event_ids"] == ["after", "moved"]
    assert row["known_from"] == at(9, 6)
    assert row["impact"] == 8.0
    apart = times(db.blackouts(as_of="now", coins="BTC", before="29m"))
    assert [ends - starts for _, starts, ends in apart] == [timedelta(minutes=59)] * 2
    every = db.blackouts(as_of="now", coins="BTC", min_impact=None).rows()
    assert [row["event_ids"] for row in every] == [["after", "minor", "moved", "unknown"]]


def test_a_day_is_blacked_out_as_a_whole(db: almanac.Database) -> None:
    found = times(db.blackouts(coins="terra", before="1h", after="0m", as_of=at(2)))
    assert found[0] == ("terra", at(8, 23), at(10))


def test_as_of_an_instant_shows_what_was_known_then(db: almanac.Database) -> None:
    found = times(db.blackouts(as_of=at(9, 6) - timedelta(microseconds=1)))
    # The missing event is not expected then.
    assert found == [
        ("terra", at(8, 23, 30), at(10, 0, 30)),
        ("bitcoin", at(10, 11, 30), at(10, 12, 30)),
        ("terra", at(10, 11, 30), at(10, 12, 30)),
        ("bitcoin", at(14, 12, 30), at(14, 13, 30)),
    ]


def test_each_instant_knows_only_what_was_known_then(db: almanac.Database) -> None:
    """The cancelled event counts until that was known, the late one from when it was known on."""
    found = times(db.blackouts(as_of="each", coins="terra"))
    assert found == [
        ("terra", at(8, 23, 30), at(9, 6)),
        ("terra", at(12, 6), at(13, 0, 30)),
        ("terra", at(14, 11, 30), at(14, 12, 30)),
    ]
    known = {row["starts"]: row["known_from"] for row in db.blackouts(as_of="each", coins="terra")}
    assert known[at(12, 6)] == at(12, 6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"before": "0m", "after": "0m"}, "both 0"),
        ({"as_of": NOW + half_hours(1)}, "still to come"),
        ({"after": "-1h"}, "after='-1h' is not a duration"),
    ],
)
def test_what_can_not_be_answered_is_said(db: almanac.Database, options: Any, message: str) -> None:
    with pytest.raises(almanac.InvalidArgument, match=message):
        db.blackouts(**{"as_of": "each", **options})


def test_the_time_of_knowledge_has_no_default(db: almanac.Database) -> None:
    with pytest.raises(TypeError, match="as_of"):
        db.blackouts()  # type: ignore[call-arg]


def test_a_plan_without_scores_is_no_reason_to_black_out_nothing(tmp_path: Path) -> None:
    versions = [Known(event_id="evt", known_from=at(1, 6), date=at(9), coins=("bitcoin",))]
    file = publish_by_hand(tmp_path / "w.duckdb", versions, pulls=PULLS, coins=COINS)
    with almanac.open(file, clock=lambda: NOW) as db:
        with pytest.raises(almanac.InvalidArgument, match="min_impact=None"):
            db.blackouts(as_of="each")
        assert len(db.blackouts(as_of="now", min_impact=None)) == 1
