"""Macros of DuckDB that the statements of normalisation use.

Most are files in `sql/`. Those of the impact bands are built here from the contract's edges, so
that these stand in one place. Belongs here: how macros come into a connection.
"""

import math
from collections.abc import Sequence
from typing import Final

import duckdb

from catalog.contract.decisions import IMPACT_BANDS
from warehouse.statements import statement

_FILES: Final = ("clean", "instant", "list", "met")


def define_macros(connection: duckdb.DuckDBPyConnection) -> None:
    """Give a connection the macros."""
    for name in _FILES:
        connection.execute(statement(f"normalise_define_{name}"))
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
