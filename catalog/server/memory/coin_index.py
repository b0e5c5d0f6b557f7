"""The coins of one rank sync, in the order of the coins list, with their search text."""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import accumulate

from catalog.server.store import CoinKey, CoinQuery, CoinSlice, StoredCoin, coin_key

_BETWEEN = "\n"
"""Prevents a search from matching across the end of a name or of a coin."""


class CoinBook:
    """Coins that never change: ranks change only at a sync, which makes a new book."""

    def __init__(self, coins: Iterable[StoredCoin]) -> None:
        self.coins = sorted(coins, key=coin_key)
        self._keys = [coin_key(coin) for coin in self.coins]
        self._by_slug = {coin.slug: coin for coin in self.coins}
        self._tops: dict[int, frozenset[str]] = {}

    @cached_property
    def _text(self) -> tuple[str, list[int], Sequence[int]]:
        """All names and symbols as one text, the start of each coin, the coin of each letter."""
        texts = [f"{coin.name}{_BETWEEN}{coin.symbol}{_BETWEEN}".casefold() for coin in self.coins]
        owners = array("I")
        for place, text in enumerate(texts):
            owners.extend([place] * len(text))
        return "".join(texts), [0, *accumulate(map(len, texts))], owners

    def get(self, slug: str) -> StoredCoin | None:
        return self._by_slug.get(slug)

    def top(self, count: int) -> frozenset[str]:
        """Return the slugs whose rank is at most `count`."""
        if count not in self._tops:
            last = bisect_left(self._keys, (count + 1, ""))
            self._tops[count] = frozenset(coin.slug for coin in self.coins[:last])
        return self._tops[count]

    def page(self, query: CoinQuery, *, after: CoinKey | None, limit: int) -> CoinSlice:
        last = len(self.coins)
        if query.coverage_top is not None:
            last = bisect_left(self._keys, (query.coverage_top + 1, ""))
        first = 0 if after is None else bisect_right(self._keys, after)
        if query.q is None and query.tracked is None:
            chosen = self.coins[first : min(last, first + limit + 1)]
            return CoinSlice(chosen[:limit], more=len(chosen) > limit, total=last)
        found = self._search(query, last)
        start = bisect_left(found, first)
        page = [self.coins[place] for place in found[start : start + limit]]
        return CoinSlice(page, more=len(found) > start + limit, total=len(found))

    def _search(self, query: CoinQuery, last: int) -> list[int]:
        coins, tracked = self.coins, query.tracked
        found = range(last) if query.q is None else self._mentioning(query.q, last)
        if tracked is None:
            return list(found)
        return [place for place in found if coins[place].tracked is tracked]

    def _mentioning(self, q: str, last: int) -> list[int]:
        """Go from hit to hit, and from a hit to the next coin: most coins are skipped."""
        if _BETWEEN in q:
            return []
        text, starts, owners = self._text
        found: list[int] = []
        find, end = text.find, starts[last]
        hit = find(q, 0, end)
        while hit >= 0:
            place = owners[hit]
            found.append(place)
            hit = find(q, starts[place + 1], end)
        return found
