"""The database of the package: opening and following a file, and its questions about events."""

import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import almanac
from almanac.events import BANDS, Coverage
from almanac.results import Result
from catalog.contract.constants import IMPACT_BANDS
from tests.almanac.publications import NamedCoin, publish_by_hand
from tests.warehouse.answers.handmade import Absence, Known


def at(day: int, hour: int = 0, minute: int = 0) -> datetime:
    return datetime(2026, 3, day, hour, minute, tzinfo=UTC)


PULLS = [at(day, 6) for day in range(1, 9)]
NOW = at(8, 12)
COINS = [
    NamedCoin("bitcoin", "BTC", "Bitcoin", 1),
    NamedCoin("first-sun", "SUN", "First Sun", 40),
    NamedCoin("other-sun", "SUN", "Other Sun", 90),
    NamedCoin("terra", "LUNA", "Terra", 50),
]
LISTING = {"event_id": "listing", "coins": ("bitcoin",), "categories": ("Exchange Listing",)}
VERSIONS = [
    Known(**LISTING, known_from=at(1, 6), date=at(10, 12), impact=8.0, created_at=at(1, 2)),
    Known(
        **LISTING,
        version=2,
        known_from=at(5, 6),
        date=at(12, 12),
        impact=8.0,
        displayed_date="12 Mar",
        change_kinds=("rescheduled",),
        created_at=at(1, 2),
    ),
    Known(
        event_id="quarter",
        known_from=at(2, 6),
        date=at(31, 23, 59),
        date_type="quarter",
        is_estimated=True,
        coins=("terra",),
        impact_band="Critical",
    ),
    Known(event_id="day", known_from=at(1, 6), date=at(8), coins=("bitcoin", "terra"), impact=2.0),
    Known(event_id="off", known_from=at(1, 6), date=at(9), coins=("terra",)),
    Known(
        event_id="off",
        version=2,
        known_from=at(4, 6),
        date=at(9),
        coins=("terra",),
        status="cancelled",
        change_kinds=("cancelled",),
    ),
    Known(event_id="lost", known_from=at(1, 6), date=at(11), coins=("terra",)),
    # Replaced at the same instant: known at no time.
    Known(event_id="twice", known_from=at(3, 6), date=at(20), title="never shown"),
    Known(
        event_id="twice",
        version=2,
        known_from=at(3, 6),
        date=at(21),
        change_kinds=("rescheduled",),
    ),
]
CLAIMS = [Known(**LISTING, version=0, known_from=at(1, 2), date=at(10, 12), impact=8.0)]
ABSENCES = [Absence("lost", at(6, 6), at(6, 6))]


def published(path: Path, *, until: datetime | None = None) -> Path:
    options = {"claims": CLAIMS, "absences": ABSENCES, "coins": COINS}
    pulls = [pull for pull in PULLS if until is None or pull <= until]
    return publish_by_hand(path, VERSIONS, pulls=pulls, at=until, **options)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return published(tmp_path_factory.mktemp("home") / "warehouse.duckdb")


@pytest.fixture(scope="module")
def db(file: Path) -> Iterator[almanac.Database]:
    with almanac.open(file, clock=lambda: NOW) as opened:
        yield opened


def ids(result: almanac.Result) -> list[str]:
    return [row["event_id"] for row in result]


class TestOpening:
    def test_a_home_and_its_file_are_the_same_database(self, file: Path) -> None:
        with almanac.open(file) as by_file, almanac.open(str(file.parent)) as by_home:
            assert by_file.path == by_home.path == file

    @pytest.mark.parametrize("missing", ["nowhere", "."])
    def test_a_missing_file_is_an_error_that_says_what_makes_it(
        self, tmp_path: Path, missing: str
    ) -> None:
        with pytest.raises(almanac.WarehouseError, match="almanac run"):
            almanac.open(tmp_path / missing)

    def test_a_newer_publication_is_read_from_the_next_question_on(self, tmp_path: Path) -> None:
        file = published(tmp_path / "warehouse.duckdb", until=at(2, 6))
        with almanac.open(file) as db, almanac.open(file, follow=False) as kept:
            before = db.vintage_dates("listing")
            published(file)
            assert (len(before), len(db.vintage_dates("listing"))) == (1, 2)
            assert len(kept.vintage_dates("listing")) == 1

    def test_a_file_that_is_no_warehouse_is_an_error(self, tmp_path: Path) -> None:
        (tmp_path / "warehouse.duckdb").write_bytes(b"no database")
        with pytest.raises(almanac.WarehouseError, match="can't be opened"):
            almanac.open(tmp_path)

    def test_a_file_of_another_version_is_an_error_that_says_what_to_do(
        self, tmp_path: Path
    ) -> None:
        file = published(tmp_path / "warehouse.duckdb")
        file.chmod(0o644)
        with duckdb.connect(file) as connection:
            connection.execute("DROP MACRO TABLE events_as_of")
        with (
            almanac.open(file) as db,
            pytest.raises(almanac.WarehouseError, match="published by another version"),
        ):
            db.events(as_of=at(2, 7))


