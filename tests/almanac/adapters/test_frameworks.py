"""The adapters with the real frameworks, each where it is installed; none is a dependency.

Tried with freqtrade 2026.9, vectorbt 1.2.0, backtrader 1.9.78.123, zipline-reloaded 3.2.1 and
nautilus_trader 1.231.0. The examples of docs/adapters.md are run as they stand.
"""

import math
import pickle
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from almanac.adapters import backtrader, nautilus, vectorbt, zipline
from almanac.database import Database
from tests.almanac.adapters.moved_event import (
    NEXT_BY_EVENTS_LOADER,
    PREVIOUS_BY_EVENTS_LOADER,
    drawn,
    in_each_session,
    known_dates,
)
from tests.almanac.adapters.stories import (
    ANNOUNCED,
    DATE_AT_FIRST,
    DATE_IN_THE_END,
    MOVED,
    SESSIONS,
    candles,
    publish_moved,
)

DOCS = Path(__file__).parents[3] / "docs"
EXAMPLES = dict(
    re.findall(
        r"^## (\S+)\n.*?```python\n(.*?)```", (DOCS / "adapters.md").read_text(), re.M | re.S
    )
)
PACKAGES = {"zipline-reloaded": "zipline"}


def prices() -> pd.DataFrame:
    """Return hourly bars from 19 to 24 May; the event is announced on 20 May at 06:00."""
    opens = pd.date_range("2026-05-19", "2026-05-24", freq="1h", tz="UTC")
    price = pd.Series(np.linspace(100, 120, len(opens)), index=opens)
    return pd.DataFrame(
        {"open": price, "high": price + 1, "low": price - 1, "close": price + 0.5, "volume": 1.0}
    )


