"""The study over a warehouse made by hand: which events enter, when, and why others do not."""

import re
from base64 import b64encode
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import almanac
from almanac import plots
from almanac.study import report
from tests.almanac.publications import NamedCoin, publish_by_hand
from tests.warehouse.answers.handmade import Absence, Known

COINS = [f"coin-{place}" for place in range(8)]
DRAWS = almanac.StudyOptions(rounds=499)
FAST = almanac.StudyOptions(rounds=99)
DAYS = pd.date_range("2025-01-01", "2026-06-30", freq="D", tz="UTC")


def at(month: int, day: int, hour: int = 0) -> datetime:
    return datetime(2026, month, day, hour, tzinfo=UTC)


def known(event_id: str, known_from: datetime, date: datetime, **more: Any) -> Known:
    given = {"coins": ("coin-0",), "categories": ("Listing",), "impact": 6.0, **more}
    return Known(event_id=event_id, known_from=known_from, date=date, **given)


START = at(1, 5)
MOVED = ("rescheduled",)
EVENTS = [
    known("plain", START, at(3, 10)),
    known("two coins", START, at(3, 12), coins=("coin-1", "coin-2", "elsewhere")),
    known("moved after entry", START, at(3, 10)),
    known("moved after entry", at(3, 9), at(4, 20), version=2, change_kinds=MOVED),
    known("moved before entry", START, at(3, 10)),
    known("moved before entry", at(2, 15), at(4, 1), version=2, change_kinds=MOVED),
    known("moved too close", START, at(5, 10)),
    known("moved too close", at(3, 9), at(3, 10), version=2, change_kinds=MOVED),
    known("cancelled after entry", START, at(3, 10), coins=("coin-3",)),
    known("cancelled after entry", at(3, 9), at(3, 10), version=2, status="cancelled"),
    known("cancelled before", START, at(3, 10)),
    known("cancelled before", at(2, 15), at(3, 10), version=2, status="cancelled"),
    known("withdrawn before", START, at(3, 10)),
    known("withdrawn before", at(2, 15), at(3, 10), version=2, status="withdrawn"),
    known("late", at(3, 8), at(3, 10)),
    known("just in time", at(3, 7), at(3, 10), coins=("coin-4",)),
    known("afterwards", at(3, 20), at(3, 10)),
    known("quarter", START, at(3, 31, 23), date_type="quarter", is_estimated=True),
    known("made exact", START, at(3, 31, 23), date_type="quarter", is_estimated=True),
    known("made exact", at(2, 15), at(3, 20), version=2, change_kinds=MOVED, coins=("coin-5",)),
    known("missing", START, at(3, 10)),
    known("missing later", START, at(3, 10), coins=("coin-6",)),
    known("at noon", START, at(3, 15, 12), coins=("coin-7",)),
    known("rescored", START, at(3, 18), impact=3.0),
    known("rescored", at(3, 17), at(3, 18), version=2, impact=9.0),
    known("last days", START, at(6, 29)),
    known("elsewhere", START, at(3, 10), coins=("elsewhere",)),
]
EVENTS += [
    known(
        f"many {place}",
        START,
        at(4, 2) + timedelta(days=3 * place),
        coins=(COINS[place % 8],),
        categories=("Burn", "Fork") if place % 2 else ("Burn",),
        impact=float(place % 10),
    )
    for place in range(20)
]
CLAIMS = [known("afterwards", START, at(3, 10), version=0)]
ABSENCES = [
    Absence("missing", at(2, 20), at(2, 20)),
    Absence("missing later", at(3, 8), at(3, 8)),
]


def published(path: Path, until: datetime) -> Path:
    pulls = [START + timedelta(days=day) for day in range(180) if START + timedelta(day) <= until]
    coins = [NamedCoin(name, name.upper(), name.title()) for name in COINS]
    coins += [NamedCoin("one-sun", "SUN", "One"), NamedCoin("two-sun", "SUN", "Two")]
    more: dict[str, Any] = {"claims": CLAIMS, "absences": ABSENCES, "coins": coins}
    return publish_by_hand(path, EVENTS, pulls=pulls, at=until, **more)


