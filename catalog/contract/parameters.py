"""The parameters of the interface, declared once for the reader and the document (section 4).

The query string is read strictly: a known parameter of the wrong form is an error, an unknown
parameter is ignored, and named in the response.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time
from difflib import SequenceMatcher
from typing import Any, Final, Literal
from urllib.parse import parse_qsl, unquote_plus

from catalog.contract import constants
from catalog.contract.errors import InvalidParameter
from catalog.contract.plans import day_end

SortBy = Literal["date_asc", "impact_desc"]
SORT_BY: Final[tuple[SortBy, ...]] = ("date_asc", "impact_desc")

CURSOR_MAX, SEARCH_MAX = constants.CURSOR_LENGTH_MAX, constants.KEYWORD_LENGTH_MAX
IMPACT_MIN, IMPACT_MAX = constants.IMPACT_MIN, constants.IMPACT_MAX

_INTEGER = re.compile(r"-?[0-9]{1,18}", re.ASCII)
_NUMBER = re.compile(r"-?[0-9]{1,18}(\.[0-9]{1,340})?([eE][+-]?[0-9]{1,3})?", re.ASCII)
DAY_OR_INSTANT: Final = (
    r"^(([0-9]{3}[1-9]|[0-9]{2}[1-9]0|[0-9][1-9]00|[1-9]000)"
    r"-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])"
    r"|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-8]))"
    r"|([0-9]{2}(0[48]|[2468][048]|[13579][26])|(0[48]|[2468][048]|[13579][26])00)-02-29)"
    r"(T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,9})?(Z|[+-]00:00))?$"
)
"""The days of the calendar from 0001 to 9999 and no others, each with or without a time in UTC."""
_DAY_OR_INSTANT = re.compile(DAY_OR_INSTANT)


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter. `read` returns the value of a text, None if the text has a wrong form."""

    name: str
    description: str
    schema: Mapping[str, Any]
    form: str = ""
    """The form, after "must" in the message of the error."""
    read: Callable[[str], Any] = str
    example: object = None
    default: object = None
    field: str = ""
    """The field of the request that has the value, if it has another name."""
    place: Literal["query", "path", "header"] = "query"

    def value(self, text: str | None) -> Any:
        """Return the value of a text, or the default.

        Raises:
            InvalidParameter: the text has a wrong form.
        """
        if text is None:
            return self.default
        value = self.read(text)
        if value is None:
            raise InvalidParameter(f"{self.name} must {self.form}")
        return value


def _text(name: str, description: str, length_max: int, example: object = None) -> Parameter:
    schema = {"type": "string", "minLength": 1, "maxLength": length_max}
    form = f"have 1 to {length_max} characters"

    def read(text: str) -> str | None:
        return text if 1 <= len(text) <= length_max else None

    return Parameter(name, description, schema, form, read, example)


def _limit(description: str, maximum: int) -> Parameter:
    default = constants.LIMIT_DEFAULT
    schema = {"type": "integer", "minimum": 1, "maximum": maximum, "default": default}

    def read(text: str) -> int | None:
        return int(text) if _INTEGER.fullmatch(text) and 1 <= int(text) <= maximum else None

    form = f"be an integer from 1 to {maximum}"
    return Parameter("limit", description, schema, form, read, default, default)


def _names(name: str, description: str, maximum: int, example: str) -> Parameter:
    """Return a list of identifiers; an unknown one is allowed, an empty one is an error."""
    schema = {"type": "string", "pattern": rf"^[^,]+(,[^,]+){{0,{maximum - 1}}}$"}
    form = f"be 1 to {maximum} values, comma-separated"

    def read(text: str) -> tuple[str, ...] | None:
        names = [name.strip() for name in text.split(",")]
        is_valid = "" not in names and len(names) <= maximum
        return tuple(dict.fromkeys(names)) if is_valid else None

    about = f"{description}, 1 to {maximum}, separated by commas: events with any of them."
    return Parameter(name, about, schema, form, read, example)


def _instant(name: str, description: str, example: str) -> Parameter:
    schema = {"$ref": "#/components/schemas/DayOrInstant"}
    form = "be YYYY-MM-DD or an RFC 3339 instant in UTC"
    return Parameter(name, description, schema, form, _read_instant, example)


def _read_instant(text: str, *, end_of_day: bool = False) -> datetime | None:
    if not _DAY_OR_INSTANT.fullmatch(text):
        return None
    if "T" in text:
        return datetime.fromisoformat(text.replace("-00:00", "+00:00")).astimezone(UTC)
    day = date.fromisoformat(text)
    return day_end(day) if end_of_day else datetime.combine(day, time(tzinfo=UTC))


def _read_score(text: str) -> float | None:
    is_number = _NUMBER.fullmatch(text)
    return float(text) if is_number and IMPACT_MIN <= float(text) <= IMPACT_MAX else None


_CURSOR = _text("cursor", "`meta.cursor` of the previous page, with the same filters.", CURSOR_MAX)
_RECORDS_LIMIT = _limit("Records per page.", constants.EVENTS_LIMIT_MAX)
_FROM = _instant("from", "First date; by default today, for the export all.", "2026-10-01")
_TO = _instant("to", "Last date; a day runs to its end. By default all.", "2026-10-31")
_SINCE = _instant("since", "First `cancelledAt`; by default 90 days ago.", "2026-09-01T00:00:00Z")

# fmt: off
_TRACKED = Parameter(
    "tracked", "True for coins that the editorial team monitors, false for the others.",
    {"type": "boolean"}, "be true or false", {"true": True, "false": False}.get, example=True)
