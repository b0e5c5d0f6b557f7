"""How a query string is read: strictly for known parameters; unknown ones are ignored."""

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from urllib.parse import quote, urlencode

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from catalog.contract import constants
from catalog.contract.errors import InvalidParameter
from catalog.contract.parameters import (
    CANCELLATIONS_PARAMETERS,
    COINS_PARAMETERS,
    EVENTS_PARAMETERS,
    EXPORT_PARAMETERS,
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

READERS: dict[Reader, frozenset[str]] = {
    read_coins_request: COINS_PARAMETERS,
    read_events_request: EVENTS_PARAMETERS,
    read_cancellations_request: CANCELLATIONS_PARAMETERS,
    read_export_request: EXPORT_PARAMETERS,
}
EVERY_NAME = sorted(frozenset[str]().union(*READERS.values()))
NAMED = [(reader, name) for reader, names in READERS.items() for name in sorted(names)]
VALID = {
    "limit": "7",
    "cursor": "abc",
    "q": "bit",
    "tracked": "true",
    "since": "2026-10-08",
    "coins": "bitcoin,ethereum",
    "categories": "upgrade",
    "from": "2026-10-01",
    "to": "2026-10-31",
    "keyword": "fork",
    "impactMin": "7.5",
    "sortBy": "impact_desc",
}


def refusal(reader: Reader, **values: str) -> str | None:
    """Return the message of the refusal, or None when the values are read."""
    try:
        reader(urlencode(values))
    except InvalidParameter as error:
        return error.message
    return None


def test_an_empty_query_has_all_defaults() -> None:
    assert read_coins_request("") == CoinsRequest(limit=50, cursor=None, q=None, tracked=None)
    assert read_cancellations_request("") == CancellationsRequest(limit=50, cursor=None, since=None)
    assert (
        read_events_request("")
        == read_export_request("")
        == EventsRequest(
            limit=50,
            cursor=None,
            coins=None,
            categories=None,
            lower=None,
            upper=None,
            keyword=None,
            impact_min=None,
            sort_by="date_asc",
        )
    )


def test_every_parameter_is_read_with_its_type() -> None:
    assert read_coins_request(urlencode(VALID)) == CoinsRequest(
        limit=7, cursor="abc", q="bit", tracked=True
    )
    assert read_cancellations_request(urlencode(VALID)) == CancellationsRequest(
        limit=7, cursor="abc", since=datetime(2026, 10, 8, tzinfo=UTC)
    )
    assert read_events_request(urlencode(VALID)) == EventsRequest(
        limit=7,
        cursor="abc",
        coins=("bitcoin", "ethereum"),
        categories=("upgrade",),
        lower=datetime(2026, 10, 1, tzinfo=UTC),
        upper=datetime(2026, 10, 31, 23, 59, 59, 999_999, tzinfo=UTC),
        keyword="fork",
        impact_min=7.5,
        sort_by="impact_desc",
    )


@pytest.mark.parametrize("limit", ["1", "x", ""])
def test_export_ignores_any_limit_and_cursor(limit: str) -> None:
    request = read_export_request(urlencode({"limit": limit, "cursor": ""}))
    assert request == read_export_request("")


@pytest.mark.parametrize(("reader", "name"), NAMED)
def test_an_empty_value_is_refused_by_name(reader: Reader, name: str) -> None:
    assert (refusal(reader, **{name: ""}) or "").startswith(f"{name} must ")


@pytest.mark.parametrize(("reader", "name"), NAMED)
def test_a_repeated_parameter_is_refused_by_name(reader: Reader, name: str) -> None:
    once = urlencode({name: VALID[name]})
    reader(once)
    with pytest.raises(InvalidParameter, match=f"^{name} was given more than once"):
        reader(f"{once}&other=1&{once}")


V1_FILTERS = ("exchanges", "showOnly", "showVotes", "showViews", "translations", "max", "page")


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("name", [*V1_FILTERS, "Limit", "COINS", "cursor[]", ""])
def test_an_unknown_parameter_is_ignored_also_when_repeated(reader: Reader, name: str) -> None:
    assert reader(f"{quote(name)}=&{quote(name)}=x&{quote(name)}") == reader("")


def test_a_parameter_of_another_list_is_unknown() -> None:
    assert read_coins_request("since=x&sortBy=x&from=x") == read_coins_request("")
    assert read_events_request("q=&tracked=maybe&since=x") == read_events_request("")


VALUES = st.sampled_from(sorted(VALID.values())) | st.text(max_size=30)
PAIRS = st.lists(st.tuples(st.sampled_from(EVERY_NAME) | st.text(max_size=5), VALUES), max_size=6)
QUERIES = (
    st.text()
    | PAIRS.map(urlencode)
    | PAIRS.map(lambda pairs: "&".join(f"{name}={value}" for name, value in pairs))
)


@given(query=QUERIES)
@example("limit=" + "9" * 5_000)
@example("impactMin=" + "9" * 5_000)
@example("impactMin=1e999")
@example("from=9999-12-31T23:59:59.999999999Z&to=9999-12-31")
@example("from=0000-01-01")
@example("coins=%ff%fe&q=%00&keyword=%ed%a0%80")
@example("limit=%31%30;cursor=1")
@example("since=2026-10-08T00:00:00+00:00")
def test_arbitrary_text_is_read_or_refused_but_never_breaks(query: str) -> None:
    for reader in READERS:
        try:
            request = reader(query)
        except InvalidParameter as error:
            assert error.message
        else:
            assert 1 <= request.limit <= constants.COINS_LIMIT_MAX
            assert request.cursor is None or 1 <= len(request.cursor) <= 1_024


@given(limit=st.integers(-1_000, 1_000))
def test_limit_is_within_its_bounds_or_refused(limit: int) -> None:
    for reader, maximum in (
        (read_coins_request, constants.COINS_LIMIT_MAX),
        (read_events_request, constants.EVENTS_LIMIT_MAX),
        (read_cancellations_request, constants.EVENTS_LIMIT_MAX),
    ):
        if 1 <= limit <= maximum:
            assert reader(f"limit={limit}").limit == limit
        else:
            assert refusal(reader, limit=str(limit)) == (
                f"limit must be an integer from 1 to {maximum}"
            )


@pytest.mark.parametrize("text", ["1.0", "1e1", "+1", " 1", "1 ", "0x1", "١", "1_0", "null", "1\n"])
def test_limit_is_written_in_plain_digits(text: str) -> None:
    assert refusal(read_events_request, limit=text)


@given(score=st.floats(0, 10))
def test_every_score_a_program_prints_is_read_as_it_is(score: float) -> None:
    assert read_events_request(urlencode({"impactMin": repr(score)})).impact_min == score


@given(score=st.floats().filter(lambda score: not 0 <= score <= 10))
def test_a_score_out_of_range_or_not_finite_is_refused(score: float) -> None:
    assert refusal(read_events_request, impactMin=repr(score))


@pytest.mark.parametrize("text", ["True", "TRUE", "1", "0", "yes", " true", "null"])
def test_booleans_are_true_and_false_in_lower_case(text: str) -> None:
    assert refusal(read_coins_request, tracked=text) == "tracked must be true or false"
    assert read_coins_request("tracked=false").tracked is False


SLUGS = st.text(st.characters(exclude_characters=",", exclude_categories=["Cs"]), min_size=1)


@given(slugs=st.lists(SLUGS, min_size=1, max_size=100))
def test_slugs_are_read_in_order_each_once(slugs: list[str]) -> None:
    request = read_events_request(urlencode({"coins": ",".join(slugs)}))
    assert request.coins == tuple(dict.fromkeys(slugs))


@pytest.mark.parametrize("name", ["coins", "categories"])
def test_more_than_a_hundred_names_are_refused_also_when_they_repeat(name: str) -> None:
    assert refusal(read_events_request, **{name: ",".join(["a"] * 100)}) is None
    assert refusal(read_events_request, **{name: ",".join(["a"] * 101)})


@pytest.mark.parametrize("text", [",", "a,", ",a", "a,,b"])
def test_an_empty_name_in_a_list_is_refused(text: str) -> None:
    assert (
        refusal(read_events_request, coins=text) == "coins must be 1 to 100 values, comma-separated"
    )


@pytest.mark.parametrize(
    ("reader", "name", "maximum"),
    [
        (read_coins_request, "q", constants.KEYWORD_LENGTH_MAX),
        (read_events_request, "keyword", constants.KEYWORD_LENGTH_MAX),
        (read_events_request, "cursor", 1_024),
    ],
)
def test_a_text_is_measured_in_characters_not_bytes(
    reader: Reader, name: str, maximum: int
) -> None:
    assert refusal(reader, **{name: "é" * maximum}) is None
    assert refusal(reader, **{name: "é" * (maximum + 1)})


@given(day=st.dates())
def test_a_day_starts_at_midnight_and_as_upper_bound_runs_to_its_end(day: date) -> None:
    request = read_events_request(f"from={day}&to={day}")
    assert request.lower == datetime(day.year, day.month, day.day, tzinfo=UTC)
    assert request.upper == day_end(day)


@given(at=st.datetimes(), offset=st.sampled_from(["Z", "+00:00", "-00:00"]))
def test_an_instant_is_read_to_the_microsecond(at: datetime, offset: str) -> None:
    request = read_cancellations_request(urlencode({"since": at.isoformat() + offset}))
    assert request.since == at.replace(tzinfo=UTC)


def test_digits_beyond_the_microsecond_are_dropped() -> None:
    request = read_cancellations_request("since=2026-10-08T00:00:00.123456789Z")
    assert request.since == datetime(2026, 10, 8, 0, 0, 0, 123_456, tzinfo=UTC)


@given(first=st.datetimes(), second=st.datetimes())
def test_from_after_to_is_refused(first: datetime, second: datetime) -> None:
    found = refusal(
        read_events_request, **{"from": f"{first.isoformat()}Z", "to": f"{second.isoformat()}Z"}
    )
    assert found == (None if first <= second else "from must not be after to")


@given(day=st.dates(max_value=date(9999, 12, 30)))
def test_the_last_instant_of_the_upper_day_is_not_after_it(day: date) -> None:
    last = f"{day}T23:59:59.999999Z"
    assert refusal(read_events_request, **{"from": last, "to": str(day)}) is None
    assert refusal(read_events_request, **{"from": str(day + timedelta(days=1)), "to": str(day)})