MOMENT = np.datetime64("2026-03-05T07:00")
WRONG: list[tuple[str, Callable[[Any], Any]]] = [
    ("as_of='2020-01-01' is before the first pull", lambda db: db.events(as_of="2020-01-01")),
    ('basis="claimed"', lambda db: db.events(as_of="2020-01-01")),
    ("as_of='2020-01-01' is before the first pull", lambda db: db.upcoming(as_of="2020-01-01")),
    ("since='2020-01-01' is before the first pull", lambda db: db.changes("2020-01-01")),
    ("still to come", lambda db: db.events(as_of=NOW + timedelta(seconds=1))),
    ("as_of='2999-01-01' is still to come", lambda db: db.upcoming(as_of="2999-01-01")),
    ("until='2999-01-01' is still to come", lambda db: db.changes(NOW, "2999-01-01")),
    ("as_of='2999-01-01' is still to come", lambda db: db.blackouts(as_of="2999-01-01")),
    ("as_of='soon'", lambda db: db.events(as_of="soon")),
    ("as_of=", lambda db: db.events(as_of=pd.NaT)),
    ("as_of=", lambda db: db.events(as_of=np.datetime64("30000-01-01"))),
    ("as_of=", lambda db: db.events(as_of=pa.scalar(None, pa.timestamp("us")))),
    ("years 1 to 9999", lambda db: db.events(as_of="0001-01-01T00:00+05:00")),
    ("years 1 to 9999", lambda db: db.events(as_of=pd.to_datetime(1_772_452_800_000, unit="s"))),
    ("since=None: expected a timestamp", lambda db: db.changes(None)),
    ("as_of=None; expected", lambda db: db.blackouts(as_of=None)),
    ("as_of='2020-01-01' is before", lambda db: db.date_survival("2020-01-01")),
    ("as_of='2999-01-01' is still", lambda db: db.date_survival("2999-01-01")),
    ("days=0; expected numbers", lambda db: db.date_survival(days=0)),
    ("days='soon' is not a number", lambda db: db.date_survival(days="soon")),
    ("to=", lambda db: db.events(window=(at(3), at(3)))),
    ("window=", lambda db: db.events(window="2026")),
    ("status='planned'", lambda db: db.events(status="planned")),
    ("status='5'; expected scheduled", lambda db: db.events(status=5)),
    ("basis='guessed'", lambda db: db.history("listing", basis="guessed")),
    ("basis=array", lambda db: db.events(basis=np.array([1, 2]))),
    ("min_impact=75; expected a score from 0 to 10", lambda db: db.events(min_impact=75)),
    ("or Low, Mid, High, Critical", lambda db: db.events(min_impact="highest")),
    ("min_impact=", lambda db: db.events(min_impact=float("inf"))),
    ("a slug, ticker, name or pair", lambda db: db.events(coins=5)),
    ("Similar: bitcoin (Bitcoin).", lambda db: db.resolve("bitcion")),
    ("no coin has", lambda db: db.upcoming(coins="nowhere")),
    ("no event has the category 'listing'. Similar: E", lambda db: db.events(categories="listing")),
    ("'None'", lambda db: db.events(categories=[None])),
    ("lead=None", lambda db: db.known_before(lead=None)),
    ("within=-1 day", lambda db: db.upcoming(within=-timedelta(days=1))),
    ("longer than", lambda db: db.upcoming(within=timedelta.max)),
    ("is not a duration", lambda db: db.upcoming(within=np.timedelta64(1, "M"))),
    ("is not a duration", lambda db: db.upcoming(within=np.datetime64(1, "s"))),
    ("event_id=5", lambda db: db.history(5)),
    ("event_id=['listing']", lambda db: db.vintage_dates(["listing"])),
    ("no event with the id", lambda db: db.history("evt_'; SELECT 1")),
    ("kinds=", lambda db: db.changes(NOW, kinds="moved")),
    ("estimated='yes'; expected include, drop, only", lambda db: db.upcoming(estimated="yes")),
    ("query=5", lambda db: db.sql(5)),
]
SQL_SYNTAX = re.compile(
    r"::|:=|\bSELECT\b|\bFROM\b|TIMESTAMP|\w+_as_of\b|changes_since|LINE \d|\$\w|"
    r"(Binder|Catalog|Conversion|Parser|Invalid Input|Out of Range) Error"
)


