"""Single values in canonical form, in Python and as macros of DuckDB: texts, lists, coins.

Most macros are statements in `sql/`. Those of the impact bands are built here from the edges in
the contract, the only place that declares them. Does not belong here: rows (json_rows).
"""

import math
from collections.abc import Iterable, Sequence
from typing import Any, Final

import duckdb
import msgspec

from catalog.contract.constants import IMPACT_BANDS
from warehouse import bounds
from warehouse.schema.columns import GROUPS
from warehouse.sql import Statements

_SQL = Statements(__package__, GROUPS)

WHITE: Final = " \t\n\r\v\f"
_INTEGER_BITS: Final = 63


class BadRow(Exception):
    """A row that can't be stored; the message is the reason. Normalisation always handles it."""


def clean(text: str) -> str | None:
    """Return a text with LF line ends and no surrounding white space; None if it is empty."""
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return text.strip(WHITE) or None


def text_of(value: Any, name: str) -> str | None:
    """Return a value as a clean text.

    Raises:
        BadRow: an object or an array.
    """
    if type(value) is str:
        return clean(value)
    if value is None:
        return None
    if isinstance(value, dict | list):
        raise BadRow(f"{name}: expected a text, got {shown_raw(value)}")
    return ("false", "true")[value] if isinstance(value, bool) else clean(str(value))


def set_of(texts: Iterable[str | None]) -> list[str]:
    """Return clean texts as a set: without empty ones, distinct, sorted as UTF-8."""
    known = {text for text in texts if text is not None}
    # Code points sort in the same order as UTF-8 bytes, which is DuckDB's order.
    return sorted(known) if len(known) > 1 else list(known)


def names_of(value: Any, name: str) -> list[str]:
    """Return a list of names: texts, or objects with a name (or an id).

    Raises:
        BadRow: it is not such a list.
    """
    return set_of([_name_of(element, name) for element in _listed(value, name)])


def coins_of(value: Any, name: str) -> tuple[list[str], list[dict[str, str | None]] | None]:
    """Return the slugs of linked coins, and their labels if the list has any.

    Raises:
        BadRow: it is not a list of coins.
    """
    slugs, labels = list[str | None](), dict[str, dict[str, str | None]]()
    listed = _listed(value, name)
    for coin in listed:
        if not isinstance(coin, dict):
            slugs.append(text_of(coin, name))
            continue
        slug = text_of(coin.get("slug"), name)
        if slug is None:
            raise BadRow(f"{name}: expected a slug in each coin, got {shown_raw(coin)}")
        slugs.append(slug)
        labels[slug] = {
            "slug": slug,
            "symbol": text_of(coin.get("symbol"), name),
            "name": text_of(coin.get("name"), name),
        }
    known = [labels[slug] for slug in sorted(labels)] if labels or not listed else None
    return set_of(slugs), known


def storable(value: Any) -> Any:
    """Return a value that JSON can hold: infinite numbers and those over 64 bits become text."""
    if isinstance(value, dict):
        return {key: storable(element) for key, element in value.items()}
    if isinstance(value, list):
        return [storable(element) for element in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if type(value) is int and value.bit_length() > _INTEGER_BITS:
        return str(float(value)) if value.bit_length() < 1_000 else "inf"
    return value


def storable_text(text: str) -> str:
    """Return a text that can be stored: other characters are replaced by escapes."""
    if "\0" in text:
        text = text.replace("\0", "\u2400")
    return text.encode("utf-8", "backslashreplace").decode()


def holds_nul(value: Any) -> bool:
    if isinstance(value, dict):
        return any(holds_nul(key) or holds_nul(element) for key, element in value.items())
    if isinstance(value, list):
        return any(map(holds_nul, value))
    return isinstance(value, str) and "\0" in value


def raw_text(value: Any) -> str:
    """Return any row as JSON text for people to read."""
    try:
        return msgspec.json.encode(value).decode()
    except (ValueError, TypeError, OverflowError, RecursionError):
        return ascii_text(value)


def ascii_text(value: Any) -> str:
    try:
        return ascii(value)
    except RecursionError:
        return "(nested too deep to show)"


def shown_raw(value: Any) -> str:
    return f"'{raw_text(value)[:80]}'"


def _listed(value: Any, name: str) -> list[Any]:
    if isinstance(value, str):
        value = value.split(";")
    if isinstance(value, list):
        if len(value) > bounds.COINS:
            raise BadRow(f"{name}: expected at most {bounds.COINS}, got {len(value)}")
        return value
    if value is None:
        return []
    raise BadRow(f"{name}: expected a list, got {shown_raw(value)}")


def _name_of(element: Any, name: str) -> str | None:
    if isinstance(element, dict):
        return text_of(element.get("name", element.get("id", element.get("slug"))), name)
    return text_of(element, name)


_FILES: Final = ("clean", "instant", "list", "is_doubtful", "expected")


def define_macros(connection: duckdb.DuckDBPyConnection) -> None:
    """Define the macros on a connection."""
    for name in _FILES:
        connection.execute(_SQL[f"define_{name}"])
    connection.execute(band_of_macro(IMPACT_BANDS))
    connection.execute(band_named_macro(IMPACT_BANDS))


def band_of_macro(bands: Sequence[tuple[float, str]]) -> str:
    """Return the macro of one score, NULL for NULL, from the exclusive upper edges."""
    cases = [
        f"WHEN score IS NOT NULL THEN {_literal(name)}"
        if math.isinf(edge)
        else f"WHEN score < {float(edge)!r} THEN {_literal(name)}"
        for edge, name in bands
    ]
    return _macro("almanac_band_of(score)", "CASE", cases)


def band_named_macro(bands: Sequence[tuple[float, str]]) -> str:
    """Return the macro of one text, which gives a band in its own spelling, or NULL."""
    cases = [f"WHEN {_literal(name.lower())} THEN {_literal(name)}" for _, name in bands]
    return _macro("almanac_band_named(given)", "CASE lower(given)", cases)


def _macro(signature: str, head: str, cases: Sequence[str]) -> str:
    lines = [f"CREATE OR REPLACE TEMP MACRO {signature} AS", head, *cases, "END"]
    return "\n".join(lines)


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
