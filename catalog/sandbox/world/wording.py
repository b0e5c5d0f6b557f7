"""The texts of events: titles by category, descriptions, impact summaries, addresses.

`wording.json` has the texts. Words of WORDS fill their `{…}` slots, drawn with the caller's source
of randomness. Every address is in a domain reserved for examples.
"""

import json
import re
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

from catalog.sandbox.world.coins import ListedCoin

Draw = Callable[[], float]
"""Returns a uniform number in [0, 1)."""

_TEXTS = json.loads(Path(__file__).with_name("wording.json").read_text("utf-8"))
TITLES: dict[str, list[str]] = _TEXTS["titles"]
"""The titles of each category."""
WORDS: dict[str, list[str]] = {slot: words.split(",") for slot, words in _TEXTS["words"].items()}
"""The choices for each slot of a text."""
WORDS["block"] = [str(240_000 + 7_919 * step) for step in range(60)]
_LEADS: list[str] = _TEXTS["leads"]
_MIDDLES: list[str] = _TEXTS["middles"]
_CLOSINGS: list[str] = _TEXTS["closings"]
_SUMMARIES: list[str] = _TEXTS["summaries"]
_BREAKS = (" ", " ", " ", "\n\n", "\n")
_SITES = ("news.example", "blog.example", "forum.example", "social.example", "press.example")
_NOT_URL_SAFE = re.compile(r"[^a-z0-9]+")


class Slots(dict[str, str]):
    """Fills the slots of one event's text: the coin, its symbol, words drawn when needed."""

    def __init__(self, r: Draw, coin: ListedCoin) -> None:
        self["coin"] = coin.name
        self["symbol"] = coin.symbol.upper()
        self.r = r

    def __missing__(self, slot: str) -> str:
        words = WORDS[slot]
        return words[int(self.r() * len(words))]


def title(r: Draw, slots: Slots, category_id: str) -> str:
    """Return a title under a category."""
    titles = TITLES[category_id]
    return titles[int(r() * len(titles))].format_map(slots)


def description(r: Draw, slots: Slots, title: str) -> str | None:
    """Return one to four sentences, often on several lines; None for one event in eight."""
    length = r()
    if length < 0.125:
        return None
    slots["title"] = title
    text = _LEADS[int(r() * len(_LEADS))]
    if length > 0.3:
        text += _BREAKS[int(r() * len(_BREAKS))] + _MIDDLES[int(r() * len(_MIDDLES))]
    if length > 0.65:
        text += _BREAKS[int(r() * len(_BREAKS))] + _CLOSINGS[int(r() * len(_CLOSINGS))]
    return text.format_map(slots)


def impact_summary(r: Draw, slots: Slots) -> str | None:
    """Return why the event may matter; None for one event in five."""
    if r() < 0.2:
        return None
    return _SUMMARIES[int(r() * len(_SUMMARIES))].format_map(slots)


def source_url(r: Draw, coin: ListedCoin) -> str | None:
    """Return the address of an announcement; None for one event in twenty."""
    if r() < 0.05:
        return None
    site = _SITES[int(r() * len(_SITES))]
    return f"https://{site}/{coin.slug}/{int(r() * 10_000_000)}"


def snapshot_url(r: Draw, event_id: str) -> str | None:
    """Return the address of a picture of the announcement; None for one event in ten."""
    return f"https://snapshots.example/{event_id}/{int(r() * 1000)}.png" if r() > 0.1 else None


def event_slug(title: str, event_id: str) -> str:
    """Return the title made URL-safe, with the first six digits of the id."""
    return f"{_url_safe(title)}-{event_id[:6]}"


@lru_cache(maxsize=8192)
def _url_safe(title: str) -> str:
    return _NOT_URL_SAFE.sub("-", title.lower()).strip("-") or "event"
