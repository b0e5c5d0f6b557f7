"""The coins that the names in prices, events and arguments of a study stand for.

Belongs here: names that no coin has, and tickers of several coins, which do not stop a study. Does
not: what a slug, a ticker or a pair is (almanac.coins, almanac.pairs).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from almanac.coins import Coin
from almanac.errors import InvalidArgument
from almanac.events import Coins
from almanac.pairs import find_pairs, pair_in_words, resolve_each_pair
from almanac.reader import Reader

NamedCoins = Mapping[str, str | Coin]
"""The coin of a name in the data, as the caller says."""


@dataclass(frozen=True, slots=True)
class CoinNames:
    """What names stand for.

    Attributes:
        slugs: the slug of each name that is one coin.
        unknown: the names that no coin has.
        ambiguous: the names that several coins have, each with what it may be.
    """

    slugs: dict[str, str]
    unknown: tuple[str, ...]
    ambiguous: dict[str, str]


def name_coins(reader: Reader, names: Iterable[str], said: NamedCoins) -> CoinNames:
    """Return the coins of names: what the caller says, else slugs, tickers, names or pairs.

    Raises:
        AmbiguousCoin, UnknownName: what the caller says is not one coin.
    """
    texts = list(dict.fromkeys(names))
    found = find_pairs(reader, texts, said)
    return CoinNames(
        slugs={text: coins[0].slug for text, coins in found.items() if len(coins) == 1},
        unknown=tuple(text for text in texts if text not in found),
        ambiguous={
            text: pair_in_words(text, coins) for text, coins in found.items() if len(coins) > 1
        },
    )


def said_coins(coins: Coins | None) -> NamedCoins:
    """Return what an argument says of names in the data: a mapping, or coins under their slugs."""
    if isinstance(coins, Mapping):
        return {str(name): coin for name, coin in coins.items()}
    return {coin.slug: coin for coin in listed_coins(coins) or () if isinstance(coin, Coin)}


def listed_coins(coins: Coins | None) -> list[str | Coin] | None:
    """Return the coins that an argument selects; a mapping names coins and selects none."""
    if coins is None or isinstance(coins, Mapping):
        return None
    return [coins] if isinstance(coins, str | Coin) else list(coins)


def selected_slugs(reader: Reader, coins: Coins | None) -> list[str] | None:
    """Return the slugs of the coins that an argument selects, None if it selects every coin.

    Raises:
        AmbiguousCoin, UnknownName, InvalidArgument: a coin is not one.
    """
    wanted = listed_coins(coins)
    return None if wanted is None else [coin.slug for coin in resolve_each_pair(reader, wanted)]


def refuse_same_coin(reader: Reader, coin: str, beside: Sequence[str], said: NamedCoins) -> None:
    """Refuse bars of one coin beside a column of the same coin.

    Raises:
        InvalidArgument: there is one.
    """
    of = name_coins(reader, (coin, *beside), said).slugs
    same = [name for name in beside if name in of and of[name] == of.get(coin)]
    if same:
        raise InvalidArgument(
            f"prices: the column {same[0]!r} and the bars beside it may both be prices of {coin}; "
            "keep one of them"
        )
