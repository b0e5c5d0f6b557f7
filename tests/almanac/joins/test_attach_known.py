"""`attach_known` and `features` over versions made by hand: each rule, and each kind of frame."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import almanac
from almanac.frames import read_timestamp_column
from almanac.reading.query_limits import QueryLimits
from tests.almanac.publications import NamedCoin, publish_by_hand
from tests.warehouse.answers.handmade import Absence, Known

US = timedelta(microseconds=1)
NEW_YORK = "America/New_York"
ADDED = [
    *("next_event_id", "next_event_title", "next_event_date", "next_event_precision"),
    *("next_event_categories", "next_event_impact", "next_event_band", "next_event_known_from"),
    *("next_event_age_days", "days_until", "events_ahead", "watched"),
]


def at(day: int, hour: int = 0, minute: int = 0) -> datetime:
    """Return a time in March 2026; the days before it are 0, -1, …"""
    return datetime(2026, 3, 1, hour, minute, tzinfo=UTC) + timedelta(days=day - 1)


NOW = at(20, 12)
PULLS = [at(day, 6) for day in range(1, 21)]
COINS = [
    NamedCoin("bitcoin", "BTC", "Bitcoin", 1),
    NamedCoin("first-sun", "SUN", "First Sun", 40),
    NamedCoin("other-sun", "SUN", "Other Sun", 90),
    NamedCoin("terra", "LUNA", "Terra", 50),
]
MOVED = {"event_id": "moved", "coins": ("bitcoin",), "categories": ("Fork", "Release")}
TIES = [
    # Same coin, same instants, same date: the lowest id is next.
    Known(event_id=f"tie_{number}", known_from=at(2, 6), date=at(8, 3), coins=("other-sun",))
    for number in (3, 1, 2, 5, 4)
]
VERSIONS = [
    Known(**MOVED, known_from=at(1, 6), date=at(10, 12), impact=8.0),
    Known(**MOVED, version=2, known_from=at(9, 6), date=at(14, 12), impact_band="High"),
    Known(event_id="day", known_from=at(2, 6), date=at(12), coins=("bitcoin",), impact=2.0),
    Known(event_id="off", known_from=at(1, 6), date=at(9), coins=("terra",)),
    Known(
        event_id="off",
        version=2,
        known_from=at(4, 6),
        date=at(9),
        status="cancelled",
        coins=("terra",),
    ),
    Known(event_id="lost", known_from=at(1, 6), date=at(11, 1), coins=("first-sun",)),
    Known(event_id="linked", known_from=at(1, 6), date=at(18, 1), coins=("terra",)),
    Known(event_id="linked", version=2, known_from=at(15, 6), date=at(18, 1)),
    Known(
        event_id="quarter",
        known_from=at(1, 6),
        date=at(16),
        coins=("bitcoin",),
        date_type="quarter",
        is_estimated=True,
    ),
    *TIES,
]
ABSENCES = [Absence("lost", at(6, 6), at(6, 6)), Absence("lost", at(8, 6), None)]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("home") / "warehouse.duckdb"
    return publish_by_hand(path, VERSIONS, pulls=PULLS, absences=ABSENCES, coins=COINS)


@pytest.fixture(scope="module")
def db(file: Path) -> Iterator[almanac.Database]:
    with almanac.open(file, clock=lambda: NOW) as opened:
        yield opened


def joined(db: almanac.Database, coin: str, *moments: datetime, **options: Any) -> pd.DataFrame:
    frame = pd.DataFrame({"ts": pd.DatetimeIndex(list(moments)), "coin": coin})
    return db.attach_known(frame, **options)


def nexts(db: almanac.Database, coin: str, *moments: datetime, **options: Any) -> list[Any]:
    """Return the id of the next event (None without any) and the count, for each instant."""
    found = joined(db, coin, *moments, **options)
    ids = [None if pd.isna(event) else event for event in found.next_event_id]
    return [
        (event, None if pd.isna(count) else int(count))
        for event, count in zip(ids, found.events_ahead, strict=True)
    ]


class TestTheNextEvent:
    def test_a_moved_event_is_shown_at_the_date_that_was_known(self, db: almanac.Database) -> None:
        found = joined(db, "BTC", at(9, 6) - US, at(9, 6), horizon="3d")
        assert list(found.next_event_id) == ["moved", "day"]
        assert found.next_event_date[0] == at(10, 12)
        assert nexts(db, "BTC", at(13), at(14, 12) - US, at(14, 12), horizon="3d") == [
            ("moved", 1),
            ("moved", 1),
            (None, 0),
        ]

    def test_a_day_is_ahead_until_its_end_and_counts_whole_days(self, db: almanac.Database) -> None:
        found = joined(db, "bitcoin", at(10, 13), at(12, 23, 59), at(13) - US, at(13))
        assert list(found.next_event_id) == ["day", "day", "day", "moved"]
        assert list(found.days_until) == [2, 0, 0, 1.5]
        assert list(found.next_event_precision) == ["day", "day", "day", "instant"]

    def test_the_horizon_includes_its_end(self, db: almanac.Database) -> None:
        edge = at(10, 12) - timedelta(hours=36)
        assert nexts(db, "bitcoin", edge - US, edge, horizon="1d 12h") == [(None, 0), ("moved", 1)]

    def test_nothing_is_known_before_the_first_pull(self, db: almanac.Database) -> None:
        found = joined(db, "bitcoin", at(1, 6) - US, at(1, 6), horizon="30d")
        assert nexts(db, "bitcoin", at(1, 6) - US, at(1, 6), horizon="30d") == [
            (None, None),
            ("moved", 1),
        ]
        assert list(found.watched) == [False, True]

    def test_a_cancelled_event_is_ahead_until_that_is_known(self, db: almanac.Database) -> None:
        assert nexts(db, "terra", at(4, 6) - US, at(4, 6)) == [("off", 1), (None, 0)]

    def test_a_missing_event_is_not_ahead_while_it_is_missing(self, db: almanac.Database) -> None:
        moments = [at(6, 6) - US, at(6, 6), at(8, 6) - US, at(8, 6)]
        assert [event for event, _ in nexts(db, "first-sun", *moments)] == [
            "lost",
            None,
            None,
            "lost",
        ]

    def test_an_event_counts_for_the_coins_it_was_linked_to_then(
        self, db: almanac.Database
    ) -> None:
        assert nexts(db, "terra", at(15, 6) - US, at(15, 6)) == [("linked", 1), (None, 0)]

    def test_the_columns_say_what_was_known_and_since_when(self, db: almanac.Database) -> None:
        found = joined(db, "bitcoin", at(9, 18), horizon="30d", prefix="x_")
        assert list(found.columns) == ["ts", "coin", *(f"x_{name}" for name in ADDED)]
        assert found.x_next_event_date.dtype == "datetime64[us, UTC]"
        row = joined(db, "bitcoin", at(12, 6), at(13, 6)).to_dict("records")
        assert (row[0]["events_ahead"], row[1]["events_ahead"]) == (2, 1)
        assert row[1]["next_event_categories"] == "Fork; Release"
        assert pd.isna(row[1]["next_event_impact"])
        assert row[1]["next_event_band"] == "High"
        assert row[1]["next_event_known_from"] == at(9, 6)
        assert row[1]["next_event_age_days"] == 12.0
        assert row[0]["next_event_impact"] == 2.0

    def test_filters_are_of_what_was_known_then(self, db: almanac.Database) -> None:
        moments = [at(9, 5), at(9, 7)]
        assert nexts(db, "bitcoin", *moments, min_impact=7.5) == [("moved", 1), (None, 0)]
        assert nexts(db, "bitcoin", *moments, categories="fork") == [("moved", 1), ("moved", 1)]

    def test_what_nobody_pulled_is_not_watched(self, tmp_path: Path) -> None:
        pulls = [at(1, 6), at(2, 6), at(10, 6)]
        file = publish_by_hand(tmp_path / "w.duckdb", VERSIONS[:1], pulls=pulls, coins=COINS)
        edge = at(4, 6)
        moments = [at(1, 6) - US, at(1, 6), edge, edge + US, at(10, 6) - US, at(10, 6)]
        with almanac.open(file, clock=lambda: NOW) as db:
            found = joined(db, "terra", *moments)
        assert list(found.watched) == [False, True, True, False, False, True]

    def test_a_limited_pull_watches_what_it_covered(self, tmp_path: Path) -> None:
        """The first on Free, after the coins of the day; the second of one coin; both of a week."""
        pulls = [at(1, 6), at(10, 6)]
        file = publish_by_hand(tmp_path / "w.duckdb", VERSIONS[:1], pulls=pulls, coins=COINS)
        with duckdb.connect(str(file)) as connection:
            connection.execute("SET TimeZone = 'UTC'")
            connection.execute(
                "UPDATE batches SET lower = date_trunc('day', observed_at), upper = "
                "date_trunc('day', observed_at) + INTERVAL 8 DAYS - INTERVAL 1 MICROSECOND, "
                "plan = if(day(observed_at) = 1, 'free', 'pro'), "
                "coins = if(day(observed_at) = 10, ['terra'], NULL)"
            )
            connection.execute(
                "INSERT INTO coin_snapshots BY NAME SELECT DATE '2026-03-01' AS observed_date, "
                "'bitcoin' AS coin, TIMESTAMPTZ '2026-03-01 07:00+00' AS observed_at"
            )
        moments = [at(1, 6), at(1, 7), at(2) - US, at(2), at(10, 6), at(11) - US, at(11)]
        with almanac.open(file, clock=lambda: NOW) as db:
            watched = {coin: list(joined(db, coin, *moments).watched) for coin in ("BTC", "LUNA")}
            nearer = list(joined(db, "LUNA", at(11), at(12, 6), horizon="5d").watched)
        assert watched["BTC"] == [False, True, True, False, False, False, False]
        assert watched["LUNA"] == [False, False, False, False, True, True, False]
        assert nearer == [True, True]

    def test_ties_have_one_answer_with_any_number_of_threads(self, file: Path) -> None:
        """DuckDB's ASOF join gives any of the rows of one instant (duckdb issue 25536)."""
        moments = [at(2, 6), at(3), at(8, 3) - US, at(8, 3)] * 500
        answers = set()
        for run in range(4):
            limits = QueryLimits(threads=1 + run % 4)
            with almanac.open(file, clock=lambda: NOW, limits=limits) as db:
                answers.add(tuple(nexts(db, "other-sun", *moments)))
        (answer,) = answers
        assert answer[:4] == (("tie_1", 5), ("tie_1", 5), ("tie_1", 5), (None, 0))


