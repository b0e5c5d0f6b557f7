"""How values are read and written. Which values are admitted is in test_openapi.py."""

import csv
import io
from datetime import UTC, date, datetime, timedelta
from typing import Any
from urllib.parse import urlencode

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import UNSET, structs

from catalog.contract import constants, parameters, plans
from catalog.contract.errors import InvalidParameter
from catalog.contract.openapi import EXAMPLE
from catalog.contract.parameters import QUERY_PARAMETERS, read_query
from catalog.contract.plans import PLANS, Plan, Window, clamp_window, day_end, find_plan_window
from catalog.contract.records import EVENT_FIELDS, HEADER, Event, EventCoin, encode_rows

VALID = {
    **{"limit": "7", "cursor": "abc", "q": "bit", "tracked": "true", "since": "2026-10-08"},
    **{"coins": "bitcoin, ethereum ,bitcoin", "categories": "upgrade", "keyword": "fork"},
    **{"from": "2026-10-01", "to": "2026-10-31", "impactMin": "7.5", "sortBy": "impact_desc"},
}


def refusal(path: str, **values: str) -> str:
    """Return the message of the refusal, empty if the values are read."""
    try:
        read_query(urlencode(values), QUERY_PARAMETERS[path])
    except InvalidParameter as error:
        return error.message
    return ""


def test_every_parameter_is_read_with_its_type_and_has_its_default() -> None:
    expected: dict[str, tuple[Any, Any]] = {
        "limit": (7, constants.LIMIT_DEFAULT),
        "sort_by": ("impact_desc", "date_asc"),
        "cursor": ("abc", None),
        "q": ("bit", None),
        "tracked": (True, None),
        "since": (datetime(2026, 10, 8, tzinfo=UTC), None),
        "coins": (("bitcoin", "ethereum"), None),
        "categories": (("upgrade",), None),
        "keyword": ("fork", None),
        "lower": (datetime(2026, 10, 1, tzinfo=UTC), None),
        "upper": (datetime(2026, 10, 31, 23, 59, 59, 999_999, tzinfo=UTC), None),
        "impact_min": (7.5, None),
    }
    for known in QUERY_PARAMETERS.values():
        fields = [each.field or each.name for each in known]
        read, empty = read_query(urlencode(VALID), known), read_query("", known)
        assert read == {field: expected[field][0] for field in fields}
        assert empty == {field: expected[field][1] for field in fields}
    assert "limit" not in read_query("limit=x&cursor=", parameters.EXPORT_PARAMETERS)


def test_an_empty_and_a_repeated_value_are_refused_by_name() -> None:
    for path, known in QUERY_PARAMETERS.items():
        for name in (each.name for each in known):
            assert refusal(path, **{name: ""}).startswith(f"{name} must ")
            once = urlencode({name: VALID[name]})
            with pytest.raises(InvalidParameter, match=f"^{name} was given more than once"):
                read_query(f"{once}&other=1&{once}", known)


def test_an_unknown_parameter_is_ignored_also_when_repeated() -> None:
    for name in ("exchanges", "showVotes", "max", "page", "Limit", "cursor%5B%5D", ""):
        for known in QUERY_PARAMETERS.values():
            assert read_query(f"{name}=&{name}=x&{name}", known) == read_query("", known)


PAIRS = st.lists(
    st.tuples(st.sampled_from(sorted(VALID)), st.sampled_from(sorted(VALID.values())) | st.text())
)


@given(query=st.text() | PAIRS.map(urlencode) | PAIRS.map(lambda p: "&".join(map("=".join, p))))
@example("limit=" + "9" * 5_000)
@example("impactMin=1e999")
@example("from=9999-12-31T23:59:59.999999999Z&to=9999-12-31")
@example("from=0000-01-01")
@example("coins=%ff%fe&q=%00&keyword=%ed%a0%80")
@example("since=2026-10-08T00:00:00+00:00")
def test_arbitrary_text_is_read_or_refused_but_never_breaks(query: str) -> None:
    for known in QUERY_PARAMETERS.values():
        try:
            assert 1 <= read_query(query, known).get("limit", 1) <= constants.COINS_LIMIT_MAX
        except InvalidParameter as error:
            assert error.message


@given(day=st.dates(), at=st.datetimes(), offset=st.sampled_from(["Z", "+00:00", "-00:00"]))
def test_times_are_read_to_the_microsecond(day: date, at: datetime, offset: str) -> None:
    request = read_query(f"from={day}&to={day}", parameters.EVENTS_PARAMETERS)
    assert request["lower"] == datetime(day.year, day.month, day.day, tzinfo=UTC)
    assert request["upper"] == day_end(day)
    since = urlencode({"since": at.isoformat() + offset})
    found = read_query(since, parameters.CANCELLATIONS_PARAMETERS)["since"]
    assert found == at.replace(tzinfo=UTC)


