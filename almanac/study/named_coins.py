"""The coins that the names in prices, events and arguments of a study stand for.

Belongs here: names that no coin has, and tickers of several coins, which do not stop a study. Does
not: what a slug, a ticker or a pair is (almanac.coins, almanac.pairs).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from almanac.coins import Coin
from almanac.errors import AmbiguousCoin, InvalidArgument
from almanac.events import Coins
from almanac.pairs import named_label, resolve_each_pair, resolve_pairs
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
    slugs, ambiguous = _resolved(reader, texts, said)
    unknown = tuple(text for text in texts if text not in slugs and text not in ambiguous)
    return CoinNames(slugs, unknown, ambiguous)


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


def _resolved(
    reader: Reader, texts: list[str], said: NamedCoins
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the slug of each text that is a coin, and the message of each that is several."""
    try:
        found = resolve_pairs(reader, texts, said)
        return {text: coin.slug for text, coin in found.items()}, {}
    except AmbiguousCoin as error:
        if len(texts) == 1:
            if named_label(texts[0], said) is not None:
                raise  # The caller names it, and with a ticker of several coins.
            return {}, {texts[0]: str(error)}
    # Halving finds the few texts that are ambiguous with few queries.
    middle = len(texts) // 2
    first, other = (_resolved(reader, part, said) for part in (texts[:middle], texts[middle:]))
    return first[0] | other[0], first[1] | other[1]
