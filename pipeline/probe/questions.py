"""The requests of a probe, in the order in which they are sent: the most important first.

A request may need a value of an earlier response, such as the id of an event; `{event_id}` stands
for it. Belongs here: what is requested and why. Does not: sending (inquiry.py), verdicts
(points.py).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal
from urllib.parse import quote, urlencode

from catalog.contract import constants

QuestionKind = Literal["api", "usage", "export", "stranger"]
MOST_REQUESTS: Final = 30
EXPORT_PATHS: Final = (
    constants.EXPORT_PATH,
    "/v2/export",
    "/v2/export/events",
    "/v2/export/events.csv",
    "/v2/events.csv",
)
"""Paths that are tried after the one in the settings and the paths of the OpenAPI document."""
UNKNOWN_ID: Final = "almanac-probe-no-such-event"
_SINGLE_NAMES: Final = ("event_id", "cancelled_id", "coin")


@dataclass(frozen=True, slots=True)
class Question:
    """One request. `answers` is what its response shows. `stranger` sends a key that is unknown."""

    name: str
    path: str
    answers: str
    params: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    kind: QuestionKind = "api"
    tries: int = 1
    """How many paths may be tried, a request each."""

    @property
    def target(self) -> str:
        """The path and the parameters, as shown to a person."""
        query = urlencode(self.params, safe="{}:,")
        return f"{self.path}?{query}" if query else self.path

    @property
    def needs(self) -> tuple[str, ...]:
        """The values of earlier responses that this request has in it."""
        texts = (self.path, *self.params.values(), *self.headers.values())
        return tuple(name for name in _VALUES if any(f"{{{name}}}" in text for text in texts))

    def filled_path(self, values: Mapping[str, str]) -> str:
        """Return the path with the values in it."""
        quoted = {name: quote(values[name], safe="") for name in _SINGLE_NAMES if name in values}
        return _filled(self.path, {**values, **quoted})

    def filled_params(self, values: Mapping[str, str]) -> dict[str, str]:
        return {name: _filled(text, values) for name, text in self.params.items()}

    def filled_headers(self, values: Mapping[str, str]) -> dict[str, str]:
        return {name: _filled(text, values) for name, text in self.headers.items()}


_VALUES: Final[Mapping[str, str]] = {
    "event_id": "the list of events has no event with an id",
    "event_day": "the list of events has no event with a date",
    "cursor": "the list of events has no further page",
    "coin": "the list of coins has no coin with a slug",
    "coin_part": "the list of coins has no coin with a name",
    "category_id": "the list of categories has no id",
    "cancelled_id": "the service lists no cancellation",
    "cancelled_at": "the service lists no cancellation with its time",
    "etag": "the list of events has no ETag",
}
"""The values that responses give, and why one may be missing."""


def explain_missing(name: str) -> str:
    """Return why a value that a request needs is not known."""
    return _VALUES[name]


def _filled(text: str, values: Mapping[str, str]) -> str:
    for name in _VALUES:
        if name in values:
            text = text.replace(f"{{{name}}}", values[name])
    return text


def list_questions(export_path: str) -> tuple[Question, ...]:
    """Return every request of a probe."""
    events, cancellations = constants.EVENTS_PATH, constants.CANCELLATIONS_PATH
    single = f"{events}/{{event_id}}"
    return (
        Question("usage", constants.USAGE_PATH, "usage, key, rate headers, clock", kind="usage"),
        Question("openapi", constants.OPENAPI_PATH, "OpenAPI document, names of paths"),
        Question("categories", constants.CATEGORIES_PATH, "wrapper and ids of categories"),
        Question("events", events, "fields, date types, default page size"),
        Question("event", single, "a single event, bare or wrapped"),
        Question("page", events, "form of the cursor", {"limit": "2"}),
        Question(
            "next_page", events, "whether pages overlap", {"limit": "2", "cursor": "{cursor}"}
        ),
        Question("unknown_event", f"{events}/{UNKNOWN_ID}", "404 and the body of an error"),
        Question("wrong_parameter", events, "400 or 422", {"from": "not-a-date"}),
        Question("cancellations", cancellations, "fields of cancellations", {"limit": "5"}),
        Question("cancelled_event", f"{events}/{{cancelled_id}}", "410 for a cancelled event"),
        Question("coins", constants.COINS_PATH, "fields and page size of coins", {"limit": "200"}),
        Question(
            *("export", export_path, "path, columns and separators of the export"),
            {"from": "{event_day}", "to": "{event_day}"},
            kind="export",
            tries=len(EXPORT_PATHS),
        ),
        Question(
            *("large_page", events, "a page of 100, and gzip", {"limit": "100"}),
            {"Accept-Encoding": "gzip"},
        ),
        Question("larger_page", events, "a limit above the maximum", {"limit": "101"}),
        Question(
            *("day", events, "inclusive bounds of dates"),
            {"from": "{event_day}", "to": "{event_day}", "limit": "100"},
        ),
        Question("category", events, "a filter by category id", {"categories": "{category_id}"}),
        Question("coin_events", events, "a filter by coin", {"coins": "{coin}"}),
        Question(
            *("impact", events, "impactMin and sortBy"),
            {"impactMin": "7.5", "sortBy": "impact_desc"},
        ),
        Question(
            *("since", cancellations, "a bound of cancellations"),
            {"since": "{cancelled_at}", "limit": "5"},
        ),
        Question("coin", f"{constants.COINS_PATH}/{{coin}}", "a single coin, bare or wrapped"),
        Question("coin_search", constants.COINS_PATH, "search by substring", {"q": "{coin_part}"}),
        Question("unmodified", events, "304 for a known ETag", {}, {"If-None-Match": "{etag}"}),
        Question("wrong_cursor", events, "a cursor that is not one", {"cursor": "not-a-cursor"}),
        Question("v1", "/events", "the retired first version", {"limit": "1"}),
        Question("wrong_key", constants.USAGE_PATH, "401 or 403 for a wrong key", kind="stranger"),
    )


def count_requests(questions: tuple[Question, ...], most: int) -> tuple[int, int]:
    """Return how many requests a probe sends at the usual export path, and at most."""
    return min(len(questions), most), min(sum(question.tries for question in questions), most)