class TestFrames:
    def test_rows_order_index_and_columns_stay(self, db: almanac.Database) -> None:
        frame = pd.DataFrame(
            {"price": [3.0, 1.0, 2.0, 1.0], "coin": ["BTC", None, "Terra", "BTC"]},
            index=pd.Index(["b", "a", "a", "c"], name="label"),
        )
        frame["ts"] = pd.DatetimeIndex([at(9), at(9), at(3), pd.NaT])
        before = frame.copy()
        found = db.attach_known(frame)
        pd.testing.assert_frame_equal(frame, before)
        pd.testing.assert_frame_equal(found[frame.columns], before)
        assert list(found.next_event_id.isna()) == [False, True, False, True]
        assert list(found.events_ahead.isna()) == [False, True, False, True]
        assert list(found.watched) == [True, False, True, False]

    @pytest.mark.parametrize("rows", [0, 2])
    def test_the_kind_of_frame_stays(self, db: almanac.Database, rows: int) -> None:
        columns = {"ts": [at(9), at(3)][:rows], "coin": ["bitcoin", "terra"][:rows]}
        types = {"ts": pa.timestamp("ns", "UTC"), "coin": pa.large_string()}
        table = pa.table(columns, pa.schema(types.items()))
        kinds = [table, pl.DataFrame(pl.from_arrow(table)), table.to_pandas()]
        found = [db.attach_known(kind) for kind in kinds]
        assert [type(frame) for frame in found] == [type(kind) for kind in kinds]
        events = [["moved", "off"][:rows]] * 3
        assert [list(map(str, frame["next_event_id"])) for frame in found] == events
        assert all(
            list(f.columns if f is not found[0] else f.column_names)[2:] == ADDED for f in found
        )

    def test_the_index_may_hold_the_instants(self, db: almanac.Database) -> None:
        frame = pd.DataFrame({"coin": ["BTC", "BTC"]}, index=pd.DatetimeIndex([at(12), at(9)]))
        assert list(db.attach_known(frame, ts=None).next_event_id) == ["day", "moved"]
        named = frame.rename_axis("ts")
        assert list(db.attach_known(named).index) == [at(12), at(9)]

    def test_an_instant_without_a_zone_is_of_the_zone_of_the_database(self, file: Path) -> None:
        frame = pd.DataFrame({"ts": ["2026-03-09 02:00"], "coin": ["BTC"]})
        stamps = frame.assign(ts=pd.to_datetime(frame.ts))
        with almanac.open(file, tz="America/New_York", clock=lambda: NOW) as db:
            # 06:00 UTC: New York had summer time since the day before.
            for given in (frame, stamps):
                found = db.attach_known(given, horizon="3d")
                assert list(found.next_event_id) == ["day"]
                assert str(found.next_event_known_from.dt.tz) == "America/New_York"
                assert str(found.next_event_date.dt.tz) == "UTC"
        with almanac.open(file, clock=lambda: NOW) as db:
            assert list(db.attach_known(stamps, horizon="3d").next_event_id) == ["moved"]

    @pytest.mark.parametrize(
        ("local", "utc"),
        [
            ("2025-11-02 01:30", "2025-11-02 05:30"),
            ("2026-03-08 02:30", "2026-03-08 06:59:59.999999"),
            ("2026-03-08 03:00", "2026-03-08 07:00"),
        ],
    )
    def test_a_change_of_clocks_never_shows_what_was_known_later(
        self, local: str, utc: str
    ) -> None:
        """Of two instants it is the first; one that no clock showed is the last before it."""
        for given in (pd.to_datetime([local]), [local]):
            found = read_timestamp_column(pd.Series(given), "ts", ZoneInfo("America/New_York"))
            assert found.microseconds.view("datetime64[us]") == pd.Timestamp(utc).to_datetime64()

    @pytest.mark.parametrize(
        ("columns", "options", "message"),
        [
            ({"ts": [at(9)], "coin": ["BTC"], "watched": [1]}, {}, "watched.*prefix"),
            ({"ts": [at(9)]}, {}, "coin='coin' is not a column; the frame has: ts"),
            (
                {"ts": [at(9), NOW + US], "coin": ["BTC"] * 2},
                {},
                "row 1 .*00.000001.*to come",
            ),
            ({"ts": ["9 March"], "coin": ["BTC"]}, {}, "row 0 .*'9 March' is not a timestamp"),
            ({"ts": [1.7e9], "coin": ["BTC"]}, {}, "'ts' holds double, and timestamps.*unit='s'"),
            # Milliseconds read as seconds: the year 58136; and what microseconds can't hold.
            (
                {"ts": pd.to_datetime([1_772_452_800_000], unit="s"), "coin": ["BTC"]},
                {},
                "'ts' has a time outside of the years 1 to 9999",
            ),
            (
                {"ts": np.array(["300000-01-01"], "datetime64[s]"), "coin": ["BTC"]},
                {},
                "'ts' has a time outside of the years 1 to 9999",
            ),
            ({"ts": [at(9)], "coin": ["BTC"]}, {"horizon": "soon"}, "horizon='soon'"),
            ({"ts": [at(9)], "coin": ["BTC"]}, {"unknown": "drop"}, "unknown='drop'"),
        ],
    )
    def test_what_can_not_be_joined_is_said(
        self, db: almanac.Database, columns: Any, options: Any, message: str
    ) -> None:
        with pytest.raises(almanac.InvalidArgument, match=message):
            db.attach_known(pd.DataFrame(columns), **options)


