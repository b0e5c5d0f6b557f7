"""Coins of pairs: one rule for features and for the doors that take a column of coins."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pandas as pd
import pytest

from almanac.audit.audit import read_universe_rule
from almanac.calendar.feed import FeedQuery, write_feed
from almanac.coins import Coin, find_coins, resolve_coins, resolve_texts, split_pair
from almanac.core.errors import AmbiguousCoin, UnknownName
from almanac.database import Database, open_database
from almanac.digest import compute_digest
from almanac.reader import Reader
from almanac.study.options import StudyOptions
from tests.almanac.publications import NamedCoin, publish_by_hand
from tests.warehouse.answers.handmade import Known

COINS = [
    NamedCoin("bitcoin", "BTC", "Bitcoin", 1),
    NamedCoin("btcb", "BTCB", "Pegged", 30),
    NamedCoin("ethereum", "ETH", "Ethereum", 2),
    NamedCoin("first-sun", "SUN", "First Sun", 40),
    NamedCoin("other-sun", "SUN", "Other Sun", 90),
    NamedCoin("wormhole", "W", "Wormhole", 91),
    NamedCoin("gravity", "G", "Gravity", 92),
    NamedCoin("true-chain", "TRUE", "TrueChain", 93),
    NamedCoin("gravity-usd", "GRUSD", "Gravity Dollar", 94),
    NamedCoin("galaxy", "GLX", "Gas", 99),
]
BITCOIN = (
    *("BTC/USDT", "btc/usdt", " BTC/USDT ", "BTC/USDT:USDT", "BTC/USDT:USDT-260925"),
    *("BTC-USD", "BTC-USDT-SWAP", "BTC-PERP", "BTC_USDT", "btc_usdt", "BTC:USD", "bitcoin/USDT"),
    *("BTCUSDT", "btcusdt", "BTCUSD", "BTCUSDC", "BTCEUR", "BTCUSDT.P", "BTCUSDT_260626"),
    *("BTC", "btc", "bitcoin"),
)


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    path = tmp_path_factory.mktemp("home") / "warehouse.duckdb"
    pulled = datetime(2026, 3, 1, tzinfo=UTC)
    later = datetime(2026, 3, 2, tzinfo=UTC)
    versions = [
        Known(event_id="evt", known_from=pulled),
        Known(
            event_id="of bitcoin", known_from=later, coins=("bitcoin",), date=later.replace(day=20)
        ),
    ]
    publish_by_hand(path, versions, pulls=[pulled, later], coins=COINS)
    with open_database(path, clock=lambda: later.replace(day=3)) as db:
        yield db


def test_the_case_and_width_of_a_pair_do_not_matter(db: Database) -> None:
    wide = "ＢＴＣ-ｕｓｄ"
    texts = {form(pair) for pair in BITCOIN for form in (str.lower, str.upper, str.swapcase)}
    found = resolve_texts(db.reader, [*texts, wide, "true-usd"], is_strict=False)
    assert {text for text, coin in found.items() if coin.slug == "bitcoin"} == {*texts, wide}
    assert found["true-usd"].slug == "true-chain"
    assert db.resolve("Gravity-USD").slug == "gravity-usd"
    named = resolve_texts(db.reader, ["abc-usd"], {"ABC": "ethereum"}, is_strict=True)
    assert named["abc-usd"].slug == "ethereum"


def test_many_pairs_are_resolved_together(db: Database) -> None:
    found = resolve_texts(db.reader, [*BITCOIN, "Gas", "ETHUSDT", "NOBODY/USDT"], is_strict=False)
    assert {pair for pair, coin in found.items() if coin.slug == "bitcoin"} == set(BITCOIN)
    assert (found["Gas"].slug, found["ETHUSDT"].slug) == ("galaxy", "ethereum")
    assert "NOBODY/USDT" not in found


SINCE = datetime(2026, 3, 1, 12, tzinfo=UTC)
QUESTIONS: tuple[Callable[[Database, str], Any], ...] = (
    lambda db, coin: db.events(coins=coin).rows(),
    lambda db, coin: db.upcoming(coin, within="90d").rows(),
    lambda db, coin: db.changes("2026-03-01", coins=coin).rows(),
    lambda db, coin: db.blackouts(as_of="each", coins=coin, min_impact=None).rows(),
    lambda db, coin: db.resolve(coin),
    lambda db, coin: [change.event_id for change in db.replay(SINCE, coins=coin)],
    lambda db, coin: db.features([SINCE], "1h", {"x": coin}).to_dict(),
    lambda db, coin: compute_digest(db.reader, since="2026-03-01", coins=coin),
    lambda db, coin: write_feed(db, FeedQuery(coins=[coin])).total,
    lambda db, coin: read_universe_rule(db.reader, {"within": "7d", "coins": coin}),
)


def test_every_question_takes_a_pair_as_it_takes_a_slug(db: Database) -> None:
    for ask in QUESTIONS:
        for pair in ("BTC/USDT", "BTCUSDT"):
            assert str(ask(db, pair)) == str(ask(db, "slug:bitcoin"))


def test_a_text_that_may_be_another_coin_is_no_pair(db: Database) -> None:
    texts = ["WBTC", "GUSD", "first-token", "true_token", "slug:true", "GAS/USDT"]
    texts += ["USDT", "/", "-", "", "USDT/BTC", "BTC-2", "TRUE-2"]
    assert resolve_texts(db.reader, texts, is_strict=False) == {}
    with pytest.raises(UnknownName):
        resolve_coins(db.reader, ["WBTC"])


def test_an_ambiguous_ticker_of_a_pair_is_an_error_with_its_slugs(db: Database) -> None:
    for pair in ("SUN/USDT", "SUNUSDT", "SUN-USD"):
        with pytest.raises(AmbiguousCoin, match="first-sun"):
            resolve_texts(db.reader, ["BTC/USDT", pair], is_strict=False)


def test_a_text_that_two_pairs_share_is_ambiguous(db: Database) -> None:
    assert resolve_coins(db.reader, ["BTCUSDT"])[0].slug == "bitcoin"
    with pytest.raises(AmbiguousCoin, match="with a slash"):
        resolve_coins(db.reader, ["BTCBUSD"])
    assert split_pair("BTCBUSD") == ["BTCB", "BTC"]
    assert resolve_coins(db.reader, ["BTC/BUSD"])[0].slug == "bitcoin"


def test_all_names_are_resolved_with_one_statement(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once per lookup: with a query for each name, 200 coins took a hundred times as long."""
    asked: list[str] = []
    run = Reader.rows

    def rows(reader: Reader, sql: str, *values: Any) -> Any:
        asked.extend([sql] if "coin_labels" in sql else [])
        return run(reader, sql, *values)

    monkeypatch.setattr(Reader, "rows", rows)
    said: dict[str, str | Coin] = {
        "a": "slug:bitcoin",
        "b": "ETH/USDT",
        "GLX": "galaxy",
        "c": db.resolve("W"),
    }
    asked.clear()
    found = find_coins(db.reader, [*said, "GLX-USD", "btcb", "NOBODY/USDT"], said)
    slugs = {text: [coin.slug for coin in coins] for text, coins in found.items()}
    assert slugs == {
        **{"a": ["bitcoin"], "b": ["ethereum"], "GLX": ["galaxy"], "c": ["wormhole"]},
        **{"GLX-USD": ["galaxy"], "btcb": ["btcb"]},
    }
    assert len(asked) == 1
    moment = datetime(2026, 3, 1, 12, tzinfo=UTC)
    doors: list[Callable[[Any], Any]] = [
        lambda coins: db.events(coins=[*coins.values()]),
        lambda coins: db.attach_known(
            pd.DataFrame({"ts": [moment] * len(coins), "coin": [*coins]}), coins=coins
        ),
        lambda coins: db.features([moment], "1h", coins),
        lambda coins: db.event_study(
            prices(*coins),
            events=pd.DataFrame({"event_id": ["e"], "coin": ["a"], "date": [moment]}),
            coins=coins,
            market=dict.fromkeys(coins, "b"),
            options=StudyOptions(estimation=20),
        ),
    ]
    for door in doors:
        counts = []
        for coins in ({"a": "slug:bitcoin", "b": "ETH/USDT"}, said):
            asked.clear()
            door(coins)
            counts.append(len(asked))
        assert counts[0] == counts[1]


def prices(*coins: str) -> pd.DataFrame:
    days = pd.date_range("2026-01-01", periods=100, freq="D", tz="UTC")
    steps = np.random.default_rng(1).normal(0, 0.02, (100, len(coins)))
    return pd.DataFrame(100 * np.exp(steps.cumsum(0)), index=days, columns=[*coins])
