"""Columns with other names: those of `attach_known` and `features`, and lookalikes of fields.

Belongs here: names. Does not: reading the columns (signals).
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final

from almanac.audit.fields import COIN, EVENT, JUDGED
from almanac.errors import InvalidArgument
from almanac.user_files.column_names import plain_name

NEXT_EVENT: Final = "next_event_id"
_WRITTEN: Final = {
    NEXT_EVENT: EVENT,
    "next_event_title": "title",
    "next_event_date": "date",
    "next_event_precision": "date_precision",
    "next_event_categories": "categories",
    "next_event_impact": "impact",
    "next_event_band": "impact_band",
    "next_event_known_from": "known_from",
    "days_until": "days_until",
}
"""What the package writes, and is judged."""
_NOT_JUDGED: Final = ("nexteventagedays", "eventsahead", "watched")
"""What it writes besides, as `plain_name` gives it."""
_KNOWN_AT: Final = "known_at"
_SYMBOL: Final = "symbol"
_LOOKALIKES: Final = (
    (r"days|lead|dte|tte|time_(to|until)|countdown", "days_until"),
    (r"(end|ends|finish)(_(date|at|time))?|date_to|until", "date_end"),
    (r"cancell?(ed|ation)_(at|on|date|time)", "cancelled_at"),
    (r"created|announced(_(at|on|date))?", "created_at"),
    (
        r"date|day|exit|expiry|expiration|unlock|deadline|starts?|begins?|due|scheduled_(for|at)"
        r"|event_(at|on|ts|time|timestamp)|exit_(at|ts|time)",
        "date",
    ),
    (r"precision", "date_precision"),
    (r"score|impact|importance|significance|rating", "impact"),
    (r"band", "impact_band"),
    (r"status|state|cancell?ed|postponed|withdrawn", "status"),
    (r"title|name|headline", "title"),
    (r"category|type|kind", "category"),
    (r"categories|tags?", "categories"),
    (r"description|summary|text", "description"),
    (r"url|link|source", "source_url"),
    (r"coin|symbol|ticker|asset|pair|slug", COIN),
    (r"id", EVENT),
)


def written_columns(names: list[str], given: Mapping[str, str | None]) -> dict[str, str]:
    """Return the field of each column that `attach_known` or `features` wrote, with its prefix.

    Empty if the rows name their events in another way.

    Raises:
        InvalidArgument: several prefixes are there.
    """
    by_letters = {plain_name(name): name for name in names}
    named = [plain_name(column) for column, field in given.items() if field == EVENT]
    ends = [name for name in by_letters if name.endswith(plain_name(NEXT_EVENT))]
    if named:
        ends = [name for name in ends if name in named]
    elif plain_name(EVENT) in by_letters:
        return {}
    if len(ends) > 1:
        listed = [by_letters[name] for name in ends]
        raise InvalidArgument(
            f"several columns may be the event: {', '.join(map(repr, listed))}. Name one: "
            f"fields={{{listed[0]!r}: 'event_id'}}, or --field {listed[0]}=event_id"
        )
    if not ends:
        return {}
    prefix = ends[0].removesuffix(plain_name(NEXT_EVENT))
    fields = {prefix + plain_name(column): field for column, field in _WRITTEN.items()}
    if plain_name(_KNOWN_AT) in by_letters and COIN not in by_letters:
        fields[_SYMBOL] = COIN
    return {
        by_letters[name]: field
        for name, field in fields.items()
        if name in by_letters and by_letters[name] not in given and field not in given.values()
    }


def written_decision(names: list[str]) -> str | None:
    """Return the column of `features` with the instant whose knowledge a row has, if there is one.

    `ts` is the opening of the bar there, which may be earlier.
    """
    by_letters = {plain_name(name): name for name in names}
    return None if plain_name("decided_at") in by_letters else by_letters.get(plain_name(_KNOWN_AT))


def is_next_event(column: str | None) -> bool:
    """Return whether this is `next_event_id` of `attach_known` or `features`, with any prefix."""
    return column is not None and plain_name(column).endswith(plain_name(NEXT_EVENT))


def is_set(column: str) -> bool:
    """Whether each value of a column is a whole set of categories, as the package writes it."""
    return plain_name(column).endswith(plain_name("next_event_categories"))


def suggested_fields(ignored: Iterable[str]) -> dict[str, str]:
    """Return the field that the name of a column suggests, for columns that were not judged."""
    found = {}
    for column in ignored:
        if plain_name(column).endswith(_NOT_JUDGED):
            continue
        name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", column.strip())
        name = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")
        for pattern, field in _LOOKALIKES:
            if re.search(rf"(^|_)({pattern})(_|$)", name):
                found[column] = field
                break
        else:
            stripped = name.rpartition("next_event_")[2]
            if stripped in JUDGED:
                found[column] = stripped
    return found