def make_prices(seed: int = 1) -> pd.DataFrame:
    random = np.random.default_rng(seed)
    moves = 0.02 * random.standard_normal((len(DAYS), 1))
    moves = moves + 0.02 * random.standard_normal((len(DAYS), len(COINS)))
    return pd.DataFrame(100 * np.exp(moves.cumsum(axis=0)), index=DAYS, columns=COINS)


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[almanac.Database]:
    file = published(tmp_path_factory.mktemp("home") / "warehouse.duckdb", at(6, 30))
    with almanac.open(file, clock=lambda: at(6, 30)) as opened:
        yield opened


@pytest.fixture(scope="module")
def study(db: almanac.Database) -> almanac.Study:
    return db.event_study(make_prices(), window=(-3, 3), options=DRAWS)


def used(study: almanac.Study) -> dict[str, Any]:
    return dict(zip(study.events["event_id"], study.events["bar_zero"], strict=True))


def why(study: almanac.Study) -> dict[str, str]:
    return dict(zip(study.excluded["event_id"], study.excluded["reason"], strict=True))


class TestAnnouncements:
    def test_an_event_enters_when_its_change_became_known(self, db: almanac.Database) -> None:
        news = db.announcements("rescheduled")
        moved = [
            (known.event_id, known.known_from, known.date, coin)
            for known in EVENTS
            if known.version == 2 and known.event_id.startswith(("moved", "made exact"))
            for coin in known.coins
        ]
        columns = ["event_id", "known_from", "event_date", "coin"]
        assert sorted(tuple(row[name] for name in columns) for row in news) == sorted(moved)
        assert list(news["date"]) == list(news["known_from"])
        prices = make_prices()
        for known_from, coin in {(row["known_from"], row["coin"]) for row in news}:
            prices.loc[known_from:, coin] *= 1.05
        study = db.event_study(prices, window=(0, 0), options=DRAWS, events=news)
        assert study.settings["lead"] == "0d" and len(study.events) == len(moved)
        assert study.caar == pytest.approx(0.05, abs=0.02)

    def test_a_lead_that_no_announcement_has_names_the_way(self, db: almanac.Database) -> None:
        with pytest.raises(almanac.InvalidArgument, match=r"events=db.announcements\(\)"):
            db.event_study(make_prices(), lead="3d", events=db.announcements("rescheduled"))