def test_errors_of_methods_name_python_arguments_and_have_no_sql(db: almanac.Database) -> None:
    for message, ask in WRONG:
        with pytest.raises(almanac.AlmanacError) as refused:
            ask(db)
        text = str(refused.value).replace("datetime.timedelta(days=-1)", "-1 day")
        assert message in text
        assert SQL_SYNTAX.search(text.replace("evt_'; SELECT 1", "")) is None, text


class TestSql:
    def test_parameters_are_bound(self, db: almanac.Database) -> None:
        query = "SELECT count(*) AS n FROM events_as_of($at) WHERE status = $status"
        assert db.sql(query, at=at(5), status="cancelled").rows() == [{"n": 1}]

    def test_a_statement_that_writes_is_refused(self, db: almanac.Database) -> None:
        for query in ("DELETE FROM events", "COPY events TO 'x.csv'", "SELECT 1; SELECT 2"):
            with pytest.raises(almanac.QueryRefused):
                db.sql(query)

    def test_a_registered_frame_is_a_table_also_of_a_newer_publication(
        self, tmp_path: Path
    ) -> None:
        file = published(tmp_path / "warehouse.duckdb", until=at(2, 6))
        with almanac.open(file) as db:
            db.register("mine", pd.DataFrame({"event_id": ["listing"], "size": [3]}))
            query = (
                "SELECT max(version) AS v, any_value(size) AS size "
                "FROM event_versions JOIN mine USING (event_id)"
            )
            assert db.sql(query).rows() == [{"v": 1, "size": 3}]
            published(file)
            assert db.sql(query).rows() == [{"v": 2, "size": 3}]

    @pytest.mark.parametrize("name", ["event_versions", "Batches", "coins", "events"])
    def test_a_frame_takes_the_name_of_no_published_table(
        self, db: almanac.Database, name: str
    ) -> None:
        empty = db.sql(f"SELECT * FROM {name} LIMIT 0").df()
        before = len(db.events(as_of=at(5)))
        with pytest.raises(almanac.InvalidArgument, match="register the frame under another name"):
            db.register(name, empty)
        assert len(db.events(as_of=at(5))) == before

    def test_a_registered_frame_has_no_part_in_other_questions(self, file: Path) -> None:
        with almanac.open(file, clock=lambda: NOW) as db:
            before = db.events(as_of=at(5)).rows()
            for name in ("v", "now", "wanted_coins", "requested_coins", "event_id"):
                db.register(name, pd.DataFrame({"event_id": ["listing"], "coin": ["bitcoin"]}))
            assert db.events(as_of=at(5), coins="bitcoin").rows() == [
                row for row in before if "bitcoin" in row["coins"]
            ]
            rows = pd.DataFrame({"ts": [at(5)], "coin": ["bitcoin"]})
            assert len(db.attach_known(rows)) == 1
            assert db.sql("SELECT coin FROM wanted_coins").rows() == [{"coin": "bitcoin"}]

    def test_a_result_is_shown_without_characters_that_act_on_a_terminal(
        self, db: almanac.Database
    ) -> None:
        result = db.sql("SELECT $title AS title", title="a\x1b[31mred\u202e")
        assert "a\\x1b[31mred\\u202e" in repr(result)
        assert result.rows() == [{"title": "a\x1b[31mred\u202e"}]


