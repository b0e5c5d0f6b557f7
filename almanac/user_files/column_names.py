"""Names of columns as people write them: `decidedAt`, ` decided_at`, `Decided At`, `DECIDED-AT`.

Belongs here: which column a name means, whatever its case, blanks and marks. Does not: which
columns a door takes (audit, study).
"""

import unicodedata
from collections.abc import Iterable

from almanac.errors import InvalidArgument


def plain_name(name: str) -> str:
    """Return the letters and digits of a name, in lower case; letters of full width are ASCII."""
    text = unicodedata.normalize("NFKC", name).casefold()
    return "".join(letter for letter in text if letter.isalnum())


def column_named(names: Iterable[str], wanted: str, where: str) -> str | None:
    """Return the column that a name means: the very name, else the one that is spelled alike.

    Raises:
        InvalidArgument: several columns are spelled alike.
    """
    listed = list(names)
    if listed.count(wanted) == 1:
        return wanted
    alike = [name for name in listed if plain_name(name) == plain_name(wanted)]
    if len(alike) > 1:
        shown = ", ".join(map(repr, alike))
        raise InvalidArgument(f"{where} has {len(alike)} columns for {wanted}: {shown}. Keep one")
    return alike[0] if alike else None
