"""The braces that a statement may have after its expansion."""

import re
from typing import Final

_MARK: Final = re.compile(r"@\w*")
_QUOTED_OR_COMMENT: Final = re.compile(r"--[^\n]*|'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"")
_BRACE: Final = re.compile(r"\{(?!''|\s+''|\w+: )(?:(\w+)\})?")
"""A brace that does not open a DuckDB literal, and the word of a placeholder."""
_PLACEHOLDERS: Final = re.compile(r"^-- Placeholders: (\w+(?:, \w+)*)\.$", re.MULTILINE)


def wrong_braces(text: str) -> str:
    """Return what is wrong with marks and braces outside of strings, empty if nothing is.

    Permitted are those of literals, and of placeholders that the header names.
    """
    stated = _PLACEHOLDERS.search(text)
    named = set(stated[1].split(", ")) if stated else set()
    code = _QUOTED_OR_COMMENT.sub(lambda found: "" if found[0][:2] == "--" else "''", text)
    if (mark := _MARK.search(code)) is not None:
        return f"{mark[0]} is outside an expansion"
    met = set()
    for brace in _BRACE.finditer(code):
        if brace[1] is None:
            return f"{code[brace.start() :][:40]!r} is neither an expansion nor a placeholder"
        met.add(brace[1])
    if met != named:
        return f"its header names the placeholders {sorted(named)}, and it has {sorted(met)}"
    return ""