@pytest.mark.parametrize("framework", sorted(EXAMPLES))
def test_the_example_of_the_page_runs(
    framework: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip(PACKAGES.get(framework, framework))
    (tmp_path / "data").mkdir()
    publish_moved(tmp_path / "data" / "warehouse.duckdb")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": __name__, "prices": prices()}
    exec(compile(EXAMPLES[framework], framework, "exec"), names)
    if framework == "freqtrade":
        strategy = names["BeforeEvents"]({})
        found = strategy.advise_all_indicators({"BTC/USDT": candles(prices())})["BTC/USDT"]
        found = strategy.ft_advise_signals(found, {"pair": "BTC/USDT"})
        assert (found["exit_long"] == 1).any()


def test_every_framework_has_an_example() -> None:
    assert sorted(EXAMPLES) == [
        *("backtrader", "freqtrade", "nautilus_trader", "vectorbt", "zipline-reloaded")
    ]


def test_the_figure_of_the_page_is_drawn_from_what_the_sessions_see(tmp_path: Path) -> None:
    figure = drawn(known_dates(tmp_path / "warehouse.duckdb"))
    assert (DOCS / "moved-event.svg").read_text() == figure


def test_vectorbt_buys_at_the_open_after_the_announcement(moved: Database) -> None:
    vbt = pytest.importorskip("vectorbt")
    close, opens = (pd.DataFrame({"BTC": prices()[name]}) for name in ("close", "open"))
    entries = vectorbt.next_open(
        moved, close, lambda known: known["events_ahead"] > 0, bar="1h", horizon="60d"
    )
    portfolio = vbt.Portfolio.from_signals(close, entries, ~entries, price=opens, freq="1h")
    order = portfolio.orders.records_readable.iloc[0]
    assert order["Timestamp"] == ANNOUNCED
    assert order["Price"] == opens["BTC"][ANNOUNCED]


def test_backtrader_buys_at_the_open_after_the_announcement(moved: Database) -> None:
    bt = pytest.importorskip("backtrader")

    class Buying(bt.Strategy):  # type: ignore[misc]
        def __init__(self) -> None:
            self.bought: list[tuple[datetime, float]] = []

        def next(self) -> None:
            if not self.position and self.data.events_ahead[0] > 0:
                self.buy()

        def notify_order(self, order: Any) -> None:
            if order.status == order.Completed:
                when = bt.num2date(order.executed.dt).replace(tzinfo=UTC)
                self.bought.append((when, order.executed.price))

    cerebro = bt.Cerebro()
    cerebro.adddata(backtrader.feed(moved, prices(), "BTC", bar="1h", horizon="60d"))
    cerebro.addstrategy(Buying)
    bought = cerebro.run()[0].bought[0]
    assert abs(bought[0] - ANNOUNCED).total_seconds() < 1
    assert math.isclose(bought[1], prices()["open"][ANNOUNCED])


def test_a_feed_of_backtrader_can_be_passed_to_another_process(moved: Database) -> None:
    bt = pytest.importorskip("backtrader")
    assert pickle.loads(pickle.dumps(backtrader.EventFeed)) is backtrader.EventFeed
    assert issubclass(backtrader.EventFeed, bt.feeds.PandasData)


def test_the_events_loader_of_zipline_shows_the_date_that_was_moved() -> None:
    """The first two rows are the versions of the event, as `EventsLoader` takes them."""
    pytest.importorskip("zipline")
    from zipline.pipeline.data import Column, DataSet
    from zipline.pipeline.domain import EquitySessionDomain
    from zipline.pipeline.loaders.events import EventsLoader

    class Dates(DataSet):  # type: ignore[misc]
        next = Column(np.dtype("datetime64[ns]"))
        previous = Column(np.dtype("datetime64[ns]"))

    events = pd.DataFrame(
        {
            "sid": [1, 1],
            "event_date": [
                DATE_AT_FIRST.replace(tzinfo=None),
                DATE_IN_THE_END.replace(tzinfo=None),
            ],
            "timestamp": [ANNOUNCED.replace(tzinfo=None), MOVED.replace(tzinfo=None)],
        }
    )
    loader = EventsLoader(events, {Dates.next: "event_date"}, {Dates.previous: "event_date"})
    found = loader.load_adjusted_array(
        EquitySessionDomain(SESSIONS, "US"),
        [Dates.next, Dates.previous],
        SESSIONS,
        pd.Index([1]),
        np.ones((len(SESSIONS), 1), bool),
    )
    for column, expected in (
        (Dates.next, NEXT_BY_EVENTS_LOADER),
        (Dates.previous, PREVIOUS_BY_EVENTS_LOADER),
    ):
        shown = [
            None if pd.isna(day) else pd.Timestamp(day).date() for day in found[column].data[:, 0]
        ]
        assert shown == in_each_session(expected)


def test_a_pipeline_of_zipline_sees_the_new_date_from_the_next_session_on(moved: Database) -> None:
    pytest.importorskip("zipline")
    import sqlalchemy
    from zipline.assets import AssetDBWriter, AssetFinder
    from zipline.pipeline import CustomFactor, Pipeline
    from zipline.pipeline.domain import EquitySessionDomain
    from zipline.pipeline.engine import SimplePipelineEngine

    class TwoBefore(CustomFactor):  # type: ignore[misc]
        inputs = (zipline.AlmanacEvents.next_event_date,)
        window_length = 3
        dtype = np.dtype("datetime64[ns]")

        def compute(self, today: Any, assets: Any, out: Any, dates: Any) -> None:
            out[:] = dates[0]

    assets = sqlalchemy.create_engine("sqlite://")
    life = {"start_date": SESSIONS[0], "end_date": SESSIONS[-1], "exchange": "X"}
    AssetDBWriter(assets).write(
        equities=pd.DataFrame({"symbol": ["BTC"], **life}, index=[1]),
        exchanges=pd.DataFrame({"exchange": ["X"], "country_code": ["US"]}),
    )
    domain = EquitySessionDomain(SESSIONS, "US")
    custom_loader = zipline.loaders(moved, SESSIONS, {1: "bitcoin"}, horizon="60d")
    engine = SimplePipelineEngine(custom_loader.__getitem__, AssetFinder(assets), domain)
    pipeline = Pipeline(
        {"date": zipline.AlmanacEvents.next_event_date.latest, "two_before": TwoBefore()},
        domain=domain,
    )
    found = engine.run_pipeline(pipeline, pd.Timestamp("2026-05-28"), pd.Timestamp("2026-06-05"))
    days = found.droplevel(1)
    first, last = DATE_AT_FIRST.replace(tzinfo=None), DATE_IN_THE_END.replace(tzinfo=None)
    assert (days["date"] == np.where(days.index >= "2026-06-02", last, first)).all()
    # A window that looks back has what each session knew.
    assert (days["two_before"] == np.where(days.index >= "2026-06-04", last, first)).all()


def test_nautilus_delivers_each_update_when_it_became_known(moved: Database) -> None:
    pytest.importorskip("nautilus_trader")
    from nautilus_trader.backtest.engine import BacktestEngine, BacktestEngineConfig
    from nautilus_trader.config import LoggingConfig
    from nautilus_trader.model.data import DataType
    from nautilus_trader.model.identifiers import ClientId
    from nautilus_trader.trading.strategy import Strategy

    class Recording(Strategy):  # type: ignore[misc]
        def on_start(self) -> None:
            self.seen: list[tuple[int, Any]] = []
            kind = DataType(nautilus.EventUpdate)
            self.subscribe_data(kind, client_id=ClientId(nautilus.CLIENT))

        def on_data(self, update: Any) -> None:
            self.seen.append((self.clock.timestamp_ns(), update))

    found = nautilus.updates(moved, "BTC")
    engine = BacktestEngine(BacktestEngineConfig(logging=LoggingConfig(bypass_logging=True)))
    engine.add_data(found, client_id=ClientId(nautilus.CLIENT))
    strategy = Recording()
    engine.add_strategy(strategy)
    engine.run()
    assert [pd.Timestamp(now, tz="UTC") for now, _ in strategy.seen] == [ANNOUNCED, MOVED]
    assert [pd.Timestamp(update.date_ns, tz="UTC") for _, update in strategy.seen] == [
        DATE_AT_FIRST,
        DATE_IN_THE_END,
    ]
    assert all(update.ts_init == now for now, update in strategy.seen)
    engine.dispose()
    update = found[0].data
    assert nautilus.EventUpdate.from_bytes(update.to_bytes()) == update
    assert pickle.loads(pickle.dumps(update)) == update
