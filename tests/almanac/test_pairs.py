"""Coins of pairs: one rule for features and for the doors that take a column of coins."""

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from almanac.coins import resolve_each_pair, resolve_pairs, split_pair
from almanac.database import Database, open_database
from almanac.errors import AmbiguousCoin, UnknownName
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
    publish_by_hand(path, [Known(event_id="evt", known_from=pulled)], pulls=[pulled], coins=COINS)
    with open_database(path) as db:
        yield db


def test_many_pairs_are_resolved_together(db: Database) -> None:
    found = resolve_pairs(db.reader, [*BITCOIN, "Gas", "ETHUSDT", "NOBODY/USDT"])
    assert {pair for pair, coin in found.items() if coin.slug == "bitcoin"} == set(BITCOIN)
    assert (found["Gas"].slug, found["ETHUSDT"].slug) == ("galaxy", "ethereum")
    assert "NOBODY/USDT" not in found


def test_a_text_that_may_be_another_coin_is_no_pair(db: Database) -> None:
    texts = ["WBTC", "GUSD", "true-usd", "first-token", "true_token", "slug:true", "GAS/USDT"]
    texts += ["USDT", "/", "-", "", "USDT/BTC", "BTC-2", "TRUE-2"]
    assert resolve_pairs(db.reader, texts) == {}
    with pytest.raises(UnknownName):
        resolve_each_pair(db.reader, ["WBTC"])[0]


def test_an_ambiguous_ticker_of_a_pair_is_an_error_with_its_slugs(db: Database) -> None:
    for pair in ("SUN/USDT", "SUNUSDT", "SUN-USD"):
        with pytest.raises(AmbiguousCoin, match="first-sun"):
            resolve_pairs(db.reader, ["BTC/USDT", pair])


def test_a_text_that_two_pairs_share_is_ambiguous(db: Database) -> None:
    assert resolve_each_pair(db.reader, ["BTCUSDT"])[0].slug == "bitcoin"
    with pytest.raises(AmbiguousCoin, match="with a slash"):
        resolve_each_pair(db.reader, ["BTCBUSD"])[0]
    assert split_pair("BTCBUSD") == ["BTCB", "BTC"]
    assert resolve_each_pair(db.reader, ["BTC/BUSD"])[0].slug == "bitcoin"