_IMPACT_MIN = Parameter(
    "impactMin", "Lowest impact score, inclusive. Events without a score do not match.",
    {"type": "number", "minimum": IMPACT_MIN, "maximum": IMPACT_MAX},
    f"be a number from {IMPACT_MIN:g} to {IMPACT_MAX:g}", _read_score,
    example=constants.IMPACT_MAJOR, field="impact_min")
_SORT_BY = Parameter(
    "sortBy", "`date_asc` is by date; `impact_desc` is by impact score, highest first.",
    {"type": "string", "enum": list(SORT_BY), "default": SORT_BY[0]},
    f"be one of {', '.join(SORT_BY)}", lambda text: text if text in SORT_BY else None,
    example=SORT_BY[0], default=SORT_BY[0], field="sort_by")
# fmt: on

COINS_PARAMETERS: Final = (
    _text("q", "Text anywhere in name or symbol, in any case.", SEARCH_MAX, "bit"),
    _TRACKED,
    _limit("Coins per page.", constants.COINS_LIMIT_MAX),
    _CURSOR,
)
EXPORT_PARAMETERS: Final = (
    _names("coins", "Slugs of coins", constants.COIN_SLUGS_MAX, "bitcoin,ethereum"),
    _names("categories", "Ids of categories", constants.CATEGORY_IDS_MAX, "upgrade,mainnet"),
    replace(_FROM, field="lower"),
    replace(_TO, field="upper", read=lambda text: _read_instant(text, end_of_day=True)),
    _text("keyword", "Text in title or description, where shown; any case.", SEARCH_MAX, "upgrade"),
    _IMPACT_MIN,
    _SORT_BY,
)
EVENTS_PARAMETERS: Final = (*EXPORT_PARAMETERS, _RECORDS_LIMIT, _CURSOR)
CANCELLATIONS_PARAMETERS: Final = (_SINCE, _RECORDS_LIMIT, _CURSOR)

QUERY_PARAMETERS: Final[Mapping[str, tuple[Parameter, ...]]] = {
    constants.COINS_PATH: COINS_PARAMETERS,
    constants.EVENTS_PATH: EVENTS_PARAMETERS,
    constants.EXPORT_PATH: EXPORT_PARAMETERS,
    constants.CANCELLATIONS_PATH: CANCELLATIONS_PARAMETERS,
}
"""The parameters of a path; other paths have none."""

AS_OF: Final = _instant("as_of", "Extension: the answer as known at this time.", "2026-10-01")
AS_OF_HEADER: Final = replace(
    AS_OF, name="X-As-Of", description="Extension: the same as `as_of`.", place="header"
)
_AFTER = _instant("since", "Only changes known after this time; by default all.", "2026-10-01")
CHANGES_PARAMETERS: Final = (_AFTER, _RECORDS_LIMIT, _CURSOR)
"""Additions of a mirror: no part of the interface."""

# fmt: off
COIN_SLUG: Final = Parameter(
    "slug", "The coin's slug.", {"type": "string", "pattern": "^[a-z0-9_~-][a-z0-9._~-]*$"},
    example="bitcoin", place="path")
EVENT_ID: Final = Parameter(
    "id", "The event's id.", {"type": "string", "minLength": 1}, example="evt_7c1e09", place="path")
IF_NONE_MATCH: Final = Parameter(
    "If-None-Match", "The `ETag` of an earlier response: 304 if it is still valid.",
    {"type": "string"}, example='"5f2b1c"', place="header")
IF_MODIFIED_SINCE: Final = Parameter(
    "If-Modified-Since", "The `Last-Modified` of an earlier export: 304 if it is the newest.",
    {"type": "string"}, example="Thu, 01 Oct 2026 00:05:00 GMT", place="header")
# fmt: on


def read_query(query: str, parameters: Iterable[Parameter]) -> dict[str, Any]:
    """Return the values of a query string, by request field.

    Raises:
        InvalidParameter: a parameter has a wrong form or was given twice.
    """
    known = {parameter.name: parameter for parameter in parameters}
    texts: dict[str, str] = {}
    # As parse_qsl reads it, in a third of the time.
    for pair in query.split("&"):
        name, _, text = pair.partition("=")
        if "%" in pair or "+" in pair:
            name, text = unquote_plus(name), unquote_plus(text)
        if name in texts:
            raise InvalidParameter(f"{name} was given more than once; give it once")
        if name in known:
            texts[name] = text
    return {each.field or each.name: each.value(texts.get(each.name)) for each in known.values()}


_RESEMBLES: Final = 0.75
_SHOWN_MAX: Final = 60


def list_ignored(path: str, query: str, extensions: Iterable[Parameter] = ()) -> list[str]:
    """Return the names in a query string that a path ignores, each once.

    Raises:
        InvalidParameter: a name resembles one of the extensions, whose answer would differ.
    """
    extended = [parameter.name for parameter in extensions]
    known = {parameter.name for parameter in QUERY_PARAMETERS.get(path, ())}.union(extended)
    given = dict.fromkeys(name for name, _ in parse_qsl(query, keep_blank_values=True))
    ignored = [name for name in given if name not in known]
    for name in ignored:
        for meant in extended:
            if resembles(name, meant):
                shown = ascii(name[:_SHOWN_MAX])
                raise InvalidParameter(f"{shown} is not a parameter of this path; write {meant}")
    return ignored


def resembles(name: str, meant: str) -> bool:
    """Whether a name is probably a misspelt one."""
    letters, whole = (re.sub("[^a-z]", "", text.lower()) for text in (name, meant))
    return whole in letters or SequenceMatcher(None, letters, whole).ratio() >= _RESEMBLES
