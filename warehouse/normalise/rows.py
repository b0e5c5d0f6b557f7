"""Values and records in canonical form: texts, lists, coins, and one flat row per record.

Python makes the rows of JSON; macros of DuckDB make the rows of CSV. Most macros are statements in
`sql/`; the macros of the impact bands are built here from the edges in the contract.
"""

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import duckdb
import msgspec

from almanac.core.statements import Statements, quoted_text
from catalog.contract.bodies import fold
from catalog.contract.constants import IMPACT_BANDS
from catalog.contract.plans import Plan
from warehouse import size_limits
from warehouse.codecs import raw_text
from warehouse.schema.columns import BIT, GROUPS, WIRE

_SQL = Statements(__package__, GROUPS)

WHITE: Final = " \t\n\r\v\f"
_FILES: Final = ("clean", "instant", "set", "json_texts", "list")
_ENCODER: Final = msgspec.json.Encoder(order="sorted")
_ESCAPE: Final = re.compile(r"\\(?:u[0-9a-f]{4}|.)")
_STRUCTURE: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]')
_TOO_DEEP: Final = f"nested deeper than {size_limits.DEPTH}"
_KEPT_CHARS: Final = 10_000
"""The layout of keys that are longer than this together is not cached."""
_LISTS: Final = frozenset({"categories", "coins"})
_IMPACT: Final = BIT["impact"] | BIT["impact_band"]
_OWN_KEYS: Final = frozenset({"id", "cancelledAt"})
_COIN_KEYS: Final = frozenset(
    {
        *("slug", "symbol", "name", "rank", "tracked", "iconUrl"),
        *("upcomingCount", "majorCount", "peakImpact"),
    }
)
_CATEGORY_KEYS: Final = frozenset({"id", "name"})
_INTEGER_MAX: Final = 2**31 - 1


class BadRow(Exception):
    """A row that can't be stored; the message is the reason. Normalisation always handles it."""


def clean(text: str) -> str | None:
    """Return a text with LF line ends and no surrounding white space; None if it is empty."""
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return text.strip(WHITE) or None


def read_text(value: Any, name: str) -> str | None:
    """Return a value as a clean text. Raises BadRow: an object or an array."""
    if type(value) is str:
        return clean(value)
    if value is None:
        return None
    if isinstance(value, dict | list):
        raise BadRow(f"{name}: expected a text, got {quote_raw(value)}")
    return ("false", "true")[value] if isinstance(value, bool) else clean(str(value))


def make_set(texts: Iterable[str | None]) -> list[str]:
    """Return clean texts as a set: without empty ones, distinct, sorted as UTF-8."""
    known = {text for text in texts if text is not None}
    # Code points sort in the same order as UTF-8 bytes, which is DuckDB's order.
    return sorted(known) if len(known) > 1 else list(known)


def read_names(value: Any, name: str) -> list[str]:
    """Return a list of names: texts, or objects with a name (or an id)."""
    return make_set([_name_of(element, name) for element in _listed(value, name)])


def read_coins(value: Any, name: str) -> tuple[list[str], list[dict[str, str | None]] | None]:
    """Return the slugs of linked coins, and their labels if the list has any."""
    slugs, labels = list[str | None](), dict[str, dict[str, str | None]]()
    listed = _listed(value, name)
    for coin in listed:
        if not isinstance(coin, dict):
            slugs.append(read_text(coin, name))
            continue
        slug = read_text(coin.get("slug"), name)
        if slug is None:
            raise BadRow(f"{name}: expected a slug in each coin, got {quote_raw(coin)}")
        slugs.append(slug)
        labels[slug] = {
            "slug": slug,
            "symbol": read_text(coin.get("symbol"), name),
            "name": read_text(coin.get("name"), name),
        }
    known = [labels[slug] for slug in sorted(labels)] if labels or not listed else None
    return make_set(slugs), known


def quote_raw(value: Any) -> str:
    return f"'{raw_text(value)[:80]}'"


def _listed(value: Any, name: str) -> list[Any]:
    if isinstance(value, str):
        value = value.split(";")
    if isinstance(value, list):
        if len(value) > size_limits.COINS:
            raise BadRow(f"{name}: expected at most {size_limits.COINS}, got {len(value)}")
        return value
    if value is None:
        return []
    raise BadRow(f"{name}: expected a list, got {quote_raw(value)}")


def _name_of(element: Any, name: str) -> str | None:
    if isinstance(element, dict):
        return read_text(element.get("name", element.get("id", element.get("slug"))), name)
    return read_text(element, name)