class TestEvents:
    def test_columns_are_as_known_at_the_instant(self, db: almanac.Database) -> None:
        for moment, date in ((at(5, 5), at(10, 12)), (at(5, 6), at(12, 12))):
            (row,) = db.events(as_of=moment, categories="exchange listing").rows()
            assert row["date"] == date

    def test_an_instant_before_the_first_pull_is_refused_unless_claims_are_asked_for(
        self, db: almanac.Database
    ) -> None:
        with pytest.raises(almanac.QueryRefused, match=r"^as_of=.* is before the first pull"):
            db.events(as_of=at(1, 3))
        assert ids(db.events(as_of=at(1, 3), basis="claimed")) == ["listing"]

    def test_each_filter_selects(self, db: almanac.Database) -> None:
        assert ids(db.events(coins="BTC")) == ["day", "listing"]
        assert ids(db.events(coins=["terra", "bitcoin"])) == ["quarter", "day", "lost", "listing"]
        assert ids(db.events(status="cancelled")) == ["off"]
        assert len(db.events(status="all")) == 6
        assert ids(db.events(min_impact=7.5)) == ["quarter", "listing"]
        assert ids(db.events(min_impact=7.6)) == ["listing"]
        assert ids(db.events(min_impact=" critical")) == ids(db.events(min_impact="7.5"))
        assert ids(db.events(window=(at(8, 5), at(11)))) == ["quarter", "day"]
        assert ids(db.events(window=(None, at(11)))) == ["quarter", "day"]
        assert ids(db.events(window=(at(31, 23), None))) == ["quarter"]

    def test_a_deadline_lies_in_each_window_since_its_first_sighting(self, tmp_path: Path) -> None:
        event = {"known_from": at(2, 6), "date": at(20), "is_estimated": True, "date_type": "date"}
        versions = [Known(event_id="by 20 Mar", **event)]
        file = publish_by_hand(tmp_path / "warehouse.duckdb", versions, pulls=PULLS)
        with almanac.open(file, clock=lambda: NOW) as db:
            windows = [(at(1), at(2, 6)), (at(2), at(2, 7)), (at(20), at(21)), (at(21), at(22))]
            assert [len(db.events(window=window)) for window in windows] == [0, 1, 1, 0]

    def test_the_bands_are_those_of_the_interface(self) -> None:
        edges = [0.0, *(edge for edge, _ in IMPACT_BANDS)]
        assert list(BANDS) == [
            (low, name) for low, (_, name) in zip(edges, IMPACT_BANDS, strict=False)
        ]


class TestTimesOfOtherLibraries:
    def test_questions_take_times_of_numpy_pandas_and_arrow(self, db: almanac.Database) -> None:
        times = [MOMENT, np.array([MOMENT], "datetime64[s]")[0], pd.Timestamp(at(5, 7))]
        times += [pa.scalar(at(5, 7), pa.timestamp(unit, "UTC")) for unit in ("ms", "ns")]
        for time in times:
            assert db.coverage(time).as_of == at(5, 7)
        assert db.coverage().covers(MOMENT) == db.coverage().covers(at(5, 7))
        for ask in (db.changes, lambda moment: db.events(window=(moment, None))):
            assert ask(MOMENT).rows() == ask(at(5, 7)).rows()
        for length in (np.timedelta64(3, "D"), np.timedelta64(72, "h")):
            assert db.upcoming(within=length).rows() == db.upcoming(within="3d").rows()

    def test_a_window_is_any_pair_and_a_filter_any_array(self, db: almanac.Database) -> None:
        expected = ids(db.events(window=(at(8), at(11))))
        stamps = pd.DatetimeIndex([at(8), at(11)])
        pairs = [stamps, pd.Series(stamps), stamps.tz_localize(None).to_numpy(), [at(8), at(11)]]
        for pair in pairs:
            assert ids(db.events(window=pair)) == expected
        statuses = np.array(["scheduled", "cancelled"])
        assert ids(db.events(status=statuses)) == ids(db.events(status="all"))
        assert ids(db.events(coins=pd.Series(["terra"]))) == ids(db.events(coins="terra"))


