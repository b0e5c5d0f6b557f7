"""Each file of `examples/frameworks`: a row has what was known when the framework acts on it.

The event was announced on 20 May at 06:00 for 10 June, and moved on 1 June at 06:00 to 24 June. The
examples of its README run as they stand where their framework is installed.
"""

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from almanac.database import Database
from tests.almanac.frameworks.stories import (
    ANNOUNCED,
    DATE_AT_FIRST,
    DATE_IN_THE_END,
    MOVED,
    SESSIONS,
    candles,
    opened,
    publish_moved,
)

PAGE = Path(__file__).parents[3] / "examples" / "frameworks" / "README.md"
EXAMPLES = dict(re.findall(r"^## (\S+)\n.*?```python\n(.*?)```", PAGE.read_text(), re.M | re.S))
US = timedelta(microseconds=1)
OHLCV = ("open", "high", "low", "close", "volume")
PACKAGES = {"zipline-reloaded": "zipline"}


def prices(start: datetime, count: int, **columns: float) -> pd.DataFrame:
    index = pd.date_range(start, periods=count, freq="1h")
    return pd.DataFrame({name: price for name, price in columns.items()}, index=index)


def ohlcv(start: datetime, count: int) -> pd.DataFrame:
    return prices(start, count, open=1.0, high=2.0, low=0.5, close=1.5, volume=1.0)


def test_a_candle_of_freqtrade_knows_what_was_known_when_it_closed(
    examples: SimpleNamespace, moved: Database
) -> None:
    hours = candles(ohlcv(ANNOUNCED - timedelta(hours=3), 6)).set_axis([3, 5, 8, 9, 11, 12])
    before = hours.copy(deep=True)
    found = examples.freqtrade_features.add_features(
        hours, {"pair": "BTC/USDT"}, moved, "1h", horizon="60d"
    )
    # The candle of 05:00 closes at 06:00, when the event was announced.
    assert found["events_ahead"].tolist() == [0, 0, 1, 1, 1, 1]
    assert (found["known_at"] == found["date"] + timedelta(hours=1)).all()
    pd.testing.assert_frame_equal(found[before.columns], before)
    pd.testing.assert_frame_equal(hours, before)


def test_a_signal_of_vectorbt_is_in_the_row_after_the_close_at_which_it_was_known(
    examples: SimpleNamespace, moved: Database
) -> None:
    close = prices(ANNOUNCED - timedelta(hours=4), 9, BTC=1.0, ETH=2.0)
    gaps = close.drop(close.index[[3, 4]])
    for bars, first in ((close, ANNOUNCED), (gaps, ANNOUNCED + timedelta(hours=2))):
        entries = examples.vectorbt_signals.next_open(
            moved, bars, lambda known: known["events_ahead"] > 0, bar="1h", horizon="60d"
        )
        assert entries.index[entries["BTC"]][0] == first
        assert not entries["ETH"].any()
        assert entries.index.equals(bars.index)


def test_a_day_of_23_hours_closes_when_the_next_one_opens(
    examples: SimpleNamespace, moved: Database
) -> None:
    """As of 29 March in Berlin; a bar may also be a candle of a week."""
    add, pair = examples.freqtrade_features.add_features, {"pair": "BTC/USDT"}
    for freq, bar in (("D", "1d"), ("W-SUN", "1w"), ("4h", "4h")):
        opens = pd.date_range("2026-03-22", periods=9, freq=freq).tz_localize("Europe/Berlin")
        frame = pd.DataFrame(dict.fromkeys(OHLCV, 1.0), opens)
        found = add(candles(frame), pair, moved, bar)
        assert (found["known_at"][:-1].to_numpy() <= found["date"][1:].to_numpy()).all()
        close = frame[["close"]].set_axis(["BTC"], axis=1)
        rule = examples.vectorbt_signals.next_open
        assert len(rule(moved, close, lambda known: known["watched"], bar=bar)) == 9
    without_zone = pd.date_range("2026-03-22", periods=9, tz="Europe/Berlin").tz_convert("UTC")
    for opens in (without_zone, pd.date_range(ANNOUNCED, periods=9, freq="12h")):
        with pytest.raises(ValueError, match="after the next opens"):
            add(candles(frame.set_axis(opens)), pair, moved, "1d")


def test_the_lines_of_backtrader_are_known_at_the_close(
    examples: SimpleNamespace, moved: Database
) -> None:
    given = ohlcv(ANNOUNCED - timedelta(hours=2), 3)
    with_lines = examples.backtrader_feed.with_lines
    found = with_lines(moved, given, "BTC/USDT", bar="1h", horizon="60d")
    assert found["events_ahead"].tolist() == [0, 1, 1]
    assert found["event_impact"].fillna(-1).tolist() == [-1, 8, 8]
    by_close = with_lines(moved, given, "BTC", bar="1h", as_of="bar_open", horizon="60d")
    assert by_close["events_ahead"].tolist() == [0, 0, 1]