def define_macros(connection: duckdb.DuckDBPyConnection) -> None:
    for name in _FILES:
        connection.execute(_SQL[f"define_{name}"])
    connection.execute(define_band_of(IMPACT_BANDS))
    connection.execute(define_band_named(IMPACT_BANDS))


def define_band_of(bands: Sequence[tuple[float, str]]) -> str:
    """Return the macro of one score, NULL for NULL, from the exclusive upper edges."""
    cases = [
        f"WHEN score IS NOT NULL THEN {quoted_text(name)}"
        if math.isinf(edge)
        else f"WHEN score < {float(edge)!r} THEN {quoted_text(name)}"
        for edge, name in bands
    ]
    return _macro("almanac_band_of(score)", "CASE", cases)


def define_band_named(bands: Sequence[tuple[float, str]]) -> str:
    """Return the macro that maps a text to the standard spelling of a band, or to NULL."""
    cases = [f"WHEN {quoted_text(name.lower())} THEN {quoted_text(name)}" for _, name in bands]
    return _macro("almanac_band_named(given)", "CASE lower(given)", cases)


def _macro(signature: str, head: str, cases: Sequence[str]) -> str:
    lines = [f"CREATE OR REPLACE TEMP MACRO {signature} AS", head, *cases, "END"]
    return "\n".join(lines)


COLUMN_OF: Final = {
    **{fold(wire): column for column, wire in WIRE.items()},
    **dict.fromkeys(("id", "eventid"), "event_id"),
}


@dataclass(frozen=True, slots=True)
class RowLayout:
    """The meaning of an object's keys, determined once for all rows with the same keys."""

    id_key: str | None
    texts: tuple[tuple[str, str, str], ...]
    """Key, column and wire name of each shown text."""
    categories: str | None
    coins: str | None
    shown: int
    extras: tuple[str, ...]


class EventRows:
    """Makes rows from events. `visible` has the bits of the fields that the plan shows."""

    def __init__(self, visible: int) -> None:
        self.visible = visible
        self._layouts: dict[tuple[str, ...], RowLayout] = {}

    def row(self, event: Any, position: int) -> dict[str, Any]:
        """Return the row of one event. Raises BadRow: it is not an event that can be stored."""
        if not isinstance(event, dict):
            raise BadRow(f"expected an object, got {quote_raw(event)}")
        if len(event) > size_limits.KEYS:
            raise BadRow(f"expected at most {size_limits.KEYS} fields, got {len(event)}")
        layout = self.layout(tuple(event))
        row: dict[str, Any] = {"place": position, "status": "scheduled", "shown": layout.shown}
        if layout.id_key is not None:
            row["event_id"] = read_text(event[layout.id_key], "id")
        for key, column, wire in layout.texts:
            value = event[key]
            if type(value) is str and "\r" not in value:
                row[column] = value.strip(WHITE) or None
            elif value is not None:
                row[column] = read_text(value, wire)
        if layout.categories is not None:
            row["categories"] = read_names(event[layout.categories], "categories")
        if layout.coins is not None:
            row["coins"], row["coin_names"] = read_coins(event[layout.coins], "coins")
        if layout.extras:
            row["extra"] = encode_extra(event, layout.extras)
        return row

    def layout(self, keys: tuple[str, ...]) -> RowLayout:
        known = self._layouts.get(keys)
        if known is None:
            known = self._layout(keys)
            if sum(map(len, keys)) > _KEPT_CHARS:
                return known
            if len(self._layouts) > 1_000:
                self._layouts.clear()
            self._layouts[keys] = known
        return known

    def _layout(self, keys: tuple[str, ...]) -> RowLayout:
        places, extras = match_columns(keys)
        shown = sum(BIT[name] for name in places if name in BIT and shows(self.visible, name))
        visible = {
            column: key
            for column, key in places.items()
            if column != "event_id" and shows(self.visible, column)
        }
        return RowLayout(
            id_key=places.get("event_id"),
            texts=tuple(
                (key, column, WIRE[column])
                for column, key in visible.items()
                if column not in _LISTS
            ),
            categories=visible.get("categories"),
            coins=visible.get("coins"),
            shown=shown,
            extras=tuple(key for key in extras if key not in _OWN_KEYS),
        )


def shows(visible: int, column: str) -> bool:
    """Whether a plan shows a column; both forms of the impact count as one."""
    bits = _IMPACT if BIT[column] & _IMPACT else BIT[column]
    return bool(visible & bits)