class TestNamesInTheData:
    @pytest.mark.parametrize("text", ["SUN", "SUN/USDT"])
    def test_the_caller_names_the_coin_of_a_text_or_of_its_ticker(
        self, db: almanac.Database, text: str
    ) -> None:
        with pytest.raises(almanac.AmbiguousCoin, match="other-sun"):
            nexts(db, text, at(5))
        for coins in ({"SUN": "other-sun"}, {text: db.resolve("other-sun")}):
            assert nexts(db, text, at(5), coins=coins) == [("tie_1", 5)]

    def test_an_unknown_name_is_an_error_that_names_it(self, db: almanac.Database) -> None:
        text = "NOBODY/USDT"
        with pytest.raises(almanac.UnknownName, match=text):
            nexts(db, text, at(5))
        with pytest.raises(almanac.UnknownName, match="no-such-slug"):
            nexts(db, text, at(5), coins={text: "no-such-slug"})
        assert nexts(db, text, at(5), unknown="ignore") == [(None, None)]

    @pytest.mark.parametrize("text", ["bitcon", "slug:bitcon", "BTX-USD", ""])
    def test_an_unknown_name_has_its_row_similar_coins_and_the_option_that_ignores_it(
        self, db: almanac.Database, text: str
    ) -> None:
        frame = pd.DataFrame({"ts": [at(5)] * 3, "asset": ["bitcoin", "bitcoin", text]})
        for given in (frame, pa.Table.from_pandas(frame).to_reader(max_chunksize=1)):
            with pytest.raises(almanac.UnknownName) as error:
                found = db.attach_known(given, ts="ts", coin="asset")
                found.read_all()
            message = str(error.value)
            assert message.startswith("row 2 (0 is the first) of the column 'asset': no coin has")
            assert "Similar: bitcoin" in message and "unknown='ignore'" in message
            assert error.value.similar[0].slug == "bitcoin"