def test_a_session_of_zipline_sees_the_date_that_was_known_before_it(
    examples: SimpleNamespace, moved: Database
) -> None:
    def dates(**given: Any) -> dict[str, str]:
        tables = examples.zipline_loaders.baselines(
            moved, SESSIONS, {7: "bitcoin"}, horizon="60d", **given
        )
        texts = tables["next_event_date"][7].dt.strftime("%d %b").fillna("none")
        new = texts[texts != texts.shift()]
        return {day.strftime("%d %b"): text for day, text in new.items()}

    expected = {"18 May": "none", "21 May": "10 Jun", "02 Jun": "24 Jun", "25 Jun": "none"}
    assert dates() == expected
    cutoffs = (SESSIONS + timedelta(hours=8)).tz_localize("America/New_York")
    assert dates(cutoffs=cutoffs)["01 Jun"] == "24 Jun"


def test_nautilus_replays_each_change_when_it_became_known(
    examples: SimpleNamespace, moved_file: Path
) -> None:
    def ns(moment: datetime) -> int:
        return int(pd.Timestamp(moment).value)

    records = examples.nautilus_updates.records
    bitcoin = frozenset({"bitcoin"})
    found = list(records(moved_file, ANNOUNCED - timedelta(days=1), bitcoin))
    assert [(row["ts_init"], row["date_ns"]) for row in found] == [
        (ns(ANNOUNCED), ns(DATE_AT_FIRST)),
        (ns(MOVED), ns(DATE_IN_THE_END)),
    ]
    start = MOVED - timedelta(hours=1)
    assert [row["ts_init"] for row in records(moved_file, start, bitcoin)] == [ns(start), ns(MOVED)]
    assert not list(records(moved_file, start, frozenset({"ethereum"})))


def test_bars_that_overlap_are_refused(examples: SimpleNamespace, moved: Database) -> None:
    index = prices(ANNOUNCED, 2, BTC=1.0).index
    with pytest.raises(ValueError, match="oldest first"):
        examples.bars.known_at_bars(moved, index[[1, 0]], "1h", {0: "BTC"})
    with pytest.raises(ValueError, match="after the next opens"):
        examples.bars.known_at_bars(moved, index, "2h", {0: "BTC"})


def of_freqtrade(examples: SimpleNamespace, db: Database, frame: pd.DataFrame) -> Any:
    pair = {"pair": "BTC/USDT:USDT"}
    return examples.freqtrade_features.add_features(candles(frame), pair, db, "1D")


def of_backtrader(examples: SimpleNamespace, db: Database, frame: pd.DataFrame) -> Any:
    return examples.backtrader_feed.with_lines(db, frame, "bitcoin", bar="1D")


def of_vectorbt(examples: SimpleNamespace, db: Database, frame: pd.DataFrame) -> Any:
    close = frame[["close"]].set_axis(["BTC"], axis=1)
    rule = examples.vectorbt_signals.next_open
    return rule(db, close, lambda known: known["days_until"] < 9, bar="1D")


def of_zipline(examples: SimpleNamespace, db: Database, frame: pd.DataFrame) -> Any:
    sessions = frame.index.tz_localize(None)
    return pd.concat(examples.zipline_loaders.baselines(db, sessions, {1: "bitcoin"}), axis=1)


@pytest.mark.parametrize("adapted", [of_freqtrade, of_backtrader, of_vectorbt, of_zipline])
def test_a_bar_shows_the_same_in_a_file_published_later(
    examples: SimpleNamespace, moved: Database, adapted: Any, tmp_path: Path
) -> None:
    """This is also what `freqtrade lookahead-analysis` tries: a frame that is cut off early."""
    days = SESSIONS.tz_localize("UTC")
    frame = pd.DataFrame(dict.fromkeys(OHLCV, 1.0), index=days)
    in_the_end = adapted(examples, moved, frame)
    for at in (MOVED - US, MOVED):
        closed = frame[days + timedelta(days=1) <= at]
        with opened(publish_moved(tmp_path / "then.duckdb", at=at), now=at) as db:
            then = adapted(examples, db, closed)
        expected = in_the_end.iloc[: len(then)]
        pd.testing.assert_frame_equal(then, expected, check_freq=False)


@pytest.mark.parametrize(
    "framework", ["backtrader", "freqtrade", "nautilus_trader", "vectorbt", "zipline-reloaded"]
)
def test_the_example_of_the_page_runs(
    examples: SimpleNamespace, framework: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = compile(EXAMPLES[framework], framework, "exec")
    pytest.importorskip(PACKAGES.get(framework, framework))
    (tmp_path / "data").mkdir()
    publish_moved(tmp_path / "data" / "warehouse.duckdb")
    monkeypatch.chdir(tmp_path)
    bars = ohlcv(datetime(2026, 5, 19, tzinfo=UTC), 120)
    names: dict[str, Any] = {"__name__": __name__, "prices": bars}
    exec(code, names)
    if framework == "freqtrade":
        strategy = names["BeforeEvents"]({})
        found = strategy.advise_all_indicators({"BTC/USDT": candles(bars)})["BTC/USDT"]
        assert (strategy.ft_advise_signals(found, {"pair": "BTC/USDT"})["exit_long"] == 1).any()