class TestEvents:
    def test_day_zero_is_that_of_the_date_known_at_entry(self, study: almanac.Study) -> None:
        bars = used(study)
        assert bars["moved after entry"] == at(3, 10)
        assert bars["moved before entry"] == at(4, 1)
        assert bars["made exact"] == at(3, 20)
        moved = study.events.set_index("event_id")["moved_after_entry"]
        assert moved["moved after entry"] and not moved["moved before entry"]

    def test_an_event_that_is_cancelled_or_missing_after_entry_stays(
        self, study: almanac.Study
    ) -> None:
        rows = study.events.set_index("event_id")
        assert rows.loc["cancelled after entry", "cancelled_after_entry"]
        assert rows.loc["cancelled after entry", "bar_zero"] == at(3, 10)
        assert "missing later" in rows.index
        assert study.counts["cancelled_after_entry"] == 1

    def test_each_event_that_is_not_used_has_its_reason(self, study: almanac.Study) -> None:
        assert why(study) == {
            "moved too close": "known_too_late",
            "late": "known_too_late",
            "cancelled before": "cancelled_at_entry",
            "withdrawn before": "withdrawn_at_entry",
            "missing": "missing_at_entry",
            "afterwards": "known_after_the_date",
            "quarter": "date_not_exact",
            "last days": "after_prices",
        }
        assert study.counts["known_too_late"] == 2
        assert "just in time" in used(study)

    def test_an_event_has_a_row_for_each_of_its_coins_that_has_prices(
        self, study: almanac.Study
    ) -> None:
        rows = study.events[study.events["event_id"] == "two coins"]
        assert sorted(rows["coin"]) == ["coin-1", "coin-2"]

    def test_no_bar_counts_that_starts_before_the_entry(self, study: almanac.Study) -> None:
        """Entry of the event at noon is at noon, three days before: the next bar is a day later."""
        noon = study.events.set_index("event_id").loc["at noon"]
        assert noon["entry"] == at(3, 12, 12)
        assert noon["first_bar"] == at(3, 13)
        assert (study.events["first_bar"] >= study.events["entry"]).all()
        assert study.table["n"].tolist() == [30, 31, 31, 31, 31, 31, 31]

    def test_filters_are_on_what_was_known_at_entry(self, db: almanac.Database) -> None:
        high = db.event_study(make_prices(), window=(-2, 3), min_impact=5, options=FAST)
        assert "rescored" not in used(high)
        burns = db.event_study(make_prices(), window=(-2, 3), categories="burn", options=FAST)
        assert set(used(burns)) == {f"many {place}" for place in range(20)}

    def test_what_is_only_claimed_of_the_time_before_enters_if_it_is_wanted(
        self, db: almanac.Database
    ) -> None:
        found = db.event_study(make_prices(), window=(-3, 3), basis="claimed", options=FAST)
        row = found.events.set_index("event_id").loc["afterwards"]
        assert (row["known_basis"], row["known_from"]) == ("claimed", START)
        assert found.counts.get("known_after_the_date", 0) == 0

    def test_nothing_that_became_known_later_changes_which_events_enter(
        self, study: almanac.Study, tmp_path: Path
    ) -> None:
        """The same study over the warehouse as it was published on the day after the entries."""
        day = at(3, 8, 12)
        file = published(tmp_path / "warehouse.duckdb", day)
        with almanac.open(file, clock=lambda: day) as then:
            early = then.event_study(make_prices(), window=(-3, 3), options=FAST)
        entered = study.events[study.events["entry"] <= day]
        before = early.events
        columns = ["event_id", "coin", "bar_zero", "car", "impact", "band"]
        pd.testing.assert_frame_equal(
            entered[columns].sort_values(columns[:2], ignore_index=True),
            before[columns].sort_values(columns[:2], ignore_index=True),
        )
        assert len(before) == len(early.events) == 5
        assert "entry_to_come" in set(early.excluded["reason"])

    def test_last_prices_that_are_not_whole_bars_are_left_out_and_named(
        self, db: almanac.Database, study: almanac.Study
    ) -> None:
        prices = make_prices()
        prices.loc[DAYS[-1], COINS[:2]] = np.nan
        prices.loc[DAYS[-1] - pd.Timedelta(hours=3, seconds=7), COINS[:2]] = 999.0
        found = db.event_study(prices, window=(-3, 3), options=FAST)
        pd.testing.assert_frame_equal(found.events, study.events)
        assert found.settings["last prices"] == "8 left out, since they are not whole bars"
        assert "Last prices of coins: 8 left out" in repr(found)
        assert "8 left out" in found.to_html()

    def test_the_naive_study_has_the_events_and_dates_of_today(
        self, db: almanac.Database, study: almanac.Study
    ) -> None:
        """More rows: those known too late and estimated ones; not those cancelled since."""
        scheduled = db.sql(
            "SELECT count(*) AS n FROM (SELECT unnest(coins) AS coin FROM events "
            "WHERE status = 'scheduled' AND date < '2026-06-28'::TIMESTAMPTZ) "
            "WHERE coin LIKE 'coin-%'"
        ).rows()[0]["n"]
        assert study.naive["n"].tolist() == [scheduled] * 7
        assert study.tests["test"].iloc[-1] == "naive_t"
        assert study.tests["p"].iloc[-1] == study.naive["p"].iloc[-1]


