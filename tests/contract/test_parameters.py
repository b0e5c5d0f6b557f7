"""How a query string is read: strictly for known parameters; unknown ones are ignored.

Which values a parameter admits is in test_openapi.py.
"""

from collections.abc import Callable
from datetime import UTC, date, datetime
from urllib.parse import urlencode

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from catalog.contract import constants, parameters
from catalog.contract.errors import InvalidParameter
from catalog.contract.parameters import (
    CancellationsRequest,
    CoinsRequest,
    EventsRequest,
    PageRequest,
    read_cancellations_request,
    read_coins_request,
    read_events_request,
    read_export_request,
)
from catalog.contract.plans import day_end

Reader = Callable[[str], PageRequest]
READERS: dict[Reader, tuple[parameters.Parameter, ...]] = {
    read_coins_request: parameters.COINS_PARAMETERS,
    read_events_request: parameters.EVENTS_PARAMETERS,
    read_cancellations_request: parameters.CANCELLATIONS_PARAMETERS,
    read_export_request: parameters.EXPORT_PARAMETERS,
}
VALID = {
    **{"limit": "7", "cursor": "abc", "q": "bit", "tracked": "true", "since": "2026-10-08"},
    **{"coins": "bitcoin,ethereum,bitcoin", "categories": "upgrade", "keyword": "fork"},
    **{"from": "2026-10-01", "to": "2026-10-31", "impactMin": "7.5", "sortBy": "impact_desc"},
}
EMPTY_EVENTS = EventsRequest(
    **dict.fromkeys(("coins", "categories", "lower", "upper", "keyword", "impact_min")),
    sort_by="date_asc",
)  # fmt: skip


def refusal(reader: Reader, **values: str) -> str:
    """Return the message of the refusal, empty if the values are read."""
    try:
        reader(urlencode(values))
    except InvalidParameter as error:
        return error.message
    return ""


def test_an_empty_query_has_all_defaults_and_the_export_has_no_pages() -> None:
    assert read_coins_request("") == CoinsRequest(q=None, tracked=None)
    assert read_cancellations_request("") == CancellationsRequest(since=None)
    assert read_events_request("") == read_export_request("limit=x&cursor=") == EMPTY_EVENTS
    assert EMPTY_EVENTS.limit == constants.LIMIT_DEFAULT


def test_every_parameter_is_read_with_its_type() -> None:
    query, page = urlencode(VALID), {"limit": 7, "cursor": "abc"}
    since = datetime(2026, 10, 8, tzinfo=UTC)
    assert read_coins_request(query) == CoinsRequest(**page, q="bit", tracked=True)
    assert read_cancellations_request(query) == CancellationsRequest(**page, since=since)
    assert read_events_request(query) == EventsRequest(
        **page,
        coins=("bitcoin", "ethereum"),
        categories=("upgrade",),
        lower=datetime(2026, 10, 1, tzinfo=UTC),
        upper=datetime(2026, 10, 31, 23, 59, 59, 999_999, tzinfo=UTC),
        keyword="fork",
        impact_min=7.5,
        sort_by="impact_desc",
    )


def test_an_empty_and_a_repeated_value_are_refused_by_name() -> None:
    for reader, name in ((reader, each.name) for reader, all_ in READERS.items() for each in all_):
        assert refusal(reader, **{name: ""}).startswith(f"{name} must ")
        once = urlencode({name: VALID[name]})
        reader(once)
        with pytest.raises(InvalidParameter, match=f"^{name} was given more than once"):
            reader(f"{once}&other=1&{once}")


def test_an_unknown_parameter_is_ignored_also_when_repeated() -> None:
    for name in ("exchanges", "showVotes", "max", "page", "Limit", "cursor%5B%5D", ""):
        for reader in READERS:
            assert reader(f"{name}=&{name}=x&{name}") == reader("")


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
    for reader in READERS:
        try:
            assert 1 <= reader(query).limit <= constants.COINS_LIMIT_MAX
        except InvalidParameter as error:
            assert error.message


@given(day=st.dates(), at=st.datetimes(), offset=st.sampled_from(["Z", "+00:00", "-00:00"]))
def test_days_and_instants_are_read_to_the_microsecond(
    day: date, at: datetime, offset: str
) -> None:
    request = read_events_request(f"from={day}&to={day}")
    assert request.lower == datetime(day.year, day.month, day.day, tzinfo=UTC)
    assert request.upper == day_end(day)
    since = urlencode({"since": at.isoformat() + offset})
    assert read_cancellations_request(since).since == at.replace(tzinfo=UTC)


@given(first=st.datetimes(), second=st.datetimes())
def test_from_after_to_is_refused(first: datetime, second: datetime) -> None:
    bounds = {"from": f"{first.isoformat()}Z", "to": f"{second.isoformat()}Z"}
    expected = "" if first <= second else "from must not be after to"
    assert refusal(read_events_request, **bounds) == expected