class TestUpcoming:
    def test_what_is_missing_cancelled_or_over_is_left_out(self, db: almanac.Database) -> None:
        then = ["quarter", "day", "off", "listing", "lost", "twice"]
        assert ids(db.upcoming(within="20d", as_of=at(3, 7))) == then
        assert ids(db.upcoming()) == ["quarter", "day", "listing", "twice"]

    def test_the_time_and_estimated_dates_are_a_choice(self, db: almanac.Database) -> None:
        assert ids(db.upcoming(within="1d")) == ["quarter", "day"]
        assert ids(db.upcoming(within="5d", estimated="drop")) == ["day", "listing"]
        assert ids(db.upcoming(within="5d", estimated="only")) == ["quarter"]
        assert ids(db.upcoming("BTC", within=timedelta(days=90))) == ["day", "listing"]

    def test_categories_and_impact_select_as_in_events(self, db: almanac.Database) -> None:
        assert ids(db.upcoming(categories="exchange listing")) == ["listing"]
        assert ids(db.upcoming(within="30d", min_impact=7.5)) == ["quarter", "listing"]


class TestChanges:
    def test_what_became_known_after_since_and_until_until(self, db: almanac.Database) -> None:
        rows = db.changes(at(4, 6), at(5, 6)).rows()
        assert [(row["event_id"], row["kind"]) for row in rows] == [("listing", "rescheduled")]
        assert (rows[0]["old_value"], rows[0]["new_value"]) == ("a day", "12 Mar 2026")

    def test_days_are_those_of_the_zone(self, tmp_path: Path) -> None:
        file = published(tmp_path / "warehouse.duckdb", until=at(5, 6))
        found = {}
        for tz in ("UTC", "Asia/Tokyo"):
            with almanac.open(file, clock=lambda: at(5, 20), tz=tz) as db:
                found[tz] = [len(db.changes(day, coins="BTC")) for day in ("today", "yesterday")]
        # In Tokyo the fifth began at 15:00 UTC on the fourth, and it is the sixth by now.
        assert found == {"UTC": [1, 1], "Asia/Tokyo": [0, 1]}

    def test_kinds_coins_and_impact_select(self, db: almanac.Database) -> None:
        assert ids(db.changes(at(1, 6), kinds=["cancelled"])) == ["off"]
        assert ids(db.changes(at(1, 6), coins="BTC", min_impact=7.5)) == ["listing"]
        assert set(ids(db.changes(at(1, 6), categories="exchange listing"))) == {"listing"}
        with pytest.raises(almanac.InvalidArgument, match="kinds"):
            db.changes(at(1, 6), kinds="moved")


class TestHistory:
    def test_versions_are_in_order_and_claims_a_choice(self, db: almanac.Database) -> None:
        observed = db.history("listing").rows()
        assert [row["version"] for row in observed] == [1, 2]
        claimed = db.history("listing", basis="claimed").rows()
        assert [(row["version"], row["known_basis"]) for row in claimed] == [
            (0, "claimed"),
            (1, "observed"),
            (2, "observed"),
        ]

    def test_vintages_are_the_instants_at_which_it_was_known_anew(
        self, db: almanac.Database
    ) -> None:
        assert db.vintage_dates("listing") == [at(1, 6), at(5, 6)]
        assert db.vintage_dates("twice") == [at(3, 6)]
        assert db.first_release("listing")["date"] == at(10, 12)

    def test_an_unknown_event_is_an_error(self, db: almanac.Database) -> None:
        for ask in (db.history, db.first_release, db.vintage_dates):
            with pytest.raises(almanac.UnknownName, match="evt_9"):
                ask("evt_9")

    def test_events_before_their_date_are_as_known_then(self, file: Path) -> None:
        with almanac.open(file, clock=lambda: at(20)) as db:
            found = {row["event_id"]: row for row in db.known_before("8d", basis="claimed")}
            assert found["listing"]["date"] == at(10, 12)
            assert found["listing"]["date_final"] == at(12, 12)
            assert found["listing"]["known_at"] == at(4, 12)

    def test_an_instant_before_a_date_that_is_still_to_come_has_no_row(self, file: Path) -> None:
        for day, expected in ((9, False), (10, True)):
            with almanac.open(file, clock=lambda day=day: at(day)) as db:
                assert ("listing" in ids(db.known_before("3d"))) is expected