def match_columns(keys: tuple[str, ...]) -> tuple[dict[str, str], list[str]]:
    """Return the key of each column, and the unknown keys.

    If two keys match one column, the one with the exact wire name is used; the other is an extra.
    """
    places: dict[str, str] = {}
    extras: list[str] = []
    for key in keys:
        column = COLUMN_OF.get(fold(key))
        if column is None:
            extras.append(key)
        elif column not in places:
            places[column] = key
        elif key == WIRE.get(column, "id"):
            extras.append(places[column])
            places[column] = key
        else:
            extras.append(key)
    return places, extras


def encode_extra(event: dict[str, Any], keys: tuple[str, ...]) -> str:
    """Return unknown fields as the text of a JSON object, sorted by key."""
    if len(keys) > size_limits.KEYS:
        raise BadRow(f"expected at most {size_limits.KEYS} unknown fields, got {len(keys)}")
    try:
        text = _ENCODER.encode({key: event[key] for key in keys}).decode()
    except UnicodeEncodeError as error:
        raise BadRow("a text is not UTF-8, or has half of a surrogate pair") from error
    except RecursionError:
        raise BadRow(_TOO_DEEP) from None
    if len(text) > size_limits.ROW_BYTES:
        raise BadRow(f"the unknown fields have {len(text)} characters")
    if text.count("[") + text.count("{") > size_limits.DEPTH and _depth(text) > size_limits.DEPTH:
        raise BadRow(_TOO_DEEP)
    # For CSV files DuckDB makes this text, with its escapes in capitals.
    return _ESCAPE.sub(_capital, text) if "\\u" in text else text


def _depth(text: str) -> int:
    """Return the maximum depth of open brackets in a JSON text, those in strings not counted."""
    depth = deepest = 0
    for found in _STRUCTURE.finditer(text):
        token = found[0]
        if token in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif token in "]}":
            depth -= 1
    return deepest


def _capital(escape: re.Match[str]) -> str:
    sequence = escape[0]
    return sequence[:2] + sequence[2:].upper() if sequence[1] == "u" else sequence


class CoinRows:
    """Makes rows from coins, as a plan shows them."""

    def __init__(self, plan: Plan) -> None:
        self._counters = plan.score_counters

    def row(self, coin: Any, position: int) -> dict[str, Any]:
        """Raises BadRow: no slug, or a value of another type."""
        known = _object(coin)
        return {
            "position": position,
            "slug": _required(known, "slug"),
            "symbol": read_text(known.get("symbol"), "symbol"),
            "name": read_text(known.get("name"), "name"),
            "rank": _whole(known, "rank"),
            "tracked": _truth(known, "tracked"),
            "icon_url": read_text(known.get("iconUrl"), "iconUrl"),
            "upcoming_count": _whole(known, "upcomingCount"),
            "major_count": _whole(known, "majorCount") if self._counters else None,
            "peak_impact": _number(known, "peakImpact") if self._counters else None,
            "extra": _extra(known, _COIN_KEYS),
        }


def category_row(category: Any, position: int) -> dict[str, Any]:
    """Return the row of a category; a numeric id becomes text."""
    known = _object(category)
    return {
        "position": position,
        "id": _required(known, "id"),
        "name": read_text(known.get("name"), "name"),
        "extra": _extra(known, _CATEGORY_KEYS),
    }


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise BadRow(f"expected an object, got {quote_raw(value)}")
    return value


def _required(row: dict[str, Any], key: str) -> str:
    text = read_text(row.get(key), key)
    if text is None:
        raise BadRow(f"{key}: expected a text, but it is missing")
    return text


def _number(row: dict[str, Any], key: str) -> float | None:
    text = read_text(row.get(key), key)
    if text is None:
        return None
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise BadRow(f"{key}: expected a number, got {quote_raw(text)}")
    return number


def _whole(row: dict[str, Any], key: str) -> int | None:
    number = _number(row, key)
    if number is None:
        return None
    if not number.is_integer() or abs(number) > _INTEGER_MAX:
        raise BadRow(f"{key}: expected a whole number, got {quote_raw(row[key])}")
    return int(number)


def _truth(row: dict[str, Any], key: str) -> bool | None:
    text = read_text(row.get(key), key)
    if text is None:
        return None
    if text.lower() in ("true", "1", "yes"):
        return True
    if text.lower() in ("false", "0", "no"):
        return False
    raise BadRow(f"{key}: expected true or false, got {quote_raw(text)}")


def _extra(row: dict[str, Any], known: frozenset[str]) -> str | None:
    keys = tuple(key for key in row if key not in known)
    return encode_extra(row, keys) if keys else None
