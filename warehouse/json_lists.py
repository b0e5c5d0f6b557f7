"""Coins and categories as JSON has them, made ready to be stored.

Belongs here: the fields of a coin and of a category. Does not: pages (json_feeds.py).
"""

import math
from typing import Any, Final

from catalog.contract.plans import Plan
from warehouse.cells import BadRow, shown_raw, text_of
from warehouse.json_rows import extra_of

_COIN_KEYS: Final = frozenset(
    {
        *("slug", "symbol", "name", "rank", "tracked", "iconUrl"),
        *("upcomingCount", "majorCount", "peakImpact"),
    }
)
_CATEGORY_KEYS: Final = frozenset({"id", "name"})
_INTEGER_MAX: Final = 2**31 - 1


class CoinRows:
    """Makes rows of coins, as a plan shows them."""

    def __init__(self, plan: Plan) -> None:
        self._counters = plan.score_counters

    def row(self, coin: Any, position: int) -> dict[str, Any]:
        """Raises BadRow: no slug, or a value of another type."""
        known = _object(coin)
        return {
            "position": position,
            "slug": _required(known, "slug"),
            "symbol": text_of(known.get("symbol"), "symbol"),
            "name": text_of(known.get("name"), "name"),
            "rank": _whole(known, "rank"),
            "tracked": _truth(known, "tracked"),
            "icon_url": text_of(known.get("iconUrl"), "iconUrl"),
            "upcoming_count": _whole(known, "upcomingCount"),
            "major_count": _whole(known, "majorCount") if self._counters else None,
            "peak_impact": _number(known, "peakImpact") if self._counters else None,
            "extra": _extra(known, _COIN_KEYS),
        }


def category_row(category: Any, position: int) -> dict[str, Any]:
    """Return the row of a category; a numeric id becomes text.

    Raises:
        BadRow: no object, or one without an id.
    """
    known = _object(category)
    return {
        "position": position,
        "id": _required(known, "id"),
        "name": text_of(known.get("name"), "name"),
        "extra": _extra(known, _CATEGORY_KEYS),
    }


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise BadRow(f"expected an object, met {shown_raw(value)}")
    return value


def _required(row: dict[str, Any], key: str) -> str:
    text = text_of(row.get(key), key)
    if text is None:
        raise BadRow(f"{key}: expected a text, met nothing")
    return text


def _number(row: dict[str, Any], key: str) -> float | None:
    text = text_of(row.get(key), key)
    if text is None:
        return None
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise BadRow(f"{key}: expected a number, met {shown_raw(text)}")
    return number


def _whole(row: dict[str, Any], key: str) -> int | None:
    number = _number(row, key)
    if number is None:
        return None
    if not number.is_integer() or abs(number) > _INTEGER_MAX:
        raise BadRow(f"{key}: expected a whole number, met {shown_raw(row[key])}")
    return int(number)


def _truth(row: dict[str, Any], key: str) -> bool | None:
    text = text_of(row.get(key), key)
    if text is None:
        return None
    if text.lower() in ("true", "1", "yes"):
        return True
    if text.lower() in ("false", "0", "no"):
        return False
    raise BadRow(f"{key}: expected true or false, met {shown_raw(text)}")


def _extra(row: dict[str, Any], known: frozenset[str]) -> str | None:
    keys = tuple(key for key in row if key not in known)
    return extra_of(row, keys) if keys else None