TEXTS = st.text(st.characters(exclude_categories=["Cs"])) | st.text(alphabet='\r\n",; é🚀\0')
NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters=";"), min_size=1)
INSTANTS = st.integers(-30_000_000_000, 250_000_000_000).map(
    lambda epoch_s: datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=epoch_s)
)
OPTIONAL = st.none() | TEXTS
EVENTS = st.builds(
    Event,
    **dict.fromkeys(("id", "title", "displayed_date", "date_type"), TEXTS),
    **dict.fromkeys(("slug", "description", "impact_summary"), OPTIONAL),
    **dict.fromkeys(("source_url", "snapshot_url"), OPTIONAL),
    **dict.fromkeys(("date_end", "last_verified_at"), st.none() | INSTANTS),
    **dict.fromkeys(("created_at", "updated_at"), st.none() | INSTANTS),
    date=INSTANTS,
    is_estimated=st.booleans(),
    categories=st.just(UNSET) | st.none() | st.lists(NAMES).map(tuple),
    coins=st.lists(st.builds(EventCoin, slug=NAMES, symbol=TEXTS, name=TEXTS)).map(tuple),
    impact=st.none() | st.floats(0, 10) | st.sampled_from(["Low", "Critical"]),
)


def as_text(value: object) -> str:
    """Return the cell that a JSON value should have."""
    if isinstance(value, list | tuple):
        return ";".join(each["slug"] if isinstance(each, dict) else each for each in value)
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


@given(events=st.lists(EVENTS, max_size=4), cut=st.integers(0, 4))
@example(events=[structs.replace(EXAMPLE, title='"', description="\r")], cut=0)
@example(events=[structs.replace(EXAMPLE, title="two\r\nlines", description="=1+1, →")], cut=1)
def test_every_value_reads_back_as_in_json(events: list[Event], cut: int) -> None:
    data = HEADER + encode_rows(events)
    expected = [
        {name: as_text(msgspec.to_builtins(event).get(name)) for name in EVENT_FIELDS}
        for event in events
    ]
    assert list(csv.DictReader(io.StringIO(data.decode(), newline=""), strict=True)) == expected
    assert data == HEADER + encode_rows(events[:cut]) + encode_rows(events[cut:])


NOW = datetime(2026, 10, 8, 15, 30, 12, 345_678, tzinfo=UTC)
TODAY = datetime(2026, 10, 8, tzinfo=UTC)
START_2017 = datetime(2017, 1, 1, tzinfo=UTC)
END_OF_FREE = datetime(2026, 10, 15, 23, 59, 59, 999_999, tzinfo=UTC)
PLAN = st.sampled_from(list(PLANS.values()))
INSTANT = st.floats(1.52e9, 2.05e9).map(lambda epoch_s: datetime.fromtimestamp(epoch_s, tz=UTC))
"""From 2018 to 2034."""


def test_window_of_each_plan() -> None:
    for plan, expected in (
        (PLANS["free"], Window(TODAY, END_OF_FREE)),
        (PLANS["standard"], Window(TODAY, datetime(2027, 1, 6, 23, 59, 59, 999_999, tzinfo=UTC))),
        (PLANS["pro"], Window(datetime(2026, 9, 8, tzinfo=UTC), None)),
        (PLANS["elite"], Window(START_2017, None)),
        (PLANS["enterprise"], Window(START_2017, None)),
    ):
        assert find_plan_window(plan, NOW) == expected
        assert plans.find_upcoming_window(plan, NOW) == Window(TODAY, expected.upper)


def test_a_path_ignores_the_parameters_that_it_lacks() -> None:
    query = "q=bit&keyword=a%20b&as_of=2026-10-01&keyword=x&%2C=1&limit=3"
    assert parameters.list_ignored("/v2/coins", query) == ["keyword", "as_of", ","]
    assert parameters.list_ignored("/v2/events", query, [parameters.AS_OF]) == ["q", ","]
    assert parameters.list_ignored("/v2/usage", "") == []


@pytest.mark.parametrize(
    "name", ["as_off", "asof", "asOf", "AS-OF", "x_as_of", "as_of_date", "as_o"]
)
def test_a_name_like_that_of_an_extension_is_refused(name: str) -> None:
    with pytest.raises(InvalidParameter, match=f"'{name}' is not a parameter .* write as_of"):
        parameters.list_ignored("/v2/events", f"{name}=2026-10-01", [parameters.AS_OF])
    own = [p.name for known in parameters.QUERY_PARAMETERS.values() for p in known]
    assert parameters.list_ignored("/v2/usage", "&".join(own), [parameters.AS_OF])


ENDS_OF_TIME = [datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC)]
BOUND = st.none() | INSTANT | st.sampled_from(ENDS_OF_TIME)


@given(plan=PLAN, now=INSTANT, lower=BOUND, upper=BOUND, date=INSTANT)
def test_an_event_is_listed_iff_requested_and_inside_the_plan(
    plan: Plan, now: datetime, lower: datetime | None, upper: datetime | None, date: datetime
) -> None:
    usual = plans.find_upcoming_window(plan, now)
    requested = Window(lower or usual.lower, upper or usual.upper)
    window = clamp_window(plan, now, lower=lower, upper=upper)
    is_listed = requested.overlaps(date, None) and find_plan_window(plan, now).overlaps(date, None)
    assert window.overlaps(date, None) == is_listed
    assert not (window.empty and is_listed)
    assert clamp_window(plan, now, lower=None, upper=None) == usual