class TestFeatures:
    def test_a_bar_knows_what_was_known_at_its_close(self, db: almanac.Database) -> None:
        opens = pd.date_range(at(9, 4), periods=3, freq="1h")
        found = db.features(opens, "1h", {"BTC/USDT": "bitcoin", "LUNA": "terra"}, horizon="3d")
        assert list(found.index.names) == ["ts", "symbol"]
        assert list(found.index[:2]) == [(opens[0], "BTC/USDT"), (opens[0], "LUNA")]
        bitcoin = found.xs("BTC/USDT", level="symbol")
        assert list(bitcoin.next_event_id) == ["moved", "day", "day"]
        assert list(bitcoin.known_at) == list(opens + pd.Timedelta("1h"))
        early = db.features(opens, "1h", ["bitcoin"], as_of="bar_open", horizon="3d")
        assert list(early.next_event_id) == ["moved", "moved", "day"]

    def test_a_bar_that_is_not_over_has_no_answer_yet(self, db: almanac.Database) -> None:
        opens = pd.DatetimeIndex([NOW - timedelta(hours=1), NOW])
        found = db.features(opens, "1h", "terra")
        assert list(found.events_ahead.isna()) == [False, True]
        assert list(found.known_at.notna()) == [True, True]
        with pytest.raises(almanac.InvalidArgument, match=r"row 0 of index.*still to come"):
            db.features(pd.DatetimeIndex([NOW + US]), "1h", "terra")

    @pytest.mark.parametrize(
        ("first", "freq", "bar", "zone", "closes"),
        [
            ("2026-03-06", "D", "1d", NEW_YORK, [at(7, 5), at(8, 5), at(9, 4), at(10, 4)]),
            ("2026-03-01", "W-SUN", "1w", NEW_YORK, [at(8, 5), at(15, 4), at(22, 4), at(29, 4)]),
            ("2026-03-07 20:00", "4h", "4h", None, [at(8, 5), at(8, 8), at(8, 12), at(8, 16)]),
            ("2026-03-08 00:00", "1h", "1h", None, [at(8, 6), at(8, 7), at(8, 7), at(8, 8)]),
            ("2026-01-01", "MS", "1mo", "UTC", [at(-27), at(1), at(32), at(62)]),
            ("2026-03-08 00:00", "4h", "4h", NEW_YORK, [at(8, n) for n in (8, 13, 17, 21)]),
            (
                "2025-11-02",
                "D",
                "1d",
                NEW_YORK,
                [at(-117, 4), *(at(-116 + n, 5) for n in range(3))],
            ),
        ],
    )
    def test_a_bar_closes_on_the_clock_of_its_zone(
        self, file: Path, first: str, freq: str, bar: str, zone: str | None, closes: list[datetime]
    ) -> None:
        opens = pd.date_range(first, periods=4, freq=freq, tz=zone)
        late = almanac.open(file, tz=NEW_YORK, clock=lambda: NOW + timedelta(days=99))
        with late as db:
            found = db.features(opens[[2, 0, 3, 1, 0]], bar, "terra")["known_at"]
            assert [found.iloc[place] for place in (1, 3, 0, 2)] == closes
            assert found.iloc[4] == closes[0]

    def test_bars_that_overlap_are_refused(self, db: almanac.Database) -> None:
        months = pd.date_range("2025-11-01", periods=4, freq="MS", tz="UTC")
        with pytest.raises(almanac.InvalidArgument, match=r"2025-11-01.*'1mo' for calendar months"):
            db.features(months, "31d", "terra")
        for hours in (12, 23):
            opens = pd.date_range(at(1), periods=4, freq=f"{hours}h")
            with pytest.raises(almanac.InvalidArgument, match=r"2026-03-01.*tz_convert"):
                db.features(opens, "1d", "terra")
            assert (db.features(opens, "1d", "terra", as_of="bar_open")["known_at"] == opens).all()
        with_now = [*pd.date_range(at(12), at(20)), at(20, 11)]
        assert db.features(with_now, "1d", "terra")["known_at"].iloc[-2] == at(21)

    def test_the_index_stays_as_it_was_given(self, db: almanac.Database) -> None:
        opens = pd.DatetimeIndex(["2026-03-09 05:00", "2026-03-09 05:00", "2026-03-08"])
        found = db.features(opens, timedelta(hours=1), ["BTC", "LUNA"])
        assert list(found.index.get_level_values("ts")[::2]) == list(opens)
        assert len(db.features(opens[:0], "1h", ["BTC"])) == 0
        with pytest.raises(almanac.InvalidArgument, match="twice"):
            db.features(opens, "1h", ["BTC", "BTC"])
