"""The tools of an assistant: their arguments, as models, with descriptions, and their answers."""

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Final, get_origin

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from almanac.coins import resolve_coins
from almanac.core.errors import InvalidArgument, UnknownName
from almanac.core.statements import Statements
from almanac.core.text import cut_line, json_text
from almanac.database import Database
from almanac.events import (
    Estimated,
    check_observed,
    read_known_at,
)
from almanac.reader import Ambiguous, Reader
from almanac.results import Result

LIMIT: Final = 50
LIMIT_MAX: Final = 1_000
_SQL = Statements("almanac.mcp")
_WRONG: Final = {"missing": "it is needed", "extra_forbidden": "there is no such argument"}
_LONG: Final = (
    *("slug", "description", "displayed_date", "date_end", "date_type", "impact_summary", "extra"),
    *("snapshot_url", "last_verified_at", "created_at", "updated_at", "last_pull_at"),
)
"""Columns of events that history_of alone shows."""
_TIME: Final = "ISO 8601 (a date is its first moment, UTC), yesterday, or an age such as 24h or 7d."
AsOf = Annotated[
    str, Field(description=f"Time of knowledge: nothing learned later is used. {_TIME}")
]


def _is_empty(value: Any) -> bool:
    text = value.strip().lower() if isinstance(value, str) else value
    return text is None or text in ("", "null", [], {})


def _read_list(value: Any) -> list[Any]:
    """Return a list; a text is its parts between commas, also with brackets and quotes."""
    if isinstance(value, str):
        value = [part.strip(" \"'") for part in value.strip().strip("[]").split(",")]
    return [each for each in (value if isinstance(value, list) else [value]) if not _is_empty(each)]


class Tool(BaseModel, ABC):
    """The arguments of a tool. An empty one is not given; a list may be a text with commas."""

    model_config = ConfigDict(
        extra="forbid",
        str_strip_whitespace=True,
        coerce_numbers_to_str=True,
        use_attribute_docstrings=True,
    )
    limit: Annotated[int, Field(ge=1, le=LIMIT_MAX)] = LIMIT
    """Most rows."""
    offset: Annotated[int, Field(ge=0)] = 0
    """next_offset of the last answer."""

    @model_validator(mode="before")
    @classmethod
    def _read_forms(cls, given: dict[str, Any]) -> dict[str, Any]:
        lists = {n for n, f in cls.model_fields.items() if get_origin(f.annotation) is list}
        return {
            name: _read_list(value) if name in lists else value
            for name, value in given.items()
            if not _is_empty(value)
        }

    @classmethod
    def describe(cls) -> tuple[str, dict[str, Any]]:
        """Return the description, and the JSON schema of the arguments without titles."""
        schema = cls.model_json_schema()
        for declared in schema["properties"].values():
            del declared["title"]
            if declared.get("default") in ("", []):
                del declared["default"]
        del schema["title"]
        return " ".join(schema.pop("description").split()), schema

    @abstractmethod
    def answer(self, database: Database) -> tuple[datetime, Result]:
        """Return the time of knowledge, and all rows."""


class _Filters(Tool):
    coins: list[str] = []
    """Tickers, names, slugs or pairs. An ambiguous one is answered with the coins."""
    ambiguous: Ambiguous = "raise"
    """largest: read an ambiguous one as the coin with the best rank at that time. The note says
    which."""
    categories: list[str] = []
    """Such as Token Unlock. A wrong name is answered with similar ones."""
    min_impact: float | str = ""
    """0 to 10, or Low, Mid, High, Critical. Events of unknown impact are left out."""

    def filters(self, reader: Reader, moment: datetime) -> dict[str, Any]:
        """Return the filters that are given; ranks are as of a time."""
        given = self.model_dump(include={"min_impact"}, exclude_unset=True)
        if self.categories:
            given["categories"] = self.categories
        if self.coins:
            given["coins"] = resolve_coins(reader, self.coins, moment, self.ambiguous)
        return given


class Upcoming(_Filters):
    """Events to come or in progress, soonest first: which token unlocks are next week? Exact dates
    first. Show displayed_date_full to people: date_exact is null for an estimated event, whose date
    is a period from earliest to latest (exclusive)."""

    within: str = "14d"
    """How far ahead an event may begin: 24h, 7d, 8w."""
    estimated: Estimated = "include"
    """Events without an exact date."""
    as_of: AsOf = ""

    def answer(self, database: Database) -> tuple[datetime, Result]:
        moment = _read_observed(database.reader, self.as_of, "as_of")
        filters = self.filters(database.reader, moment) | {"within": self.within}
        found = database.upcoming(**filters, estimated=self.estimated, as_of=moment)
        return moment, _shorten(found)