class TestCoverage:
    def test_a_pull_covers_dates_for_a_while(self, db: almanac.Database) -> None:
        found = db.coverage(at(4, 12))
        assert (found.first_pull_at, found.last_pull_at) == (at(1, 6), at(4, 6))
        assert found.age == timedelta(hours=6)
        assert found.covers(at(20))
        assert not found.covers(at(20), within="5h")

    def test_before_the_first_pull_nothing_is_covered(self, db: almanac.Database) -> None:
        found = db.coverage(at(1))
        assert (found.first_pull_at, len(found.windows), found.covers(at(20))) == (None, 0, False)


class TestZones:
    def test_instants_without_a_zone_are_of_the_databases(self, file: Path) -> None:
        with almanac.open(file, clock=lambda: NOW, tz="America/New_York") as db:
            (row,) = db.events(as_of="2026-03-05 01:00", categories="Exchange Listing").rows()
            assert row["date"] == at(12, 12)
            assert row["changed_at"].tzinfo == ZoneInfo("America/New_York")
            assert str(db.events().df()["changed_at"].dtype) == "datetime64[us, America/New_York]"
        with almanac.open(file, clock=lambda: NOW) as db:
            (row,) = db.events(as_of="2026-03-05 01:00", categories="Exchange Listing").rows()
            assert row["date"] == at(10, 12)

    def test_sql_takes_no_instant_without_a_zone_where_the_database_has_another_than_utc(
        self, file: Path
    ) -> None:
        query = "SELECT last_pull_at FROM events_as_of($at) LIMIT 1"
        naive: list[Any] = ["2026-03-05 01:00", "2026-03-05", at(5, 1).replace(tzinfo=None)]
        naive += [at(5).date(), pd.Timestamp("2026-03-05 01:00"), {"at": "2026-03-05 01:00"}]
        naive += [MOMENT, np.array(["2026-03-05"], "datetime64[us]"), np.array(["2026-03-05"])]
        with almanac.open(file, clock=lambda: NOW, tz="Asia/Tokyo") as db:
            for given in naive:
                with pytest.raises(almanac.InvalidArgument, match="SQL reads it as UTC, and not"):
                    db.sql(query, at=given)
            for given in ("2026-03-05T10:00:00+09:00", at(5, 1), pd.Timestamp(at(5, 1))):
                (row,) = db.sql(query, at=given).rows()
                assert row["last_pull_at"] == at(4, 6)
            for other in ("BTC", "2026", 7, None, pd.NaT, ["a", 1.5], np.array([3]), {"a": 1}):
                assert len(db.sql("SELECT $x AS x", x=other)) == 1
        with almanac.open(file, clock=lambda: NOW, tz="UTC") as db:
            for given in naive:
                assert db.sql("SELECT $at IS NULL AS no", at=given).rows() == [{"no": False}]

    def test_a_registered_frame_has_a_zone_where_the_database_has_another_than_utc(
        self, file: Path
    ) -> None:
        naive = pd.DataFrame({"ts": pd.to_datetime(["2026-03-05 01:00"])})
        zoned = naive.assign(ts=naive["ts"].dt.tz_localize("Asia/Tokyo"))
        with almanac.open(file, clock=lambda: NOW, tz="Asia/Tokyo") as db:
            for frame in (naive, naive.astype("datetime64[ns]"), pa.Table.from_pandas(naive)):
                with pytest.raises(almanac.InvalidArgument, match="tz_localize\\('Asia/Tokyo'\\)"):
                    db.register("mine", frame)
            with pytest.raises(almanac.QueryRefused, match="mine"):
                db.sql("FROM mine")
            db.register("mine", zoned)
            assert db.sql("SELECT ts = $at AS same FROM mine", at=at(4, 16)).rows() == [
                {"same": True}
            ]

    def test_a_date_that_is_asked_for_coverage_is_a_day_of_utc_and_a_time_of_the_zone(self) -> None:
        row = {"feed": "events", "coins": None, "categories": None, "upper": None}
        window = {**row, "lower": at(1), "observed_at": at(2)}
        windows = Result(pa.Table.from_pylist([window]))
        found = Coverage(at(2), at(2), at(2), windows, ZoneInfo("Asia/Tokyo"))
        assert found.covers("2026-03-01") and found.covers(at(1).date())
        assert not found.covers("2026-03-01T08:59")