class TestResult:
    def test_the_table_sums_to_the_window_and_the_band_agrees_with_p(
        self, study: almanac.Study
    ) -> None:
        table = study.table
        assert table["bar"].tolist() == [-3, -2, -1, 0, 1, 2, 3]
        assert study.caar == pytest.approx(study.events["car"].mean())
        assert table["bhar"].iloc[-1] == pytest.approx(study.events["bhar"].mean())
        outside = (table["caar_low"] > 0) | (table["caar_high"] < 0)
        assert (outside == (table["caar_p"] < 0.05)).all()
        assert study.headline.test == "calendar"
        assert study.headline.p == table["caar_p"].iloc[-1]
        assert study.tests.set_index("test")["is_headline"].sum() == 1

    def test_one_seed_gives_one_result(self, db: almanac.Database, study: almanac.Study) -> None:
        same = db.event_study(make_prices(), window=(-3, 3), options=DRAWS)
        pd.testing.assert_frame_equal(same.table, study.table)
        pd.testing.assert_frame_equal(same.tests, study.tests)

    def test_a_planted_jump_is_found(self, db: almanac.Database, study: almanac.Study) -> None:
        prices = make_prices()
        for _, row in study.events.iterrows():
            prices.loc[row["bar_zero"] :, row["coin"]] *= 1.05
        found = db.event_study(prices, window=(0, 0), options=DRAWS)
        assert found.headline.p < 0.01
        assert found.caar == pytest.approx(0.05, abs=0.015)

    def test_groups_have_adjusted_p(self, study: almanac.Study) -> None:
        table = study.by("category").set_index("category")
        assert table["n"].to_dict() == {"Listing": 11, "Burn": 20, "Fork": 10}
        assert (table["p_adjusted"] >= table["p"]).all()
        stricter = study.by("category", control="by").set_index("category")
        assert (stricter["p_adjusted"] >= table["p_adjusted"]).all()
        bands = study.by("band").set_index("band")["n"]
        assert bands.sum() == len(study.events)
        with pytest.raises(almanac.InvalidArgument, match="category"):
            study.by("colour")  # type: ignore[arg-type]

    def test_the_page_and_the_figure_are_written(
        self, study: almanac.Study, tmp_path: Path
    ) -> None:
        ax = study.plot(tmp_path / "caar.png")
        assert (tmp_path / "caar.png").read_bytes().startswith(b"\x89PNG")
        caar, naive = (line.get_ydata() for line in ax.lines[:2])
        assert [*caar] == [0, *study.table["caar"]] and [*naive] == [0, *study.naive["caar"]]
        paths = study.plot_events().lines
        ends = [line.get_ydata()[-1] for line in paths[: len(study.events)]]
        assert ends == pytest.approx([*study.events["car"]])
        page = study.to_html(tmp_path / "study.html")
        drawn = b64encode(plots.study_svg(study).encode()).decode()
        assert drawn in page and "cancelled by then" in page
        assert (tmp_path / "study.html").read_text("utf-8") == page
        assert "excluded" in repr(study) and "calendar" in repr(study)
        html = study._repr_html_()
        assert "<img" in html and "calendar" in html and len(html) < 100_000
        assert not re.search("<(!doctype|html|head|body|style|script|link|h1)", html, re.IGNORECASE)

    def test_a_report_shows_the_headline_and_the_naive_test(self, study: almanac.Study) -> None:
        others = {"cross_sectional_t"}
        assert others < set(study.tests["test"])
        page = study.to_html()
        for text in (repr(study), study._repr_html_(), page[: page.index("By bar")]):
            shown, line = text.rsplit("study.tests has the others", 1)
            assert "calendar" in shown and "naive_t" in shown and "%" in line
            assert not others & set(re.findall(r"\w+", shown))

    def test_a_missing_library_names_the_extra(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(report, "find_spec", lambda name: None)
        with pytest.raises(almanac.InvalidArgument, match=r"crypto-almanac\[study\]"):
            report.require_package("scipy")


class TestArguments:
    @pytest.mark.parametrize(
        ("given", "message"),
        [
            ({"window": (3, -3)}, "ends before it begins"),
            ({"lead": "soon"}, "lead="),
            ({"options": almanac.StudyOptions(estimation=5)}, "10 bars"),
            ({"confidence": 95}, "confidence"),
            ({"options": almanac.StudyOptions(model="mean"), "market": "coin-0"}, "mean model"),
            ({"market": "coin-99"}, "neither a coin"),
            ({"categories": "Lisst"}, "Listing"),
            ({"window": (-700, -500)}, "can be used"),
            ({"coins": "SUN"}, "2 coins"),
            (
                {"events": pd.DataFrame({"event_id": ["a"], "coin": COINS[:1], "date": [1.7e12]})},
                "timestamps are expected.*unit='ms'",
            ),
        ],
    )
    def test_a_wrong_argument_is_an_error_that_names_it(
        self, db: almanac.Database, given: dict[str, Any], message: str
    ) -> None:
        with pytest.raises(almanac.AlmanacError, match=message):
            db.event_study(make_prices(), **given)

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            ({"model": "fama"}, "model='fama'; expected market, mean"),
            ({"stamp": "close"}, "stamp='close'; expected start, end"),
            ({"seed": -1}, "seed=-1"),
            ({"rounds": 9}, "99 or more"),
            ({"max_gap": -1}, "max_gap=-1"),
            ({"min_estimation": 70}, "a share"),
        ],
    )
    def test_a_wrong_option_is_an_error_that_names_it(
        self, given: dict[str, Any], message: str
    ) -> None:
        with pytest.raises(almanac.InvalidArgument, match=message):
            almanac.StudyOptions(**given)

    def test_windows_in_time_are_whole_bars(self, db: almanac.Database) -> None:
        found = db.event_study(make_prices(), window=("-36h", timedelta(days=2)), options=FAST)
        assert found.table["bar"].tolist() == [-1, 0, 1, 2]

    def test_events_of_the_users_own_need_no_warehouse_rows(self, db: almanac.Database) -> None:
        own = pd.DataFrame(
            {
                "event_id": [f"own {place}" for place in range(12)],
                "coin": [COINS[place % 8] for place in range(12)],
                "date": [at(2, 1 + 2 * place) for place in range(12)],
                "known_from": [at(1, 1)] * 11 + [at(2, 22)],
            }
        )
        found = db.event_study(make_prices(), events=own, window=(0, 2), options=FAST)
        assert found.counts["used"] == 11
        assert why(found) == {"own 11": "known_too_late"}
        assert found.naive["n"].iloc[0] == 12
        assert found.counts["assumed_known"] == 0 and "known_from" not in repr(found)

    def test_events_without_a_time_of_knowledge_are_marked_and_counted(
        self, db: almanac.Database, study: almanac.Study
    ) -> None:
        own = pd.DataFrame(
            {"event_id": ["a", "b", "c"], "coin": COINS[:3], "date": [at(2, 10)] * 3}
        )
        given = own.assign(known_from=[at(1, 1), pd.NaT, pd.NaT])
        for events, assumed in ((own, 3), (given, 2)):
            found = db.event_study(make_prices(), events=events, window=(0, 2), options=FAST)
            assert found.counts["used"] == 3
            assert found.counts["assumed_known"] == assumed
            assert (found.events["known_basis"] == "assumed").sum() == assumed
            said = f"{assumed} rows have no known_from and count as known at entry"
            assert said in repr(found) and said in found._repr_html_() and said in found.to_html()
        assert study.counts["assumed_known"] == 0