class EventsAsOf(_Filters):
    """All events, past and to come, as known at a time, without look-ahead: which events of April
    were known on 1 March? history_of has descriptions. Exact dates first; date_exact and
    displayed_date_full as in upcoming. Fields in unknown_fields are unknown, not empty."""

    as_of: AsOf = ""
    from_: Annotated[str, Field(alias="from")] = ""
    """First day of event dates."""
    to: str = ""
    """Last day of event dates, included."""
    status: list[str] = ["scheduled"]
    """scheduled, cancelled, withdrawn or all: the status at that time."""

    def answer(self, database: Database) -> tuple[datetime, Result]:
        moment = _read_observed(database.reader, self.as_of, "as_of")
        found = database.events(
            **self.filters(database.reader, moment),
            as_of=moment,
            window=(self.from_ or None, self.to or None),
            status=self.status,
        )
        return moment, _shorten(found)


class HistoryOf(Tool):
    """Every version of one event with all fields, oldest first: when did this date move, and when
    did that become known? Fields in unknown_fields are unknown, not empty."""

    event_id: str
    """The id, from another tool."""
    as_of: AsOf = ""

    def answer(self, database: Database) -> tuple[datetime, Result]:
        moment = read_known_at(database.reader, self.as_of or None, "as_of")
        for event_id in (self.event_id, self.event_id.lower()):
            values = {"event_id": event_id, "at": moment}
            found = database.reader.result(_SQL["known_history"], values)
            if len(found):
                return moment, found
        # In the same words, whether the event became known later or never.
        shown = json_text(cut_line(self.event_id))
        raise UnknownName(f"no event with the id {shown} was known at {moment.isoformat()}")


class WhatChanged(_Filters):
    """Changes that became known after since, up to until, oldest first, with old and new values:
    what moved or was cancelled this week? One row per version and kind. as_of of the answer is
    until."""

    since: Annotated[str, Field(description=_TIME)]
    until: str = ""
    """The end, as since. Default: now."""
    kinds: list[str] = []
    """created, rescheduled (the date moved), made_exact, made_estimated, rescored (another impact),
    revised, cancelled, withdrawn, restored, revealed (a field became visible). Default: all."""

    def answer(self, database: Database) -> tuple[datetime, Result]:
        since = _read_observed(database.reader, self.since, "since")
        until = read_known_at(database.reader, self.until or None, "until")
        if until < since:
            raise InvalidArgument(f"until: {self.until} is before since, {self.since}")
        filters = self.filters(database.reader, until)
        return until, database.changes(since, until, kinds=self.kinds or None, **filters)


class CoverageOfDates(Tool):
    """Which event dates were pulled, and when. Use it before you say that there is no event: for
    dates without a pull, an absent event says nothing."""

    as_of: AsOf = ""

    def answer(self, database: Database) -> tuple[datetime, Result]:
        found = database.coverage(self.as_of or None)
        return found.as_of, found.windows


class Query(Tool):
    """Run one reading DuckDB statement, for questions that no other tool answers, such as counts.
    Without sql: the tables; with table: its columns and units. Tables show the present; for the
    past read FROM events_as_of('2026-03-01'). The column date is a day only if date_precision is
    instant or day: select displayed_date_full. Use ORDER BY to read on with offset."""

    sql: str = ""
    """Such as SELECT status, count(*) FROM events GROUP BY status"""
    table: str = ""
    """A table or view, to describe it."""

    def answer(self, database: Database) -> tuple[datetime, Result]:
        return database.reader.now(), database.tables(self.table or None)


TOOLS: Final[Mapping[str, type[Tool]]] = {
    "upcoming": Upcoming,
    "events_as_of": EventsAsOf,
    "history_of": HistoryOf,
    "what_changed": WhatChanged,
    "coverage": CoverageOfDates,
    "query": Query,
}


def read_call(name: str, given: Mapping[str, Any]) -> Tool:
    """Return a tool with its arguments.

    Raises:
        UnknownName, InvalidArgument: there is no such tool, or an argument can't be read.
    """
    if name not in TOOLS:
        raise UnknownName(f"there is no tool {cut_line(name)!r}; the tools are {', '.join(TOOLS)}")
    try:
        return TOOLS[name].model_validate(dict(given))
    except ValidationError as error:
        wrong = error.errors()[0]
        what = _WRONG.get(wrong["type"], wrong["msg"])
        got = cut_line(json.dumps(wrong["input"], ensure_ascii=False), 100)
        takes = ", ".join(TOOLS[name].describe()[1]["properties"])
        raise InvalidArgument(
            f"{wrong['loc'][0]}: {what}; got {got}. {name} takes {takes}."
        ) from None


def _shorten(found: Result) -> Result:
    """Return events without long columns: exact dates first; the sort keeps the order of each."""
    shown = found[[name for name in found.columns if name not in _LONG]]
    return Result(shown.arrow().sort_by([("is_estimated", "ascending")]), found.notes)


def _read_observed(reader: Reader, text: str, name: str) -> datetime:
    """Return a time of knowledge at which something was known."""
    moment = read_known_at(reader, text or None, name)
    check_observed(reader, moment, name, moment)
    return moment
