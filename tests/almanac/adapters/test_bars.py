"""What the adapters have in common: indexes of bars, coins of pairs, frameworks that are absent."""

import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pandas as pd
import pytest

from almanac.adapters import backtrader, nautilus, zipline
from almanac.adapters.bars import check_bars, coin_of_pair, coins_of_labels, features_of, framework
from almanac.database import Database
from almanac.errors import AmbiguousCoin, InvalidArgument, UnknownName
from tests.almanac.adapters.stories import COINS, PULLS, bars, opened, versions_at_random
from tests.almanac.publications import publish_by_hand

DAY = {"instant": timedelta(0), "day": timedelta(days=1)}


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    versions, absences = versions_at_random(1)
    path = tmp_path_factory.mktemp("home") / "warehouse.duckdb"
    publish_by_hand(path, versions, absences=absences, pulls=PULLS, coins=COINS)
    with opened(path, now=PULLS[-1]) as db:
        yield db


@pytest.mark.parametrize(
    "pair",
    ["BTC/USDT", "BTC/USDT:USDT", "BTC-USD", "btc_usdt", "BTC", "bitcoin", "BTC/USDT:USDT-260925"],
)
def test_a_pair_names_the_coin_of_its_base(db: Database, pair: str) -> None:
    assert coin_of_pair(db, pair).slug == "bitcoin"


def test_a_ticker_that_several_coins_have_must_be_named(db: Database) -> None:
    with pytest.raises(AmbiguousCoin, match="first-sun"):
        coin_of_pair(db, "SUN/USDT")
    assert coin_of_pair(db, "SUN/USDT", {"SUN": "other-sun"}).slug == "other-sun"
    assert coin_of_pair(db, "SUN/USDT", {"SUN/USDT": "first-sun"}).slug == "first-sun"


def test_a_pair_is_not_the_coin_that_has_its_ticker_as_a_name(db: Database) -> None:
    assert db.resolve("Gas").slug == "galaxy"
    with pytest.raises(UnknownName, match="'GAS/USDT': 'slug:"):
        coin_of_pair(db, "GAS/USDT")


def test_a_slug_with_a_hyphen_is_no_pair(db: Database) -> None:
    assert coin_of_pair(db, "first-sun").slug == "first-sun"
    assert coins_of_labels(db, ["other-sun", "GLX-USD"], None) == {
        "other-sun": db.resolve("other-sun"),
        "GLX-USD": db.resolve("galaxy"),
    }


def test_features_stand_in_the_rows_of_the_caller(db: Database) -> None:
    index = bars().index
    found = features_of(db, index, "4h", {("a", 1): "BTC", 2: "ethereum"}, horizon="5d")
    assert list(found) == [("a", 1), 2]
    for label, slug in ((("a", 1), "bitcoin"), (2, "ethereum")):
        frame = found[label]
        assert frame.index.equals(index)
        for row in range(12, len(index), 11):
            close = index[row] + timedelta(hours=4)
            near = db.upcoming(slug, within="5d", as_of=close, include_estimated=False).rows()
            ahead = [
                event
                for event in near
                if event["date_exact"] > close - DAY[event["date_precision"]]
            ]
            assert frame["events_ahead"].iloc[row] == len(ahead)
            titles = [event["title"] for event in ahead]
            shown = frame["next_event_title"].iloc[row]
            assert shown in titles if titles else pd.isna(shown)


def test_bars_that_overlap_are_refused(db: Database) -> None:
    with pytest.raises(InvalidArgument, match=r"4:00:00 apart.*after the next bar opened"):
        features_of(db, bars().index, "1d", {"BTC": "bitcoin"})
    with pytest.raises(InvalidArgument, match="length of the shortest bar"):
        check_bars(bars().index, "4h 1s")
    check_bars(bars().index, "4h")
    check_bars(bars().index[::3], "4h")  # Bars may be absent.
    check_bars(bars().index[:1], "1d")


@pytest.mark.parametrize(
    ("index", "message"),
    [
        (pd.RangeIndex(3), "expected a DatetimeIndex"),
        (pd.DatetimeIndex(["2026-03-02", "2026-03-01"]), "not increasing"),
        (pd.DatetimeIndex(["2026-03-01", "2026-03-01"]), "not increasing"),
        (pd.DatetimeIndex(["2026-03-01", None]), "not increasing"),
    ],
)
def test_an_index_of_anything_else_is_refused(index: pd.Index, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        check_bars(index, "1h")


def test_a_frame_without_rows_gives_no_rows(db: Database) -> None:
    found = features_of(db, bars().index[:0], "4h", {"BTC": "bitcoin"})["BTC"]
    assert len(found) == 0
    assert "days_until" in found.columns


@pytest.mark.parametrize(
    ("made", "package"),
    [
        (backtrader.feed_class, "backtrader"),
        (zipline.dataset_class, "zipline-reloaded"),
        (nautilus.update_class, "nautilus_trader"),
    ],
)
def test_an_absent_framework_is_named_with_its_package(
    monkeypatch: pytest.MonkeyPatch, made: object, package: str
) -> None:
    for name in ("backtrader", "zipline", "nautilus_trader"):
        for module in [name, *(known for known in sys.modules if known.startswith(f"{name}."))]:
            monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(InvalidArgument, match=f"pip install {package}"):
        made.__wrapped__()  # type: ignore[attr-defined]


def test_a_framework_that_lacks_a_part_of_its_own_says_which(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_framework.py").write_text("import a_part_of_its_own\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="a_part_of_its_own"):
        framework("broken_framework", "broken-framework")


def test_a_module_of_an_adapter_has_no_other_late_names() -> None:
    for module in (backtrader, zipline, nautilus):
        with pytest.raises(AttributeError, match="no attribute 'missing'"):
            module.missing  # noqa: B018
